//! Appending to the journal, and dropping from it what has been sealed since.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::open_part;
use super::{FRAME_HEAD, Head, ITEM_HEAD, Kind, MAGIC, crc32};
use crate::file::own_file;
use crate::folder;
use crate::schema::{TABLES, TableId};

/// The journal is not rewritten before it has such a size, or this part of what the trace may have, however small that is.
const WORTH: u64 = 8 << 20;
const SHARE: u64 = 8;
const LEAST: u64 = 256 << 10;

/// Something to be appended.
pub(crate) struct Item {
    pub(crate) head: Head,
    pub(crate) bytes: Vec<u8>,
}

impl Item {
    /// Rows in a Parquet image.
    pub(crate) fn rows(table: TableId, first: u64, rows: u64, image: Vec<u8>) -> Item {
        Item { head: Head { kind: Kind::Rows, table, first, rows }, bytes: image }
    }

    /// Rows of everything that still runs.
    pub(crate) fn live(table: TableId, rows: u64, image: Vec<u8>) -> Item {
        Item { head: Head { kind: Kind::Live, table, first: 0, rows }, bytes: image }
    }

    /// Nothing runs any more of what such rows were about, or it has become rows of its own.
    pub(crate) fn no_live(table: TableId) -> Item {
        Item::live(table, 0, Vec::new())
    }

    /// The rows before `end` that the first `length` bytes of an unfinished file hold, with this footer.
    pub(crate) fn part(table: TableId, end: u64, path: &str, length: u64, footer: &[u8]) -> Item {
        let mut bytes = (path.len() as u16).to_le_bytes().to_vec();
        bytes.extend_from_slice(path.as_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(footer);
        Item { head: Head { kind: Kind::Part, table, first: 0, rows: end }, bytes }
    }
}

/// Where an item that is still needed stands.
struct Needed {
    head: Head,
    at: u64,
    bytes: usize,
}

/// The journal of this collector. The file is made at the first flush that has something to say.
pub(crate) struct Log {
    path: PathBuf,
    file: Option<File>,
    length: u64,
    needed: Vec<Needed>,
    /// Rows before these stand in files, the last of which may be unfinished; and in sealed ones.
    covered: [u64; TABLES.len()],
    sealed: [u64; TABLES.len()],
    /// It is not rewritten before it has this size.
    worth: u64,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Log {
        let none = [0; TABLES.len()];
        Log { path, file: None, length: 0, needed: Vec::new(), covered: none, sealed: none, worth: WORTH }
    }

    /// Of a trace that may have so many bytes.
    pub(crate) fn within(self, bytes: u64) -> Log {
        Log { worth: (bytes / SHARE).clamp(LEAST, WORTH), ..self }
    }

    /// The journal of a collector that was killed, to be gone on with after its `whole` frames. What it said before is not
    /// dropped again: whoever goes on with it soon removes it.
    pub(crate) fn resume(path: PathBuf, whole: u64) -> io::Result<Log> {
        let file = open_part(&path, File::options().read(true).write(true))?;
        file.set_len(whole)?;
        Ok(Log { file: Some(file), length: whole, ..Log::new(path) })
    }

    /// Appends one frame with these items.
    pub(crate) fn append(&mut self, items: &[Item]) -> io::Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let frame = frame(items.iter().map(|i| (i.head, i.bytes.as_slice())).chain(self.said_again()));
        let file = match self.file.take() {
            Some(file) => file,
            None => own_file(&folder::of_file(&self.path)?.at(&self.path))?,
        };
        let written = file.write_all_at(&frame, self.length);
        if written.is_err() {
            // What was written of it ends the journal for a reader; the next frame takes its place.
            let _ = file.set_len(self.length);
            self.file = Some(file);
            return written;
        }
        self.file = Some(file);
        let mut at = self.length + (FRAME_HEAD + ITEM_HEAD) as u64;
        for item in items {
            self.supersede(&item.head);
            self.needed.push(Needed { head: item.head, at, bytes: item.bytes.len() });
            at += (item.bytes.len() + ITEM_HEAD) as u64;
        }
        self.length += frame.len() as u64;
        self.shrink()
    }

