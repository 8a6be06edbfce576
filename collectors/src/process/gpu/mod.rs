//! What the GPU did, as CUPTI told the shim: records joined with the calls that gave the work, in the order of their time.
//!
//! Records come when their work is complete, so those of different streams come out of order; a row is written when no work
//! that was given earlier can still come.

mod about;
mod activity;
mod attached;
mod cost;
mod ends;
mod given;
mod governor;
mod join;
mod samples;
#[cfg(test)]
mod tests;
mod worked;

use std::collections::{BTreeMap, HashMap, VecDeque};

use gputrace_abi::clock::ClockKind;
use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::{Work, state};
use gputrace_abi::layout::Header;
use gputrace_abi::shed::Shed;
use gputrace_abi::sync::Ordering;
use gputrace_abi::windows::SETTLING_NS;

use crate::chain::Text;
use crate::clock::Clocks;
use crate::manifest::GpuTime;
use crate::names::Written;
use crate::occupancy::Limits;
use crate::tables::{GpuWindow, OnGpu, Tables, Worked};
use attached::Attached;
use cost::Cost;
use ends::Ends;
use given::Calls;
pub(super) use given::{Given, What};
use governor::{Governor, Spent};
use samples::Samples;

/// The call of a record that was looked for in vain is looked for this often.
const AGAIN_NS: i64 = 50_000_000;
/// Windows whose calls may still come: those that closed so shortly ago, as many as one pass may bring.
const LATE_NS: i64 = 10_000_000_000;
const WINDOWS: usize = 64;
/// A call that began so shortly before a window did, or after it, may have been numbered in it: to switch records takes time.
const NEAR_NS: i64 = 20_000_000;
/// Work that was given so long ago, and of which nothing was told, is not waited for.
const GIVEN_UP_NS: i64 = 5_000_000_000;
/// A window is compared with what came before it, and so long after it.
const COMPARED_NS: i64 = 2_000_000_000;
/// Records that are held back at most.
const MOST_HELD: usize = 1 << 20;

/// The GPU's work of a process.
#[derive(Debug, Default)]
pub(crate) struct Gpu {
    /// What the manifest says; none: nobody asked CUPTI.
    about: Option<GpuTime>,
    calls: Calls,
    /// Records as they were told.
    fresh: Vec<Told>,
    /// Those whose call was looked for in vain, and when.
    waiting: Vec<Told>,
    looked_ns: i64,
    /// When the last pass began, and the one before: what was told before that one has been looked at.
    read_to_ns: i64,
    looked_to_ns: i64,
    /// Rows that wait for earlier ones.
    ready: Vec<(OnGpu, Worked)>,
    /// Stream and context as the driver has them, by device, context and stream as CUPTI has them; and how sure that is.
    streams: HashMap<(u32, u32, u32), (i64, i32, u8)>,
    /// What multiprocessors hold, by the device's ordinal.
    pub(super) limits: BTreeMap<u64, &'static Limits>,
    /// Calls that gave work inside of windows.
    given: u64,
    /// What records cost the program, and what they may.
    cost: Cost,
    governor: Governor,
    attached: Attached,
    /// The windows that were closed last: from when until when calls have their work told.
    closed: VecDeque<(i64, i64)>,
    /// When it was closed, ticks and ns, while it is not known that all of its work has been told.
    untold: Option<(u64, i64)>,
    /// Calls that began before are known in the next pass.
    given_to_ns: i64,
    /// The row of the window that was closed last, and the records that had been lost before it: more of its may turn out to be.
    over: Option<(GpuWindow, u64)>,
    lost_before: u64,
    /// The window that is open: its begin, and [`gputrace_abi::gpu::reason`].
    open: Option<(i64, u64)>,
    /// When records went on, of windows whose calls are not looked at yet, and whether CUPTI was a new one then.
    begins: VecDeque<(i64, bool)>,
    /// CUPTI was taken off: it numbers calls, contexts and streams anew.
    is_anew: bool,
    /// The same of the window whose calls are.
    on_since_ns: i64,
    /// Up to when everything that was complete has been told.
    settled_ns: i64,
    /// How long the process lived after that while records were on.
    cut_ns: i64,
    ends: Ends,
    ids: (i64, i32),
    /// Until when each stream, by its handle, is known to have worked.
    done_ns: HashMap<u64, i64>,
    /// Launches that events timed.
    pub(super) samples: Samples,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    work: Work,
    told_ns: i64,
    begin_ns: i64,
}

impl Gpu {
    pub(super) fn new(process_id: i64, pid: i32) -> Gpu {
        Gpu { ids: (process_id, pid), ..Gpu::default() }
    }

    /// Until when a stream, or any of them, is known to have worked; the epoch where that is not known.
    pub(super) fn done_ns(&self, stream: Option<u64>) -> i64 {
        match stream {
            Some(handle) => self.done_ns.get(&handle).copied().unwrap_or(0),
            None => self.done_ns.values().copied().max().unwrap_or(0),
        }
    }

