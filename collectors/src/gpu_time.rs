//! What the manifest says of asking when the GPU ran what: CUPTI, or events around launches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What came of asking CUPTI what the GPU did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuTime {
    /// Path of CUPTI's library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// Its version, as it gives it itself (CUPTI_API_VERSION).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Why there are no records, or no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Why CUPTI was not used any more, and launches were timed by events instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
    /// How often CUPTI was taken off the process after a window; each time it was put on again for the next.
    #[serde(default)]
    pub detached: u64,
    /// Why it stayed between windows from some time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays: Option<String>,
    /// How far its times may be off the host's where it keeps a clock of its own, ns: half of the longest that it took to read
    /// both; none: it was given the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
    /// Stretches of time in which records were on.
    pub windows: u64,
    /// How long they were on, ns.
    pub on_ns: i64,
    /// Kernels, copies and sets that were told of.
    pub records: u64,
    /// Those whose call was found.
    pub joined: u64,
    /// The process ended, or was left, without telling the rest: until when all is told, ns since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_until_ns: Option<i64>,
    /// Calls that gave the GPU work while records were on, and of which none came: of the end of a killed program, say.
    #[serde(default)]
    pub without_record: u64,
    /// Records that were lost: CUPTI dropped them, or the ring had no room.
    pub dropped: u64,
    /// Records of what was given after a window had closed, which CUPTI goes on to make for graphs; they have no rows.
    #[serde(default)]
    pub outside: u64,
    /// Records without times; they have no rows.
    pub without_time: u64,
    /// Work that seemed to begin before its call did.
    pub early: u64,
    /// The most by which it did, ns.
    pub earliest_ns: i64,
    /// How far times of host and GPU may be off each other, ns: `clock.error_ns`, and `clock_error_ns` where CUPTI keeps a clock of its
    /// own; how well CUPTI follows the GPU's clock it does not say: `violations` tell where that is worse. None: there are no records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alignment_error_ns: Option<u64>,
    /// Work that began before its call did by more than that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub violations: u64,
    /// Rows of `gpu_activity`, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub activities: BTreeMap<String, u64>,
    /// Kinds of it that CUPTI refused, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activities_refused: Vec<String>,
    /// The budget of windows, and what was spent; none where the whole run was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Functions of CUPTI with which others began to use it: no records meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<String>,
    /// When they had it: the first 64 times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aside_times: Vec<Aside>,
    /// Another copy of CUPTI that others called when ours had been used: the driver refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_copy: Option<String>,
    /// Launches that were timed by events around them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<TimedLaunches>,
}

/// The program or another tool used CUPTI, or may have: there are no records of ours from then on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aside {
    /// The function that it called first, or the variable.
    pub by: String,
    /// When, ns since the epoch.
    pub from_ns: i64,
    /// When it had been silent for a second; none: it was not until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<i64>,
}

impl GpuTime {
    /// Somebody else begins to use CUPTI.
    pub(crate) fn begin_aside(&mut self, by: String, from_ns: i64) {
        const MOST: usize = 64;
        if self.aside_times.len() < MOST {
            self.aside_times.push(Aside { by: by.clone(), from_ns, to_ns: None });
        }
        self.aside.push(by);
        self.aside.dedup();
        self.aside.truncate(16);
    }

    /// They have ended.
    pub(crate) fn end_aside(&mut self, to_ns: i64) {
        let open = self.aside_times.last_mut().filter(|aside| aside.to_ns.is_none());
        open.into_iter().for_each(|aside| aside.to_ns = Some(to_ns));
    }

    /// Adds what came of asking in another process. Of words and of shares of its time the first one's stay.
    pub(crate) fn add(&mut self, more: &GpuTime) {
        let first = |one: &mut Option<String>, more: &Option<String>| *one = one.take().or_else(|| more.clone());
        first(&mut self.library, &more.library);
        first(&mut self.refused, &more.refused);
        first(&mut self.given_up, &more.given_up);
        first(&mut self.stays, &more.stays);
        first(&mut self.other_copy, &more.other_copy);
        self.version = self.version.or(more.version);
        self.clock_error_ns = self.clock_error_ns.max(more.clock_error_ns);
        self.alignment_error_ns = self.alignment_error_ns.max(more.alignment_error_ns);
        self.known_until_ns = match (self.known_until_ns, more.known_until_ns) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.detached = self.detached.saturating_add(more.detached);
        self.windows = self.windows.saturating_add(more.windows);
        self.on_ns = self.on_ns.saturating_add(more.on_ns);
        self.records = self.records.saturating_add(more.records);
        self.joined = self.joined.saturating_add(more.joined);
        self.without_record = self.without_record.saturating_add(more.without_record);
        self.dropped = self.dropped.saturating_add(more.dropped);
        self.outside = self.outside.saturating_add(more.outside);
        self.without_time = self.without_time.saturating_add(more.without_time);
        self.early = self.early.saturating_add(more.early);
        self.earliest_ns = self.earliest_ns.max(more.earliest_ns);
        self.violations = self.violations.saturating_add(more.violations);
        for (kind, rows) in &more.activities {
            let sum = self.activities.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(*rows);
        }
        let refused = more.activities_refused.iter().filter(|one| !self.activities_refused.contains(one)).cloned();
        let refused: Vec<String> = refused.collect();
        self.activities_refused.extend(refused);
        self.budget = self.budget.take().or_else(|| more.budget.clone());
        match (&mut self.events, &more.events) {
            (Some(sum), Some(one)) => sum.add(one),
            (sum, one) => *sum = sum.take().or_else(|| one.clone()),
        }
    }
}