    /// Which rows stand in sealed files.
    fn said_again<'a>(&self) -> Vec<(Head, &'a [u8])> {
        let sealed = TABLES.iter().zip(self.sealed).filter(|(_, rows)| *rows > 0);
        sealed
            .map(|(table, rows)| (Head { kind: Kind::Part, table: table.id, first: 0, rows }, [].as_slice()))
            .collect()
    }

    /// Drops what an item makes superfluous.
    fn supersede(&mut self, new: &Head) {
        if let (Kind::Part, Some(covered)) = (new.kind, self.covered.get_mut(new.table as usize)) {
            *covered = new.rows.max(*covered);
        }
        self.needed.retain(|old| {
            old.head.table != new.table
                || match (old.head.kind, new.kind) {
                    (Kind::Live, Kind::Live) | (Kind::Part, Kind::Part) => false,
                    (Kind::Rows, Kind::Part) => old.head.first >= new.rows,
                    _ => true,
                }
        });
    }

    /// The table's unfinished file has been sealed under its final name.
    pub(crate) fn sealed(&mut self, table: TableId) {
        if let Some(sealed) = self.sealed.get_mut(table as usize) {
            *sealed = self.covered[table as usize];
        }
        self.needed.retain(|old| old.head.table != table || old.head.kind != Kind::Part);
    }

    /// Whether rows of this table stand only here.
    pub(crate) fn needs(&self, table: TableId) -> bool {
        self.needed.iter().any(|n| n.head.table == table && n.head.kind == Kind::Rows)
    }

    /// Whether rows of this table about what still runs stand here.
    pub(crate) fn has_live(&self, table: TableId) -> bool {
        self.needed.iter().any(|n| n.head.table == table && n.head.kind == Kind::Live && n.bytes > 0)
    }

    /// Rewrites the journal when most of it is superfluous.
    fn shrink(&mut self) -> io::Result<()> {
        let needed: u64 = self.needed.iter().map(|n| (n.bytes + ITEM_HEAD) as u64).sum();
        if self.length < self.worth || needed * 2 > self.length {
            return Ok(());
        }
        let Some(old) = &self.file else { return Ok(()) };
        let mut items = Vec::new();
        for needed in &self.needed {
            let mut bytes = vec![0; needed.bytes];
            old.read_exact_at(&mut bytes, needed.at)?;
            items.push((needed.head, bytes));
        }
        let frame = frame(items.iter().map(|(head, bytes)| (*head, bytes.as_slice())).chain(self.said_again()));
        let folder = folder::of_file(&self.path)?;
        let young = folder.at(&self.path.with_extension("journal.new"));
        let file = own_file(&young)?;
        file.write_all_at(&frame, 0).and_then(|()| fs::rename(&young, folder.at(&self.path))).inspect_err(|_| {
            let _ = fs::remove_file(&young);
        })?;
        self.file = Some(file);
        self.length = frame.len() as u64;
        let mut at = (FRAME_HEAD + ITEM_HEAD) as u64;
        for needed in &mut self.needed {
            needed.at = at;
            at += (needed.bytes + ITEM_HEAD) as u64;
        }
        Ok(())
    }

    /// Removes the journal: everything is sealed, or its room is needed for that. Also that of a collector before, to which nothing was
    /// added.
    pub(crate) fn clear(&mut self) {
        self.file = None;
        let _ = fs::remove_file(&self.path);
        (self.length, self.needed) = (0, Vec::new());
        (self.covered, self.sealed) = ([0; TABLES.len()], [0; TABLES.len()]);
    }
}

/// A frame around one item of any kind, for who tries what a reader makes of it.
#[cfg(any(test, fuzzing))]
pub(crate) fn put_frame(kind: u8, table: u8, [first, rows]: [u64; 2], bytes: &[u8], out: &mut Vec<u8>) {
    let head = Head { kind: Kind::Rows, table: TABLES[0].id, first, rows };
    let mut frame = frame([(head, bytes)].into_iter());
    (frame[FRAME_HEAD], frame[FRAME_HEAD + 1]) = (kind, table);
    let crc = crc32(&frame[FRAME_HEAD..]);
    frame[8..FRAME_HEAD].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&frame);
}

fn frame<'a>(items: impl Iterator<Item = (Head, &'a [u8])>) -> Vec<u8> {
    let mut frame = vec![0; FRAME_HEAD];
    for (head, bytes) in items {
        head.put(bytes.len(), &mut frame);
        frame.extend_from_slice(bytes);
    }
    let length = (frame.len() - FRAME_HEAD) as u32;
    let crc = crc32(&frame[FRAME_HEAD..]);
    for (place, value) in frame.chunks_exact_mut(4).zip([MAGIC, length, crc]) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    frame
}
