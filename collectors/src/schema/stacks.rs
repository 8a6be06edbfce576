//! Whose line caused it.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const STACKS: Table = Table {
    id: TableId::Stacks,
    name: "stacks",
    meaning: "a stack that calls refer to by stack_id: its innermost frame, and the stack without that one",
    columns: &[
        Column::new(
            "stack_id",
            I64,
            Plain,
            NONE,
            "hash of the frames (63 bits): the same lines have the same id in every process and trace",
        ),
        Column::new(
            "caller_id",
            I64,
            Plain,
            NONE,
            "the stack of who called this frame: its stacks.stack_id; null for the outermost frame that was taken, or before those of outer_id",
        )
        .optional(),
        Column::new(
            "outer_id",
            I64,
            Plain,
            NONE,
            "where the frames of caller_id and its callers end, this stack goes on with this one (native code that Python called); null: it ends",
        )
        .optional(),
        Column::new("language", Text, Dictionary, NONE, "python or native"),
        Column::new(
            "function",
            Text,
            Dictionary,
            NONE,
            "python: qualified name (before 3.11 the plain one); native: symbol, mangled, or empty when the file has none",
        ),
        Column::new("file", Text, Dictionary, NONE, "source file as the code itself says; null when not known")
            .optional(),
        Column::new("line", I32, Plain, NONE, "line in the file; null when not known").optional(),
        Column::new("module", Text, Dictionary, NONE, "native: file of the program or library; null for python")
            .optional(),
        Column::new("offset", I64, Plain, NONE, "native: address in the module's file; null for python").optional(),
        Column::new("cut", Bool, Plain, NONE, "this is the outermost frame that was taken, and there were more"),
    ],
};
