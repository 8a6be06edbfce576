//! When it is known what the GPU did, in a trace whose GPU times were recorded in windows, or not while somebody else used CUPTI.

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{DeviceNames, Filter, Identity, Process, Spans, Trace, Want, sharing};

/// A window of a process.
#[derive(Debug)]
struct Window {
    from: i64,
    to: i64,
    /// When all that was given before it opened is known to be done: nothing of it hides in the GPU's time from then on.
    known: Option<i64>,
    /// The last time before it opened at which a call gave work, and at which one had waited for everything.
    gave: i64,
    waited: i64,
}

/// The windows of each process, in order.
#[derive(Debug, Default)]
struct Windows(FxHashMap<i64, Vec<Window>>);

impl Windows {
    /// The window in which a moment lies.
    fn at(&mut self, process_id: i64, at: i64) -> Option<&mut Window> {
        let of = self.0.get_mut(&process_id)?;
        let nth = of.partition_point(|window| window.from <= at).checked_sub(1)?;
        of.get_mut(nth).filter(|window| at < window.to)
    }

    /// The first one that opens after a moment.
    fn after(&mut self, process_id: i64, at: i64) -> Option<&mut Window> {
        let of = self.0.get_mut(&process_id)?;
        let nth = of.partition_point(|window| window.from <= at);
        of.get_mut(nth)
    }

    /// From this moment on all is known of the window in which it lies.
    fn known(&mut self, process_id: i64, at: i64) {
        if let Some(window) = self.at(process_id, at) {
            window.known = Some(window.known.map_or(at, |known| known.min(at)));
        }
    }
}

impl Trace {
    /// The time in which all work of the GPU is in the trace, of processes whose windows do not cover the whole run; none where
    /// there is no such process.
    ///
    /// What was given before a window opened is not told of, and may still run then. So a window's time begins when a call has
    /// waited for all of it, before or in the window, or with the first work that was given in the window. Of a device that
    /// processes share, all is known while it is of each of them that has given work.
    pub(crate) fn observed(&self) -> Option<Spans> {
        let (mut windows, whole) = self.windows();
        if windows.0.is_empty() {
            return None;
        }
        let all = Filter::default();
        let mut streams: FxHashMap<i64, FxHashSet<i64>> = FxHashMap::default();
        let wants = [TableId::Kernels, TableId::DeviceCopies].map(|table| Want { table, columns: &["stream"] });
        self.scan(&wants, &all, &mut |rows| {
            let (start, process, stream) = (rows.i64("start_ns"), rows.i64("process_id"), rows.i64("stream"));
            for row in 0..rows.len {
                windows.known(process[row], start[row]);
                streams.entry(process[row]).or_default().insert(stream[row]);
            }
        });
        let names = DeviceNames::new(&self.processes);
        let mut used: FxHashMap<Identity, Vec<i64>> = FxHashMap::default();
        let mut gave: FxHashMap<(i64, i32), i64> = FxHashMap::default();
        let wants = [TableId::Launches, TableId::Transfers].map(|table| Want { table, columns: &["device"] });
        self.scan(&wants, &all, &mut |rows| {
            let (start, process, device) = (rows.i64("start_ns"), rows.i64("process_id"), rows.i32_or("device", -1));
            for row in 0..rows.len {
                if device[row] >= 0 {
                    let first = gave.entry((process[row], device[row])).or_insert_with(|| {
                        let device = names.identity(rows.launcher, process[row], device[row]);
                        used.entry(device).or_default().push(process[row]);
                        start[row]
                    });
                    *first = start[row].min(*first);
                }
                if let Some(window) = windows.after(process[row], start[row]) {
                    window.gave = window.gave.max(start[row]);
                }
            }
        });
        let wants = [Want { table: TableId::Syncs, columns: &["api_ns", "kind"] }];
        self.scan(&wants, &all, &mut |rows| {
            let (start, process) = (rows.i64("start_ns"), rows.i64("process_id"));
            let (length, kind) = (rows.i64("api_ns"), rows.texts("kind"));
            let one_stream = |process| streams.get(&process).is_none_or(|streams| streams.len() <= 1);
            for row in 0..rows.len {
                // A wait for the only stream is one for everything.
                if kind.get(row) == "context" || kind.get(row) == "stream" && one_stream(process[row]) {
                    let end = start[row].saturating_add(length[row]);
                    windows.known(process[row], end);
                    if let Some(window) = windows.after(process[row], end) {
                        window.waited = window.waited.max(start[row]);
                    }
                }
            }
        });
        let spans = windows.spans();
        let groups = sharing(&used);
        Some(groups.iter().fold(spans, |spans, group| {
            // Of who told of nothing, nothing is known, then as ever.
            let told = group.iter().filter(|process| spans.are_of(**process) || whole.contains(process));
            let lives = told.map(|process| {
                let own = gave.iter().filter(|((of, _), _)| of == process).map(|(_, first)| *first);
                let end = self.process(*process).and_then(|process| process.end_ns);
                (*process, (own.min().unwrap_or(i64::MAX), end.unwrap_or(i64::MAX)))
            });
            let lives: Vec<_> = lives.collect();
            spans.known_of_all(&lives)
        }))
    }

