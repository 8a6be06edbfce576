//! What was appended is read, and what was torn off is not.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use proptest::prelude::*;

use super::*;
use crate::encode::{Press, describe, image};
use crate::file::TableFile;
use crate::support::Folder;

/// Rows of `names` with these ids.
fn names(ids: std::ops::Range<i64>) -> RecordBatch {
    let texts = Arc::new(StringArray::from_iter_values(ids.clone().map(|n| format!("name {n}"))));
    let table = TableId::Names.table();
    RecordBatch::try_new(table.arrow(), vec![Arc::new(Int64Array::from_iter_values(ids)), texts.clone(), texts])
        .unwrap()
}

fn rows(ids: std::ops::Range<i64>) -> Item {
    let table = TableId::Names.table();
    let (first, count) = (ids.start as u64, (ids.end - ids.start) as u64);
    let image = image(table, &describe(table).unwrap(), &[names(ids)], &[], &mut Press::new().unwrap()).unwrap();
    Item::rows(TableId::Names, first, count, image)
}

fn ids(path: &std::path::Path) -> Vec<i64> {
    let mut ids = Vec::new();
    for batch in read(path).unwrap() {
        let (table, batch) = batch.unwrap();
        assert_eq!(table, TableId::Names);
        ids.extend(batch.column(0).as_primitive::<Int64Type>().values());
    }
    ids
}

fn journal(folder: &Folder) -> PathBuf {
    folder.trace().join("journal/h-1.journal")
}

#[test]
fn frames_are_read_in_order() {
    let folder = Folder::new("journal");
    let mut log = Log::new(journal(&folder));
    for n in 0..5 {
        log.append(&[rows(n * 10..n * 10 + 7), rows(n * 10 + 7..n * 10 + 10)]).unwrap();
    }
    assert_eq!(ids(&journal(&folder)), (0..50).collect::<Vec<_>>());
    assert!(!read(&journal(&folder)).unwrap().is_torn());
    log.clear();
    assert!(!journal(&folder).exists());
}

#[test]
fn rows_that_a_file_holds_are_read_once() {
    let folder = Folder::new("part");
    let (table, mut press) = (TableId::Names.table(), Press::new().unwrap());
    let descriptor = describe(table).unwrap();
    let mut log = Log::new(journal(&folder));
    log.append(&[rows(0..10)]).unwrap();
    let name = "names/host=h/1-000000.parquet".to_owned();
    let mut file = TableFile::create(&folder.trace(), name, table, &descriptor).unwrap();
    for range in [0..20, 20..30] {
        let mut group = crate::encode::RowGroup::new(table, &descriptor);
        group.append(&names(range.clone()), &mut press).unwrap();
        file.append(&TableFile::encode(group, file.length(), &mut press).unwrap(), &[]).unwrap();
        let part =
            Item::part(TableId::Names, range.end as u64, &file.part_name(), file.length(), &file.footer().unwrap());
        log.append(&[part]).unwrap();
    }
    log.append(&[rows(30..35)]).unwrap();
    assert_eq!(ids(&journal(&folder)), (0..35).collect::<Vec<_>>());
    // Sealed, the file is read as such; only the rest comes from the journal.
    file.seal().unwrap();
    assert_eq!(ids(&journal(&folder)), (30..35).collect::<Vec<_>>());
}

/// Flips a bit in the frame that begins at this byte.
fn damage(folder: &Folder, frame: u64) {
    let mut bytes = std::fs::read(journal(folder)).unwrap();
    bytes[frame as usize + 30] ^= 1;
    std::fs::write(journal(folder), bytes).unwrap();
}

