//! Rows that stand in no sealed file yet, so that a killed collector loses at most the last second.
//!
//! One append-only file per collector, `TRACE/journal/<host>-<launcher>.journal`, removed at a clean end. At each
//! flush the writer appends one frame: `magic u32, bytes u32, crc32 u32, items`. An item is
//! `kind u8, table u8, 0 u16, bytes u32, first u64, rows u64` and its bytes, all little endian:
//!
//! | kind | bytes | meaning |
//! |---|---|---|
//! | 1 rows | a Parquet file | rows `first..first + rows` of this collector's rows of the table |
//! | 2 part | path length u16, path, file length u64, footer | those rows stand in an unfinished file: so many of its bytes and this footer are a Parquet file |
//! | 3 live | a Parquet file | rows about processes and threads that still run, in place of all earlier such rows |
//!
//! Rows that a later part holds as well are read from the part, or, where it has been sealed since, not from here.
//! Each image and footer says whose events its rows are (`gputrace.events`), from which a killed collector's account is made.
//! A frame is all or nothing: what a crash tore off fails its checksum. Where something else follows a damaged one, reading goes on at
//! the next whole frame; each says again (a part without a name) which rows stand in sealed files, so that none of the rows of an
//! earlier frame is read twice because the word that they had been sealed was in the damaged one.

mod read;
#[cfg(test)]
mod tests;
mod write;

use crate::schema::TableId;

pub use read::{Journal, JournalError, read};
pub(crate) use read::{Left, left, open_part};
#[cfg(any(test, fuzzing))]
pub(crate) use write::put_frame;
pub(crate) use write::{Item, Log};

const MAGIC: u32 = u32::from_le_bytes(*b"GTJ1");
const FRAME_HEAD: usize = 12;
const ITEM_HEAD: usize = 24;

/// What an item is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rows = 1,
    Part = 2,
    Live = 3,
}

impl Kind {
    fn from_u8(n: u8) -> Option<Kind> {
        [Kind::Rows, Kind::Part, Kind::Live].into_iter().find(|k| *k as u8 == n)
    }
}

/// The fixed part of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) table: TableId,
    /// Number of the first row among this collector's rows of the table.
    pub(crate) first: u64,
    pub(crate) rows: u64,
}

impl Head {
    fn put(&self, bytes: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.kind as u8, self.table as u8, 0, 0]);
        out.extend_from_slice(&(bytes as u32).to_le_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.rows.to_le_bytes());
    }

    /// The head at the start of `bytes` and the length of what follows.
    fn take(bytes: &[u8]) -> Option<(Head, usize)> {
        let (head, _) = bytes.split_first_chunk::<ITEM_HEAD>()?;
        let kind = Kind::from_u8(head[0])?;
        let table = TableId::from_u8(head[1])?;
        let length = u32::from_le_bytes(head[4..8].try_into().ok()?) as usize;
        let first = u64::from_le_bytes(head[8..16].try_into().ok()?);
        let rows = u64::from_le_bytes(head[16..24].try_into().ok()?);
        Some((Head { kind, table, first, rows }, length))
    }
}

/// CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0u32; 256];
        let mut n = 0;
        while n < 256 {
            let mut value = n as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 != 0 { 0xedb8_8320 ^ value >> 1 } else { value >> 1 };
                bit += 1;
            }
            table[n] = value;
            n += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}
