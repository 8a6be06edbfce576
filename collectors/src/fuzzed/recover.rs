//! A trace that somebody made, with any manifest and any journal, whose collector was killed: it is made whole, and nothing outside of it
//! is touched.

use std::fs;
use std::path::Path;

use super::input::Input;
use super::journal::frames;
use crate::manifest;
use crate::recover::{Launcher, recover as make_whole};

/// Files that stand beside the trace, and where hostile names lead.
const BESIDE: [&str; 3] = ["outside.parquet.part", "launches/host=h/1-000000.parquet.part", "manifest/h-1.json"];

pub(super) fn recover(data: &[u8]) {
    let root = super::folder("recover");
    let _ = fs::remove_dir_all(&root);
    let trace = root.join("in/trace");
    for beside in BESIDE {
        put(&root.join(beside), beside.as_bytes());
    }
    let launcher = Launcher { host: "h".to_owned(), id: 1 };
    let mut input = Input(data);
    let length = usize::from(input.short());
    put(&manifest::path(&trace, "h", 1), input.bytes(length));
    for name in ["launches/host=h/1-000000.parquet.part", "launches/host=h/1-000001.parquet.part", "x.part"] {
        put(&trace.join(name), &[b'x'; 64]);
    }
    put(&trace.join("journal/h-1.journal"), &frames(&mut input));
    let _ = make_whole(&trace, &launcher);
    let mut found = Vec::new();
    list(&root, &mut found);
    found.retain(|path| !path.starts_with(&trace));
    assert_eq!(found.len(), BESIDE.len(), "{found:?}");
    for beside in BESIDE {
        assert_eq!(fs::read(root.join(beside)).ok().as_deref(), Some(beside.as_bytes()), "{beside}");
    }
    fs::remove_dir_all(&root).expect("our own");
}

fn put(at: &Path, bytes: &[u8]) {
    fs::create_dir_all(at.parent().expect("a folder")).expect("room");
    fs::write(at, bytes).expect("room");
}

/// The files of a folder and below.
fn list(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).expect("our own").flatten() {
        if entry.path().is_dir() { list(&entry.path(), found) } else { found.push(entry.path()) }
    }
}
