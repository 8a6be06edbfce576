//! What the manifest says of the clock of a GPU that Metal drives.

use serde::{Deserialize, Serialize};

/// The clock of a device beside the host's, by pairs of times that were read together, and what contradicts it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuClock {
    /// Ordinal of the device.
    pub device: i32,
    /// Pairs of times of host and GPU.
    pub pairs: u64,
    /// How far a pair may be off, ns: half of the longest that it took to read the GPU's clock, and the host's.
    pub pair_error_ns: u64,
    /// Whether the GPU's timestamps are the host's time (mach_absolute_time) in each pair, by no more than it may be off; none: there are no
    /// pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_as_host: Option<bool>,
    /// The GPU's timestamp less the host's time in the first pair, ns, where the GPU counts ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
    /// By how much the GPU's clock runs faster than the host's, in millionths; of one that counts other units than ns by much more. None:
    /// there are less than two pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_ppm: Option<f64>,
    /// The most by which a pair was off what the pairs before it foretold, ns.
    pub foretold_error_ns: u64,
    /// Command buffers whose times were found to be in the GPU's own clock, and were put right by the pairs.
    pub corrected: u64,
    /// Command buffers with a time on the GPU and a commit.
    pub joined: u64,
    /// How far times of host and GPU may be off each other, ns: `clock.error_ns` and `pair_error_ns`, where times were put right
    /// `foretold_error_ns` too. How well Metal puts times right itself it does not say: `violations` tell where that is worse.
    pub alignment_error_ns: u64,
    /// Command buffers that seemed to begin before their commit.
    pub early: u64,
    /// The most by which one did, ns.
    pub earliest_ns: i64,
    /// Command buffers that began before their commit by more than `alignment_error_ns`, or ended by more than that after it was told.
    pub violations: u64,
}

impl GpuClock {
    /// Adds what another process saw of the same device. Of one clock there is one course: the first one's stays.
    pub(crate) fn add(&mut self, more: &GpuClock) {
        self.pairs = self.pairs.saturating_add(more.pairs);
        self.pair_error_ns = self.pair_error_ns.max(more.pair_error_ns);
        self.runs_as_host = match (self.runs_as_host, more.runs_as_host) {
            (Some(one), Some(other)) => Some(one && other),
            (one, other) => one.or(other),
        };
        self.offset_ns = self.offset_ns.or(more.offset_ns);
        self.drift_ppm = self.drift_ppm.or(more.drift_ppm);
        self.foretold_error_ns = self.foretold_error_ns.max(more.foretold_error_ns);
        self.corrected = self.corrected.saturating_add(more.corrected);
        self.joined = self.joined.saturating_add(more.joined);
        self.alignment_error_ns = self.alignment_error_ns.max(more.alignment_error_ns);
        self.early = self.early.saturating_add(more.early);
        self.earliest_ns = self.earliest_ns.max(more.earliest_ns);
        self.violations = self.violations.saturating_add(more.violations);
    }

    /// What is to be said of it, a sentence each.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let GpuClock { device, corrected, joined, pairs, alignment_error_ns, violations, earliest_ns, .. } = *self;
        let drift = self.drift_ppm.map_or_else(String::new, |ppm| format!(", which drifts by {ppm:.1} ppm"));
        let corrected = (corrected > 0).then(|| {
            format!(
                "the times of {corrected} of {joined} command buffers on GPU {device} were in a clock of its own{drift}: they were put right \
                 by {pairs} pairs of host and GPU time, to {alignment_error_ns} ns"
            )
        });
        let violations = (violations > 0).then(|| {
            format!(
                "{violations} of {joined} command buffers on GPU {device} begin before their commit, or end after it was told, by more than the \
                 clocks may be off ({alignment_error_ns} ns): they begin earlier by {earliest_ns} ns at most"
            )
        });
        corrected.into_iter().chain(violations)
    }
}
