//! malloc and free, as a sample by bytes or in full.
//!
//! A sampled allocation stands for `weight_bytes`, so sums of weights are unbiased estimates. An allocation of b bytes
//! is sampled with probability p = b / weight; the variance of the sum is at most the sum of (1 - p) weight^2 over the
//! samples, from which the stated error (two standard deviations) comes. In full mode p is 1 and the error is 0.

use gputrace_collectors::schema::TableId;

use super::Pass;
use super::groups::Groups;
use super::steps::Steps;
use super::timeline::Timeline;
use crate::trace::{Rows, Want};

/// Powers of two of block sizes.
pub(crate) const SIZES: usize = 48;

/// Host memory of one process.
#[derive(Debug)]
pub(crate) struct ProcessHost {
    /// Allocations seen: samples, or all.
    pub(crate) allocations: u64,
    /// Frees seen.
    pub(crate) frees: u64,
    /// Estimated bytes allocated.
    pub(crate) bytes: f64,
    /// Variance of that estimate.
    pub(crate) variance: f64,
    /// Estimated number of allocations.
    pub(crate) count: f64,
    /// Estimated bytes live.
    pub(crate) live: f64,
    /// Its most.
    pub(crate) peak: f64,
    /// Live bytes over time.
    pub(crate) line: Timeline,
    /// Estimated allocations and bytes by power of two of the size.
    pub(crate) sizes: [(f64, f64); SIZES],
    /// Times that were measured: calls and their sum.
    pub(crate) timed: (u64, i64),
    /// First and last row.
    pub(crate) span_ns: (i64, i64),
}

impl Default for ProcessHost {
    fn default() -> Self {
        ProcessHost {
            allocations: 0,
            frees: 0,
            bytes: 0.0,
            variance: 0.0,
            count: 0.0,
            live: 0.0,
            peak: 0.0,
            line: Timeline::default(),
            sizes: [(0.0, 0.0); SIZES],
            timed: (0, 0),
            span_ns: (i64::MAX, i64::MIN),
        }
    }
}

impl ProcessHost {
    fn alloc(&mut self, bytes: i64, weight: f64) {
        self.allocations += 1;
        // An empty block stands for nothing.
        let b = bytes as f64;
        if bytes <= 0 {
            return;
        }
        let weight = weight.max(b);
        self.bytes += weight;
        self.variance += (1.0 - b / weight) * weight * weight;
        self.count += weight / b;
        self.live += weight;
        self.peak = self.peak.max(self.live);
        let size = &mut self.sizes[(bytes.ilog2() as usize).min(SIZES - 1)];
        size.0 += weight / b;
        size.1 += weight;
    }

    /// Two standard deviations of [`Self::bytes`], as a share of it.
    pub(crate) fn error(&self) -> f64 {
        if self.bytes > 0.0 { 2.0 * self.variance.sqrt() / self.bytes } else { 0.0 }
    }

    /// From the first row to the last, s.
    pub(crate) fn span_s(&self) -> f64 {
        (self.span_ns.1.saturating_sub(self.span_ns.0)).max(0) as f64 / 1e9
    }
}

/// The pass.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    /// By process.
    pub(crate) processes: Groups<i64, ProcessHost>,
}

impl Pass for HostMemory {
    fn wants(&self) -> &'static [Want] {
        &[Want { table: TableId::HostMemory, columns: &["api_ns", "action", "bytes", "weight_bytes"] }]
    }

    fn rows(&mut self, rows: &Rows, _steps: &Steps) {
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        let (length, action) = (rows.i64_or("api_ns", -1), rows.texts("action"));
        let (bytes, weight) = (rows.i64("bytes"), rows.f64("weight_bytes"));
        for row in 0..rows.len {
            let host = self.processes.at(process[row]);
            host.span_ns = (host.span_ns.0.min(start[row]), host.span_ns.1.max(start[row]));
            if length[row] >= 0 {
                host.timed = (host.timed.0 + 1, host.timed.1 + length[row]);
            }
            let weight = if weight[row].is_finite() { weight[row] } else { 0.0 };
            if action.get(row) == "alloc" {
                host.alloc(bytes[row], weight);
            } else {
                host.frees += 1;
                host.live = (host.live - weight).max(0.0);
            }
            host.line.set(start[row], host.live as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_its_weight() {
        let mut host = ProcessHost::default();
        host.alloc(1000, 500_000.0);
        host.alloc(4_000_000, 4_000_000.0);
        assert_eq!((host.allocations, host.bytes, host.peak), (2, 4_500_000.0, 4_500_000.0));
        assert_eq!(host.count, 501.0);
        assert!((host.error() - 2.0 * 499_499.0 / 4_500_000.0).abs() < 1e-3);
        assert_eq!(host.sizes[9], (500.0, 500_000.0));
    }
}
