//! One process: host and GPUs, cut into steps, or into windows where there are none.

use std::collections::VecDeque;

use super::device::{Begun, Device};
use super::host::{Call, Host};
use super::lanes::{CLASSES, LANES, Lanes, Without};
use super::path::{Nodes, PIECES, Piece};
use super::stretches::Stretch;
use crate::analysis::passes::gpu::order::Operation;
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::steps::{ProcessSteps, Steps};

/// Without steps the run is cut into windows of so many nodes of all processes.
const WINDOW: u64 = 1 << 18;
/// Names on the path that are kept apart.
const NAMES: usize = 20_000;

/// What was found in the usual steps; in the windows of a process that has none.
#[derive(Debug)]
pub(crate) struct Sums {
    /// Steps, or windows.
    pub(crate) count: u64,
    /// They are steps.
    pub(crate) of_steps: bool,
    /// Their length in every lane: the first one as it was.
    lanes_ns: [f64; LANES],
    /// Time by class, of the host and of the GPUs, whether on the path or not.
    pub(crate) spent_ns: [i64; CLASSES.len()],
    /// The path by what its pieces are.
    pub(crate) path_ns: [i64; PIECES.len()],
    /// The path by piece and name: number and time.
    pub(crate) names: Groups<(Option<Piece>, i64), (u64, i64)>,
    /// Steps whose path is not known: they have too many nodes.
    pub(crate) lost: u64,
    /// Of a run of which a part was replayed: stretches and steps of it.
    pub(crate) replayed: Option<(usize, usize)>,
}

impl Sums {
    /// Time that would have been gained, of a step or of the run: no less than without a part of it.
    pub(crate) fn gain_ns(&self, without: Without) -> f64 {
        let shortest = without.parts().map(|part| self.lanes_ns[part.lane()]).fold(f64::INFINITY, f64::min);
        self.each(self.lanes_ns[0] - shortest)
    }

    /// Length of a step, the mean from path's end to path's end; or of the run.
    pub(crate) fn unit_ns(&self) -> f64 {
        self.each(self.lanes_ns[0])
    }

    /// Of a sum over all that was counted: a step's; all of it where there are no steps.
    pub(crate) fn each(&self, sum: f64) -> f64 {
        if self.of_steps { sum / self.count.max(1) as f64 } else { sum }
    }

    /// All of it.
    pub(crate) fn total_ns(&self) -> f64 {
        self.lanes_ns[0]
    }
}

/// How far everything was at a boundary.
#[derive(Debug)]
struct Reached {
    lanes: Lanes,
    /// The later one of the host and the last operation.
    at: i64,
    spent_ns: [i64; CLASSES.len()],
}

/// One process.
#[derive(Debug)]
pub(super) struct Process {
    process_id: i64,
    /// Of which the trace has work.
    classes: Without,
    host: Host,
    device: Device,
    /// Number of the next boundary, of those that are the steps' ends; and when it is, if there is one.
    next: usize,
    due: i64,
    /// The stretches that are still to be replayed, in their order; none where the whole run is.
    stretches: VecDeque<Stretch>,
    /// The thread whose loop it is, and from when on it is replayed.
    tid: i32,
    from: i64,
    /// Operations that were called for and have not begun.
    outstanding: u32,
    last: Option<Reached>,
    /// Its steps are the GPU's.
    ahead: bool,
    window: u64,
    /// The first node after the last boundary; beyond all where no path will be looked for any more.
    pub(super) path_begins: u64,
    /// Operations of it were seen: else there is nothing to say.
    pub(super) on_gpu: bool,
    pub(super) sums: Sums,
}

impl Process {
    /// A process whose first event was at this time; `steps`: those that it has.
    pub(super) fn new(
        process_id: i64,
        at: i64,
        steps: Option<&ProcessSteps>,
        stretches: Vec<Stretch>,
        classes: Without,
    ) -> Process {
        let (first, tid) = steps.map_or((at, 0), |steps| (steps.first_ns().min(at), steps.tid));
        let of_stretches = stretches.iter().map(|stretch| stretch.end - stretch.first).sum();
        let mut process = Process {
            process_id,
            classes,
            host: Host::new(first, tid, classes),
            device: Device::new(classes),
            next: stretches.first().map_or(0, |stretch| stretch.first),
            due: i64::MIN,
            tid,
            from: i64::MIN,
            outstanding: 0,
            last: None,
            ahead: steps.is_some_and(ProcessSteps::is_ahead),
            window: 0,
            path_begins: 0,
            on_gpu: false,
            sums: Sums {
                count: 0,
                of_steps: steps.is_some(),
                lanes_ns: [0.0; LANES],
                spent_ns: Default::default(),
                path_ns: Default::default(),
                names: Groups::new(NAMES, (None, OTHER)),
                lost: 0,
                replayed: (!stretches.is_empty()).then_some((stretches.len(), of_stretches)),
            },
            stretches: stretches.into(),
        };
        process.await_boundary(steps);
        process
    }

    /// A call begins. What its operations have to know of it, if it may cause some.
    pub(super) fn begin(&mut self, call: &Call, steps: &Steps, nodes: &mut Nodes) -> Option<Begun> {
        self.cut(call.start, steps, nodes);
        let counts = self.host.begin(call, nodes);
        call.cause()?;
        self.outstanding = self.outstanding.saturating_add(1);
        // A call that does not count for the host began when another one was under way.
        let lanes = if counts { self.host.lanes.clone() } else { self.host.reaches(call.start).0 };
        Some(Begun { at: call.start, lanes, node: self.host.node, single: call.single, legacy: call.legacy })
    }

