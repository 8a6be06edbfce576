//! Ranges by name with what lies in them: time of their own, launches, and what those took on the GPU.
//!
//! Ranges come in the order of their ends, so those inside one have come before it: what they cover is not its own. Launches
//! come in step with them to within a batch, and kernels later; so a range is summed when so many others of its thread came
//! after it that its launches and their kernels are known, and each thread's last launches are held until then.

use std::collections::VecDeque;
use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::by_call::ByCall;
use super::folds::Folds;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::Steps;
use super::{Pass, runs};
use crate::trace::{NO_NAME, Rows, Want};

/// Ranges of a thread that wait for their launches, and those that may lie in one that has not ended (1 MB a thread).
const WAITING: usize = 32_768;
/// Launches of a thread that are held (6 MB).
const LAUNCHES: usize = 1 << 18;
/// Threads with ranges; those of later ones have no launches.
const THREADS: usize = 64;
/// Kernels that came before their launch, of all processes.
const EARLY: usize = 1 << 18;
/// Pages of launches that are held, of all threads.
const PAGES: usize = 1 << 18;

/// Which ranges are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// Domain; [`NO_NAME`] for the default one.
    pub(crate) domain_id: i64,
    /// Name; [`NO_NAME`] for none, or where it is one of many.
    pub(crate) name_id: i64,
    /// Pattern of the name where it is one of many.
    pub(crate) pattern: Option<u32>,
}

/// Ranges of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Op {
    /// Durations.
    pub(crate) total: Stats,
    /// Time outside of ranges inside it.
    pub(crate) own_ns: i64,
    /// Launches of its thread inside, those of inner ranges too.
    pub(crate) launches: u64,
    /// What they took on the GPU.
    pub(crate) gpu_ns: i64,
    /// The part of it whose launches lie in no range inside it.
    pub(crate) gpu_own_ns: i64,
    /// Ranges whose launches are not known: there were too many since they began.
    pub(crate) uncounted: u64,
}

impl Op {
    /// Adds those of another key.
    pub(crate) fn merge(&mut self, other: &Op) {
        self.total.merge(&other.total);
        self.own_ns += other.own_ns;
        self.launches += other.launches;
        self.gpu_ns += other.gpu_ns;
        self.gpu_own_ns += other.gpu_own_ns;
        self.uncounted += other.uncounted;
    }
}

#[derive(Clone, Copy, Debug)]
struct Launch {
    start: i64,
    correlation_id: i64,
    gpu_ns: i64,
    /// A range was seen that holds it: the first one to end is the innermost.
    owned: bool,
}

#[derive(Debug, Default)]
struct Thread {
    /// Ranges that no later one was seen to hold.
    outer: Vec<(i64, i64)>,
    waiting: VecDeque<(Key, i64, i64)>,
    launches: VecDeque<Launch>,
    /// Launches that are held no more.
    gone: u64,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Ops {
    /// Ranges.
    pub(crate) ops: Groups<Key, Op>,
    /// Patterns of names.
    pub(crate) folds: Arc<Folds>,
    threads: Vec<Thread>,
    /// Where each thread stands, by process and thread.
    places: FxHashMap<(i64, i32), usize>,
    /// Of a launch that is held: the place of its thread, and its number in it.
    held: ByCall<(usize, u64)>,
    early: FxHashMap<(i64, i64), i64>,
    gpu: bool,
    /// Processes with kernels that have times.
    on_gpu: FxHashSet<i64>,
}

impl Default for Ops {
    fn default() -> Self {
        Ops::new(Arc::default(), false)
    }
}

impl Ops {
    /// Whether kernels of a process have times: else its time on the GPU is not 0, but not known.
    pub(crate) fn is_timed(&self, process_id: i64) -> bool {
        self.on_gpu.contains(&process_id)
    }

    /// With these patterns of names; `gpu`: whether the trace has times of kernels.
    pub(crate) fn new(folds: Arc<Folds>, gpu: bool) -> Ops {
        let other = Key { process_id: OTHER, domain_id: NO_NAME, name_id: OTHER, pattern: None };
        let (threads, places, early) = Default::default();
        let (ops, held, on_gpu) = (Groups::new(20_000, other), ByCall::new(PAGES), FxHashSet::default());
        Ops { ops, folds, threads, places, held, early, gpu, on_gpu }
    }

    /// The place of a thread; none where there are too many.
    fn place(&mut self, process_id: i64, tid: i32) -> Option<usize> {
        let next = self.threads.len();
        let known = self.places.get(&(process_id, tid)).copied();
        known.or_else(|| {
            (next < THREADS).then(|| {
                self.threads.push(Thread::default());
                self.places.insert((process_id, tid), next);
                next
            })
        })
    }

