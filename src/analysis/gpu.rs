//! What the analyses of the GPU's own time share: how devices are called, and what they say where there is no such time.

use gputrace_collectors::schema::TableId;

use super::passes::gpu::{Device, Gpu};
use super::section::Section;
use super::{Facts, loss};
use crate::render::duration;

/// What is said where a trace has times of a GPU, and the part of it that the user chose has none.
const NONE_CHOSEN: &str = "No work of a GPU began in what was chosen of the trace; elsewhere in it there is some.";

/// Where operations of GPUs stand.
const TABLES: [TableId; 2] = [TableId::Kernels, TableId::DeviceCopies];

/// What is said where a trace has no times of a GPU, and how to get them.
pub(super) const NO_TIMES: &str = "No times of a GPU are in this trace: gputrace --gpu-time full records them, where the program's CUDA has CUPTI, and --gpu-time events estimates how busy it was. \
    gputrace import reads them from traces of torch.profiler (Kineto) and Nsight Systems.";

/// The same of a trace of Metal, whose times are taken when command buffers complete.
const NO_METAL_TIMES: &str = "No times of a GPU are in this trace: no Metal command buffer was seen to complete.";

/// The pass, or a note in the section.
pub(super) fn times<'a>(facts: &'a Facts<'_>, section: &mut Section) -> Option<&'a Gpu> {
    let gpu = sums(facts, section)?;
    late_note(section, gpu);
    Some(gpu)
}

/// The same, for who looks at the time of devices: in a span that the user named there may be one that did nothing.
pub(super) fn devices<'a>(facts: &'a Facts<'_>, section: &mut Section) -> Option<&'a Gpu> {
    match &facts.gpu {
        Some(gpu) if !gpu.any() && gpu.devices.iter().next().is_some() => {
            unread_note(section, facts);
            section.note(NONE_CHOSEN);
            late_note(section, gpu);
            Some(gpu)
        }
        _ => times(facts, section),
    }
}

fn late_note(section: &mut Section, gpu: &Gpu) {
    if gpu.late > 0 {
        section.note(format!(
            "{} operations came more than 50 ms after later ones; their time may count as idle.",
            gpu.late
        ));
    }
}

/// The same, for who looks at its sums alone.
pub(super) fn sums<'a>(facts: &'a Facts<'_>, section: &mut Section) -> Option<&'a Gpu> {
    unread_note(section, facts);
    let gpu = facts.gpu.as_ref().filter(|gpu| gpu.any());
    let Some(gpu) = gpu else {
        no_times_note(section, facts);
        return None;
    };
    if gpu.without_time > 0 {
        let count = gpu.without_time;
        section.note(format!("{count} operations end before they begin in the trace; they are in no sum."));
    }
    Some(gpu)
}

/// Says that there are no times of a GPU, where nothing else was said of them.
pub(super) fn no_times_note(section: &mut Section, facts: &Facts<'_>) {
    if windows(facts).is_some() {
        section.note("No window of GPU times lies in what is reported, or none that all processes on a GPU had at the same time.");
        return;
    }
    if facts.trace.has_gpu_times() && !facts.filter.is_all() {
        section.note(NONE_CHOSEN);
        return;
    }
    if unread(facts).is_none() && !loss::is_removed(facts.trace, &TABLES) {
        let metal = facts.processes().any(|process| facts.is_metal(process.process_id));
        section.note(if metal { NO_METAL_TIMES } else { NO_TIMES });
    }
}

/// Why operations of GPUs could not be read, if some could not.
pub(crate) fn unread(facts: &Facts<'_>) -> Option<String> {
    loss::unread(facts, &TABLES)
}

/// Says so, and which were removed for the size limit, in a section with numbers of them.
pub(super) fn unread_note(section: &mut Section, facts: &Facts<'_>) {
    if let Some(problem) = unread(facts) {
        section.note(format!(
            "Some operations of GPUs could not be read: times of the GPU are too short here, and its idle time is too \
             long. {problem}"
        ));
    }
    loss::removed_note(section, facts, &TABLES);
    if let Some(windows) = windows(facts) {
        section.note(format!("{windows}: times of the GPU here are of these, and of no other time."));
    }
}

/// In how much of the run it is known what the GPU did, where that is not all of it.
pub(crate) fn windows(facts: &Facts<'_>) -> Option<String> {
    let (count, ns) = facts.filter.observed.as_ref()?.sums();
    let windows = if count == 1 { "window" } else { "windows" };
    Some(format!("GPU times are known in {count} {windows}, {} in all", duration(ns as f64)))
}

