//! occupancy: how much of a multiprocessor a launch can fill, what keeps it from more, and how full its last wave is.

use gputrace_collectors::occupancy::{Fit, Limiter, Limits};
use gputrace_collectors::schema::TableId;

use super::passes::occupancy::{Config, Occupancy as Pass};
use super::passes::stats::Stats;
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, gpu};
use crate::trace::Axes;

/// The analysis.
pub(crate) struct Occupancy;

impl Analysis for Occupancy {
    fn name(&self) -> &'static str {
        "occupancy"
    }

    fn title(&self) -> &'static str {
        "Theoretical occupancy and tail effect"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "For each kernel and launch configuration (grid, block, registers of a thread, shared memory of a block): \
                blocks that a multiprocessor (SM) holds at once = the least of what its warps, registers \
                and shared memory allow, and the blocks that it holds at all; theoretical occupancy = their warps / warps that it can hold; waves = \
                blocks of the grid / (SMs x blocks per SM); tail = share of the last wave that is empty; lost to the tail = \
                1 - waves / waves rounded up, of all kernels weighted by their time. Too small are grids with fewer blocks than the device has SMs.",
            unit: "percent; waves are a number of rounds; ns in JSON for time.",
            limits: "Upper bounds: the occupancy that is achieved may be lower, and only hardware counters know it (ncu --metrics \
                sm__warps_active.avg.pct_of_peak_sustained_active). Blocks are taken to last equally long and to have \
                the device for themselves; clusters and a smaller share of shared memory in the L1 cache are not seen. What a \
                trace does not say (recorded ones: registers and declared shared memory) bounds nothing and is named in Not known; \
                without the compute capability or the number of SMs the numbers that need them are missing. Capabilities that \
                are not listed (11.0) are not known. A high occupancy is no aim in itself. 20,000 configurations are told apart.",
            source: "CUDA Programming Guide, Compute Capabilities; cuda_occupancy.h.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Gpu, Need::Occupancy]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("configurations", Count, "kernels and shapes that were launched").sums(&[TableId::Kernels]),
            Metric::about("known_percent", Percent, "time of kernels whose theoretical occupancy is known, of all"),
            Metric::use_of("occupancy_percent", Percent, "theoretical occupancy of these, weighted by their time"),
            Metric::cost("tail_lost_percent", Percent, "part of whole waves that last waves leave empty, by time"),
            Metric::cost(
                "too_small_percent",
                Percent,
                "time of kernels with fewer blocks than the GPU has SMs, of all",
            ),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.gpu.is_some() && !facts.is_metal_only()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        if gpu::times(facts, &mut section).is_none() {
            return section;
        }
        let mut launches: Vec<(Launch<'_>, &Stats)> = facts
            .occupancy
            .configs
            .iter()
            .map(|(config, stats)| (Launch::of(&facts.occupancy, config), stats))
            .collect();
        launches.sort_by_key(|(launch, stats)| (std::cmp::Reverse(stats.sum), launch.config));
        let all: i64 = launches.iter().map(|(_, stats)| stats.sum).sum();
        let time = |of: &dyn Fn(&Launch<'_>) -> Option<f64>| {
            let known = launches.iter().filter_map(|(launch, stats)| Some((of(launch)?, stats.sum as f64)));
            known.fold((0.0, 0.0), |(sum, ns), (value, weight)| (sum + value * weight, ns + weight))
        };
        let mean = |(sum, ns): (f64, f64)| (ns > 0.0).then(|| sum / ns);
        let whole = time(&|launch| launch.fit.as_ref().filter(|_| launch.unknown.is_empty()).map(|fit| fit.percent));
        let small = time(&|launch| Some(100.0 * f64::from(u8::from(launch.too_small()?))));
        section.fact("configurations", "kernels and shapes", Unit::Count, launches.len() as u64);
        section.fact("known_percent", "of the time known in full", Unit::Percent, percent(whole.1, all as f64));
        section.fact("occupancy_percent", "theoretical occupancy of it", Unit::Percent, mean(whole));
        let tail = mean(time(&|launch| launch.waves().map(|waves| 100.0 * (1.0 - waves / waves.ceil()))));
        section.fact("tail_lost_percent", "of waves lost to the tail", Unit::Percent, tail);
        section.fact("too_small_percent", "in grids with fewer blocks than SMs", Unit::Percent, mean(small));
        if launches.iter().all(|(launch, _)| launch.limits.is_none()) {
            section
                .note("The trace does not say which GPU ran these kernels, or its compute capability is not listed.");
        }
        section.table(table(facts, &launches, all));
        section
    }
}

