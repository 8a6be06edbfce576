//! timed-kernels: which kernels the GPU's time goes into, estimated from launches that were timed.

use gputrace_collectors::schema::TableId;
use std::collections::BTreeSet;

use super::passes::samples::{Device, Estimate, GRAPH, Samples};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need};
use crate::render::number;

/// The analysis.
pub(crate) struct TimedKernels;

/// CUPTI told of so much of the run: what it did not is no matter.
const NEARLY_ALL: f64 = 0.9;

/// What is said where nothing was timed, and how to have it.
const NOTHING: &str = "No launches were timed: gputrace --gpu-time events times some of them, without CUPTI.";

impl Analysis for TimedKernels {
    fn name(&self) -> &'static str {
        "timed-kernels"
    }

    fn title(&self) -> &'static str {
        "GPU time by kernel, estimated"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Launches are sorted by stream, kernel, grid and block. All are counted, some are timed by two events around \
                them (gpu_samples), and of those that lie in windows CUPTI told when they ran (kernels); what is known is added up, and for the \
                other launches of a kind its mean is taken, in which a launch counts as often as it stands for others: so the whole run is \
                estimated, windows and what lies between and after them. A kind of \
                which nothing is known gets the mean of its kernel in other shapes, else that of the process. Where launches were left \
                out for --budget, those with a row stand for them (launches.stands_for). Graphs are one \
                kind a stream, and have their time from begin to end. Error: the truth is no further away 95 times in 100, as far \
                as chance goes; where few of a kind were timed, their times are taken to differ as those of other kinds do.",
            unit: "ns of the GPU in JSON; error in ns.",
            limits: "An estimate. Copies and sets are not timed. Two events take time themselves: what a pair with nothing between \
                takes is subtracted, and what a launch takes the GPU before and after its kernel is not, so that short kernels are \
                overestimated. A graph's pauses count as its time. Kernels that run beside each other count each for itself. Launches \
                whose calls are lost are not counted.",
            source: "Post-stratified sampling: Cochran, Sampling Techniques, 5A.9.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Samples]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("estimated_ns", Ns, "the GPU's time for launches, estimated from those that were timed")
                .sums(&[TableId::GpuSamples]),
            Metric::about("estimated_error_ns", Ns, "how far that may be off, 95 times in 100").unsteady(),
            Metric::about("timed_share_percent", Percent, "launches that were timed by events, of all"),
            Metric::about("told_share_percent", Percent, "launches of which CUPTI told in windows, of all"),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.samples.any()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        const COLUMNS: [Column; 9] = [
            column("process", "Process", Unit::Text),
            column("kernel", "Kernel", Unit::Name),
            column("percent", "Time", Unit::Percent),
            column("gpu_ns", "Time", Unit::Ns),
            column("error_ns", "Error", Unit::Ns),
            column("mean_ns", "Mean", Unit::Ns),
            column("launches", "Launches", Unit::Count),
            column("timed", "Timed", Unit::Count),
            column("told", "In windows", Unit::Count),
        ];
        let mut section = Section::default();
        let kernels = facts.samples.kernels();
        let sum = |of: &dyn Fn(&Estimate) -> f64| kernels.iter().map(|(_, estimate)| of(estimate)).sum::<f64>();
        let (all_ns, launches) = (sum(&|estimate| estimate.ns), sum(&|estimate| estimate.launches));
        let known = |value: f64| Some(value).filter(|_| facts.samples.any());
        section.fact("estimated_ns", "time on GPUs, about", Unit::Ns, known(all_ns));
        let error = sum(&|estimate| estimate.error_ns().powi(2)).sqrt();
        section.fact("estimated_error_ns", "give or take", Unit::Ns, known(error));
        let timed = sum(&|estimate| estimate.timed as f64);
        let share = known(timed).map(|timed| 100.0 * timed / launches.max(1.0));
        section.fact("timed_share_percent", "launches that were timed", Unit::Percent, share);
        let told = sum(&|estimate| estimate.told as f64);
        let share = known(told).map(|told| 100.0 * told / launches.max(1.0));
        section.fact("told_share_percent", "launches of which CUPTI told in windows", Unit::Percent, share);
        if !facts.samples.any() {
            section.note(NOTHING);
            return section;
        }
        unknown_note(&mut section, sum(&|estimate| estimate.unknown));
        let rows = kernels.iter().map(|((process_id, name_id), estimate)| {
            let name = if *name_id == GRAPH { "(graphs)".to_owned() } else { facts.names.full(*name_id) };
            vec![
                facts.label(*process_id).into(),
                name.into(),
                percent(estimate.ns, all_ns),
                estimate.ns.into(),
                estimate.error_ns().into(),
                (estimate.ns / (estimate.launches - estimate.unknown).max(1.0)).into(),
                (estimate.launches.round() as u64).into(),
                estimate.timed.into(),
                estimate.told.into(),
            ]
        });
        section.table(Table::new("by_kernel", "By kernel", &COLUMNS, rows.collect()));
        section
    }
}

