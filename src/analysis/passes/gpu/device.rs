//! One device's time: busy with what, in the whole run and in the usual steps, and its idle time by cause.

use rustc_hash::FxHashMap;

use super::beside::Beside;
use super::cover::{Bins, Cover};
use super::gaps::{CAUSES, Longest};
use super::order::{Operation, Work};
use super::span::InSpan;
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::steps::{Cursor, Steps};

/// A shorter gap is no gap that anybody could close; its time is idle time all the same.
pub(crate) const GAP_NS: i64 = 1_000;
/// Operations of communication whose time beside computing is kept (48 MB).
const HIDDEN: usize = 2_000_000;
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
    /// Time with communication, whatever else was going on.
    pub(crate) communication_ns: i64,
    /// Idle, by cause.
    pub(crate) idle_ns: [i64; CAUSES.len()],
    /// Busy and, by cause, idle in all steady steps: gaps longer than a step lie in no usual one.
    pub(crate) steady: (i64, [i64; CAUSES.len()]),
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
    /// Of that time what launching alone can take: up to [`LAUNCH_NS`](super::devices) of each gap.
    pub(crate) launch_ns: i64,
    /// Of it after waits, the time in which the launching thread then waited for the operating system.
    pub(crate) system_ns: i64,
    /// Of it the time in which the launching thread took or gave back memory.
    pub(crate) memory_ns: i64,
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

/// Places of the time with computing, and with any kernel, among the covers.
const COMPUTE: usize = 1;
const KERNELS: usize = 3;

/// One device.
#[derive(Debug)]
pub(crate) struct Device {
    /// A process that uses it, and the ordinal that it has there.
    pub(crate) named: (i64, i32),
    /// Begin of its first operation, or of the time in which it is looked at.
    pub(crate) first_ns: i64,
    /// Where the user named a span, its end as far as the device is known to have been there.
    pub(super) until_ns: Option<i64>,
    /// When it ran dry before that span, where it was so at its begin: the gap there has the cause that it had from then on.
    pub(super) dry_ns: Option<i64>,
    /// The thread that gave it its last operation there.
    pub(super) fed_by: Option<i32>,
    /// Operations: kernels, communication, copies.
    pub(crate) operations: [u64; 3],
    /// Up to here it is known when it worked, for whomever.
    pub(super) known_ns: i64,
    /// Time between operations in which an imported clock jumped: nobody knows how much of it was.
    pub(super) jumped_ns: i64,
    /// Idle time inside of the ranges reported; none where no ranges were asked for.
    pub(super) inside_ns: Option<i64>,
    /// Time with any operation, with computing, with communication, with one of the two.
    pub(super) covers: [Cover; 4],
    /// Communication by process and call, with computing beside it.
    communicating: Beside<(i64, i64)>,
    /// Copies by process and direction, with kernels beside them.
    copying: Beside<(i64, u16)>,
    /// Time of copies with kernels beside them, by process and direction.
    pub(crate) copied_beside_ns: FxHashMap<(i64, u16), i64>,
    /// Time with two operations or more at once.
    pub(crate) several: Cover,
    /// Busy time over time.
    pub(crate) bins: Bins,
    /// Idle, by cause: number of gaps of [`GAP_NS`] or more, and time in all.
    pub(crate) idle: [Gaps; CAUSES.len()],
    /// The longest gaps, longest first.
    pub(crate) longest: Vec<Longest>,
    /// By process: the part in its usual steps.
    pub(crate) in_steps: Groups<i64, InSteps>,
    /// By process and stream.
    pub(crate) streams: Groups<(i64, i64), Stream>,
}

impl Device {
    /// A device of which this is the first operation; `of_ranges`: only what lies inside of ranges is reported.
    pub(super) fn new(of: &Operation, of_ranges: bool) -> Device {
        Device {
            named: (of.process_id, of.device),
            first_ns: of.start,
            until_ns: None,
            dry_ns: None,
            fed_by: None,
            operations: [0; 3],
            known_ns: of.start,
            jumped_ns: 0,
            inside_ns: of_ranges.then_some(0),
            covers: [Cover { end: of.start, total_ns: 0 }; 4],
            communicating: Beside::default(),
            copying: Beside::default(),
            copied_beside_ns: FxHashMap::default(),
            several: Cover::default(),
            bins: Bins::default(),
            idle: Default::default(),
            longest: Vec::new(),
            in_steps: Groups::default(),
            streams: Groups::new(STREAMS, (OTHER, OTHER)),
        }
    }

