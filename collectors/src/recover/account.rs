//! The account of a collector that was killed, by what is on the disk: each file says whose events its rows are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use bytes::Bytes;
use gputrace_abi::Class;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::accounting::ByClass;
use crate::file::io_error;
use crate::manifest::{Count, Manifest, Process, launcher_text};
use crate::schema::{TABLES, TableId};
use crate::share::{self, Share};

/// Classes of which few calls have an event.
const DRAWN: [Class; 3] = [Class::HostAlloc, Class::HostFree, Class::OsWait];

/// A whole file of a launcher.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) table: TableId,
    /// Relative to the trace.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    /// When it was written last.
    pub(crate) written_ns: i64,
    pub(crate) shares: Vec<Share>,
}

/// What the files of a launcher hold.
#[derive(Debug, Default)]
pub(crate) struct OnDisk {
    /// The files, by table and number.
    pub(crate) files: Vec<File>,
    /// Events in `rollups` and in `rollup_names`, by process and class.
    summed: [BTreeMap<(i64, String), u64>; 2],
    /// Rows and events summed, by process and class.
    kept: BTreeMap<(i64, u8), (u64, u64)>,
    /// Processes of which rows tell: pid and executable.
    processes: BTreeMap<i64, (i32, String)>,
}

impl OnDisk {
    /// Reads the footers of the launcher's files, and its rows about processes. A file that cannot be read is noted.
    /// `told` hears how many are read of how many.
    pub(crate) fn read(trace: &Path, manifest: &mut Manifest, told: fn(usize, usize)) -> io::Result<OnDisk> {
        let (mut on_disk, mut found) = (OnDisk::default(), Vec::new());
        share::from_text(&manifest.removed_events).for_each(|share| on_disk.add(share));
        let start = format!("{}-", launcher_text(manifest.launcher_id));
        for table in &TABLES {
            let folder = trace.join(table.name).join(format!("host={}", manifest.host));
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let entry = entry?;
                let name = entry.file_name();
                if !name.to_str().is_some_and(|name| name.starts_with(&start) && name.ends_with(".parquet")) {
                    continue;
                }
                let name = format!("{}/host={}/{}", table.name, manifest.host, name.to_string_lossy());
                found.push((entry.path(), name, table.id));
            }
        }
        for (done, (path, name, table)) in found.iter().enumerate() {
            told(done, found.len());
            if let Err(error) = on_disk.read_file(path, name, *table) {
                manifest.note(&format!("{name} is damaged, and its rows are lost: {error}"));
            }
        }
        on_disk.files.sort_by(|a, b| (a.table, &a.name).cmp(&(b.table, &b.name)));
        Ok(on_disk)
    }

    fn read_file(&mut self, path: &Path, name: &str, table: TableId) -> io::Result<()> {
        let file = fs::File::open(path)?;
        let meta = file.metadata()?;
        let about = ParquetMetaDataReader::new().parse_and_finish(&file).map_err(io_error)?;
        let shares = of_footer(&about);
        shares.iter().for_each(|share| self.add(*share));
        self.files.push(File {
            table,
            name: name.to_owned(),
            bytes: meta.len(),
            rows: about.file_metadata().num_rows().max(0) as u64,
            written_ns: meta.modified()?.duration_since(UNIX_EPOCH).map_or(0, |at| at.as_nanos() as i64),
            shares,
        });
        if matches!(table, TableId::Processes | TableId::Rollups | TableId::RollupNames) {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|builder| builder.build());
            for batch in reader.map_err(io_error)? {
                let batch = batch.map_err(io::Error::other)?;
                match table {
                    TableId::Processes => self.add_processes(&batch),
                    _ => self.add_sums(&batch, usize::from(table == TableId::RollupNames)),
                }
            }
        }
        Ok(())
    }

    fn add_sums(&mut self, batch: &RecordBatch, level: usize) {
        let numbers = |name: &str| batch.column_by_name(name).and_then(|c| c.as_primitive_opt::<Int64Type>());
        let classes = batch.column_by_name("class").and_then(|c| c.as_string_opt::<i32>());
        let (Some(ids), Some(classes), Some(events)) = (numbers("process_id"), classes, numbers("events")) else {
            return;
        };
        for row in 0..batch.num_rows() {
            let sum = self.summed[level].entry((ids.value(row), classes.value(row).to_owned())).or_default();
            *sum = sum.saturating_add(events.value(row).max(0) as u64);
        }
    }

    /// The processes of which there is anything.
    pub(crate) fn ids(&self) -> impl Iterator<Item = i64> {
        self.kept.keys().map(|(id, _)| *id).chain(self.processes.keys().copied())
    }

    /// What there is of these processes, which goes out of this.
    pub(crate) fn split_off(&mut self, ids: &BTreeSet<i64>) -> OnDisk {
        OnDisk {
            files: Vec::new(),
            kept: self.kept.extract_if(.., |(id, _), _| ids.contains(id)).collect(),
            processes: self.processes.extract_if(.., |id, _| ids.contains(id)).collect(),
            summed: self.summed.each_mut().map(|sums| sums.extract_if(.., |(id, _), _| ids.contains(id)).collect()),
        }
    }

    /// Whether there are sums of anything.
    pub(super) fn has_sums(&self) -> bool {
        self.summed.iter().any(|sums| !sums.is_empty())
    }

    /// Events of a class in the sums of a process: of short periods, and of long ones.
    pub(crate) fn summed(&self, process_id: i64, class: Class) -> [u64; 2] {
        let key = (process_id, class.name().to_owned());
        [0, 1].map(|level| self.summed[level].get(&key).copied().unwrap_or(0))
    }

    /// Events of a class in the sums of a process beyond those that are told already, where nothing but sums is to be kept: their rows
    /// would have been left out.
    fn summed_beyond(&self, process_id: i64, class: Class, told: u64, only_sums: bool) -> u64 {
        let [short, long] = self.summed(process_id, class);
        if only_sums { short.max(long).saturating_sub(told) } else { 0 }
    }

    pub(crate) fn add(&mut self, share: Share) {
        let (rows, culled) = self.kept.entry((share.process_id, share.class)).or_default();
        *rows = rows.saturating_add(share.rows);
        *culled = culled.saturating_add(share.culled);
    }

    fn add_processes(&mut self, batch: &RecordBatch) {
        let ids = batch.column_by_name("process_id").and_then(|c| c.as_primitive_opt::<Int64Type>());
        let pids = batch.column_by_name("pid").and_then(|c| c.as_primitive_opt::<Int32Type>());
        let exes = batch.column_by_name("exe").and_then(|c| c.as_string_opt::<i32>());
        let traced = batch.column_by_name("traced").and_then(|c| c.as_boolean_opt());
        let (Some(ids), Some(pids), Some(exes), Some(traced)) = (ids, pids, exes, traced) else { return };
        for row in (0..batch.num_rows()).filter(|row| traced.value(*row)) {
            self.processes.insert(ids.value(row), (pids.value(row), exes.value(row).to_owned()));
        }
    }

    /// What is kept of a process, by class: events, and events summed.
    pub(crate) fn of(&self, process_id: i64) -> impl Iterator<Item = (Class, u64, u64)> {
        let of = self.kept.range((process_id, 0)..=(process_id, u8::MAX));
        of.filter_map(|((_, class), (rows, culled))| Some((Class::from_u8(*class)?, *rows, *culled)))
    }

    /// How many events of a process its account says were left out, by class, and are in no file all the same. Where single events are
    /// not to be kept, those as well that the sums hold and the account did not know of yet.
    pub(crate) fn left_out(&self, process: &Process, only_sums: bool) -> ByClass {
        let mut all = ByClass::default();
        for (class, count) in &process.accounting {
            let Some(class) = Class::named(class) else { continue };
            let kept =
                self.of(process.process_id).find(|(of, ..)| *of == class).map_or(0, |(_, rows, culled)| rows + culled);
            let left_out = count.left_out - count.found_again(kept);
            let told = kept + left_out + count.dropped + count.sampled_out;
            all[class as usize] = left_out + self.summed_beyond(process.process_id, class, told, only_sums);
        }
        all
    }

    /// Brings the accounts in line with the files. What was read and is in none is dropped; what is there and was not yet in the
    /// account was seen. Returns the events lost. `read_on`: another trace has what was seen and stood in the rings.
    pub(crate) fn correct(&self, manifest: &mut Manifest, read_on: bool) -> u64 {
        let known: BTreeSet<i64> = manifest.processes.iter().map(|process| process.process_id).collect();
        let among = manifest.among();
        let is_summed = |id: i64| among.as_ref().is_some_and(|among| among.holds(id));
        // Of one that had just begun there may be events, and no row about itself yet.
        let mut came: BTreeSet<i64> = self.kept.keys().map(|(id, _)| *id).collect();
        came.extend(self.processes.keys());
        for id in came {
            if !known.contains(&id) && !is_summed(id) {
                let (pid, exe) = self.processes.get(&id).cloned().unwrap_or_default();
                manifest.processes.push(Process {
                    process_id: id,
                    pid,
                    exe,
                    traced: true,
                    running: true,
                    ..Process::default()
                });
            }
        }
        let mut of_summed: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for ((_, class), (rows, culled)) in self.kept.iter().filter(|((id, _), _)| is_summed(*id)) {
            let sum = of_summed.entry(Class::from_u8(*class).map_or("", Class::name)).or_default();
            *sum = (sum.0.saturating_add(*rows), sum.1.saturating_add(*culled));
        }
        let summed = manifest.summed.as_ref().map(|summed| summed.account.process_id);
        let (mut lost, only_sums) = (0, manifest.keeps_only_sums());
        for process in manifest.accounts_mut() {
            let kept: BTreeMap<&str, (u64, u64)> = if Some(process.process_id) == summed {
                // They had ended when the account was written: the sums know no more of them.
                std::mem::take(&mut of_summed)
            } else {
                self.see_sums(process);
                self.of(process.process_id).map(|(class, rows, culled)| (class.name(), (rows, culled))).collect()
            };
            for class in kept.keys() {
                process.accounting.entry((*class).to_owned()).or_default();
            }
            for (class, count) in &mut process.accounting {
                let (rows, culled) = kept.get(class.as_str()).copied().unwrap_or_default();
                let left = if read_on && process.running { Left::ToAnother } else { Left::of(process.running) };
                let unknown = correct(count, rows, culled, left);
                let told = count.kept() + count.left_out + count.dropped - unknown + count.sampled_out;
                let class = Class::named(class);
                let summed = class
                    .map_or(0, |class| self.summed_beyond(process.process_id, class, told, only_sums).min(unknown));
                count.dropped -= summed;
                count.left_out += summed;
                lost += unknown - summed;
            }
            process.balanced = process.accounting.values().all(Count::is_balanced);
        }
        lost
    }
}

