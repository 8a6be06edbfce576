//! Recording that ranges of NVTX switch (`--nvtx-capture`, `--capture-steps`).
//!
//! A range that switches is one whose name is asked for, or one that means a step. One of them at a time is followed, from its begin
//! to its end, whatever other threads begin meanwhile; those inside of it are a part of it.

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::event::detail;
use gputrace_abi::steps;

use crate::{control, session, sys};

/// Ranges switch recording. What else stands here was written before, by the constructor.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// How the name of such a range begins, and the bytes of it; none: a name that means a step.
static NAME: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// The name may go on.
static IS_BEGIN: AtomicBool = AtomicBool::new(false);
/// Ranges that are recorded, counted from 1.
static FIRST: AtomicU32 = AtomicU32::new(1);
static LAST: AtomicU32 = AtomicU32::new(u32::MAX);

/// Ranges so far.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Who is followed ([`Who`]); 0: nobody.
static FOLLOWED: AtomicU64 = AtomicU64::new(0);
/// Levels of that thread's stack that are open, of which the range is the first. Only that thread changes it.
static LEVELS: AtomicU32 = AtomicU32::new(0);
/// Keys of registered strings whose name is such a one.
static REGISTERED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Reads what the launcher asked for. For the constructor.
pub(crate) fn configure() {
    let wanted = sys::variable(b"GPUTRACE_CAPTURE").unwrap_or_default();
    let (word, rest) = split(wanted);
    let (steps, name) = match word {
        b"nvtx" => (Some(1..=u32::MAX), rest),
        b"steps" => {
            let (first, rest) = split(rest);
            let (last, name) = split(rest);
            (session::number(first).zip(session::number(last)).map(|(first, last)| first as u32..=last as u32), name)
        }
        _ => return,
    };
    let Some(steps) = steps else { return };
    let is_begin = name.ends_with(b"*");
    let name = if is_begin { name.get(..name.len() - 1).unwrap_or_default() } else { name };
    ask(steps, name, is_begin);
}

fn ask(ranges: RangeInclusive<u32>, name: &[u8], is_begin: bool) {
    FIRST.store(*ranges.start(), Ordering::Relaxed);
    LAST.store(*ranges.end(), Ordering::Relaxed);
    for (place, byte) in NAME.iter().zip(name) {
        place.store(*byte, Ordering::Relaxed);
    }
    LENGTH.store(name.len().min(NAME.len()), Ordering::Relaxed);
    IS_BEGIN.store(is_begin, Ordering::Relaxed);
    IS_ON.store(true, Ordering::Release);
}

/// The first word, and what follows the space behind it.
fn split(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    (text.get(..end).unwrap_or_default(), text.get(end + 1..).unwrap_or_default())
}

/// Ranges switch recording.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Recording is on for a range: who forks now has a child that records as well.
pub(crate) fn is_recording() -> bool {
    let nth = COUNT.load(Ordering::Relaxed);
    is_on() && wanted(nth) && (FOLLOWED.load(Ordering::Relaxed) != 0 || is_followed_by_more(nth))
}

/// Whether the range behind this one is recorded as well, and what lies between them: so it is with steps.
fn is_followed_by_more(nth: u32) -> bool {
    let last = LAST.load(Ordering::Relaxed);
    last != u32::MAX && nth < last
}

fn wanted(nth: u32) -> bool {
    (FIRST.load(Ordering::Relaxed)..=LAST.load(Ordering::Relaxed)).contains(&nth)
}

/// Whether a range of this name switches recording.
pub(crate) fn is_asked(name: &[u8]) -> bool {
    let asked = NAME.get(..LENGTH.load(Ordering::Relaxed)).unwrap_or_default();
    if asked.is_empty() && !IS_BEGIN.load(Ordering::Relaxed) {
        return steps::rank(name).is_some();
    }
    let begins = name.len() >= asked.len() && asked.iter().zip(name).all(|(a, b)| a.load(Ordering::Relaxed) == *b);
    begins && (name.len() == asked.len() || IS_BEGIN.load(Ordering::Relaxed))
}

/// Remembers that a registered string is such a name.
pub(crate) fn register(key: u64) {
    let is_free = |place: &&AtomicU64| match place.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(known) => known == key,
    };
    let _ = REGISTERED.iter().find(is_free);
}

