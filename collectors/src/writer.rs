//! The writer thread: batches in, sealed Parquet files and the journal out.
//!
//! The drain never waits for it: the channel between them is bounded, and when it is full the rings hold what comes
//! and then drop and count. Rows are gathered into row groups of a million; whatever a row group has not taken to disk
//! within a second goes to the journal. Where many rows come, the row group itself goes to disk instead, so that no
//! row is encoded twice at full rate. When the disk is full, rows are discarded and counted, and it is tried again.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use parquet::schema::types::SchemaDescPtr;

use crate::encode::{self, Press, RowGroup};
use crate::file::{TableFile, io_error};
use crate::journal::{Item, Log};
use crate::manifest::{self, Manifest, launcher_text};
use crate::schema::{TABLES, TableId};
use crate::{CollectError, Config};

/// Rows reach the journal, or a file that it names, within this time.
const FLUSH: Duration = Duration::from_millis(650);
/// A row group with so many rows is written at a flush instead of journaled.
const WORTH_A_GROUP: usize = 65_536;
/// Rows of a full row group.
const FULL_GROUP: usize = 1 << 20;
/// Bytes of finished pages that are kept in memory.
const FULL_BYTES: usize = 8 << 20;
/// After trouble with the disk the writer discards for this long, then tries again.
const PAUSE: Duration = Duration::from_secs(10);
/// Tables whose files are never removed for the size limit: small, and the others mean nothing without them.
const KEPT: [TableId; 5] =
    [TableId::Names, TableId::Processes, TableId::Threads, TableId::Stacks, TableId::Communicators];

/// Rows of one class of one process in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) process_id: i64,
    pub(crate) class: u8,
    pub(crate) rows: u64,
}

/// What the drain sends.
pub(crate) enum Message {
    /// Rows to be kept, and whose events they are.
    Rows(TableId, RecordBatch, Vec<Share>),
    /// Rows about what still runs, in place of the last such rows.
    Live(TableId, RecordBatch),
    /// The manifest as it is now.
    Manifest(Box<Manifest>),
}

/// What the writer tells everybody else.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Files that were removed for the size limit.
    pub(crate) removed: Vec<String>,
    pub(crate) notes: Vec<String>,
    /// Lines for the launcher to print.
    pub(crate) warnings: VecDeque<String>,
    /// Rows that could not be stored.
    pub(crate) lost: Vec<Share>,
    /// Rows of `names` were among them.
    pub(crate) names_lost: bool,
}

/// The report, shared.
pub(crate) type Shared = Arc<Mutex<Report>>;

impl Report {
    /// Completes a manifest by what the writer knows.
    pub(crate) fn complete(&self, manifest: &mut Manifest) {
        manifest.removed_files = self.removed.clone();
        self.notes.iter().for_each(|n| manifest.note(n));
        for share in &self.lost {
            manifest.lose(share.process_id, share.class, share.rows);
        }
    }

    fn lose(&mut self, shares: &[Share]) {
        for share in shares {
            add(&mut self.lost, *share);
        }
    }
}

/// Adds a share to a list that has each process and class once.
pub(crate) fn add(list: &mut Vec<Share>, share: Share) {
    let same = |s: &&mut Share| s.process_id == share.process_id && s.class == share.class;
    match list.iter_mut().rev().find(same) {
        Some(found) => found.rows += share.rows,
        None => list.push(share),
    }
}

/// One table's rows on their way to disk.
struct Stream {
    table: TableId,
    descriptor: SchemaDescPtr,
    group: RowGroup,
    /// Whose rows are in the row group.
    shares: Vec<Share>,
    /// Rows of the row group that are not in the journal; dropped when the group will be written anyway.
    young: Vec<RecordBatch>,
    young_rows: usize,
    /// Rows of this table so far.
    rows: u64,
    file: Option<TableFile>,
    /// Whose rows are in the file.
    file_shares: Vec<Share>,
    since: Instant,
    sequence: u32,
}

impl Stream {
    fn new(table: TableId) -> io::Result<Stream> {
        let descriptor = encode::describe(table.table()).map_err(io_error)?;
        Ok(Stream {
            table,
            group: RowGroup::new(table.table(), &descriptor),
            descriptor,
            shares: Vec::new(),
            young: Vec::new(),
            young_rows: 0,
            rows: 0,
            file: None,
            file_shares: Vec::new(),
            since: Instant::now(),
            sequence: 0,
        })
    }

    fn has_rows(&self) -> bool {
        self.group.rows() > 0 || self.file.is_some()
    }

    /// Starts an empty row group and returns the full one and its shares.
    fn take_group(&mut self) -> (RowGroup, Vec<Share>) {
        self.young.clear();
        self.young_rows = 0;
        let empty = RowGroup::new(self.table.table(), &self.descriptor);
        (std::mem::replace(&mut self.group, empty), std::mem::take(&mut self.shares))
    }
}

