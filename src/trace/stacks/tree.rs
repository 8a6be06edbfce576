//! All stacks of a trace in memory, as its table has them: a frame, the stack that called it, and the one outside of that.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::Frame;
use super::held::Frames;
use super::told::Outwards;
use crate::trace::Trace;

/// Most frames of a stack, those of inlined functions with them: more has only a damaged trace, in which a stack calls itself.
pub(in crate::trace) const DEEPEST: usize = 4_096;

/// The stacks by their ids.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: FxHashMap<i64, Node>,
    frames: Frames,
}

#[derive(Debug)]
struct Node {
    /// Number of the innermost frame.
    frame: u32,
    caller: i64,
    outer: i64,
}

/// A frame on the way outwards.
pub(super) struct Passed {
    /// The stack that begins with it.
    pub(super) stack_id: i64,
    /// All that follows is that stack's own.
    pub(super) is_its_own: bool,
    /// Number of the frame.
    pub(super) frame: u32,
}

impl Trace {
    /// Reads all stacks.
    pub(super) fn stacks(&self) -> Tree {
        let mut tree = Tree::default();
        self.each_stack(|told| {
            if let Entry::Vacant(place) = tree.nodes.entry(told.id) {
                let frame = tree.frames.number(&told.frame);
                place.insert(Node { frame, caller: told.caller, outer: told.outer });
            }
        });
        tree.frames.seal();
        tree
    }
}

impl Tree {
    /// The frames of a stack, innermost first; none where it is not known.
    pub(super) fn passed(&self, stack_id: i64) -> impl Iterator<Item = Passed> {
        let mut way = Outwards::from(stack_id);
        let passed = std::iter::from_fn(move || {
            let stack_id = way.stack()?;
            let Node { frame, caller, outer } = self.nodes.get(&stack_id)?;
            let is_its_own = way.is_its_own();
            way.step(*caller, *outer);
            Some(Passed { stack_id, is_its_own, frame: *frame })
        });
        passed.take(DEEPEST)
    }

    /// The frame with a number.
    pub(super) fn frame(&self, number: u32) -> Frame {
        self.frames.get(number)
    }

    /// The frames of a stack, innermost first.
    pub(super) fn frames(&self, stack_id: i64) -> impl Iterator<Item = Frame> {
        self.passed(stack_id).map(|passed| self.frame(passed.frame))
    }
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::schema::TableId;

    use super::*;
    use crate::trace::NO_STACK;
    use crate::trace::testing::TestTrace;

    #[test]
    fn a_stack_is_a_frame_and_its_caller_in_whatever_order_they_are_told_and_each_frame_is_kept_once() {
        let mut trace = TestTrace::new();
        let mut row = |id: i64, caller: Option<i64>, language: &str, function: &str, file: Option<&str>| {
            let row = serde_json::json!({
                "stack_id": id, "caller_id": caller, "language": language, "function": function, "file": file,
                "line": file.map(|_| 7), "module": if file.is_none() { Some("/home/u/libm.so") } else { None },
            });
            trace.row(TableId::Stacks, row);
        };
        row(3, Some(2), "python", "load", Some("/home/u/data.py"));
        row(2, Some(1), "native", "_ZN5Model4growEv", None);
        row(1, None, "native", "", None);
        row(3, None, "native", "told again", None);
        row(4, Some(1), "python", "load", Some("/home/u/data.py"));
        // Whose caller was not told, as where a trace is torn, and what calls itself.
        row(5, Some(99), "native", "_ZN5Model4growEv", None);
        row(6, Some(6), "native", "", None);
        // What Python called, in two places.
        row(7, None, "native", "call", None);
        row(8, Some(7), "native", "malloc", None);
        for (id, outer) in [(9, 3), (10, 1)] {
            let row = serde_json::json!({
                "stack_id": id, "caller_id": 7, "outer_id": outer, "language": "native", "function": "malloc",
                "module": "/home/u/libm.so",
            });
            trace.row(TableId::Stacks, row);
        }
        let trace = trace.open();
        let text = "load /home/u/data.py:7 < Model::grow (libm.so) < ? (libm.so)";
        let sites = trace.sites(&[3].into_iter().collect());
        let every = trace.every_stack().unwrap();
        let below = format!("malloc (libm.so) < call (libm.so) < {text}");
        let wanted = [
            (3, text),
            (4, "load /home/u/data.py:7 < ? (libm.so)"),
            (5, "Model::grow (libm.so)"),
            (8, "malloc (libm.so) < call (libm.so)"),
            (9, &below),
            (10, "malloc (libm.so) < call (libm.so) < ? (libm.so)"),
        ];
        for (id, text) in wanted {
            assert_eq!(sites.whole(id).as_deref(), Some(text));
            assert_eq!(every.whole(id).unwrap().as_deref(), Some(text));
            assert_eq!(every.frames(id).unwrap(), sites.frames(id).collect::<Vec<Frame>>());
        }
        for id in [11, 99, NO_STACK] {
            assert_eq!((sites.whole(id), every.whole(id).unwrap()), (None, None));
        }
        assert_eq!(
            (sites.frames(6).count(), every.frames(6).unwrap().len(), sites.tree.frames.len()),
            (DEEPEST, DEEPEST, 5)
        );
    }
}
