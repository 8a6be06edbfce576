//! malloc by the stack that called it: what was allocated, what is live at the end and was at the peak, what lived shortly,
//! what grows, and what the calls took; the same by thread and process.
//!
//! Numbers are estimates where malloc was sampled: a row of b bytes stands for `weight_bytes` bytes and weight / b calls. What
//! was live at the peak is known without another read: a process counts its new peaks, and before a stack's live memory changes
//! for the first time after one, it notes what it was then. A row takes the same few steps however many stacks there are, and
//! the memory needed is in proportion to these.
//!
//! Of a part of a trace what was allocated before is live when it begins, and may be its peak; everything else is of the part.

mod room;
mod sums;
#[cfg(test)]
mod tests;

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Pass;
use super::groups::Groups;
use super::growth::{Growth, Slope, Span};
use super::launches::OTHER;
use super::steps::{Cursor, ProcessSteps, Steps};
use crate::trace::{Filter, NO_STACK, Parts, PartsOf, Process, Rows, Trace, Want};
pub(crate) use sums::{Amount, Calls, First, Mapped};

/// A block that is freed so soon was made for a moment only.
pub(crate) const SHORT_NS: i64 = 1_000_000;
/// Parts of a process's time in which growth is looked for where it has no steps, and those of its begin and of its end, when it
/// gives back what it has, that are left out.
const SLICES: usize = 100;
const LEFT_OUT: usize = 10;

/// Stacks that have something live: 2 GB. There is room for the others always.
const MOST_STACKS: usize = 4_000_000;

/// What was allocated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Everything.
    pub(crate) all: Amount,
    /// In steady steps.
    pub(crate) steady: Amount,
}

impl Sums {
    fn add(&mut self, amount: Amount, is_steady: bool) {
        self.all.add(amount);
        if is_steady {
            self.steady.add(amount);
        }
    }
}

/// What one stack of a process did.
#[derive(Debug, Default)]
pub(crate) struct AtStack {
    /// What it allocated.
    pub(crate) sums: Sums,
    /// What of it is live now, and after the last row: at the end.
    pub(crate) live: Amount,
    /// What was live when the process had the peak of this number.
    at_peak: (u64, Amount),
    /// Frees whose block's age is known, and the sum of these ages.
    pub(crate) aged: (f64, f64),
    /// Blocks that were freed within [`SHORT_NS`], and culled ones.
    pub(crate) short: Amount,
    /// Others that were freed before their thread's next allocation that is in the trace.
    pub(crate) before_next: Amount,
    /// Allocations, and the frees of their blocks.
    pub(crate) calls: [Calls; 2],
    /// Memory from the kernel.
    pub(crate) mapped: Mapped,
    growth: Growth,
    /// What was live after the last step, or slice, in which growth is looked for.
    grown: Option<Amount>,
}

/// One thread.
#[derive(Debug, Default)]
pub(crate) struct OfThread {
    /// What it allocated.
    pub(crate) sums: Sums,
    /// Its allocations and frees.
    pub(crate) calls: [Calls; 2],
    /// Those in steady steps of usual duration.
    pub(crate) middle: [Calls; 2],
    /// Address of its last allocation.
    last: i64,
}

/// One process.
#[derive(Debug, Default)]
pub(crate) struct OfProcess {
    /// What it allocated.
    pub(crate) sums: Sums,
    /// What is live now, and after the last row: at the end.
    pub(crate) live: Amount,
    /// Its most, by bytes.
    pub(crate) peak: Amount,
    /// When that was.
    pub(crate) peak_at_ns: i64,
    /// Allocations and frees.
    pub(crate) calls: [Calls; 2],
    /// Allocations that were culled.
    pub(crate) culled: f64,
    first: First,
    growth: Growth,
    grown: Option<Amount>,
    peaks: u64,
    parts: Option<Parts>,
}

