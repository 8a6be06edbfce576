//! Our thread: switches records on and off as it is time, has CUPTI give them out, and writes them into its ring.

use core::sync::atomic::Ordering;

use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::{reason, state};

use super::asking::CALLBACKS_ARE_OURS;
use super::busy::Busy;
use super::clock::Clock;
use super::library::Cupti;
use super::settling::Settling;
use super::teller::Teller;
use super::windows::{self, Plan};
use super::{
    BELL, END, IS_AUTO, IS_ON, Mode, aside, at_exit, buffers, cupti_is_usable, detach, flusher, mode, ready, search,
};
use crate::interpose::elf;
use crate::stack::rate;
use crate::{capture, ending, session, sys, thread};

/// CUPTI is asked for what is complete, while records are on, when it had some for so long and gave nothing back by itself. A
/// flush takes some ms where much comes.
const FLUSH_AFTER_NS: u64 = 200_000_000;
/// Where buffers come back by themselves, what was complete so long before the last that was read is in those that were read.
const FLOW_US: u64 = 1_000_000;
/// And is told this often.
const TOLD_EVERY_US: u64 = 250_000;
/// How often buffers that came back by themselves are read.
const READ_EVERY_NS: u64 = 10_000_000;
/// And so many of them before anything else is looked at: some ten milliseconds' work.
const READ_AT_ONCE: usize = 4;
/// Nothing is on: a look now and then, for who else uses CUPTI and what the collector says of the budget.
const LOOK_EVERY_NS: u64 = 100_000_000;
/// No shorter: the schedule is no matter of microseconds.
const SHORTEST_NAP_NS: u64 = 1_000_000;

/// Our thread's work.
pub(super) fn run() {
    let Some(state) = thread::state_slow() else { return };
    let mut teller = Teller::new(state);
    let Some(cupti) = search::find(&mut teller) else { return };
    flusher::start();
    let plan = Plan::new(mode() == Mode::Full);
    let settling = Settling::new();
    let mut engine = Engine {
        cupti,
        teller,
        plan,
        clock: Clock::new(),
        settling,
        flushed_ns: 0,
        quiet_ns: 0,
        settled: 0,
        busy: Busy::since(0),
        closed: 0,
        is_off_for_good: false,
        failed: 0,
        was_used: true,
        stays: None,
    };
    engine.serve();
}

/// Waits for the bell, at most so long. False: the process ends.
pub(super) fn pause(ns: u64) -> bool {
    let heard = BELL.load(Ordering::Acquire);
    if END.load(Ordering::Acquire) != 0 {
        return false;
    }
    sys::wait(&BELL, heard, ns);
    END.load(Ordering::Acquire) == 0
}

pub(super) struct Engine {
    pub(super) cupti: Cupti,
    pub(super) teller: Teller,
    pub(super) plan: Plan,
    /// Where CUPTI tells times on its own.
    pub(super) clock: Clock,
    /// What a window still has to bring.
    settling: Settling,
    pub(super) flushed_ns: u64,
    /// When CUPTI last had nothing, or gave something back by itself.
    quiet_ns: u64,
    /// What was complete at this moment, in ticks, is told; records are on since then, or it was told before.
    pub(super) settled: u64,
    /// What the GPU did in the window that is open, or was last.
    pub(super) busy: Busy,
    /// When records went off, in ticks.
    pub(super) closed: u64,
    /// CUPTI said no, and will again, or it is given up.
    pub(super) is_off_for_good: bool,
    /// Flushes that failed one after the other.
    pub(super) failed: u32,
    /// CUPTI was, and no launch was timed.
    was_used: bool,
    /// Why CUPTI stays between windows, as it was told last.
    stays: Option<u64>,
}

impl Engine {
    fn serve(&mut self) {
        let mut listening = false;
        if IS_AUTO.load(Ordering::Relaxed) && detach::obstacle(&self.cupti) == Some(reason::VERSION) {
            self.give_up(reason::VERSION);
        }
        loop {
            let now = sys::clock_ns(sys::MONOTONIC);
            self.look_aside();
            detach::answer(|why| self.bind(why));
            // Our thread began when they were there.
            if let Some(why) = detach::bound().filter(|_| IS_AUTO.load(Ordering::Relaxed)) {
                self.bind(why);
            }
            let is_usable = !self.is_off_for_good && !aside::is_wanted(now);
            // Where no window opens for some time, launches are timed meanwhile.
            let is_used = is_usable && (IS_ON.load(Ordering::Relaxed) || !windows::are_shed());
            if is_used != self.was_used {
                self.was_used = is_used;
                cupti_is_usable(is_used);
            }
            let changes_ns = if !is_usable {
                self.plan.interrupt(now);
                u64::MAX
            } else {
                self.follow(now)
            };
            let is_on = IS_ON.load(Ordering::Relaxed);
            if !listening && is_on {
                // After CUPTI registered its own functions: what was registered last is called first.
                ending::on_exit(at_exit);
                listening = true;
            }
            ready();
            let at = session::now();
            let (came, unread) = self.read_some(READ_AT_ONCE);
            if came > 0 || !buffers::are_given() {
                self.quiet_ns = now;
                self.flow(unread.unwrap_or(at));
            }
            let flush_ns = match is_on {
                true => Some(self.flushed_ns.max(self.quiet_ns).saturating_add(FLUSH_AFTER_NS)),
                false => self.settling.due_ns(),
            };
            if flush_ns.is_some_and(|due_ns| due_ns <= now) {
                let told = self.flush();
                if !is_on && self.settling.flushed(now, told) {
                    self.part(now);
                }
            }
            if self.settling.due_ns().is_some() && windows::are_told(self.closed) {
                self.settling.end();
                self.part(now);
            }
            let nap = match is_on || self.settling.due_ns().is_some() {
                _ if unread.is_some() => SHORTEST_NAP_NS,
                true => READ_EVERY_NS,
                false => LOOK_EVERY_NS,
            };
            if !pause(changes_ns.saturating_sub(now).clamp(SHORTEST_NAP_NS, nap)) {
                break;
            }
        }
        self.end();
    }

