//! malloc and free, as a sample by bytes or in full; memory from the kernel and what is resident beside them.
//!
//! A sampled allocation stands for `weight_bytes`, so sums of weights are unbiased estimates. An allocation of b bytes
//! is sampled with probability p = b / weight; the variance of the sum is at most the sum of (1 - p) weight^2 over the
//! samples, from which the stated error (two standard deviations) comes. In full mode p is 1 and the error is 0.
//!
//! Of a part of a trace what was allocated before is live when it begins; sums of allocations are of the part.

use gputrace_collectors::schema::TableId;

use super::Pass;
use super::allocations::{Amount, First};
use super::groups::Groups;
use super::steps::Steps;
use super::timeline::Timeline;
use crate::trace::{Filter, NOBODY, Parts, PartsOf, Rows, Trace, Want};

/// Block sizes that are told apart: none at all, then powers of two.
pub(crate) const SIZES: usize = 49;

/// Where a size stands among these.
fn size_class(bytes: i64) -> usize {
    bytes.max(0).checked_ilog2().map_or(0, |power| (power as usize + 1).min(SIZES - 1))
}

/// The smallest size of a class.
pub(crate) fn smallest(class: usize) -> i64 {
    class.checked_sub(1).map_or(0, |power| 1 << power)
}

/// Allocations of some sizes, estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OfSize {
    /// Their number and bytes.
    pub(crate) all: Amount,
    /// Variance of the number.
    pub(crate) blocks_variance: f64,
}

/// Host memory of one process.
#[derive(Debug)]
pub(crate) struct ProcessHost {
    /// Events that the rows stand for, as the account counts them: one each, of culled blocks two.
    pub(crate) events: u64,
    /// Allocations seen: samples, or all.
    pub(crate) allocations: u64,
    /// Estimated bytes allocated.
    pub(crate) bytes: f64,
    /// Variance of that estimate.
    pub(crate) variance: f64,
    /// Estimated number of allocations.
    pub(crate) count: f64,
    /// Frees, and those of them whose allocation is not known.
    pub(crate) frees: (u64, u64),
    /// Estimated bytes live.
    pub(crate) live: f64,
    /// Its most.
    pub(crate) peak: f64,
    /// Live bytes over time.
    pub(crate) line: Timeline,
    /// Bytes mapped and not unmapped again (--mmap), and the same over time.
    pub(crate) mapped: i64,
    /// Over time.
    pub(crate) mapped_line: Timeline,
    /// Resident memory over time, as /proc told it.
    pub(crate) resident_line: Timeline,
    /// The most of it.
    pub(crate) resident_peak: Option<f64>,
    /// Readings of it, and the sum of what it was beyond what was live of malloc.
    pub(crate) beyond: (u64, f64),
    /// What malloc's arenas held at most, and what was free in them: looks, and the sums of both.
    pub(crate) arenas_peak: Option<f64>,
    pub(crate) arenas: (u64, f64),
    pub(crate) arenas_free: (u64, f64),
    /// Allocations by class of the size.
    pub(crate) sizes: [OfSize; SIZES],
    /// Times that were measured: calls and their sum.
    pub(crate) timed: (u64, i64),
    /// First and last row.
    pub(crate) span_ns: (i64, i64),
    parts: Option<Parts>,
    first: First,
}

impl Default for ProcessHost {
    fn default() -> Self {
        ProcessHost {
            events: 0,
            allocations: 0,
            bytes: 0.0,
            variance: 0.0,
            count: 0.0,
            frees: (0, 0),
            live: 0.0,
            peak: 0.0,
            line: Timeline::default(),
            mapped: 0,
            mapped_line: Timeline::default(),
            resident_line: Timeline::default(),
            resident_peak: None,
            beyond: (0, 0.0),
            arenas_peak: None,
            arenas: (0, 0.0),
            arenas_free: (0, 0.0),
            sizes: [OfSize::default(); SIZES],
            timed: (0, 0),
            span_ns: (i64::MAX, i64::MIN),
            parts: None,
            first: First::default(),
        }
    }
}

