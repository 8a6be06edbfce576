//! All devices, and why they were idle: each gap between two operations of one is blamed on a cause.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::allocated::Allocated;
use super::calls::{Call, Calls};
use super::device::{Device, GAP_NS, Gaps};
use super::gaps::{self, Cause, Caused, GapKey, Longest};
use super::order::Operation;
use super::span;
use crate::analysis::clock::pauses;
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::steps::{Cursor, Steps};
use crate::trace::{DeviceNames, Filter, Identity, NO_NAME, NO_STACK, Trace};

/// A host that does nothing but launch needs no longer from one launch to the next (outliers of metrics.md): what a gap has
/// beyond that is other work of the host.
const LAUNCH_NS: i64 = 50_000;
/// Gaps that are kept one by one.
const LONGEST: usize = 10;

/// As much of `time` as `part` is of `all`: of a gap that lies in the usual steps in part it is not told where in it what was.
fn part_of(time: i64, part: i64, all: i64) -> i64 {
    if part == all { time } else { (time as f64 * part as f64 / all as f64) as i64 }
}

/// The devices of a trace.
#[derive(Debug)]
pub(crate) struct Devices {
    names: DeviceNames,
    index: FxHashMap<Identity, usize>,
    known: FxHashMap<(i64, i32), usize>,
    /// That of the last operation.
    last: ((i64, i32), usize),
    all: Vec<Device>,
    /// Places of the processes in the trace's list.
    places: FxHashMap<i64, usize>,
    /// What is reported, where that is ranges: idle time beside them is not theirs.
    ranges: Option<Arc<Filter>>,
    /// When imported clocks jumped, by process.
    pauses: FxHashMap<i64, Vec<(i64, i64)>>,
    /// Gaps by what they are blamed on.
    pub(crate) gaps: Groups<GapKey, Gaps>,
    /// What the thread that a device waited for allocated meanwhile.
    pub(crate) allocated: Allocated,
    /// Of operations of communication by process and call: time with computing beside them, where there was any.
    hidden: Vec<((i64, i64), i64)>,
}

/// Whether the clock of a process jumped in this time.
fn jumps(pauses: &FxHashMap<i64, Vec<(i64, i64)>>, process_id: i64, (from, to): (i64, i64)) -> bool {
    pauses.get(&process_id).is_some_and(|pauses| pauses.iter().any(|(begin, end)| from <= *begin && *end <= to))
}

impl Default for Devices {
    fn default() -> Devices {
        let other = GapKey { process_id: OTHER, cause: Cause::Unknown, did: None, api_id: OTHER, stack_id: NO_STACK };
        Devices {
            names: DeviceNames::default(),
            index: FxHashMap::default(),
            known: FxHashMap::default(),
            last: ((OTHER, 0), 0),
            all: Vec::new(),
            places: FxHashMap::default(),
            ranges: None,
            pauses: FxHashMap::default(),
            gaps: Groups::new(50_000, other),
            allocated: Allocated::default(),
            hidden: Vec::new(),
        }
    }
}

impl Devices {
    pub(super) fn new(trace: &Trace, filter: &Filter) -> Devices {
        let places = trace.processes.iter().enumerate().map(|(place, process)| (process.process_id, place)).collect();
        let ranges = filter.is_gapped().then(|| Arc::new(filter.clone()));
        let pauses = pauses(trace).collect();
        Devices { names: DeviceNames::new(&trace.processes), places, ranges, pauses, ..Devices::default() }
    }

    /// Knows the devices of a span that the user named before any of their operations comes: there may be none.
    pub(super) fn look_at_span(
        &mut self,
        trace: &Trace,
        filter: &Filter,
        communication: &FxHashSet<i64>,
        steps: &Steps,
        cursor: &mut Cursor,
    ) {
        for (identity, span) in span::devices(trace, filter, &self.names, communication) {
            self.index.insert(identity, self.all.len());
            self.all.push(Device::in_span(&span, self.ranges.is_some(), steps, cursor));
        }
    }

    /// Closes the span that the user named, and puts the devices into the order of the processes that use them, whichever files
    /// came first. Nothing comes any more.
    pub(super) fn end(&mut self, calls: Option<&Calls>, steps: &Steps, cursor: &mut Cursor) {
        for index in 0..self.all.len() {
            self.close(index, calls, steps, cursor);
        }
        self.all.iter_mut().for_each(|device| device.over(i64::MAX, &mut self.hidden));
        self.hidden.sort_unstable();
        let places = &self.places;
        // One that only did other work has no part in the ranges reported.
        self.all.retain(|device| device.has_work() || device.until_ns.is_some());
        self.all.sort_by_key(|Device { named: (process_id, ordinal), .. }| {
            (places.get(process_id).copied().unwrap_or(usize::MAX), *process_id, *ordinal)
        });
    }

