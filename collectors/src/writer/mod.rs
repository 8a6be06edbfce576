//! The writer thread: batches in, sealed Parquet files and the journal out.
//!
//! The drain never waits for it: the channel between them is bounded, and when it is full the rings hold what comes
//! and then drop and count. Rows are gathered into row groups of a million; whatever a row group has not taken to disk
//! within a second goes to the journal. Where many rows come, the row group itself goes to disk instead, so that no
//! row is encoded twice at full rate.
//!
//! When the disk is full, rows wait in memory for as long as there is room, and it is tried again; what finds none is
//! counted as dropped. At the end half of the room that was reserved at the start is given back, and the journal's, for
//! the last rows; the other half is the manifest's. A file that has rows needs no more room to be sealed ([`TableFile`]).

mod ending;
mod keep;
mod message;
mod report;
mod reserve;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::archive::next_number;
use crate::clock::Time;
use crate::encode::{self, Press};
use crate::file::{TableFile, io_error};
use crate::journal::{Item, Kind, Log};
use crate::manifest::{self, launcher_text};
use crate::recover::Written;
use crate::schema::{TABLES, TableId};
use crate::share::{Share, add};
use crate::{CollectError, Config};
use keep::Shelf;
pub(crate) use keep::{Limits, SUMS, goes_last};
pub(crate) use message::Message;
use report::Report;
pub(crate) use report::{Shared, trouble};
use reserve::Reserve;
pub(crate) use reserve::seize;
pub use reserve::was_killed;
use stream::{Contents, Sealed, Stream, Stuck, WORTH_A_GROUP};

/// Rows reach the journal, or a file that it names, within this time.
const FLUSH: Duration = Duration::from_millis(650);
/// Rows of a full row group.
const FULL_GROUP: usize = 1 << 20;
/// So many row groups shall still fit on the disk.
const GROUPS_LEFT: u64 = 8;
/// Bytes of finished pages that are kept in memory.
const FULL_BYTES: usize = 8 << 20;
/// After trouble with the disk the writer leaves it alone for this long.
const PAUSE: Duration = Duration::from_secs(2);
/// Has files numbered after those that are there.
fn number(config: &Config, streams: &mut [Stream]) -> io::Result<()> {
    for (table, stream) in TABLES.iter().zip(streams) {
        let folder = config.trace.join(table.name).join(format!("host={}", config.host));
        stream.sequence = next_number(&folder, &launcher_text(config.launcher_id))? as u32;
    }
    Ok(())
}

/// The writer.
pub(crate) struct Writer {
    config: Config,
    shared: Shared,
    press: Press,
    streams: Vec<Stream>,
    live: Vec<(TableId, RecordBatch)>,
    log: Log,
    shelf: Shelf,
    time: Time,
    reserve: Reserve,
    /// When the oldest row that is neither in a file nor in the journal came.
    dirty: Option<Instant>,
    /// Trouble: nothing is written until then.
    down: Option<Instant>,
    /// The last trouble was another one than that there is no room.
    is_broken: bool,
}

