//! Counters that were read from outside, by device or process: how they are distributed, and what of them tells of a bad node.
//!
//! Rows of one reading come together, a device's utilisation before what is judged by it: so the PCIe link is judged while the device
//! works, and GPM's metrics are taken for a bound where the device is used at all.

use std::collections::BTreeMap;

use gputrace_collectors::counters::{COUNTERS, Counter};
use gputrace_collectors::schema::TableId;

use super::Pass;
use super::stats::Stats;
use super::steps::Steps;
use crate::trace::{Rows, Want};

/// A device with less utilisation, in percent, may have slowed its link down to save power.
const LOADED: f64 = 50.0;
/// A device with less of GPM's graphics utilisation does nothing worth judging.
const IN_USE: f64 = 5.0;
/// Xid errors that are kept.
const XIDS: usize = 64;
/// Devices and processes that are held; the rest is left out, and said.
const SUBJECTS: usize = 4096;
/// Bits of `clocks_event_reasons`.
pub(crate) const BITS: usize = 9;

/// Whose a counter is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A device, by its UUID.
    Device(String),
    /// A process, by its id; of a device the memory that it uses.
    Process(i64, String),
}

/// A counter's values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    /// In thousandths where the unit is small, else in whole units.
    stats: Stats,
    scale: f64,
}

impl Values {
    fn add(&mut self, unit: &str, value: f64) {
        self.scale = if matches!(unit, "%" | "W" | "C") { 1000.0 } else { 1.0 };
        self.stats.add((value * self.scale).round() as i64);
    }

    fn of(&self, value: f64) -> f64 {
        value / self.scale.max(1.0)
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.stats.count
    }

    /// The smallest.
    pub(crate) fn min(&self) -> f64 {
        self.of(self.stats.min as f64)
    }

    /// The largest.
    pub(crate) fn max(&self) -> f64 {
        self.of(self.stats.max as f64)
    }

    /// The mean.
    pub(crate) fn mean(&self) -> f64 {
        self.of(self.stats.mean())
    }

    /// Their sum.
    pub(crate) fn sum(&self) -> f64 {
        self.of(self.stats.sum as f64)
    }

    /// The smallest value that this share of them do not exceed.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        self.of(self.stats.quantile(share) as f64)
    }
}

/// What is known of a device beyond its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    /// Readings of why clocks are not higher, and in how many each bit was set.
    pub(crate) readings: u64,
    /// The same for each bit.
    pub(crate) reasons: [u64; BITS],
    /// Its critical Xid errors by number.
    pub(crate) xids: BTreeMap<i64, u64>,
    /// The PCIe link's generation while the device worked, the highest that was seen.
    pub(crate) link_loaded: Option<f64>,
    /// GPM's metrics while the device was used, by name.
    pub(crate) used: BTreeMap<&'static str, Values>,
    utilisation: f64,
    in_use: bool,
}

/// What one subject of one launcher has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Of {
    /// Values by place in [`COUNTERS`].
    pub(crate) values: BTreeMap<usize, Values>,
    /// Of a device.
    pub(crate) health: Health,
}

impl Of {
    /// The values of a counter.
    pub(crate) fn get(&self, source: &str, name: &str) -> Option<&Values> {
        place(source, name).and_then(|place| self.values.get(&place))
    }
}

/// The pass.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// By launcher's number and subject.
    pub(crate) all: BTreeMap<(usize, Subject), Of>,
    /// Rows.
    pub(crate) rows: u64,
    /// Rows of subjects that were too many.
    pub(crate) left_out: u64,
}

fn place(source: &str, name: &str) -> Option<usize> {
    COUNTERS.iter().position(|counter| (counter.source, counter.name) == (source, name))
}

impl Counters {
    /// What is known of a device, as one launcher read it.
    pub(crate) fn device(&self, launcher: usize, uuid: &str) -> Option<&Of> {
        self.all.get(&(launcher, Subject::Device(uuid.to_owned())))
    }

    /// The devices of all launchers.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&str, &Of)> {
        self.all.iter().filter_map(|((_, subject), of)| match subject {
            Subject::Device(uuid) => Some((uuid.as_str(), of)),
            Subject::Process(..) => None,
        })
    }

    fn add(&mut self, launcher: usize, subject: Subject, counter: (usize, &'static Counter), value: f64) {
        self.rows += 1;
        let key = (launcher, subject);
        if self.all.len() >= SUBJECTS && !self.all.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let of = self.all.entry(key).or_default();
        let (place, Counter { source, name, unit, .. }) = counter;
        of.values.entry(place).or_default().add(unit, value);
        of.health.add(source, name, unit, value);
    }
}

impl Health {
    fn add(&mut self, source: &str, name: &'static str, unit: &str, value: f64) {
        match (source, name) {
            ("nvml", "gpu_utilization") => self.utilisation = value,
            ("nvml", "clocks_event_reasons") => {
                self.readings += 1;
                let bits = value as u64;
                self.reasons.iter_mut().enumerate().for_each(|(bit, count)| *count += bits >> bit & 1);
            }
            ("nvml", "pcie_link_gen") if self.utilisation >= LOADED => {
                self.link_loaded = Some(self.link_loaded.map_or(value, |most| most.max(value)));
            }
            ("nvml", "xid") if self.xids.len() < XIDS => *self.xids.entry(value as i64).or_default() += 1,
            ("gpm", _) => {
                if name == "graphics_util" {
                    self.in_use = value >= IN_USE;
                }
                if self.in_use {
                    self.used.entry(name).or_default().add(unit, value);
                }
            }
            _ => {}
        }
    }
}

impl Pass for Counters {
    fn wants(&self) -> &'static [Want] {
        &[Want { table: TableId::Counters, columns: &["device", "source", "name", "value"] }]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        let (device, source, name) = (rows.texts("device"), rows.texts("source"), rows.texts("name"));
        let (process, value) = (rows.i64_or("process_id", NOBODY), rows.f64("value"));
        for row in 0..rows.len {
            // A newer gputrace may have written others.
            let Some(place) = place(source.get(row), name.get(row)) else { continue };
            let subject = match process[row] {
                NOBODY => Subject::Device(device.get(row).to_owned()),
                id => Subject::Process(id, device.get(row).to_owned()),
            };
            let value = if value[row].is_finite() { value[row] } else { 0.0 };
            self.add(rows.launcher, subject, (place, &COUNTERS[place]), value);
        }
    }
}

/// Stands for no process.
const NOBODY: i64 = crate::trace::NOBODY;
