//! One device's time: busy with what, idle for which reasons, in the whole run and in the usual steps.

use rustc_hash::{FxHashMap, FxHashSet};

use super::calls::{Call, Calls};
use super::cover::{Bins, Cover};
use super::gaps::{self, CAUSES, Cause, GapKey, Longest};
use super::identity::{Identity, Names};
use super::order::{Operation, Work};
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::steps::{Cursor, Steps};
use crate::trace::{NO_NAME, NO_STACK, Trace};

/// A shorter gap is no gap that anybody could close; its time is idle time all the same.
pub(crate) const GAP_NS: i64 = 1_000;
/// Gaps that are kept one by one.
const LONGEST: usize = 10;
/// Streams whose work is kept apart.
const STREAMS: usize = 4096;

/// Busy time by what it was: each ns once, computing before communication before copies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Busy {
    /// Computing, whatever else was going on.
    pub(crate) compute_ns: i64,
    /// Communication with no computing beside it.
    pub(crate) communication_ns: i64,
    /// Copies with nothing else beside them.
    pub(crate) copy_ns: i64,
}

impl Busy {
    /// All of it.
    pub(crate) fn total_ns(&self) -> i64 {
        self.compute_ns + self.communication_ns + self.copy_ns
    }
}

/// A process on a device: the part in its usual steps.
#[derive(Debug, Default)]
pub(crate) struct InSteps {
    /// Operations that began in them.
    pub(crate) operations: u64,
    /// Busy.
    pub(crate) busy: Busy,
    /// Idle, by cause.
    pub(crate) idle_ns: [i64; CAUSES.len()],
}

/// Gaps of one kind.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// Of [`GAP_NS`] or more.
    pub(crate) count: u64,
    /// Time in all.
    pub(crate) ns: i64,
    /// Time of them in the usual steps of the process whose operation came next, and their number.
    pub(crate) middle: (u64, i64),
    /// The longest one.
    pub(crate) max_ns: i64,
}

/// Work of one stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Operations: kernels, communication, copies.
    pub(crate) operations: [u64; 3],
    /// Their time.
    pub(crate) busy_ns: i64,
}

/// One device.
#[derive(Debug)]
pub(crate) struct Device {
    /// A process that uses it, and the ordinal that it has there.
    pub(crate) named: (i64, i32),
    /// Begin of its first operation.
    pub(crate) first_ns: i64,
    /// Operations: kernels, communication, copies.
    pub(crate) operations: [u64; 3],
    /// Time with any operation, with computing, with communication, with one of the two.
    covers: [Cover; 4],
    /// Time with two operations or more at once.
    pub(crate) several: Cover,
    /// Busy time over time.
    pub(crate) bins: Bins,
    /// Idle, by cause: number of gaps of [`GAP_NS`] or more, and time in all.
    pub(crate) idle: [Gaps; CAUSES.len()],
    /// The longest gaps, longest first.
    pub(crate) longest: Vec<Longest>,
    /// By process: the part in its usual steps.
    pub(crate) in_steps: FxHashMap<i64, InSteps>,
    /// By process and stream.
    pub(crate) streams: Groups<(i64, i64), Stream>,
}

impl Device {
    /// End of its last operation.
    pub(crate) fn last_ns(&self) -> i64 {
        self.covers[0].end
    }

    /// From its first operation to its last.
    pub(crate) fn range_ns(&self) -> i64 {
        self.last_ns() - self.first_ns
    }

    /// What it was busy with.
    pub(crate) fn busy(&self) -> Busy {
        let [all, compute, _, both] = self.covers.map(|cover| cover.total_ns);
        Busy { compute_ns: compute, communication_ns: both - compute, copy_ns: all - both }
    }

    /// Time with communication, and the part of it with computing beside it.
    pub(crate) fn overlap_ns(&self) -> (i64, i64) {
        let [_, compute, communication, both] = self.covers.map(|cover| cover.total_ns);
        (communication, communication + compute - both)
    }

    /// Idle time between its first and its last operation.
    pub(crate) fn idle_ns(&self) -> i64 {
        self.range_ns() - self.covers[0].total_ns
    }
}

/// The devices of a trace.
#[derive(Debug)]
pub(crate) struct Devices {
    names: Names,
    index: FxHashMap<Identity, usize>,
    known: FxHashMap<(i64, i32), usize>,
    all: Vec<Device>,
    /// Places of the processes in the trace's list.
    places: FxHashMap<i64, usize>,
    /// Gaps by what they are blamed on.
    pub(crate) gaps: Groups<GapKey, Gaps>,
}

impl Default for Devices {
    fn default() -> Devices {
        let other = GapKey { process_id: OTHER, cause: Cause::Unknown, did: None, api_id: OTHER, stack_id: NO_STACK };
        Devices {
            names: Names::default(),
            index: FxHashMap::default(),
            known: FxHashMap::default(),
            all: Vec::new(),
            places: FxHashMap::default(),
            gaps: Groups::new(50_000, other),
        }
    }
}

impl Devices {
    pub(super) fn new(trace: &Trace) -> Devices {
        let places = trace.processes.iter().enumerate().map(|(place, process)| (process.process_id, place)).collect();
        Devices { names: Names::new(&trace.processes), places, ..Devices::default() }
    }

