//! When each rank began each collective, and moments that ranks have in common, by which their clocks are compared.
//!
//! The n-th collective of a communicator is the same one on all its ranks, and the hash of the communicator's unique id tells
//! which communicators of different processes are one. Ranks of other launchers come later in the read, so begins are held
//! until the end, a bounded number of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use crate::trace::{NO_NAME, Rows, Trace, Want};

/// Begins of collectives that are held, of all ranks (32 MB); later ones are counted.
const BEGINS: usize = 4_000_000;
/// Ends of NCCL's kernels that are held of one process.
const ENDS: usize = 20_000;
/// Communicators.
const COMMUNICATORS: usize = 100_000;
/// Fewer moments in common do not compare two clocks.
const FEWEST: usize = 3;

/// What a rank was late for.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// Collectives that were compared.
    pub(crate) compared: u64,
    /// Those that it began last.
    pub(crate) last: u64,
    /// What it was then behind the one before it.
    pub(crate) behind_ns: i64,
    /// What it waited for the last one, at least, at all others: from its own begin to the last one's.
    pub(crate) ahead_ns: i64,
    /// Steps in which it was the last at more collectives than any other rank.
    pub(crate) steps: u64,
}

/// How a host's clock was compared with that of the first host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aligned {
    /// It is the first host.
    Reference,
    /// On the ends of so many kernels of NCCL.
    Kernels(usize),
    /// On the making of so many communicators, which all ranks finish together.
    Communicators(usize),
    /// There was nothing to compare.
    Not,
}

/// A host's clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The host.
    pub(crate) host: String,
    /// So far it is ahead of the first host's.
    pub(crate) ahead_ns: i64,
    /// How that is known.
    pub(crate) by: Aligned,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Ranks {
    /// By process.
    pub(crate) late: FxHashMap<i64, Late>,
    /// Of the hosts of ranks, in the order of the ranks.
    pub(crate) clocks: Vec<Clock>,
    /// From the first rank's begin to the last one's, of the collectives that were compared.
    pub(crate) spread: Stats,
    /// Collectives beyond [`BEGINS`].
    pub(crate) beyond: u64,
    /// Collectives of communicators that are not known on two ranks.
    pub(crate) alone: u64,
    begins: Groups<(i64, i32), Vec<i64>>,
    held: usize,
    made: FxHashMap<(i64, i32), (i64, i64)>,
    ends: Groups<i64, Vec<i64>>,
    kernels: Arc<FxHashSet<i64>>,
    hosts: Vec<(i64, String)>,
}

impl Default for Ranks {
    fn default() -> Self {
        Ranks {
            late: FxHashMap::default(),
            clocks: Vec::new(),
            spread: Stats::default(),
            beyond: 0,
            alone: 0,
            begins: Groups::new(COMMUNICATORS, (OTHER, 0)),
            held: 0,
            made: FxHashMap::default(),
            ends: Groups::new(10_000, OTHER),
            kernels: Arc::default(),
            hosts: Vec::new(),
        }
    }
}

impl Ranks {
    /// For this trace: its ranks' hosts, and the names of NCCL's kernels where kernels have times.
    pub(crate) fn new(trace: &Trace, kernels: Arc<FxHashSet<i64>>) -> Ranks {
        let ranked = trace.processes.iter().filter(|process| process.rank.is_some());
        Ranks { kernels, hosts: ranked.map(|p| (p.process_id, p.host.clone())).collect(), ..Ranks::default() }
    }

    /// How far a process's clock is ahead.
    fn ahead_ns(&self, process_id: i64) -> i64 {
        let host = self.hosts.iter().find(|(id, _)| *id == process_id).map(|(_, host)| host);
        self.clocks.iter().find(|clock| Some(&clock.host) == host).map_or(0, |clock| clock.ahead_ns)
    }

    /// Compares the hosts' clocks on what ends on all ranks at once.
    fn align(&mut self) {
        let Some((reference, first_host)) = self.hosts.first().cloned() else { return };
        for (process_id, host) in &self.hosts {
            if self.clocks.iter().any(|clock| clock.host == *host) {
                continue;
            }
            let (ahead_ns, by) = match *host == first_host {
                true => (0, Aligned::Reference),
                false => self.compared(reference, *process_id),
            };
            self.clocks.push(Clock { host: host.clone(), ahead_ns, by });
        }
    }

