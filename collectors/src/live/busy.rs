//! Busy time of devices: how long at least one kernel, copy or set ran.
//!
//! Rows of the GPU's work come in the order of their begin, so the end of what was counted so far is all that must be known. What
//! comes out of that order (Metal's) counts for what lies beyond that end: busy time may be too short by the gaps before it.

/// Devices of a process, and of a session; what is beyond them has no busy time.
const MOST: usize = 64;

/// The union of intervals.
#[derive(Clone, Copy, Debug, Default)]
struct Union {
    busy_ns: i64,
    end_ns: i64,
}

impl Union {
    #[inline]
    fn add(&mut self, start_ns: i64, took_ns: i64) {
        let end_ns = start_ns.saturating_add(took_ns.max(0));
        self.busy_ns += (end_ns - start_ns.max(self.end_ns)).max(0);
        self.end_ns = self.end_ns.max(end_ns);
    }
}

/// Busy time by device.
#[derive(Clone, Debug)]
pub(super) struct Busy<Device> {
    all: Vec<(Device, Union)>,
    /// Place of the device of the last interval.
    last: usize,
}

impl<Device> Default for Busy<Device> {
    fn default() -> Busy<Device> {
        Busy { all: Vec::new(), last: 0 }
    }
}

impl<Device: PartialEq + Clone> Busy<Device> {
    #[inline]
    pub(super) fn add(&mut self, device: &Device, start_ns: i64, took_ns: i64) {
        if self.all.get(self.last).is_none_or(|(last, _)| last != device) {
            self.find(device);
        }
        if let Some((_, union)) = self.all.get_mut(self.last) {
            union.add(start_ns, took_ns);
        }
    }

    fn find(&mut self, device: &Device) {
        let known = self.all.iter().position(|(known, _)| known == device);
        self.last = known.unwrap_or_else(|| {
            if self.all.len() < MOST {
                self.all.push((device.clone(), Union::default()));
                return self.all.len() - 1;
            }
            usize::MAX
        });
    }

    /// The devices and their busy time, ns.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Device, i64)> {
        self.all.iter().map(|(device, union)| (device, union.busy_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_two_streams_run_counts_once_and_devices_apart() {
        let mut busy = Busy::default();
        // 10 to 20, within it 12 to 15, across its end 18 to 25, then after a gap 40 to 50; another device meanwhile.
        for (device, start, took) in [(0, 10, 10), (0, 12, 3), (1, 13, 1), (0, 18, 7), (0, 40, 10), (0, 44, -3)] {
            busy.add(&device, start, took);
        }
        assert_eq!(busy.all().collect::<Vec<_>>(), [(&0, 25), (&1, 1)]);
    }

    #[test]
    fn devices_without_end_are_not_kept() {
        let mut busy = Busy::default();
        (0..1000).for_each(|device| busy.add(&device, 0, 1));
        busy.add(&3, 10, 5);
        assert_eq!((busy.all().count(), busy.all().find(|(device, _)| **device == 3)), (MOST, Some((&3, 6))));
    }
}