    pub(super) fn end(&mut self, call: &Call, steps: &Steps, nodes: &mut Nodes) {
        // A step that ends with a wait ends after it.
        self.cut(call.end - 1, steps, nodes);
        self.host.end(call, self.outstanding, &self.device, nodes);
    }

    /// An operation begins; `call`: the one that caused it, if that is in the trace.
    pub(super) fn operation(&mut self, of: &Operation, call: Option<&Begun>, steps: &Steps, nodes: &mut Nodes) {
        self.cut(of.start, steps, nodes);
        self.on_gpu = true;
        self.outstanding = self.outstanding.saturating_sub(1);
        match call.filter(|call| call.at >= self.from) {
            Some(call) => self.device.add(of, call, nodes),
            None => {
                let (lanes, _) = self.host.reaches(of.start);
                let unknown = Begun { at: of.start, lanes, node: self.host.node, single: true, legacy: false };
                self.device.add(of, &unknown, nodes);
            }
        }
    }

    /// Ends the steps that end up to this time, or a window that is full.
    #[inline]
    fn cut(&mut self, to: i64, steps: &Steps, nodes: &mut Nodes) {
        if self.sums.of_steps {
            if self.due <= to {
                self.cut_steps(to, steps, nodes);
            }
        } else if self.last.is_none() || nodes.next() - self.window >= WINDOW {
            self.boundary(self.host.at, true, nodes);
            self.window = nodes.next();
        }
    }

    fn cut_steps(&mut self, to: i64, steps: &Steps, nodes: &mut Nodes) {
        let Some(steps) = steps.of(self.process_id) else { return };
        while self.due <= to {
            let counts = self.stretches.front().map_or(0, |stretch| stretch.counts);
            if self.stretches.front().is_some_and(|stretch| stretch.first == self.next) {
                self.restart(self.due);
            }
            let usual = self.next > counts && steps.is_middle(self.next - 1);
            self.boundary(self.due, usual, nodes);
            self.next += 1;
            self.await_boundary(Some(steps));
        }
    }

    /// Looks up when the next boundary is: of the next stretch, when one is over.
    fn await_boundary(&mut self, steps: Option<&ProcessSteps>) {
        if self.stretches.front().is_some_and(|stretch| stretch.end < self.next) {
            self.stretches.pop_front();
            // After the last one there is none.
            self.next = self.stretches.front().map_or(usize::MAX, |stretch| self.next.max(stretch.first));
        }
        let begins = self.stretches.front().filter(|stretch| stretch.first == self.next).map(|stretch| stretch.from);
        let due = begins.or_else(|| steps.and_then(|steps| steps.boundary(self.next)));
        self.due = due.unwrap_or(i64::MAX);
        if due.is_none() && self.sums.of_steps {
            self.path_begins = u64::MAX;
        }
    }

    /// Begins to replay here, and knows nothing of what was before.
    fn restart(&mut self, at: i64) {
        self.host = Host::new(at, self.tid, self.classes);
        self.device = Device::new(self.classes);
        self.outstanding = 0;
        self.last = None;
        self.from = at;
    }

    /// Everything was seen.
    pub(super) fn finish(&mut self, steps: &Steps, nodes: &mut Nodes) {
        let last = self.device.last.map_or(self.host.at, |op| op.end.max(self.host.at));
        self.cut(last, steps, nodes);
        if !self.sums.of_steps {
            self.boundary(self.host.at, true, nodes);
        }
    }

    fn boundary(&mut self, at: i64, counts: bool, nodes: &Nodes) {
        let beyond = self.device.beyond(at - i64::from(self.ahead));
        // Where the host runs ahead its steps end with the GPU's work, and what the host is at does not matter.
        let (host, piece) = match beyond {
            Some(_) if self.ahead => (self.host.lanes.clone(), Piece::Outside),
            _ => self.host.reaches(at),
        };
        let mut lanes = host.lanes();
        if self.on_gpu {
            self.device.all_over(&mut lanes);
        }
        let spent_ns = std::array::from_fn(|class| self.host.spent_ns[class] + self.device.spent_ns[class]);
        let reached = Reached { lanes, at: beyond.map_or(at, |(end, _)| end), spent_ns };
        self.path_begins = nodes.next();
        let Some(last) = self.last.replace(reached).filter(|_| counts) else { return };
        let Some(now) = &self.last else { return };
        let sums = &mut self.sums;
        sums.count += 1;
        for ((sum, now), last) in sums.lanes_ns.iter_mut().zip(now.lanes.ns()).zip(last.lanes.ns()) {
            *sum += now - last;
        }
        for ((sum, now), last) in sums.spent_ns.iter_mut().zip(&now.spent_ns).zip(&last.spent_ns) {
            *sum += now - last;
        }
        let mut tell = |piece: Piece, name: i64, ns: i64| {
            sums.path_ns[piece as usize] += ns;
            let of = sums.names.at((Some(piece), name));
            *of = (of.0 + 1, of.1 + ns);
        };
        let known = match beyond {
            Some((_, node)) => nodes.walk(node, last.at, tell),
            None => {
                let rest = at - self.host.at.max(last.at);
                if rest > 0 {
                    tell(piece, crate::trace::NO_NAME, rest);
                }
                self.host.at <= last.at || nodes.walk(self.host.node, last.at, tell)
            }
        };
        sums.lost += u64::from(!known);
    }
}
