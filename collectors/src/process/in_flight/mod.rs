//! What a process's threads are in the middle of, and what of it has stood still for long: the hang watch's evidence.
//!
//! A call that runs is in no ring: it stands in its thread's row. It stands still when nothing that it waits for has been seen
//! to go on since: of a stream its calls and what the GPU is known to have done of it, of anything else the calls of all other
//! threads, of a call of NCCL the driver's calls inside it.

#[cfg(test)]
mod tests;

use std::time::Duration;

use gputrace_abi::Class;
use gputrace_abi::event::{Event, detail};
use gputrace_abi::layout;
use gputrace_abi::sync::Ordering;

use super::Process;
use super::pending::StreamId;
use super::thread::Thread;
use crate::clock::Clocks;
use crate::facts::Hook;
use crate::outside;
use crate::tables::StackRow;

/// A call that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// Hook.
    pub(crate) hook: usize,
    /// Ticks when it began.
    pub(crate) start: u64,
    /// What it is about: a stream's or an event's handle, a communicator's number.
    pub(crate) about: u64,
}

/// A thread with a row, and the calls that it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    /// Its place among the threads.
    pub(crate) place: usize,
    /// A call of the driver.
    pub(crate) driver: Option<Running>,
    /// A call of a library above it, NCCL.
    pub(crate) library: Option<Running>,
    /// A call that may wait for the operating system.
    pub(crate) wait: Option<Running>,
}

/// A call that stands still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stuck {
    /// The thread.
    pub(crate) busy: Busy,
    /// The outermost call.
    pub(crate) call: Running,
    /// The stream that it waits for, where that is known.
    pub(crate) stream: Option<u64>,
}

/// A call that was reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    /// The thread's place and the call's start.
    call: (usize, u64),
    /// Its number among all hangs.
    pub(super) number: usize,
    /// Ticks when it returned.
    pub(super) returned: Option<u64>,
    /// It was no longer running when last looked at, and its event has not come.
    gone: bool,
}

/// What became of a hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    /// Its number.
    pub(crate) number: usize,
    /// When, ns since the Unix epoch.
    pub(crate) ended_ns: i64,
}

impl Process {
    /// The threads that have a row, with the calls that they are in.
    pub(crate) fn busy(&self) -> Vec<Busy> {
        let live = self.threads.iter().enumerate().skip(1).filter(|(_, thread)| thread.is_live());
        live.filter_map(|(place, thread)| {
            let row = self.segment.view().thread(thread.row)?;
            let running = |hook: &layout::ThreadRow| read(hook, thread);
            let (driver, library, wait) = running(row);
            Some(Busy { place, driver, library, wait })
        })
        .collect()
    }

    pub(crate) fn hook(&self, number: usize) -> Option<&Hook> {
        self.intake.hooks.get(number)
    }

    pub(crate) fn hook_name(&self, number: usize) -> &str {
        self.hook(number).map_or("", |hook| &hook.name)
    }

    /// Calls that have stood still for so long, and were not reported.
    pub(crate) fn stuck(&self, now_ns: i64, clocks: &Clocks, after: Duration) -> Vec<Stuck> {
        let still = |since_ns: i64| now_ns.saturating_sub(since_ns) >= after.as_nanos() as i64;
        let began_ns = |call: &Running| clocks.ns(self.clock, call.start);
        let mut stuck = Vec::new();
        for busy in self.busy() {
            let Some(call) = busy.library.or(busy.driver).filter(|call| still(began_ns(call))) else { continue };
            if self.reported.iter().any(|known| known.call == (busy.place, call.start)) {
                continue;
            }
            let stream = busy.driver.and_then(|call| self.stream_of(call, busy.place));
            if still(self.progress_ns(&busy, stream, clocks)) && !self.computes(&busy) {
                stuck.push(Stuck { busy, call, stream: stream.map(StreamId::handle) });
            }
        }
        // A process that somebody has stopped does nothing, and does not hang.
        if !stuck.is_empty() && !self.foreign && outside::is_stopped(self.pid) {
            stuck.clear();
        }
        stuck
    }

    /// The stream that a call waits for.
    fn stream_of(&self, call: Running, place: usize) -> Option<StreamId> {
        let hook = self.hook(call.hook).filter(|hook| hook.class == Class::Sync && !hook.metal)?;
        match hook.detail {
            detail::STREAM => {
                let per_thread = call.about == 0 && hook.name.ends_with("_ptsz");
                Some(StreamId::new(if per_thread { PER_THREAD } else { call.about }, place as u32))
            }
            detail::EVENT => self.pending.stream_of_event(call.about),
            _ => None,
        }
    }

