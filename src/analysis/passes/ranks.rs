//! When each rank began each collective: on the GPU where its kernels have times, else on the host.
//!
//! The n-th collective of a communicator is the same one on all its ranks, and the hash of the communicator's unique id tells
//! which communicators of different processes are one. The kernel of a collective is the one of NCCL that its thread launched
//! during the call; calls in a group launch theirs when the group ends, and have none here. Ranks of other launchers come later
//! in the read, so everything is held until the end, a bounded number of each, and compared then, by clocks that are
//! aligned ([`super::clocks`]). Where no call is told, kernels are matched by their order ([`by_order`]).

mod by_order;

use std::collections::BTreeMap;
use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Pass;
use super::clocks::{Aligned, Clocks};
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use super::timed::{Sizes, Timed};
use super::union::Union;
use crate::trace::{Filter, NO_NAME, Rows, Trace, Want};

/// Begins of collectives that are held, of all ranks (72 MB); later ones are counted.
const BEGINS: usize = 3_000_000;
/// Kernels of NCCL, and launches of such, that are held of all ranks (48 MB each).
const KERNELS: usize = 2_000_000;
/// Communicators.
const COMMUNICATORS: usize = 100_000;

/// What a rank was late for.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// Collectives that were compared.
    pub(crate) compared: u64,
    /// Those that it began last, by more than the clocks' error.
    pub(crate) last: u64,
    /// Of those: how much later than half of the others.
    pub(crate) late: Stats,
    /// When all others of a collective had begun it and this one had not.
    behind: Union,
    /// When it had begun a collective that not all others had.
    ahead: Union,
    /// In its usual steps, or in the run: when half of the others had begun a collective that it began last, and it was there.
    kept: Union,
    /// Likewise: when its kernel of a collective waited for others.
    waited: Union,
    /// Steps in which it was the last at more collectives than any other rank.
    pub(crate) steps: u64,
}

impl Late {
    /// How long all others waited for this rank; each ns once, so it is never longer than the run.
    pub(crate) fn behind_ns(&self) -> i64 {
        self.behind.total_ns()
    }

    /// How long it waited for others, likewise.
    pub(crate) fn ahead_ns(&self) -> i64 {
        self.ahead.total_ns()
    }

    /// How long half of the others or more waited for this rank, the last one, in its usual steps; in the run where it has none.
    pub(crate) fn kept_ns(&self) -> i64 {
        self.kept.total_ns()
    }

    /// How long its kernels of NCCL waited for others, likewise.
    pub(crate) fn waited_ns(&self) -> i64 {
        self.waited.total_ns()
    }
}

/// A call of a collective.
#[derive(Clone, Copy, Debug)]
struct Begin {
    start_ns: i64,
    /// Longer calls are not told apart.
    api_ns: u32,
    tid: i32,
    /// Place in [`Sizes`].
    size: u32,
}

/// A kernel of NCCL on the GPU, and the call that launched it.
#[derive(Clone, Copy, Debug)]
struct Ran {
    call: i64,
    start_ns: i64,
    gpu_ns: i64,
    name_id: i64,
}

impl Ran {
    fn end_ns(&self) -> i64 {
        self.start_ns + self.gpu_ns
    }
}

/// A communicator, as a rank made it.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// 0: not known.
    unique: i64,
    at: i64,
    ranks: i32,
}

/// The calls of one communicator on its ranks, each a process with its begins in order.
type Calls = Vec<(i64, Vec<Begin>)>;

/// The pass.
#[derive(Debug)]
pub(crate) struct Ranks {
    /// By process.
    pub(crate) late: FxHashMap<i64, Late>,
    /// Of the ranks.
    pub(crate) clocks: Clocks,
    /// From the first rank's begin to the last one's, of the collectives that were compared.
    pub(crate) spread: Stats,
    /// Of them those that were compared by their kernels.
    pub(crate) by_kernels: u64,
    /// Collectives beyond [`BEGINS`].
    pub(crate) beyond: u64,
    /// Collectives of communicators that are not known on two ranks.
    pub(crate) alone: u64,
    /// Calls whose kernels have times.
    pub(crate) timed: Vec<Timed>,
    /// Function and bytes of such calls.
    pub(crate) sizes: Sizes,
    begins: Groups<(i64, i32), Vec<Begin>>,
    /// Sends and receives, which no two ranks have in common.
    others: Groups<(i64, i32), Vec<Begin>>,
    held: usize,
    made: FxHashMap<(i64, i32), Made>,
    /// Launches of NCCL's kernels by process: thread, begin, number of the call.
    launches: Groups<i64, Vec<(i32, i64, i64)>>,
    ran: Groups<i64, Vec<Ran>>,
    room: [usize; 2],
    kernels: Arc<FxHashSet<i64>>,
    /// When each process began, or what is known of it.
    born: FxHashMap<i64, i64>,
}

