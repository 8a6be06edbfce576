//! A finished trace as one picture: the whole run, from the sums of its events (`whole`).
//!
//! Rates are means over each process's time. Sums do not tell for how long a GPU worked for a process whose streams worked at once:
//! that is shown as not known. How busy all GPUs were is said as the report says it, and so is the most memory that was live (`reported`).

use std::cmp::Reverse;

use gputrace_collectors::live::{HotKernel, Process, Sums};

use super::rates::{Rates, rates};
use super::reported;
use super::table::{Cell, Row};
use super::view::{self, Made, PROCESSES, View};
use super::whole::{Whole, read};
use crate::render::{bytes, duration};
use crate::trace::{self, NO_NAME, Trace};

/// Kernels, and lines, that are shown.
const MOST_SHOWN: usize = 50;

/// Whether processes that used GPUs ran at the same time.
fn overlap(trace: &Trace, whole: &Whole, end_ns: Option<i64>) -> bool {
    let used =
        |process: &&trace::Process| whole.streams.get(&process.process_id).is_some_and(|streams| !streams.is_empty());
    let end = |process: &trace::Process| process.end_ns.or(end_ns).unwrap_or(i64::MAX);
    let mut spans: Vec<_> = trace.processes.iter().filter(used).map(|of| (of.start_ns, end(of))).collect();
    spans.sort_unstable();
    spans.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

/// The picture of a trace.
pub(crate) fn of_trace(trace: &Trace, name: &str) -> View {
    let (whole, reported) = (read(trace), reported::read(trace));
    // Who was killed did not say when it ended, and of who runs there is what was written so far.
    let end_ns = trace.ended_ns().or(whole.last_ns);
    let wall_ns = end_ns.map_or(0, |end| end - trace.began_ns()).max(0);
    let seconds = wall_ns as f64 / 1e9;
    let none = Sums::default();
    let rows = trace.processes.iter().filter(|process| process.traced).map(|process| {
        let sums = whole.processes.get(&process.process_id).unwrap_or(&none);
        let used = reported::busy_of(process, whole.streams.get(&process.process_id));
        let mean = used.map(|used| used.iter().map(|(_, share)| share).sum::<f64>() / used.len().max(1) as f64);
        let mut row = process_row(process, process.end_ns.or(end_ns), sums, mean);
        if let Some(cell) = PROCESSES.iter().position(|column| column.name == "memory").and_then(|at| row.get_mut(at)) {
            let peak = reported.peaks.get(&process.process_id).map(|peak| *peak as f64);
            *cell = Cell::number(peak, bytes);
        }
        row
    });
    let rows: Vec<Row> = rows.collect();
    let verdict = match reported.busy(trace, &whole, end_ns) {
        Some(share) => {
            // Sums of processes that used a GPU at the same time count what they did together for each.
            let most = if reported.is_of_sums() && overlap(trace, &whole, end_ns) { "at most " } else { "" };
            format!("GPU busy {most}{} of the time that is known; gputrace report says why", view::share(share))
        }
        None => "GPU busy time is not in the sums; gputrace report says what limited it".to_owned(),
    };
    // Who was killed left no last word; of a launcher on another host nobody here knows whether it still writes.
    let cut_short = trace.manifests().any(|manifest| manifest.is_cut_short());
    let what = if cut_short { "NOT FINISHED, OR CUT SHORT: what there is" } else { "FINISHED: the whole run" };
    let from = if whole.of_rows { ", from its rows" } else { "" };
    View {
        title: format!("{name}  {what}, {}{from}", duration(wall_ns as f64)),
        verdict,
        rows: [rows, kernel_rows(trace, &whole, seconds), site_rows(trace, &whole, seconds)],
        span: format!("whole run, {}", duration(wall_ns as f64)),
        none: ["no process was traced", "no kernel was launched", "no call had a stack"],
    }
}

fn process_row(process: &trace::Process, end_ns: Option<i64>, sums: &Sums, busy: Option<f64>) -> Row {
    let manifest = process.manifest.as_ref();
    let mut sums = Sums { cost_ns: manifest.and_then(|manifest| manifest.cost.total_ns), ..sums.clone() };
    for (class, count) in manifest.iter().flat_map(|manifest| &manifest.accounting) {
        if let Some(kind) = sums.kinds.get_mut(class.as_str()) {
            kind.dropped = count.dropped;
        }
    }
    let seconds = end_ns.map_or(0.0, |end_ns| (end_ns - process.start_ns) as f64 / 1e9);
    let means: Option<Rates> = (seconds > 0.0).then(|| rates(&sums, &Sums::default(), seconds));
    let shown = Process {
        process_id: process.process_id,
        pid: process.pid,
        rank: process.rank,
        exe: process.exe.clone(),
        command: process.command.clone(),
        recording: true,
        sums,
        ..Process::default()
    };
    view::process_row(&shown, means.as_ref(), busy)
}

fn kernel_rows(trace: &Trace, whole: &Whole, seconds: f64) -> Vec<Row> {
    let mut kernels: Vec<(&i64, &HotKernel)> = whole.kernels.iter().collect();
    kernels.sort_by_key(|(name, kernel)| (Reverse((kernel.gpu_ns, kernel.launches)), **name));
    kernels.truncate(MOST_SHOWN);
    let names = trace.names(&kernels.iter().map(|(name, _)| **name).collect());
    let row = |(name, kernel): (&i64, &HotKernel)| {
        let mut row = view::kernel_row(kernel, seconds);
        if let Some(cell) = row.last_mut().filter(|_| *name != NO_NAME) {
            *cell = Cell::text(names.full(*name));
        }
        row
    };
    kernels.into_iter().map(row).collect()
}

fn site_rows(trace: &Trace, whole: &Whole, seconds: f64) -> Vec<Row> {
    let mut sites: Vec<_> = whole.sites.iter().collect();
    sites.sort_by(|(a, x), (b, y)| y.ns.total_cmp(&x.ns).then(y.calls.total_cmp(&x.calls)).then_with(|| a.cmp(b)));
    sites.truncate(MOST_SHOWN);
    let lines = trace.sites(&sites.iter().map(|((stack, _), _)| *stack).collect());
    let named = |((stack, class), made): (&(i64, String), &Made)| {
        ((class.clone(), lines.get(*stack).map(|site| site.short())), *made)
    };
    view::site_rows(sites.into_iter().map(named), seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    /// A session of `gputrace collect` with launches in each of nine seconds, whose program runs on.
    fn session(stopped: bool) -> TestTrace {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START);
        made.set(gputrace_collectors::schema::TableId::Processes, "end_ns", &json!(null));
        (0..9).for_each(|second| {
            made.rollup(
                second * 1_000_000_000,
                "launch",
                &json!({ "events": 500, "timed": 500, "total_ns": 1_000_000 }),
            );
        });
        let about = made.manifest.as_mut().expect("a manifest");
        (about.complete, about.ended_ns, about.standing) = (false, None, Some("/run/session".to_owned()));
        about.stopped_ns = stopped.then_some(START + 10_000_000_000);
        made
    }

    #[test]
    fn a_session_that_goes_on_has_a_span_and_so_has_what_was_killed() {
        for (stopped, says, launches) in [
            (true, "t  FINISHED: the whole run, 10.0 s", "450"),
            (false, "t  NOT FINISHED, OR CUT SHORT: what there is, 9.00 s", "500"),
        ] {
            let view = of_trace(&session(stopped).open(), "t");
            assert_eq!(view.title, says);
            let place = PROCESSES.iter().position(|column| column.name == "launches").expect("a column");
            assert_eq!(view.rows[0][0][place].text, launches);
        }
    }

    #[test]
    fn of_device_memory_the_most_at_once_is_shown_and_of_a_trace_without_its_rows_nothing() {
        let memory = |made: &TestTrace| {
            let place = PROCESSES.iter().position(|column| column.name == "memory").expect("a column");
            of_trace(&made.open(), "t").rows[0][0][place].text.clone()
        };
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 1_000_000_000);
        let mut thread = made.thread(1, 11);
        for (address, bytes) in [(0x1000, 1 << 30), (0x2000, 2 << 30)] {
            thread.alloc("cuMemAlloc_v2", "device", address, bytes, 10_000);
        }
        thread.free("cuMemFree_v2", "device", 0x2000, 10_000);
        thread.alloc("cuMemAlloc_v2", "device", 0x3000, 1 << 29, 10_000);
        assert_eq!(memory(&made), "3.00 GiB");
        made.remove_before(gputrace_collectors::schema::TableId::DeviceMemory, START + 15_000);
        assert_eq!(memory(&made), "-");
    }
}
