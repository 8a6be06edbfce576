//! Texts behind ids.

use super::columns::*;
use super::{Column, Table, TableId};

pub(super) const NAMES: Table = Table {
    id: TableId::Names,
    name: "names",
    meaning: "texts behind ids; the id is the same in every trace, see names::id",
    columns: &[
        Column::new("name_id", I64, Plain, NONE, "hash of kind and name (63 bits)"),
        Column::new("kind", Text, Dictionary, NONE, "api, kernel, symbol, or of ranges: range, domain, category"),
        Column::new("name", Text, Plain, NONE, "the name as the driver gave it: kernels are mangled"),
    ],
};
