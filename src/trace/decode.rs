//! The decoding side of a stream: opens the files of one table one after another, then the journal, and sends rows.
//!
//! It runs on a thread of its own ([`super::contain`]), so that decoding and analysing take a core each, and so that
//! a panic of the Parquet reader costs one file. A file that cannot be read any further is named and left.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter, filter_record_batch};
use bytes::Bytes;
use gputrace_collectors::journal;
use gputrace_collectors::schema::{SCHEMA_VERSION, TableId};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;
use parquet::file::statistics::Statistics;

use super::counted::Counted;
use super::filter::NOBODY;
use super::{Filter, Problem, Reach, Rows, rows};

/// Rows in a batch: few enough that several tables' batches fit the processor's cache together. With 16,384 a report takes
/// half as much memory again, and the same time.
const BATCH_ROWS: usize = 4_096;

/// Bytes up to which a file is read at once: parquet asks a file for each page with five system calls.
const SMALL_FILE: u64 = 256 << 10;

/// What the decoding thread sends.
pub(crate) enum Message {
    /// Rows, never none.
    Rows(Rows),
    /// Something could not be read.
    Problem(Problem),
    /// A file, by its place in the list, made the reader panic; nothing follows.
    Panicked(usize, String),
}

/// What is to be decoded.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) table: TableId,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) filter: Filter,
    /// Which of the rows.
    pub(crate) reach: Reach,
    /// Sealed files, in order.
    pub(crate) files: Vec<PathBuf>,
    /// The journal, which comes after them.
    pub(crate) journal: Option<PathBuf>,
}

/// A reader of a file's rows, how many these are, and what is to be said where the file has another name than it was given.
type Opened = (ParquetRecordBatchReader, u64, Option<String>);

/// The receiver has gone: nobody wants more.
struct Gone;

impl Job {
    /// Sends the rows of all files from the given one on. `at` is told which file is being read.
    pub(crate) fn run(&self, first: usize, to: &SyncSender<Message>, at: &dyn Fn(usize)) {
        for (index, path) in self.files.iter().enumerate().skip(first) {
            at(index);
            if self.file(path, to).is_err() {
                return;
            }
        }
        at(self.files.len());
        if let Some(path) = self.journal.as_ref().filter(|_| first <= self.files.len()) {
            let _ = self.journal(path, to);
        }
    }

