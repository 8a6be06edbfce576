//! A file that is written from front to end, compressed where its name ends so or its format wants it.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::new_file::NewFile;

/// The file.
pub(super) struct Output {
    pub(super) path: PathBuf,
    sink: Sink,
    /// Begin of the times in it.
    pub(super) base_ns: i64,
    /// Events so far.
    pub(super) events: u64,
}

enum Sink {
    Plain(BufWriter<NewFile>),
    Gzip(GzEncoder<BufWriter<NewFile>>),
}

impl Output {
    /// Makes the file, in place of an older one when it ends; compressed where its name ends in .gz.
    pub(super) fn create(path: &Path) -> io::Result<Output> {
        Output::make(path, path.extension().is_some_and(|end| end == "gz"))
    }

    /// Makes the file and compresses it, whatever its name.
    pub(super) fn gzipped(path: &Path) -> io::Result<Output> {
        Output::make(path, true)
    }

    fn make(path: &Path, gzip: bool) -> io::Result<Output> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = BufWriter::with_capacity(1 << 20, NewFile::create(path).map_err(named)?);
        let sink = if gzip { Sink::Gzip(GzEncoder::new(file, Compression::fast())) } else { Sink::Plain(file) };
        Ok(Output { path: path.to_owned(), sink, base_ns: 0, events: 0 })
    }

    /// Begins an event.
    pub(super) fn event(&mut self) -> io::Result<&mut Output> {
        let before = if self.events == 0 { "\n" } else { ",\n" };
        self.events += 1;
        self.write_all(before.as_bytes())?;
        Ok(self)
    }

    /// Ends the file. One that is not ended, since something failed, is gone when it is dropped.
    pub(super) fn end(self) -> io::Result<(PathBuf, u64)> {
        let (file, path, events) = self.whole()?;
        file.end()?;
        Ok((path, events))
    }

    /// The same without its name yet, with how many events it has.
    pub(super) fn whole(self) -> io::Result<(NewFile, PathBuf, u64)> {
        let buffer = match self.sink {
            Sink::Plain(file) => file,
            Sink::Gzip(file) => file.finish()?,
        };
        Ok((buffer.into_inner().map_err(|failed| failed.into_error())?, self.path, self.events))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Plain(file) => file.write(bytes),
            Sink::Gzip(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Plain(file) => file.flush(),
            Sink::Gzip(file) => file.flush(),
        }
    }
}

/// A text as JSON has it.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
