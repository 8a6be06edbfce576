//! host-memory: malloc, estimated from a sample or counted in full.

use gputrace_collectors::schema::TableId;

use super::by_stack::{self, is_removed};
use super::loss::{self, Loss};
use super::passes::host_memory::ProcessHost;
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need, pinned};
use crate::render::{duration, share};

mod sizes;

/// The analysis.
pub(crate) struct HostMemory;

/// Points of live memory over time per process.
const POINTS: usize = 30;

impl Analysis for HostMemory {
    fn name(&self) -> &'static str {
        "host-memory"
    }

    fn title(&self) -> &'static str {
        "Host memory"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "malloc's and free's family. By default one allocation per MiB on average is recorded (Poisson by \
                bytes), and stands for weight_bytes = bytes / (1 - exp(-bytes / mean)). Allocated, rate, live and the sizes \
                are sums of weights: estimates without bias. Live is what was allocated in the trace and not freed, of a part of a \
                trace (--from, --range, --steps) also what was allocated before it; allocated, rate and sizes are of the part. In full \
                mode every call is recorded and the numbers are counts; what --cull summed counts as allocated, and not as live. Resident \
                memory is what /proc told of the process (--counters); beyond malloc is its mean less what was live of malloc: the \
                program itself, stacks, files, memory of the GPU's driver, what the allocator keeps (fragmentation, its caches). In arenas is what glibc's malloc had from the kernel for its arenas, and free in \
                them what no block had, on the mean of the looks (--malloc-arenas): fragmentation, and what it keeps for later. Mapped is what mmap's \
                family gave and was not unmapped (--mmap). Pinned is what the driver gave (cuMemAllocHost, cuMemHostAlloc), which comes from the kernel \
                past malloc; memory that was registered is the program's own and stands in malloc or mapped. Events that found no room are lost: then the \
                estimates rest on the share that is stated and are too low, and their error is not known. So do they where old rows were \
                removed (--max-size, --max-age, --keep-detail): the share is that of the events whose rows are here.",
            unit: "bytes, bytes/s; in text powers of 1024. The error is two standard deviations of the allocated bytes, in \
                percent of them.",
            limits: "Numbers of allocations are estimates with a larger error than bytes, most of all where small ones are many. \
                Memory from mmap (without --mmap), from the stack and from allocators that do not call malloc is not seen. Resident memory is read \
                once a second. Mapped memory that was never touched is not resident, and reserved addresses are not counted; an unmap of \
                these takes from what is mapped. Lines are in host-allocations, host-peak and host-leaks.",
            source: "Poisson sampling by bytes as in heapprofd and tcmalloc.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::HostMemory, Need::DeviceMemory]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("rows", Count, "allocations of malloc that were recorded").sums(&[TableId::HostMemory]),
            Metric::cost("lost", Count, "events of malloc that found no room").unsteady().of_losses(),
            Metric::use_of("kept_percent", Percent, "events of malloc that the numbers rest on, of all").unsteady(),
            Metric::about("allocated_bytes", Bytes, "bytes that malloc gave, estimated").sums(&[TableId::HostMemory]),
            Metric::cost(
                "peak_live_bytes",
                Bytes,
                "most bytes of malloc live at once, estimated, in the process where that is most",
            )
            .sums(&[TableId::HostMemory])
            .unsteady(),
            Metric::about("error_percent", Percent, "error of the estimate: two standard deviations"),
            Metric::about("allocations", Count, "allocations of malloc, estimated").sums(&[TableId::HostMemory]),
            Metric::about("allocations_error_percent", Percent, "error of their number: two standard deviations"),
            Metric::cost(
                "peak_resident_bytes",
                Bytes,
                "most resident memory that was read of a process that calls malloc, where that is most",
            )
            .unsteady(),
            Metric::cost(
                "peak_pinned_bytes",
                Bytes,
                "most pinned memory that the driver had given at once, in the process where that is most",
            )
            .sums(&[TableId::DeviceMemory]),
            Metric::cost(
                "free_in_arenas_percent",
                Percent,
                "what no block has in the arenas of glibc's malloc, of what they hold (--malloc-arenas)",
            )
            .unsteady(),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let hosts = || facts.host_memory.processes.iter().filter(|(_, host)| host.any());
        let sum = |of: fn(&ProcessHost) -> f64| -> f64 { hosts().map(|(_, h)| of(h)).sum() };
        let bytes = sum(|h| h.bytes);
        if hosts().next().is_none() {
            section.note(by_stack::nothing(facts));
            loss::note(&mut section, facts, "events of malloc and free", TableId::HostMemory);
            return section;
        }
        let error = sizes::error_percent(sum(|h| h.variance), bytes);
        let loss = Loss::of(facts, &[TableId::HostMemory]);
        let removed = is_removed(facts);
        let kept = loss.and_then(|loss| kept(facts, loss, hosts().map(|(_, host)| host.events).sum()));
        section.fact("rows", "allocations recorded", Unit::Count, hosts().map(|(_, h)| h.allocations).sum::<u64>());
        section.fact("lost", "events lost", Unit::Count, loss.map(|loss| loss.dropped));
        section.fact("kept_percent", "share of the events that is here", Unit::Percent, kept.map(|kept| 100.0 * kept));
        let sampled = is_sampled(facts);
        let titled = |exact: &'static str, estimate: &'static str| if sampled { estimate } else { exact };
        let title = titled("allocated in all", "allocated in all (estimate)");
        section.fact("allocated_bytes", title, Unit::Bytes, bytes);
        let peak = hosts().map(|(_, h)| h.peak).fold(0.0, f64::max);
        let title = titled(by_stack::peak_title(facts), "most live at once (estimate)");
        section.fact("peak_live_bytes", title, Unit::Bytes, peak);
        let known = !removed && loss.is_none_or(|loss| loss.dropped == 0);
        section.fact("error_percent", "error of the sums (+-)", Unit::Percent, known.then_some(error));
        let title = titled("allocations", "allocations (estimate)");
        section.fact("allocations", title, Unit::Count, sum(|h| h.count).round() as i64);
        let error = known.then(|| sizes::error_of_all(facts));
        section.fact("allocations_error_percent", "error of their number (+-)", Unit::Percent, error);
        let resident = hosts().filter_map(|(_, h)| h.resident_peak).max_by(f64::total_cmp);
        section.fact("peak_resident_bytes", "most resident", Unit::Bytes, resident);
        let pinned = pinned::all(facts).map(|(_, pinned)| pinned.peak_bytes).max();
        section.rare_fact("peak_pinned_bytes", "most pinned by the driver at once", Unit::Bytes, pinned);
        let (held, free): (f64, f64) = hosts()
            .filter_map(|(_, h)| Some((h.held_by_arenas()?, h.free_in_arenas()?)))
            .fold((0.0, 0.0), |sum, (held, free)| (sum.0 + held, sum.1 + free));
        let free = (held > 0.0).then(|| 100.0 * free / held);
        section.rare_fact("free_in_arenas_percent", "free in malloc's arenas, of what they hold", Unit::Percent, free);
        loss::note(&mut section, facts, "events of malloc and free", TableId::HostMemory);
        if loss::is_incomplete(facts.trace) {
            let last = hosts().map(|(_, host)| host.span_ns.1).max().unwrap_or(0);
            section.note(format!(
                "The last event of malloc and free that is here came {} after the begin of the trace; which share of all that is, is not \
                 known, and what is live at the end is what was live then.",
                duration(last.saturating_sub(facts.trace.began_ns()).max(0) as f64)
            ));
        } else if removed {
            section.note(match kept {
                Some(kept) => format!(
                    "The numbers above are of {} of the events of malloc and free: the rest was removed or found no room. What was \
                     allocated in it is not among what is live.",
                    share(kept)
                ),
                None => "Which share of the events of malloc and free is here is not known of this window.".to_owned(),
            });
        }
        let pools = facts.trace.manifests().flat_map(|m| &m.processes).filter(|process| process.python_pools).count();
        if pools > 0 {
            let mapped = facts.trace.manifests().any(|manifest| manifest.host_memory.mmap);
            section.note(format!(
                "Python gives out objects of up to 512 bytes from pools of its own ({pools} of the processes): they are not \
                 among these. With PYTHONMALLOC=malloc in the environment each of them is{}.",
                if mapped { "; the pools are among what is mapped" } else { ", and with --mmap the pools are" }
            ));
        }
        let past = |note: &String| note.contains("operator new of its own");
        let past =
            facts.trace.manifests().flat_map(|m| &m.processes).filter(|process| process.notes.iter().any(past)).count();
        if past > 0 {
            section.note(format!(
                "Some of what C++ allocates is missing in {past} of the processes: their allocator has an operator new of its own, which could not be hooked everywhere."
            ));
        }
        by_stack::note_early_starts(&mut section, facts);
        by_stack::note_rare_samples(&mut section, facts);
        if !sampled {
            by_stack::note_unknown_frees(&mut section, facts);
        }
        section.table(by_process(facts));
        section.table(sizes::table(facts, known));
        section.table(over_time(facts));
        section
    }
}

