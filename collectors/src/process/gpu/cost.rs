//! What recording the GPU's work costs the program: how much longer launches take inside windows than right before them, and how
//! much later the next one of the same thread begins. The second holds what the first cannot see (caches that CUPTI emptied, its
//! own thread, waits for a GPU that has records to make), and also what changes in the program itself: so it is believed up to
//! [`MOST`] times the first.

use std::collections::HashMap;

/// Launches of a part of the run that are enough to compare.
const ENOUGH: u64 = 100;
/// Steps of a doubling in which durations are counted: each is 1 % wide.
const STEPS: f64 = 64.0;
/// Durations up to 2^20 ns: longer ones waited for something.
const STEPS_MOST: usize = 20 * STEPS as usize;
/// The longest launches are left out: what they waited for has nothing to do with recording. Of the distances all are kept: at the
/// end of a step, where a program waits for its GPU, is what the records cost that. On an H200 without it half was missing.
const KEPT: f64 = 0.95;
/// How much of what earlier windows said is kept when one more is over.
const MEMORY: f64 = 0.9;
/// By how much a launch may be later than it is longer, in parts of that.
const MOST: f64 = 4.0;
/// Threads that are remembered.
const THREADS: usize = 1 << 12;
/// What a kernel's record costs the GPU (measured on an H200, docs/benchmarks.md).
const GPU_NS: f64 = 250.0;

/// Durations of launches.
#[derive(Debug)]
struct Durations {
    steps: Box<[u32; STEPS_MOST]>,
    count: u64,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations { steps: Box::new([0; STEPS_MOST]), count: 0 }
    }
}

impl Durations {
    fn add(&mut self, ns: i64) {
        let step = ((ns.max(1) as f64).log2() * STEPS) as usize;
        if let Some(count) = self.steps.get_mut(step) {
            *count += 1;
            self.count += 1;
        }
    }

    /// The mean of this part of them, the shortest, ns.
    fn mean(&self, part: f64) -> Option<f64> {
        let kept = (self.count as f64 * part) as u64;
        let (mut seen, mut sum) = (0, 0.0);
        for (step, count) in self.steps.iter().enumerate() {
            let taken = u64::from(*count).min(kept - seen);
            sum += taken as f64 * ((step as f64 + 0.5) / STEPS).exp2();
            seen += taken;
        }
        (self.count >= ENOUGH).then(|| sum / seen as f64)
    }
}

/// How much longer something takes inside windows.
#[derive(Debug)]
struct Difference {
    /// The part of the durations that is kept.
    kept: f64,
    inside: Durations,
    /// Since the last window.
    outside: Durations,
    /// What was in the windows so far, each window counting less with each that follows, and how much longer it took.
    count: f64,
    more_ns: f64,
}

impl Difference {
    fn new(kept: f64) -> Difference {
        Difference { kept, inside: Durations::default(), outside: Durations::default(), count: 0.0, more_ns: 0.0 }
    }

    fn add(&mut self, ns: i64, inside: bool) {
        if inside { &mut self.inside } else { &mut self.outside }.add(ns);
    }

    fn end_window(&mut self) {
        if let (Some(inside), Some(outside)) = (self.inside.mean(self.kept), self.outside.mean(self.kept)) {
            let count = self.inside.count as f64;
            self.count = self.count * MEMORY + count;
            self.more_ns = self.more_ns * MEMORY + count * (inside - outside);
            self.outside = Durations::default();
        }
        self.inside = Durations::default();
    }

    /// The mean, ns; none: it is not known yet.
    fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| (self.more_ns / self.count).max(0.0))
    }
}

/// The cost of a record.
#[derive(Debug)]
pub(super) struct Cost {
    calls: Difference,
    /// From a launch to the next one of its thread.
    distances: Difference,
    /// Begin of each thread's last launch, and whether it was inside a window.
    last: HashMap<i32, (i64, bool)>,
}

