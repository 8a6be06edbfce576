//! Launches that were made while CUPTI was in the process and no record was on: it makes them dearer all the same.

use std::collections::VecDeque;

/// Stretches of time that are remembered, for launches that are read late.
const KEPT: usize = 64;

/// When CUPTI was there, and what was launched beside its windows.
#[derive(Debug, Default)]
pub(super) struct Attached {
    /// Since when it is there; none: it is not.
    since_ns: Option<i64>,
    /// From when to when it was.
    was: VecDeque<(i64, i64)>,
    launches: f64,
    /// Of these, those that were made while it could not be taken off.
    unspared: f64,
    /// How much of the time launches come ahead of the GPU, and are held up by nothing.
    hidden: f64,
}

impl Attached {
    /// Records went on: it is there.
    pub(super) fn begin(&mut self, at_ns: i64) {
        self.since_ns.get_or_insert(at_ns);
        self.hidden = 0.0;
    }

    /// It stays until the next window, for the GPU was busy for so many millionths of the last one.
    pub(super) fn hide(&mut self, busy_ppm: u64) {
        self.hidden = busy_ppm.min(1_000_000) as f64 / 1e6;
    }

    /// It was taken off, or serves somebody else.
    pub(super) fn end(&mut self, at_ns: i64) {
        let Some(since_ns) = self.since_ns.take() else { return };
        self.was.push_back((since_ns, at_ns));
        if self.was.len() > KEPT {
            self.was.pop_front();
        }
    }

    /// A call outside of all windows gave the GPU work, as dear to CUPTI as so many launches of a kernel. `stays`: it cannot be taken off.
    /// Of launches ahead of a busy GPU those count that it waits for.
    pub(super) fn launched(&mut self, at_ns: i64, launches: f64, stays: bool) {
        let now = self.since_ns.is_some_and(|since_ns| at_ns >= since_ns);
        if now || self.was.iter().rev().any(|(from, to)| (*from..*to).contains(&at_ns)) {
            let held_up = launches * (1.0 - self.hidden);
            self.launches += held_up;
            self.unspared += if stays { held_up } else { 0.0 };
        }
    }

    /// How many launches so far, and how many of them no plan could have spared.
    pub(super) fn launches(&self) -> (f64, f64) {
        (self.launches, self.unspared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_count_from_the_first_window_until_cupti_is_taken_off() {
        let mut attached = Attached::default();
        attached.launched(5, 1.0, false);
        assert_eq!(attached.launches(), (0.0, 0.0), "it was never there");
        attached.begin(10);
        attached.begin(20);
        attached.launched(9, 1.0, false);
        attached.launched(15, 1.0, false);
        attached.end(30);
        // Read late, and made after it was gone.
        attached.launched(25, 8.0, false);
        attached.launched(30, 1.0, false);
        attached.begin(40);
        attached.launched(50, 4.0, true);
        assert_eq!(attached.launches(), (13.0, 4.0));
        attached.hide(750_000);
        attached.launched(60, 4.0, false);
        assert_eq!(attached.launches(), (14.0, 4.0), "three of four came ahead of the GPU");
        attached.begin(70);
        attached.launched(80, 4.0, false);
        assert_eq!(attached.launches(), (18.0, 4.0), "nobody knows of this time yet");
    }
}
