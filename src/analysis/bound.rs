//! What bounds the work of a device, by GPM's metrics: arithmetic, memory, or that too little is given to it.

use super::passes::counters::Of;
use super::section::{Column, Table, Unit, Value, column};
use super::{Facts, Section};
use crate::render::share;

/// Of a pipe's or the memory's peak: more makes it the limit. Nsight Compute's guide calls less than 60 % of both a problem of latency.
const NEAR_PEAK: f64 = 60.0;
/// Multiprocessors that have work for less of the time wait for it.
const FED: f64 = 50.0;

/// Shares in percent, over the time in which the device was used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    /// Any kernel was on the device.
    pub(super) graphics: f64,
    /// A multiprocessor had a warp.
    pub(super) multiprocessors: f64,
    /// The busiest pipe worked: tensor, or floating point numbers of 64, 32 or 16 bits.
    pub(super) pipe: f64,
    /// Bandwidth of memory, of its peak.
    pub(super) memory: f64,
}

/// What bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Arithmetic.
    Compute,
    /// Memory.
    Memory,
    /// Grids that are too small, or a host that gives work too slowly.
    Launch,
    /// Neither: multiprocessors have work, which waits.
    Latency,
}

impl Bound {
    /// The limit that these shares speak for.
    pub(super) fn of(shares: &Shares) -> Bound {
        match shares {
            s if s.pipe >= NEAR_PEAK && s.pipe >= s.memory => Bound::Compute,
            s if s.memory >= NEAR_PEAK => Bound::Memory,
            s if s.multiprocessors < FED => Bound::Launch,
            _ => Bound::Latency,
        }
    }

    /// In words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Bound::Compute => "compute bound",
            Bound::Memory => "memory bound",
            Bound::Launch => "launch bound",
            Bound::Latency => "latency bound",
        }
    }
}

/// Means over the readings in which a device was used; none where it has no GPM.
pub(super) fn shares(of: &Of) -> Option<Shares> {
    let mean = |name: &str| of.health.used.get(name).map_or(0.0, |values| values.mean());
    of.health.used.contains_key("sm_util").then(|| Shares {
        graphics: mean("graphics_util"),
        multiprocessors: mean("sm_util"),
        pipe: ["any_tensor_util", "fp64_util", "fp32_util", "fp16_util"].map(mean).into_iter().fold(0.0, f64::max),
        memory: mean("dram_bw_util"),
    })
}

/// A line for the summary: the means over the devices that a process sees and that were used; empty without GPM.
pub(super) fn line(facts: &Facts<'_>, process_id: i64) -> String {
    let known = facts.trace.process(process_id).and_then(|process| process.manifest.as_ref());
    let seen = known.map_or(&[][..], |known| &known.devices);
    let used = facts.counters.devices().filter(|(uuid, _)| seen.iter().any(|seen| seen == uuid));
    let all: Vec<(Shares, f64)> = used
        .filter_map(|(_, of)| Some((shares(of)?, of.health.used.get("any_tensor_util").map_or(0.0, |v| v.mean()))))
        .collect();
    if all.is_empty() {
        return String::new();
    }
    let mean = |value: &dyn Fn(&(Shares, f64)) -> f64| all.iter().map(value).sum::<f64>() / all.len() as f64;
    let shares = Shares {
        graphics: mean(&|(s, _)| s.graphics),
        multiprocessors: mean(&|(s, _)| s.multiprocessors),
        pipe: mean(&|(s, _)| s.pipe),
        memory: mean(&|(s, _)| s.memory),
    };
    let [tensor, memory, busy] =
        [mean(&|(_, tensor)| *tensor), shares.memory, shares.multiprocessors].map(|p| share(p / 100.0));
    let looks = Bound::of(&shares).text();
    format!("  tensor pipes {tensor}, DRAM {memory} of peak, SMs busy {busy} (GPM): looks {looks}\n")
}

