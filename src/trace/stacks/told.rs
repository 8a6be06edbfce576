//! Frames as the table of stacks tells them, for whoever keeps them: as numbers, or as texts.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::NO_STACK;
use crate::trace::names::{full_name, printable};
use crate::trace::{Filter, Trace, Want};

/// What the table says of a frame.
#[derive(Clone, Copy)]
pub(in crate::trace) struct Told<'a> {
    pub(in crate::trace) python: bool,
    /// As it stands there, mangled.
    pub(in crate::trace) function: &'a str,
    pub(in crate::trace) file: &'a str,
    pub(in crate::trace) line: Option<i32>,
    pub(in crate::trace) module: &'a str,
    pub(in crate::trace) address: Option<i64>,
}

impl Trace {
    /// Gives each frame of the stacks that are wanted, with the stack's id and its depth, as the rows come.
    pub(in crate::trace) fn each_frame(&self, wanted: impl Fn(i64) -> bool, mut take: impl FnMut(i64, i32, &Told<'_>)) {
        let columns = &["stack_id", "depth", "language", "function", "file", "line", "module", "offset"];
        self.scan(&[Want { table: TableId::Stacks, columns }], &Filter::default(), &mut |rows| {
            let (id, depth) = (rows.i64_or("stack_id", NO_STACK), rows.i32_or("depth", 0));
            let (language, function, file) = (rows.texts("language"), rows.texts("function"), rows.texts("file"));
            let (line, module, offset) = (rows.i32_or("line", 0), rows.texts("module"), rows.i64_or("offset", -1));
            for row in (0..rows.len).filter(|row| wanted(id[*row])) {
                let told = Told {
                    python: language.get(row) == "python",
                    function: function.get(row),
                    file: file.get(row),
                    line: Some(line[row]).filter(|line| *line > 0),
                    module: module.get(row),
                    address: Some(offset[row]).filter(|at| *at >= 0 && function.get(row).is_empty()),
                };
                take(id[row], depth[row], &told);
            }
        });
    }
}

/// Functions whose names as shown are kept meanwhile.
const SHOWN: usize = 10_000;

/// Names of functions as they are shown, by what stands in the table: of native ones, and of Python's. Not to be made again for each stack
/// that they are in.
#[derive(Debug)]
pub(in crate::trace) struct Shown<T>([FxHashMap<Box<str>, T>; 2]);

impl<T> Default for Shown<T> {
    fn default() -> Self {
        Shown([FxHashMap::default(), FxHashMap::default()])
    }
}

impl<T: Clone> Shown<T> {
    /// What is kept of a function's name as shown.
    pub(in crate::trace) fn of(&mut self, python: bool, mangled: &str, keep: impl FnOnce(&str) -> T) -> T {
        let known = &mut self.0[usize::from(python)];
        if let Some(kept) = known.get(mangled) {
            return kept.clone();
        }
        let kept = keep(&if python { printable(mangled) } else { full_name(mangled) });
        if known.len() >= SHOWN {
            known.clear();
        }
        known.insert(mangled.into(), kept.clone());
        kept
    }
}
