//! Which operations the launches of a range put on the GPU, one after the other: ranges whose operations are the same are counted together.
//!
//! A range's operations come long after its launches, on any stream, so launches, operations and ranges are held until the end of
//! the read, a bounded number of each; later ones are counted.

use std::hash::Hasher;
use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::Pass;
use super::folds::Folds;
use super::groups::Groups;
use super::launches::OTHER;
use super::steps::Steps;
use super::texts::Texts;
use crate::trace::{NO_NAME, Rows, Want, copy_name};

/// Launches and operations that are held (8 and 20 MB), and ranges (28 MB).
const HELD: usize = 500_000;
/// Operations of ranges that are looked at: one in several ranges is looked at in each.
const LOOKED_AT: usize = 20_000_000;
/// Shorter sequences are none (HTA).
const SHORTEST: usize = 3;
/// Names of a sequence that are kept.
const NAMES: usize = 64;

/// A sequence in ranges of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) process_id: i64,
    /// The range's; [`NO_NAME`] for none, or where it is one of many.
    pub(crate) name_id: i64,
    /// Pattern of its name where it is one of many.
    pub(crate) pattern: Option<u32>,
    /// Of the operations' names in their order.
    pub(crate) hash: u64,
}

/// Ranges with one sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequence {
    pub(crate) count: u64,
    pub(crate) operations: u64,
    /// From begin to end of the ranges, and of the operations on the GPU.
    pub(crate) host_ns: i64,
    pub(crate) gpu_ns: i64,
    /// The first operations: what [`Sequences::name`] knows.
    pub(crate) first: Vec<i64>,
}

/// An operation: its call, when it began, what it was, and how long it took.
type Ran = (i64, i64, i64, i64);

/// A range of a thread.
#[derive(Clone, Copy, Debug)]
struct Range {
    process_id: i64,
    tid: i32,
    start: i64,
    end: i64,
    name_id: i64,
    pattern: Option<u32>,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Sequences {
    pub(crate) found: Groups<Key, Sequence>,
    /// Patterns of names.
    pub(crate) folds: Arc<Folds>,
    /// Ranges, launches and operations that were too many.
    pub(crate) beyond: u64,
    copies: Texts,
    ranges: Vec<Range>,
    launches: FxHashMap<(i64, i32), Vec<(i64, i64)>>,
    ran: FxHashMap<i64, Vec<Ran>>,
    held: [usize; 2],
}

impl Default for Sequences {
    fn default() -> Sequences {
        Sequences::new(Arc::default())
    }
}

impl Sequences {
    /// With these patterns of names.
    pub(crate) fn new(folds: Arc<Folds>) -> Sequences {
        let other = Key { process_id: OTHER, name_id: OTHER, pattern: None, hash: 0 };
        Sequences {
            found: Groups::new(20_000, other),
            folds,
            beyond: 0,
            copies: Texts::default(),
            ranges: Vec::new(),
            launches: FxHashMap::default(),
            ran: FxHashMap::default(),
            held: [0; 2],
        }
    }

    /// What an operation was: the id of a kernel's name, or a copy in words.
    pub(crate) fn name(&self, what: i64) -> Result<i64, &str> {
        if what <= FIRST_COPY { Err(self.copies.text((FIRST_COPY - what) as u16)) } else { Ok(what) }
    }

    /// Whether another one may be held, of those counted here.
    fn room(&mut self, held: usize) -> bool {
        let room = self.held[held] < HELD;
        self.held[held] += usize::from(room);
        self.beyond += u64::from(!room);
        room
    }

    fn ranges(&mut self, rows: &Rows) {
        let (process, tid, kind) = (rows.i64("process_id"), rows.i32_or("tid", 0), rows.texts("kind"));
        let (start, end) = (rows.i64("start_ns"), rows.i64_or("end_ns", i64::MIN));
        let name = rows.i64_or("name_id", NO_NAME);
        for row in (0..rows.len).filter(|row| end[*row] > start[*row] && kind.get(*row) == "push_pop") {
            if self.ranges.len() == HELD {
                self.beyond += 1;
                continue;
            }
            let pattern = self.folds.of(name[row]);
            let name_id = if pattern.is_some() { NO_NAME } else { name[row] };
            let (process_id, tid, start, end) = (process[row], tid[row], start[row], end[row]);
            self.ranges.push(Range { process_id, tid, start, end, name_id, pattern });
        }
    }