impl OnDisk {
    /// The sums may know of more calls than the account of a moment before does.
    fn see_sums(&self, process: &mut Process) {
        for class in Class::ALL {
            let [short, long] = self.summed(process.process_id, class);
            let most = short.max(long);
            let Some(count) = process.accounting.get_mut(class.name()) else { continue };
            let all = count.kept() + count.left_out + count.dropped + count.sampled_out;
            let more = most.saturating_sub(all);
            // Of what is drawn most leave no event. Else they were read, and their rows are there or lost.
            let to = if DRAWN.contains(&class) { &mut count.sampled_out } else { &mut count.recorded };
            *to += more;
        }
    }
}

/// What became of events that a process had seen and nobody had read when its account was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// There were none: it had ended.
    Nothing,
    /// They came to the disk since, or are lost.
    Behind,
    /// The same, but what did not come is in another trace, and seen there.
    ToAnother,
}

impl Left {
    fn of(running: bool) -> Left {
        if running { Left::Behind } else { Left::Nothing }
    }
}

fn correct(count: &mut Count, rows: u64, culled: u64, left: Left) -> u64 {
    let kept = rows + culled;
    let found = count.found_again(kept);
    count.left_out -= found;
    if left == Left::ToAnother {
        // They end there.
        count.in_flight = 0;
    }
    let mut lost = (count.kept() + found).saturating_sub(kept);
    (count.recorded, count.culled) = (rows, culled);
    let others = count.left_out + count.dropped + count.sampled_out + count.in_flight + count.abandoned;
    let told = kept + others + lost;
    match left {
        Left::Nothing => {}
        Left::Behind => lost += count.seen.saturating_sub(told),
        Left::ToAnother => count.seen = count.seen.min(told),
    }
    count.dropped += lost;
    count.seen = count.seen.max(kept + others + lost);
    lost
}

