//! The GPU's time beside the host's, in one context: when an event that is recorded at some moment can come first.
//!
//! A stream that has nothing to do passes an event as soon as it gets it. So the first event of a pair may be passed while the
//! host is still making the launch, and the time until the second one would hold that too: 3 us of a kernel's 2 in a program
//! that the host cannot feed. But when the GPU can have got the launch is known: at the host's time of the call and what it takes
//! from the host to an idle GPU, which is the least that was seen between the begin of a record's call and the event's time.
//! Such a launch does not wait for its first event either, and may have less of what a pair takes by itself.
//! Times of both clocks are compared by events in a stream of ours, again and again: the clocks drift by some millionths.

use super::price::Price;

/// What was least holds for about so long.
const WINDOW_NS: f64 = 250e6;
/// Two comparisons so far apart give the rate of both clocks; further apart, an event's time has too few digits.
const APART_NS: f64 = 500e6;
const TOO_FAR_NS: f64 = 4e9;

/// Times on the GPU are ns since the last comparison's event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Ticks before that event was recorded, and ns of CLOCK_MONOTONIC.
    ticks: u64,
    monotonic_ns: u64,
    /// ns of the GPU in a tick.
    rate: f64,
    /// GPU's ns and ticks since the rate was found.
    since: (f64, f64),
    /// The least from the begin of a record's call to its event: of this window and the one before.
    least_ns: [f64; 2],
    /// The least time that a record's call took: the same.
    call_ns: [f64; 2],
    window_ns: f64,
    pub(super) error_ns: f64,
}

/// A pair's times: ticks as [`super::pool::Pair::ticks`] has them, and the GPU's of both events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) ticks: [u64; 4],
    pub(super) gpu_ns: [f64; 2],
}

/// When a launch ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ran {
    /// ns of CLOCK_MONOTONIC.
    pub(super) start_ns: u64,
    pub(super) gpu_ns: f64,
}

impl Clock {
    /// The first comparison: its event was recorded at `ticks`. `rate`: ns in a tick.
    pub(super) fn new(ticks: u64, monotonic_ns: u64, rate: f64, error_ns: f64) -> Clock {
        Clock {
            ticks,
            monotonic_ns,
            rate,
            since: (0.0, 0.0),
            least_ns: [0.0; 2],
            call_ns: [f64::INFINITY; 2],
            window_ns: 0.0,
            error_ns,
        }
    }

    /// ns of the GPU from the comparison to a moment of the host.
    fn at(&self, ticks: u64) -> f64 {
        ticks.wrapping_sub(self.ticks) as i64 as f64 * self.rate
    }

    /// Another comparison, `gpu_ns` after the last one.
    pub(super) fn compare(&mut self, gpu_ns: f64, ticks: u64, monotonic_ns: u64, error_ns: f64) {
        let host = ticks.wrapping_sub(self.ticks) as f64;
        if gpu_ns > TOO_FAR_NS {
            // Nothing was timed for long.
            *self = Clock::new(ticks, monotonic_ns, self.rate, error_ns);
            return;
        }
        // What this event took from the host to the GPU, on the scale of the last one.
        let took_ns = gpu_ns - host * self.rate;
        self.least_ns.iter_mut().for_each(|least| *least = (*least - took_ns).min(0.0));
        self.window_ns += gpu_ns;
        if self.window_ns > WINDOW_NS {
            (self.least_ns, self.call_ns) = ([0.0, self.least_ns[0]], [f64::INFINITY, self.call_ns[0]]);
            self.window_ns = 0.0;
        }
        self.since = (self.since.0 + gpu_ns, self.since.1 + host);
        if self.since.0 > APART_NS && self.since.1 > 0.0 {
            self.rate = self.since.0 / self.since.1;
            self.since = (0.0, 0.0);
        }
        (self.ticks, self.monotonic_ns, self.error_ns) = (ticks, monotonic_ns, error_ns);
    }

    fn least(&self) -> f64 {
        self.least_ns[0].min(self.least_ns[1])
    }

