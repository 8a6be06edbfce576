//! Recording that is switched by the wall clock ([`Capture`]), in all processes at once.

use std::time::Duration;

use super::Drain;
use crate::capture::Capture;
use crate::control::Client;

/// What is followed.
#[derive(Default)]
pub(super) struct Schedule {
    capture: Option<Capture>,
    /// When it says something else; what it says is done.
    next_ns: Option<i64>,
}

impl Schedule {
    /// Follows this from now on.
    pub(super) fn of(capture: Option<Capture>) -> Schedule {
        Schedule { capture, next_ns: None }
    }

    /// Whether recording is to be switched on or off now.
    fn due(&mut self, now_ns: i64) -> Option<bool> {
        let capture = self.capture?;
        if self.next_ns.is_some_and(|next_ns| now_ns < next_ns) {
            return None;
        }
        self.next_ns = capture.next_change(now_ns);
        if self.next_ns.is_none() {
            self.capture = None;
        }
        Some(capture.is_on(now_ns))
    }
}

impl Drain {
    /// How long nothing is to be switched.
    pub(super) fn until_switched(&self) -> Duration {
        let next_ns = self.schedule.next_ns.map(|next_ns| next_ns.saturating_sub(self.clocks.now_ns()).max(0));
        next_ns.map_or(Duration::MAX, |left| Duration::from_nanos(left as u64 / u64::from(self.config.speed.max(1))))
    }

    /// Switches what is due.
    pub(super) fn follow_schedule(&mut self) {
        let now_ns = self.clocks.now_ns();
        if let Some(on) = self.schedule.due(now_ns) {
            self.record_all(on);
        }
    }

    /// Follows what was asked for from now on.
    pub(super) fn schedule(&mut self, capture: Capture, client: Client) {
        if self.disabled.is_there {
            return client.answer(Err("an administrator switched recording off on this machine"));
        }
        self.schedule = Schedule::of(Some(capture));
        self.follow_schedule();
        client.answer(Ok(&self.trace().display().to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_due_once() {
        let length = Some(Duration::from_nanos(5));
        let mut schedule = Schedule::of(Some(Capture { from_ns: 10, length, every: None }));
        let due: Vec<_> = [3, 9, 10, 12, 30, 40].into_iter().map(|now| schedule.due(now)).collect();
        assert_eq!(due, [Some(false), None, Some(true), None, Some(false), None]);
        assert_eq!(Schedule::default().due(3), None);
    }

    #[test]
    fn a_window_that_nobody_looked_at_is_not_made_up_for() {
        let (length, every) = (Some(Duration::from_nanos(5)), Some(Duration::from_nanos(100)));
        let mut schedule = Schedule::of(Some(Capture { from_ns: 0, length, every }));
        let due: Vec<_> = [1, 2, 150, 199, 203, 206].into_iter().map(|now| schedule.due(now)).collect();
        assert_eq!(due, [Some(true), None, Some(false), None, Some(true), Some(false)]);
    }
}
