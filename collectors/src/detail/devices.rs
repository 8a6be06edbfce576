//! What NVML says of a device that is a moment worth keeping: a critical Xid error, and no kernel for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::failures::Noted;
use crate::counters::Id;

/// What was read of devices so far.
pub(super) struct Devices {
    /// A device that was busy before, and is idle for so long.
    idle_ns: Option<i64>,
    /// Since when each has been idle; none: it was told.
    idle: HashMap<Arc<str>, Option<i64>>,
}

impl Devices {
    pub(super) fn new(idle: Option<Duration>) -> Devices {
        let idle_ns = idle.map(|idle| i64::try_from(idle.as_nanos()).unwrap_or(i64::MAX));
        Devices { idle_ns, idle: HashMap::new() }
    }

    /// An idle device is told after so long from now on.
    pub(super) fn ask(&mut self, idle: Option<Duration>) {
        self.idle_ns = Devices::new(idle).idle_ns;
    }

    /// A value that was read.
    pub(super) fn see(&mut self, device: &Arc<str>, id: Id, value: f64, at_ns: i64) -> Option<Noted> {
        match id {
            Id::Xid => Some(Noted { at_ns, why: format!("Xid {value} on {device}") }),
            Id::GpuUtilization => self.see_use(device, value, at_ns),
            _ => None,
        }
    }

    fn see_use(&mut self, device: &Arc<str>, percent: f64, at_ns: i64) -> Option<Noted> {
        if percent > 0.0 {
            // Idle from here on, as far as is known.
            self.idle.insert(Arc::clone(device), Some(at_ns));
            return None;
        }
        let idle_ns = self.idle_ns?;
        let since = self.idle.get_mut(device)?;
        let ns = at_ns.saturating_sub((*since)?);
        if ns < idle_ns {
            return None;
        }
        *since = None;
        Some(Noted { at_ns, why: format!("{device} has run nothing for {:.1} s", ns as f64 / 1e9) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_busy_and_idles_too_long_is_told_once() {
        let mut devices = Devices::new(Some(Duration::from_secs(3)));
        let (one, other): (Arc<str>, Arc<str>) = ("GPU-1".into(), "GPU-2".into());
        let mut see = |device: &Arc<str>, percent: f64, second: i64| {
            let noted = devices.see(device, Id::GpuUtilization, percent, second * 1_000_000_000);
            noted.map(|noted| (noted.at_ns / 1_000_000_000, noted.why))
        };
        // One that was never busy is not waited for.
        assert!((0..9).all(|second| see(&other, 0.0, second).is_none()));
        let uses = [(10, 50.0), (11, 0.0), (12, 0.0), (13, 0.0), (14, 0.0), (15, 1.0), (17, 0.0), (18, 0.0), (19, 0.0)];
        let told: Vec<_> = uses.iter().filter_map(|(second, percent)| see(&one, *percent, *second)).collect();
        let text = |seconds: &str| format!("GPU-1 has run nothing for {seconds} s");
        assert_eq!(told, [(13, text("3.0")), (18, text("3.0"))]);
    }

    #[test]
    fn an_xid_is_told_whatever_was_asked_for() {
        let noted = Devices::new(None).see(&"GPU-1".into(), Id::Xid, 79.0, 5);
        assert_eq!(noted.map(|noted| (noted.at_ns, noted.why)), Some((5, "Xid 79 on GPU-1".to_owned())));
        assert!(Devices::new(None).see(&"GPU-1".into(), Id::GpuUtilization, 0.0, 5).is_none());
    }
}
