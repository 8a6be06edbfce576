//! Reading a journal: for every reader of a trace, while its collector runs and after it was killed.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::{FRAME_HEAD, Head, ITEM_HEAD, Kind, MAGIC, crc32};
use crate::schema::{TABLES, TableId};

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Rows whose checksum is right are no Parquet.
    #[error("rows of table {table} in the journal cannot be read: {source}")]
    Rows {
        /// Whose rows.
        table: &'static str,
        /// Why.
        source: ParquetError,
    },
}

/// The young rows of a collector, batch by batch. Columns are those of [`crate::schema`], to be found by name.
pub struct Journal {
    sources: VecDeque<(TableId, Source)>,
    open: Option<(TableId, ParquetRecordBatchReader)>,
    torn: bool,
    damaged: u64,
}

enum Source {
    Image(Bytes),
    Part(Part),
}

/// Reads a journal, `TRACE/journal/<name>.journal`, and the unfinished files that it names.
pub fn read(path: &Path) -> Result<Journal, JournalError> {
    let trace = path.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let Left { parts, rows, live, torn, damaged, .. } = left(path)?;
    // A file that is not there any more has been sealed, and is read as such.
    let parts = parts.into_iter().filter_map(|(table, name, length, footer)| {
        let file = open_part(&trace.join(name), File::options().read(true)).ok()?;
        // A footer may say that columns are larger than all of it.
        let length = length.min(file.metadata().ok()?.len());
        Some((table, Source::Part(Part { file: Arc::new(file), length, footer })))
    });
    let rows = rows.into_iter().map(|(head, bytes)| (head.table, bytes));
    let images = rows.chain(live).map(|(table, bytes)| (table, Source::Image(bytes)));
    Ok(Journal { sources: parts.chain(images).collect(), open: None, torn, damaged })
}

/// What a journal holds for whoever finishes its files: all that [`read`] would read, as it stands there.
pub(crate) struct Left {
    /// Unfinished files: the table, the name, the length without the footer, the footer.
    pub(crate) parts: Vec<(TableId, String, u64, Bytes)>,
    /// Rows in no file, as Parquet files.
    pub(crate) rows: Vec<(Head, Bytes)>,
    /// Rows about what still ran.
    pub(crate) live: Vec<(TableId, Bytes)>,
    /// Where its last whole frame ends.
    pub(crate) whole: u64,
    /// Bytes before that which are no whole frames.
    pub(crate) damaged: u64,
    /// Something else follows them.
    pub(crate) torn: bool,
}

/// Reads a journal to finish its files.
pub(crate) fn left(path: &Path) -> Result<Left, JournalError> {
    let unreadable = |source| JournalError::Io { path: path.to_owned(), source };
    let bytes = Bytes::from(std::fs::read(path).map_err(unreadable)?);
    let (items, whole, damaged) = items(&bytes);
    let mut covered = [0u64; TABLES.len()];
    let mut parts = BTreeMap::new();
    let mut live = BTreeMap::new();
    for (head, bytes) in &items {
        match head.kind {
            Kind::Rows => {}
            Kind::Live => {
                live.insert(head.table, bytes.clone());
            }
            Kind::Part => {
                let covered = &mut covered[head.table as usize];
                *covered = head.rows.max(*covered);
                let named = named(bytes).filter(|(name, ..)| is_part(head.table, name));
                parts.extend(named.map(|(name, length, footer)| (name, (head.table, length, footer))));
            }
        }
    }
    let young = |(head, _): &(Head, Bytes)| head.kind == Kind::Rows && head.first >= covered[head.table as usize];
    Ok(Left {
        parts: parts.into_iter().map(|(name, (table, length, footer))| (table, name, length, footer)).collect(),
        rows: items.into_iter().filter(young).collect(),
        live: live.into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect(),
        whole: whole as u64,
        damaged: damaged as u64,
        torn: whole < bytes.len(),
    })
}

/// The items of all whole frames, where the last of these ends, and how many bytes before that are in none.
fn items(bytes: &Bytes) -> (Vec<(Head, Bytes)>, usize, usize) {
    let mut items = Vec::new();
    let (mut at, mut whole, mut damaged) = (0, 0, 0);
    while let Some(begin) = next_magic(bytes, at) {
        let Some(end) = end_of_frame(bytes, begin) else {
            at = begin + 1;
            continue;
        };
        damaged += begin - whole;
        at = begin + FRAME_HEAD;
        while let Some((head, length)) = bytes.get(at..end).and_then(Head::take) {
            let from = at + ITEM_HEAD;
            if from + length > end {
                break;
            }
            items.push((head, bytes.slice(from..from + length)));
            at = from + length;
        }
        (at, whole) = (end, end);
    }
    (items, whole, damaged)
}