/// `0` where one process or rank has it, else `0 of rank 3`.
pub(crate) fn name(facts: &Facts<'_>, gpu: &Gpu, device: &Device) -> String {
    let (process_id, ordinal) = device.named;
    let same = gpu.devices.iter().filter(|other| other.named.1 == ordinal).count();
    if same <= 1 { ordinal.to_string() } else { format!("{ordinal} of {}", facts.label(process_id)) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gputrace_collectors::manifest::Removed;

    use super::*;
    use crate::analysis::{ALL, Section, Value};
    use crate::trace::testing::{START, TestTrace};
    use crate::trace::{Filter, Trace};

    /// The sections of a trace of which so many of four files with kernels are damaged.
    fn damaged(files: usize) -> Vec<(&'static str, Section)> {
        let made = TestTrace::rich();
        let folder = made.write_parts(4).to_owned();
        let listed = fs::read_dir(folder.join("kernels/host=node")).expect("kernels");
        for file in listed.take(files) {
            let file = file.expect("a file of kernels").path();
            let bytes = fs::read(&file).expect("a file of kernels");
            fs::write(&file, &bytes[..bytes.len() / 2]).expect("our own file");
        }
        let (trace, filter) = (Trace::open(&[folder]).expect("a trace"), Filter::default());
        let needs: Vec<_> = ALL.iter().flat_map(|analysis| analysis.needs()).copied().collect();
        let facts = Facts::gather(&trace, &filter, &needs);
        ALL.iter().map(|analysis| (analysis.name(), analysis.section(&facts))).collect()
    }

    /// Analyses with numbers of operations.
    const ON_GPU: [&str; 15] = [
        "gpu-utilisation",
        "gpu-gaps",
        "critical-path",
        "kernel-sequences",
        "launch-overhead",
        "metal-baseline",
        "queue-length",
        "kernels",
        "occupancy",
        "roofline",
        "streams",
        "transfers",
        "ranks",
        "ranges",
        "ops",
    ];

    #[test]
    fn one_window_is_no_windows() {
        for (count, says) in [(1, "in 1 window, 20.0 ms in all"), (2, "in 2 windows, 40.0 ms in all")] {
            let mut made = TestTrace::new();
            made.process(1, 100, None, START + 1_000_000_000);
            for at in 0..count {
                let start_ns = START + at * 500_000_000;
                let row = serde_json::json!({
                    "start_ns": start_ns, "window_ns": 20_000_000, "process_id": 1, "kind": "window", "ended_by": "window",
                });
                made.row(TableId::GpuWindows, row);
            }
            let trace = made.open();
            let filter = Filter::of(&trace);
            let said = windows(&Facts::gather(&trace, &filter, &[])).expect("windows");
            assert_eq!(said, format!("GPU times are known {says}"));
        }
    }

    #[test]
    fn of_a_process_that_has_just_begun_nothing_is_known_yet() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 1_000_000_000);
        made.process(2, 200, None, START + 1_000_000_000);
        let row = serde_json::json!({
            "start_ns": START, "window_ns": 500_000_000, "process_id": 1, "kind": "full", "ended_by": "unknown",
        });
        made.row(TableId::GpuWindows, row);
        made.manifest.as_mut().expect("a manifest").processes[1].running = true;
        let trace = made.open();
        let filter = Filter::of(&trace);
        let known = |id| filter.observed_of(id).map(|spans| spans.hold(id, None, START + 9));
        assert_eq!((known(1), known(2)), (Some(true), Some(false)));
    }

    #[test]
    fn answers_that_lack_removed_kernels_say_so() {
        for all in [false, true] {
            let mut made = if all { TestTrace::new() } else { TestTrace::rich() };
            made.process(1, 100, None, START + 1_000_000_000);
            made.thread(1, 11).launch("k", 2_000);
            let about = made.manifest.as_mut().expect("a manifest");
            about.removed.push(Removed {
                table: "kernels".into(),
                limit: "--max-size".into(),
                rows: 30,
                from_ns: START,
                to_ns: START + 9,
            });
            for name in ON_GPU {
                let analysis = ALL.iter().find(|analysis| analysis.name() == name).expect("an analysis");
                let notes = made.section(*analysis).notes;
                let said =
                    notes.iter().filter(|note| note.starts_with("Removed") && note.contains("(30 rows)")).count();
                let nothing_else = all && ["ranges", "ops", "ranks"].contains(&name);
                assert!(said == 1 || nothing_else, "{name}: {notes:?}");
                assert!(notes.iter().all(|note| note != NO_TIMES), "{name}: {notes:?}");
            }
        }
    }

    #[test]
    fn numbers_and_findings_are_not_made_of_the_operations_that_are_left() {
        for files in [2, 4] {
            for (name, section) in damaged(files) {
                let metric = match name {
                    "summary" => "gpu_idle_ns",
                    "gpu-gaps" => "idle_percent",
                    "gpu-utilisation" => "busy_percent",
                    _ => continue,
                };
                let mut known = section.facts.iter().filter(|fact| fact.key == metric);
                assert!(known.all(|fact| fact.value == Value::Missing), "{name}");
                let text = section.literal.unwrap_or_default();
                assert!(!text.contains("not launched") && !text.contains("the GPU waits"), "{text}");
            }
        }
    }

    #[test]
    fn answers_that_lack_kernels_say_so_and_why() {
        let told = |section: &Section| {
            section.notes.iter().any(|note| note.contains("could not be read") && note.contains("parquet"))
        };
        for (name, section) in damaged(2) {
            assert_eq!(told(&section), ON_GPU.contains(&name), "{name}: {:?}", section.notes);
            let text = section.literal.clone().unwrap_or_default();
            assert!(name != "summary" || text.contains("busy and idle time not known: see the verdict"), "{text}");
        }
        for (name, section) in damaged(4) {
            let untimed = section.notes.iter().any(|note| note == NO_TIMES);
            assert!(!untimed, "{name}: {:?}", section.notes);
        }
        assert!(damaged(0).iter().all(|(_, section)| !told(section)));
    }
}