    /// Puts them into the order of the processes that use them, whichever files came first. Nothing comes any more.
    pub(super) fn end(&mut self) {
        let places = &self.places;
        self.all.sort_by_key(|Device { named: (process_id, ordinal), .. }| {
            (places.get(process_id).copied().unwrap_or(usize::MAX), *process_id, *ordinal)
        });
    }

    /// All, in the order of the processes that use them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Device> {
        self.all.iter()
    }

    /// Up to when the time of every device is settled.
    pub(super) fn settled_ns(&self) -> Option<i64> {
        self.all.iter().map(Device::last_ns).min()
    }

    fn find(&mut self, launcher: usize, of: &Operation) -> usize {
        if let Some(known) = self.known.get(&(of.process_id, of.device)) {
            return *known;
        }
        let identity = self.names.identity(launcher, of.process_id, of.device);
        let next = self.all.len();
        let found = *self.index.entry(identity).or_insert(next);
        if found == next {
            self.all.push(Device {
                named: (of.process_id, of.device),
                first_ns: of.start,
                operations: [0; 3],
                covers: [Cover { end: of.start, total_ns: 0 }; 4],
                several: Cover::default(),
                bins: Bins::default(),
                idle: Default::default(),
                longest: Vec::new(),
                in_steps: FxHashMap::default(),
                streams: Groups::new(STREAMS, (OTHER, OTHER)),
            });
        }
        self.all[found].in_steps.entry(of.process_id).or_default();
        self.known.insert((of.process_id, of.device), found);
        found
    }

    /// Adds the next operation in the order of their begin.
    pub(super) fn add(
        &mut self,
        launcher: usize,
        of: &Operation,
        call: Option<&Call>,
        calls: &Calls,
        steps: &Steps,
        cursor: &mut Cursor,
    ) {
        let index = self.find(launcher, of);
        let device = &mut self.all[index];
        let before = device.covers[0];
        if of.start > before.end {
            let caused = gaps::cause_of(before.end, of.start, of.process_id, call, calls);
            let ns = of.start - before.end;
            let (api_id, stack_id) = caused.call.map_or((NO_NAME, NO_STACK), |call| (call.api_id, call.stack_id));
            let did = caused.call.map(|call| call.did);
            let key = GapKey { process_id: of.process_id, cause: caused.cause, did, api_id, stack_id };
            let mut middle = 0;
            for (process_id, own) in &mut device.in_steps {
                let part = steps.middle_ns(cursor, *process_id, before.end, of.start);
                own.idle_ns[caused.cause as usize] += part;
                if *process_id == of.process_id {
                    middle = part;
                }
            }
            for gaps in [&mut device.idle[caused.cause as usize], self.gaps.at(key)] {
                gaps.count += u64::from(ns >= GAP_NS);
                gaps.ns += ns;
                gaps.middle = (gaps.middle.0 + u64::from(middle > 0), gaps.middle.1 + middle);
                gaps.max_ns = gaps.max_ns.max(ns);
            }
            let at = device.longest.partition_point(|other| other.ns >= ns);
            if at < LONGEST {
                let gap = Longest { start: before.end, ns, caused, next_name_id: of.name_id };
                device.longest.insert(at, gap);
                device.longest.truncate(LONGEST);
            }
        }
        device.several.add(of.start, before.end.min(of.end));
        device.cover(of, steps, cursor);
        device.operations[of.work as usize] += 1;
        let counted = match steps.of(of.process_id) {
            Some(_) => steps.place(cursor, of.process_id, of.start).is_middle(),
            None => true,
        };
        if let Some(own) = device.in_steps.get_mut(&of.process_id) {
            own.operations += u64::from(counted);
        }
        let stream = device.streams.at((of.process_id, of.stream));
        stream.operations[of.work as usize] += 1;
        stream.busy_ns += of.end - of.start;
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

impl Device {
    fn cover(&mut self, of: &Operation, steps: &Steps, cursor: &mut Cursor) {
        let adds = match of.work {
            Work::Kernel => [true, true, false, true],
            Work::Communication => [true, false, true, true],
            Work::Copy => [true, false, false, false],
        };
        let mut new = [None; 4];
        for ((cover, adds), new) in self.covers.iter_mut().zip(adds).zip(&mut new) {
            *new = adds.then(|| cover.add(of.start, of.end)).flatten();
        }
        let [all, compute, _, both] = new;
        if let Some((start, end)) = all {
            self.bins.add(start, end);
        }
        for (process_id, own) in &mut self.in_steps {
            let mut part = |piece: Option<(i64, i64)>| {
                piece.map_or(0, |(start, end)| steps.middle_ns(cursor, *process_id, start, end))
            };
            let all_ns = part(all);
            // Mostly the same piece of time.
            let mut as_all = |piece| if piece == all { all_ns } else { part(piece) };
            let (compute_ns, both_ns) = (as_all(compute), as_all(both));
            // What computing covers late was communication's or a copy's alone until then.
            own.busy.compute_ns += compute_ns;
            own.busy.communication_ns += both_ns - compute_ns;
            own.busy.copy_ns += all_ns - both_ns;
        }
    }
}
