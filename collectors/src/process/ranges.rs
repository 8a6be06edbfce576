//! Ranges: events that begin and end them are paired, and become a row when both are there.
//!
//! A pop ends what its thread pushed last in the same domain. Each event carries a count of its thread's range events:
//! where some are missing (a full ring, a pause) nothing is paired across the gap, and what was open then has no end in
//! the trace. A range with a number may end in any thread; its end may be read before its beginning.

use std::collections::{HashMap, VecDeque};

use gputrace_abi::Class;
use gputrace_abi::event::{Event, detail, range};

use super::Process;
use crate::clock::Clocks;
use crate::names::Written;
use crate::tables::{BATCH_ROWS, Range, RangeKind, Tables};

/// Open ranges of one process that are remembered. Where there are more, the rest get no end.
const MOST_OPEN: usize = 1 << 16;
/// Ends that wait for a beginning which may be read later.
const MOST_EARLY: usize = 1 << 10;
/// Categories of one process whose names are kept.
const MOST_CATEGORIES: usize = 1 << 14;

/// A range that has begun.
#[derive(Clone, Copy, Debug)]
struct Open {
    range: Range,
    start: u64,
    domain: u64,
}

/// What a thread has pushed and not popped.
#[derive(Debug, Default)]
pub(super) struct Pushed {
    open: Vec<Open>,
    /// Count of the next event; none before the first.
    next: Option<u16>,
}

impl Pushed {
    fn pop(&mut self, domain: u64) -> Option<Open> {
        let last = self.open.iter().rposition(|open| open.domain == domain)?;
        Some(self.open.remove(last))
    }
}

/// Ranges of a process that any thread may end, and the names of its categories.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// By number; a number that was given twice ends the later range first.
    numbered: HashMap<u64, Vec<Open>>,
    early: VecDeque<(u64, u64)>,
    open: usize,
    categories: HashMap<(u64, u32), i64>,
    /// Ends without a beginning.
    pub(super) orphans: u64,
}

impl Ranges {
    /// A category of a domain is called so.
    pub(super) fn name_category(&mut self, domain: u64, category: u64, name_id: i64) {
        if self.categories.len() < MOST_CATEGORIES {
            self.categories.insert((domain, category as u32), name_id);
        }
    }

    fn take_numbered(&mut self, number: u64) -> Option<Open> {
        let same = self.numbered.get_mut(&number)?;
        let last = same.pop();
        if same.is_empty() {
            self.numbered.remove(&number);
        }
        last
    }

    fn has_room(&mut self) -> bool {
        let room = self.open < MOST_OPEN;
        self.open += usize::from(room);
        room
    }
}

impl Process {
    /// Takes the range events among these in.
    pub(super) fn pair_ranges(&mut self, events: &[Event], clocks: &Clocks, tables: &mut Tables, written: &Written) {
        let hooks = &self.intake.hooks;
        let of_range = |e: &&Event| hooks.get(usize::from(e.hook)).is_some_and(|h| h.class == Class::Range);
        let mut ranges: Vec<Event> = events.iter().filter(of_range).copied().collect();
        // Events of the shared chain are read before those of the threads' own.
        ranges.sort_by_key(|e| e.start);
        for part in ranges.chunks(BATCH_ROWS) {
            for event in part {
                self.take_range(event, clocks, tables, written);
            }
            tables.settle();
        }
    }

