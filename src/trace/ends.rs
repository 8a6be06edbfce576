//! Whether the sealed files of a trace have their ends: a file that was cut has lost its footer, and with it all of its rows.

use std::fs::File;

use gputrace_collectors::schema::TABLES;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;

use super::decode::unreadable;
use super::{Problem, Trace};

impl Trace {
    /// Makes a problem of each sealed file that has none; rows are not read.
    pub(crate) fn look_at_ends(&self) {
        let files = self.launchers.iter().flat_map(|launcher| TABLES.iter().flat_map(|of| launcher.sealed(of.id)));
        for path in files {
            let footer = File::open(path)
                .map_err(ParquetError::from)
                .and_then(|file| ParquetMetaDataReader::new().parse_and_finish(&file));
            if let Err(error) = footer {
                self.problem(Problem::lost(path, unreadable(error)));
            }
        }
    }
}