    /// Buffers come back by themselves, or there is nothing that could: what was complete some time before is told. `read`: all
    /// that came back before then is read, in ticks.
    fn flow(&mut self, read: u64) {
        let at = read.saturating_sub(rate::ticks(FLOW_US));
        if IS_ON.load(Ordering::Relaxed) && at.saturating_sub(self.settled) >= rate::ticks(TOLD_EVERY_US) {
            self.settled(at);
        }
    }

    /// Switches records as the plan says; until when that holds.
    fn follow(&mut self, now: u64) -> u64 {
        let (on, until_ns) = self.plan.step(now, detach::obstacle(&self.cupti).is_none());
        match (on, IS_ON.load(Ordering::Relaxed)) {
            // CUPTI allocates when it is put on, and a capture may forbid that to the whole process.
            (true, false) if capture::any() => {}
            (true, false) if detach::is_too_late() => self.give_up(reason::PEERS),
            (true, false) => {
                // It never left: a window that comes before the last one has settled.
                if CALLBACKS_ARE_OURS.load(Ordering::Relaxed) {
                    self.tell_stay(detach::obstacle(&self.cupti));
                }
                self.settling.end();
                self.turn_on(self.plan.reason());
                // To put CUPTI on takes its time.
                let began = sys::clock_ns(sys::MONOTONIC);
                self.plan.began(began);
                self.busy = Busy::since(began);
            }
            (false, true) => {
                self.turn_off(reason::WINDOW);
                self.flush();
                // Unless that was one failure too many.
                if !self.is_off_for_good {
                    self.settling.begin(now);
                }
            }
            _ => {}
        }
        until_ns
    }

    /// A window is over, and all that was given in it is told: CUPTI is taken off, where it may be and that is worth while.
    fn part(&mut self, now: u64) {
        let obstacle = detach::obstacle(&self.cupti);
        let busy_ppm = self.busy.ppm(self.plan.open_ns());
        if obstacle.is_none() && !self.plan.is_long_until_next(now, busy_ppm) {
            self.teller.tell(text_kind::GPU_TIME, busy_ppm, state::BUSY, b"");
            return;
        }
        let why = obstacle.or_else(|| {
            let gone = self.detach() || aside::is_wanted(now);
            (!gone).then_some(reason::FAILED)
        });
        self.tell_stay(why);
    }

    /// CUPTI stays beyond a window, and may not be taken off: that is said each time that the reason is another one.
    fn tell_stay(&mut self, why: Option<u64>) {
        if why.is_some() && why != self.stays {
            self.stays = why;
            self.teller.tell(text_kind::GPU_TIME, why.unwrap_or(0), state::STAYS, b"");
        }
    }

    /// The program is about to make its first graph, or to join others. A budget does not hold while CUPTI is there, and it could not
    /// be taken off any more: where launches can be timed instead, they are. Else it stays, and is put on as long as that
    /// can be done.
    fn bind(&mut self, why: u64) {
        if self.is_off_for_good {
            return;
        }
        if !IS_AUTO.load(Ordering::Relaxed) {
            return self.put_on();
        }
        if IS_ON.load(Ordering::Relaxed) {
            self.turn_off(why);
        }
        if CALLBACKS_ARE_OURS.load(Ordering::Relaxed) {
            self.flush();
        }
        self.detach();
        self.give_up(why);
    }

    /// CUPTI gives nothing out, again and again: it is not asked any more.
    pub(super) fn fail(&mut self) {
        if IS_ON.load(Ordering::Relaxed) {
            self.turn_off(reason::FLUSH);
        }
        self.give_up(reason::FLUSH);
        if !self.detach() {
            self.tell_stay(detach::obstacle(&self.cupti).or(Some(reason::FAILED)));
        }
    }

    fn give_up(&mut self, why: u64) {
        self.settling.end();
        self.is_off_for_good = true;
        self.teller.tell(text_kind::GPU_TIME, why, state::GIVEN_UP, b"");
    }

    fn end(&mut self) {
        self.look_aside();
        if IS_ON.load(Ordering::Relaxed) {
            self.turn_off(reason::END);
        }
        // Not what is theirs.
        if CALLBACKS_ARE_OURS.load(Ordering::Relaxed) {
            if self.plan.is_over() {
                self.tell_stay(detach::obstacle(&self.cupti));
            }
            self.flush();
        }
        self.read();
    }

    /// Tells what [`aside`] did.
    fn look_aside(&mut self) {
        if let Some(news) = aside::take_news() {
            if news.was_on {
                self.teller.tell_at(text_kind::GPU_TIME, reason::ASIDE, state::OFF, b"", news.at);
            }
            self.settling.end();
            self.teller.tell_at(text_kind::GPU_TIME, 0, state::ASIDE, news.name, news.at);
            if let Some(address) = news.refused {
                let file = elf::file_of(address);
                let file = file.split(|byte| *byte == 0).next().unwrap_or_default();
                self.teller.tell_at(text_kind::GPU_TIME, 0, state::OTHER_COPY, file, news.at);
            }
        }
        if aside::is_over(sys::clock_ns(sys::MONOTONIC)) {
            self.teller.tell(text_kind::GPU_TIME, 0, state::RESUMED, b"");
        }
    }
}
