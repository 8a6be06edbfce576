//! Which graph a launch launched: executable graphs by handle and time, and what each holds.
//!
//! What the shim tells of a graph, and the calls that change one, stand in different threads' rings. So they are put in
//! the order of their time, and applied as far as every ring was read ([`Graphs::apply`]).

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use gputrace_abi::event::text_kind;
use gputrace_abi::graph::{self, Contents, Kernel, action, flag, unpack_action};

use super::Process;
use crate::bindings::ByHandle;
use crate::chain::Text;
use crate::clock::Clocks;
use crate::tables::{Graph, GraphKernel, Tables};

/// Executable graphs that a process may have at once, and updates of one that are told apart.
const MOST: usize = 1 << 16;
/// Rows of one process: a program that makes graphs without end shall not fill the disk with them.
const MOST_ROWS: usize = 1 << 16;
const MOST_KERNEL_ROWS: usize = 1 << 20;
/// Changes between two passes.
const MOST_CHANGES: usize = 1 << 20;
/// Times at which nodes were switched on or off that are remembered of one graph.
const SWITCHES: usize = 256;
/// An executable graph is forgotten so long after its end: its last launches have been read by then.
const LINGER: Duration = Duration::from_secs(5);
/// Updates of one executable graph become one row in this time.
const BETWEEN_ROWS: Duration = Duration::from_secs(1);

/// Something that happened to an executable graph.
#[derive(Debug)]
struct Change {
    ticks: u64,
    exec: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Instantiated { number: u64, content: Box<Content> },
    Refilled(Box<Content>),
    Switched { node: u64, on: bool },
    Updated,
    Ended,
}

/// What a graph holds, and who said so.
#[derive(Debug)]
struct Content {
    contents: Contents,
    kernels: Vec<Kernel>,
    thread: usize,
}

/// One instantiation.
#[derive(Debug)]
struct Instance {
    from: u64,
    number: u64,
    contents: Contents,
    /// What its kernels are, in short.
    digest: u64,
    thread: usize,
    /// Kernels of a launch, from a time on.
    kernels: VecDeque<(u64, u32)>,
    /// Kernel nodes that are switched off.
    off: HashSet<u64>,
    /// Updates since its last row, and when the last one was.
    updates: i32,
    updated: u64,
    /// Kernels that no row has told yet.
    untold: Option<Vec<Kernel>>,
    row: Option<Instant>,
    ended: bool,
}

/// Executable graphs of one process.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    by_exec: ByHandle<Vec<Instance>>,
    count: usize,
    changes: Vec<Change>,
    /// Those of which a row is due.
    due: Vec<(u64, u64)>,
    ended: VecDeque<(Instant, u64, u64)>,
    rows: usize,
    kernel_rows: usize,
}

/// A launched graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    /// Number of the instantiation.
    pub(crate) number: u64,
    /// Kernels that it gives the GPU; none when not all of its nodes are known.
    pub(crate) kernels: Option<u32>,
}

impl Content {
    fn of(text: &Text, thread: usize) -> Option<Box<Content>> {
        let words: Vec<u64> = text.bytes().as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let (head, kernels) = words.split_first_chunk::<{ graph::HEAD_WORDS }>()?;
        let kernels = kernels.as_chunks::<2>().0.iter().map(|words| Kernel::from_words(*words)).collect();
        Some(Box::new(Content { contents: Contents::from_words(head), kernels, thread }))
    }

    fn digest(&self) -> u64 {
        let mut kernels: Vec<[u64; 2]> = self.kernels.iter().map(Kernel::words).collect();
        kernels.sort_unstable();
        kernels
            .as_flattened()
            .iter()
            .fold(0, |hash, word| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }
}

impl Instance {
    fn new(from: u64, number: u64, content: Content) -> Instance {
        Instance {
            from,
            number,
            contents: content.contents,
            digest: content.digest(),
            thread: content.thread,
            kernels: [(from, content.contents.nodes[graph::KERNEL])].into(),
            off: HashSet::new(),
            updates: 0,
            updated: from,
            untold: Some(content.kernels),
            row: None,
            ended: false,
        }
    }

    fn kernels_at(&self, ticks: u64) -> Option<u32> {
        let at = self.kernels.partition_point(|(from, _)| *from <= ticks).saturating_sub(1);
        self.kernels.get(at).map(|(_, kernels)| *kernels).filter(|_| self.contents.flags & flag::NODES_CUT == 0)
    }

