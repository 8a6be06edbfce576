//! How much of a window the GPU was busy. Where it nearly always was, the program launches ahead of it, and that launches take longer
//! while CUPTI is there holds nothing up.

/// Devices that are told apart; the others of a process share the last place.
const DEVICES: usize = 16;

/// What devices did since a window opened.
pub(super) struct Busy {
    since_ns: u64,
    /// Until when each is known to have worked, and for how long it did.
    devices: [(u64, u64); DEVICES],
}

impl Busy {
    /// A window opens, ns of CLOCK_MONOTONIC.
    pub(super) const fn since(since_ns: u64) -> Busy {
        Busy { since_ns, devices: [(since_ns, 0); DEVICES] }
    }

    /// A device worked from when to when. What comes in another order than it began counts less, never more.
    pub(super) fn worked(&mut self, device: u32, start_ns: u64, end_ns: u64) {
        if let Some((until_ns, busy_ns)) = self.devices.get_mut((device as usize).min(DEVICES - 1)) {
            *busy_ns += end_ns.saturating_sub(start_ns.max(*until_ns));
            *until_ns = end_ns.max(*until_ns);
        }
    }

    /// How much of so long a window the device worked that worked least, in millionths; 0 where none did.
    pub(super) fn ppm(&self, window_ns: u64) -> u64 {
        let worked = self.devices.iter().filter(|(_, busy_ns)| *busy_ns > 0);
        let part = |(until_ns, busy_ns): &(u64, u64)| {
            // Work of a window may end after it.
            let whole_ns = window_ns.max(until_ns.saturating_sub(self.since_ns)).max(1);
            (u128::from(*busy_ns) * 1_000_000 / u128::from(whole_ns)) as u64
        };
        worked.map(part).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_busy_while_any_of_its_streams_works() {
        let mut busy = Busy::since(1000);
        assert_eq!(busy.ppm(100), 0);
        // Work of before the window, two streams at once, and one inside the other.
        busy.worked(0, 900, 1100);
        busy.worked(0, 1050, 1200);
        busy.worked(0, 1120, 1150);
        assert_eq!(busy.ppm(400), 500_000);
        // Of two devices the one that waits more.
        busy.worked(1, 1000, 1400);
        assert_eq!(busy.ppm(400), 500_000);
        // The last work ends after the window.
        busy.worked(0, 1400, 1800);
        assert_eq!(busy.ppm(400), 750_000);
        busy.worked(99, 1000, 1100);
        assert_eq!(busy.ppm(400), 250_000);
    }
}