impl Default for Ranks {
    fn default() -> Self {
        Ranks {
            late: FxHashMap::default(),
            clocks: Clocks::default(),
            spread: Stats::default(),
            by_kernels: 0,
            beyond: 0,
            alone: 0,
            timed: Vec::new(),
            sizes: Sizes::default(),
            begins: Groups::new(COMMUNICATORS, (OTHER, 0)),
            others: Groups::new(COMMUNICATORS, (OTHER, 0)),
            held: 0,
            made: FxHashMap::default(),
            launches: Groups::new(10_000, OTHER),
            ran: Groups::new(10_000, OTHER),
            room: [KERNELS; 2],
            kernels: Arc::default(),
            born: FxHashMap::default(),
        }
    }
}

impl Ranks {
    /// For this trace: its ranks' clocks, and the names of NCCL's kernels where kernels have times.
    pub(crate) fn new(trace: &Trace, filter: &Filter, kernels: Arc<FxHashSet<i64>>) -> Ranks {
        let born = trace.processes.iter().map(|process| (process.process_id, process.start_ns)).collect();
        Ranks { kernels, clocks: Clocks::new(trace, filter), born, ..Ranks::default() }
    }

    /// The kernel of this call, where the call launched one that is known.
    fn kernel(&self, process_id: i64, begin: &Begin) -> Option<Ran> {
        let (launches, ran) = (self.launches.get(&process_id)?, self.ran.get(&process_id)?);
        let first = launches.partition_point(|(tid, at, _)| (*tid, *at) < (begin.tid, begin.start_ns));
        let end = begin.start_ns + i64::from(begin.api_ns);
        let mut inside = launches[first..].iter().take_while(|(tid, at, _)| *tid == begin.tid && *at < end);
        let (Some((.., call)), None) = (inside.next(), inside.next()) else { return None };
        ran.get(ran.partition_point(|ran| ran.call < *call)).filter(|ran| ran.call == *call).copied()
    }

    /// The kernels of one collective, where they are known on all its ranks.
    fn kernels(&self, calls: &Calls, number: usize) -> Option<Vec<Ran>> {
        calls.iter().map(|(process, begins)| self.kernel(*process, &begins[number])).collect()
    }

    /// How many ranks a process's communicator has; 0 where that is not known.
    fn ranks(&self, communicator: (i64, i32)) -> i32 {
        self.made.get(&communicator).map_or(0, |made| made.ranks)
    }

    /// Keeps the time of a kernel; `all_began`: when the last rank had come to its collective, by this process's clock.
    fn time(&mut self, process_id: i64, begin: &Begin, ran: Ran, all_began: Option<i64>, ranks: i32) {
        let from = all_began.map_or(ran.start_ns, |at| at.max(ran.start_ns));
        let (gpu_ns, whole_ns) = (ran.end_ns() - from, ran.gpu_ns);
        if gpu_ns > 0 && begin.size != u32::MAX {
            let (call, aligned, size) = (ran.call, all_began.is_some(), begin.size);
            self.timed.push(Timed { process_id, call, gpu_ns, whole_ns, aligned, ranks, size });
        }
    }

    /// The same of calls that are not compared with those of other ranks.
    fn time_alone(&mut self, process_id: i64, begins: &[Begin], ranks: i32) {
        for begin in begins {
            if let Some(ran) = self.kernel(process_id, begin) {
                self.time(process_id, begin, ran, None, ranks);
            }
        }
    }

    /// Gives the clocks the ends of a communicator's kernels, which its ranks have in common. Whether any is known.
    fn ends(&mut self, calls: &Calls) -> bool {
        let mut any = false;
        for number in 0..common(calls) {
            if let Some(kernels) = self.kernels(calls, number) {
                let ends = calls.iter().zip(kernels).map(|((id, _), ran)| (*id, ran.end_ns()));
                let ends: Vec<(i64, i64)> = ends.collect();
                self.clocks.ended(&ends);
                any = true;
            }
        }
        any
    }