    fn ranges(&mut self, rows: &Rows) {
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (start, end) = (rows.i64("start_ns"), rows.i64_or("end_ns", i64::MIN));
        let (name, domain) = (rows.i64_or("name_id", NO_NAME), rows.i64_or("domain_id", NO_NAME));
        let kind = rows.texts("kind");
        for row in (0..rows.len).filter(|row| end[*row] > start[*row] && kind.get(*row) == "push_pop") {
            let (start, end) = (start[row], end[row]);
            let pattern = self.folds.of(name[row]);
            let name_id = if pattern.is_some() { NO_NAME } else { name[row] };
            let key = Key { process_id: process[row], domain_id: domain[row], name_id, pattern };
            let place = self.place(process[row], tid[row]);
            let op = self.ops.at(key);
            op.total.add(end - start);
            op.own_ns += end - start;
            let Some(thread) = place.map(|place| &mut self.threads[place]) else {
                op.uncounted += 1;
                continue;
            };
            while let Some((inner_start, inner_end)) = thread.outer.pop_if(|inner| inner.0 >= start) {
                op.own_ns -= inner_end - inner_start;
            }
            thread.outer.push((start, end));
            if thread.outer.len() > WAITING {
                thread.outer.drain(..WAITING / 2);
            }
            thread.waiting.push_back((key, start, end));
            if thread.waiting.len() > WAITING
                && let Some(range) = thread.waiting.pop_front()
            {
                settle(&mut self.ops, thread, range);
            }
        }
    }

    fn launches(&mut self, rows: &Rows) {
        let (process, tid, start) = (rows.i64("process_id"), rows.i32_or("tid", 0), rows.i64("start_ns"));
        let correlation = rows.i64("correlation_id");
        for run in runs(&process, &tid) {
            let Some(place) = self.place(process[run.start], tid[run.start]) else { continue };
            let thread = &mut self.threads[place];
            for row in run {
                let (process, correlation_id, start) = (process[row], correlation[row], start[row]);
                let early = if self.early.is_empty() { None } else { self.early.remove(&(process, correlation_id)) };
                if self.gpu {
                    let number = thread.gone + thread.launches.len() as u64;
                    self.held.insert(process, correlation_id, start, (place, number));
                }
                let launch = Launch { start, correlation_id, gpu_ns: early.unwrap_or(0), owned: false };
                thread.launches.push_back(launch);
                if thread.launches.len() > LAUNCHES
                    && let Some(old) = thread.launches.pop_front()
                {
                    thread.gone += 1;
                    self.held.take(process, old.correlation_id);
                }
            }
        }
    }

    fn kernels(&mut self, rows: &Rows) {
        let (process, length) = (rows.i64("process_id"), rows.i64("gpu_ns"));
        let correlation = rows.i64_or("correlation_id", NO_CALL);
        for run in process.chunk_by(|one, next| one == next) {
            self.on_gpu.extend(run.first());
        }
        for row in (0..rows.len).filter(|row| correlation[*row] != NO_CALL) {
            let ns = length[row].max(0);
            let Some((place, number)) = self.held.get(process[row], correlation[row]) else {
                if self.early.len() < EARLY {
                    *self.early.entry((process[row], correlation[row])).or_default() += ns;
                }
                continue;
            };
            let thread = &mut self.threads[*place];
            let launch = number.checked_sub(thread.gone).and_then(|at| thread.launches.get_mut(at as usize));
            launch.into_iter().for_each(|launch| launch.gpu_ns += ns);
        }
    }
}

/// Stands for a kernel whose call is not known.
const NO_CALL: i64 = i64::MIN;

/// Adds the launches inside a range.
fn settle(ops: &mut Groups<Key, Op>, thread: &mut Thread, (key, start, end): (Key, i64, i64)) {
    let op = ops.at(key);
    if thread.gone > 0 && thread.launches.front().is_none_or(|oldest| oldest.start >= start) {
        op.uncounted += 1;
        return;
    }
    let first = thread.launches.partition_point(|launch| launch.start < start);
    let inside = thread.launches.range_mut(first..).take_while(|launch| launch.start < end);
    for launch in inside {
        op.launches += 1;
        op.gpu_ns += launch.gpu_ns;
        op.gpu_own_ns += if launch.owned { 0 } else { launch.gpu_ns };
        launch.owned = true;
    }
}

impl Pass for Ops {
    fn wants(&self) -> &'static [Want] {
        &[
            Want { table: TableId::Ranges, columns: &["tid", "end_ns", "kind", "name_id", "domain_id"] },
            Want { table: TableId::Launches, columns: &["tid", "correlation_id"] },
            Want { table: TableId::Kernels, columns: &["gpu_ns", "correlation_id"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        match rows.table {
            TableId::Ranges => self.ranges(rows),
            TableId::Launches => self.launches(rows),
            _ => self.kernels(rows),
        }
    }

    fn end(&mut self, _: &Steps) {
        for mut thread in std::mem::take(&mut self.threads) {
            for range in std::mem::take(&mut thread.waiting) {
                settle(&mut self.ops, &mut thread, range);
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.ops.iter().map(|(key, _)| key.name_id));
    }
}
