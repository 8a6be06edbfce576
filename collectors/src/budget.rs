//! What the manifest says of the budget of recording: what the hooks cost, and what was left out to keep to it.

use serde::{Deserialize, Serialize};

/// What recording a process may cost, what its hooks did, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookBudget {
    /// What was allowed, in percent of the wall time.
    pub percent: f64,
    /// What the hooks of all threads cost, over the whole run: things that were counted, each as dear as it was measured to
    /// be, and stacks as long as they were seen to take.
    pub hooks_percent: f64,
    /// The same in the dearest ten seconds; of a shorter run, in all of it.
    pub most_percent: f64,
    /// What one stack took on average, ns; none: none was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_ns: Option<f64>,
    /// What was left out, in the order of its begin; at the same moment the dearest first. What there was nothing of is not
    /// among it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shed: Vec<ShedPart>,
}

impl HookBudget {
    /// Adds what was left out of another process, by kind; of shares of its time the larger one stays.
    pub(crate) fn add(&mut self, more: &HookBudget) {
        self.percent = self.percent.max(more.percent);
        self.hooks_percent = self.hooks_percent.max(more.hooks_percent);
        self.most_percent = self.most_percent.max(more.most_percent);
        self.stack_ns = more.stack_ns.or(self.stack_ns);
        for part in &more.shed {
            let Some(sum) = self.shed.iter_mut().find(|sum| sum.what == part.what) else {
                self.shed.push(part.clone());
                continue;
            };
            sum.from_ns = sum.from_ns.min(part.from_ns);
            sum.to_ns = sum.to_ns.zip(part.to_ns).map(|(one, other)| one.max(other));
            sum.one_in = sum.one_in.zip(part.one_in).map(|(one, other)| one.max(other));
            sum.sampled_out = sum.sampled_out.saturating_add(part.sampled_out);
        }
    }
}

/// A part of the detail that was left out for some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShedPart {
    /// `stacks`, `malloc` (samples lay further apart), `gpu_times` (no window opened, and few launches were timed) or `launches`
    /// (of kernels).
    pub what: String,
    /// From when, ns since the epoch.
    pub from_ns: i64,
    /// Until when; none: until the process ended, or this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<i64>,
    /// Of so many one was kept, where it was the fewest; none: none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_in: Option<u64>,
    /// How many were left out meanwhile: stacks, allocations that were not sampled, launches without a row; of `gpu_times` that is
    /// not known.
    pub sampled_out: u64,
}