/// Where a frame may begin, from here on.
fn next_magic(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(4).position(|window| window == MAGIC.to_le_bytes()).map(|at| from + at)
}

/// Where the frame that begins here ends, if it is whole.
fn end_of_frame(bytes: &[u8], begin: usize) -> Option<usize> {
    let (head, rest) = bytes.get(begin..)?.split_first_chunk::<FRAME_HEAD>()?;
    let word = |n: usize| u32::from_le_bytes([head[n], head[n + 1], head[n + 2], head[n + 3]]);
    let payload = rest.get(..word(4) as usize)?;
    (crc32(payload) == word(8)).then(|| begin + FRAME_HEAD + payload.len())
}

impl Journal {
    /// Whether the journal ends in something that is no whole frame: what its collector wrote when it was killed.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// Bytes in its midst that are no whole frames: what stood there is lost.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Only the rows of one table; the others are not even decoded.
    pub fn of(mut self, table: TableId) -> Journal {
        self.sources.retain(|(t, _)| *t == table);
        self
    }

    fn advance(&mut self) -> Result<Option<(TableId, RecordBatch)>, JournalError> {
        loop {
            if let Some((table, reader)) = &mut self.open {
                let table = *table;
                let failed = |source| JournalError::Rows { table: table.table().name, source };
                match reader.next() {
                    Some(batch) => return Ok(Some((table, batch.map_err(|e| failed(e.into()))?))),
                    None => self.open = None,
                }
            }
            let Some((table, source)) = self.sources.pop_front() else { return Ok(None) };
            let failed = |source| JournalError::Rows { table: table.table().name, source };
            let reader = match source {
                Source::Image(bytes) => ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|b| b.build()),
                Source::Part(part) => ParquetRecordBatchReaderBuilder::try_new(part).and_then(|b| b.build()),
            };
            self.open = Some((table, reader.map_err(failed)?));
        }
    }
}

impl Iterator for Journal {
    type Item = Result<(TableId, RecordBatch), JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// An unfinished file with the footer that the journal holds for it.
struct Part {
    file: Arc<File>,
    length: u64,
    footer: Bytes,
}

/// What a part's item says: name, length and footer.
fn named(item: &Bytes) -> Option<(String, u64, Bytes)> {
    let (length, rest) = item.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let (length, footer) = rest.split_first_chunk::<8>()?;
    let name = std::str::from_utf8(name).ok()?.to_owned();
    Some((name, u64::from_le_bytes(*length), item.slice(item.len() - footer.len()..)))
}

/// Whether it is the name of an unfinished file of the table, as a collector gives them: whoever finishes it writes there, and the journal
/// may be anybody's.
fn is_part(table: TableId, name: &str) -> bool {
    let mut words = name.split('/');
    let (folder, host, file) = (words.next(), words.next(), words.next());
    let plain = file.is_some_and(|file| file.ends_with(".parquet.part"));
    folder == Some(table.table().name)
        && host.is_some_and(|host| host.starts_with("host="))
        && plain
        && words.next().is_none()
        && !name.contains('\0')
}

/// Opens an unfinished file. A link, or something that would make us wait, is none.
pub(crate) fn open_part(path: &Path, options: &mut fs::OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidData.into()) }
}

impl Length for Part {
    fn len(&self) -> u64 {
        self.length + self.footer.len() as u64
    }
}

impl ChunkReader for Part {
    type T = PartReader;

    fn get_read(&self, start: u64) -> Result<PartReader, ParquetError> {
        let part = Part { file: self.file.clone(), length: self.length, footer: self.footer.clone() };
        Ok(PartReader { part, at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut bytes = vec![0; length];
        self.get_read(start)?.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Reads through file and footer as if they were one.
struct PartReader {
    part: Part,
    at: u64,
}

impl Read for PartReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = match self.at.checked_sub(self.part.length) {
            None => {
                let room = buffer.len().min((self.part.length - self.at) as usize);
                self.part.file.read_at(&mut buffer[..room], self.at)?
            }
            Some(into) => {
                let rest = usize::try_from(into).ok().and_then(|n| self.part.footer.get(n..)).unwrap_or(&[]);
                let room = buffer.len().min(rest.len());
                buffer[..room].copy_from_slice(&rest[..room]);
                room
            }
        };
        self.at += got as u64;
        Ok(got)
    }
}