/// By what growth is measured in a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Beat {
    /// Its steps.
    Steps(Span),
    /// Equal parts of its time: when it begins, and ns of each.
    Slices { from_ns: i64, each_ns: i64 },
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Allocations {
    /// By process.
    pub(crate) processes: Groups<i64, OfProcess>,
    /// By process and stack.
    pub(crate) stacks: Groups<(i64, i64), AtStack>,
    /// By process and thread.
    pub(crate) threads: Groups<(i64, i32), OfThread>,
    /// At so many stacks room is made for more.
    room: usize,
    beats: FxHashMap<i64, Beat>,
    cursors: [Cursor; 2],
    parts: PartsOf,
}

impl Default for Allocations {
    fn default() -> Self {
        Allocations {
            processes: Groups::default(),
            stacks: Groups::new(MOST_STACKS, (OTHER, NO_STACK)),
            threads: Groups::new(10_000, (OTHER, 0)),
            room: 0,
            beats: FxHashMap::default(),
            cursors: Default::default(),
            parts: PartsOf::default(),
        }
    }
}

impl AtStack {
    /// What was live when its process had its peak.
    pub(crate) fn at_peak(&self, process: &OfProcess) -> Amount {
        if self.at_peak.0 == process.peaks { self.at_peak.1 } else { self.live }
    }

    /// What was live when the steps were over: what a program gives back at its exit has leaked until then.
    pub(crate) fn grown(&self) -> Amount {
        self.grown.unwrap_or(self.live)
    }

    fn age(&mut self, amount: Amount, age: i64) {
        self.aged = (self.aged.0 + amount.blocks, self.aged.1 + amount.blocks * age as f64);
    }

    /// Called before live memory changes in a step.
    fn note(&mut self, peaks: u64, at: Option<(usize, Span)>) {
        if self.at_peak.0 != peaks {
            self.at_peak = (peaks, self.live);
        }
        if let Some((step, span)) = at {
            self.growth.until(step, self.live.bytes, span);
            if step >= span.end {
                self.grown.get_or_insert(self.live);
            }
        }
    }
}

impl OfProcess {
    fn parts(&mut self) -> &mut Parts {
        self.parts.get_or_insert_default()
    }

    /// A part begins with what is live by then.
    fn begin(&mut self, at: i64) {
        while let Some(begin) = self.parts().begin(at) {
            self.peak(begin);
        }
    }

    /// Notes the peak, where there is one: a change comes after it.
    fn peak(&mut self, at: i64) {
        if self.parts().hold(at) && self.live.bytes > self.peak.bytes {
            (self.peak, self.peak_at_ns) = (self.live, at);
            self.peaks += 1;
        }
    }

    /// Called before live memory changes in a step.
    fn note(&mut self, at: Option<(usize, Span)>) {
        if let Some((step, span)) = at {
            self.growth.until(step, self.live.bytes, span);
            if step >= span.end {
                self.grown.get_or_insert(self.live);
            }
        }
    }

    /// What was live when the steps were over.
    pub(crate) fn grown(&self) -> Amount {
        self.grown.unwrap_or(self.live)
    }
}

impl Beat {
    /// Which steps, or slices, count.
    pub(crate) fn span(self) -> Span {
        match self {
            Beat::Steps(span) => span,
            Beat::Slices { .. } => Span { first: LEFT_OUT, end: SLICES - LEFT_OUT },
        }
    }

    /// The step of a time: 0 before the first, and the end after the last.
    fn step(self, steps: &Steps, cursor: &mut Cursor, process_id: i64, at: i64) -> usize {
        match self {
            Beat::Steps(span) => match steps.index(cursor, process_id, at) {
                Some((_, step)) => step,
                None if steps.of(process_id).is_some_and(|own| at < own.first_ns()) => 0,
                None => span.end,
            },
            Beat::Slices { from_ns, each_ns } => ((at - from_ns).max(0) / each_ns.max(1)).min(SLICES as i64) as usize,
        }
    }
}

