//! The table of stacks.

use std::sync::Arc;

use arrow::array::ArrayRef;

use super::columns::{Flags, Optional, Plain, Rows, Texts, take};
use crate::schema::TableId;
use crate::writer::Message;

/// A row of `stacks`.
#[derive(Clone, Debug)]
pub(crate) struct Stacked {
    pub(crate) id: i64,
    /// The stack that called the frame.
    pub(crate) caller: Option<i64>,
    /// Its frames are those of two others.
    pub(crate) joined: Option<Joined>,
    /// The innermost frame.
    pub(crate) frame: StackRow,
}

/// Two stacks that are one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    /// The one with the innermost frames, to whose callers [`Stacked::caller`] belongs.
    pub(crate) inner: i64,
    /// The one that called the outermost of these.
    pub(crate) outer: i64,
}

/// A frame. Texts are shared: a program has few, and many frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackRow {
    /// `python` or `native`.
    pub language: &'static str,
    /// Its name; empty when it is not known.
    pub function: Arc<str>,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Line in it.
    pub line: Option<i32>,
    /// Of native code the program's or library's file.
    pub module: Option<Arc<str>>,
    /// Of native code the address in that file.
    pub offset: Option<i64>,
    /// Whether it is the outermost one that was taken, and there were more.
    pub cut: bool,
}

#[derive(Default)]
pub(crate) struct StackColumns {
    rows: Rows,
    stack_id: Plain<i64>,
    caller_id: Optional<i64>,
    outer_id: Optional<i64>,
    language: Texts,
    function: Texts,
    file: Texts,
    line: Optional<i32>,
    module: Texts,
    offset: Optional<i64>,
    cut: Flags,
}

impl StackColumns {
    /// Rows so far.
    pub(crate) fn len(&self) -> usize {
        self.rows.count
    }

    pub(crate) fn push(&mut self, stack: &Stacked) {
        let row = &stack.frame;
        self.rows.count += 1;
        self.stack_id.push(stack.id);
        self.caller_id.push(stack.caller);
        self.outer_id.push(stack.joined.map(|joined| joined.outer));
        self.language.push(Some(row.language));
        self.function.push(Some(&row.function));
        self.file.push(row.file.as_deref());
        self.line.push(row.line);
        self.module.push(row.module.as_deref());
        self.offset.push(row.offset);
        self.cut.push(row.cut);
    }

    /// The rows as a batch.
    pub(crate) fn take(&mut self) -> Option<Message> {
        if self.rows.count == 0 {
            return None;
        }
        let columns: Vec<ArrayRef> = take![
            self.stack_id,
            self.caller_id,
            self.outer_id,
            self.language,
            self.function,
            self.file,
            self.line,
            self.module,
            self.offset,
            self.cut
        ];
        self.rows.batch(TableId::Stacks, columns)
    }
}
