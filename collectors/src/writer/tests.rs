//! What the journal says of the writer's files at each moment.

use std::sync::Arc;

use arrow::array::{Int64Array, StringArray};

use super::*;
use crate::journal;
use crate::support::Folder;

fn names(from: i64, rows: i64) -> RecordBatch {
    let ids = Arc::new(Int64Array::from_iter_values(from..from + rows));
    let texts = Arc::new(StringArray::from_iter_values((from..from + rows).map(|n| format!("name {n}"))));
    RecordBatch::try_new(TableId::Names.table().arrow(), vec![ids, texts.clone(), texts]).unwrap()
}

#[test]
fn a_row_group_that_becomes_full_between_two_flushes_is_in_the_journal_after_the_next() {
    let folder = Folder::new("between-flushes");
    std::fs::create_dir_all(folder.trace().join("manifest")).unwrap();
    let config = Config::new(folder.trace(), folder.session(), "h".to_owned(), 1);
    let mut writer = Writer::new(config, Shared::default(), None).unwrap();
    let found = || {
        let rows = journal::read(&folder.trace().join("journal/h-1.journal")).unwrap();
        rows.map(|rows| rows.unwrap().1.num_rows()).sum::<usize>()
    };
    writer.take(Message::Rows(TableId::Names, names(0, 1000), Vec::new()));
    assert!(writer.end_group(TableId::Names), "as if it were full");
    writer.flush();
    assert_eq!(found(), 1000);
    writer.take(Message::Rows(TableId::Names, names(1000, 10), Vec::new()));
    writer.flush();
    assert_eq!(found(), 1010);
}