    fn compared(&self, reference: i64, other: i64) -> (i64, Aligned) {
        let ends = |process: i64| {
            let mut ends = self.ends.get(&process).cloned().unwrap_or_default();
            ends.sort_unstable();
            ends
        };
        let (ours, theirs) = (ends(reference), ends(other));
        if ours.len() == theirs.len() && ours.len() >= FEWEST {
            let apart = theirs.iter().zip(&ours).map(|(their, our)| their - our).collect();
            return (middle(apart), Aligned::Kernels(ours.len()));
        }
        let made = |process: i64| self.made.iter().filter(move |((of, _), _)| *of == process).map(|(_, made)| *made);
        let ours: FxHashMap<i64, i64> = made(reference).collect();
        let apart: Vec<i64> = made(other).filter_map(|(id, at)| Some(at - ours.get(&id)?)).collect();
        let count = apart.len();
        if count == 0 { (0, Aligned::Not) } else { (middle(apart), Aligned::Communicators(count)) }
    }

    /// Compares the begins of one communicator's collectives: of each rank its process, and when it began them.
    fn compare(&mut self, ranks: &[(i64, Vec<i64>)], steps: &Steps) {
        let common = ranks.iter().map(|(_, begins)| begins.len()).min().unwrap_or(0);
        if ranks.len() < 2 {
            self.alone += ranks.iter().map(|(_, begins)| begins.len() as u64).sum::<u64>();
            return;
        }
        let ahead: Vec<i64> = ranks.iter().map(|(process, _)| self.ahead_ns(*process)).collect();
        let mut cursors: Vec<Cursor> = ranks.iter().map(|_| Cursor::default()).collect();
        // In the step so far: how often each rank was the last.
        let (mut step, mut lasts) = (None, vec![0u64; ranks.len()]);
        for number in 0..common {
            let begins = ranks.iter().zip(&ahead).map(|((_, begins), ahead)| begins[number] - ahead);
            let mut began: Vec<(i64, usize)> = begins.enumerate().map(|(rank, at)| (at, rank)).collect();
            began.sort_unstable();
            let ((first, _), (last, late)) = (began[0], began[began.len() - 1]);
            self.spread.add(last - first);
            for (at, rank) in &began {
                let of = self.late.entry(ranks[*rank].0).or_default();
                of.compared += 1;
                of.ahead_ns += last - at;
            }
            let of = self.late.entry(ranks[late].0).or_default();
            of.last += 1;
            of.behind_ns += last - began[began.len() - 2].0;
            let (process, begins) = &ranks[late];
            let now = steps.index(&mut cursors[late], *process, begins[number]).map(|(_, step)| step);
            if now != step {
                self.close(ranks, &mut lasts);
                step = now;
            }
            lasts[late] += u64::from(now.is_some());
        }
        self.close(ranks, &mut lasts);
    }

    /// A step is over: who was the last most often in it.
    fn close(&mut self, ranks: &[(i64, Vec<i64>)], lasts: &mut [u64]) {
        let most = lasts.iter().copied().max().filter(|most| *most > 0);
        if let Some(rank) = most.and_then(|most| lasts.iter().position(|count| *count == most)) {
            self.late.entry(ranks[rank].0).or_default().steps += 1;
        }
        lasts.fill(0);
    }
}

/// The middle one.
fn middle(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

impl Pass for Ranks {
    fn wants(&self) -> &'static [Want] {
        &[
            Want { table: TableId::Collectives, columns: &["kind", "communicator"] },
            Want { table: TableId::Communicators, columns: &["communicator", "unique_id"] },
            Want { table: TableId::Kernels, columns: &["gpu_ns", "name_id"] },
        ]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        let (communicator, kind) = (rows.i32_or("communicator", 0), rows.texts("kind"));
        let (unique, name, length) = (rows.i64("unique_id"), rows.i64_or("name_id", NO_NAME), rows.i64("gpu_ns"));
        for row in 0..rows.len {
            let key = (process[row], communicator[row]);
            match rows.table {
                TableId::Collectives if kind.get(row) == "collective" => {
                    if self.held < BEGINS {
                        self.held += 1;
                        self.begins.at(key).push(start[row]);
                    } else {
                        self.beyond += 1;
                    }
                }
                TableId::Communicators if unique[row] != 0 && self.made.len() < COMMUNICATORS => {
                    self.made.insert(key, (unique[row], start[row]));
                }
                TableId::Kernels if self.kernels.contains(&name[row]) => {
                    let ends = self.ends.at(process[row]);
                    if ends.len() < ENDS {
                        ends.push(start[row] + length[row]);
                    }
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, steps: &Steps) {
        self.align();
        let mut communicators: BTreeMap<i64, Vec<(i64, Vec<i64>)>> = BTreeMap::new();
        let begins = std::mem::replace(&mut self.begins, Groups::new(0, (OTHER, 0)));
        for (key, begins) in begins.iter() {
            match self.made.get(key) {
                Some((unique, _)) => communicators.entry(*unique).or_default().push((key.0, begins.clone())),
                None => self.alone += begins.len() as u64,
            }
        }
        communicators.values().for_each(|ranks| self.compare(ranks, steps));
    }
}