/// The mean of one of GPM's metrics over the devices that were used, while they were; none without GPM.
pub(super) fn mean_percent(facts: &Facts<'_>, name: &str) -> Option<f64> {
    let means = facts.counters.devices().filter_map(|(_, of)| Some(of.health.used.get(name)?.mean()));
    let (sum, count) = means.fold((0.0, 0), |(sum, count), mean| (sum + mean, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Whether any device has GPM's metrics.
pub(super) fn is_known(facts: &Facts<'_>) -> bool {
    facts.counters.devices().any(|(_, of)| shares(of).is_some())
}

/// A table of the devices with their limit.
pub(super) fn add(section: &mut Section, facts: &Facts<'_>) {
    const COLUMNS: [Column; 8] = [
        column("device", "Device", Unit::Name),
        column("bound", "Looks", Unit::Text),
        column("graphics_percent", "In use", Unit::Percent),
        column("multiprocessors_percent", "SMs", Unit::Percent),
        column("occupancy_percent", "Occupancy", Unit::Percent),
        column("tensor_percent", "Tensor", Unit::Percent),
        column("pipe_percent", "Busiest pipe", Unit::Percent),
        column("memory_percent", "Memory", Unit::Percent),
    ];
    let rows = facts.counters.devices().filter_map(|(uuid, of)| {
        let shares = shares(of)?;
        let mean = |name: &str| of.health.used.get(name).map(|values| values.mean());
        let row: Vec<Value> = vec![
            super::counters::device(facts, uuid).into(),
            Bound::of(&shares).text().into(),
            shares.graphics.into(),
            shares.multiprocessors.into(),
            mean("sm_occupancy").into(),
            mean("any_tensor_util").into(),
            shares.pipe.into(),
            shares.memory.into(),
        ];
        Some(row)
    });
    section.table(Table::new(
        "bounds",
        "Devices by GPM, over the time in which they were used",
        &COLUMNS,
        rows.collect(),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn the_summary_has_a_line_of_the_devices_that_its_process_sees() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let about = trace.manifest.as_mut().expect("a manifest");
        about.processes[0].devices = vec!["GPU-1".to_owned()];
        let mut thread = trace.thread(1, 11);
        for _ in 0..40 {
            (0..5).for_each(|_| thread.launch("k", 2_000));
            thread.sync("cuStreamSynchronize", "stream", 9_000_000);
        }
        for (device, memory) in [("GPU-1", 78.0), ("GPU-2", 1.0)] {
            for (name, value) in
                [("graphics_util", 99.0), ("sm_util", 97.0), ("any_tensor_util", 0.0), ("dram_bw_util", memory)]
            {
                trace.counter(0, Err(device), "gpm", name, value);
            }
        }
        let text = trace.section(&super::super::summary::Summary).literal.unwrap_or_default();
        let line = "\n  tensor pipes 0 %, DRAM 78 % of peak, SMs busy 97 % (GPM): looks memory bound\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_product_a_copy_and_tiny_kernels_are_told_apart() {
        let of =
            |graphics, multiprocessors, pipe, memory| Bound::of(&Shares { graphics, multiprocessors, pipe, memory });
        // Measured on an H200: a bf16 product of 8192^3, a copy on the device, a stream of tiny kernels.
        assert_eq!(of(99.0, 81.0, 79.0, 15.0), Bound::Compute);
        assert_eq!(of(99.0, 97.0, 0.0, 78.0), Bound::Memory);
        assert_eq!(of(30.0, 13.0, 0.0, 0.5), Bound::Launch);
        // Whole multiprocessors, half of everything.
        assert_eq!(of(99.0, 90.0, 40.0, 45.0), Bound::Latency);
        // Both near their peaks: the higher one.
        assert_eq!(of(99.0, 99.0, 70.0, 85.0), Bound::Memory);
        assert_eq!(of(99.0, 99.0, 85.0, 70.0), Bound::Compute);
    }
}