impl Allocations {
    /// Of a trace with these steps.
    pub(crate) fn new(trace: &Trace, filter: &Filter, steps: &Steps) -> Allocations {
        let slices = |process: &Process| {
            let from_ns = process.start_ns.max(filter.from_ns.unwrap_or(0));
            let to_ns = process.end_ns.or(trace.ended_ns())?.min(filter.to_ns.unwrap_or(i64::MAX));
            let each_ns = to_ns.checked_sub(from_ns)? / SLICES as i64;
            (process.start_ns > 0 && each_ns > 0).then_some(Beat::Slices { from_ns, each_ns })
        };
        let slices = trace.processes.iter().filter_map(|process| Some((process.process_id, slices(process)?)));
        let of_steps = |own: &ProcessSteps| Beat::Steps(Span { first: own.warm_up, end: own.each().len() });
        let beats = slices.chain(steps.all.iter().map(|own| (own.process_id, of_steps(own))));
        Allocations { beats: beats.collect(), parts: PartsOf::new(trace, filter), ..Allocations::default() }
    }

    /// By what growth is measured in a process.
    pub(crate) fn beat(&self, process_id: i64) -> Option<Beat> {
        self.beats.get(&process_id).copied()
    }

    /// How the live memory of a stack grows.
    pub(crate) fn slope(&self, process_id: i64, stack: &AtStack) -> Option<Slope> {
        stack.growth.slope(self.beat(process_id)?.span())
    }

    /// The same of a process.
    pub(crate) fn slope_of(&self, process_id: i64) -> Option<Slope> {
        self.processes.get(&process_id)?.growth.slope(self.beat(process_id)?.span())
    }

    /// Ids of all stacks.
    pub(crate) fn stacks(&self) -> FxHashSet<i64> {
        self.stacks.iter().map(|((_, stack_id), _)| *stack_id).filter(|id| *id >= 0).collect()
    }
}

/// A row of one call.
struct Call {
    whose: (i64, i64),
    tid: i32,
    at: i64,
    api_ns: i64,
    address: i64,
    amount: Amount,
    /// Whether it is of the part that is kept, and not only of what is live in that.
    is_kept: bool,
    /// Of a free: the age of its block, negative where that is not known.
    freed_after: Option<i64>,
}

impl Allocations {
    fn call(&mut self, call: &Call, steps: &Steps) {
        let (process_id, amount) = (call.whose.0, call.amount);
        if call.is_kept {
            self.count(call, steps);
        }
        let process = self.processes.at(process_id);
        let stack = self.stacks.at(call.whose);
        process.first.note(call.at);
        let beat = self.beats.get(&process_id);
        let step = beat.map(|beat| (beat.step(steps, &mut self.cursors[1], process_id, call.at), beat.span()));
        if call.freed_after.is_some_and(|age| !process.first.is_live(call.at, age, amount)) {
            return;
        }
        process.note(step);
        stack.note(process.peaks, step);
        if call.freed_after.is_some() {
            stack.live.remove(amount);
            process.live.remove(amount);
        } else {
            stack.live.add(amount);
            process.live.add(amount);
            process.peak(call.at);
        }
    }

    /// Counts a call.
    fn count(&mut self, call: &Call, steps: &Steps) {
        let (process_id, amount) = (call.whose.0, call.amount);
        let process = self.processes.at(process_id);
        let stack = self.stacks.at(call.whose);
        let thread = self.threads.at((process_id, call.tid));
        let kind = usize::from(call.freed_after.is_some());
        for calls in [&mut process.calls, &mut stack.calls, &mut thread.calls] {
            calls[kind].add(amount.blocks, call.api_ns);
        }
        let place = steps.place(&mut self.cursors[0], process_id, call.at);
        if place.is_middle() {
            thread.middle[kind].add(amount.blocks, call.api_ns);
        }
        let Some(age) = call.freed_after else {
            thread.last = call.address;
            for sums in [&mut process.sums, &mut stack.sums, &mut thread.sums] {
                sums.add(amount, place.is_steady());
            }
            return;
        };
        if age >= 0 {
            stack.age(amount, age);
            match age {
                ..=SHORT_NS => stack.short.add(amount),
                _ if thread.last == call.address => stack.before_next.add(amount),
                _ => {}
            }
        }
    }

