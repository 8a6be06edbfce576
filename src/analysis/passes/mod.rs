//! The streaming passes that the analyses share: each takes rows in and holds what it needs, in bounded memory.
//!
//! All passes that a report needs see the same read, on one thread or another ([`spread`]). Order: rows of one thread and table come in time order; tables
//! and threads move through time together to within a batch (see [`crate::trace`]). A pass that needs more says how it
//! gets it.

pub(crate) mod activity;
pub(crate) mod ahead;
pub(crate) mod allocations;
pub(crate) mod api;
pub(crate) mod asked;
pub(crate) mod by_call;
pub(crate) mod calls;
pub(crate) mod clocks;
pub(crate) mod collected;
pub(crate) mod collectives;
pub(crate) mod counters;
pub(crate) mod covered;
pub(crate) mod critical;
pub(crate) mod detect;
pub(crate) mod device_memory;
pub(crate) mod drawn;
mod first_launches;
pub(crate) mod folds;
pub(crate) mod givers;
pub(crate) mod gpu;
pub(crate) mod gpu_clock;
pub(crate) mod gpu_steps;
pub(crate) mod graphs;
pub(crate) mod groups;
pub(crate) mod growth;
pub(crate) mod host_memory;
pub(crate) mod host_time;
pub(crate) mod implicit;
pub(crate) mod kernels;
pub(crate) mod launches;
pub(crate) mod loading;
pub(crate) mod metal;
pub(crate) mod modules;
pub(crate) mod named_steps;
pub(crate) mod occupancy;
pub(crate) mod ops;
pub(crate) mod os_waits;
pub(crate) mod period;
pub(crate) mod pinned;
pub(crate) mod ranges;
pub(crate) mod ranks;
pub(crate) mod replays;
pub(crate) mod rollups;
pub(crate) mod samples;
pub(crate) mod sequences;
pub(crate) mod sites;
pub(crate) mod spread;
pub(crate) mod stats;
pub(crate) mod step_sums;
mod step_work;
pub(crate) mod steps;
pub(crate) mod syncs;
pub(crate) mod texts;
pub(crate) mod timed;
pub(crate) mod timeline;
pub(crate) mod torch_memory;
pub(crate) mod transfers;
pub(crate) mod union;
pub(crate) mod waiting;

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::trace::{Rows, Want};
use steps::Steps;

/// One streaming pass.
pub(crate) trait Pass: Send {
    /// The columns it reads.
    fn wants(&self) -> &'static [Want];

    /// The columns it reads of work that lies beside the ranges reported, in batches that say so.
    fn beside(&self) -> &'static [Want] {
        &[]
    }

    /// The columns it reads of memory, of which rows before what is reported matter as well: each row says whether it is kept.
    fn throughout(&self) -> &'static [Want] {
        &[]
    }

    /// Takes rows of one of its tables in.
    fn rows(&mut self, rows: &Rows, steps: &Steps);

    /// No row will come any more.
    fn end(&mut self, _steps: &Steps) {}

    /// Adds the ids whose names a report on this pass shows.
    fn names(&self, _ids: &mut FxHashSet<i64>) {}
}

/// Rows of one thread, or of one device, come in runs: what belongs to it is looked up once for each.
fn runs<'a>(process: &'a [i64], tid: &'a [i32]) -> impl Iterator<Item = Range<usize>> {
    let threads = move || process.iter().zip(tid);
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = next;
        let thread = threads().nth(first)?;
        next += threads().skip(first).take_while(|other| *other == thread).count();
        Some(first..next)
    })
}
