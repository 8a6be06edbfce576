//! Which single events are kept: the stage between the tables' batches and the writer.
//!
//! Always on, nobody keeps every event. Rows of single events wait here in a bounded queue (`queue`) until a moment proves worth
//! keeping: somebody asks for it, a call fails for the first time, a process is killed (`Stage::trigger`). Then the rows that
//! began in an interval around it go on to the writer, and none else; windows of the wall clock need no queue. What leaves the
//! queue unwanted is counted by process and class, so that the account of every call stays exact. Rows that others refer to
//! (names, stacks, processes, ...) always go on: they are few. With [`Detail::Full`] there is no stage.

mod account;
mod devices;
mod failures;
mod kept;
mod new_kernels;
mod packed;
mod queue;
mod slow;
mod split;
mod steps;
#[cfg(test)]
mod tests;
mod triggers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use account::LeftOut;
pub use kept::{Earlier, Interval, KeptDetail, Windows};
use queue::{Held, Queue};
use split::Part;
pub use triggers::Triggers;
use triggers::Watchers;

use crate::counters::Id;
use crate::schema::TableId;
use crate::summed::Among;
use crate::writer::Message;

/// What follows a trigger is kept for this long.
const AFTER_NS: i64 = 1_000_000_000;
/// Rows stay for so much longer than is asked for: who notices a moment does so a little later.
const LATE_NS: i64 = 1_000_000_000;
/// Intervals that triggers may open; the run's own end has one more.
const MOST_INTERVALS: usize = 10;
/// Room for rows that wait, unless told.
pub const QUEUE_BYTES: u64 = 256 << 20;

/// Which single events the trace shall hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// All.
    #[default]
    Full,
    /// Those that begin in the first `length` of each `period` of the wall clock: at the same moments on all hosts.
    Windows {
        /// How long.
        length: Duration,
        /// How often.
        period: Duration,
    },
    /// Those so long before a moment worth keeping, and a second after it.
    Triggered {
        /// How long before.
        before: Duration,
        /// Bytes of rows that may wait for one.
        bytes: u64,
        /// What else is one, beside those that always are.
        also: Triggers,
    },
    /// None.
    Rollup,
}

impl Detail {
    fn name(self) -> &'static str {
        match self {
            Detail::Full => "full",
            Detail::Windows { .. } => "windows",
            Detail::Triggered { .. } => "triggered",
            Detail::Rollup => KeptDetail::ROLLUP,
        }
    }
}

/// Tables of which a row is one event, or what the GPU did for one. Any other goes on always.
pub(crate) fn is_single(table: TableId) -> bool {
    matches!(
        table,
        TableId::Launches
            | TableId::Syncs
            | TableId::Transfers
            | TableId::DeviceMemory
            | TableId::HostMemory
            | TableId::Api
            | TableId::Ranges
            | TableId::Collectives
            | TableId::OsWaits
            | TableId::Kernels
            | TableId::DeviceCopies
            | TableId::CommandBuffers
            | TableId::Dispatches
            | TableId::GpuSamples
            | TableId::GpuActivity
    )
}

/// Why a trigger opened no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing is held back for triggers.
    NoRecorder,
    /// There were as many as may be.
    TooMany,
}

impl Refused {
    /// What to say of it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Refused::NoRecorder => "this session holds nothing back that could be kept: it has no flight recorder",
            Refused::TooMany => "there are as many dumps in the trace as may be",
        }
    }
}

/// Hands messages on to the writer, by way of the stage where there is one.
pub(crate) fn hand_on(stage: &mut Option<Stage>, messages: impl IntoIterator<Item = Message>, to: &mut Vec<Message>) {
    match stage {
        Some(stage) => messages.into_iter().for_each(|message| stage.take(message, to)),
        None => to.extend(messages),
    }
}

/// The stage.
pub(crate) struct Stage {
    started_ns: i64,
    kept: KeptDetail,
    queue: Queue,
    /// Begin of the latest row that waited.
    newest_ns: i64,
    left_out: LeftOut,
    watchers: Watchers,
    /// Rows that are wanted, on their way to the writer, in order.
    wanted: VecDeque<Held>,
    wanted_bytes: usize,
}