    /// Those of processes of whose run some is in none; and the other processes that have any.
    fn windows(&self) -> (Windows, FxHashSet<i64>) {
        let (mut windows, mut partial) = (Windows::default(), FxHashSet::default());
        let want = [Want { table: TableId::GpuWindows, columns: &["window_ns", "kind", "ended_by", "lost"] }];
        self.scan(&want, &Filter::default(), &mut |rows| {
            let (start, process) = (rows.i64("start_ns"), rows.i64("process_id"));
            let (length, kind, ended_by) = (rows.i64("window_ns"), rows.texts("kind"), rows.texts("ended_by"));
            let lost = rows.i64("lost");
            for row in 0..rows.len {
                if kind.get(row) == "window" || !matches!(ended_by.get(row), "end" | "") {
                    partial.insert(process[row]);
                }
                // A window of which records were lost knows too little. Of a whole run few of very many may be.
                if kind.get(row) == "window" && lost[row] > 0 {
                    windows.0.entry(process[row]).or_default();
                    continue;
                }
                let (from, to) = (start[row], start[row].saturating_add(length[row]));
                let window = Window { from, to, known: None, gave: i64::MIN, waited: i64::MIN };
                windows.0.entry(process[row]).or_default().push(window);
            }
        });
        // Of a process that has just begun, in a trace that is still written, no window is told of yet: nothing is known of it.
        let begins = |process: &&Process| {
            let of = process.manifest.as_ref().filter(|of| of.running);
            of.is_some_and(|of| of.gpu_time.as_ref().is_none_or(|of| of.refused.is_none() && of.given_up.is_none()))
        };
        if !windows.0.is_empty() {
            for process in self.processes.iter().filter(begins) {
                if windows.0.entry(process.process_id).or_default().is_empty() {
                    partial.insert(process.process_id);
                }
            }
        }
        let whole = windows.0.keys().copied().filter(|process| !partial.contains(process)).collect();
        windows.0.retain(|process, _| partial.contains(process));
        for of in windows.0.values_mut() {
            // Of one that was told of while it was open, and has its row since, the longer one stands.
            of.sort_unstable_by_key(|window| (window.from, std::cmp::Reverse(window.to)));
            of.dedup_by_key(|window| window.from);
        }
        (windows, whole)
    }
}

impl Windows {
    fn spans(self) -> Spans {
        let mut spans = Spans::default();
        for (process, of) in self.0 {
            // Work of an earlier time is waited for, or waits with what was given after it.
            let (mut gave, mut waited) = (i64::MIN, i64::MIN);
            // Nothing is known of who has no window that counts.
            if of.is_empty() {
                spans.add(process, None, (0, 0));
            }
            for window in of {
                (gave, waited) = (gave.max(window.gave), waited.max(window.waited));
                let idle = gave == i64::MIN || waited > gave;
                let known = if idle { Some(window.from) } else { window.known };
                spans.add(process, None, (known.unwrap_or(window.to), window.to));
            }
        }
        spans.ordered()
    }
}
