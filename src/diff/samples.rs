//! What single steps of a process are made of: the samples that two traces are compared by.
//!
//! Of a long run [`MOST`] steady steps are looked at, spread evenly over it. What their calls did was summed with all other
//! passes; kernels and the GPU's time take a read of their own. Without steps the whole run is the one sample, which says what
//! there was and nothing of its spread.

use std::hash::BuildHasher;

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::quantities::{LAUNCHES, Of, QUANTITIES};
use crate::analysis::{Facts, Part, StepCause, Tally, Union};
use crate::trace::{NO_NAME, Names, Rows, Want};

/// Steps of a trace that are looked at.
const MOST: usize = 400;
/// Kernels that are kept apart; later ones are counted only.
pub(super) const MOST_KERNELS: usize = 2000;

/// One kernel in the steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kernel {
    /// Its name, in full.
    pub(super) name: String,
    /// Grid and block of its first launch.
    pub(super) shape: [i32; 6],
    /// The kernels launched before and after it, the first time.
    pub(super) neighbours: (String, String),
    /// Launches, or runs on the GPU where its launches have no names, by step.
    pub(super) count: Vec<f64>,
    /// Time in its launch calls, by step.
    pub(super) launch_ns: Vec<f64>,
    /// Time on the GPU, by step.
    pub(super) gpu_ns: Vec<f64>,
}

/// Launches and runs of kernels that are not kept apart: how many of each, and what they were, whatever their order, so that the same in two
/// traces is known to be the same.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rest {
    count: [u64; 2],
    digest: u64,
}

impl Rest {
    fn add(&mut self, clock: usize, name_id: i64, step: usize, ns: i64) {
        if name_id != NO_NAME {
            self.count[clock] += 1;
            // A name has the same number in every trace.
            self.digest = self.digest.wrapping_add(FxBuildHasher.hash_one((clock, name_id, step, ns)));
        }
    }

    /// Launches; runs on the GPU where launches have no names.
    pub(super) fn launches(&self) -> u64 {
        if self.count[HOST] > 0 { self.count[HOST] } else { self.count[GPU] }
    }
}

/// The samples of one process.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Whether they are steps, not the run.
    pub(super) per_step: bool,
    /// How many there are.
    pub(super) count: usize,
    /// By quantity and step.
    quantities: Vec<Vec<f64>>,
    /// By name.
    pub(super) kernels: Vec<Kernel>,
    /// What there was no room for.
    pub(super) rest: Rest,
    /// Whether any work of the GPU is in the trace.
    pub(super) gpu: bool,
    /// Whether the bytes of its copies and sets are known.
    pub(super) sized: bool,
}

impl Samples {
    /// The samples of a process: of its steps, or of the run.
    pub(super) fn of(facts: &Facts<'_>, process_id: i64, per_step: bool) -> Samples {
        let steps = facts.steps.all.iter().position(|steps| steps.process_id == process_id).filter(|_| per_step);
        let (tallies, spans): (Vec<Tally>, Vec<Span>) = match steps {
            Some(slot) => {
                let tallies: FxHashMap<usize, &Tally> = facts.step_sums.tallies(slot).collect();
                let summed = facts.step_sums.tallies(slot).map(|(step, _)| step);
                let sample = facts.steps.all[slot].sample(summed, MOST);
                sample.into_iter().map(|(step, span)| (*tallies[&step], span)).unzip()
            }
            None => (vec![whole(facts, process_id)], vec![[(i64::MIN, i64::MAX); 2]]),
        };
        let mut taking = Taking::new(process_id, &spans);
        facts.trace.scan(WANTS, facts.filter, &mut |rows| taking.rows(rows));
        let ids: FxHashSet<i64> = taking.kernels.iter().map(|kernel| kernel.id).collect();
        let sized = facts.transfers.is_sized(Some(process_id));
        Samples { sized, ..taking.end(&facts.trace.names(&ids), per_step, &tallies) }
    }

    /// Whether its launches tell their kernels, or there are none.
    pub(super) fn names_kernels(&self) -> bool {
        let launches = QUANTITIES.iter().zip(&self.quantities).find(|(quantity, _)| quantity.what == LAUNCHES);
        !self.kernels.is_empty() || launches.is_none_or(|(_, steps)| steps.iter().all(|count| *count == 0.0))
    }

    /// The quantity at this place of the list, by step.
    pub(super) fn get(&self, quantity: usize) -> &[f64] {
        &self.quantities[quantity]
    }
}

