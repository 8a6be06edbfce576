//! Stacks as their table tells them, for whoever keeps them: in memory, or as texts.

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
    /// Where it is in its library.
    pub(in crate::trace) address: Option<i64>,
}

/// A stack, as a row of the table tells it.
#[derive(Clone, Copy)]
pub(in crate::trace) struct ToldStack<'a> {
    pub(in crate::trace) id: i64,
    /// The stack that called its innermost frame, or [`NO_STACK`].
    pub(in crate::trace) caller: i64,
    /// The stack outside of the outermost one that called it, or [`NO_STACK`].
    pub(in crate::trace) outer: i64,
    /// That frame.
    pub(in crate::trace) frame: Told<'a>,
}

impl Trace {
    /// Gives each stack as the rows come. Several rows may have one id: the first counts.
    pub(in crate::trace) fn each_stack(&self, mut take: impl FnMut(&ToldStack<'_>)) {
        let columns =
            &["stack_id", "caller_id", "outer_id", "language", "function", "file", "line", "module", "offset"];
        self.scan(&[Want { table: TableId::Stacks, columns }], &Filter::default(), &mut |rows| {
            let [id, caller, outer] = ["stack_id", "caller_id", "outer_id"].map(|column| rows.i64_or(column, NO_STACK));
            let (language, function, file) = (rows.texts("language"), rows.texts("function"), rows.texts("file"));
            let (line, module, address) = (rows.i32_or("line", 0), rows.texts("module"), rows.i64_or("offset", -1));
            for row in (0..rows.len).filter(|row| id[*row] != NO_STACK) {
                let frame = Told {
                    python: language.get(row) == "python",
                    function: function.get(row),
                    file: file.get(row),
                    line: Some(line[row]).filter(|line| *line > 0),
                    module: module.get(row),
                    address: Some(address[row]).filter(|at| *at >= 0),
                };
                take(&ToldStack { id: id[row], caller: caller[row], outer: outer[row], frame });
            }
        });
    }
}

/// The way from a stack to those that called it.
#[derive(Clone, Copy)]
pub(in crate::trace) struct Outwards {
    next: i64,
    outer: i64,
}

impl Outwards {
    /// From a stack on.
    pub(in crate::trace) fn from(stack_id: i64) -> Outwards {
        Outwards { next: stack_id, outer: NO_STACK }
    }

    /// The stack whose innermost frame comes next; none behind the last.
    pub(in crate::trace) fn stack(self) -> Option<i64> {
        Some(self.next).filter(|id| *id != NO_STACK)
    }

    /// Whether all that follows is what follows that stack wherever it is called.
    pub(in crate::trace) fn is_its_own(self) -> bool {
        self.outer == NO_STACK
    }

    /// From a stack with this caller and this one outside of it.
    pub(in crate::trace) fn step(&mut self, caller: i64, outer: i64) {
        if outer != NO_STACK {
            self.outer = outer;
        }
        self.next = if caller == NO_STACK { std::mem::replace(&mut self.outer, NO_STACK) } else { caller };
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