impl TimedLaunches {
    fn add(&mut self, more: &TimedLaunches) {
        self.timed = self.timed.saturating_add(more.timed);
        self.without_room = self.without_room.saturating_add(more.without_room);
        self.lost = self.lost.saturating_add(more.lost);
        self.late = self.late.saturating_add(more.late);
        self.without_call = self.without_call.saturating_add(more.without_call);
        self.pair_ns = self.pair_ns.max(more.pair_ns);
        self.contexts = self.contexts.saturating_add(more.contexts);
        self.error_ns = self.error_ns.max(more.error_ns);
        self.assumed = self.assumed.saturating_add(more.assumed);
    }
}

/// What came of timing launches by events around them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedLaunches {
    /// Launches that were timed.
    pub timed: u64,
    /// Those that were drawn when all pairs of events were under way.
    pub without_room: u64,
    /// Those whose events were lost: their context ended, the driver refused, or the ring had no room.
    pub lost: u64,
    /// Those whose second event came too late to say when they ended.
    pub late: u64,
    /// Those whose call is not in the trace.
    pub without_call: u64,
    /// What a pair of events takes by itself, ns; subtracted.
    pub pair_ns: u64,
    /// Contexts with a pool of events.
    pub contexts: u64,
    /// How far the GPU's clock may be off the host's, ns: the longest that a comparison of both took.
    pub error_ns: u64,
    /// Contexts for which `pair_ns` could not be measured in full, since the program or another tool recorded, or the GPU was busy: it is
    /// what is usual on an H200, and each launch may be off by 1.4 us.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub assumed: u64,
}

/// What recording may cost that times the GPU, and what it did, in percent of the wall time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// What was allowed.
    pub percent: f64,
    /// What the hooks cost: what was counted, each as dear as it was measured to be when the process began, and stacks as long as
    /// they were seen to take.
    pub hooks_percent: f64,
    /// What windows cost: records, each as dear as `record_ns`, and 10 ms each time that CUPTI was taken off and put on again;
    /// none: the run was too short to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_percent: Option<f64>,
    /// How much longer launches took inside windows than before them, ns; none: too few to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ns: Option<f64>,
    /// The same, and the GPU's part, which is not measured here: 250 ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_ns: Option<f64>,
    /// Launches that were made while CUPTI was in the process and no record was on; a graph's node counts as a fifth of one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attached_launches: u64,
    /// What these cost: 500 ns each, as was measured once on an H200; none: there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_percent: Option<f64>,
    /// What launches cost that events timed: 8 us each, the host's and the GPU's, as was measured once; none: none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_percent: Option<f64>,
    /// All of it: hooks, windows, launches beside CUPTI and timed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_percent: Option<f64>,
    /// When the hooks first left less than the quarter (an eighth, where windows are left out) of the budget that is the GPU's
    /// times', ns since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_ns: Option<i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_have_cupti_from_their_first_call_until_they_were_silent() {
        let mut about = GpuTime::default();
        about.end_aside(5);
        for at in [10, 30] {
            about.begin_aside("cuptiSubscribe".to_owned(), at);
            about.end_aside(at + 5);
            about.end_aside(at + 9);
        }
        about.begin_aside("cuptiFinalize".to_owned(), 50);
        let times: Vec<_> = about.aside_times.iter().map(|aside| (aside.from_ns, aside.to_ns)).collect();
        assert_eq!(times, [(10, Some(15)), (30, Some(35)), (50, None)]);
        assert_eq!(about.aside, ["cuptiSubscribe", "cuptiFinalize"]);
        (0..100).for_each(|at| about.begin_aside(at.to_string(), at));
        assert_eq!((about.aside_times.len(), about.aside.len()), (64, 16));
    }
}