/// What all calls of a process did, as of one step.
fn whole(facts: &Facts<'_>, process_id: i64) -> Tally {
    let mut tally = Tally::default();
    let Some(time) = facts.host.processes.get(&process_id) else { return tally };
    for (part, cause) in [
        (Part::Launch, StepCause::Launch),
        (Part::Copy, StepCause::Copy),
        (Part::Memory, StepCause::Memory),
        (Part::Other, StepCause::Other),
        (Part::Wait, StepCause::Wait),
    ] {
        tally.calls[cause as usize] = time.all.calls[part as usize].try_into().unwrap_or(u32::MAX);
        tally.ns[cause as usize] = time.all.ns(part);
    }
    tally.implicit_waits = time.all.implicit_waits.try_into().unwrap_or(u32::MAX);
    tally
}

/// Begin and end of a sample: on the host, and on the GPU.
type Span = [(i64, i64); 2];

/// Whose time a sample's span is.
const HOST: usize = 0;
const GPU: usize = 1;

const SHAPE: [&str; 6] = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"];
const WANTS: &[Want] = &[
    Want {
        table: TableId::Launches,
        columns: &["api_ns", "tid", "name_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"],
    },
    Want {
        table: TableId::Kernels,
        columns: &["gpu_ns", "device", "name_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"],
    },
    Want { table: TableId::DeviceCopies, columns: &["gpu_ns", "device"] },
];

/// A kernel while its steps are read; names are known later.
#[derive(Debug, Default)]
struct Raw {
    id: i64,
    neighbours: (i64, i64),
    launched: bool,
    kernel: Kernel,
}

/// The read.
struct Taking {
    process_id: i64,
    /// Where the samples lie on the host, and on the GPU.
    spans: [Vec<(i64, i64)>; 2],
    hints: [usize; 2],
    /// Runs of kernels and their time, by step.
    runs: Vec<(f64, f64)>,
    /// When each device worked, by step.
    busy: FxHashMap<i32, Vec<Union>>,
    kernels: Vec<Raw>,
    by_id: FxHashMap<i64, usize>,
    /// The last kernel of each thread.
    last: FxHashMap<i32, usize>,
    rest: Rest,
}

