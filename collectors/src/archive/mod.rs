//! Rows that come from no segment, into the files of a trace: what was imported, and what is found out later.
//!
//! An archive writes the files of one launcher. [`Archive::create`] begins those of a new one; [`Archive::add_to`] goes on
//! with those of a launcher that has recorded, so that readers meet its calls and what is added in one pass. Rows of a
//! stream or thread are given in the order of their time; nothing here sorts. There is no journal: an archive that is not
//! finished leaves nothing behind.

mod columns;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use parquet::schema::types::SchemaDescPtr;

pub use crate::tables::StackRow;
use crate::tables::Stacked;
pub use columns::Columns;

use crate::encode::{self, Press, RowGroup};
use crate::file::{TableFile, io_error};
use crate::manifest::{self, Manifest, Stored, StoredTables, launcher_text};
use crate::names::{self, NameKind};
use crate::schema::{TABLES, TableId};
use crate::{stacks, stored};

/// Rows of a full row group.
const FULL_GROUP: usize = 1 << 20;
/// Bytes of a file, when it is sealed.
const FILE_BYTES: u64 = 64 << 20;
/// Rows that are encoded at once: those of a page.
const PAGE_ROWS: usize = 32_768;
/// Names, and stacks, that are kept until they are written.
const NAMES: usize = 4_096;

/// One table's files.
struct Stream {
    descriptor: SchemaDescPtr,
    group: Option<RowGroup>,
    file: Option<TableFile>,
    /// Rows of the file.
    rows: u64,
    /// Number of the next file.
    next: u64,
}

/// The files of a launcher that are being written.
pub struct Archive {
    trace: PathBuf,
    host: String,
    launcher_id: u64,
    file_bytes: u64,
    group_rows: usize,
    press: Press,
    streams: Vec<Option<Stream>>,
    /// Files that have their final names, relative to the trace.
    sealed: Vec<String>,
    /// What they add to the tables.
    stored: StoredTables,
    named: HashSet<i64>,
    names: Vec<(i64, NameKind, String)>,
    stacks: Vec<Stacked>,
    finished: bool,
}