impl ProcessHost {
    /// An allocation, or as many as `calls` says, of `each` bytes.
    fn alloc(&mut self, each: i64, amount: Amount) {
        self.bytes += amount.bytes;
        self.variance += amount.variance;
        self.count += amount.blocks;
        let size = &mut self.sizes[size_class(each)];
        size.all.add(amount);
        size.blocks_variance += amount.blocks_variance();
    }

    fn parts(&mut self) -> &mut Parts {
        self.parts.get_or_insert_default()
    }

    /// Counts a call that is kept, of so many bytes and ns, or as many calls.
    fn called(&mut self, at: i64, action: &str, (bytes, length, calls): (i64, i64, i64), amount: Amount) {
        let each = if action == "culled" { 2 } else { 1 };
        self.events = self.events.saturating_add((calls.max(0) as u64).saturating_mul(each));
        if matches!(action, "map" | "reserve" | "unmap") {
            return;
        }
        self.span_ns = (self.span_ns.0.min(at), self.span_ns.1.max(at));
        if length >= 0 {
            self.timed = (self.timed.0 + 1, self.timed.1 + length);
        }
        if action != "free" {
            self.allocations = self.allocations.saturating_add(calls.max(1) as u64);
            self.alloc(bytes, amount);
        }
    }

    /// A part begins with what is live and mapped by then.
    fn begin(&mut self, at: i64) {
        while let Some(begin) = self.parts().begin(at) {
            if self.live > 0.0 {
                self.live(begin, 0.0);
            }
            if self.mapped > 0 {
                self.map(begin, 0.0);
            }
        }
    }

    /// What is live is more, or less, from then on.
    fn live(&mut self, at: i64, bytes: f64) {
        self.live = (self.live + bytes).max(0.0);
        if self.parts().hold(at) {
            self.peak = self.peak.max(self.live);
            self.line.set(at, self.live as i64);
        }
    }

    fn map(&mut self, at: i64, bytes: f64) {
        self.mapped = self.mapped.saturating_add(bytes as i64).max(0);
        if self.parts().hold(at) {
            self.mapped_line.set(at, self.mapped);
        }
    }

    fn resident(&mut self, at: i64, bytes: f64) {
        self.resident_line.set(at, bytes as i64);
        self.resident_peak = Some(self.resident_peak.map_or(bytes, |most| most.max(bytes)));
        self.beyond = (self.beyond.0 + 1, self.beyond.1 + (bytes - self.live).max(0.0));
    }

    fn free(&mut self, _: i64, bytes: f64) {
        self.arenas_free = (self.arenas_free.0 + 1, self.arenas_free.1 + bytes);
    }

    fn hold(&mut self, _: i64, bytes: f64) {
        self.arenas = (self.arenas.0 + 1, self.arenas.1 + bytes);
        self.arenas_peak = Some(self.arenas_peak.map_or(bytes, |most| most.max(bytes)));
    }

    /// What was free in malloc's arenas on the mean; none: nobody asked.
    pub(crate) fn free_in_arenas(&self) -> Option<f64> {
        (self.arenas_free.0 > 0).then(|| self.arenas_free.1 / self.arenas_free.0 as f64)
    }

    /// The same of what they held.
    pub(crate) fn held_by_arenas(&self) -> Option<f64> {
        (self.arenas.0 > 0).then(|| self.arenas.1 / self.arenas.0 as f64)
    }

    /// Two standard deviations of [`Self::bytes`], as a share of it.
    pub(crate) fn error(&self) -> f64 {
        if self.bytes > 0.0 { 2.0 * self.variance.sqrt() / self.bytes } else { 0.0 }
    }

    /// Whether it called malloc or mmap, or has what it got from them.
    pub(crate) fn any(&self) -> bool {
        self.span_ns.0 <= self.span_ns.1 || [&self.line, &self.mapped_line].iter().any(|line| line.first_ns().is_some())
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
    parts: PartsOf,
}

impl HostMemory {
    /// Of what is kept of a trace.
    pub(crate) fn new(trace: &Trace, filter: &Filter) -> HostMemory {
        HostMemory { parts: PartsOf::new(trace, filter), ..HostMemory::default() }
    }
}

impl Pass for HostMemory {
    fn wants(&self) -> &'static [Want] {
        &[Want { table: TableId::Counters, columns: &["source", "name", "value"] }]
    }