    /// All, in the order of the processes that use them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Device> {
        self.all.iter()
    }

    /// How long the communication that a call launched had computing beside it on its device.
    pub(crate) fn hidden_ns(&self, process_id: i64, cause: i64) -> i64 {
        let found = self.hidden.binary_search_by_key(&(process_id, cause), |(call, _)| *call);
        found.map_or(0, |at| self.hidden[at].1)
    }

    /// Up to when the time of every device is settled.
    pub(super) fn settled_ns(&self) -> Option<i64> {
        self.all.iter().map(|device| device.known_ns).min()
    }

    fn find(&mut self, launcher: usize, of: &Operation) -> usize {
        let ordinal = (of.process_id, of.device);
        if self.last.0 == ordinal {
            return self.last.1;
        }
        if let Some(known) = self.known.get(&ordinal) {
            self.last = (ordinal, *known);
            return *known;
        }
        let identity = self.names.identity(launcher, of.process_id, of.device);
        let next = self.all.len();
        let found = *self.index.entry(identity).or_insert(next);
        if found == next {
            self.all.push(Device::new(of, self.ranges.is_some()));
        }
        self.all[found].in_steps.at(of.process_id);
        self.known.insert(ordinal, found);
        self.last = (ordinal, found);
        found
    }

    /// Adds the next operation in the order of their begin; with its call, where gaps have to have causes.
    pub(super) fn add(
        &mut self,
        launcher: usize,
        of: &Operation,
        joined: Option<(Option<&Call>, &Calls)>,
        steps: &Steps,
        cursor: &mut Cursor,
    ) {
        let index = self.find(launcher, of);
        let known = self.all[index].known_ns;
        // What it does after the end of what was chosen is not that one's time.
        let of =
            &Operation { end: self.all[index].until_ns.map_or(of.end, |until| of.end.min(until).max(of.start)), ..*of };
        if of.start > known {
            match self.ranges.clone() {
                Some(ranges) => self.gap_inside(index, known, of, joined, &ranges, steps, cursor),
                None => self.gap(index, (known, of.start), of, joined, steps, cursor),
            }
        }
        let device = &mut self.all[index];
        let before = device.covers[0];
        device.known_ns = known.max(of.end);
        device.several.add(of.start, before.end.min(of.end));
        if device.until_ns.is_some() {
            device.named = (of.process_id, of.device);
            device.fed_by = joined.and_then(|(call, _)| call).map(|call| call.tid);
        }
        device.over(of.start, &mut self.hidden);
        device.cover(of, steps, cursor);
        device.operations[of.work as usize] += 1;
        let counted = steps.counts_on_gpu(cursor, of.process_id, of.start);
        device.in_steps.at(of.process_id).operations += u64::from(counted);
        let stream = device.streams.at((of.process_id, of.stream));
        stream.operations[of.work as usize] += 1;
        stream.busy_ns += of.end - of.start;
    }

    /// Adds the next operation that lies beside the ranges reported: until its end the device is not idle.
    pub(super) fn beside(
        &mut self,
        launcher: usize,
        of: &Operation,
        calls: Option<&Calls>,
        steps: &Steps,
        cursor: &mut Cursor,
    ) {
        let index = self.find(launcher, of);
        let known = self.all[index].known_ns;
        if let Some(ranges) = self.ranges.clone().filter(|_| of.start > known) {
            self.gap_inside(index, known, of, calls.map(|calls| (None, calls)), &ranges, steps, cursor);
        }
        self.all[index].known_ns = known.max(of.end);
    }

    /// A gap before an operation, cut at the borders of the ranges: what lies between them is not their time.
    #[expect(clippy::too_many_arguments, reason = "the same as of `add`, and where the gap lies")]
    fn gap_inside(
        &mut self,
        index: usize,
        from: i64,
        of: &Operation,
        joined: Option<(Option<&Call>, &Calls)>,
        ranges: &Filter,
        steps: &Steps,
        cursor: &mut Cursor,
    ) {
        for part in ranges.inside(of.process_id, (from, of.start)) {
            // Where no launch of the range ends the part, its cause is what the thread did in the range until then.
            let tid = ranges.within.iter().find_map(|spans| spans.thread_at(of.process_id, part.0));
            let until = tid.map(|tid| Call::none(tid, part.1));
            let joined = joined.map(|(call, calls)| (call.filter(|_| part.1 == of.start).or(until.as_ref()), calls));
            self.gap(index, part, of, joined, steps, cursor);
            if let Some(ns) = self.all[index].inside_ns.as_mut().filter(|_| !jumps(&self.pauses, of.process_id, part)) {
                *ns += part.1 - part.0;
            }
        }
    }

    /// The idle time at the end of a span that the user named: what came next lies beside it, so its cause is what the thread did
    /// that had given the device its last work, or the only one that called the driver.
    fn close(&mut self, index: usize, calls: Option<&Calls>, steps: &Steps, cursor: &mut Cursor) {
        let device = &self.all[index];
        let (from, Some(until)) = (device.known_ns, device.until_ns) else { return };
        if from >= until {
            return;
        }
        let (process_id, ordinal) = device.named;
        let tid = device.fed_by.or_else(|| calls?.only_thread(process_id));
        let last = tid.map(|tid| Call::none(tid, until));
        let nothing = Operation::nothing(process_id, ordinal, until);
        let joined = calls.map(|calls| (last.as_ref(), calls));
        match self.ranges.clone() {
            Some(ranges) => self.gap_inside(index, from, &nothing, joined, &ranges, steps, cursor),
            None => self.gap(index, (from, until), &nothing, joined, steps, cursor),
        }
        self.all[index].known_ns = until;
    }

    /// Time in which a device did nothing, before this operation.
    fn gap(
        &mut self,
        index: usize,
        (from, to): (i64, i64),
        of: &Operation,
        joined: Option<(Option<&Call>, &Calls)>,
        steps: &Steps,
        cursor: &mut Cursor,
    ) {
        if jumps(&self.pauses, of.process_id, (from, to)) {
            self.all[index].jumped_ns += to - from;
            return;
        }
        let Some((call, calls)) = joined else { return };
        let device = &mut self.all[index];
        let ran_dry_ns = device.dry_ns.take().unwrap_or(from);
        let mut caused = gaps::cause_of(ran_dry_ns, to, of.process_id, call, calls);
        (caused.system_ns, caused.memory_ns) = (caused.system_ns.min(to - from), caused.memory_ns.min(to - from));
        if let Some(launch) = call.filter(|_| caused.cause.is_host()) {
            self.allocated.gap((of.process_id, launch.tid), from, launch.start.min(to));
        }
        let ns = to - from;
        let (api_id, stack_id) = caused.call.map_or((NO_NAME, NO_STACK), |call| (call.api_id, call.stack_id));
        let did = caused.call.map(|call| call.did);
        let key = GapKey { process_id: of.process_id, cause: caused.cause, did, api_id, stack_id };
        let mut middle = 0;
        for (process_id, own) in device.in_steps.iter_mut() {
            let part = steps.middle_ns(cursor, *process_id, from, to);
            own.idle_ns[caused.cause as usize] += part;
            own.steady.1[caused.cause as usize] += steps.steady_ns(cursor, *process_id, from, to);
            if *process_id == of.process_id {
                middle = part;
            }
        }
        for gaps in [&mut device.idle[caused.cause as usize], self.gaps.at(key)] {
            gaps.count += u64::from(ns >= GAP_NS);
            gaps.ns += ns;
            gaps.middle = (gaps.middle.0 + u64::from(middle > 0), gaps.middle.1 + middle);
            gaps.launch_ns += middle.min(LAUNCH_NS);
            gaps.system_ns += part_of(caused.system_ns, middle, ns);
            gaps.memory_ns += part_of(caused.memory_ns, middle, ns);
            gaps.max_ns = gaps.max_ns.max(ns);
        }
        let at = device.longest.partition_point(|other| other.ns >= ns);
        if at < LONGEST {
            let caused = Caused {
                cause: caused.cause,
                call: caused.call.copied(),
                system_ns: caused.system_ns,
                memory_ns: caused.memory_ns,
            };
            let gap = Longest { start: from, ns, caused, next_name_id: of.name_id };
            device.longest.insert(at, gap);
            device.longest.truncate(LONGEST);
        }
    }

    /// Stacks of the calls that gaps are blamed on.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = i64> {
        let longest = self.all.iter().flat_map(|device| &device.longest);
        let calls = longest.filter_map(|gap| gap.caused.call.map(|call| call.stack_id));
        self.gaps.iter().map(|(key, _)| key.stack_id).chain(calls).filter(|id| *id != NO_STACK)
    }

    pub(super) fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.gaps.iter().map(|(key, _)| key.api_id));
        let longest = self.all.iter().flat_map(|device| &device.longest);
        ids.extend(longest.flat_map(|gap| [gap.next_name_id, gap.caused.call.map_or(NO_NAME, |call| call.api_id)]));
    }
}