/// Whose events the rows of a file in memory are.
pub(super) fn of_image(image: &Bytes) -> Vec<Share> {
    let about = ParquetMetaDataReader::new().parse_and_finish(image);
    about.map(|about| of_footer(&about)).unwrap_or_default()
}

fn of_footer(about: &ParquetMetaData) -> Vec<Share> {
    let facts = about.file_metadata().key_value_metadata().into_iter().flatten();
    let said = facts.filter(|fact| fact.key == share::KEY).filter_map(|fact| fact.value.as_deref());
    said.flat_map(share::from_text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::KeptDetail;

    #[test]
    fn an_account_follows_its_files_and_stays_balanced() {
        let told = Count { seen: 10, recorded: 8, dropped: 1, in_flight: 1, ..Count::default() };
        let with = |rows, culled| {
            let mut count = told;
            let lost = correct(&mut count, rows, culled, Left::Behind);
            assert!(count.is_balanced(), "{count:?}");
            (count.seen, count.recorded, count.culled, count.dropped, lost)
        };
        assert_eq!(with(8, 0), (10, 8, 0, 1, 0));
        assert_eq!(with(5, 1), (10, 5, 1, 3, 2));
        assert_eq!(with(11, 0), (13, 11, 0, 1, 0));
        // What waited for a moment worth keeping, and was written when that came.
        let mut count = Count { seen: 100, recorded: 8, left_out: 90, dropped: 2, ..Count::default() };
        assert_eq!((correct(&mut count, 50, 0, Left::Behind), count.left_out, count.seen), (0, 48, 100));
        assert!(count.is_balanced(), "{count:?}");
        assert_eq!((correct(&mut count, 110, 0, Left::Behind), count.left_out, count.seen), (0, 0, 112));
        assert!(count.is_balanced(), "{count:?}");
    }

    #[test]
    fn what_an_account_had_seen_and_not_read_is_on_the_disk_or_lost() {
        let of = |rows, left| {
            let mut count = Count { seen: 100, recorded: 80, in_flight: 1, ..Count::default() };
            let lost = correct(&mut count, rows, 0, left);
            (count.seen, count.dropped, lost, count.is_balanced())
        };
        assert_eq!(of(80, Left::Behind), (100, 19, 19, true));
        assert_eq!(of(99, Left::Behind), (100, 0, 0, true));
        assert_eq!(of(120, Left::Behind), (121, 0, 0, true));
        assert_eq!(of(70, Left::Behind), (100, 29, 29, true));
        // Of one that had ended nothing was left to be read: what nothing explains stays so.
        assert_eq!(of(80, Left::Nothing), (100, 0, 0, false));
        // What the next trace has is not of this one's account; what was read for this one and not written is.
        assert_eq!(of(80, Left::ToAnother), (80, 0, 0, true));
        assert_eq!(of(70, Left::ToAnother), (80, 10, 10, true));
    }

    #[test]
    fn where_only_sums_are_to_be_kept_what_they_hold_is_left_out_and_not_lost() {
        let of = |mode: &str| {
            let count = Count { seen: 100, recorded: 40, left_out: 50, ..Count::default() };
            let accounting = [("launch".to_owned(), count)].into();
            let process = Process { process_id: 7, running: true, accounting, ..Process::default() };
            let detail = Some(KeptDetail { mode: mode.to_owned(), ..KeptDetail::default() });
            let mut manifest = Manifest { processes: vec![process], detail, ..Manifest::default() };
            let summed = [[((7, "launch".to_owned()), 95)].into(), BTreeMap::new()];
            let on_disk = OnDisk { summed, ..OnDisk::default() };
            let for_an_heir = on_disk.left_out(&manifest.processes[0], manifest.keeps_only_sums());
            let lost = on_disk.correct(&mut manifest, false);
            let count = manifest.processes[0].accounting["launch"];
            assert!(manifest.processes[0].balanced && count.dropped == lost, "{count:?}");
            (lost, count.left_out, for_an_heir[Class::Launch as usize])
        };
        assert_eq!(of(KeptDetail::ROLLUP), (5, 95, 95));
        assert_eq!(of("windows"), (50, 50, 50));
    }
}
