//! After a window: work that was given in it may still run, and is asked for until nothing comes any more.
//!
//! Each flush comes twice as late as the one before: it holds launches up, and what is left runs long. The collector, which
//! knows the calls, may say earlier that all of them have their work.

use gputrace_abi::windows::SETTLING_NS;

/// Flushes after the one with which the window ended: no fewer, and no more.
const LEAST: u32 = 5;
const MOST: u32 = 10;

/// When what is left of a window is asked for.
pub(super) struct Settling {
    /// Flushes so far; none: there is nothing to ask for.
    made: Option<u32>,
    due_ns: u64,
}

impl Settling {
    pub(super) const fn new() -> Settling {
        Settling { made: None, due_ns: 0 }
    }

    /// A window has ended, and what was complete is told.
    pub(super) fn begin(&mut self, now: u64) {
        *self = Settling { made: Some(0), due_ns: now + distance(0) };
    }

    pub(super) fn end(&mut self) {
        self.made = None;
    }

    /// When the next flush is due; none: it is over.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.made.map(|_| self.due_ns)
    }

    /// A flush brought so many records. True: it was the last.
    pub(super) fn flushed(&mut self, now: u64, records: u64) -> bool {
        let Some(made) = self.made.map(|made| made + 1) else { return false };
        let is_last = made >= MOST || (made >= LEAST && records == 0);
        (self.made, self.due_ns) = (Some(made).filter(|_| !is_last), now + distance(made));
        is_last
    }
}

/// How long after so many flushes the next one is due: [`LEAST`] of them take [`SETTLING_NS`].
fn distance(made: u32) -> u64 {
    (SETTLING_NS / ((1 << LEAST) - 1)) << made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_asked_for_until_nothing_comes() {
        let mut settling = Settling::new();
        assert!(settling.due_ns().is_none() && !settling.flushed(0, 9));
        settling.begin(1000);
        let mut at = 1000;
        let mut made = 0;
        while let Some(due) = settling.due_ns() {
            assert!(due > at);
            at = due;
            made += 1;
            // The sixth brings nothing.
            assert_eq!(settling.flushed(at, 6 - made), made == 6);
        }
        assert_eq!((made, at - 1000), (6, SETTLING_NS / 31 * 63));
        settling.begin(at);
        assert_eq!((0..20).take_while(|_| !settling.flushed(at, 1)).count(), 9, "work that never ends");
    }
}