/// Whether malloc was sampled in any of the processes, so that sums over them are estimates.
fn is_sampled(facts: &Facts<'_>) -> bool {
    let is_full = |id: i64| facts.trace.process(id).is_some_and(|process| process.malloc_mode.starts_with("full"));
    processes(facts).into_iter().any(|(id, _)| !is_full(*id))
}

/// The share of the events that is here, of which there are so many: where rows were removed these are counted, and the share
/// is that of the whole run. Of a collector that was killed it is not known.
fn kept(facts: &Facts<'_>, counted: Loss, events: u64) -> Option<f64> {
    if loss::is_incomplete(facts.trace) || loss::unread(facts, &[TableId::HostMemory]).is_some() {
        return None;
    }
    if !is_removed(facts) {
        return Some(counted.kept());
    }
    let all = counted.recorded + counted.dropped;
    (!facts.filter.is_window() && all > 0).then(|| (events as f64 / all as f64).min(1.0))
}

fn processes<'a>(facts: &'a Facts<'_>) -> Vec<(&'a i64, &'a ProcessHost)> {
    let mut processes: Vec<_> = facts.host_memory.processes.iter().filter(|(_, host)| host.any()).collect();
    processes.sort_by(|(a_id, a), (b_id, b)| {
        b.bytes.total_cmp(&a.bytes).then_with(|| facts.place(**a_id).cmp(&facts.place(**b_id)))
    });
    processes
}

