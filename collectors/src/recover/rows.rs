//! What a collector left unfinished, into files that are whole.
//!
//! Rows of the journal take room before the journal's own is free. Who comes back later can try again then ([`write_young`]); who
//! goes on at once gives the journal up for them, and what still finds no room with it ([`write_what_fits`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::account;
use crate::archive::next_number;
use crate::encode::{self, Press, RowGroup};
use crate::file::{TableFile, io_error};
use crate::journal::{Item, Left, Log, open_part};
use crate::manifest::{Manifest, launcher_text};
use crate::schema::{TABLES, TableId};
use crate::share::{Share, add};
use crate::writer::goes_last;

/// Rows of a row group: the journal holds less than a few of them.
const FULL_GROUP: usize = 1 << 20;

/// Gives unfinished files the end that the journal has for them, and their names.
pub(super) fn finish_parts(trace: &Path, left: &Left, manifest: &mut Manifest) -> io::Result<()> {
    for (_, name, length, footer) in &left.parts {
        let path = trace.join(name);
        let Some(whole) = name.strip_suffix(".part").filter(|_| is_ours(name, manifest)) else { continue };
        let file = match open_part(&path, File::options().read(true).write(true)) {
            Ok(file) => file,
            // It has its name already.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let end = length
            .checked_add(footer.len() as u64)
            .filter(|_| file.metadata().is_ok_and(|about| about.len() >= *length));
        let Some(end) = end else {
            manifest.note(&format!("{name} is shorter than it was: its rows are lost"));
            continue;
        };
        // What stands behind was never told of: a row group in the midst of being written.
        file.write_all_at(footer, *length)?;
        file.set_len(end)?;
        file.sync_data()?;
        fs::rename(&path, trace.join(whole))?;
    }
    Ok(())
}

/// Whether the launcher itself made a file of that name.
fn is_ours(name: &str, manifest: &Manifest) -> bool {
    let folder = format!("/host={}/{}-", manifest.host, launcher_text(manifest.launcher_id));
    name.contains(&folder)
}

/// Writes the rows that stand in the journal only into files of their own.
pub(super) fn write_young(
    trace: &Path,
    journal: &Path,
    left: &Left,
    manifest: &Manifest,
    taken: &BTreeSet<i64>,
) -> io::Result<()> {
    let young = young(left, taken)?;
    let mut press = Press::new().map_err(io_error)?;
    let (mut files, mut items) = (Vec::new(), Vec::new());
    let mut write_all = || -> io::Result<()> {
        for (table, (end, batches, shares)) in &young {
            if let Some(file) = write(trace, manifest, *table, batches, shares, &mut press)? {
                items.push(Item::part(*table, *end, &file.part_name(), file.length(), &file.footer()?));
                files.push(file);
            }
        }
        items.extend(left.live.iter().map(|(table, _)| Item::no_live(*table)));
        // From here on the files have the rows, and the journal has them no more.
        Log::resume(journal.to_owned(), left.whole)?.append(&items)
    };
    if let Err(error) = write_all() {
        // They take room, and the journal does not name them.
        files.iter().for_each(TableFile::remove);
        return Err(error);
    }
    files.iter().try_for_each(|file| file.seal().map(drop))
}

/// Writes the rows that stand in the journal only into files of their own, in the room of the journal, which goes first. Returns
/// why some found none.
pub(super) fn write_what_fits(
    trace: &Path,
    journal: &Path,
    left: &Left,
    manifest: &Manifest,
    taken: &BTreeSet<i64>,
) -> Option<io::Error> {
    let young = match young(left, taken) {
        Ok(young) => young,
        Err(error) => return Some(error),
    };
    let _ = fs::remove_file(journal);
    let mut press = match Press::new() {
        Ok(press) => press,
        Err(error) => return Some(io_error(error)),
    };
    // Those without which the others mean nothing come first.
    let mut order: Vec<_> = young.iter().collect();
    order.sort_by_key(|(table, (_, batches, _))| {
        (!goes_last(**table), batches.iter().map(RecordBatch::num_rows).sum::<usize>())
    });
    let mut trouble = None;
    for (table, (_, batches, shares)) in order {
        let written = write(trace, manifest, *table, batches, shares, &mut press);
        let sealed =
            written.and_then(|file| file.map_or(Ok(()), |file| file.seal().map(drop).inspect_err(|_| file.remove())));
        trouble = trouble.or(sealed.err());
    }
    trouble
}

/// Rows of a table, whose events they are, and how far they go.
type Young = (u64, Vec<RecordBatch>, Vec<Share>);

/// The rows that stand in the journal only.
fn young(left: &Left, taken: &BTreeSet<i64>) -> io::Result<BTreeMap<TableId, Young>> {
    let mut young: BTreeMap<TableId, Young> = BTreeMap::new();
    for (head, image) in &left.rows {
        let (end, batches, shares) = young.entry(head.table).or_default();
        *end = head.first + head.rows;
        // One that had ended may not have been let go of yet: who goes on says of it again that it has.
        let ended = rows_of(image)?.into_iter().map(|batch| without_ended(&batch, head.table, taken));
        batches.extend(ended.collect::<io::Result<Vec<_>>>()?);
        account::of_image(image).into_iter().for_each(|share| add(shares, share));
    }
    for (table, image) in &left.live {
        let batches = rows_of(image)?.into_iter().map(|batch| without(&batch, *table, taken));
        young.entry(*table).or_default().1.extend(batches.collect::<io::Result<Vec<_>>>()?);
    }
    Ok(young)
}

/// Decodes a Parquet file in memory.
fn rows_of(image: &Bytes) -> io::Result<Vec<RecordBatch>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(image.clone()).and_then(|builder| builder.build());
    reader.map_err(io_error)?.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)
}