impl Archive {
    /// The files of a launcher that has none in this trace. Makes the folder if it is missing.
    pub fn create(trace: &Path, host: &str, launcher_id: u64) -> io::Result<Archive> {
        let manifest = manifest::path(trace, host, launcher_id);
        if manifest.exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists", manifest.display())));
        }
        fs::create_dir_all(trace.join("manifest"))?;
        Archive::new(trace, host, launcher_id)
    }

    /// More files of a launcher that has recorded: `host` and `launcher_id` are its manifest's. Numbers of files go on
    /// after its own; names that it has may be written again.
    pub fn add_to(trace: &Path, host: &str, launcher_id: u64) -> io::Result<Archive> {
        fs::metadata(manifest::path(trace, host, launcher_id))?;
        Archive::new(trace, host, launcher_id)
    }

    fn new(trace: &Path, host: &str, launcher_id: u64) -> io::Result<Archive> {
        Ok(Archive {
            trace: trace.to_owned(),
            host: host.to_owned(),
            launcher_id,
            file_bytes: FILE_BYTES,
            group_rows: FULL_GROUP,
            press: Press::new().map_err(io_error)?,
            streams: TABLES.iter().map(|_| None).collect(),
            sealed: Vec::new(),
            stored: StoredTables::new(),
            named: HashSet::new(),
            names: Vec::new(),
            stacks: Vec::new(),
            finished: false,
        })
    }

    /// The id of a name, for columns such as `name_id`; the name is written once.
    pub fn name(&mut self, kind: NameKind, name: &str) -> io::Result<i64> {
        let id = names::id(kind, name);
        if self.named.insert(id) {
            self.names.push((id, kind, name.to_owned()));
            if self.names.len() >= NAMES {
                self.write_names()?;
            }
        }
        Ok(id)
    }

    fn write_names(&mut self) -> io::Result<()> {
        let names = std::mem::take(&mut self.names);
        if names.is_empty() {
            return Ok(());
        }
        let batch = Columns::new(TableId::Names, names.len())
            .i64("name_id", names.iter().map(|(id, ..)| *id))
            .text("kind", names.iter().map(|(_, kind, _)| kind.name()))
            .text("name", names.iter().map(|(.., name)| name.as_str()))
            .batch()?;
        self.append(TableId::Names, &batch)
    }

    /// The id of a stack, for columns such as `stack_id`; none where it has no frames. These come innermost first; each, with those
    /// that called it, is written once.
    pub fn stack(&mut self, frames: &[StackRow]) -> io::Result<Option<i64>> {
        let mut caller = None;
        for frame in frames.iter().rev() {
            let id = stacks::content(caller, frame);
            if self.named.insert(id) {
                self.stacks.push(Stacked { id, caller, joined: None, frame: frame.clone() });
            }
            caller = Some(id);
        }
        if self.stacks.len() >= NAMES {
            self.write_stacks()?;
        }
        Ok(caller)
    }

    fn write_stacks(&mut self) -> io::Result<()> {
        let stacks = std::mem::take(&mut self.stacks);
        if stacks.is_empty() {
            return Ok(());
        }
        let rows = || stacks.iter().map(|stack| &stack.frame);
        let batch = Columns::new(TableId::Stacks, stacks.len())
            .i64("stack_id", stacks.iter().map(|stack| stack.id))
            .i64("caller_id", stacks.iter().map(|stack| stack.caller))
            .i64("outer_id", stacks.iter().map(|stack| stack.joined.map(|joined| joined.outer)))
            .text("language", rows().map(|frame| frame.language))
            .text("function", rows().map(|frame| &*frame.function))
            .text("file", rows().map(|frame| frame.file.as_deref()))
            .i32("line", rows().map(|frame| frame.line))
            .text("module", rows().map(|frame| frame.module.as_deref()))
            .i64("offset", rows().map(|frame| frame.offset))
            .bool("cut", rows().map(|frame| frame.cut))
            .batch()?;
        self.append(TableId::Stacks, &batch)
    }

    /// Appends rows, whose columns are the table's ([`Columns`] makes such batches).
    pub fn append(&mut self, table: TableId, batch: &RecordBatch) -> io::Result<()> {
        let about = table.table();
        let given = batch.schema_ref().fields().iter().map(|field| field.name().as_str());
        if !given.eq(about.columns.iter().map(|column| column.name)) {
            let text = format!("a batch of {} needs the table's columns in their order", about.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        for from in (0..batch.num_rows()).step_by(PAGE_ROWS) {
            let rows = batch.slice(from, PAGE_ROWS.min(batch.num_rows() - from));
            let stream = self.stream(table)?;
            let mut group = stream.group.take().unwrap_or_else(|| RowGroup::new(about, &stream.descriptor));
            group.append(&rows, &mut self.press).map_err(io_error)?;
            let full = group.rows() >= self.group_rows;
            self.stream(table)?.group = Some(group);
            if full {
                self.write_group(table)?;
            }
        }
        Ok(())
    }

    fn stream(&mut self, table: TableId) -> io::Result<&mut Stream> {
        let at = table as usize;
        if self.streams[at].is_none() {
            let folder = self.trace.join(table.table().name).join(format!("host={}", self.host));
            let descriptor = encode::describe(table.table()).map_err(io_error)?;
            let next = next_number(&folder, &launcher_text(self.launcher_id))?;
            self.streams[at] = Some(Stream { descriptor, group: None, file: None, rows: 0, next });
        }
        self.streams[at].as_mut().ok_or_else(|| io::Error::other("no stream"))
    }

    fn write_group(&mut self, table: TableId) -> io::Result<()> {
        let (trace, most) = (self.trace.clone(), self.file_bytes);
        let (host, launcher) = (self.host.clone(), launcher_text(self.launcher_id));
        let stream = self.stream(table)?;
        let Some(group) = stream.group.take() else { return Ok(()) };
        let mut file = match stream.file.take() {
            Some(file) => file,
            None => {
                let name = format!("{}/host={host}/{launcher}-{:06}.parquet", table.table().name, stream.next);
                stream.next += 1;
                TableFile::create(&trace, name, table.table(), &stream.descriptor)?
            }
        };
        let (at, rows) = (file.length(), group.rows() as u64);
        let written = TableFile::encode(group, at, &mut self.press).and_then(|group| file.append(&group, &[]));
        let full = file.length() >= most;
        // A file that could not be written is kept, so that it is removed with the others.
        let stream = self.stream(table)?;
        stream.file = Some(file);
        written?;
        stream.rows += rows;
        if full { self.seal(table) } else { Ok(()) }
    }

    fn seal(&mut self, table: TableId) -> io::Result<()> {
        if let Some(file) = &self.stream(table)?.file {
            let (name, _) = file.seal()?;
            self.sealed.push(name);
            let stream = self.stream(table)?;
            stream.file = None;
            let rows = std::mem::take(&mut stream.rows);
            stored::count(&mut self.stored, table, rows);
        }
        Ok(())
    }

    /// Seals the files and puts the launcher's manifest in place, in place of its older one.
    pub fn finish(mut self, manifest: &Manifest) -> io::Result<()> {
        self.write_names()?;
        self.write_stacks()?;
        for table in TABLES.iter().map(|table| table.id) {
            if self.streams[table as usize].is_some() {
                self.write_group(table)?;
                self.seal(table)?;
            }
        }
        let mut manifest = manifest.clone();
        for (table, more) in std::mem::take(&mut self.stored) {
            let stored = manifest.stored.entry(table).or_default();
            *stored = Stored { files: stored.files + more.files, rows: stored.rows + more.rows };
        }
        manifest.write(&manifest::path(&self.trace, &self.host, self.launcher_id))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        for file in self.streams.iter_mut().flatten().filter_map(|stream| stream.file.take()) {
            file.remove();
        }
        for name in &self.sealed {
            let _ = fs::remove_file(self.trace.join(name));
        }
    }
}

/// The number after those of a launcher's files in a folder, finished or not.
pub(crate) fn next_number(folder: &Path, launcher: &str) -> io::Result<u64> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let number = |name: &str| {
        let number = name.strip_prefix(launcher)?.strip_prefix('-')?.split('.').next()?;
        number.parse::<u64>().ok()
    };
    let numbers = entries.filter_map(|entry| number(entry.ok()?.file_name().to_str()?));
    Ok(numbers.max().map_or(0, |last| last + 1))
}