    /// Whether calls that give the GPU work are to be told to [`Self::gave`].
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.about.is_some()
    }

    /// A call of a thread gave the GPU work.
    pub(super) fn gave(&mut self, mut call: Given, thread: i32, launches: f64) {
        let within = |from: i64, to: i64| (from..to).contains(&call.start_ns);
        let inside = self.open.is_some_and(|(on, _)| call.start_ns >= on)
            || self.closed.iter().rev().any(|(on, off)| within(*on, *off));
        if matches!(call.what, What::Kernel(..)) {
            self.cost.launch(thread, (call.start_ns, call.end_ns - call.start_ns), inside);
        }
        if !inside && call.what != What::Nothing {
            self.attached.launched(
                call.start_ns,
                launches,
                self.about.as_ref().is_some_and(|about| about.stays.is_some()),
            );
        }
        let none_yet = self.open.is_none() && self.closed.is_empty();
        let near = |(on, off): (i64, i64)| within(on - NEAR_NS, on) || within(off, off.saturating_add(NEAR_NS));
        let open = self.open.map(|(on, _)| (on, i64::MAX));
        let is_near = !inside && self.closed.iter().copied().chain(open).any(near);
        let told_apart = call.what != What::Graph || !self.shares_graphs();
        self.given += u64::from(inside && told_apart && call.what != What::Nothing);
        if inside || is_near || none_yet {
            call.sure = (inside || none_yet) && told_apart;
            self.calls.add(call);
        }
    }

    /// Whether CUPTI gives the kernels of all launches of a graph to one of them: so it does in the second window and later ones of a
    /// process from which it was not taken away between them.
    fn shares_graphs(&self) -> bool {
        self.about.as_ref().is_some_and(|about| about.windows > 0 && about.stays.is_some())
    }

    /// Whether it is time for [`Self::govern`].
    pub(super) fn is_governed(&self, header: &Header, now_ns: i64) -> bool {
        header.budget_ppm.load(Ordering::Relaxed) != 0 && self.governor.is_due(now_ns)
    }

    /// Looks at what the GPU's times cost, and tells the process what they may. `hooks_ns`: what the hooks of the process cost so far.
    pub(super) fn govern(&mut self, header: &Header, now_ns: i64, hooks_ns: f64) {
        let budget_ppm = header.budget_ppm.load(Ordering::Relaxed);
        let shed = Shed::of(header.shed.load(Ordering::Relaxed));
        let times_ns = self.spent().planned_ns(&self.cost);
        let Some(left) = self.governor.look(budget_ppm, now_ns, shed, hooks_ns, times_ns) else { return };
        // The next window shall know what the last one cost, and the first has nothing to be compared with before it.
        if self.open.is_none() && self.closed.back().is_some_and(|(_, off)| *off < now_ns - COMPARED_NS) {
            self.cost.end_window();
        }
        header.windows_ppm.store(left + 1, Ordering::Relaxed);
        if let Some(ns) = self.cost.record_ns() {
            header.record_ns.store(ns as u32 + 1, Ordering::Relaxed);
        }
    }

    /// What was done for the GPU's times so far.
    fn spent(&self) -> Spent {
        let (records, detached) = self.about.as_ref().map_or((0, 0), |about| (about.records, about.detached));
        let (attached, unspared) = self.attached.launches();
        Spent { records, detached, attached, unspared, timed: self.samples.timed() }
    }

    /// What CUPTI told, and what became of asking it.
    pub(super) fn take(&mut self, text: &Text, clocks: &Clocks, kind: ClockKind, tables: &mut Tables) {
        let told_ns = clocks.ns(kind, text.ticks);
        if text.kind == text_kind::GPU_WORK {
            let about = self.about.get_or_insert_default();
            about.alignment_error_ns = Some(clocks.error_ns(kind) + about.clock_error_ns.unwrap_or(0));
            for work in Work::all(text.bytes()) {
                about.records += 1;
                // CUPTI's times are ns of the clock that the collector's pairs are made with.
                let begin_ns = clocks.ns_of_monotonic(kind, work.start);
                if work.start == 0 || work.end < work.start {
                    about.without_time += 1;
                } else if self.fresh.len() < MOST_HELD {
                    let begin_ns = self.ends.begin(&work, begin_ns);
                    self.fresh.push(Told { work, told_ns, begin_ns });
                }
            }
            return;
        }
        if text.kind == text_kind::GPU_ACTIVITY {
            self.take_activities(text, clocks, kind, tables);
        } else {
            self.take_state(text, told_ns, tables);
        }
    }

    fn take_state(&mut self, text: &Text, at_ns: i64, tables: &mut Tables) {
        let about = self.about.get_or_insert_default();
        match text.number {
            state::LIBRARY => (about.library, about.version) = (Some(text.text().into_owned()), Some(text.key)),
            state::NO_LIBRARY => about.refused = Some(about::not_found(&text.text())),
            state::REFUSED => {
                about.refused = Some(format!("{} failed with {}", text.text(), about::result_name(text.key)))
            }
            state::ON => {
                about.refused = None;
                let lost = about.dropped;
                self.write_window(tables);
                self.lost_before = lost;
                self.cost.end_window();
                self.begins.push_back((at_ns, std::mem::take(&mut self.is_anew)));
                self.open = Some((at_ns, text.key));
                self.attached.begin(at_ns);
            }
            state::CLOCK => {
                about.clock_error_ns = Some(text.key);
                self.calls.error_ns = i64::try_from(text.key).unwrap_or(i64::MAX / 2);
            }
            state::DETACHED => {
                about.detached += 1;
                self.is_anew = true;
                self.attached.end(at_ns);
            }
            state::BUSY => self.attached.hide(text.key),
            state::STAYS => about.stays = Some(about::reason_name(text.key)),
            state::GIVEN_UP => about.given_up = Some(about::reason_name(text.key)),
            state::OFF => {
                self.untold = Some((text.ticks, at_ns));
                self.close(at_ns, text.key);
            }
            state::SETTLED => {
                about.dropped = text.key;
                self.settled_ns = at_ns;
            }
            state::KIND_REFUSED => self.take_refusal(text),
            state::OTHER_COPY => about.other_copy = Some(text.text().into_owned()),
            state::ASIDE => {
                // What CUPTI costs from now on it costs for them.
                self.attached.end(at_ns);
                self.is_anew |= text.text() == "cuptiFinalize";
                about.begin_aside(text.text().into_owned(), at_ns);
            }
            state::RESUMED => about.end_aside(at_ns),
            state::UNUSABLE => {
                about.refused = Some(format!("its library is there and cannot be used: {}", text.text()));
            }
            _ => {}
        }
    }

    fn close(&mut self, at_ns: i64, ended_by: u64) {
        let Some((start_ns, kind)) = self.open.take() else { return };
        let (process_id, pid) = self.ids;
        let window_ns = at_ns.saturating_sub(start_ns).max(0);
        self.closed.push_back((start_ns, at_ns));
        let is_old = |(_, off): &(i64, i64)| *off < at_ns - LATE_NS;
        while self.closed.front().is_some_and(is_old) || self.closed.len() > WINDOWS {
            self.closed.pop_front();
        }
        if let Some(about) = &mut self.about {
            about.windows += 1;
            about.on_ns += window_ns;
        }
        self.over =
            Some((GpuWindow { start_ns, window_ns, process_id, pid, kind, ended_by, lost: 0 }, self.lost_before));
    }

    /// All is told of the window that was closed last: it gets its row.
    fn write_window(&mut self, tables: &mut Tables) {
        let Some((window, before)) = self.over.take() else { return };
        let lost = self.about.as_ref().map_or(0, |about| about.dropped.saturating_sub(before));
        tables.gpu_window(&GpuWindow { lost: lost.min(i64::MAX as u64) as i64, ..window });
    }

    /// The window that is open as far as all of it is told, and the one before whose row may still change.
    pub(super) fn open_windows(&self) -> impl Iterator<Item = GpuWindow> {
        let (process_id, pid) = self.ids;
        let open = self.open.map(|(start_ns, kind)| {
            let window_ns = (self.settled_ns - start_ns).max(0);
            GpuWindow { start_ns, window_ns, process_id, pid, kind, ended_by: 0, lost: 0 }
        });
        self.over.map(|(window, _)| window).into_iter().chain(open)
    }

    /// Makes rows of what was told before the last pass began: it read every ring as far as that, and the calls are known. This
    /// pass began at `begin_ns`. `all`: no other record comes.
    pub(super) fn settle(&mut self, all: bool, begin_ns: i64, tables: &mut Tables, written: &Written) {
        self.samples.settle(all, tables);
        let read_to = if all { i64::MAX } else { std::mem::replace(&mut self.read_to_ns, begin_ns) };
        self.looked_to_ns = read_to;
        if self.waiting.is_empty() && self.fresh.is_empty() && self.ready.is_empty() && self.begins.is_empty() {
            return;
        }
        let now_ns = if all { begin_ns } else { read_to };
        while let Some((at_ns, is_anew)) = self.begins.front().copied().filter(|(at_ns, _)| *at_ns < read_to) {
            // Calls of the window before are forgotten with it: its records have come.
            let told = self.fresh.partition_point(|told| told.told_ns < at_ns);
            let mut records = std::mem::take(&mut self.waiting);
            records.extend(self.fresh.drain(..told));
            self.join(records, true, now_ns, written);
            self.calls.begin(at_ns);
            if is_anew {
                self.streams.clear();
            }
            self.on_since_ns = at_ns;
            self.begins.pop_front();
        }
        // Texts of one ring: they were told in their order.
        let known = self.fresh.partition_point(|told| told.told_ns < read_to);
        // Those without a call are looked at again now and then only.
        let again = all || now_ns - self.looked_ns > AGAIN_NS;
        let mut records = if again { std::mem::take(&mut self.waiting) } else { Vec::new() };
        records.extend(self.fresh.drain(..known));
        if again {
            self.looked_ns = now_ns;
        }
        self.join(records, all, now_ns, written);
        self.write(all, now_ns, tables);
    }

    /// Tells the process when each call of its last window has its record: CUPTI, which makes launches dearer while it is there, need
    /// not wait for more. Each call that began before `given_to_ns` is in a ring that this pass read, and known to the next.
    pub(super) fn tell(&mut self, given_to_ns: i64, now_ns: i64, header: &Header) {
        let known_to_ns = std::mem::replace(&mut self.given_to_ns, given_to_ns);
        let Some((ticks, _)) = self.untold.filter(|(_, off_ns)| known_to_ns > *off_ns) else { return };
        let has_all = self.fresh.is_empty() && self.waiting.is_empty();
        if has_all && self.calls.outstanding_ns(self.given_up_ns(now_ns)).is_none() {
            header.told_window.store(ticks, Ordering::Relaxed);
            self.untold = None;
        }
    }

    /// Whether the process waits for [`Self::tell`].
    pub(super) fn is_waited_for(&self, now_ns: i64) -> bool {
        self.untold.is_some_and(|(_, off_ns)| now_ns - off_ns < SETTLING_NS as i64)
    }

    /// No row that is still to come begins before this time; none: this process holds nobody up.
    pub(super) fn unwritten_ns(&mut self, now_ns: i64) -> Option<i64> {
        self.about.as_ref()?;
        // Before records are on, nothing is told of.
        let settled = self.open.map(|(on, _)| self.settled_ns.max(on - NEAR_NS));
        let told = self.fresh.iter().chain(&self.waiting).map(|told| told.begin_ns).min();
        let ready = self.ready.iter().map(|(row, _)| row.start_ns).min();
        let given_up_ns = self.given_up_ns(now_ns);
        let given = self.calls.outstanding_ns(given_up_ns);
        let earliest = [settled, told, ready, given].into_iter().flatten().min()?;
        // A process that stands still holds the others up for a while only.
        Some(earliest.max(given_up_ns))
    }

    /// Work that was given before is not waited for. Of what was told since the pass before the last one nothing is known yet: a
    /// collector that got no processor for long has its records still before it.
    fn given_up_ns(&self, now_ns: i64) -> i64 {
        now_ns.min(self.looked_to_ns) - GIVEN_UP_NS
    }

    /// Rows are written in the order of their begin.
    fn write(&mut self, all: bool, now_ns: i64, tables: &mut Tables) {
        let outstanding = self.calls.outstanding_ns(now_ns - GIVEN_UP_NS).unwrap_or(i64::MAX);
        let waiting = self.waiting.iter().map(|told| told.begin_ns).min().unwrap_or(i64::MAX);
        if all || self.ready.len() > MOST_HELD {
            self.ready.sort_by_key(|(row, _)| row.start_ns);
            self.ready.drain(..).for_each(|(row, worked)| tables.worked(row, worked));
            return;
        }
        let before_ns = self.settled_ns.min(outstanding).min(waiting);
        if !self.ready.iter().any(|(row, _)| row.start_ns < before_ns) {
            return;
        }
        self.ready.sort_by_key(|(row, _)| row.start_ns);
        let ready = self.ready.partition_point(|(row, _)| row.start_ns < before_ns);
        self.ready.drain(..ready).for_each(|(row, worked)| tables.worked(row, worked));
        if self.open.is_none() && self.waiting.is_empty() && self.fresh.is_empty() {
            self.calls.forget_before(now_ns - GIVEN_UP_NS);
        }
    }

    /// The process has ended: no other record comes.
    pub(super) fn finish(&mut self, ended_ns: i64, tables: &mut Tables, written: &Written) {
        self.cost.end_window();
        self.settle(true, ended_ns, tables, written);
        // Killed, or still at work: what was done after the last word is not known, and no idle time.
        let Some((on_ns, _)) = self.open else { return self.write_window(tables) };
        let known_ns = self.settled_ns.clamp(on_ns, ended_ns.max(on_ns));
        if let Some(about) = &mut self.about {
            about.known_until_ns = Some(known_ns);
        }
        self.cut_ns = (ended_ns - known_ns).max(0);
        self.close(known_ns, 0);
        self.write_window(tables);
    }
}
