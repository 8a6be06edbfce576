//! The text that ends a run.

use std::path::Path;

/// The summary of a trace that has just been written.
pub(crate) fn at_end(trace: &Path) -> anyhow::Result<String> {
    Ok(format!("gputrace: trace in {}\n", trace.display()))
}
