//! A journal of any bytes, or of frames whose sums are right and which hold anything.

use std::fs;

use super::input::Input;
use crate::journal;

/// The journal that an input stands for: as it is, or with frames around its pieces.
pub(super) fn frames(input: &mut Input<'_>) -> Vec<u8> {
    if input.byte() & 1 == 1 {
        return input.bytes(usize::MAX).to_vec();
    }
    let mut all = Vec::new();
    while !input.is_over() {
        let (kind, table, first, rows, length) =
            (input.byte(), input.byte(), input.number(), input.number(), input.short());
        journal::put_frame(kind, table, [first, rows], input.bytes(length.into()), &mut all);
    }
    all
}

pub(super) fn journal(data: &[u8]) {
    let folder = super::folder("journal");
    let path = folder.join("journal/h-1.journal");
    fs::create_dir_all(folder.join("journal")).expect("a folder");
    let bytes = frames(&mut Input(data));
    fs::write(&path, &bytes).expect("room");
    let left = journal::left(&path).expect("it can be read");
    assert!(left.whole + left.damaged <= 2 * bytes.len() as u64 && left.whole <= bytes.len() as u64);
    for (table, name, ..) in &left.parts {
        // Whoever finishes a part writes there.
        assert!(
            name.starts_with(&format!("{}/host=", table.table().name)) && !name.split('/').any(|part| part == ".."),
            "{name}"
        );
    }
    let read = journal::read(&path).expect("it can be read");
    let _ = (read.is_torn(), read.damaged());
    fs::remove_dir_all(&folder).expect("our own");
}
