//! What stands on the screen, as text: the lines at the top, and the rows of the three panes.

use std::collections::BTreeMap;

use gputrace_collectors::live::{HotKernel, HotSite, Process, Snapshot};

use super::devices;
use super::rates::{History, Rates};
use super::table::{Cell, Column, Row};
use crate::render::{bytes, duration, time};
use crate::trace::{Frame, SiteFinder, full_name, printable};

/// Columns of the processes. All but rank and mallocs have room in 80 columns.
pub(crate) const PROCESSES: &[Column] = &[
    Column { name: "pid", head: "PID", width: 7, importance: 0 },
    Column { name: "rank", head: "RANK", width: 5, importance: 10 },
    Column { name: "launches", head: "LAUNCH/S", width: 8, importance: 1 },
    Column { name: "gpu", head: "GPU", width: 6, importance: 2 },
    Column { name: "sync", head: "SYNC", width: 6, importance: 3 },
    Column { name: "copies", head: "CP GB/S", width: 7, importance: 6 },
    Column { name: "memory", head: "DEV MEM", width: 8, importance: 4 },
    Column { name: "allocs", head: "ALLOC/S", width: 7, importance: 7 },
    Column { name: "mallocs", head: "MALLOC/S", width: 8, importance: 11 },
    Column { name: "dropped", head: "DROPPED", width: 7, importance: 8 },
    Column { name: "cost", head: "COST", width: 6, importance: 9 },
    Column { name: "command", head: "COMMAND", width: 8, importance: 5 },
];

/// Columns of the kernels.
pub(crate) const KERNELS: &[Column] = &[
    Column { name: "time", head: "GPU TIME", width: 8, importance: 1 },
    Column { name: "calls", head: "RUNS/S", width: 8, importance: 2 },
    Column { name: "mean", head: "MEAN", width: 9, importance: 3 },
    Column { name: "kernel", head: "KERNEL", width: 6, importance: 0 },
];

/// Columns of the lines.
pub(crate) const SITES: &[Column] = &[
    Column { name: "time", head: "TIME", width: 8, importance: 1 },
    Column { name: "calls", head: "CALLS/S", width: 8, importance: 2 },
    Column { name: "class", head: "CLASS", width: 10, importance: 3 },
    Column { name: "line", head: "CALL SITE", width: 9, importance: 0 },
];

/// The columns of the panes, in their order.
pub(crate) const PANES: [&[Column]; 3] = [PROCESSES, KERNELS, SITES];

/// Class of waits for the operating system; and more than all threads of a process can wait in a second.
const OS_WAIT: &str = "os_wait";
const BELOW: f64 = 1e9;

/// What stands on the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    /// What it is of.
    pub(crate) title: String,
    /// What it comes to.
    pub(crate) verdict: String,
    /// The rows of each pane, as they came.
    pub(crate) rows: [Vec<Row>; 3],
    /// What time the kernels and lines are of.
    pub(crate) span: String,
    /// Why there are none, where that must be said.
    pub(crate) none: [&'static str; 3],
}

/// What a session is doing.
pub(crate) fn of_session(history: &History, sites: &mut SiteFinder) -> View {
    let Some(now) = history.last() else { return View { title: "asking ...".to_owned(), ..View::default() } };
    let rates: Vec<(&Process, Option<Rates>, Option<f64>)> =
        now.processes.iter().map(|one| (one, history.rates(one), history.gpu_busy(one))).collect();
    let hot = now.hot.clone().unwrap_or_default();
    let seconds = hot.span_ns as f64 / 1e9;
    View {
        title: title(now),
        verdict: verdict(history, now, &rates),
        rows: [
            rates.iter().map(|(process, rates, busy)| process_row(process, rates.as_ref(), *busy)).collect(),
            hot.kernels.iter().map(|kernel| kernel_row(kernel, seconds)).collect(),
            site_rows(hot.sites.iter().map(|site| named(site, sites)), seconds),
        ],
        span: format!("last {seconds:.0} s{}", if hot.cut { ", not all are kept" } else { "" }),
        none: [
            "no traced process runs",
            "no kernel was launched",
            "no call with a stack (--stacks-over says which calls get one)",
        ],
    }
}

