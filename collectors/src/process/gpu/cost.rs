//! What recording the GPU's work costs the program: how much longer launches take inside windows than right before them.

/// Launches of a part of the run that are enough to compare.
const ENOUGH: u64 = 100;
/// Steps of a doubling in which durations are counted: each is 4 % wide.
const STEPS: f64 = 16.0;
/// Durations up to 2^20 ns: longer ones waited for something.
const STEPS_MOST: usize = 20 * STEPS as usize;
/// The longest launches are left out: what they waited for has nothing to do with recording.
const KEPT: f64 = 0.95;
/// How much of what earlier windows said is kept when one more is over.
const MEMORY: f64 = 0.9;
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

    /// The mean of the shorter ones, ns.
    fn mean(&self) -> Option<f64> {
        let kept = (self.count as f64 * KEPT) as u64;
        let (mut seen, mut sum) = (0, 0.0);
        for (step, count) in self.steps.iter().enumerate() {
            let taken = u64::from(*count).min(kept - seen);
            sum += taken as f64 * ((step as f64 + 0.5) / STEPS).exp2();
            seen += taken;
        }
        (self.count >= ENOUGH).then(|| sum / seen as f64)
    }
}

/// The cost of a record.
#[derive(Debug, Default)]
pub(super) struct Cost {
    inside: Durations,
    /// Since the last window.
    outside: Durations,
    /// Launches of the windows so far, each window counting less with each that follows, and their cost.
    launches: f64,
    more_ns: f64,
}

impl Cost {
    /// A kernel was launched in this time, ns.
    pub(super) fn launch(&mut self, ns: i64, inside: bool) {
        if inside { &mut self.inside } else { &mut self.outside }.add(ns);
    }

    /// All launches of a window are known, and of the time before it.
    pub(super) fn end_window(&mut self) {
        if let (Some(inside), Some(outside)) = (self.inside.mean(), self.outside.mean()) {
            let launches = self.inside.count as f64;
            self.launches = self.launches * MEMORY + launches;
            self.more_ns = self.more_ns * MEMORY + launches * (inside - outside);
            self.outside = Durations::default();
        }
        self.inside = Durations::default();
    }

    /// Host time that a record costs the thread that launches, ns; none: it is not known yet.
    pub(super) fn host_ns(&self) -> Option<f64> {
        (self.launches > 0.0).then(|| (self.more_ns / self.launches).max(0.0))
    }

    /// The same, and the GPU's time.
    pub(super) fn record_ns(&self) -> Option<f64> {
        self.host_ns().map(|ns| ns + GPU_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_launches_take_longer_inside_is_the_cost() {
        let mut cost = Cost::default();
        assert_eq!(cost.record_ns(), None);
        for window in 0..20 {
            // Durations that differ by the phase of the run, and some that waited.
            let base = 3000 + window * 200;
            for n in 0..1000 {
                cost.launch(base + n % 7 * 100, false);
                cost.launch(base + n % 7 * 100 + 640, true);
                if n % 40 == 0 {
                    cost.launch(500_000, n % 80 == 0);
                }
            }
            cost.end_window();
        }
        let found = cost.host_ns().unwrap();
        assert!((560.0..720.0).contains(&found), "{found}");
        assert_eq!(cost.record_ns(), Some(found + GPU_NS));
    }

    #[test]
    fn a_window_of_few_launches_says_nothing() {
        let mut cost = Cost::default();
        (0..1000).for_each(|_| cost.launch(3000, false));
        (0..20).for_each(|_| cost.launch(9000, true));
        cost.end_window();
        assert_eq!(cost.host_ns(), None);
        // What came before it is still what the next one is compared with.
        (0..1000).for_each(|_| cost.launch(4000, true));
        cost.end_window();
        assert!((900.0..1100.0).contains(&cost.host_ns().unwrap()));
    }
}
