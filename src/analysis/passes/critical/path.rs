//! The way through a step that took longest: back from its end, at each point to what was waited for last.
//!
//! Every piece of the host's time and every operation of a GPU is a node that knows its predecessor: what ended last of
//! all that had to end before it began. As many are kept as steps have, up to a million; a longer step has no path.

use std::collections::VecDeque;

use super::lanes::Class;

/// What a piece of the path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Piece {
    /// The host outside the driver.
    Outside,
    /// The host in a launch.
    Launch,
    /// The host in a wait for the GPU: what is left of it after the GPU's work.
    Wait,
    /// The host in a copy or set.
    Transfer,
    /// The host in an allocation or free.
    Memory,
    /// The host loads or compiles code.
    Load,
    /// The host in another call of the driver, or of NCCL.
    Other,
    /// The host in a wait for the operating system.
    System,
    /// From the begin of a call to the begin of its operation.
    Latency,
    /// From the end of an operation to the begin of the next one, which was queued.
    Between,
    /// A kernel computes.
    Compute,
    /// A kernel of NCCL.
    Communication,
    /// The GPU copies or sets.
    Copy,
}

/// All pieces, as they are shown: name in JSON, and what it is.
pub(crate) const PIECES: [(Piece, &str, &str); 13] = [
    (Piece::Outside, "outside", "host outside the driver"),
    (Piece::Launch, "launch", "host in launch calls"),
    (Piece::Wait, "wait", "host returns from waits"),
    (Piece::Transfer, "transfer", "host in copies or sets"),
    (Piece::Memory, "memory", "host in allocations or frees"),
    (Piece::Load, "loading", "host loads or compiles code"),
    (Piece::Other, "other", "host in other driver calls"),
    (Piece::System, "system", "host waits for the system"),
    (Piece::Latency, "latency", "launch to begin on the GPU"),
    (Piece::Between, "between", "between queued operations"),
    (Piece::Compute, "compute", "GPU computes"),
    (Piece::Communication, "communication", "GPU runs NCCL"),
    (Piece::Copy, "copy", "GPU copies or sets"),
];

impl Piece {
    /// Whether it is the host's time.
    pub(crate) fn is_host(self) -> bool {
        (self as usize) < Piece::Latency as usize
    }

    /// The class that takes it away; none where nothing does.
    pub(super) fn class(self) -> Option<Class> {
        match self {
            Piece::Outside | Piece::Launch | Piece::Other => Some(Class::Host),
            Piece::Wait => Some(Class::Wait),
            Piece::Transfer | Piece::Copy => Some(Class::Copy),
            Piece::Memory => Some(Class::Memory),
            Piece::System => Some(Class::System),
            Piece::Communication => Some(Class::Communication),
            Piece::Load | Piece::Latency | Piece::Between | Piece::Compute => None,
        }
    }
}

/// A node: from `start` to `end` it was `piece`; before, since its predecessor ended, `before`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Number of the predecessor.
    pub(super) after: u64,
    pub(super) piece: Piece,
    pub(super) before: Piece,
    /// Kernel, or function of the call; of time outside the driver that of the next call.
    pub(super) name_id: i64,
}

/// Nodes that are kept at most: 40 MiB of them.
const KEPT: usize = 1 << 20;
/// Nodes that are kept from before what is looked at, for what was queued then.
const QUEUED: u64 = 1 << 16;

/// No predecessor: nothing is known of the time before.
pub(super) const FIRST: u64 = u64::MAX;

/// The last nodes of all processes, by number.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    last: VecDeque<Node>,
    next: u64,
}

impl Nodes {
    /// Adds a node; its number.
    #[inline]
    pub(super) fn add(&mut self, node: Node) -> u64 {
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(node);
        self.next += 1;
        self.next - 1
    }

    /// Paths will begin after this node only.
    pub(super) fn forget(&mut self, before: u64) {
        let kept = self.next.saturating_sub(before).saturating_add(QUEUED).min(KEPT as u64) as usize;
        self.last.drain(..self.last.len().saturating_sub(kept));
    }

    /// The number of the next node.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn get(&self, number: u64) -> Option<&Node> {
        let back = self.next.checked_sub(number)?;
        self.last.get(self.last.len().checked_sub(back as usize)?)
    }

    /// Goes back from a node to the time `until`, and tells every piece on the way. False: the way is lost.
    pub(super) fn walk(&self, mut from: u64, until: i64, mut tell: impl FnMut(Piece, i64, i64)) -> bool {
        // A wait may end before what it waited for does, by as much as two clocks differ: each ns is told once.
        let mut to = i64::MAX;
        while let Some(node) = self.get(from) {
            let ns = node.end.min(to) - node.start.max(until);
            if ns > 0 {
                tell(node.piece, node.name_id, ns);
            }
            to = to.min(node.start);
            if node.start <= until {
                return true;
            }
            let before = self.get(node.after).map(|before| before.end);
            let Some(ended) = before.or((node.after == FIRST).then_some(until)) else { return false };
            let gap = to - ended.max(until);
            if gap > 0 {
                tell(node.before, node.name_id, gap);
            }
            if node.after == FIRST {
                return true;
            }
            from = node.after;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_backwards_and_cut_at_its_begin() {
        let mut nodes = Nodes::default();
        let node = |start, end, after, piece| Node { start, end, after, piece, before: Piece::Latency, name_id: 0 };
        let host = nodes.add(node(0, 100, FIRST, Piece::Outside));
        let kernel = nodes.add(node(120, 500, host, Piece::Compute));
        nodes.add(node(100, 110, host, Piece::Launch));
        let wait = nodes.add(node(510, 520, kernel, Piece::Wait));
        let mut seen = Vec::new();
        assert!(nodes.walk(wait, 40, |piece, _, ns| seen.push((piece, ns))));
        let expected = [
            (Piece::Wait, 10),
            (Piece::Latency, 10),
            (Piece::Compute, 380),
            (Piece::Latency, 20),
            (Piece::Outside, 60),
        ];
        assert_eq!(seen, expected);
        assert_eq!(seen.iter().map(|(_, ns)| ns).sum::<i64>(), 520 - 40);
        assert!(nodes.walk(wait, -1, |_, _, _| {}));
        assert!(!nodes.walk(wait + 1, 40, |_, _, _| {}), "that node is not there");
    }
}