    /// Compares the begins of one communicator's collectives, by kernels where it has some.
    fn compare(&mut self, calls: &Calls, by_kernels: bool, steps: &Steps) {
        let clock = |(process, _): &(i64, _)| self.clocks.get(*process).map_or((0, 0), |c| (c.ahead_ns, c.error_ns));
        let clocks: Vec<(i64, i64)> = calls.iter().map(clock).collect();
        // By clocks that nothing compares nobody is late.
        let is_aligned = |(process, _): &(i64, _)| self.clocks.get(*process).is_none_or(|c| c.by != Aligned::Not);
        let aligned = calls.iter().all(is_aligned);
        let mut cursors: Vec<Cursor> = calls.iter().map(|_| Cursor::default()).collect();
        // In the step so far: how often each rank was the last.
        let (mut step, mut lasts) = (None, vec![0u64; calls.len()]);
        for number in 0..common(calls) {
            let kernels = if by_kernels { self.kernels(calls, number) } else { None };
            let begins: Vec<i64> = match &kernels {
                Some(kernels) => kernels.iter().map(|ran| ran.start_ns).collect(),
                None if by_kernels => continue,
                None => calls.iter().map(|(_, begins)| begins[number].start_ns).collect(),
            };
            let begins = begins.iter().zip(&clocks).map(|(at, (ahead, _))| at - ahead);
            let mut began: Vec<(i64, usize)> = begins.enumerate().map(|(rank, at)| (at, rank)).collect();
            began.sort_unstable();
            let [ref others @ .., (last, late)] = began[..] else { continue };
            let (Some((before, other)), Some((half, middle))) = (others.last(), others.get((others.len() - 1) / 2))
            else {
                continue;
            };
            for (((process, begins), (ahead, _)), ran) in calls.iter().zip(&clocks).zip(kernels.into_iter().flatten()) {
                let all_began = aligned.then_some(last + ahead);
                self.time(*process, &begins[number], ran, all_began, calls.len() as i32);
            }
            self.spread.add(last - began[0].0);
            self.by_kernels += u64::from(by_kernels);
            for (at, rank) in &began {
                let of = self.late.entry(calls[*rank].0).or_default();
                of.compared += 1;
                of.ahead.add(*at, last);
                let (process, begins) = &calls[*rank];
                if aligned && by_kernels && is_usual(steps, &mut cursors[*rank], *process, begins[number].start_ns) {
                    of.waited.add(*at, last);
                }
            }
            // What two clocks cannot tell apart makes nobody the last.
            let beyond = |at: i64, rank: usize| last - at > clocks[late].1 + clocks[rank].1;
            let (process, begins) = &calls[late];
            let of = self.late.entry(*process).or_default();
            // What it did before its trace begins nobody knows: the traces of others may only have begun earlier.
            let half = self.born.get(process).map_or(*half, |born| (born - clocks[late].0).max(*half));
            if aligned && beyond(half, *middle) {
                of.late.add(last - half);
                if is_usual(steps, &mut cursors[late], *process, begins[number].start_ns) {
                    of.kept.add(half, last);
                }
            }
            if !beyond(*before, *other) {
                continue;
            }
            of.last += 1;
            of.behind.add(*before, last);
            let now = steps.index(&mut cursors[late], *process, begins[number].start_ns).map(|(_, step)| step);
            if now != step {
                self.close(calls, &mut lasts);
                step = now;
            }
            lasts[late] += u64::from(now.is_some());
        }
        self.close(calls, &mut lasts);
    }

    /// A step is over: who was the last most often in it.
    fn close(&mut self, calls: &Calls, lasts: &mut [u64]) {
        let most = lasts.iter().copied().max().filter(|most| *most > 0);
        if let Some(rank) = most.and_then(|most| lasts.iter().position(|count| *count == most)) {
            self.late.entry(calls[rank].0).or_default().steps += 1;
        }
        lasts.fill(0);
    }
}

/// Whether a call lies in a usual step of its process; all do where there are no steps.
fn is_usual(steps: &Steps, cursor: &mut Cursor, process_id: i64, at: i64) -> bool {
    steps.of(process_id).is_none() || steps.place(cursor, process_id, at).is_middle()
}

/// How many collectives all ranks began.
fn common(calls: &Calls) -> usize {
    calls.iter().map(|(_, begins)| begins.len()).min().unwrap_or(0)
}