impl Default for Cost {
    fn default() -> Cost {
        Cost { calls: Difference::new(KEPT), distances: Difference::new(1.0), last: HashMap::new() }
    }
}

impl Cost {
    /// A thread launched a kernel: begin and length of the call, ns.
    pub(super) fn launch(&mut self, thread: i32, (start_ns, ns): (i64, i64), inside: bool) {
        self.calls.add(ns, inside);
        if self.last.len() >= THREADS {
            self.last.clear();
        }
        let last = self.last.insert(thread, (start_ns, inside));
        if let Some((before_ns, _)) = last.filter(|(_, was_inside)| *was_inside == inside) {
            self.distances.add(start_ns - before_ns, inside);
        }
    }

    /// All launches of a window are known, and of the time before it.
    pub(super) fn end_window(&mut self) {
        self.calls.end_window();
        self.distances.end_window();
    }

    /// Host time that a record costs the thread that launches, ns; none: it is not known yet.
    pub(super) fn host_ns(&self) -> Option<f64> {
        let call_ns = self.calls.mean()?;
        Some(self.distances.mean().map_or(call_ns, |ns| ns.clamp(call_ns, call_ns * MOST)))
    }

    /// The same, and the GPU's time.
    pub(super) fn record_ns(&self) -> Option<f64> {
        self.host_ns().map(|ns| ns + GPU_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Launches one after the other: each takes so long, and the next one begins so long after its end.
    fn launches(cost: &mut Cost, inside: bool, calls: impl Iterator<Item = (i64, i64)>) {
        let mut at = cost.last.get(&1).map_or(0, |(at, _)| *at + 1_000_000_000);
        for (ns, rest_ns) in calls {
            cost.launch(1, (at, ns), inside);
            at += ns + rest_ns;
        }
    }

    #[test]
    fn what_launches_take_longer_inside_is_the_cost() {
        let mut cost = Cost::default();
        assert_eq!(cost.record_ns(), None);
        for window in 0..20 {
            // Durations that differ by the phase of the run, and some that waited.
            let base = 3000 + window * 200;
            let call = |n: i64, more: i64| if n % 40 == 39 { (500_000, 0) } else { (base + n % 7 * 100 + more, 5000) };
            launches(&mut cost, false, (0..1000).map(|n| call(n, 0)));
            launches(&mut cost, true, (0..1000).map(|n| call(n, 640)));
            cost.end_window();
        }
        let found = cost.host_ns().unwrap();
        assert!((560.0..720.0).contains(&found), "{found}");
        assert_eq!(cost.record_ns(), Some(found + GPU_NS));
    }

    #[test]
    fn what_comes_later_after_a_launch_is_part_of_it_within_limits() {
        let found = |later: i64| {
            let mut cost = Cost::default();
            launches(&mut cost, false, (0..1000).map(|_| (3000, 20_000)));
            launches(&mut cost, true, (0..1000).map(|_| (4000, 20_000 + later)));
            cost.end_window();
            cost.host_ns().unwrap()
        };
        let (call, with_rest, another_phase) = (found(0), found(1500), found(100_000));
        assert!((850.0..1150.0).contains(&call) && (2000.0..3000.0).contains(&with_rest), "{call} {with_rest}");
        assert!((3400.0..4600.0).contains(&another_phase), "{another_phase}");
        // A program that is quicker inside: the launches themselves are not.
        assert!((850.0..1150.0).contains(&found(-9000)));
    }

    #[test]
    fn a_window_of_few_launches_says_nothing() {
        let mut cost = Cost::default();
        launches(&mut cost, false, (0..1000).map(|_| (3000, 1000)));
        launches(&mut cost, true, (0..20).map(|_| (9000, 1000)));
        cost.end_window();
        assert_eq!(cost.host_ns(), None);
        // What came before it is still what the next one is compared with.
        launches(&mut cost, true, (0..1000).map(|_| (4000, 1000)));
        cost.end_window();
        assert!((900.0..1100.0).contains(&cost.host_ns().unwrap()));
    }
}