    fn set_kernels(&mut self, ticks: u64) {
        let off = self.off.len().min(u32::MAX as usize) as u32;
        self.kernels.push_back((ticks, self.contents.nodes[graph::KERNEL].saturating_sub(off)));
        if self.kernels.len() > SWITCHES {
            self.kernels.pop_front();
        }
    }

    fn refill(&mut self, ticks: u64, content: Content) {
        let digest = content.digest();
        if digest != self.digest {
            self.untold = Some(content.kernels);
        }
        self.digest = digest;
        self.thread = content.thread;
        // The executable graph keeps its own number; a driver without one says 0 both times.
        self.contents = content.contents;
        self.set_kernels(ticks);
    }
}

impl Graphs {
    /// A text about a graph, of the thread in this place.
    pub(super) fn take_text(&mut self, text: &Text, thread: usize) {
        debug_assert_eq!(text.kind, text_kind::GRAPH);
        let (action, kind, number) = unpack_action(text.number);
        let what = match action {
            action::INSTANTIATE => Content::of(text, thread).map(|content| What::Instantiated { number, content }),
            action::UPDATE => Content::of(text, thread).map(What::Refilled),
            action::DISABLE | action::ENABLE if kind == graph::KERNEL => {
                Some(What::Switched { node: number, on: action == action::ENABLE })
            }
            _ => None,
        };
        if let Some(what) = what {
            self.add(Change { ticks: text.ticks, exec: text.key, what });
        }
    }

    /// A call changed an executable graph.
    pub(super) fn updated(&mut self, exec: u64, ticks: u64) {
        self.add(Change { ticks, exec, what: What::Updated });
    }

    /// A call ended an executable graph.
    pub(super) fn ended(&mut self, exec: u64, ticks: u64) {
        self.add(Change { ticks, exec, what: What::Ended });
    }

    fn add(&mut self, change: Change) {
        // Times beyond the end of all times come from a hostile process only, and would wait for ever.
        if self.changes.len() < MOST_CHANGES {
            self.changes.push(change);
        }
    }

    /// Applies what happened before this time.
    pub(super) fn apply(&mut self, horizon: u64) {
        if self.changes.is_empty() && self.ended.is_empty() {
            return;
        }
        self.changes.sort_by_key(|change| change.ticks);
        let ready = self.changes.partition_point(|change| change.ticks < horizon);
        let later = self.changes.split_off(ready);
        for change in std::mem::replace(&mut self.changes, later) {
            self.change(change);
        }
        while let Some((since, exec, number)) = self.ended.front().copied()
            && since.elapsed() >= LINGER
        {
            self.ended.pop_front();
            self.forget(exec, number);
        }
    }

    fn change(&mut self, Change { ticks, exec, what }: Change) {
        if let What::Instantiated { number, content } = what {
            if self.count < MOST {
                self.count += 1;
                self.due.push((exec, number));
                self.by_exec.entry(exec).or_default().push(Instance::new(ticks, number, *content));
            }
            return;
        }
        let Some(instance) = self.by_exec.get_mut(&exec).and_then(|history| history.last_mut()) else { return };
        match what {
            What::Refilled(content) => instance.refill(ticks, *content),
            What::Switched { node, on } => {
                let room = instance.off.len() < MOST;
                if if on { instance.off.remove(&node) } else { room && instance.off.insert(node) } {
                    instance.set_kernels(ticks);
                }
            }
            What::Updated => {
                if instance.updates == 0 && instance.row.is_some() {
                    self.due.push((exec, instance.number));
                }
                instance.updates = instance.updates.saturating_add(1);
                instance.updated = ticks;
            }
            What::Ended if !instance.ended => {
                instance.ended = true;
                self.ended.push_back((Instant::now(), exec, instance.number));
            }
            What::Ended | What::Instantiated { .. } => {}
        }
    }

    fn forget(&mut self, exec: u64, number: u64) {
        if let Some(history) = self.by_exec.get_mut(&exec) {
            let before = history.len();
            history.retain(|instance| instance.number != number);
            self.count -= before - history.len();
            if history.is_empty() {
                self.by_exec.remove(&exec);
            }
        }
    }

    fn instance(&mut self, exec: u64, number: u64) -> Option<&mut Instance> {
        self.by_exec.get_mut(&exec)?.iter_mut().find(|instance| instance.number == number)
    }