fn by_process(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 17] = [
        column("process", "Process", Unit::Text),
        column("program", "Program", Unit::Name),
        column("mode", "Mode", Unit::Text),
        column("allocated_bytes", "Allocated", Unit::Bytes),
        column("error_percent", "+-", Unit::Percent),
        column("lost_percent", "Missing", Unit::Percent),
        column("rate_bytes_per_s", "Rate", Unit::BytesPerS),
        column("peak_live_bytes", "Peak live", Unit::Bytes),
        column("live_at_end_bytes", "Live at end", Unit::Bytes),
        column("timed_avg_ns", "Avg call", Unit::Ns),
        column("mapped_at_end_bytes", "Mapped at end", Unit::Bytes),
        column("peak_pinned_bytes", "Peak pinned", Unit::Bytes),
        column("pinned_at_end_bytes", "Pinned at end", Unit::Bytes),
        column("peak_resident_bytes", "Peak resident", Unit::Bytes),
        column("beyond_malloc_bytes", "Resident beyond malloc", Unit::Bytes),
        column("peak_arenas_bytes", "Peak in arenas", Unit::Bytes),
        column("free_in_arenas_bytes", "Free in arenas", Unit::Bytes),
    ];
    let row = |(id, host): (&i64, &ProcessHost)| {
        let seconds = host.span_s();
        let loss = facts.trace.process(*id).and_then(|process| Loss::of_process(process, &[TableId::HostMemory]));
        let lost = loss.filter(|loss| loss.dropped > 0 || is_removed(facts));
        let missing = lost.and_then(|loss| kept(facts, loss, host.events)).map(|kept| 100.0 * (1.0 - kept));
        let mode = facts.trace.process(*id).map(|p| p.malloc_mode.clone()).filter(|m| !m.is_empty());
        vec![
            facts.label(*id).into(),
            facts.program(*id).into(),
            mode.into(),
            host.bytes.into(),
            lost.is_none().then(|| 100.0 * host.error()).into(),
            missing.into(),
            if seconds > 0.0 { (host.bytes / seconds).into() } else { Value::Missing },
            host.peak.into(),
            host.live.into(),
            (host.timed.0 > 0).then(|| host.timed.1 as f64 / host.timed.0 as f64).into(),
            host.mapped_line.first_ns().map(|_| host.mapped).into(),
            pinned::of(facts, *id).map(|pinned| pinned.peak_bytes).into(),
            pinned::of(facts, *id).map(|pinned| pinned.live_bytes.max(0)).into(),
            host.resident_peak.into(),
            (host.beyond.0 > 0).then(|| host.beyond.1 / host.beyond.0 as f64).into(),
            host.arenas_peak.into(),
            host.free_in_arenas().into(),
        ]
    };
    Table::new("by_process", "By process", &COLUMNS, processes(facts).into_iter().map(row).collect())
}