impl Stage {
    /// The stage for what is asked for; none where all is. `started_ns`: when the run began.
    pub(crate) fn new(detail: Detail, started_ns: i64) -> Option<Stage> {
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let mut kept = KeptDetail { mode: detail.name().to_owned(), ..KeptDetail::default() };
        let also = if let Detail::Triggered { also, .. } = detail { also } else { Triggers::default() };
        let mut most_bytes = 0;
        match detail {
            Detail::Full => return None,
            Detail::Rollup => {}
            Detail::Windows { length, period } => {
                kept.windows = Some(Windows { length_ns: ns(length), period_ns: ns(period).max(1) });
            }
            Detail::Triggered { before, bytes, .. } => {
                (kept.before_ns, kept.after_ns) = (Some(ns(before)), Some(AFTER_NS));
                most_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
        }
        Some(Stage {
            started_ns,
            kept,
            queue: Queue::new(most_bytes),
            newest_ns: i64::MIN,
            left_out: LeftOut::default(),
            watchers: Watchers::new(also),
            wanted: VecDeque::new(),
            wanted_bytes: 0,
        })
    }

    fn before_ns(&self) -> Option<i64> {
        self.kept.before_ns
    }

    /// Takes a message; what always goes on goes to `on`.
    pub(crate) fn take(&mut self, message: Message, on: &mut Vec<Message>) {
        match message {
            Message::Rows(table, rows, shares) if is_single(table) => {
                let part = Part::new(table, rows, shares);
                if self.before_ns().is_some() {
                    for noted in self.watchers.look(&part) {
                        let _ = self.trigger(noted.at_ns, &noted.why);
                    }
                }
                self.sort(part);
            }
            message => {
                self.watchers.learn(&message);
                on.push(message);
            }
        }
    }

    /// What else is a moment worth keeping; none where nothing waits for one.
    pub(crate) fn triggers(&self) -> Option<Triggers> {
        self.before_ns().map(|_| self.watchers.asked())
    }

    /// Sets what else is a moment worth keeping.
    pub(crate) fn set_triggers(&mut self, also: Triggers) {
        self.watchers.ask(also);
    }

    /// A value was read of a device.
    pub(crate) fn see_device(&mut self, device: &Arc<str>, id: Id, value: f64, at_ns: i64) {
        if self.before_ns().is_some()
            && let Some(noted) = self.watchers.see(device, id, value, at_ns)
        {
            let _ = self.trigger(noted.at_ns, &noted.why);
        }
    }

    /// Gives the writer what is wanted of a batch, and has the rest wait where it may still be.
    fn sort(&mut self, part: Part) {
        let kept = &self.kept;
        let (wanted, rest) = part.split(|span| kept.touches(span), |at| kept.holds(at));
        if let Some(part) = wanted {
            self.want(Held::plain(part));
        }
        match rest {
            Some(part) if self.before_ns().is_some() => {
                self.newest_ns = self.newest_ns.max(part.span().1);
                self.queue.push(part);
                self.let_go(i64::MIN);
            }
            Some(part) => self.left_out.add(part.shares()),
            None => {}
        }
    }

    fn want(&mut self, held: Held) {
        self.wanted_bytes += held.bytes();
        self.wanted.push_back(held);
    }

    /// The same for what has waited: in the order in which it came, and unpacked only where it must be.
    fn sort_again(&mut self, held: Held) {
        if !self.kept.touches(held.span()) {
            self.queue.put_back(held);
        } else if self.kept.covers(held.span()) {
            self.want(held);
        } else {
            match held.unpack() {
                Ok(part) => self.sort(part),
                Err(shares) => self.left_out.add(&shares),
            }
        }
    }

    /// What began around this moment is worth keeping. Of a moment in an interval that is still open, that one is made longer.
    pub(crate) fn trigger(&mut self, at_ns: i64, why: &str) -> Result<i64, Refused> {
        self.open(at_ns, why, MOST_INTERVALS)
    }

    /// The same for the run's own end, which finds room however many there were.
    pub(crate) fn trigger_last(&mut self, at_ns: i64, why: &str) {
        let _ = self.open(at_ns, why, usize::MAX);
    }

    fn open(&mut self, at_ns: i64, why: &str, most: usize) -> Result<i64, Refused> {
        let before_ns = self.before_ns().ok_or(Refused::NoRecorder)?;
        let to_ns = at_ns.saturating_add(AFTER_NS);
        let intervals = &mut self.kept.intervals;
        let room = intervals.len() < most;
        match intervals.last_mut().filter(|last| (last.from_ns..last.to_ns).contains(&at_ns)) {
            Some(open) => {
                open.to_ns = open.to_ns.max(to_ns);
                if !open.why.contains(why) {
                    open.why = format!("{}; {why}", open.why);
                }
            }
            None if !room => {
                self.kept.refused += 1;
                return Err(Refused::TooMany);
            }
            None => {
                // Everything in an interval is there: it begins no earlier than what the queue still has.
                let from_ns = at_ns.saturating_sub(before_ns).max(self.started_ns).max(self.queue.complete_from_ns());
                intervals.push(Interval { from_ns: from_ns.min(at_ns), to_ns, why: why.to_owned() });
            }
        }
        self.queue.drain().into_iter().for_each(|held| self.sort_again(held));
        Ok(to_ns)
    }

    /// Lets go of what is too old to be wanted any more.
    pub(crate) fn tick(&mut self, now_ns: i64) {
        if let Some(before_ns) = self.before_ns() {
            self.let_go(now_ns.saturating_sub(before_ns).saturating_sub(LATE_NS));
        }
    }

    /// Lets go of what began before this moment, and of what there is no room for.
    fn let_go(&mut self, oldest_ns: i64) {
        while let Some(held) = self.queue.pop(oldest_ns) {
            let last_ns = held.span().1;
            let held_ns = self.newest_ns.saturating_sub(last_ns);
            if last_ns >= oldest_ns && self.before_ns().is_some_and(|before| held_ns < before) {
                self.kept.held_ns = Some(self.kept.held_ns.map_or(held_ns, |known| known.min(held_ns)));
            }
            self.left_out.add(held.shares());
        }
    }

    /// The next wanted rows for the writer.
    pub(crate) fn next(&mut self) -> Option<Message> {
        loop {
            let held = self.wanted.pop_front()?;
            self.wanted_bytes -= held.bytes();
            match held.unpack() {
                Ok(part) => {
                    let (table, rows, shares) = part.into_parts();
                    return Some(Message::Rows(table, rows, shares));
                }
                Err(shares) => self.left_out.add(&shares),
            }
        }
    }

    /// The writer had no room for it: it is the next again.
    pub(crate) fn put_back(&mut self, message: Message) {
        if let Message::Rows(table, rows, shares) = message {
            let held = Held::plain(Part::new(table, rows, shares));
            self.wanted_bytes += held.bytes();
            self.wanted.push_front(held);
        }
    }

    /// Whether so much waits for the writer that no more must come.
    pub(crate) fn is_full(&self) -> bool {
        self.wanted_bytes > QUEUE_BYTES as usize
    }

    /// Whether all wanted rows have gone to the writer.
    pub(crate) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// No other rows come: what still waits is not wanted, and no interval goes on.
    pub(crate) fn finish(&mut self, now_ns: i64) {
        self.kept.intervals.iter_mut().for_each(|interval| interval.to_ns = interval.to_ns.min(now_ns));
        self.queue.drain().iter().for_each(|held| self.left_out.add(held.shares()));
    }

    /// What the manifest says of it.
    pub(crate) fn describe(&self) -> KeptDetail {
        self.kept.clone()
    }

    /// Forgets those apart that are summed up in the manifest.
    pub(crate) fn sum_up(&mut self, among: &Among) {
        self.left_out.sum_up(among);
        self.watchers.forget(among);
    }

    /// The events that are not in the trace because of it: those that wait are not, as of now.
    pub(crate) fn left_out(&self) -> LeftOut {
        let mut all = self.left_out.clone();
        self.queue.iter().for_each(|held| all.add(held.shares()));
        all
    }
}