/// Rows about processes that run, without those about some: sums are kept, for nobody adds them up again.
fn without(batch: &RecordBatch, table: TableId, taken: &BTreeSet<i64>) -> io::Result<RecordBatch> {
    match table {
        TableId::Processes | TableId::Threads | TableId::GpuWindows => without_rows(batch, taken, |_| true),
        _ => Ok(batch.clone()),
    }
}

/// Rows of processes that have ended, and of those threads that ended with their process, without those of some.
fn without_ended(batch: &RecordBatch, table: TableId, taken: &BTreeSet<i64>) -> io::Result<RecordBatch> {
    let ends = batch.column_by_name("end_ns");
    match table {
        TableId::Processes => without_rows(batch, taken, |_| true),
        TableId::Threads => without_rows(batch, taken, |row| ends.is_some_and(|ends| ends.is_null(row))),
        _ => Ok(batch.clone()),
    }
}

/// Without the rows about some processes that go.
fn without_rows(batch: &RecordBatch, taken: &BTreeSet<i64>, goes: impl Fn(usize) -> bool) -> io::Result<RecordBatch> {
    let ids = batch.column_by_name("process_id").and_then(|column| column.as_primitive_opt::<Int64Type>());
    let Some(ids) = ids else { return Ok(batch.clone()) };
    let kept: BooleanArray = (0..ids.len()).map(|row| Some(!(taken.contains(&ids.value(row)) && goes(row)))).collect();
    filter_record_batch(batch, &kept).map_err(io::Error::other)
}

/// A file with these rows, which has not its name yet. None: there are none.
pub(super) fn write(
    trace: &Path,
    manifest: &Manifest,
    table: TableId,
    batches: &[RecordBatch],
    shares: &[Share],
    press: &mut Press,
) -> io::Result<Option<TableFile>> {
    let about = table.table();
    let descriptor = encode::describe(about).map_err(io_error)?;
    let launcher = launcher_text(manifest.launcher_id);
    let folder = format!("{}/host={}", about.name, manifest.host);
    let number = next_number(&trace.join(&folder), &launcher)?;
    let mut file = None;
    let mut left = batches.iter().filter(|batch| batch.num_rows() > 0).peekable();
    let mut shares = shares;
    while left.peek().is_some() {
        let mut group = RowGroup::new(about, &descriptor);
        while let Some(batch) = left.next_if(|_| group.rows() < FULL_GROUP) {
            group.append(batch, press).map_err(io_error)?;
        }
        let mut open = match file.take() {
            Some(open) => open,
            None => TableFile::create(trace, format!("{folder}/{launcher}-{number:06}.parquet"), about, &descriptor)?,
        };
        let encoded = TableFile::encode(group, open.length(), press);
        let appended = encoded.and_then(|group| open.append(&group, std::mem::take(&mut shares)));
        appended.inspect_err(|_| open.remove())?;
        file = Some(open);
    }
    Ok(file)
}

/// Removes unfinished files that the journal does not name: what they hold stands in it, or was never told of.
pub(super) fn remove_unnamed(trace: &Path, manifest: &Manifest) {
    let start = format!("{}-", launcher_text(manifest.launcher_id));
    for table in &TABLES {
        let folder = trace.join(table.name).join(format!("host={}", manifest.host));
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(&start) && name.ends_with(".parquet.part")) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