fn over_time(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 5] = [
        column("process", "Process", Unit::Text),
        column("program", "Program", Unit::Name),
        column("memory", "Memory", Unit::Text),
        column("after_ns", "After", Unit::Ns),
        column("live_bytes", "Live", Unit::Bytes),
    ];
    let mut rows = Vec::new();
    for (id, host) in processes(facts).into_iter().take(10) {
        let own = [("malloc", &host.line), ("mapped", &host.mapped_line), ("resident", &host.resident_line)];
        let pinned = pinned::of(facts, *id).map(|pinned| ("pinned", &pinned.line));
        let lines: Vec<_> = own.into_iter().chain(pinned).collect();
        let begin = lines.iter().filter_map(|(_, line)| line.first_ns()).min().unwrap_or(0);
        for (memory, line) in lines {
            let since = line.first_ns().unwrap_or(begin) - begin;
            for (at, bytes) in line.points(POINTS) {
                let (process, program) = (facts.label(*id).into(), facts.program(*id).into());
                rows.push(vec![process, program, memory.into(), (since + at).into(), bytes.into()]);
            }
        }
    }
    let title = match (is_sampled(facts), facts.filter.looks_back()) {
        (true, false) => "Memory over time (most in each span; After: since the first row; malloc: an estimate)",
        (false, false) => "Memory over time (most in each span; After: since the first row)",
        (true, true) => "Memory over time (most in each span; After: since the part's begin; malloc: an estimate)",
        (false, true) => "Memory over time (most in each span; After: since the part's begin)",
    };
    Table::new("over_time", title, &COLUMNS, rows)
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::{Count, Removed};

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn samples_are_summed_by_their_weight() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.malloc("alloc", 1024, 524_800.0);
        thread.malloc("alloc", 8 << 20, f64::from(8 << 20));
        thread.malloc("free", 1024, 524_800.0);
        let section = trace.section(&HostMemory);
        assert_eq!(section.get("rows"), &Value::Int(2));
        assert_eq!(section.get("allocated_bytes"), &Value::Num(524_800.0 + 8_388_608.0));
        assert_eq!(section.cell("by_process", 0, "live_at_end_bytes"), &Value::Num(8_388_608.0));
        assert_eq!(section.cell("by_process", 0, "mode"), &Value::from("sample:524288"));
        assert_eq!(section.cell("sizes", 0, "from_bytes"), &Value::Int(1024));
        let off = |value: &Value, wanted: f64| {
            assert!(matches!(value, Value::Num(n) if (n - wanted).abs() < 0.1), "{value:?}")
        };
        off(section.get("allocations_error_percent"), 199.4);
        off(section.cell("sizes", 0, "allocations_error_percent"), 199.8);
        off(section.cell("sizes", 0, "error_percent"), 199.8);
        off(section.cell("sizes", 1, "error_percent"), 0.0);
        assert!(matches!(section.get("error_percent"), Value::Num(e) if (e - 11.76).abs() < 0.1), "{section:?}");
    }

    #[test]
    fn what_was_culled_is_allocated_and_mapped_and_resident_memory_stand_beside_malloc() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.malloc("alloc", 600, 600.0);
        thread.culled(5, 10, 1000, 200);
        for (action, bytes) in [("map", 5000), ("reserve", 1 << 30), ("unmap", 2000)] {
            thread.host_memory(action, bytes, bytes as f64, serde_json::json!({}));
        }
        trace.counter(100, Ok(1), "proc", "rss", 9000.0);
        trace.counter(200, Ok(1), "proc", "rss", 7000.0);
        trace.counter(200, Ok(2), "proc", "rss", 70_000.0);
        for (at, held, free) in [(100, 4000.0, 1000.0), (200, 8000.0, 2000.0)] {
            trace.counter(at, Ok(1), "malloc", "arenas", held);
            trace.counter(at, Ok(1), "malloc", "arenas_free", free);
        }
        let section = trace.section(&HostMemory);
        assert_eq!((section.get("rows"), section.get("allocations")), (&Value::Int(11), &Value::Int(11)));
        assert_eq!((section.get("allocated_bytes"), section.get("peak_live_bytes")), (&1600.0.into(), &600.0.into()));
        assert_eq!(section.get("peak_resident_bytes"), &9000.0.into());
        let cell = |column: &str| section.cell("by_process", 0, column).clone();
        assert_eq!((cell("mapped_at_end_bytes"), cell("beyond_malloc_bytes")), (3000i64.into(), 7400.0.into()));
        assert_eq!(cell("live_at_end_bytes"), 600.0.into());
        assert_eq!((cell("peak_arenas_bytes"), cell("free_in_arenas_bytes")), (8000.0.into(), 1500.0.into()));
        assert_eq!(section.get("free_in_arenas_percent"), &25.0.into());
        let last: Vec<Value> =
            section.tables.iter().find(|t| t.key == "over_time").unwrap().rows.iter().map(|r| r[2].clone()).collect();
        assert_eq!(last, ["malloc".into(), "mapped".into(), "resident".into()]);
        assert_eq!(section.cell("over_time", 1, "live_bytes"), &5000i64.into());
    }

    #[test]
    fn lost_events_are_stated_and_leave_the_error_unknown() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        trace.thread(1, 11).malloc("alloc", 32 << 20, f64::from(32 << 20));
        let manifest = trace.manifest.as_mut().unwrap();
        let count = Count { seen: 4, recorded: 1, dropped: 3, ..Count::default() };
        manifest.processes[0].accounting.insert("host_alloc".to_owned(), count);
        let opened = trace.open();
        let filter = crate::trace::Filter::default();
        let line = by_stack::line(&Facts::gather(&opened, &filter, &[Need::Allocations])).unwrap();
        assert!(line.contains(", without the 75 % of its events that were lost"), "{line}");
        let section = trace.section(&HostMemory);
        assert_eq!((section.get("lost"), section.get("kept_percent")), (&Value::Int(3), &Value::Num(25.0)));
        assert_eq!(section.get("error_percent"), &Value::Missing);
        assert_eq!(section.cell("sizes", 0, "error_percent"), &Value::Missing);
        assert_eq!(section.cell("by_process", 0, "lost_percent"), &Value::Num(75.0));
        assert!(section.notes[0].starts_with("3 of 4 events of malloc and free found no room"), "{:?}", section.notes);
        assert_eq!(section.cell("by_process", 0, "program"), &Value::from("python"));
    }

    #[test]
    fn what_was_removed_for_the_size_limit_is_missing() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        let mut thread = trace.thread(1, 11);
        thread.malloc("alloc", 8 << 20, f64::from(8 << 20));
        thread.malloc("free", 8 << 20, f64::from(8 << 20));
        thread.culled(5, 4, 400, 200);
        let manifest = trace.manifest.as_mut().unwrap();
        let count = |recorded| Count { seen: 20, recorded, culled: 20 - recorded, ..Count::default() };
        manifest.processes[0].accounting =
            [("host_alloc".to_owned(), count(15)), ("host_free".to_owned(), count(16))].into();
        let table = TableId::HostMemory.table().name.to_owned();
        let removed = Removed { table, limit: "--max-size".into(), rows: 30, from_ns: START, to_ns: START + 9 };
        manifest.removed.push(removed.clone());
        let section = trace.section(&HostMemory);
        // Of 40 events there are two rows, and a sum of four allocations and their frees.
        assert_eq!(section.get("kept_percent"), &Value::Num(25.0));
        assert_eq!((section.get("lost"), section.get("error_percent")), (&Value::Int(0), &Value::Missing));
        assert_eq!(section.cell("by_process", 0, "lost_percent"), &Value::Num(75.0));
        assert_eq!(section.cell("by_process", 0, "error_percent"), &Value::Missing);
        assert!(section.notes[1].starts_with("The numbers above are of 25 % of the events"), "{:?}", section.notes);
        let mut all_gone = TestTrace::new();
        all_gone.process(1, 100, None, START + 1_000_000);
        all_gone.manifest.as_mut().unwrap().removed.push(removed);
        let notes = all_gone.section(&HostMemory).notes;
        assert!(notes[0].starts_with("No malloc or free is left"), "{notes:?}");
    }

    #[test]
    fn only_what_was_sampled_is_an_estimate_and_blocks_of_no_bytes_are_a_size_too() {
        for (mode, says) in [("full", false), ("sample:524288", true)] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000);
            trace.set(TableId::Processes, "malloc_mode", &serde_json::json!(mode));
            trace.thread(1, 11).malloc("alloc", 0, 0.0);
            trace.thread(1, 11).malloc("alloc", 600, 600.0);
            let section = trace.section(&HostMemory);
            let facts = section.facts.iter().filter(|fact| fact.title.contains("(estimate)")).count();
            let tables = section.tables.iter().filter(|table| table.title.contains("estimate")).count();
            let sizes =
                [0, 1].map(|row| ["from_bytes", "allocations"].map(|column| section.cell("sizes", row, column)));
            assert_eq!(sizes, [[&Value::Int(0), &Value::Int(1)], [&Value::Int(512), &Value::Int(1)]]);
            assert_eq!((facts, tables), if says { (3, 2) } else { (0, 0) }, "{mode}");
        }
    }

    #[test]
    fn of_a_killed_collector_it_says_until_when_it_has_events_and_that_the_rest_is_missing() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000);
        trace.manifest.as_mut().unwrap().complete = false;
        let nothing = trace.section(&HostMemory).notes;
        assert!(nothing[0].starts_with("No malloc or free in what had been written"), "{nothing:?}");
        let mut thread = trace.thread(1, 11);
        thread.host(500_000_000);
        thread.malloc("alloc", 600, 600.0);
        let section = trace.section(&HostMemory);
        assert_eq!(section.get("kept_percent"), &Value::Missing);
        let says = |note: &String| note.contains("that is here came 500 ms after the begin of the trace");
        assert!(section.notes.iter().any(says), "{:?}", section.notes);
    }
}
