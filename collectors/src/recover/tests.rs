//! Rows of a journal find their files, or the rest does.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};

use super::*;
use crate::encode::{Press, describe, image};
use crate::journal::{Item, Log};
use crate::schema::TableId;
use crate::support::Folder;
use crate::tables::{self, ProcessRow};

fn item(table: TableId, batch: &RecordBatch) -> Item {
    let about = table.table();
    let bytes = image(about, &describe(about).unwrap(), std::slice::from_ref(batch), &[], &mut Press::new().unwrap());
    Item::rows(table, 0, batch.num_rows() as u64, bytes.unwrap())
}

/// A trace whose journal has a name and a process.
fn left_behind(folder: &Folder) -> Launcher {
    let launcher = Launcher { host: "h".to_owned(), id: 1 };
    let at = manifest::path(&folder.trace(), &launcher.host, launcher.id);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    let manifest = Manifest { schema_version: SCHEMA_VERSION, host: "h".into(), launcher_id: 1, ..Manifest::default() };
    manifest.write(&at).unwrap();
    let text = Arc::new(StringArray::from(vec!["spin"]));
    let columns: Vec<arrow::array::ArrayRef> = vec![Arc::new(Int64Array::from(vec![7])), text.clone(), text];
    let names = RecordBatch::try_new(TableId::Names.table().arrow(), columns).unwrap();
    let processes = tables::processes(&[ProcessRow { process_id: 5, pid: 9, ..ProcessRow::default() }]).unwrap();
    let mut log = Log::new(folder.trace().join("journal/h-1.journal"));
    log.append(&[item(TableId::Names, &names), item(TableId::Processes, &processes)]).unwrap();
    launcher
}

fn rows(on_disk: &OnDisk, table: TableId) -> u64 {
    on_disk.files.iter().filter(|file| file.table == table).map(|file| file.rows).sum()
}

#[test]
fn who_goes_on_keeps_what_can_be_written_and_who_comes_later_can_try_again() {
    let folder = Folder::new("no-room");
    let launcher = left_behind(&folder);
    // There is no room for names.
    fs::write(folder.trace().join("names"), "").unwrap();
    let find = || Dead::find(&folder.trace(), &launcher).unwrap().expect("it was killed");
    assert!(find().settle(&BTreeSet::new()).is_err());
    let journal = folder.trace().join("journal/h-1.journal");
    assert_eq!(journal::left(&journal).unwrap().rows.len(), 2, "nothing is lost by that");
    let (on_disk, trouble) = find().settle_anyhow(&BTreeSet::new()).unwrap();
    assert!(trouble.is_some());
    assert_eq!((rows(&on_disk, TableId::Names), rows(&on_disk, TableId::Processes)), (0, 1));
}

#[test]
fn who_goes_on_where_there_is_room_keeps_all() {
    let folder = Folder::new("room");
    let launcher = left_behind(&folder);
    let mut dead = Dead::find(&folder.trace(), &launcher).unwrap().expect("it was killed");
    let (on_disk, trouble) = dead.settle_anyhow(&BTreeSet::new()).unwrap();
    assert!(trouble.is_none());
    assert_eq!((rows(&on_disk, TableId::Names), rows(&on_disk, TableId::Processes)), (1, 1));
}

#[test]
fn a_damaged_spot_of_the_journal_costs_what_stood_there_and_is_told() {
    let folder = Folder::new("damaged-spot");
    let launcher = left_behind(&folder);
    let at = folder.trace().join("journal/h-1.journal");
    let processes = tables::processes(&[ProcessRow { process_id: 6, pid: 10, ..ProcessRow::default() }]).unwrap();
    let mut item = item(TableId::Processes, &processes);
    item.head.first = 1;
    let whole = fs::metadata(&at).unwrap().len();
    Log::resume(at.clone(), whole).unwrap().append(&[item]).unwrap();
    let mut bytes = fs::read(&at).unwrap();
    bytes[40] ^= 1;
    fs::write(&at, bytes).unwrap();
    let mut dead = Dead::find(&folder.trace(), &launcher).unwrap().expect("it was killed");
    let on_disk = dead.settle(&BTreeSet::new()).unwrap();
    assert_eq!((rows(&on_disk, TableId::Names), rows(&on_disk, TableId::Processes)), (0, 1));
    let told = format!("{whole} bytes in the midst of the journal were damaged: what stood there is lost");
    assert_eq!(dead.manifest.notes, [told]);
}

#[test]
fn what_a_trace_names_outside_of_itself_is_left_alone() {
    let folder = Folder::new("names-elsewhere");
    let launcher = left_behind(&folder);
    let beside = folder.0.join("outside.parquet.part");
    fs::write(&beside, b"somebody's").unwrap();
    let absolute = beside.to_string_lossy().into_owned();
    let journal = folder.trace().join("journal/h-1.journal");
    for name in ["../outside.parquet.part", &absolute, "names/host=h/../../../outside.parquet.part"] {
        let whole = fs::metadata(&journal).unwrap().len();
        let part = Item::part(TableId::Names, 0, name, 2, b"a footer");
        Log::resume(journal.clone(), whole).unwrap().append(&[part]).unwrap();
    }
    assert_eq!(journal::left(&journal).unwrap().parts, []);
    // The account says that the host is called so, and files are named by it.
    let at = manifest::path(&folder.trace(), &launcher.host, launcher.id);
    Manifest { host: "../../../out".into(), ..Manifest::read(&at).unwrap() }.write(&at).unwrap();
    let manifest = recover(&folder.trace(), &launcher).unwrap().expect("it was killed");
    assert_eq!((manifest.host.as_str(), fs::read(&beside).unwrap().as_slice()), ("h", &b"somebody's"[..]));
    let mut found: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort();
    assert_eq!(found, ["outside.parquet.part", "session", "trace"]);
}

#[test]
fn what_a_trace_leads_to_by_links_is_left_alone() {
    let folder = Folder::new("links-elsewhere");
    let launcher = left_behind(&folder);
    let (elsewhere, table) = (folder.0.join("elsewhere"), folder.trace().join("names"));
    fs::create_dir_all(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &table).unwrap();
    let error = recover(&folder.trace(), &launcher).unwrap_err().to_string();
    assert!(error.contains("leads out of the trace"), "{error}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    fs::remove_file(&table).unwrap();
    // The file in whose place the account is made anew, and the one that is locked.
    let mine = folder.0.join("mine");
    fs::write(&mine, b"somebody's").unwrap();
    for name in ["manifest/h-1.json.new", "manifest/h-1.reserve"] {
        let _ = fs::remove_file(folder.trace().join(name));
        std::os::unix::fs::symlink(&mine, folder.trace().join(name)).unwrap();
        assert!(recover(&folder.trace(), &launcher).is_err(), "{name}");
        assert_eq!(fs::read(&mine).unwrap(), b"somebody's", "{name}");
        let _ = fs::remove_file(folder.trace().join(name));
    }
    assert!(recover(&folder.trace(), &launcher).unwrap().is_some(), "without them it is made whole");
}

#[test]
fn what_a_recover_that_was_killed_at_its_end_left_is_removed_by_the_next_one() {
    let folder = Folder::new("left-at-the-end");
    let launcher = left_behind(&folder);
    recover(&folder.trace(), &launcher).unwrap().expect("it was killed");
    let left = ["journal/h-1.journal", "manifest/h-1.reserve"].map(|name| folder.trace().join(name));
    left.iter().for_each(|file| fs::write(file, b"left").unwrap());
    assert!(recover(&folder.trace(), &launcher).unwrap().is_none(), "it is whole");
    assert!(left.iter().all(|file| !file.exists()));
}
