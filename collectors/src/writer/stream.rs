//! One table's rows on their way to disk: the row group that grows, the file that it goes to.

use std::io;
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use parquet::errors::ParquetError;
use parquet::schema::types::SchemaDescPtr;

use crate::encode::{self, Press, RowGroup};
use crate::file::{Encoded, TableFile, io_error};
use crate::recover;
use crate::schema::TableId;
use crate::share::{Share, add};

/// A row group with so many rows is written at a flush instead of journaled.
pub(super) const WORTH_A_GROUP: usize = 65_536;

/// What stands in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contents {
    pub(super) rows: u64,
    /// Begin of the first row and of the last one.
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
}

impl Contents {
    pub(super) const NONE: Contents = Contents { rows: 0, from_ns: i64::MAX, to_ns: i64::MIN };

    pub(super) fn add(&mut self, other: Contents) {
        self.rows += other.rows;
        self.from_ns = self.from_ns.min(other.from_ns);
        self.to_ns = self.to_ns.max(other.to_ns);
    }

    fn of(batch: &RecordBatch) -> Contents {
        let starts = batch.column_by_name("start_ns").and_then(|c| c.as_primitive_opt::<Int64Type>());
        let starts = starts.map_or(&[][..], |array| array.values());
        let (from_ns, to_ns) = starts.iter().fold((i64::MAX, i64::MIN), |(a, b), at| (a.min(*at), b.max(*at)));
        Contents { rows: batch.num_rows() as u64, from_ns, to_ns }
    }
}

/// A whole file.
pub(super) struct Sealed {
    pub(super) table: TableId,
    /// Relative to the trace.
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) contents: Contents,
    pub(super) shares: Vec<Share>,
}

impl From<recover::File> for Sealed {
    /// One that an earlier collector wrote: when, stands for what its rows say.
    fn from(file: recover::File) -> Sealed {
        let recover::File { table, name, bytes, rows, written_ns, shares } = file;
        Sealed { table, name, bytes, contents: Contents { rows, from_ns: written_ns, to_ns: written_ns }, shares }
    }
}

/// A row group that found no room on the disk, and whose rows it has.
pub(super) struct Stuck {
    pub(super) group: Encoded,
    pub(super) shares: Vec<Share>,
    pub(super) contents: Contents,
}

/// One table's rows on their way to disk.
pub(super) struct Stream {
    table: TableId,
    pub(super) descriptor: SchemaDescPtr,
    pub(super) group: RowGroup,
    /// Whose rows are in the row group, and from when.
    shares: Vec<Share>,
    contents: Contents,
    /// The row group before, while the disk has no room for it.
    pub(super) stuck: Option<Stuck>,
    /// Rows of the row group that are not in the journal; dropped when the group will be written anyway.
    pub(super) young: Vec<RecordBatch>,
    pub(super) young_rows: usize,
    /// Whose they are.
    pub(super) young_shares: Vec<Share>,
    /// Rows of the row group should stand in the journal and do not: it had no room for them.
    pub(super) unjournaled: bool,
    /// How far the file goes by the journal.
    pub(super) noted: u64,
    /// Rows of this table so far.
    pub(super) rows: u64,
    pub(super) file: Option<TableFile>,
    /// What is in the file.
    pub(super) file_contents: Contents,
    pub(super) since: Instant,
    pub(super) sequence: u32,
}

impl Stream {
    pub(super) fn new(table: TableId) -> io::Result<Stream> {
        let descriptor = encode::describe(table.table()).map_err(io_error)?;
        Ok(Stream {
            table,
            group: RowGroup::new(table.table(), &descriptor),
            descriptor,
            shares: Vec::new(),
            contents: Contents::NONE,
            stuck: None,
            young: Vec::new(),
            young_rows: 0,
            young_shares: Vec::new(),
            unjournaled: false,
            noted: 0,
            rows: 0,
            file: None,
            file_contents: Contents::NONE,
            since: Instant::now(),
            sequence: 0,
        })
    }

    pub(super) fn has_rows(&self) -> bool {
        self.group.rows() > 0 || self.file.is_some() || self.stuck.is_some()
    }

    /// Takes the rows of a batch into the row group.
    pub(super) fn append(
        &mut self,
        batch: &RecordBatch,
        shares: &[Share],
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        if !self.has_rows() {
            self.since = Instant::now();
        }
        self.group.append(batch, press)?;
        self.contents.add(Contents::of(batch));
        shares.iter().for_each(|s| add(&mut self.shares, *s));
        self.rows += batch.num_rows() as u64;
        self.young_rows += batch.num_rows();
        if self.group.rows() <= WORTH_A_GROUP {
            self.young.push(batch.clone());
            shares.iter().for_each(|s| add(&mut self.young_shares, *s));
        } else {
            self.young.clear();
            self.young_shares.clear();
        }
        Ok(())
    }

    /// Starts an empty row group and returns the full one, its shares and its contents.
    pub(super) fn take_group(&mut self) -> (RowGroup, Vec<Share>, Contents) {
        self.young.clear();
        self.young_shares.clear();
        (self.young_rows, self.unjournaled) = (0, false);
        let empty = RowGroup::new(self.table.table(), &self.descriptor);
        let contents = std::mem::replace(&mut self.contents, Contents::NONE);
        (std::mem::replace(&mut self.group, empty), std::mem::take(&mut self.shares), contents)
    }

    /// Rows of the table that its file holds, and those before.
    pub(super) fn covered(&self) -> u64 {
        let stuck = self.stuck.as_ref().map_or(0, |stuck| stuck.contents.rows);
        self.rows - self.group.rows() as u64 - stuck
    }

    /// What is in no file is given up: whose rows it was. The file has whole row groups and stays.
    pub(super) fn give_up_group(&mut self) -> Vec<Share> {
        let (_, mut lost, _) = self.take_group();
        let stuck = self.stuck.take().map(|stuck| stuck.shares).unwrap_or_default();
        stuck.iter().for_each(|s| add(&mut lost, *s));
        lost
    }

    /// A file that cannot be sealed is given up: whose rows it had.
    pub(super) fn give_up_file(&mut self) -> Vec<Share> {
        let Some(file) = self.file.take() else { return Vec::new() };
        file.remove();
        file.into_shares()
    }
}