/// The writer.
pub(crate) struct Writer {
    config: Config,
    shared: Shared,
    press: Press,
    streams: Vec<Stream>,
    live: Vec<(TableId, RecordBatch)>,
    log: Log,
    sealed: VecDeque<(TableId, String, u64)>,
    sealed_bytes: u64,
    /// When the oldest row that is neither in a file nor in the journal came.
    dirty: Option<Instant>,
    /// Trouble: rows are discarded until then.
    down: Option<Instant>,
}

impl Writer {
    pub(crate) fn new(config: Config, shared: Shared) -> Result<Writer, CollectError> {
        let name = format!("{}-{}.journal", config.host, launcher_text(config.launcher_id));
        let journal = config.trace.join("journal").join(name);
        let failed = |source| CollectError::Trace { path: config.trace.clone(), source };
        let streams = TABLES.iter().map(|t| Stream::new(t.id)).collect::<io::Result<Vec<_>>>();
        let streams = streams.map_err(failed)?;
        let press = Press::new().map_err(|e| failed(io_error(e)))?;
        Ok(Writer {
            shared,
            press,
            streams,
            live: Vec::new(),
            log: Log::new(journal),
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            dirty: None,
            down: None,
            config,
        })
    }

    /// Works until the other end of the channel is gone, then seals everything.
    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let wait = match self.dirty {
                Some(since) => (since + FLUSH).saturating_duration_since(Instant::now()),
                None => self.config.file_age.min(Duration::from_secs(60)),
            };
            match messages.recv_timeout(wait) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.dirty.is_some_and(|since| since.elapsed() >= FLUSH) {
                self.flush();
            }
            self.seal_old();
        }
        self.finish();
    }

    fn report(&self, tell: impl FnOnce(&mut Report)) {
        tell(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Rows(table, batch, shares) => self.take_rows(table, &batch, &shares),
            Message::Live(table, batch) => {
                self.live.retain(|(t, _)| *t != table);
                self.live.push((table, batch));
                self.dirty.get_or_insert_with(Instant::now);
            }
            Message::Manifest(mut manifest) => {
                self.report(|r| r.complete(&mut manifest));
                let to = manifest::path(&self.config.trace, &self.config.host, self.config.launcher_id);
                if let Err(error) = manifest.write(&to) {
                    self.trouble("the manifest", &error);
                }
            }
        }
    }

    fn take_rows(&mut self, table: TableId, batch: &RecordBatch, shares: &[Share]) {
        if self.down.is_some_and(|until| Instant::now() < until) {
            return self.lose(table, shares);
        }
        self.down = None;
        let Some(stream) = self.streams.get_mut(table as usize) else { return };
        if !stream.has_rows() {
            stream.since = Instant::now();
        }
        if let Err(error) = stream.group.append(batch, &mut self.press) {
            // Only a defect of ours can do this: the group may hold half a batch, so it goes.
            let (_, mut lost) = stream.take_group();
            shares.iter().for_each(|s| add(&mut lost, *s));
            self.lose(table, &lost);
            return self.trouble("rows", &io_error(error));
        }
        shares.iter().for_each(|s| add(&mut stream.shares, *s));
        stream.rows += batch.num_rows() as u64;
        stream.young_rows += batch.num_rows();
        if stream.group.rows() <= WORTH_A_GROUP {
            stream.young.push(batch.clone());
        } else {
            stream.young.clear();
        }
        let most = FULL_BYTES.min(usize::try_from(self.config.file_bytes).unwrap_or(FULL_BYTES));
        let full = stream.group.rows() >= FULL_GROUP || stream.group.bytes() >= most;
        self.dirty.get_or_insert_with(Instant::now);
        if full {
            self.end_group(table);
        }
    }

    fn lose(&mut self, table: TableId, shares: &[Share]) {
        self.report(|r| {
            r.lose(shares);
            r.names_lost |= matches!(table, TableId::Names | TableId::Stacks);
        });
    }

    /// Something could not be written: says so once, and discards for a while.
    fn trouble(&mut self, what: &str, error: &io::Error) {
        let trace = self.config.trace.display();
        let note = format!("{what} could not be written to {trace}: {error}; what came then was counted as dropped");
        self.down = Some(Instant::now() + PAUSE);
        self.report(|r| {
            if !r.notes.contains(&note) {
                r.warnings.push_back(note.clone());
                r.notes.push(note);
            }
        });
    }

    /// Writes the row group to the table's file.
    fn end_group(&mut self, table: TableId) {
        let Some(stream) = self.streams.get_mut(table as usize) else { return };
        if stream.group.rows() == 0 {
            return;
        }
        let (group, shares) = stream.take_group();
        if stream.file.is_none() {
            let (host, launcher) = (&self.config.host, launcher_text(self.config.launcher_id));
            let name = format!("{}/host={host}/{launcher}-{:06}.parquet", table.table().name, stream.sequence);
            match TableFile::create(&self.config.trace, name, table.table(), &stream.descriptor) {
                Ok(file) => stream.file = Some(file),
                Err(error) => {
                    self.lose(table, &shares);
                    return self.trouble("rows", &error);
                }
            }
            stream.sequence += 1;
        }
        let Some(file) = &mut stream.file else { return };
        if let Err(error) = file.add(group, &mut self.press) {
            self.lose(table, &shares);
            return self.trouble("rows", &error);
        }
        shares.iter().for_each(|s| add(&mut stream.file_shares, *s));
        if file.length() >= self.config.file_bytes {
            self.seal(table);
        }
    }

    /// Ends the table's file. Rows of a row group that is still open go into the next one.
    fn seal(&mut self, table: TableId) {
        let covered = self.covered(table);
        let Some(stream) = self.streams.get_mut(table as usize) else { return };
        let Some(file) = stream.file.take() else { return };
        if file.is_empty() {
            return file.remove();
        }
        // The journal says that the file has the rows before the file is renamed: no reader takes both.
        if self.log.needs(table)
            && let Ok(footer) = file.footer()
        {
            let part = Item::part(table, covered, &file.part_name(), file.length(), &footer);
            if let Err(error) = self.log.append(&[part]) {
                self.trouble("the journal", &error);
            }
        }
        match file.seal() {
            Ok(sealed) => {
                self.log.sealed(table);
                if let Some(stream) = self.streams.get_mut(table as usize) {
                    stream.file_shares.clear();
                }
                self.sealed_bytes += sealed.bytes;
                self.sealed.push_back((table, sealed.name, sealed.bytes));
                self.remove_oldest();
            }
            Err(error) => {
                let shares = self.streams.get_mut(table as usize).map(|s| std::mem::take(&mut s.file_shares));
                self.lose(table, &shares.unwrap_or_default());
                self.trouble("rows", &error);
            }
        }
    }

    /// Rows of the table that its file holds, and those before.
    fn covered(&self, table: TableId) -> u64 {
        self.streams.get(table as usize).map_or(0, |s| s.rows - s.group.rows() as u64)
    }

    fn remove_oldest(&mut self) {
        while self.sealed_bytes > self.config.max_size {
            let Some(at) = self.sealed.iter().position(|(table, ..)| !KEPT.contains(table)) else { return };
            let Some((_, name, bytes)) = self.sealed.remove(at) else { return };
            let _ = std::fs::remove_file(self.config.trace.join(&name));
            self.sealed_bytes -= bytes;
            self.report(|r| r.removed.push(name));
        }
    }

    /// Brings everything young to disk: large row groups as such, the rest to the journal.
    fn flush(&mut self) {
        self.dirty = None;
        let mut items = Vec::new();
        for table in TABLES.iter().map(|t| t.id) {
            let Some(stream) = self.streams.get(table as usize) else { continue };
            if stream.young_rows == 0 {
                continue;
            }
            if stream.group.rows() > WORTH_A_GROUP {
                self.end_group(table);
                let covered = self.covered(table);
                let file = self.streams.get(table as usize).and_then(|s| s.file.as_ref());
                if let Some(file) = file
                    && let Ok(footer) = file.footer()
                {
                    items.push(Item::part(table, covered, &file.part_name(), file.length(), &footer));
                }
            } else if let Some(item) = self.young_item(table) {
                items.push(item);
            }
        }
        for (table, batch) in std::mem::take(&mut self.live) {
            let rows = batch.num_rows();
            if let Some(image) = self.image(table, &[batch]) {
                items.push(Item::live(table, rows as u64, if rows == 0 { Vec::new() } else { image }));
            }
        }
        if let Err(error) = self.log.append(&items) {
            self.trouble("the journal", &error);
        }
    }

    fn young_item(&mut self, table: TableId) -> Option<Item> {
        let stream = self.streams.get_mut(table as usize)?;
        let batches = std::mem::take(&mut stream.young);
        let rows = std::mem::take(&mut stream.young_rows) as u64;
        let first = stream.rows - rows;
        let image = self.image(table, &batches)?;
        Some(Item::rows(table, first, rows, image))
    }

    fn image(&mut self, table: TableId, batches: &[RecordBatch]) -> Option<Vec<u8>> {
        let stream = self.streams.get(table as usize)?;
        encode::image(table.table(), &stream.descriptor, batches, &mut self.press).ok()
    }

    fn seal_old(&mut self) {
        for table in TABLES.iter().map(|t| t.id) {
            let old = |s: &Stream| s.has_rows() && s.since.elapsed() >= self.config.file_age;
            if self.streams.get(table as usize).is_some_and(old) {
                self.end_group(table);
                self.seal(table);
            }
        }
    }

    fn finish(mut self) {
        // One more attempt, whatever happened before: the disk may have room again.
        for table in TABLES.iter().map(|t| t.id) {
            self.end_group(table);
            self.seal(table);
        }
        self.log.remove();
    }
}
