//! Which sealed files stay: by size, and by age.
//!
//! A file goes whole, when the newest of its rows is too old or when it is the oldest of too many. Single events have sums in
//! `rollups`: `--keep-detail` takes the events and leaves the sums, `--max-age` takes both. By size single events go first; the
//! newest file of a table when each table has only one left, and the last one of single events stays, however small the limit: a trace
//! without any detail would answer nothing. Only where sums alone are more than that, the oldest of these go. What gives the
//! others their meaning (names, processes, stacks) always stays.

use std::time::Duration;

use super::stream::Sealed;
use crate::detail::is_single;
use crate::rollups;
use crate::schema::TableId;

/// Tables whose files are never removed: small, and the others mean nothing without them.
const KEPT: [TableId; 7] = [
    TableId::Names,
    TableId::Processes,
    TableId::Threads,
    TableId::Stacks,
    TableId::Communicators,
    TableId::Graphs,
    TableId::GraphKernels,
];
/// Tables of sums.
pub(crate) const SUMS: [TableId; 2] = [TableId::Rollups, TableId::RollupNames];

/// Whether a table's rows are of those that go last: where there is little room, they come first.
pub(crate) fn goes_last(table: TableId) -> bool {
    KEPT.contains(&table) || SUMS.contains(&table)
}

/// Files of which a trace at a limit consists, at least.
const FILES: u32 = 16;
/// A file is not sealed for the size limit before it has this many bytes: its footer alone takes two thousand.
const SMALLEST_FILE: u64 = 32 << 10;
/// Nor for a limit of age before it is so old.
const YOUNGEST_FILE: Duration = Duration::from_secs(1);

/// How much a trace may hold, and how old it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) max_size: u64,
    pub(crate) max_age: Option<Duration>,
    pub(crate) keep_detail: Option<Duration>,
    /// How long the periods are whose sums are made.
    pub(crate) rollup: Option<Duration>,
}

impl Limits {
    /// Size and age at which a file is sealed, so that what goes first is the oldest part of a table and not all of it.
    pub(crate) fn of_files(&self, bytes: u64, age: Duration) -> (u64, Duration) {
        let oldest = self.max_age.into_iter().chain(self.keep_detail).min();
        let age = oldest.map_or(age, |oldest| age.min((oldest / FILES).max(YOUNGEST_FILE)));
        (bytes.min((self.max_size / u64::from(FILES)).max(SMALLEST_FILE)), age)
    }

    /// The limit by which a file is too old.
    fn outlived(&self, file: &Sealed, now_ns: i64) -> Option<&'static str> {
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        // A row of sums begins with its period, and is of all of it.
        let period = rollups::period(file.table, self.rollup).map_or(0, ns);
        let is_older = |than: Duration| file.contents.to_ns.saturating_add(period) < now_ns.saturating_sub(ns(than));
        let limits = [
            ("--keep-detail", self.keep_detail.filter(|_| is_single(file.table))),
            ("--max-age", self.max_age.filter(|_| !KEPT.contains(&file.table))),
        ];
        limits.into_iter().find(|(_, age)| age.is_some_and(is_older)).map(|(name, _)| name)
    }
}

/// The sealed files of a trace.
pub(super) struct Shelf {
    limits: Limits,
    files: Vec<Sealed>,
    bytes: u64,
}

impl Shelf {
    pub(super) fn new(limits: Limits, files: Vec<Sealed>) -> Shelf {
        Shelf { limits, bytes: files.iter().map(|file| file.bytes).sum(), files }
    }

    pub(super) fn put(&mut self, file: Sealed) {
        self.bytes += file.bytes;
        self.files.push(file);
    }

    pub(super) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    pub(super) fn files(&self) -> &[Sealed] {
        &self.files
    }

    /// Takes out the next file that must go, and for which limit.
    pub(super) fn take_out(&mut self, now_ns: i64) -> Option<(Sealed, &'static str)> {
        let (at, limit) = self.too_old(now_ns).or_else(|| self.too_many().map(|at| (at, "--max-size")))?;
        let file = self.files.remove(at);
        self.bytes -= file.bytes;
        Some((file, limit))
    }

    fn too_old(&self, now_ns: i64) -> Option<(usize, &'static str)> {
        let mut files = self.files.iter().enumerate();
        files.find_map(|(at, file)| Some((at, self.limits.outlived(file, now_ns)?)))
    }