#[test]
fn after_a_damaged_frame_reading_goes_on_at_the_next_whole_one() {
    let folder = Folder::new("damaged");
    let mut log = Log::new(journal(&folder));
    let length = || std::fs::metadata(journal(&folder)).unwrap().len();
    log.append(&[rows(0..10)]).unwrap();
    let first = length();
    log.append(&[rows(10..20)]).unwrap();
    let second = length();
    log.append(&[rows(20..30)]).unwrap();
    damage(&folder, first);
    assert_eq!(ids(&journal(&folder)), (0..10).chain(20..30).collect::<Vec<_>>());
    let read = read(&journal(&folder)).unwrap();
    assert_eq!((read.damaged(), read.is_torn()), (second - first, false));
    // Whoever goes on with it goes on behind the last whole one.
    assert_eq!(left(&journal(&folder)).unwrap().whole, length());
    Log::resume(journal(&folder), length()).unwrap().append(&[rows(30..35)]).unwrap();
    assert_eq!(ids(&journal(&folder)), (0..10).chain(20..35).collect::<Vec<_>>());
}

#[test]
fn rows_that_were_sealed_are_not_read_again_where_the_word_of_it_is_damaged() {
    let folder = Folder::new("damaged-word");
    let mut log = Log::new(journal(&folder));
    log.append(&[rows(0..10)]).unwrap();
    let word = std::fs::metadata(journal(&folder)).unwrap().len();
    log.append(&[Item::part(TableId::Names, 10, "sealed since", 0, &[])]).unwrap();
    log.sealed(TableId::Names);
    log.append(&[rows(10..15)]).unwrap();
    damage(&folder, word);
    assert_eq!(ids(&journal(&folder)), (10..15).collect::<Vec<_>>());
}

#[test]
fn what_runs_is_told_by_the_last_word_about_it() {
    let folder = Folder::new("live");
    let mut log = Log::new(journal(&folder));
    for n in [1, 2] {
        let Item { bytes, .. } = rows(n..n + 1);
        log.append(&[Item::live(TableId::Names, 1, bytes)]).unwrap();
    }
    assert_eq!(ids(&journal(&folder)), [2]);
    log.append(&[Item::live(TableId::Names, 0, Vec::new()), rows(0..3)]).unwrap();
    assert_eq!(ids(&journal(&folder)), [0, 1, 2]);
}

#[test]
fn a_long_journal_is_rewritten_without_what_was_sealed() {
    let folder = Folder::new("rewrite");
    let mut log = Log::new(journal(&folder));
    let mut end = 0;
    for _ in 0..40 {
        log.append(&[rows(end..end + 40_000)]).unwrap();
        end += 40_000;
        let covered = end - 60_000;
        if covered > 0 {
            // As if a file held all but the last rows.
            log.append(&[Item::part(TableId::Names, (covered / 40_000 * 40_000) as u64, "gone", 0, &[])]).unwrap();
        }
    }
    assert!(std::fs::metadata(journal(&folder)).unwrap().len() < 20 << 20);
    let all = ids(&journal(&folder));
    assert_eq!(all, (end - 80_000..end).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_torn_tail_ends_the_reading_cleanly(cut in 0..3000usize, noise: u64) {
        let folder = Folder::new("torn");
        let mut log = Log::new(journal(&folder));
        log.append(&[rows(0..10)]).unwrap();
        let whole = std::fs::metadata(journal(&folder)).unwrap().len() as usize;
        log.append(&[rows(10..20), rows(20..30)]).unwrap();
        let mut bytes = std::fs::read(journal(&folder)).unwrap();
        let cut = cut.min(bytes.len() - 1);
        let other = !bytes[cut];
        bytes.truncate(cut);
        bytes.push(other); // not what would have come
        bytes.extend_from_slice(&noise.to_le_bytes());
        std::fs::write(journal(&folder), bytes).unwrap();
        let wanted = if cut < whole { 0 } else { 10 };
        prop_assert_eq!(ids(&journal(&folder)), (0..wanted).collect::<Vec<_>>());
        prop_assert!(read(&journal(&folder)).unwrap().is_torn());
    }

    #[test]
    fn a_flipped_bit_is_noticed(at: prop::sample::Index, bit in 0..8u8) {
        let folder = Folder::new("flipped");
        let mut log = Log::new(journal(&folder));
        log.append(&[rows(0..10)]).unwrap();
        let mut bytes = std::fs::read(journal(&folder)).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        std::fs::write(journal(&folder), bytes).unwrap();
        prop_assert_eq!(ids(&journal(&folder)), Vec::<i64>::new());
    }
}