    /// When something was last seen to go on that the call may wait for; the epoch where nothing was.
    fn progress_ns(&self, busy: &Busy, stream: Option<StreamId>, clocks: &Clocks) -> i64 {
        let ns = |ticks: u64| if ticks == 0 { 0 } else { clocks.ns(self.clock, ticks) };
        let own_ns = match busy.library {
            Some(_) => self.threads.get(busy.place).map_or(0, |thread| ns(thread.latest)),
            None => 0,
        };
        if busy.driver.is_none() {
            return own_ns;
        }
        let seen = match stream {
            Some(id) => self.pending.given().filter(|(_, of, ..)| *of == id).map(|(.., given, _)| given.touched).max(),
            None => {
                let others = self.threads.iter().enumerate().filter(|(place, _)| *place != busy.place);
                others.map(|(_, thread)| thread.worked).max()
            }
        };
        own_ns.max(ns(seen.unwrap_or(0))).max(self.gpu.done_ns(stream.map(StreamId::handle)))
    }

    /// Code is being compiled: that takes as long as it takes.
    fn computes(&self, busy: &Busy) -> bool {
        let module = |call: Running| self.hook(call.hook).is_some_and(|hook| hook.class == Class::Module);
        let tid = self.threads.get(busy.place).map_or(0, |thread| thread.tid);
        busy.driver.is_some_and(module) && !self.foreign && outside::is_on_processor(self.pid, tid)
    }

    /// These calls are reported from now on, the first with this number.
    pub(crate) fn report(&mut self, stuck: &[Stuck], first: usize) {
        let calls = stuck.iter().map(|stuck| (stuck.busy.place, stuck.call.start)).zip(first..);
        self.reported.extend(calls.map(|(call, number)| Reported { call, number, returned: None, gone: false }));
    }

    /// An event of a reported call says when it returned.
    #[cold]
    pub(super) fn note_return(&mut self, event: &Event) {
        let call = (event.commit as usize, event.start);
        if let Some(known) = self.reported.iter_mut().find(|known| known.call == call) {
            known.returned = Some(event.end);
        }
    }

    /// Reported calls that have returned since the last look.
    pub(crate) fn returned(&mut self, clocks: &Clocks) -> Vec<Over> {
        if self.reported.is_empty() {
            return Vec::new();
        }
        let busy = self.busy();
        let runs = |call: (usize, u64)| {
            busy.iter().any(|busy| {
                busy.place == call.0 && [busy.driver, busy.library].iter().flatten().any(|own| own.start == call.1)
            })
        };
        let mut over = Vec::new();
        for known in &mut self.reported {
            let gone = !runs(known.call);
            let ended_ns = match known.returned {
                Some(end) => Some(clocks.ns(self.clock, end)),
                // Its event may be on its way; of a call that was left there is none.
                None => (gone && known.gone).then(|| clocks.now_ns()),
            };
            known.gone = gone;
            over.extend(ended_ns.map(|ended_ns| Over { number: known.number, ended_ns }));
        }
        self.reported.retain(|known| !over.iter().any(|over| over.number == known.number));
        over
    }

    /// The process is read to its end: reported calls that returned, and those that were still running then.
    pub(crate) fn last_returned(&mut self, clocks: &Clocks) -> (Vec<Over>, Vec<usize>) {
        let (over, cut): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.reported).into_iter().partition(|known| known.returned.is_some());
        let ns = |ticks: Option<u64>| clocks.ns(self.clock, ticks.unwrap_or(0));
        let over = over.iter().map(|known| Over { number: known.number, ended_ns: ns(known.returned) }).collect();
        (over, cut.iter().map(|known| known.number).collect())
    }

    /// A thread's number and name.
    pub(crate) fn thread_name(&self, place: usize) -> (i32, Option<String>) {
        let thread = self.threads.get(place);
        let name = thread.and_then(|thread| thread.name.clone().or_else(|| thread.named.name.clone()));
        (thread.map_or(0, |thread| thread.tid), name)
    }

    /// The stack that the shim took last in a thread.
    pub(crate) fn last_stack(&self, place: usize) -> Vec<StackRow> {
        self.intake.stacks.last_of(place as u32)
    }
}

/// CU_STREAM_PER_THREAD.
const PER_THREAD: u64 = 2;

/// The calls that a thread is in: of the driver, of a library, of the operating system.
fn read(row: &layout::ThreadRow, thread: &Thread) -> (Option<Running>, Option<Running>, Option<Running>) {
    let running =
        |start: u64, hook: u64, about: u64| (start != 0).then_some(Running { hook: hook as usize, start, about });
    let word = |of: &gputrace_abi::sync::AtomicU64| of.load(Ordering::Relaxed);
    let wait = running(row.wait_start.load(Ordering::Acquire), word(&row.wait_hook), 0);
    let driver =
        running(row.in_flight_start.load(Ordering::Acquire), word(&row.in_flight_hook), word(&row.in_flight_about));
    let library = running(row.library_start.load(Ordering::Acquire), word(&row.library_hook), word(&row.library_about));
    // A call that was left by longjmp stays in the row until the thread's next one. Calls do not wait for the system where we
    // look, and a driver call is followed by no other before it is over.
    let left = |call: &Running| wait.is_some_and(|wait| wait.start > call.start);
    let followed = |call: &Running| thread.latest_start > call.start;
    (driver.filter(|call| !left(call) && !followed(call)), library.filter(|call| !left(call)), wait)
}