    fn throughout(&self) -> &'static [Want] {
        const COLUMNS: &[&str] = &["api_ns", "action", "bytes", "weight_bytes", "age_ns", "calls"];
        &[Want { table: TableId::HostMemory, columns: COLUMNS }]
    }

    fn rows(&mut self, rows: &Rows, _steps: &Steps) {
        if rows.table == TableId::Counters {
            return self.counters(rows);
        }
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        let (length, action) = (rows.i64_or("api_ns", -1), rows.texts("action"));
        let (bytes, weight, calls) = (rows.i64("bytes"), rows.f64("weight_bytes"), rows.i64("calls"));
        let age = rows.i64_or("age_ns", -1);
        for row in 0..rows.len {
            if self.parts.is_gone(process[row]) {
                continue;
            }
            let host = self.processes.at(process[row]);
            let parts = host.parts.get_or_insert_with(|| self.parts.of(process[row]));
            let (at, amount) = (start[row], Amount::of(bytes[row], weight[row], calls[row]));
            if parts.are_over(at) {
                continue;
            }
            host.begin(at);
            let action = action.get(row);
            if !matches!(action, "map" | "unmap" | "reserve") {
                host.first.note(at);
            }
            if rows.is_kept(row) {
                host.called(at, action, (bytes[row], length[row], calls[row]), amount);
                if action == "free" {
                    host.frees = (host.frees.0 + 1, host.frees.1 + u64::from(age[row] < 0 && bytes[row] == 0));
                }
            }
            match action {
                "map" => host.map(at, amount.bytes),
                "unmap" => host.map(at, -amount.bytes),
                // A reservation is no memory, and its end weighs nothing.
                "reserve" | "culled" => {}
                "free" if !host.first.is_live(at, age[row], amount) => {}
                "free" => host.live(at, -amount.bytes),
                _ => host.live(at, amount.bytes),
            }
        }
    }

    fn end(&mut self, _: &Steps) {
        self.processes.values_mut().for_each(|host| host.begin(i64::MAX));
    }
}

impl HostMemory {
    fn counters(&mut self, rows: &Rows) {
        let (source, name) = (rows.texts("source"), rows.texts("name"));
        let (process, start, value) = (rows.i64_or("process_id", NOBODY), rows.i64("start_ns"), rows.f64("value"));
        for row in (0..rows.len).filter(|row| process[*row] != NOBODY && value[*row].is_finite()) {
            let bytes = value[row].max(0.0);
            let add: fn(&mut ProcessHost, i64, f64) = match (source.get(row), name.get(row)) {
                ("proc", "rss") => ProcessHost::resident,
                ("malloc", "arenas") => ProcessHost::hold,
                ("malloc", "arenas_free") => ProcessHost::free,
                _ => continue,
            };
            add(self.processes.at(process[row]), start[row], bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_its_weight() {
        let mut host = ProcessHost::default();
        for (bytes, weight) in [(1000, 500_000.0), (4_000_000, 4_000_000.0)] {
            let amount = Amount::of(bytes, weight, 1);
            host.alloc(bytes, amount);
            host.live(0, amount.bytes);
        }
        assert_eq!((host.count, host.bytes, host.peak), (501.0, 4_500_000.0, 4_500_000.0));
        assert!((host.error() - 2.0 * 499_499.0 / 4_500_000.0).abs() < 1e-3);
        let size = host.sizes[size_class(1000)];
        assert_eq!((size.all, size.blocks_variance), (Amount::of(1000, 500_000.0, 1), 500.0 * 499.0));
    }

    #[test]
    fn sizes_are_nothing_at_all_or_from_a_power_of_two_up_to_the_next() {
        for (bytes, from) in [(i64::MIN, 0), (0, 0), (1, 1), (2, 2), (3, 2), (4096, 4096), (i64::MAX, 1 << 47)] {
            assert_eq!(smallest(size_class(bytes)), from, "{bytes}");
        }
    }
}