/// A launch configuration with what follows from it.
pub(super) struct Launch<'a> {
    pub(super) config: &'a Config,
    limits: Option<&'static Limits>,
    sm_count: Option<i64>,
    fit: Option<Fit>,
    /// What the trace does not say.
    unknown: Vec<&'static str>,
}

impl<'a> Launch<'a> {
    pub(super) fn of(pass: &'a Pass, config: &'a Config) -> Launch<'a> {
        let model = pass.model(config);
        let shaped = config.grid.0 > 0 && config.block.0 > 0;
        let limits = model.and_then(|model| Limits::of(&model.capability));
        let fit = limits
            .filter(|_| shaped)
            .and_then(|limits| limits.fit(config.threads(), config.registers.map(i64::from), config.shared_bytes));
        let missing = [
            ("shape", shaped),
            ("GPU", limits.is_some()),
            ("registers", config.registers.is_some()),
            ("shared memory", config.shared_bytes.is_some()),
        ];
        Launch {
            config,
            limits,
            sm_count: model.and_then(|model| model.sm_count).filter(|count| *count > 0 && shaped),
            fit,
            unknown: missing.into_iter().filter(|(_, known)| !known).map(|(what, _)| what).collect(),
        }
    }

    /// Rounds in which the device runs the grid; at least so many where not all is known.
    fn waves(&self) -> Option<f64> {
        Some(self.config.blocks() as f64 / (self.sm_count? * self.fit.as_ref()?.blocks) as f64)
    }

    /// Whether some multiprocessors get no block at all.
    pub(super) fn too_small(&self) -> Option<bool> {
        Some(self.config.blocks() < self.sm_count?)
    }
}

