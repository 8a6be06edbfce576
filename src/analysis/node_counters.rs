//! What counters tell of a node's health: throttled clocks, ECC, Xid, a slow PCIe link, a quota that was used up.

use gputrace_collectors::manifest::Device;

use super::passes::counters::{Counters, Of, Subject};
use crate::render::{share, time};

/// Names of the bits of `clocks_event_reasons`, and whether one is a fault of the node.
const REASONS: [(&str, bool); 9] = [
    ("idle", false),
    ("applications clocks", false),
    ("software power cap", false),
    ("hardware slowdown", true),
    ("sync boost", false),
    ("software thermal slowdown", true),
    ("hardware thermal slowdown", true),
    ("power brake", true),
    ("display clocks", false),
];
/// Bit of an idle device, which is no reason to speak of.
const IDLE: usize = 0;
/// A smaller share of readings, or of periods, is no fault: a change of clocks alone may report a slowdown.
const OFTEN: f64 = 0.05;
/// Xid errors that a program brings about by itself: faults of its kernels and what they drag along.
const OF_PROGRAM: [i64; 4] = [13, 31, 43, 45];

/// What came of a check; what is wrong stands first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Found,
    Fine,
    NotMeasured,
}

impl Outcome {
    pub(super) fn text(self) -> &'static str {
        match self {
            Outcome::Found => "found",
            Outcome::Fine => "fine",
            Outcome::NotMeasured => "not measured",
        }
    }

    pub(super) fn of(wrong: bool) -> Outcome {
        if wrong { Outcome::Found } else { Outcome::Fine }
    }
}

/// A check's outcome and what was measured.
type Judged = (Outcome, String);

/// What one launcher read.
pub(super) struct Read<'a> {
    pub(super) counters: &'a Counters,
    pub(super) launcher: usize,
}

impl Read<'_> {
    fn of(&self, device: &Device) -> Option<&Of> {
        self.counters.device(self.launcher, &device.uuid)
    }

    /// Whether it is gone, where anything was read of it.
    pub(super) fn lost(&self, device: &Device, is_lost: bool) -> Option<Judged> {
        let gone = "off the bus or in need of a reset";
        let judged = if is_lost { (Outcome::Found, gone) } else { (Outcome::Fine, "no") };
        (is_lost || self.of(device).is_some()).then(|| (judged.0, judged.1.to_owned()))
    }

    /// Why clocks were not higher.
    pub(super) fn clocks(&self, device: &Device) -> Option<Judged> {
        let health = &self.of(device)?.health;
        let all = Some(health.readings).filter(|readings| *readings > 0)?;
        let part = |count: u64| count as f64 / all as f64;
        let reasons =
            || REASONS.iter().zip(health.reasons).enumerate().filter(|(bit, (_, count))| *bit != IDLE && *count > 0);
        let wrong = reasons().any(|(_, ((_, fault), count))| *fault && part(count) >= OFTEN);
        let texts: Vec<String> =
            reasons().map(|(_, ((name, _), count))| format!("{name} {}", share(part(count)))).collect();
        let measured = if texts.is_empty() { "never".to_owned() } else { texts.join(", ") };
        Some((Outcome::of(wrong), format!("{measured} of {all} readings")))
    }

    /// Memory errors since the driver was loaded.
    pub(super) fn ecc(&self, device: &Device) -> Option<Judged> {
        let of = self.of(device)?;
        let most = |name: &str| of.get("nvml", name).map(|values| values.max());
        let uncorrected = most("ecc_uncorrected")?;
        let corrected = most("ecc_corrected").map_or_else(String::new, |count| format!(", {count} corrected"));
        Some((Outcome::of(uncorrected > 0.0), format!("{uncorrected} not corrected{corrected}")))
    }

    /// Critical Xid errors while it ran.
    pub(super) fn xid(&self, device: &Device) -> Option<Judged> {
        let of = self.of(device)?;
        let xids = &of.health.xids;
        if xids.is_empty() {
            // Where nothing of the device was read, none would have been told.
            return (of.health.readings > 0).then(|| (Outcome::Fine, "none".to_owned()));
        }
        let wrong = xids.keys().any(|xid| !OF_PROGRAM.contains(xid));
        let one = |(xid, count): (&i64, &u64)| {
            let whose = if OF_PROGRAM.contains(xid) { ", the program's own" } else { "" };
            let often = if *count > 1 { format!("{count} times") } else { "once".to_owned() };
            format!("{xid} ({often}{whose})")
        };
        Some((Outcome::of(wrong), xids.iter().map(one).collect::<Vec<_>>().join(", ")))
    }

    /// The link's generation while the device worked.
    pub(super) fn link(&self, device: &Device) -> Option<Judged> {
        let of = self.of(device)?;
        let (loaded, most) = (of.health.link_loaded?, of.get("nvml", "pcie_link_gen_max")?.max());
        Some((Outcome::of(loaded < most), format!("generation {loaded} of {most} while it worked")))
    }

    /// Lanes of the link, the most that were seen.
    pub(super) fn lanes(&self, device: &Device) -> Option<Judged> {
        let of = self.of(device)?;
        let [lanes, most] =
            ["pcie_link_width", "pcie_link_width_max"].map(|name| of.get("nvml", name).map(|v| v.max()));
        let (lanes, most) = lanes.zip(most)?;
        Some((Outcome::of(lanes < most), format!("{lanes} of {most}")))
    }

    /// Periods in which the quota of processors was used up, in any control group.
    pub(super) fn quota(&self) -> Option<Judged> {
        let own = self.counters.all.iter().filter(|((launcher, _), _)| *launcher == self.launcher);
        let groups = own.filter(|((_, subject), _)| matches!(subject, Subject::Process(..)));
        let sums = groups.filter_map(|(_, of)| {
            let sum = |name: &str| of.get("cgroup", name).map(|values| values.sum());
            Some([sum("periods")?, sum("throttled_periods")?, sum("throttled_time")?])
        });
        let all = sums.reduce(|a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]])?;
        let [periods, throttled, taken_ns] = all;
        // Without a quota there are no periods.
        let part = (periods > 0.0).then(|| throttled / periods)?;
        let measured = format!("in {} of {periods} periods, {} taken away", share(part), time(taken_ns));
        Some((Outcome::of(part >= OFTEN), measured))
    }
}
