//! The sums of a session for other programs: metrics with names (`families.rs`), as Prometheus scrapes them (`http.rs`, `text.rs`) and,
//! with the feature `otlp`, as they are pushed to an OpenTelemetry collector (`otlp.rs`). Who has a token may order by HTTP what
//! `gputrace start`, `stop`, `set` and `dump` do (`orders.rs`).
//!
//! Nothing is counted here: all values come from the live aggregates ([`crate::live`]), of which one snapshot is one answer.

mod connections;
mod counters;
mod families;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;
mod http;
mod metric;
mod orders;
#[cfg(feature = "otlp")]
mod otlp;
mod text;

use std::sync::Arc;

use crate::live::{Snapshot, Source};

pub use http::{Listener, Server};
pub use orders::{Orders, Token};
#[cfg(feature = "otlp")]
pub use otlp::{Push, Target};

/// Where snapshots come from. None: there are no more.
type Look = dyn Fn() -> Option<Arc<Snapshot>> + Send + Sync;

fn look(source: Source) -> Arc<Look> {
    Arc::new(move || source.snapshot(false))
}