    fn calls(&mut self, rows: &Rows) {
        let (process, tid, start) = (rows.i64("process_id"), rows.i32_or("tid", 0), rows.i64("start_ns"));
        let call = rows.i64("correlation_id");
        for row in 0..rows.len {
            if self.room(0) {
                self.launches.entry((process[row], tid[row])).or_default().push((start[row], call[row]));
            }
        }
    }

    fn operations(&mut self, rows: &Rows) {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("gpu_ns"));
        let (call, name) = (rows.i64_or("correlation_id", NO_CALL), rows.i64_or("name_id", NO_NAME));
        let (kind, direction) = (rows.texts("kind"), rows.texts("direction"));
        let (src, dst) = (rows.texts("src_kind"), rows.texts("dst_kind"));
        for row in (0..rows.len).filter(|row| call[*row] != NO_CALL) {
            if !self.room(1) {
                continue;
            }
            let what = match rows.table {
                TableId::Kernels => name[row],
                _ => {
                    let name = copy_name(kind.get(row), direction.get(row), [src.get(row), dst.get(row)]);
                    FIRST_COPY - i64::from(self.copies.number(&name))
                }
            };
            self.ran.entry(process[row]).or_default().push((call[row], start[row], what, length[row].max(0)));
        }
    }

    /// Counts a range's sequence. How many operations that took.
    fn count(&mut self, range: &Range, inside: &mut Vec<(i64, i64, i64)>) -> usize {
        let (Some(launches), Some(ran)) =
            (self.launches.get(&(range.process_id, range.tid)), self.ran.get(&range.process_id))
        else {
            return 0;
        };
        inside.clear();
        let first = launches.partition_point(|(at, _)| *at < range.start);
        for (_, call) in launches[first..].iter().take_while(|(at, _)| *at < range.end) {
            let first = ran.partition_point(|(of, ..)| of < call);
            let own = ran[first..].iter().take_while(|(of, ..)| of == call);
            inside.extend(own.map(|(_, at, what, ns)| (*at, *what, *ns)));
        }
        if inside.len() < SHORTEST {
            return inside.len();
        }
        inside.sort_unstable();
        let mut hasher = FxHasher::default();
        inside.iter().for_each(|(_, what, _)| hasher.write_i64(*what));
        let hash = hasher.finish();
        let Range { process_id, name_id, pattern, .. } = *range;
        let sequence = self.found.at(Key { process_id, name_id, pattern, hash });
        sequence.count += 1;
        sequence.operations = inside.len() as u64;
        sequence.host_ns += range.end - range.start;
        sequence.gpu_ns += inside.iter().map(|(.., ns)| ns).sum::<i64>();
        if sequence.first.is_empty() {
            sequence.first = inside.iter().take(NAMES).map(|(_, what, _)| *what).collect();
        }
        inside.len()
    }
}

/// Stands for an operation whose call is not known.
const NO_CALL: i64 = i64::MIN;
/// Stands for the first kind of copies; others come below. Ids of names are not so low.
const FIRST_COPY: i64 = -1_000;

impl Pass for Sequences {
    fn wants(&self) -> &'static [Want] {
        &[
            Want { table: TableId::Ranges, columns: &["tid", "end_ns", "kind", "name_id"] },
            Want { table: TableId::Launches, columns: &["tid", "correlation_id"] },
            Want { table: TableId::Transfers, columns: &["tid", "correlation_id"] },
            Want { table: TableId::Kernels, columns: &["gpu_ns", "correlation_id", "name_id"] },
            Want {
                table: TableId::DeviceCopies,
                columns: &["gpu_ns", "correlation_id", "kind", "direction", "src_kind", "dst_kind"],
            },
        ]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        match rows.table {
            TableId::Ranges => self.ranges(rows),
            TableId::Launches | TableId::Transfers => self.calls(rows),
            _ => self.operations(rows),
        }
    }

    fn end(&mut self, _: &Steps) {
        self.launches.values_mut().for_each(|launches| launches.sort_unstable());
        self.ran.values_mut().for_each(|ran| ran.sort_unstable());
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.sort_unstable_by_key(|range| (range.process_id, range.tid, range.start, range.end));
        let (mut looked_at, mut inside) = (0, Vec::new());
        for range in &ranges {
            if looked_at >= LOOKED_AT {
                self.beyond += 1;
                continue;
            }
            looked_at += self.count(range, &mut inside);
        }
        (self.launches, self.ran) = Default::default();
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.found.iter().map(|(key, _)| key.name_id));
        ids.extend(self.found.iter().flat_map(|(_, sequence)| &sequence.first));
    }
}