impl Writer {
    /// `before`: it goes on after the files of an earlier collector, whose journal is superfluous.
    pub(crate) fn new(config: Config, shared: Shared, before: Option<Written>) -> Result<Writer, CollectError> {
        let name = format!("{}-{}.journal", config.host, launcher_text(config.launcher_id));
        let journal = config.trace.join("journal").join(name);
        let failed = |source| CollectError::Trace { path: config.trace.clone(), source };
        let streams = TABLES.iter().map(|t| Stream::new(t.id)).collect::<io::Result<Vec<_>>>();
        let mut streams = streams.map_err(failed)?;
        let (files, lock) = before.map(|before| (before.files, before.lock)).unzip();
        if files.is_some() {
            number(&config, &mut streams).map_err(failed)?;
        }
        let sealed = files.into_iter().flatten().map(Sealed::from).collect();
        let press = Press::new().map_err(|e| failed(io_error(e)))?;
        Ok(Writer {
            shared,
            press,
            streams,
            live: Vec::new(),
            log: Log::new(journal).within(config.max_size),
            shelf: Shelf::new(config.limits(), sealed),
            time: Time::start(config.speed),
            reserve: Reserve::take(&config.trace, &config.host, config.launcher_id, lock),
            dirty: None,
            down: None,
            is_broken: false,
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
            Message::Limits(limits) => {
                let (bytes, age) = (self.config.file_bytes, self.config.file_age);
                (self.config.file_bytes, self.config.file_age) = limits.of_files(bytes, age);
                self.shelf.limit(limits);
            }
            Message::Flush(done) => {
                self.flush();
                // Who asked may be gone.
                let _ = done.try_send(!self.is_down());
            }
            Message::Seal(done) => {
                // Each, whatever becomes of the others.
                let left = TABLES.iter().filter(|table| !self.close(table.id)).count();
                self.flush();
                let _ = done.try_send(left == 0 && !self.is_down());
            }
            Message::Manifest(mut manifest) => {
                self.report(|r| r.complete(&mut manifest));
                let to = manifest::path(&self.config.trace, &self.config.host, self.config.launcher_id);
                self.report(|r| r.see_removal(&to, &mut manifest));
                if let Err(error) = manifest.write(&to) {
                    self.trouble("the manifest", &error);
                }
            }
        }
    }

    fn take_rows(&mut self, table: TableId, batch: &RecordBatch, shares: &[Share]) {
        if self.is_full(table) && !self.is_down() {
            self.end_group(table);
        }
        if self.is_full(table) {
            return self.lose(table, shares);
        }
        let Some(stream) = self.streams.get_mut(table as usize) else { return };
        if let Err(error) = stream.append(batch, shares, &mut self.press) {
            // Only a defect of ours can do this: the group may hold half a batch, so it goes.
            let (_, mut lost, _) = stream.take_group();
            shares.iter().for_each(|s| add(&mut lost, *s));
            self.lose(table, &lost);
            return self.trouble("rows", &io_error(error));
        }
        self.dirty.get_or_insert_with(Instant::now);
        if self.is_full(table) && !self.is_down() {
            self.end_group(table);
        }
    }

    /// Whether the table's row group takes no more rows. Where the disk has little room, row groups are small: of what
    /// does not fit as a whole some does.
    fn is_full(&mut self, table: TableId) -> bool {
        let most = (FULL_BYTES as u64).min(self.config.file_bytes).min(self.reserve.room() / GROUPS_LEFT) as usize;
        let full = |s: &Stream| s.group.rows() >= FULL_GROUP || s.group.bytes() >= most.max(1);
        self.streams.get(table as usize).is_some_and(full)
    }

    fn is_down(&self) -> bool {
        self.down.is_some_and(|until| Instant::now() < until)
    }

    fn lose(&mut self, table: TableId, shares: &[Share]) {
        self.report(|r| {
            r.lose(shares);
            r.names_lost |= table == TableId::Names;
        });
    }

    /// Something could not be written: says so once, and leaves the disk alone for a while.
    fn trouble(&mut self, what: &str, error: &io::Error) {
        let note = trouble(&self.config.trace, what, error);
        self.down = Some(Instant::now() + PAUSE);
        self.is_broken = error.raw_os_error().is_some_and(|n| ![libc::ENOSPC, libc::EDQUOT, libc::EFBIG].contains(&n));
        self.report(|r| {
            if !r.notes.contains(&note) {
                r.warnings.push_back(note.clone());
                r.notes.push(note);
            }
        });
    }

    /// Writes the row group to the table's file. False: the disk has no room for it, and it is kept.
    fn end_group(&mut self, table: TableId) -> bool {
        while self.streams.get(table as usize).is_some_and(|s| s.group.rows() > 0 || s.stuck.is_some()) {
            if let Err(error) = self.write_group(table) {
                self.trouble("rows", &error);
                return false;
            }
            let file = self.streams.get(table as usize).and_then(|s| s.file.as_ref());
            if file.is_some_and(|file| file.length() >= self.config.file_bytes) && !self.seal(table, false) {
                return false;
            }
        }
        true
    }

    fn write_group(&mut self, table: TableId) -> io::Result<()> {
        let Some(stream) = self.streams.get_mut(table as usize) else { return Ok(()) };
        if stream.file.is_none() {
            let (host, launcher) = (&self.config.host, launcher_text(self.config.launcher_id));
            let name = format!("{}/host={host}/{launcher}-{:06}.parquet", table.table().name, stream.sequence);
            stream.file = Some(TableFile::create(&self.config.trace, name, table.table(), &stream.descriptor)?);
            stream.sequence += 1;
        }
        let Some(next) = self.next_group(table) else { return Ok(()) };
        let Some(stream) = self.streams.get_mut(table as usize) else { return Ok(()) };
        let Some(file) = &mut stream.file else { return Ok(()) };
        if let Err(error) = file.append(&next.group, &next.shares) {
            stream.stuck = Some(next);
            return Err(error);
        }
        stream.file_contents.add(next.contents);
        Ok(())
    }

    /// The row group that is to be written next, encoded for the end of the table's file. One that was stuck comes first:
    /// at the place for which it was encoded.
    fn next_group(&mut self, table: TableId) -> Option<Stuck> {
        let stream = self.streams.get_mut(table as usize)?;
        if let Some(stuck) = stream.stuck.take() {
            return Some(stuck);
        }
        let file = stream.file.as_ref().filter(|_| stream.group.rows() > 0)?;
        let at = file.length();
        let (group, shares, contents) = stream.take_group();
        match TableFile::encode(group, at, &mut self.press) {
            Ok(group) => Some(Stuck { group, shares, contents }),
            Err(error) => {
                // Only a defect of ours can do this.
                self.lose(table, &shares);
                self.trouble("rows", &error);
                None
            }
        }
    }

    /// Ends the table's file. Rows of a row group that is still open go into the next one. False: it could not be sealed,
    /// and is kept. `last`: nothing runs any more.
    fn seal(&mut self, table: TableId, last: bool) -> bool {
        let Some(stream) = self.streams.get_mut(table as usize) else { return true };
        let covered = stream.covered();
        let Some(file) = stream.file.take() else { return true };
        if file.is_empty() {
            file.remove();
            return true;
        }
        // The journal says that the file has the rows before the file is renamed: no reader takes both.
        let live = last && self.log.has_live(table);
        if (self.log.needs(table) || live)
            && let Ok(footer) = file.footer()
        {
            let mut items = vec![Item::part(table, covered, &file.part_name(), file.length(), &footer)];
            if live {
                // What was about things that still ran has become rows of the file: periods of rollups that were open counted twice.
                items.push(Item::no_live(table));
            }
            if let Err(error) = self.log.append(&items) {
                self.trouble("the journal", &error);
                self.keep_file(table, file);
                return false;
            }
        }
        match file.seal() {
            Ok((name, bytes)) => {
                self.log.sealed(table);
                if let Some(stream) = self.streams.get_mut(table as usize) {
                    stream.noted = 0;
                    let contents = std::mem::replace(&mut stream.file_contents, Contents::NONE);
                    self.shelf.put(Sealed { table, name, bytes, contents, shares: file.into_shares() });
                }
                self.remove_oldest();
                true
            }
            Err(error) => {
                self.trouble("rows", &error);
                self.keep_file(table, file);
                false
            }
        }
    }

    fn keep_file(&mut self, table: TableId, file: TableFile) {
        if let Some(stream) = self.streams.get_mut(table as usize) {
            stream.file = Some(file);
        }
    }

    /// Keeps to the limits of size and age.
    fn remove_oldest(&mut self) {
        while let Some((file, limit)) = self.shelf.take_out(self.time.now_ns()) {
            let _ = std::fs::remove_file(self.config.trace.join(&file.name));
            self.report(|r| r.remove(file, limit));
        }
    }

    /// Brings everything young to disk: large row groups as such, the rest to the journal.
    fn flush(&mut self) {
        if self.is_down() {
            self.dirty = Some(Instant::now());
            return;
        }
        self.dirty = None;
        let mut items = Vec::new();
        for table in TABLES.iter().map(|t| t.id) {
            let Some(stream) = self.streams.get(table as usize) else { continue };
            let large = stream.group.rows() > WORTH_A_GROUP || stream.unjournaled && stream.group.rows() > 0;
            if (large || stream.stuck.is_some()) && !self.end_group(table) {
                continue;
            }
            // A row group may have become full, and gone to the file, since the last time.
            items.extend(self.unnoted_item(table));
            items.extend(self.young_item(table));
        }
        for (table, batch) in std::mem::take(&mut self.live) {
            let rows = batch.num_rows();
            if let Some(image) = self.image(table, &[batch], &[]) {
                items.push(Item::live(table, rows as u64, if rows == 0 { Vec::new() } else { image }));
            }
        }
        let appended = self.log.append(&items);
        for item in &items {
            let Some(stream) = self.streams.get_mut(item.head.table as usize) else { continue };
            match item.head.kind {
                // Of rows that are not there the row group goes to disk the next time.
                Kind::Rows => stream.unjournaled = appended.is_err(),
                Kind::Part if appended.is_ok() => stream.noted = stream.file.as_ref().map_or(0, TableFile::length),
                Kind::Part | Kind::Live => {}
            }
        }
        if let Err(error) = appended {
            self.dirty = Some(Instant::now());
            self.trouble("the journal", &error);
        }
    }

    /// How far the table's file goes, where the journal does not say so yet.
    fn unnoted_item(&self, table: TableId) -> Option<Item> {
        let stream = self.streams.get(table as usize)?;
        let file = stream.file.as_ref().filter(|file| !file.is_empty() && file.length() != stream.noted)?;
        Some(Item::part(table, stream.covered(), &file.part_name(), file.length(), &file.footer().ok()?))
    }

    fn young_item(&mut self, table: TableId) -> Option<Item> {
        let stream = self.streams.get_mut(table as usize).filter(|stream| stream.young_rows > 0)?;
        let batches = std::mem::take(&mut stream.young);
        let shares = std::mem::take(&mut stream.young_shares);
        let rows = std::mem::take(&mut stream.young_rows) as u64;
        let first = stream.rows - rows;
        let image = self.image(table, &batches, &shares)?;
        Some(Item::rows(table, first, rows, image))
    }

    fn image(&mut self, table: TableId, batches: &[RecordBatch], shares: &[Share]) -> Option<Vec<u8>> {
        let stream = self.streams.get(table as usize)?;
        encode::image(table.table(), &stream.descriptor, batches, shares, &mut self.press).ok()
    }

    fn seal_old(&mut self) {
        for table in TABLES.iter().map(|t| t.id) {
            let old = |s: &Stream| s.has_rows() && s.since.elapsed() >= self.config.file_age;
            if !self.is_down() && self.streams.get(table as usize).is_some_and(old) && self.end_group(table) {
                self.seal(table, false);
            }
        }
        self.remove_oldest();
    }
}