    /// What a launch of this handle at this time launched; none when its instantiation was not seen.
    pub(crate) fn find(&self, exec: u64, ticks: u64) -> Option<Launched> {
        let history = self.by_exec.get(&exec)?;
        let at = history.partition_point(|instance| instance.from <= ticks).checked_sub(1)?;
        let instance = history.get(at)?;
        Some(Launched { number: instance.number, kernels: instance.kernels_at(ticks) })
    }
}

impl Process {
    /// Adds the rows of graphs that were instantiated or updated. `last`: no other call comes.
    pub(super) fn take_graphs(&mut self, clocks: &Clocks, tables: &mut Tables, last: bool) {
        let graphs = &mut self.intake.graphs;
        for (exec, number) in std::mem::take(&mut graphs.due) {
            let (rows, kernel_rows) = (graphs.rows, graphs.kernel_rows);
            let Some(instance) = graphs.instance(exec, number) else { continue };
            let young = instance.row.is_some_and(|row| row.elapsed() < BETWEEN_ROWS);
            if young && !last && !instance.ended {
                graphs.due.push((exec, number));
                continue;
            }
            let first = instance.row.replace(Instant::now()).is_none();
            let ticks = if first { instance.from } else { instance.updated };
            let row = Graph {
                start_ns: clocks.ns(self.clock, ticks),
                process_id: self.id,
                pid: self.pid,
                tid: self.threads.get(instance.thread).map_or(0, |thread| thread.tid),
                graph_exec_id: number as i64,
                first,
                exec: exec as i64,
                contents: instance.contents,
                updates: std::mem::take(&mut instance.updates),
            };
            let kernels = instance.untold.take().unwrap_or_default();
            graphs.rows += 1;
            graphs.kernel_rows += kernels.len();
            if rows >= MOST_ROWS || kernel_rows >= MOST_KERNEL_ROWS {
                continue;
            }
            tables.graph(&row);
            for kernel in kernels {
                tables.graph_kernel(&GraphKernel {
                    start_ns: row.start_ns,
                    process_id: row.process_id,
                    graph_exec_id: row.graph_exec_id,
                    name_id: self.intake.names.find(kernel.function, ticks),
                    kernel,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(kernels: u32) -> Box<Content> {
        let mut contents = Contents::default();
        contents.nodes[graph::KERNEL] = kernels;
        Box::new(Content { contents, kernels: Vec::new(), thread: 0 })
    }

    fn instantiated(graphs: &mut Graphs, ticks: u64, number: u64, kernels: u32) {
        let what = What::Instantiated { number, content: content(kernels) };
        graphs.changes.push(Change { ticks, exec: 7, what });
    }

    fn kernels(graphs: &Graphs, ticks: u64) -> Option<(u64, u32)> {
        graphs.find(7, ticks).and_then(|found| Some((found.number, found.kernels?)))
    }

    #[test]
    fn a_handle_that_comes_back_is_another_graph() {
        let mut graphs = Graphs::default();
        // Read in another order than they happened.
        instantiated(&mut graphs, 300, 2, 9);
        graphs.ended(7, 200);
        instantiated(&mut graphs, 100, 1, 5);
        graphs.apply(u64::MAX);
        assert_eq!(kernels(&graphs, 99), None);
        assert_eq!((kernels(&graphs, 150), kernels(&graphs, 300)), (Some((1, 5)), Some((2, 9))));
    }

    #[test]
    fn what_another_ring_may_still_hold_is_waited_for() {
        let mut graphs = Graphs::default();
        graphs.updated(7, 120);
        graphs.apply(110);
        instantiated(&mut graphs, 100, 1, 5);
        graphs.apply(u64::MAX);
        assert_eq!(graphs.instance(7, 1).map(|instance| instance.updates), Some(1));
    }

    #[test]
    fn nodes_that_are_switched_off_are_not_launched() {
        let mut graphs = Graphs::default();
        instantiated(&mut graphs, 100, 1, 5);
        for (ticks, node, on) in [(200, 1, false), (201, 1, false), (202, 2, false), (300, 1, true), (301, 3, true)] {
            graphs.changes.push(Change { ticks, exec: 7, what: What::Switched { node, on } });
        }
        graphs.apply(u64::MAX);
        let at = [150, 200, 201, 202, 299, 300, 400].map(|ticks| kernels(&graphs, ticks).map(|(_, kernels)| kernels));
        assert_eq!(at, [5, 4, 4, 3, 3, 4, 4].map(Some));
    }

    #[test]
    fn a_graph_that_was_not_read_whole_has_no_number_of_kernels() {
        let mut graphs = Graphs::default();
        let mut cut = content(5);
        cut.contents.flags = flag::NODES_CUT;
        graphs.changes.push(Change { ticks: 1, exec: 7, what: What::Instantiated { number: 1, content: cut } });
        graphs.apply(2);
        assert_eq!(graphs.find(7, 3), Some(Launched { number: 1, kernels: None }));
    }
}
