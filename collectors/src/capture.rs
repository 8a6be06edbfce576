//! Windows of recording by the wall clock: all launchers that are given the same ones record at the same time.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When recording is on; of its own accord, or until somebody says something else (`gputrace start`, `gputrace stop`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// From this moment on, ns since the Unix epoch.
    pub from_ns: i64,
    /// For so long; none: to the end.
    pub length: Option<Duration>,
    /// At each multiple of this since the Unix epoch; none: once, from the first moment on. Longer than the length, which is given.
    pub every: Option<Duration>,
}

impl Capture {
    /// Nobody waits longer than a week: such a moment is in another unit, or of another clock.
    pub const LATEST: Duration = Duration::from_secs(7 * 86400);

    /// From so long after the Unix epoch on.
    pub fn new(from: Duration, length: Option<Duration>, every: Option<Duration>) -> Capture {
        Capture { from_ns: i64::try_from(from.as_nanos()).unwrap_or(i64::MAX), length, every }
    }

    /// Whether windows have a length where they come again, and are shorter than from one to the next. The names of both are for the
    /// error.
    pub fn check(
        length: Option<Duration>,
        every: Option<Duration>,
        [of_length, of_every]: [&str; 2],
    ) -> Result<(), String> {
        match (length, every) {
            (Some(length), _) if length.is_zero() => Err(format!("{of_length} 0 records nothing")),
            (None, Some(_)) => {
                Err(format!("{of_every} says how often recording is on; for how long, {of_length} must say"))
            }
            (Some(length), Some(every)) if length >= every => {
                Err(format!("{of_length} must be shorter than {of_every}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether recording is on at a moment.
    pub(crate) fn is_on(&self, now_ns: i64) -> bool {
        let passed = now_ns.saturating_sub(self.began(now_ns));
        passed >= 0 && self.length.is_none_or(|length| passed < ns(length))
    }

    /// When it is switched next after a moment; none: never again.
    pub(crate) fn next_change(&self, now_ns: i64) -> Option<i64> {
        let began = self.began(now_ns);
        if now_ns < began {
            return Some(began);
        }
        let end = began.saturating_add(ns(self.length?));
        if now_ns < end { Some(end) } else { self.every.map(|every| began.saturating_add(ns(every))) }
    }

    /// When the last window before a moment began; the first one, where none has.
    fn began(&self, now_ns: i64) -> i64 {
        let Some(every) = self.every.map(ns) else { return self.from_ns };
        // The first window is a whole one.
        let first = self.from_ns.saturating_add(every - 1).div_euclid(every).saturating_mul(every);
        first.max(now_ns.div_euclid(every).saturating_mul(every))
    }
}

impl fmt::Display for Capture {
    /// As the control socket hears it, which takes more than 292 years as well.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        write!(f, "from={}", self.from_ns)?;
        self.length.map_or(Ok(()), |length| write!(f, " for={}", whole(length)))?;
        self.every.map_or(Ok(()), |every| write!(f, " every={}", whole(every)))
    }
}

fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn capture(from_s: i64, length: Option<u64>, every: Option<u64>) -> Capture {
        Capture { from_ns: from_s * S, length: length.map(Duration::from_secs), every: every.map(Duration::from_secs) }
    }

    /// From when to when it is on, in s, of the first so many seconds, as who follows the changes finds it.
    fn windows(capture: Capture, until_s: i64) -> Vec<(i64, i64)> {
        let (mut found, mut now, mut since) = (Vec::new(), 0, None);
        loop {
            match (capture.is_on(now), since) {
                (true, None) => since = Some(now),
                (false, Some(from)) => {
                    found.push((from / S, now / S));
                    since = None;
                }
                (true, Some(_)) | (false, None) => {}
            }
            match capture.next_change(now).filter(|next| *next <= until_s * S) {
                Some(next) => now = next,
                None => return found.into_iter().chain(since.map(|from| (from / S, until_s))).collect(),
            }
        }
    }

    #[test]
    fn a_window_begins_after_a_delay_and_has_a_length() {
        assert_eq!(windows(capture(3, None, None), 20), [(3, 20)]);
        assert_eq!(windows(capture(3, Some(5), None), 20), [(3, 8)]);
        assert_eq!(windows(capture(0, Some(5), None), 20), [(0, 5)]);
    }

    #[test]
    fn windows_begin_with_the_wall_clocks_minutes_whenever_who_asks_for_them_started() {
        let all = [(10, 12), (20, 22), (30, 32)];
        assert_eq!(windows(capture(1, Some(2), Some(10)), 35), all);
        assert_eq!(windows(capture(10, Some(2), Some(10)), 35), all);
        assert_eq!(windows(capture(11, Some(2), Some(10)), 35), all[1..]);
    }
}