    fn take_range(&mut self, event: &Event, clocks: &Clocks, tables: &mut Tables, written: &Written) {
        let Some(detail) = self.intake.hooks.get(usize::from(event.hook)).map(|h| h.detail) else { return };
        let place = event.commit as usize;
        let Some(thread) = self.threads.get_mut(place) else { return };
        if thread.pushed.next.replace(event.result.wrapping_add(1)).is_some_and(|next| next != event.result) {
            self.leave_open(place, tables);
        }
        let domain = event.payload[1];
        match detail {
            detail::PUSH => {
                let Some(open) = self.begin(event, RangeKind::PushPop, clocks, written) else { return };
                let room = self.ranges.has_room();
                match self.threads.get_mut(place) {
                    Some(thread) if room => thread.pushed.open.push(open),
                    _ => tables.range(&open.range),
                }
            }
            detail::POP => match self.threads.get_mut(place).and_then(|thread| thread.pushed.pop(domain)) {
                Some(open) => self.end(open, event.start, clocks, tables),
                None => self.ranges.orphans += 1,
            },
            detail::START => {
                let Some(open) = self.begin(event, RangeKind::StartEnd, clocks, written) else { return };
                if let Some(at) = self.ranges.early.iter().position(|(number, _)| *number == event.end)
                    && let Some((_, end)) = self.ranges.early.remove(at)
                {
                    self.ranges.open += 1;
                    self.end(open, end, clocks, tables);
                } else if self.ranges.has_room() {
                    self.ranges.numbered.entry(event.end).or_default().push(open);
                } else {
                    tables.range(&open.range);
                }
            }
            detail::END => self.end_numbered(event, clocks, tables),
            _ => {
                let Some(mut mark) = self.begin(event, RangeKind::Mark, clocks, written) else { return };
                mark.range.end_ns = Some(mark.range.start_ns);
                tables.range(&mark.range);
            }
        }
    }

    fn begin(&mut self, event: &Event, kind: RangeKind, clocks: &Clocks, written: &Written) -> Option<Open> {
        let thread = self.threads.get_mut(event.commit as usize)?;
        let number = thread.calls;
        thread.calls += 1;
        let [name, domain, payload, category] = event.payload;
        let has = |flag: u16| event.flags & flag != 0;
        let level = thread.pushed.open.iter().filter(|open| open.domain == domain).count();
        let (category, color) = (category as u32, (category >> 32) as i64);
        let range = Range {
            start_ns: clocks.ns(self.clock, event.start),
            end_ns: None,
            process_id: self.id,
            pid: self.pid,
            tid: thread.tid,
            correlation_id: thread.correlation() | (number & 0xffff_ffff) as i64,
            kind,
            name_id: written.by_key(name),
            domain_id: written.by_key(domain),
            level: (kind == RangeKind::PushPop).then_some(level as i32),
            category: (category != 0).then_some(category as i32),
            category_id: self.ranges.categories.get(&(domain, category)).copied().filter(|_| category != 0),
            color: has(range::COLOR).then_some(color),
            payload_int: has(range::INTEGER).then_some(payload as i64),
            payload_float: has(range::FLOAT).then(|| f64::from_bits(payload)),
        };
        Some(Open { range, start: event.start, domain })
    }

    fn end(&mut self, open: Open, ticks: u64, clocks: &Clocks, tables: &mut Tables) {
        self.ranges.open = self.ranges.open.saturating_sub(1);
        let end_ns = open.range.start_ns.saturating_add(clocks.span_ns(self.clock, open.start, ticks));
        tables.range(&Range { end_ns: Some(end_ns), ..open.range });
    }

    fn end_numbered(&mut self, event: &Event, clocks: &Clocks, tables: &mut Tables) {
        match self.ranges.take_numbered(event.end) {
            Some(open) => self.end(open, event.start, clocks, tables),
            None => {
                self.ranges.early.push_back((event.end, event.start));
                if self.ranges.early.len() > MOST_EARLY {
                    self.ranges.early.pop_front();
                    self.ranges.orphans += 1;
                }
            }
        }
    }

    /// What a thread has pushed becomes rows without an end.
    pub(super) fn leave_open(&mut self, place: usize, tables: &mut Tables) {
        let Some(thread) = self.threads.get_mut(place) else { return };
        for open in std::mem::take(&mut thread.pushed.open) {
            self.ranges.open = self.ranges.open.saturating_sub(1);
            tables.range(&open.range);
        }
    }

    /// Ranges of any thread that never ended become rows without an end.
    pub(super) fn leave_numbered_open(&mut self, tables: &mut Tables) {
        let mut left: Vec<Open> = std::mem::take(&mut self.ranges.numbered).into_values().flatten().collect();
        left.sort_by_key(|open| open.start);
        left.iter().for_each(|open| tables.range(&open.range));
        self.ranges.orphans += self.ranges.early.len() as u64;
        self.ranges.early.clear();
    }
}
