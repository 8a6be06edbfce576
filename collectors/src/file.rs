//! One Parquet file that grows by row groups and is sealed by a footer and a rename.
//!
//! Until then it has a name that no reader of `*.parquet` takes for a file. There is no fsync: a crash of the machine
//! may cost the last files, as it costs every program that does not wait for the disk.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::schema::types::SchemaDescPtr;

use crate::encode::{self, MAGIC, Press, RowGroup};
use crate::schema::Table;

/// A file that is being written.
pub(crate) struct TableFile {
    table: &'static Table,
    descriptor: SchemaDescPtr,
    file: File,
    /// Relative to the trace, with the name that it will have.
    name: String,
    path: PathBuf,
    length: u64,
    groups: Vec<RowGroupMetaData>,
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

impl TableFile {
    /// Makes the file `name` (relative to the trace) and the folders above it.
    pub(crate) fn create(
        trace: &Path,
        name: String,
        table: &'static Table,
        descriptor: &SchemaDescPtr,
    ) -> io::Result<TableFile> {
        let path = trace.join(&name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let part = part(&path);
        let file = File::options().write(true).create(true).truncate(true).open(&part)?;
        file.write_all_at(MAGIC, 0).inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })?;
        let length = MAGIC.len() as u64;
        Ok(TableFile { table, descriptor: descriptor.clone(), file, name, path, length, groups: Vec::new() })
    }

    /// Appends a row group. After an error the file is as it was.
    pub(crate) fn add(&mut self, group: RowGroup, press: &mut Press) -> io::Result<()> {
        let (bytes, description) = group.finish(self.length, press).map_err(io_error)?;
        if let Err(error) = self.file.write_all_at(&bytes, self.length) {
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += bytes.len() as u64;
        self.groups.push(description);
        Ok(())
    }

    /// The bytes that stand after the row groups when the file is whole.
    pub(crate) fn footer(&self) -> io::Result<Vec<u8>> {
        encode::footer(self.table, &self.descriptor, &self.groups).map_err(io_error)
    }

    /// Name of the unfinished file, relative to the trace.
    pub(crate) fn part_name(&self) -> String {
        part(Path::new(&self.name)).to_string_lossy().into_owned()
    }

    /// Bytes so far.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether it has rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Ends the file under its final name. After an error it can be tried again.
    pub(crate) fn seal(&self) -> io::Result<Sealed> {
        let footer = self.footer()?;
        if let Err(error) = self.file.write_all_at(&footer, self.length) {
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        fs::rename(part(&self.path), &self.path)?;
        Ok(Sealed { name: self.name.clone(), bytes: self.length + footer.len() as u64 })
    }

    /// Removes a file without rows.
    pub(crate) fn remove(self) {
        let _ = fs::remove_file(part(&self.path));
    }
}

/// A file that is whole.
pub(crate) struct Sealed {
    /// Relative to the trace.
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