/// Says of how many launches nothing is known, nor of any like them.
fn unknown_note(section: &mut Section, launches: f64) {
    if launches > 0.0 {
        section.note(format!(
            "Of {} launches no time is known, nor of any like them: they are not in it.",
            number(launches)
        ));
    }
}

/// Whether the busy time of the whole run is to be estimated: launches were timed, and CUPTI told of less than nearly all of it.
pub(super) fn estimates(facts: &Facts<'_>) -> bool {
    let ranges: f64 = facts.samples.devices().iter().map(|device| device.range_ns as f64).sum();
    let told = || match &facts.filter.observed {
        None => 1.0,
        Some(spans) => spans.sums().1 as f64 / ranges.max(1.0),
    };
    facts.samples.any() && (facts.gpu.as_ref().is_none_or(|gpu| !gpu.any()) || told() < NEARLY_ALL)
}

/// How busy GPUs were over the whole run, by launches that were timed and those of which CUPTI told in windows. Whether there are any.
pub(super) fn utilisation(facts: &Facts<'_>, section: &mut Section) -> bool {
    const COLUMNS: [Column; 8] = [
        column("device", "GPU", Unit::Text),
        column("range_ns", "Range", Unit::Ns),
        column("busy_ns", "Busy, about", Unit::Ns),
        column("busy_percent", "Busy, about", Unit::Percent),
        column("error_points", "Give or take", Unit::Percent),
        column("launches", "Launches", Unit::Count),
        column("timed", "Timed", Unit::Count),
        column("told", "In windows", Unit::Count),
    ];
    let samples: &Samples = &facts.samples;
    let devices = samples.devices();
    if devices.is_empty() {
        return false;
    }
    let sum = |of: &dyn Fn(&Device) -> f64| devices.iter().map(of).sum::<f64>();
    let range = sum(&|device| device.range_ns as f64);
    let busy = sum(&|device| device.busy.ns.min(device.range_ns as f64));
    let error = sum(&|device| device.busy.error_ns().powi(2)).sqrt();
    section.fact("devices", "GPUs with work", Unit::Count, devices.len() as u64);
    section.fact("range_ns", "range, summed over GPUs", Unit::Ns, range);
    section.fact("busy_ns", "busy, about", Unit::Ns, busy);
    section.fact("busy_percent", "utilisation, about", Unit::Percent, percent(busy, range));
    let (launches, timed) = (sum(&|device| device.busy.launches), sum(&|device| device.busy.timed as f64));
    let told = sum(&|device| device.busy.told as f64);
    let windows =
        if told > 0.0 { format!(", and {} of which CUPTI told in windows", number(told)) } else { String::new() };
    section.note(format!(
        "An estimate of the whole run, give or take {:.1} points 95 times in 100, from {} of {} launches, which were timed by events{windows} \
         (--explain timed-kernels): copies and sets are not in it, graphs count from begin to end, and kernels that run beside \
         each other count each for itself, up to all of the time.",
        100.0 * error / range.max(1.0),
        number(timed),
        number(launches)
    ));
    unknown_note(section, sum(&|device| device.busy.unknown));
    let most = devices.iter().map(|device| device.processes).max().unwrap_or_default();
    if most > 1 {
        section.note(format!("Up to {most} processes share a GPU: its busy time is the sum of theirs."));
    }
    let ordinals: BTreeSet<i32> = devices.iter().map(|device| device.device).collect();
    let rows = devices.iter().map(|device| {
        let name = match ordinals.len() == devices.len() {
            true => device.device.to_string(),
            false => format!("{} of {}", device.device, facts.label(device.process_id)),
        };
        let row: Vec<Value> = vec![
            name.into(),
            device.range_ns.into(),
            device.busy.ns.min(device.range_ns as f64).into(),
            device.percent().into(),
            device.error_points().into(),
            (device.busy.launches.round() as u64).into(),
            device.busy.timed.into(),
            device.busy.told.into(),
        ];
        row
    });
    section.table(Table::new("estimated_by_device", "By GPU, estimated", &COLUMNS, rows.collect()));
    true
}
