//! What is known of each GPU around a span of time, or around steps, that the user chose.
//!
//! Of the rows in a span alone nobody could tell whether a GPU idled before the first operation in it, or worked at what had
//! begun earlier. So the rows around it are looked at once: from when to when a GPU did anything in the whole run, and what
//! still ran when the span began. Within these times, all of the span is the GPU's, work or no work.

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::order::{Columns, Operation, Work};
use crate::trace::{DeviceNames, Filter, Identity, NO_NAME, Trace, Want};

/// A device in a span of time: of processes that share it and have steps of their own, from the first begin to the last end.
#[derive(Debug)]
pub(super) struct InSpan {
    /// Whose operation was the last one that began before the span's end, and the ordinal that the device has there.
    pub(super) named: (i64, i32),
    /// The part of the span that lies between its first operation of all and the end of its last.
    pub(super) window: (i64, i64),
    /// What had begun before the window and ran in it: the part inside, in the order of the begin.
    pub(super) running: Vec<Operation>,
    /// End of what began before the chosen begin, if any did: the device ran dry then, or later.
    pub(super) dry_ns: Option<i64>,
    /// Begin of the last operation before the span's end.
    last_begin_ns: i64,
    /// What the user chose of the processes that use it.
    chosen: (i64, i64),
}

const COLUMNS: &[&str] = &["gpu_ns", "device", "stream", "correlation_id"];
const WANTS: [Want; 2] = [
    Want { table: TableId::Kernels, columns: &["gpu_ns", "device", "stream", "correlation_id", "name_id"] },
    Want { table: TableId::DeviceCopies, columns: COLUMNS },
];

/// The devices that are known to have been there in what the user chose; none where neither a span nor steps were chosen.
///
/// Of a trace that has single events in intervals only it is not known what lies between these.
pub(super) fn devices(
    trace: &Trace,
    filter: &Filter,
    names: &DeviceNames,
    communication: &FxHashSet<i64>,
) -> FxHashMap<Identity, InSpan> {
    let mut found: FxHashMap<Identity, InSpan> = FxHashMap::default();
    if !filter.is_stretch() || filter.named_span().is_some() && trace.intervals().is_some() {
        return found;
    }
    let ranges = filter.within.iter().filter(|spans| spans.projects()).cloned().collect();
    let all = Filter { within: ranges, ..filter.around_steps() };
    trace.scan(&WANTS, &all, &mut |rows| {
        let (columns, name) = (Columns::of(rows), rows.i64_or("name_id", NO_NAME));
        let mut known: Option<((i64, i32), Identity)> = None;
        for row in 0..rows.len {
            let work = match rows.table {
                TableId::DeviceCopies => Work::Copy,
                _ if communication.contains(&name[row]) => Work::Communication,
                _ => Work::Kernel,
            };
            let Some(of) = columns.operation(row, name[row], work) else { continue };
            let named = (of.process_id, of.device);
            let Some(chosen) = filter.work_span(of.process_id) else { continue };
            if known.as_ref().is_none_or(|(last, _)| *last != named) {
                known = Some((named, names.identity(rows.launcher, named.0, named.1)));
            }
            let Some((_, identity)) = &known else { continue };
            match found.get_mut(identity) {
                Some(device) => device.add(&of, chosen),
                None => {
                    let window = (of.start, of.end);
                    let mut device =
                        InSpan { named, window, running: Vec::new(), dry_ns: None, last_begin_ns: i64::MIN, chosen };
                    device.add(&of, chosen);
                    found.insert(identity.clone(), device);
                }
            }
        }
    });
    for device in found.values_mut() {
        device.window = (device.window.0.max(device.chosen.0), device.window.1.min(device.chosen.1));
        device.running.sort_by_key(|of| (of.start, of.end));
    }
    found.retain(|_, device| device.window.0 < device.window.1);
    found
}