impl Taking {
    fn new(process_id: i64, spans: &[Span]) -> Taking {
        let runs = vec![(0.0, 0.0); spans.len()];
        let spans = [0, 1].map(|clock| spans.iter().map(|span| span[clock]).collect::<Vec<_>>());
        let (kernels, by_id, last, busy) =
            (Vec::new(), FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        Taking { process_id, spans, hints: [0; 2], runs, busy, kernels, by_id, last, rest: Rest::default() }
    }

    /// The sample that holds this time, of the host or of the GPU.
    fn step(&mut self, clock: usize, at: i64) -> Option<usize> {
        let (spans, hint) = (&self.spans[clock], &mut self.hints[clock]);
        let holds = |i: usize| spans.get(i).is_some_and(|(from, to)| (*from..*to).contains(&at));
        if !holds(*hint) {
            let after = spans.partition_point(|(from, _)| *from <= at);
            *hint = after.checked_sub(1).filter(|i| holds(*i))?;
        }
        Some(*hint)
    }

    /// A device worked from then to then, which may be in several samples.
    fn work(&mut self, device: i32, start: i64, end: i64) {
        let spans = &self.spans[GPU];
        let unions = self.busy.entry(device).or_insert_with(|| spans.iter().map(|_| Union::default()).collect());
        let first = spans.partition_point(|(_, to)| *to <= start);
        for ((from, to), union) in spans.iter().zip(unions).skip(first).take_while(|((from, _), _)| *from < end) {
            union.add(start.max(*from), end.min(*to));
        }
    }

    fn rows(&mut self, rows: &Rows) {
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        let (api, gpu, device) = (rows.i64("api_ns"), rows.i64("gpu_ns"), rows.i32_or("device", 0));
        let (name, tid) = (rows.i64_or("name_id", NO_NAME), rows.i32_or("tid", 0));
        let shape = SHAPE.map(|column| rows.i32_or(column, 0));
        let own = self.process_id;
        let clock = if rows.table == TableId::Launches { HOST } else { GPU };
        for row in (0..rows.len).filter(|row| process[*row] == own) {
            if clock == GPU {
                self.work(device[row], start[row], start[row].saturating_add(gpu[row].max(0)));
            }
            let Some(step) = self.step(clock, start[row]) else { continue };
            match rows.table {
                TableId::Launches => {
                    let found = self.kernel(name[row], || std::array::from_fn(|i| shape[i][row]));
                    if found.is_none() {
                        self.rest.add(HOST, name[row], step, api[row]);
                    }
                    if let Some(index) = found {
                        self.follow(tid[row], index);
                        let of = &mut self.kernels[index];
                        if !std::mem::replace(&mut of.launched, true) {
                            // Runs that came before are the same kernels, seen from the other side.
                            of.kernel.count.fill(0.0);
                        }
                        of.kernel.count[step] += 1.0;
                        of.kernel.launch_ns[step] += api[row].max(0) as f64;
                    }
                }
                TableId::Kernels => {
                    self.runs[step].0 += 1.0;
                    self.runs[step].1 += gpu[row].max(0) as f64;
                    let found = self.kernel(name[row], || std::array::from_fn(|i| shape[i][row]));
                    if found.is_none() {
                        self.rest.add(GPU, name[row], step, gpu[row]);
                    }
                    if let Some(index) = found {
                        let of = &mut self.kernels[index];
                        of.kernel.gpu_ns[step] += gpu[row].max(0) as f64;
                        of.kernel.count[step] += if of.launched { 0.0 } else { 1.0 };
                    }
                }
                _ => {}
            }
        }
    }

    fn kernel(&mut self, id: i64, shape: impl FnOnce() -> [i32; 6]) -> Option<usize> {
        if let Some(index) = self.by_id.get(&id) {
            return Some(*index);
        }
        if id == NO_NAME || self.kernels.len() >= MOST_KERNELS {
            return None;
        }
        let none = || vec![0.0; self.spans[HOST].len()];
        let kernel = Kernel { shape: shape(), count: none(), launch_ns: none(), gpu_ns: none(), ..Kernel::default() };
        self.kernels.push(Raw { id, neighbours: (NO_NAME, NO_NAME), launched: false, kernel });
        self.by_id.insert(id, self.kernels.len() - 1);
        Some(self.kernels.len() - 1)
    }

    /// Notes that a thread launched this kernel after its last one.
    fn follow(&mut self, tid: i32, index: usize) {
        let id = self.kernels[index].id;
        if let Some(before) = self.last.insert(tid, index) {
            let before_id = self.kernels[before].id;
            let after = &mut self.kernels[before].neighbours.1;
            *after = if *after == NO_NAME { id } else { *after };
            let own = &mut self.kernels[index].neighbours.0;
            *own = if *own == NO_NAME { before_id } else { *own };
        }
    }

    /// What a quantity is in each sample.
    fn quantity(&self, of: Of, tallies: &[Tally]) -> Vec<f64> {
        // A run has no length that steps could be compared with.
        let whole = matches!(self.spans[GPU][..], [(i64::MIN, _)]);
        let length = |step: usize| if whole { 0.0 } else { (self.spans[GPU][step].1 - self.spans[GPU][step].0) as f64 };
        let busy = |step: usize| {
            let ns: i64 = self.busy.values().map(|steps| steps[step].total_ns()).sum();
            ns as f64 / self.busy.len().max(1) as f64
        };
        let of_step = |step: usize| match of {
            Of::Duration => length(step),
            Of::Calls(of) => of(&tallies[step]),
            Of::Kernels => self.runs[step].0,
            Of::KernelNs => self.runs[step].1,
            Of::Busy => busy(step),
            Of::Idle if whole => 0.0,
            Of::Idle => length(step) - busy(step),
        };
        (0..tallies.len()).map(of_step).collect()
    }

    fn end(self, names: &Names, per_step: bool, tallies: &[Tally]) -> Samples {
        let quantities = QUANTITIES.iter().map(|quantity| self.quantity(quantity.of, tallies)).collect();
        let gpu = !self.busy.is_empty();
        let name = |id: i64| if id == NO_NAME { String::new() } else { names.full(id) };
        let mut kernels: Vec<Kernel> = Vec::new();
        let mut by_name: FxHashMap<String, usize> = FxHashMap::default();
        for raw in self.kernels {
            let (full, neighbours) = (name(raw.id), (name(raw.neighbours.0), name(raw.neighbours.1)));
            let kernel = Kernel { name: full.clone(), neighbours, ..raw.kernel };
            match by_name.get(&full) {
                // Two mangled names may stand for one name in the source.
                Some(index) => kernels[*index].join(&kernel),
                None => {
                    by_name.insert(full, kernels.len());
                    kernels.push(kernel);
                }
            }
        }
        Samples { per_step, count: tallies.len(), quantities, kernels, rest: self.rest, gpu, sized: true }
    }
}

impl Kernel {
    fn join(&mut self, other: &Kernel) {
        for (own, more) in [
            (&mut self.count, &other.count),
            (&mut self.launch_ns, &other.launch_ns),
            (&mut self.gpu_ns, &other.gpu_ns),
        ] {
            own.iter_mut().zip(more).for_each(|(own, more)| *own += more);
        }
    }
}
