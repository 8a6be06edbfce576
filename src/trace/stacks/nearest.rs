//! Which frame of each stack is its site, where there are many stacks: what they have in common is looked at once.

use rustc_hash::FxHashMap;

use super::site::{Kind, chosen};
use super::tree::Tree;

/// The sites of stacks, as numbers of frames.
pub(super) struct Nearest<'t> {
    tree: &'t Tree,
    kinds: FxHashMap<u32, Kind>,
    /// By stack the innermost frame of the author's own; none where there is none.
    own: FxHashMap<i64, Option<u32>>,
}

impl Nearest<'_> {
    pub(super) fn new(tree: &Tree) -> Nearest<'_> {
        Nearest { tree, kinds: FxHashMap::default(), own: FxHashMap::default() }
    }

    /// The frame of a stack that its site is; none where the stack is not known.
    pub(super) fn site(&mut self, stack_id: i64) -> Option<u32> {
        self.own(stack_id).or_else(|| {
            let frames = self.tree.passed(stack_id).map(|passed| (passed.frame, self.kind(passed.frame)));
            chosen(frames.collect::<Vec<_>>().into_iter())
        })
    }

    fn own(&mut self, stack_id: i64) -> Option<u32> {
        let (mut passed, mut found) = (Vec::new(), None);
        for next in self.tree.passed(stack_id) {
            // Behind others the way goes on elsewhere than from this stack.
            if next.is_its_own {
                if let Some(known) = self.own.get(&next.stack_id) {
                    found = *known;
                    break;
                }
                passed.push(next.stack_id);
            }
            if self.kind(next.frame) == Kind::Own {
                found = Some(next.frame);
                break;
            }
        }
        self.own.extend(passed.into_iter().map(|id| (id, found)));
        found
    }

    fn kind(&mut self, number: u32) -> Kind {
        let tree = self.tree;
        *self.kinds.entry(number).or_insert_with(|| tree.frame(number).kind())
    }
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::schema::TableId;

    use crate::trace::testing::TestTrace;

    #[test]
    fn stacks_with_common_callers_have_the_sites_that_each_has_alone() {
        let mut trace = TestTrace::new();
        let mut row = |id: i64, caller: Option<i64>, language: &str, function: &str| {
            let python = language == "python";
            let row = serde_json::json!({
                "stack_id": id, "caller_id": caller, "language": language, "function": function,
                "file": if python { Some("/home/u/x.py") } else { None }, "line": python.then_some(id),
                "module": if python { None } else { Some("/usr/lib/libx.so") },
            });
            trace.row(TableId::Stacks, row);
        };
        row(1, None, "native", "start");
        row(2, Some(1), "python", "main");
        row(3, Some(2), "native", "grow");
        row(4, Some(3), "native", "malloc");
        row(5, Some(2), "python", "step");
        row(6, Some(5), "native", "malloc");
        // Nothing of the author's own, and nothing but an allocator.
        row(7, Some(1), "native", "malloc");
        row(8, None, "native", "malloc");
        row(9, Some(9), "native", "calloc");
        // One function, called by itself and in two places.
        row(10, None, "native", "malloc");
        row(11, Some(10), "native", "malloc");
        for (id, outer) in [(12, 2), (13, 5)] {
            let row = serde_json::json!({
                "stack_id": id, "caller_id": 10, "outer_id": outer, "language": "native", "function": "malloc",
                "module": "/usr/lib/libx.so",
            });
            trace.row(TableId::Stacks, row);
        }
        let trace = trace.open();
        let (main, step) = (Some("x.py:2 main".to_owned()), Some("x.py:5 step".to_owned()));
        let library = |function: &str| Some(format!("{function} (libx.so)"));
        let wanted = [
            (4, main.clone()),
            (3, main.clone()),
            (6, step.clone()),
            (11, library("malloc")),
            (12, main.clone()),
            (13, step),
            (2, main),
            (7, library("start")),
            (1, library("start")),
            (8, library("malloc")),
            (9, library("calloc")),
            (99, None),
        ];
        let all = trace.sites(&wanted.iter().map(|(id, _)| *id).collect());
        for (id, site) in &wanted {
            let alone = trace.sites(&[*id].into_iter().collect());
            assert_eq!(all.get(*id).map(|site| site.short()), *site, "{id}");
            assert_eq!(alone.get(*id), all.get(*id));
        }
    }
}
