//! Host memory that the driver gave pinned (cuMemAllocHost, cuMemHostAlloc): what is live, its most, and who asked for it.

use super::groups::Groups;
use super::timeline::Timeline;
use crate::trace::NO_STACK;

/// That of one process.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// Most bytes that were live at once.
    pub(crate) peak_bytes: i64,
    /// Live bytes now, and after the last row: at the end.
    pub(crate) live_bytes: i64,
    /// The same over time.
    pub(crate) line: Timeline,
    /// By stack.
    pub(crate) stacks: Groups<i64, AtStack>,
}

/// What one stack asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AtStack {
    /// Calls that got something, their bytes, and the time in them.
    pub(crate) calls: u64,
    pub(crate) bytes: i64,
    pub(crate) ns: i64,
    /// Blocks and bytes of it that are live.
    pub(crate) live: (i64, i64),
}

impl Default for Pinned {
    fn default() -> Self {
        let stacks = Groups::new(10_000, NO_STACK);
        Pinned { peak_bytes: 0, live_bytes: 0, line: Timeline::default(), stacks }
    }
}

impl Pinned {
    /// A call got so many bytes.
    pub(super) fn called(&mut self, stack_id: i64, bytes: i64, ns: i64) {
        let stack = self.stacks.at(stack_id);
        (stack.calls, stack.bytes, stack.ns) = (stack.calls + 1, stack.bytes + bytes, stack.ns + ns);
    }

    /// A block of a stack is live from now on, or no longer (-1).
    pub(super) fn change(&mut self, stack_id: i64, bytes: i64, sign: i64) {
        let live = &mut self.stacks.at(stack_id).live;
        *live = (live.0 + sign, live.1 + sign * bytes);
        self.live_bytes += sign * bytes;
    }

    /// What is live is that from this time on, which is of the part.
    pub(super) fn changed(&mut self, at: i64) {
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
        self.line.set(at, self.live_bytes);
    }

    /// Whether there is, or was, any.
    pub(crate) fn any(&self) -> bool {
        self.line.first_ns().is_some()
    }
}
