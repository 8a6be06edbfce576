//! Nsight Systems' sqlite: tables and columns as `nsys export --type sqlite` names them, so that its users' queries run.
//!
//! Rows are written as they are read, in one transaction, all processes into one file. Times are ns since the trace began, as
//! nsys has them since its session did; what is not known of a row is null. What nsys has no table for stays behind: malloc,
//! counters, what PyTorch's allocator held.

mod about;
mod calls;
mod chains;
mod database;
mod places;
mod ranges;
mod sheets;
mod strings;
mod work;

use std::io;
use std::path::Path;

use gputrace_collectors::schema::TableId;

use super::{Written, outside};
use crate::trace::{Filter, Rows, Trace, Want};
use chains::Chains;
use database::{Cell, Database};
use places::Places;
use ranges::Domains;
use sheets::Sheet;
use strings::Strings;

/// Writes the file.
pub(crate) fn write(trace: &Trace, filter: &Filter, file: &Path) -> io::Result<Written> {
    let to = Database::create(file)?;
    let mut strings = Strings::read(trace)?;
    let mut export = Export {
        to,
        domains: Domains::new(&mut strings)?,
        strings,
        places: Places::of(trace),
        chains: Chains::default(),
        begin_ns: trace.began_ns(),
        end_ns: 0,
        rows: 0,
    };
    let outside = outside::of_rows(trace, filter, wants().iter().map(|want| want.table));
    export.whole(trace, filter, outside.as_deref())?;
    Ok(Written { files: vec![(export.to.end()?, export.rows)], outside, ..Written::default() })
}

/// What events are made of.
fn wants() -> Vec<Want> {
    calls::WANTS.iter().chain(work::WANTS).chain(ranges::WANTS).copied().collect()
}

struct Export<'a> {
    to: Database,
    strings: Strings,
    places: Places<'a>,
    chains: Chains,
    domains: Domains,
    /// What times count from, ns since the epoch.
    begin_ns: i64,
    /// End of the last event so far, counted from there.
    end_ns: i64,
    /// Events so far.
    rows: u64,
}

impl Export<'_> {
    fn whole(&mut self, trace: &Trace, filter: &Filter, outside: Option<&str>) -> io::Result<()> {
        sheets::ENUMERATIONS.iter().try_for_each(|enumeration| self.to.enumerate(enumeration))?;
        let mut done = Ok(());
        trace.scan(&wants(), filter, &mut |rows| {
            if done.is_ok() {
                done = self.batch(rows);
            }
        });
        done?;
        self.chains(trace)?;
        self.about(trace, filter, outside)
    }

    fn batch(&mut self, rows: &Rows) -> io::Result<()> {
        match rows.table {
            TableId::Kernels => self.kernels(rows),
            TableId::DeviceCopies => self.copies(rows),
            TableId::Ranges => self.ranges(rows),
            TableId::Collectives => self.collectives(rows),
            TableId::OsWaits => self.waits(rows),
            _ => self.calls(rows),
        }
    }

    /// Writes an event, whose first two columns are its times.
    fn event(&mut self, sheet: &Sheet, cells: &[Cell<'_>]) -> io::Result<()> {
        for cell in &cells[..2] {
            if let Cell::Int(at) = cell {
                self.end_ns = self.end_ns.max(*at);
            }
        }
        self.rows += 1;
        self.to.insert(sheet, cells)
    }

    /// Begin and end of an interval.
    fn span(&self, start_ns: i64, length_ns: i64) -> (i64, i64) {
        let start = start_ns - self.begin_ns;
        (start, start + length_ns.max(0))
    }
}