    fn file(&self, path: &Path, to: &SyncSender<Message>) -> Result<(), Gone> {
        let mut counted = Counted::new(path);
        let (reader, rows, renamed) = match self.open(path) {
            Ok(opened) => opened,
            Err(text) => return problem(to, Problem::lost(path, text)),
        };
        if let Some(text) = renamed {
            problem(to, Problem::lost(path, text))?;
        }
        counted.expect(rows);
        for batch in reader {
            match batch {
                Ok(batch) => {
                    counted.add(batch.num_rows());
                    self.send(path, &batch, to)?;
                }
                Err(error) => {
                    let text = format!("is damaged, its other rows are left out: {error}");
                    return problem(to, Problem::lost(path, text));
                }
            }
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> Result<Opened, String> {
        let file = File::open(path).map_err(|e| format!("cannot be read: {e}"))?;
        if file.metadata().is_ok_and(|meta| meta.len() <= SMALL_FILE) {
            let mut bytes = Vec::new();
            let read = file.take(SMALL_FILE).read_to_end(&mut bytes);
            read.map_err(|e| format!("cannot be read: {e}"))?;
            return self.reader(path, Bytes::from(bytes));
        }
        self.reader(path, file)
    }

    fn reader(&self, path: &Path, file: impl ChunkReader + 'static) -> Result<Opened, String> {
        // Parquet's own types say all that a copy of Arrow's schema beside them would.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).map_err(unreadable)?;
        if let Some(codec) = foreign_codec(builder.metadata()) {
            return Err(format!(
                "is compressed with {codec}, which this gputrace does not read, left out: write it with zstd, as gputrace does"
            ));
        }
        let schema = builder.schema().clone();
        let notes = builder.metadata().file_metadata().key_value_metadata();
        let note = |key: &str| {
            let note = notes.into_iter().flatten().find(|note| note.key == key);
            note.and_then(|note| note.value.as_deref()).unwrap_or_default()
        };
        let version = note("gputrace.schema_version");
        if !version.is_empty() && version != SCHEMA_VERSION.to_string() {
            return Err(format!("has schema version {version}, this gputrace reads {SCHEMA_VERSION}; left out"));
        }
        let type_of = |name: &str| schema.column_with_name(name).map(|(_, f)| f.data_type().clone());
        rows::check(self.table, &self.columns, type_of).map_err(|e| format!("{e}; left out"))?;
        let name = note("gputrace.file");
        let renamed = (!name.is_empty() && !path.ends_with(name)).then(|| {
            format!("was written as {name}: files are read in the order of their names, so give it that name again")
        });
        let mask = ProjectionMask::columns(builder.parquet_schema(), self.columns.iter().copied());
        let groups = groups_in_time(builder.metadata(), &self.span());
        let rows = groups.iter().map(|group| builder.metadata().row_group(*group).num_rows().max(0) as u64).sum();
        let builder = builder.with_batch_size(BATCH_ROWS).with_projection(mask).with_row_groups(groups);
        Ok((builder.build().map_err(unreadable)?, rows, renamed))
    }

    fn journal(&self, path: &Path, to: &SyncSender<Message>) -> Result<(), Gone> {
        let _counted = Counted::new(path);
        let young = match journal::read(path) {
            Ok(young) => young,
            // A collector that has ended meanwhile has sealed its rows.
            Err(journal::JournalError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(());
            }
            Err(error) => return problem(to, Problem::lost(path, error.to_string())),
        };
        if young.damaged() > 0 {
            let text =
                format!("has {} damaged bytes in its midst: the rows that stood there are lost", young.damaged());
            problem(to, Problem::lost(path, text))?;
        }
        if young.is_torn() {
            let text = "ends in the middle, as its collector was killed: what it read last may be missing";
            problem(to, Problem::note(path, text))?;
        }
        for rows in young.of(self.table) {
            match rows {
                Ok((table, batch)) if table == self.table => self.send(path, &batch, to)?,
                Ok(_) => {}
                Err(error) => return problem(to, Problem::lost(path, error.to_string())),
            }
        }
        Ok(())
    }

    fn send(&self, path: &Path, batch: &RecordBatch, to: &SyncSender<Message>) -> Result<(), Gone> {
        let (batch, kept) = match self.filtered(batch) {
            Some((batch, kept)) => (Cow::Owned(batch), kept),
            None => (Cow::Borrowed(batch), None),
        };
        match Rows::new(self.table, &self.columns, &batch) {
            Ok(mut rows) if rows.len > 0 => {
                (rows.reach, rows.kept) = (self.reach, kept);
                to.send(Message::Rows(rows)).map_err(|_| Gone)
            }
            Ok(_) => Ok(()),
            Err(text) => problem(to, Problem::lost(path, text)),
        }
    }

    /// The filter that says which times are read.
    fn span(&self) -> Filter {
        match self.reach {
            Reach::Throughout => Filter { from_ns: None, ..self.filter.clone() },
            Reach::Kept | Reach::Beside => self.filter.clone(),
        }
    }

    /// The rows that the filter keeps, if there is one, and where others are read with them, which are kept. Names, stacks and
    /// processes are kept for those who look them up.
    fn filtered(&self, batch: &RecordBatch) -> Option<(RecordBatch, Option<BooleanArray>)> {
        // What was observed is a matter of the GPU's work alone.
        let observed = super::scan::work(self.table) && self.filter.observed.is_some();
        if self.filter.is_all() && !observed
            || matches!(self.table, TableId::Communicators | TableId::Names | TableId::Processes | TableId::Stacks)
        {
            return None;
        }
        let has = |name: &&&str| self.table.table().position(name).is_some();
        let own = super::scan::work(self.table).then_some(&"correlation_id");
        // Counters name a device by its UUID.
        let ordinal = (self.table != TableId::Counters).then_some(&"device");
        let columns = ["start_ns", "process_id", "tid"].iter().chain(ordinal).chain(own);
        let columns: Vec<&str> = columns.filter(has).copied().collect();
        let rows = Rows::new(self.table, &columns, batch).ok()?;
        let (start, process) = (rows.i64("start_ns"), rows.i64_or("process_id", NOBODY));
        let (tid, device) = (rows.i32_or("tid", -1), rows.i32_or("device", -1));
        let cause = rows.i64_or("correlation_id", NO_CAUSE);
        let place = |values: &[i32], name: &&str, row: usize| columns.contains(name).then(|| values[row]);
        let keep = |row: usize| {
            let (tid, device) = (place(&tid, &"tid", row), place(&device, &"device", row));
            let cause = Some(cause[row]).filter(|cause| *cause != NO_CAUSE);
            self.filter.keeps(start[row], process[row])
                && match own {
                    Some(_) if self.reach == Reach::Beside => {
                        self.filter.keeps_beside(start[row], process[row], cause, device)
                    }
                    Some(_) => self.filter.keeps_work(start[row], process[row], cause, device),
                    None => self.filter.keeps_place(start[row], process[row], tid, device),
                }
        };
        let keep: BooleanArray = (0..rows.len).map(|row| Some(keep(row))).collect();
        if self.reach != Reach::Throughout {
            return Some((filter_record_batch(batch, &keep).ok()?, None));
        }
        let read = |row: usize| self.filter.reads(start[row], process[row], place(&device, &"device", row));
        let read: BooleanArray = (0..rows.len).map(|row| Some(read(row))).collect();
        let kept = filter(&keep, &read).ok()?.as_boolean().clone();
        Some((filter_record_batch(batch, &read).ok()?, Some(kept)))
    }
}

/// Stands for a row whose call is not known.
const NO_CAUSE: i64 = i64::MIN;

fn problem(to: &SyncSender<Message>, problem: Problem) -> Result<(), Gone> {
    to.send(Message::Problem(problem)).map_err(|_| Gone)
}

/// A compression that this build has no code for. A trace's own files have none of it, but who rewrote one may.
fn foreign_codec(metadata: &ParquetMetaData) -> Option<String> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let codec = columns.map(|column| column.compression());
    let codec = codec.into_iter().find(|codec| !matches!(codec, Compression::UNCOMPRESSED | Compression::ZSTD(_)))?;
    Some(codec.to_string().split('(').next().unwrap_or_default().to_lowercase())
}

/// The row groups that may hold rows in the filter's span, by the statistics of `start_ns`.
fn groups_in_time(metadata: &ParquetMetaData, filter: &Filter) -> Vec<usize> {
    let span = |group: usize| {
        let columns = metadata.row_group(group).columns();
        let column = columns.iter().find(|c| c.column_path().string() == "start_ns")?;
        match column.statistics()? {
            Statistics::Int64(s) => Some((*s.min_opt()?, *s.max_opt()?)),
            _ => None,
        }
    };
    let keep = |group: &usize| span(*group).is_none_or(|(first, last)| filter.may_keep(first, last));
    (0..metadata.num_row_groups()).filter(keep).collect()
}

/// What is said of a file that is no Parquet any more.
pub(super) fn unreadable(error: ParquetError) -> String {
    format!("cannot be read as Parquet (cut short or damaged), left out: copy it again, or report without it; {error}")
}