    fn too_many(&self) -> Option<usize> {
        if self.bytes <= self.limits.max_size {
            return None;
        }
        let detail = || self.files.iter().enumerate().filter(|(_, file)| !goes_last(file.table));
        let is_newest = |at: usize, file: &Sealed| !self.files[at + 1..].iter().any(|other| other.table == file.table);
        let last = |at: usize, file: &Sealed| (is_newest(at, file), is_newest(at, file) && is_single(file.table));
        let oldest = detail().min_by_key(|(at, file)| (last(*at, file), file.contents.to_ns));
        let sums = || self.files.iter().enumerate().filter(|(_, file)| SUMS.contains(&file.table));
        let sum = || sums().filter(|(at, file)| !is_newest(*at, file)).min_by_key(|(_, file)| file.contents.to_ns);
        oldest.filter(|_| detail().count() > 1).or_else(sum).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::Contents;
    use super::*;

    const HOUR: u64 = 3600;

    /// A file whose rows began within this hour.
    fn file(table: TableId, hour: i64) -> Sealed {
        let begin = hour * HOUR as i64 * 1_000_000_000;
        let contents = Contents { rows: 10, from_ns: begin, to_ns: begin + 1_000_000_000 };
        Sealed { table, name: format!("{}-{hour}", table.table().name), bytes: 100, contents, shares: Vec::new() }
    }

    fn shelf(max_size: u64, max_age: Option<u64>, keep_detail: Option<u64>) -> Shelf {
        let hours = |of: Option<u64>| of.map(|hours| Duration::from_secs(hours * HOUR));
        let limits = Limits { max_size, max_age: hours(max_age), keep_detail: hours(keep_detail), rollup: None };
        let mut shelf = Shelf::new(limits, Vec::new());
        for hour in 0..4 {
            for table in [TableId::Names, TableId::Launches, TableId::Syncs, TableId::Counters, TableId::Rollups] {
                shelf.put(file(table, hour));
            }
        }
        shelf
    }

    /// What goes, in order, with its limit, at this hour.
    fn gone(shelf: &mut Shelf, hour: i64) -> Vec<(String, &'static str)> {
        let now_ns = hour * HOUR as i64 * 1_000_000_000;
        std::iter::from_fn(|| shelf.take_out(now_ns)).map(|(file, limit)| (file.name, limit)).collect()
    }

    fn of(limit: &'static str, names: &[&str]) -> Vec<(String, &'static str)> {
        names.iter().map(|name| ((*name).to_owned(), limit)).collect()
    }

    #[test]
    fn detail_goes_before_its_sums_and_names_stay() {
        let mut both = shelf(u64::MAX, Some(3), Some(1));
        assert_eq!(gone(&mut both, 1), []);
        assert_eq!(gone(&mut both, 2), of("--keep-detail", &["launches-0", "syncs-0"]));
        assert_eq!(gone(&mut both, 3), of("--keep-detail", &["launches-1", "syncs-1"]));
        let mut at_four = of("--max-age", &["counters-0", "rollups-0"]);
        at_four.extend(of("--keep-detail", &["launches-2", "syncs-2"]));
        assert_eq!(gone(&mut both, 4), at_four);
        // Nothing came any more: all of it is too old then, but for what the rest would mean nothing without.
        gone(&mut both, 100);
        assert!(both.files().iter().all(|file| file.table == TableId::Names) && both.files().len() == 4);
        assert_eq!(both.bytes, 400);
    }

    #[test]
    fn by_size_sums_go_when_nothing_else_can() {
        let mut most = shelf(1200, None, None);
        assert_eq!(
            gone(&mut most, 9),
            of(
                "--max-size",
                &[
                    "launches-0",
                    "syncs-0",
                    "counters-0",
                    "launches-1",
                    "syncs-1",
                    "counters-1",
                    "launches-2",
                    "syncs-2"
                ]
            )
        );
        let mut small = shelf(1, None, None);
        let names: Vec<String> = gone(&mut small, 9).into_iter().map(|(name, _)| name).collect();
        let detail = [0, 1, 2].map(|hour| ["launches", "syncs", "counters"].map(|table| format!("{table}-{hour}")));
        assert_eq!(names[..9], *detail.as_flattened());
        assert_eq!(names[9..], ["counters-3", "launches-3", "rollups-0", "rollups-1", "rollups-2"]);
    }

    #[test]
    fn files_are_a_part_of_what_may_be_kept() {
        let seconds = Duration::from_secs;
        let limits = |max_age, keep_detail| Limits { max_size: 1 << 30, max_age, keep_detail, rollup: None };
        assert_eq!(limits(None, None).of_files(64 << 20, seconds(600)), (64 << 20, seconds(600)));
        assert_eq!(limits(Some(seconds(320)), None).of_files(1, seconds(600)), (1, seconds(20)));
        assert_eq!(limits(Some(seconds(320)), Some(seconds(2))).of_files(1, seconds(600)), (1, seconds(1)));
        let small = Limits { max_size: 1, max_age: None, keep_detail: None, rollup: None };
        assert_eq!(small.of_files(64 << 20, seconds(600)).0, SMALLEST_FILE);
    }

    #[test]
    fn sums_are_as_old_as_the_end_of_their_period() {
        let (second, minute) = (1_000_000_000, 60 * 1_000_000_000);
        let max_age = Some(Duration::from_secs(3));
        let rollup = Some(Duration::from_secs(1));
        let limits = Limits { max_size: 1 << 30, max_age, keep_detail: None, rollup };
        let outlived = |table, now_ns| limits.outlived(&file(table, 0), now_ns).is_some();
        // The newest rows began at one second.
        assert!(outlived(TableId::Launches, 5 * second) && !outlived(TableId::Rollups, 5 * second));
        assert!(outlived(TableId::Rollups, 6 * second) && !outlived(TableId::RollupNames, minute));
        assert!(outlived(TableId::RollupNames, minute + 5 * second));
    }
}
