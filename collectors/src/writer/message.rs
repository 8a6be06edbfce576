//! What the writer is told, in the order in which it does it.

use arrow::array::RecordBatch;
use crossbeam_channel::Sender;

use super::Limits;
use crate::manifest::Manifest;
use crate::schema::TableId;
use crate::share::Share;

/// What the drain sends.
pub(crate) enum Message {
    /// Rows to be kept, and whose events they are.
    Rows(TableId, RecordBatch, Vec<Share>),
    /// Rows about what still runs, in place of the last such rows.
    Live(TableId, RecordBatch),
    /// The manifest as it is now.
    Manifest(Box<Manifest>),
    /// The trace is to keep to these from now on.
    Limits(Limits),
    /// Everything so far is to be brought to disk, and the sender told whether that went well.
    Flush(Sender<bool>),
    /// The same, in whole files as far as it is about what is over.
    Seal(Sender<bool>),
}