impl Pass for Ranks {
    fn wants(&self) -> &'static [Want] {
        &[
            Want {
                table: TableId::Collectives,
                columns: &["kind", "communicator", "api_ns", "tid", "api_id", "bytes"],
            },
            Want { table: TableId::Communicators, columns: &["communicator", "unique_id", "ranks"] },
            Want { table: TableId::Launches, columns: &["name_id", "tid", "correlation_id"] },
            Want { table: TableId::Kernels, columns: &["gpu_ns", "name_id", "correlation_id"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        let own_kernels = matches!(rows.table, TableId::Launches | TableId::Kernels);
        if own_kernels && self.kernels.is_empty() {
            return;
        }
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        if own_kernels {
            let (name, call) = (rows.i64_or("name_id", NO_NAME), rows.i64("correlation_id"));
            let (tid, gpu) = (rows.i32_or("tid", 0), rows.i64("gpu_ns"));
            let launched = rows.table == TableId::Launches;
            for row in (0..rows.len).filter(|row| self.kernels.contains(&name[*row])) {
                let room = &mut self.room[usize::from(launched)];
                if *room == 0 {
                    return;
                }
                *room -= 1;
                match launched {
                    true => self.launches.at(process[row]).push((tid[row], start[row], call[row])),
                    false => {
                        let ran = Ran { call: call[row], start_ns: start[row], gpu_ns: gpu[row], name_id: name[row] };
                        self.ran.at(process[row]).push(ran);
                    }
                }
            }
            return;
        }
        let (communicator, kind) = (rows.i32_or("communicator", 0), rows.texts("kind"));
        let (unique, api, tid) = (rows.i64("unique_id"), rows.i64("api_ns"), rows.i32_or("tid", 0));
        let (function, bytes, ranks) = (rows.i64("api_id"), rows.i64("bytes"), rows.i32_or("ranks", 0));
        for row in 0..rows.len {
            let key = (process[row], communicator[row]);
            match rows.table {
                TableId::Collectives if matches!(kind.get(row), "collective" | "point_to_point") => {
                    if self.held == BEGINS {
                        self.beyond += 1;
                        continue;
                    }
                    self.held += 1;
                    let api_ns = u32::try_from(api[row].max(0)).unwrap_or(u32::MAX);
                    let size = self.sizes.place(function[row], bytes[row]);
                    let begins = if kind.get(row) == "collective" { &mut self.begins } else { &mut self.others };
                    begins.at(key).push(Begin { start_ns: start[row], api_ns, tid: tid[row], size });
                }
                TableId::Communicators if self.made.len() < COMMUNICATORS => {
                    let made = Made { unique: unique[row], at: start[row], ranks: ranks[row].max(0) };
                    self.made.insert(key, made);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, steps: &Steps) {
        self.launches.values_mut().for_each(|launches| launches.sort_unstable());
        self.ran.values_mut().for_each(|ran| ran.sort_unstable_by_key(|ran| ran.call));
        let mut made: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        for ((process, _), Made { unique, at, .. }) in self.made.iter().filter(|(_, made)| made.unique != 0) {
            made.entry(*unique).or_default().push((*process, *at));
        }
        for moments in made.values_mut() {
            moments.sort_unstable();
            self.clocks.made(moments);
        }
        let mut communicators: BTreeMap<i64, Calls> =
            by_order::calls(self).map(|calls| (0, calls)).into_iter().collect();
        let ranks_of: FxHashMap<i64, i32> = self.made.values().map(|made| (made.unique, made.ranks)).collect();
        for (key, mut begins) in std::mem::replace(&mut self.begins, Groups::new(0, (OTHER, 0))).into_items() {
            begins.sort_by_key(|begin| begin.start_ns);
            match self.made.get(&key).filter(|made| made.unique != 0) {
                Some(made) => communicators.entry(made.unique).or_default().push((key.0, begins)),
                None => {
                    self.alone += begins.len() as u64;
                    self.time_alone(key.0, &begins, self.ranks(key));
                }
            }
        }
        for (key, begins) in std::mem::replace(&mut self.others, Groups::new(0, (OTHER, 0))).into_items() {
            self.time_alone(key.0, &begins, self.ranks(key));
        }
        let mut by_kernels = Vec::new();
        for (unique, calls) in &mut communicators {
            // In which order launchers were read says nothing.
            calls.sort_by_key(|(process, _)| *process);
            if calls.len() < 2 {
                self.alone += calls.iter().map(|(_, begins)| begins.len() as u64).sum::<u64>();
                for (process, begins) in calls.iter() {
                    self.time_alone(*process, begins, ranks_of.get(unique).copied().unwrap_or(0));
                }
            }
            by_kernels.push(calls.len() > 1 && self.ends(calls));
        }
        self.clocks.align();
        for (calls, by_kernels) in communicators.values().zip(by_kernels).filter(|(calls, _)| calls.len() > 1) {
            self.compare(calls, by_kernels, steps);
        }
    }
}
