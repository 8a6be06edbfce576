//! One Parquet file that grows by row groups and is sealed by a rename.
//!
//! Until then it has a name that no reader of `*.parquet` takes for a file, but it is whole after each row group: the
//! footer is written with it, where the next one will stand. So a full disk never keeps a file from being sealed. There is no fsync: a crash of the machine
//! may cost the last files, as it costs every program that does not wait for the disk.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::schema::types::SchemaDescPtr;

use crate::encode::{self, MAGIC, Press, RowGroup};
use crate::folder::Folder;
use crate::schema::Table;
use crate::share::{Share, add};

/// A file that is being written.
pub(crate) struct TableFile {
    table: &'static Table,
    descriptor: SchemaDescPtr,
    file: File,
    /// Relative to the trace, with the name that it will have.
    name: String,
    trace: PathBuf,
    path: PathBuf,
    /// Bytes of the row groups.
    length: u64,
    groups: Vec<RowGroupMetaData>,
    /// Whose events they are.
    shares: Vec<Share>,
    /// The footer stands after them.
    whole: bool,
}

/// A row group as it will stand in its file.
pub(crate) struct Encoded {
    bytes: Vec<u8>,
    description: RowGroupMetaData,
}

/// What went wrong with a file.
pub(crate) fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(inner) => *inner,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// Makes a file anew, or empties it, where nothing leads elsewhere by its name: a trace that is made whole may be anybody's work.
pub(crate) fn own_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

impl TableFile {
    /// Makes the file `name` (relative to the trace) and the folders above it.
    pub(crate) fn create(
        trace: &Path,
        name: String,
        table: &'static Table,
        descriptor: &SchemaDescPtr,
    ) -> io::Result<TableFile> {
        let path = trace.join(&name);
        let folder = Folder::of(trace, Path::new(&name))?;
        let part = folder.at(&part(&path));
        let file = own_file(&part)?;
        file.write_all_at(MAGIC, 0).inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })?;
        let length = MAGIC.len() as u64;
        Ok(TableFile {
            table,
            descriptor: descriptor.clone(),
            file,
            name,
            trace: trace.to_owned(),
            path,
            length,
            groups: Vec::new(),
            shares: Vec::new(),
            whole: false,
        })
    }

    /// A row group's bytes, to be appended where its file has this length.
    pub(crate) fn encode(group: RowGroup, at: u64, press: &mut Press) -> io::Result<Encoded> {
        let (bytes, description) = group.finish(at, press).map_err(io_error)?;
        Ok(Encoded { bytes, description })
    }

    /// Appends a row group and the end that makes the file whole, so that no more room is needed to seal it. After an
    /// error the file is as it was, and the same group can be appended later.
    pub(crate) fn append(&mut self, group: &Encoded, shares: &[Share]) -> io::Result<()> {
        let before = self.shares.clone();
        self.groups.push(group.description.clone());
        shares.iter().for_each(|share| add(&mut self.shares, *share));
        let at = self.length + group.bytes.len() as u64;
        let written = self.file.write_all_at(&group.bytes, self.length);
        if let Err(error) = written.and_then(|()| self.write_footer(at)) {
            self.groups.pop();
            self.shares = before;
            // The old end takes the place that it had.
            let old_end = self.write_footer(self.length);
            self.whole = old_end.is_ok() && !self.groups.is_empty();
            return Err(error);
        }
        (self.length, self.whole) = (at, true);
        Ok(())
    }

    fn write_footer(&self, at: u64) -> io::Result<()> {
        let footer = if self.groups.is_empty() { Vec::new() } else { self.footer()? };
        self.file.write_all_at(&footer, at)?;
        self.file.set_len(at + footer.len() as u64)
    }

    /// The bytes that stand after the row groups when the file is whole.
    pub(crate) fn footer(&self) -> io::Result<Vec<u8>> {
        encode::footer(self.table, &self.descriptor, &self.groups, &self.shares, Some(&self.name)).map_err(io_error)
    }

    /// Name of the unfinished file, relative to the trace.
    pub(crate) fn part_name(&self) -> String {
        part(Path::new(&self.name)).to_string_lossy().into_owned()
    }

    /// Bytes of the row groups so far.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether it has rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Gives the file its final name; returns that, and its size. After an error it can be tried again.
    pub(crate) fn seal(&self) -> io::Result<(String, u64)> {
        if !self.whole {
            self.write_footer(self.length)?;
        }
        let folder = Folder::of(&self.trace, Path::new(&self.name))?;
        fs::rename(folder.at(&part(&self.path)), folder.at(&self.path))?;
        Ok((self.name.clone(), self.file.metadata().map_or(self.length, |meta| meta.len())))
    }

    /// Whose events its rows are.
    pub(crate) fn into_shares(self) -> Vec<Share> {
        self.shares
    }

    /// Removes a file without rows.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(part(&self.path));
    }
}

fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
