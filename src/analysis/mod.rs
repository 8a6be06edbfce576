//! Analyses of a trace.

pub(crate) mod summary;