/// Whether a registered string is such a name.
pub(crate) fn is_registered(key: u64) -> bool {
    REGISTERED.iter().any(|known| known.load(Ordering::Relaxed) == key)
}

/// Whose range it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// The thread's row.
    pub(crate) thread: u16,
    /// Key of the domain.
    pub(crate) domain: u64,
    /// The range's number, where it has one.
    pub(crate) number: u64,
}

impl Who {
    /// A number for whoever may end it: its thread, or who has its number; never 0.
    fn id(self, detail: u8) -> u64 {
        let is_stacked = matches!(detail, detail::PUSH | detail::POP);
        let whose = if is_stacked { u64::from(self.thread) << 1 | 1 } else { self.number << 1 };
        (self.domain.rotate_left(20) ^ whose).max(1)
    }
}

/// A range begins, which switches recording if its name is asked for. Before its event is written.
pub(crate) fn begins(who: Who, detail: u8, is_asked: bool) {
    if !matches!(detail, detail::PUSH | detail::START) {
        return;
    }
    let id = who.id(detail);
    let is_followed = FOLLOWED.load(Ordering::Relaxed) == id;
    if is_followed && detail == detail::PUSH {
        LEVELS.store(LEVELS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        return;
    }
    if !is_asked || FOLLOWED.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    LEVELS.store(1, Ordering::Relaxed);
    let nth = COUNT.load(Ordering::Relaxed).saturating_add(1);
    COUNT.store(nth, Ordering::Relaxed);
    if wanted(nth) {
        control::switch(true);
    }
}

/// A range ends, and recording with it if it was the one that switched it on. After its event was written.
pub(crate) fn ends(who: Who, detail: u8) {
    if !matches!(detail, detail::POP | detail::END) || FOLLOWED.load(Ordering::Relaxed) != who.id(detail) {
        return;
    }
    let left = LEVELS.load(Ordering::Relaxed).wrapping_sub(1);
    LEVELS.store(left, Ordering::Relaxed);
    if left != 0 && detail == detail::POP {
        return;
    }
    let nth = COUNT.load(Ordering::Relaxed);
    if wanted(nth) && !is_followed_by_more(nth) {
        control::switch(false);
    }
    FOLLOWED.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Who = Who { thread: 3, domain: 0, number: 0 };

    /// One test: what it is about is the process's.
    #[test]
    fn names_are_asked_for_and_one_range_at_a_time_is_followed() {
        ask(1..=u32::MAX, b"valid", false);
        assert!(is_on() && is_asked(b"valid") && !is_asked(b"validation") && !is_asked(b"val") && !is_asked(b"step"));
        ask(1..=u32::MAX, b"valid", true);
        assert!(is_asked(b"valid") && is_asked(b"validation") && !is_asked(b"vali"));
        ask(2..=3, b"", false);
        assert!(is_asked(b"step 3") && is_asked(b"ProfilerStep#9") && !is_asked(b"forward") && !is_asked(b""));

        for wanted in [false, true, true, false] {
            begins(A, detail::PUSH, true);
            // A range inside of it, which is a step by its name, is no other step.
            begins(A, detail::PUSH, true);
            begins(Who { thread: 4, ..A }, detail::PUSH, true);
            assert_eq!(is_recording(), wanted);
            ends(Who { thread: 4, ..A }, detail::POP);
            ends(A, detail::POP);
            assert_ne!(FOLLOWED.load(Ordering::Relaxed), 0);
            ends(A, detail::POP);
            assert_eq!(FOLLOWED.load(Ordering::Relaxed), 0);
        }

        ask(1..=u32::MAX, b"all", false);
        let started = Who { number: 7, ..A };
        begins(started, detail::START, true);
        begins(started, detail::MARK, true);
        ends(Who { number: 8, ..started }, detail::END);
        assert!(is_recording());
        // Another thread may end it.
        ends(Who { thread: 9, ..started }, detail::END);
        assert!(!is_recording());

        register(77);
        register(77);
        assert!(is_registered(77) && !is_registered(78));
        assert_eq!(REGISTERED.iter().filter(|place| place.load(Ordering::Relaxed) == 77).count(), 1);
    }
}