impl InSpan {
    fn add(&mut self, of: &Operation, (from, to): (i64, i64)) {
        self.chosen = (self.chosen.0.min(from), self.chosen.1.max(to));
        self.window = (self.window.0.min(of.start), self.window.1.max(of.end));
        if of.start < to && of.start >= self.last_begin_ns {
            (self.named, self.last_begin_ns) = ((of.process_id, of.device), of.start);
        }
        if of.start < from {
            self.dry_ns = self.dry_ns.max(Some(of.end));
        }
        if of.start < from && of.end > from {
            self.running.push(Operation { start: from, end: of.end.min(to), ..*of });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::gpu_gaps::GpuGaps;
    use crate::analysis::gpu_utilisation::GpuUtilisation;
    use crate::analysis::kernels::Kernels;
    use crate::analysis::summary::Summary;
    use crate::analysis::{Analysis, Facts, Need, answer};
    use crate::trace::testing::{START, TestTrace};
    use crate::trace::{Filter, Trace};

    /// Three kernels of 10 us each, which begin at 0, 40 and 90 us.
    fn made() -> (TestTrace, Trace) {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 1_000_000_000);
        let mut thread = made.thread(1, 11);
        let begin = thread.now + 20_000;
        for at in [0, 40_000, 90_000] {
            thread.host((begin + at - 5_000 - thread.now).max(0));
            thread.launch_running("k", 2_000, 7, (begin + at, 10_000));
        }
        assert_eq!(begin, FIRST);
        let trace = made.open();
        (made, trace)
    }

    /// Begin of the first kernel.
    const FIRST: i64 = START + 20_000;

    /// In a span, in us since the first kernel: busy and idle time, the same by cause, and what is said of it.
    fn judged(trace: &Trace, from: i64, to: i64) -> (i64, i64, Vec<String>) {
        let filter =
            Filter { from_ns: Some(FIRST + from * 1_000), to_ns: Some(FIRST + to * 1_000), ..Filter::whole(trace) };
        let mut sums = Vec::new();
        for need in [Need::Busy, Need::Gpu] {
            let facts = Facts::gather(trace, &filter, &[need]);
            let gpu = facts.gpu.as_ref().expect("times of a GPU");
            let sum = |of: &dyn Fn(&super::super::Device) -> i64| gpu.devices.iter().map(of).sum::<i64>() / 1_000;
            sums.push((sum(&|device| device.busy().total_ns()), sum(&|device| device.idle_ns())));
            if need == Need::Gpu {
                sums.push((sums[0].0, sum(&|device| device.idle.iter().map(|gaps| gaps.ns).sum())));
            }
        }
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
        let facts = Facts::gather(trace, &filter, &[Need::Busy, Need::Gpu, Need::GpuClock, Need::Executions]);
        let analyses: [&dyn Analysis; 3] = [&GpuUtilisation, &GpuGaps, &Kernels];
        let notes = analyses.into_iter().flat_map(|analysis| answer(analysis, &facts).notes).collect();
        (sums[0].0, sums[0].1, notes)
    }

    #[test]
    fn a_span_of_time_is_the_gpus_from_its_begin_to_its_end() {
        let (_made, trace) = made();
        for (from, to, busy, idle) in [
            // What still runs when the span begins is busy time, and what follows on the last work idle time.
            (5, 60, 15, 40),
            (-1_000, 1_000, 30, 70),
            (60, 95, 5, 30),
            // Nothing ran, and nothing is known of the time after the last work.
            (15, 35, 0, 20),
            (95, 1_000, 5, 0),
        ] {
            let (is_busy, is_idle, _) = judged(&trace, from, to);
            assert_eq!((is_busy, is_idle), (busy, idle), "{from} .. {to}");
        }
    }

    #[test]
    fn a_span_without_work_is_no_trace_without_times() {
        let (_made, trace) = made();
        for (from, to) in [(15, 35), (200, 300)] {
            let (_, _, notes) = judged(&trace, from, to);
            let said = |note: &&String| note.starts_with("No work of a GPU began in what was chosen");
            assert_eq!(notes.iter().filter(said).count(), 3, "{notes:?}");
            assert!(notes.iter().all(|note| !note.contains("--gpu-time full records them")), "{notes:?}");
            let filter =
                Filter { from_ns: Some(FIRST + from * 1_000), to_ns: Some(FIRST + to * 1_000), ..Filter::default() };
            let facts = Facts::gather(&trace, &filter, Summary.needs());
            let text = answer(&Summary, &facts).literal.unwrap_or_default();
            assert!(text.contains("UNKNOWN: no CUDA call began in what was chosen of the trace"), "{text}");
        }
    }
}