    /// When the launch of a pair ran; `price` is what a pair takes by itself. None: the second event came too late to say.
    pub(super) fn ran(&mut self, times: &Times, price: Price) -> Option<Ran> {
        const LATE_NS: f64 = 10_000.0;
        const CLOSE_NS: f64 = 3_000.0;
        let [before, start, end, after] = times.ticks.map(|ticks| self.at(ticks));
        let [from, to] = times.gpu_ns;
        self.least_ns[0] = self.least_ns[0].min(from - before);
        self.call_ns[0] = self.call_ns[0].min(start - before);
        let call = self.call_ns[0].min(self.call_ns[1]);
        // When an idle GPU gets what is given at the end of a call that takes as long as this one.
        let gets = |end: f64| end - call + self.least();
        // The host was stopped between the launch and the second event, and the GPU waited for that: or was busy, who knows.
        if after - end > call + LATE_NS && to <= gets(after) + CLOSE_NS {
            return None;
        }
        let got = gets(end);
        let begin = from.max(got);
        // The same in the midst of the launch, before it reached the GPU or after.
        if end - start > 2.0 * LATE_NS && begin > from + LATE_NS {
            return None;
        }
        let without = (from + price.queued_ns).max(got + price.idle_ns);
        let gpu_ns = (to - without).max(0.0);
        Some(Ran { start_ns: self.monotonic_ns.saturating_add_signed(begin as i64), gpu_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host whose ticks are 0.5 ns, and a GPU that is 5 s ahead and gets what it is given 2 us after the call began.
    fn clock() -> Clock {
        Clock::new(1_000_000, 7_000_000, 0.5, 100.0)
    }

    fn times(ticks: [u64; 4], gpu_ns: [f64; 2]) -> Times {
        Times { ticks: ticks.map(|us| 1_000_000 + us * 2000), gpu_ns: gpu_ns.map(|us| us * 1000.0) }
    }

    #[test]
    fn a_busy_stream_has_the_time_between_its_events() {
        // Recorded at 10 us, launched from 11 to 14, passed at 500 and 530.
        let ran = clock()
            .ran(
                &times([10, 11, 14, 15], [500.0, 530.0]),
                Price { queued_ns: 1000.0, idle_ns: 1000.0, is_assumed: false },
            )
            .expect("a time");
        assert_eq!((ran.gpu_ns, ran.start_ns), (29_000.0, 7_500_000));
    }

    #[test]
    fn an_idle_stream_does_not_count_the_call() {
        // The first event is passed at once; the kernel cannot begin before the call that launches it, of 3 us, is near its end.
        let ran = clock().ran(&times([10, 11, 14, 15], [10.0, 33.0]), Price::default()).expect("a time");
        assert_eq!((ran.gpu_ns, ran.start_ns), (20_000.0, 7_013_000));
    }

    #[test]
    fn a_pair_takes_less_of_a_launch_that_did_not_wait_for_its_first_event() {
        let price = Price { queued_ns: 4000.0, idle_ns: 2800.0, is_assumed: false };
        let gpu_ns = |gpu_ns| clock().ran(&times([10, 11, 14, 15], gpu_ns), price).map(|ran| ran.gpu_ns);
        assert_eq!(gpu_ns([500.0, 530.0]), Some(26_000.0));
        assert_eq!(gpu_ns([10.0, 33.0]), Some(20_000.0 - 2800.0));
        // Where the one becomes the other, the GPU being done with what was before 1 us later than it got the launch.
        assert_eq!(gpu_ns([14.0, 33.0]), Some(15_000.0));
        assert_eq!(gpu_ns([12.5, 33.0]), Some(16_500.0));
    }

    #[test]
    fn an_end_that_nobody_saw_is_no_time() {
        // The thread was stopped for 85 us before it recorded the second event, which an idle GPU passed at once.
        assert_eq!(clock().ran(&times([10, 11, 14, 100], [10.0, 99.0]), Price::default()), None);
        // It was stopped, and the kernel ran for longer.
        assert!(clock().ran(&times([10, 11, 14, 100], [10.0, 150.0]), Price::default()).is_some());
        // It was stopped in the launch: did the kernel begin before that, or after?
        assert_eq!(clock().ran(&times([10, 11, 100, 101], [10.0, 150.0]), Price::default()), None);
        // Of a stream that is busy, who cares.
        assert!(clock().ran(&times([10, 11, 100, 101], [500.0, 530.0]), Price::default()).is_some());
    }

    #[test]
    fn drift_is_followed() {
        // The GPU's clock is 50 millionths faster.
        let (mut clock, fast) = (clock(), 1.000_05);
        for n in 1..=40u64 {
            clock.compare(50e6 * fast, 1_000_000 + n * 100_000_000, 7_000_000 + n * 50_000_000, 100.0);
        }
        assert!((clock.rate / 0.5 - fast).abs() < 1e-9, "{clock:?}");
        let ticks = [10, 11, 14, 15].map(|us| 1_000_000 + 40 * 100_000_000 + us * 2000);
        let ran =
            clock.ran(&Times { ticks, gpu_ns: [10_000.0 * fast, 33_000.0 * fast] }, Price::default()).expect("a time");
        assert!((ran.gpu_ns - 20_000.0 * fast).abs() < 1e-3, "{ran:?}");
    }
}
