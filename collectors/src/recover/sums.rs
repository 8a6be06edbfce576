//! Rollups of a collector that was killed: they are of a moment before the rows, and are brought in line with the account.
//!
//! What they lack are events of about the last second before its death, of which the account knows how many there are and nothing
//! more: they are added without a time, as what was sampled out is.

use std::io;
use std::path::Path;
use std::time::Duration;

use gputrace_abi::Class;

use super::account::{File, OnDisk};
use super::rows::write;
use crate::encode::Press;
use crate::file::io_error;
use crate::manifest::Manifest;
use crate::rollups::Rollups;
use crate::tables::Tables;
use crate::writer::{Message, SUMS};

/// Of the rows that are added; each row says its own.
const PERIOD: Duration = Duration::from_secs(1);

/// Whether none of the sums was removed to keep to a limit: else nobody can tell what they lack.
pub(crate) fn are_whole(manifest: &Manifest) -> bool {
    !manifest.removed.iter().any(|removed| SUMS.iter().any(|sums| sums.table().name == removed.table))
}

/// Adds what the sums lack of the account, which is right already. There are some, and they [are whole](are_whole).
pub(super) fn complete(trace: &Path, manifest: &Manifest, on_disk: &mut OnDisk, at_ns: i64) -> io::Result<()> {
    let mut tables = Tables::new();
    tables.sum_up(Some(Rollups::new(PERIOD)));
    for process in &manifest.processes {
        for class in Class::ALL {
            let Some(count) = process.accounting.get(class.name()) else { continue };
            let told = count.kept() + count.left_out + count.dropped + count.sampled_out;
            let missing = on_disk.summed(process.process_id, class).map(|events| told.saturating_sub(events));
            tables.make_known(process.process_id, process.pid, class, at_ns, missing);
        }
    }
    tables.settle_rollups(at_ns, true);
    let mut press = Press::new().map_err(io_error)?;
    for message in tables.take(1) {
        let Message::Rows(table, batch, _) = message else { continue };
        let rows = batch.num_rows() as u64;
        let Some(file) = write(trace, manifest, table, &[batch], &[], &mut press)? else { continue };
        let (name, bytes) = file.seal().inspect_err(|_| file.remove())?;
        on_disk.files.push(File { table, name, bytes, rows, written_ns: at_ns, shares: Vec::new() });
    }
    Ok(())
}