fn title(now: &Snapshot) -> String {
    let words: Vec<String> = now.command.iter().map(|word| gputrace_collectors::quote(word)).collect();
    let running = now.processes.len() as u64 + now.beyond;
    let mut parts = vec![format!("up {}", duration((now.at_ns - now.started_ns).max(0) as f64))];
    parts.push(format!("{running} {}", if running == 1 { "process" } else { "processes" }));
    let counts = [
        (now.ended, "ended"),
        (now.beyond, "of these not listed"),
        (now.untraced, "not traced"),
        (now.hangs, "calls hung"),
    ];
    parts.extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    format!("{}  {}", printable(&words.join(" ")), parts.join(", "))
}

/// One line: what limits the processes, as far as that shows.
fn verdict(history: &History, now: &Snapshot, all: &[(&Process, Option<Rates>, Option<f64>)]) -> String {
    if all.is_empty() {
        return "no traced process runs".to_owned();
    }
    if now.processes.iter().all(|process| !process.recording) {
        return "recording is off: gputrace start switches it on".to_owned();
    }
    let known: Vec<&Rates> = all.iter().filter_map(|(_, rates, _)| rates.as_ref()).collect();
    if known.is_empty() {
        return "rates follow with the next look".to_owned();
    }
    let sum = |of: fn(&Rates) -> f64| known.iter().map(|rates| of(rates)).sum::<f64>();
    let dropped = known.iter().map(|rates| rates.dropped).sum::<u64>();
    let lost = if dropped > 0 { format!("; {dropped} events found no room just now") } else { String::new() };
    if sum(|rates| rates.launches + rates.kernels + rates.waits + rates.copied_bytes) == 0.0 {
        return format!("no launch, copy or wait since the last look{lost}");
    }
    // Processes that do nothing with the GPU say nothing of it.
    let uses: Vec<_> =
        all.iter().filter(|(_, rates, _)| rates.as_ref().is_some_and(|r| r.launches + r.waits > 0.0)).collect();
    let many = uses.len().max(1) as f64;
    let (waits, gives) = (sum(|r| r.waits) / many, sum(|r| r.in_launches + r.in_copies) / many);
    let host = format!("the host waits {} and launches or copies {} of the time", share(waits), share(gives));
    let busy: Vec<_> = uses.iter().filter_map(|(process, _, busy)| Some((*process, (*busy)?))).collect();
    let busy = devices::shares(history, &busy);
    if busy.is_empty() {
        return format!("GPU times are not known (--gpu-time); {host}{lost}");
    }
    let busy = busy.iter().sum::<f64>() / busy.len() as f64;
    let so = match (busy, waits) {
        (busy, _) if busy >= 0.9 => "the GPU is the limit",
        (_, waits) if waits >= 0.5 => "it idles although the host mostly waits",
        _ => "it idles for the host",
    };
    format!("GPU busy {}: {so}; {host}{lost}", share(busy))
}

pub(crate) fn process_row(process: &Process, rates: Option<&Rates>, busy: Option<f64>) -> Row {
    let of = |value: fn(&Rates) -> f64| Cell::number(rates.map(value), per_s);
    let kinds = &process.sums.kinds;
    let dropped: u64 = kinds.values().map(|kind| kind.dropped).sum();
    let counts_memory = kinds.contains_key("alloc") || kinds.contains_key("free");
    let memory = counts_memory.then_some(process.sums.device_memory_bytes as f64);
    let has = |kind: &str| kinds.contains_key(kind);
    let command = printable(if process.command.is_empty() { &process.exe } else { &process.command });
    let off = if process.recording { "" } else { "(off) " };
    vec![
        Cell::number(Some(f64::from(process.pid)), |pid| format!("{pid}")),
        Cell::number(process.rank.map(f64::from), |rank| format!("{rank}")),
        of(|rates| rates.launches),
        Cell::number(busy, share),
        Cell::number(rates.map(|rates| rates.waits), share),
        Cell::number(rates.map(|rates| rates.copied_bytes / 1e9), giga),
        Cell::number(memory, bytes),
        of(|rates| rates.allocs),
        Cell::number(rates.filter(|_| has("host_alloc")).map(|rates| rates.mallocs), per_s),
        Cell::number(Some(dropped as f64), per_s),
        Cell::number(rates.and_then(|rates| rates.cost), share),
        Cell::text(format!("{off}{command}")),
    ]
}