    /// One that is looked at in a span of time, from its begin to its end.
    pub(super) fn in_span(span: &InSpan, of_ranges: bool, steps: &Steps, cursor: &mut Cursor) -> Device {
        let ((process_id, device), (from, to)) = (span.named, span.window);
        let nothing = Operation::nothing(process_id, device, from);
        let dry_ns = span.dry_ns.filter(|dry| *dry < from && !of_ranges);
        let mut made = Device { until_ns: Some(to), dry_ns, ..Device::new(&nothing, of_ranges) };
        made.bins.begin(from);
        made.in_steps.at(process_id);
        for of in &span.running {
            made.in_steps.at(of.process_id);
            made.several.add(of.start, made.covers[0].end.min(of.end));
            made.cover(of, steps, cursor);
            made.known_ns = made.known_ns.max(of.end);
        }
        made
    }

    /// End of its last operation, or of the time in which it is looked at.
    pub(crate) fn last_ns(&self) -> i64 {
        self.until_ns.map_or(self.covers[0].end, |until| until.max(self.covers[0].end))
    }

    /// Whether any operation is counted, or looked at because it ran in a span.
    pub(crate) fn has_work(&self) -> bool {
        self.covers[0].total_ns > 0 || self.operations.iter().any(|count| *count > 0)
    }

    /// From its first operation to its last, or the span that the user named; of ranges the time of what was launched in them, and the idle time inside.
    pub(crate) fn range_ns(&self) -> i64 {
        match self.inside_ns {
            Some(idle_ns) => self.covers[0].total_ns + idle_ns,
            None => self.last_ns() - self.first_ns - self.jumped_ns,
        }
    }

    /// Whether its range is one stretch of time, and not what lies inside of many ranges or beside a jump of the clock.
    pub(crate) fn is_whole(&self) -> bool {
        self.inside_ns.is_none() && self.jumped_ns == 0
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

    /// Idle time of its range.
    pub(crate) fn idle_ns(&self) -> i64 {
        self.range_ns() - self.covers[0].total_ns
    }
}
impl Device {
    /// Counts what communication and copies that are over by this time had beside them.
    pub(super) fn over(&mut self, by: i64, hidden: &mut Vec<((i64, i64), i64)>) {
        self.communicating.over(by, |call, ns| {
            if ns > 0 && hidden.len() < HIDDEN {
                hidden.push((call, ns));
            }
        });
        let copied = &mut self.copied_beside_ns;
        self.copying.over(by, |of, ns| *copied.entry(of).or_default() += ns);
    }

    pub(super) fn cover(&mut self, of: &Operation, steps: &Steps, cursor: &mut Cursor) {
        let adds = match of.work {
            Work::Kernel => [true, true, false, true],
            Work::Communication => [true, false, true, true],
            Work::Copy => [true, false, false, false],
        };
        let (process_id, span) = (of.process_id, (of.start, of.end));
        match of.work {
            Work::Kernel => {}
            Work::Communication => self.communicating.begin((process_id, of.cause), span, self.covers[COMPUTE].end),
            Work::Copy => self.copying.begin((process_id, of.direction), span, self.covers[KERNELS].end),
        }
        let mut new = [None; 4];
        for ((cover, adds), new) in self.covers.iter_mut().zip(adds).zip(&mut new) {
            *new = adds.then(|| cover.add(of.start, of.end)).flatten();
        }
        let [all, compute, communication, both] = new;
        compute.into_iter().for_each(|piece| self.communicating.covered(piece));
        both.into_iter().for_each(|piece| self.copying.covered(piece));
        if let Some((start, end)) = all {
            self.bins.add(start, end);
        }
        for (process_id, own) in self.in_steps.iter_mut() {
            own.steady.0 += all.map_or(0, |(start, end)| steps.steady_ns(cursor, *process_id, start, end));
            let mut part = |piece: Option<(i64, i64)>| {
                piece.map_or(0, |(start, end)| steps.middle_ns(cursor, *process_id, start, end))
            };
            let all_ns = part(all);
            // Mostly the same piece of time.
            let mut as_all = |piece| if piece == all { all_ns } else { part(piece) };
            let (compute_ns, both_ns) = (as_all(compute), as_all(both));
            own.communication_ns += as_all(communication);
            // What computing covers late was communication's or a copy's alone until then.
            own.busy.compute_ns += compute_ns;
            own.busy.communication_ns += both_ns - compute_ns;
            own.busy.copy_ns += all_ns - both_ns;
        }
    }
}