    fn culled(&mut self, whose: (i64, i64), tid: i32, at: i64, amount: Amount, age: i64, steps: &Steps) {
        let process = self.processes.at(whose.0);
        let stack = self.stacks.at(whose);
        let thread = self.threads.at((whose.0, tid));
        process.first.note(at);
        process.culled += amount.blocks;
        stack.short.add(amount);
        stack.age(amount, age.max(0));
        let place = steps.place(&mut self.cursors[0], whose.0, at);
        if place.is_middle() {
            thread.middle.iter_mut().for_each(|calls| calls.add(amount.blocks, -1));
        }
        for (sums, calls) in [
            (&mut process.sums, &mut process.calls),
            (&mut stack.sums, &mut stack.calls),
            (&mut thread.sums, &mut thread.calls),
        ] {
            sums.add(amount, place.is_steady());
            calls.iter_mut().for_each(|calls| calls.add(amount.blocks, -1));
        }
    }
}

impl Pass for Allocations {
    fn wants(&self) -> &'static [Want] {
        &[]
    }

    fn throughout(&self) -> &'static [Want] {
        const COLUMNS: &[&str] =
            &["tid", "api_ns", "action", "address", "bytes", "weight_bytes", "stack_id", "age_ns", "calls"];
        &[Want { table: TableId::HostMemory, columns: COLUMNS }]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        let (process_id, start, tid) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i32_or("tid", 0));
        let (api_ns, age_ns, calls) = (rows.i64_or("api_ns", -1), rows.i64_or("age_ns", -1), rows.i64("calls"));
        let (action, address) = (rows.texts("action"), rows.i64("address"));
        let (stack_id, bytes, weight) =
            (rows.i64_or("stack_id", NO_STACK), rows.i64("bytes"), rows.f64("weight_bytes"));
        for row in 0..rows.len {
            if row % 1024 == 0 {
                self.make_room();
            }
            let amount = Amount::of(bytes[row], weight[row], calls[row]);
            let whose = (process_id[row], stack_id[row]);
            if self.parts.is_gone(whose.0) {
                continue;
            }
            let process = self.processes.at(whose.0);
            let is_over = process.parts.get_or_insert_with(|| self.parts.of(whose.0)).are_over(start[row]);
            if is_over {
                continue;
            }
            process.begin(start[row]);
            let is_kept = rows.is_kept(row);
            match action.get(row) {
                "map" => self.stacks.at(whose).mapped.map(false, amount.bytes, is_kept),
                // Addresses without memory weigh nothing.
                "reserve" => self.stacks.at(whose).mapped.map(true, bytes[row] as f64, is_kept),
                "unmap" if age_ns[row] < 0 => {}
                "unmap" if weight[row] > 0.0 => self.stacks.at(whose).mapped.unmap(false, amount.bytes),
                "unmap" => self.stacks.at(whose).mapped.unmap(true, bytes[row] as f64),
                "culled" if !is_kept => {}
                "culled" => self.culled(whose, tid[row], start[row], amount, age_ns[row], steps),
                action => {
                    let call = Call {
                        whose,
                        tid: tid[row],
                        at: start[row],
                        api_ns: api_ns[row],
                        address: address[row],
                        amount,
                        is_kept,
                        freed_after: (action == "free").then_some(age_ns[row]),
                    };
                    self.call(&call, steps);
                }
            }
        }
    }

    fn end(&mut self, _: &Steps) {
        for (process_id, process) in self.processes.iter_mut() {
            let span = self.beats.get(process_id).map(|beat| beat.span());
            process.begin(i64::MAX);
            process.note(span.map(|span| (span.end, span)));
        }
        for ((process_id, _), stack) in self.stacks.iter_mut() {
            if let Some(span) = self.beats.get(process_id).map(|beat| beat.span()) {
                stack.growth.until(span.end, stack.live.bytes, span);
            }
        }
    }
}