/// A kernel; `seconds`: of how long a time.
pub(crate) fn kernel_row(kernel: &HotKernel, seconds: f64) -> Row {
    let runs = kernel.launches.max(kernel.timed) as f64;
    let mean = (kernel.timed > 0).then(|| kernel.gpu_ns as f64 / kernel.timed as f64);
    // Where only some of its runs were timed the others are taken to be like them.
    let time_share = mean.filter(|_| seconds > 0.0).map(|mean| mean * runs / 1e9 / seconds);
    let name = kernel.name.as_deref().map_or_else(|| "(a kernel without a name)".to_owned(), full_name);
    vec![
        Cell::number(time_share, share),
        Cell::number((seconds > 0.0).then(|| runs / seconds), per_s),
        Cell::number(mean, time),
        Cell::text(name),
    ]
}

/// Class and line of calls, and what they come to.
pub(crate) type Site = ((String, Option<String>), Made);

/// Calls, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Made {
    pub(crate) calls: f64,
    pub(crate) ns: f64,
    /// Of some that were drawn, which stand for the others.
    pub(crate) estimated: bool,
}

fn named(site: &HotSite, sites: &mut SiteFinder) -> Site {
    let frames = site.frames.iter().map(|frame| Frame {
        python: frame.python,
        function: if frame.python { printable(&frame.function) } else { full_name(&frame.function) },
        file: frame.file.clone().unwrap_or_default(),
        line: frame.line,
        module: frame.module.clone().unwrap_or_default(),
        address: frame.offset.filter(|_| frame.function.is_empty()),
    });
    let line = sites.find(&frames.collect::<Vec<_>>()).map(|site| site.short());
    let made = Made { calls: site.calls as f64, ns: site.total_ns as f64, estimated: site.drawn > 0 };
    ((site.kind.to_string(), line), made)
}

/// A row for each class and line, whatever called the line; `seconds`: of how long a time.
pub(crate) fn site_rows(sites: impl Iterator<Item = Site>, seconds: f64) -> Vec<Row> {
    let mut by_line: BTreeMap<(String, Option<String>), Made> = BTreeMap::new();
    for (line, Made { calls, ns, estimated }) in sites {
        let sums = by_line.entry(line).or_default();
        *sums = Made { calls: sums.calls + calls, ns: sums.ns + ns, estimated: sums.estimated || estimated };
    }
    let mut lines: Vec<Site> = by_line.into_iter().collect();
    lines.sort_by(|(_, a), (_, b)| b.ns.total_cmp(&a.ns).then(b.calls.total_cmp(&a.calls)));
    let row = |((class, line), Made { calls, ns, estimated }): Site| {
        let about = if estimated { "~" } else { "" };
        let known = Some(seconds).filter(|seconds| *seconds > 0.0);
        let mut time =
            Cell::number(known.map(|seconds| ns / 1e9 / seconds), |value| format!("{about}{}", share(value)));
        // Threads that have nothing to do wait as well: what waits for the system stands below what is done.
        if class == OS_WAIT {
            time.key = time.key.map(|share| share - BELOW);
        }
        let calls = Cell::number(known.map(|seconds| calls / seconds), |value| format!("{about}{}", per_s(value)));
        let line = line.unwrap_or_else(|| "(a line that is not known)".to_owned());
        vec![time, calls, Cell::text(class), Cell::text(line)]
    };
    lines.into_iter().map(row).collect()
}

/// `0`, `7.3`, `512`, `12.3k`, `4.5M`.
pub(crate) fn per_s(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v < 99.95 => format!("{v:.1}"),
        v if v < 9_999.5 => format!("{v:.0}"),
        v if v < 999_950.0 => format!("{:.1}k", v / 1e3),
        v if v < 999_950_000.0 => format!("{:.1}M", v / 1e6),
        v => format!("{:.1}G", v / 1e9),
    }
}

/// `0 %`, `<0.1 %`, `0.3 %`, `43 %`.
pub(crate) fn share(value: f64) -> String {
    let percent = value * 100.0;
    match percent {
        p if p > 0.0 && p < 0.05 => "<0.1 %".to_owned(),
        p if p > 0.0 && p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// GB, with what makes three digits.
pub(crate) fn giga(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v < 9.995 => format!("{v:.3}"),
        v => format!("{v:.1}"),
    }
}