fn table(facts: &Facts<'_>, launches: &[(Launch<'_>, &Stats)], all_ns: i64) -> Table {
    const COLUMNS: [Column; 15] = [
        column("kernel", "Kernel", Unit::Name),
        column("total_ns", "Total", Unit::Ns),
        column("time_percent", "Time", Unit::Percent),
        column("occupancy_percent", "Occupancy", Unit::Percent),
        column("limiter", "Limiter", Unit::Text),
        column("waves", "Waves", Unit::Count),
        column("tail_percent", "Tail", Unit::Percent),
        column("not_known", "Not known", Unit::Text),
        column("grid", "Grid", Unit::Text),
        column("block", "Block", Unit::Text),
        column("registers", "Registers", Unit::Count),
        column("shared_bytes", "Shared", Unit::BytesEach),
        column("blocks_per_sm", "Blocks per SM", Unit::Count),
        column("calls", "Calls", Unit::Count),
        column("capability", "Capability", Unit::Text),
    ];
    let shape = |(x, y, z): Axes| format!("{x}x{y}x{z}");
    let row = |(launch, stats): &(Launch<'_>, &Stats)| -> Vec<Value> {
        let (config, fit, waves) = (launch.config, launch.fit.as_ref(), launch.waves());
        let limiter = fit.and_then(|fit| fit.limiter).map(Limiter::text);
        vec![
            facts.names.full(config.name_id).into(),
            stats.sum.into(),
            percent(stats.sum as f64, all_ns as f64),
            fit.map(|fit| fit.percent).into(),
            limiter.into(),
            waves.into(),
            waves.map(|waves| 100.0 * (waves.ceil() - waves)).into(),
            Some(launch.unknown.join(", ")).filter(|unknown| !unknown.is_empty()).into(),
            shape(config.grid).into(),
            shape(config.block).into(),
            config.registers.map(i64::from).into(),
            config.shared_bytes.into(),
            fit.map(|fit| fit.blocks).into(),
            stats.count.into(),
            facts.occupancy.model(config).map(|model| model.capability.clone()).into(),
        ]
    };
    let title = "By kernel and launch configuration, most time first (at most, where something is not known)";
    Table::new("by_configuration", title, &COLUMNS, launches.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::Device;
    use gputrace_collectors::names::NameKind;
    use gputrace_collectors::schema::TableId;
    use serde_json::json;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    /// Kernels of a grid of so many blocks of 256 threads with so many registers, 1 ms each, on a GPU of 132 SMs.
    fn of(capability: &str, kernels: &[(&str, i64, Option<i64>)]) -> Section {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let about = trace.manifest.as_mut().expect("a manifest");
        let (uuid, compute_capability) = ("GPU-1".to_owned(), capability.to_owned());
        about.devices = vec![Device { uuid, compute_capability, sm_count: Some(132), ..Device::default() }];
        about.processes[0].devices = vec!["GPU-1".to_owned()];
        for (at, (name, blocks, registers)) in (0..).zip(kernels) {
            let name_id = trace.name(NameKind::Kernel, name);
            let row = json!({
                "start_ns": START + at * 1_000_000, "gpu_ns": 1_000_000 - at, "process_id": 1, "pid": 100, "device": 0,
                "name_id": name_id, "grid_x": blocks, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1,
                "block_z": 1, "registers": registers, "shared_bytes": registers.map(|_| 0),
            });
            trace.row(TableId::Kernels, row);
        }
        trace.section(&Occupancy)
    }

    #[test]
    fn a_launch_has_its_occupancy_its_limiter_and_its_tail() {
        let section = of("9.0", &[("gemm", 132 * 4 + 132, Some(64)), ("tiny", 66, Some(32))]);
        let cell = |row, column| section.cell("by_configuration", row, column).clone();
        let row = |row| ["kernel", "occupancy_percent", "limiter", "waves", "tail_percent"].map(|of| cell(row, of));
        assert_eq!(row(0), ["gemm".into(), Value::Num(50.0), "registers".into(), Value::Num(1.25), Value::Num(75.0)]);
        let tiny = ["tiny".into(), Value::Num(100.0), Value::Missing, Value::Num(0.0625), Value::Num(93.75)];
        assert_eq!(row(1), tiny);
        assert_eq!(cell(0, "not_known"), Value::Missing);
        let near = |key: &str, wanted: f64| match section.get(key) {
            Value::Num(value) => assert!((value - wanted).abs() < 0.01, "{key}: {value}"),
            other => panic!("{key}: {other:?}"),
        };
        near("occupancy_percent", 75.0);
        near("too_small_percent", 50.0);
        near("tail_lost_percent", (37.5 + 93.75) / 2.0);
        near("known_percent", 100.0);
    }

    #[test]
    fn what_the_trace_does_not_say_is_named() {
        let section = of("9.0", &[("gemm", 1000, None)]);
        let cell = |column| section.cell("by_configuration", 0, column).clone();
        assert_eq!([cell("not_known"), cell("blocks_per_sm")], ["registers, shared memory".into(), Value::Int(8)]);
        assert_eq!(
            [section.get("occupancy_percent"), section.get("known_percent")],
            [&Value::Missing, &Value::Num(0.0)]
        );
        let section = of("11.0", &[("gemm", 1000, Some(32))]);
        let cell = |column| section.cell("by_configuration", 0, column).clone();
        assert_eq!([cell("occupancy_percent"), cell("waves")], [Value::Missing, Value::Missing]);
        assert_eq!(cell("not_known"), "GPU".into());
        assert!(section.notes[0].contains("compute capability is not listed"), "{:?}", section.notes);
    }
}
