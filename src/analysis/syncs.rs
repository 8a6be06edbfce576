//! syncs: where the host waits for the GPU, said or unsaid, and where it only asks.

use gputrace_collectors::schema::TableId;

use super::passes::gpu::{Cause, Gpu};
use super::passes::implicit;
use super::passes::stats::Stats;
use super::passes::syncs::{Calls, Key};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, IdleAt, Metric, Need, What, idle_by_site, implicit_syncs, sites};
use crate::render::counted;
use crate::trace::Site;

/// The analysis.
pub(crate) struct Syncs;

impl Analysis for Syncs {
    fn name(&self) -> &'static str {
        "syncs"
    }

    fn title(&self) -> &'static str {
        "Synchronisation"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Explicit waits are calls in which the host waits for a context, a stream or an event \
                (cuCtxSynchronize, cuStreamSynchronize, cuEventSynchronize); of Metal for a command buffer, with what was committed to its \
                queue before (stream: waitUntilCompleted), for its scheduling (schedule: waitUntilScheduled), for a shared event, or \
                for room: a new command buffer when as many had not completed as the queue may have (questions for a shared event's value are counted, and in no sum). Queries ask without waiting; a run of at least \
                three queries on one stream or event by one thread, each within 1 ms of the one before, is a spin: from its \
                first query to the end of its last the host does nothing but ask. stream_wait makes a stream wait, not the \
                host. Implicit waits are in calls that have something else to do: synchronous copies, asynchronous copies of \
                pageable memory, synchronous sets of pinned or managed memory (with the names of Nsight Systems' rules for \
                them), frees, allocations. Their waiting is what they took beyond what they need, where work was pending \
                (given to a stream and not yet waited for) and they took more than twice that: copies and sets need 20 us \
                and their bytes at 2 GB/s; frees and allocations the median of the same function and size in this process \
                when nothing was pending (20 us at least), or, where that was seen less than three times, twice that of other functions \
                of the size, or 100 us and 5 us for each MiB (500 us of pinned memory). Loading modules and compiling code hold the host up in the whole call; JIT is what the driver's \
                linker does and modules that are loaded from PTX; lazy loading is what the first launch of a \
                kernel took beyond the median launch, where that was 50 us and ten times the median. The legacy stream and \
                streams that are not CU_STREAM_NON_BLOCKING wait for each other: work that was queued behind another stream's \
                for that reason, and waits of the host that were for such streams too, are counted by function. A stream that waits \
                for an event of another one (cuStreamWaitEvent) takes over what was pending there when the event was \
                recorded: who waits for the one waits for both. Where the trace has GPU times, idle because of a wait is a gap of the \
                GPU in which the thread that launched next was still in a wait that had begun before (--explain gpu-gaps). Per line of \
                Python, else per native function: count, total time, share of wall time, per step.",
            unit: "ns in JSON; in text the column's head names the unit. Streams are raw handles: 0 default, 1 legacy, 2 per \
                thread; an event wait has no stream. wait time of implicit waits is the waiting alone.",
            limits: "waits_wall_percent is a sum over threads: where several of a process wait at once it may exceed 100. Implicit waiting is a lower bound: a wait that is short beside what its call needs is not told from it. \
                Pending is what the host was seen to give and to wait for; when the GPU was done is not known, so a call that \
                found work pending need not have waited. Streams whose creation was not seen count as not blocking. What of a \
                module's loading was waiting for the GPU is not told apart. PTX inside a fat binary or a file counts as module \
                loading, and compilers outside of the driver (NVRTC, Triton's) are the host's own work. Which GPU work a wait was \
                for is not told; how long the GPU was idle because of it, only where the trace has GPU times. A line is \
                the innermost one of the user's own code, neither installed nor Python's; calls of less than 20 us \
                (--stacks-over) have none, and stand together.",
            source: "Nsight Systems rules cuda_api_sync, cuda_memcpy_async, cuda_memcpy_sync, cuda_memset_sync.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Syncs, Need::Implicit, Need::Sites, Need::Gpu]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("waits", Count, "calls whose only work is to wait").sums(&[TableId::Syncs]),
            Metric::about("waits_ns", Ns, "time in calls whose only work is to wait").sums(&[TableId::Syncs]),
            Metric::about("implicit_waits", Count, "copies, sets, frees and allocations that waited for earlier work")
                .sums(&[TableId::DeviceMemory, TableId::Transfers]),
            Metric::about("implicit_waits_ns", Ns, "their waiting").sums(&[TableId::DeviceMemory, TableId::Transfers]),
            Metric::cost(
                "waits_wall_percent",
                Percent,
                "waits of all threads, implicit ones too, of wall time; over 100 where several wait at once",
            )
            .sums(&[TableId::DeviceMemory, TableId::Syncs, TableId::Transfers])
            .unsteady(),
            Metric::about("idle_after_ns", Ns, "time in which GPUs did nothing because of waits, implicit ones too")
                .sums(&[TableId::DeviceCopies, TableId::Kernels, TableId::Syncs]),
            Metric::about("loads", Count, "calls that load or compile code").sums(&[TableId::Api, TableId::Launches]),
            Metric::about("loads_ns", Ns, "time in calls that load or compile code")
                .sums(&[TableId::Api, TableId::Launches]),
            Metric::about("spins", Count, "runs of queries that wait by asking again and again")
                .sums(&[TableId::Syncs]),
            Metric::about("spin_queries", Count, "queries in them").sums(&[TableId::Syncs]),
            Metric::about("spins_ns", Ns, "time in them").sums(&[TableId::Syncs]),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let syncs = &facts.syncs;
        let waits = || syncs.calls.iter().filter(|(key, _)| key.kind.blocks());
        let wall: f64 = facts.busy().iter().map(|(id, _)| facts.wall_ns(*id)).sum();
        let wait_ns: i64 = waits().map(|(_, calls)| calls.all.sum).sum();
        section.fact("waits", "waits of the host", Unit::Count, waits().map(|(_, c)| c.all.count).sum::<u64>());
        section.fact("waits_ns", "time in them", Unit::Ns, wait_ns);
        let implicit = || facts.implicit.waits().map(|(_, calls)| &calls.waited);
        let implicit_ns: i64 = implicit().map(|waited| waited.sum).sum();
        section.fact("implicit_waits", "implicit waits", Unit::Count, implicit().map(|w| w.count).sum::<u64>());
        section.fact("implicit_waits_ns", "of their time waiting", Unit::Ns, implicit_ns);
        let wait_ns = wait_ns + implicit_ns;
        section.fact("waits_wall_percent", "both, of wall time", Unit::Percent, percent(wait_ns as f64, wall));
        let gpu = facts.gpu.as_ref().filter(|gpu| gpu.any());
        let idle = |gpu: &Gpu| gpu.devices.iter().map(|d| d.idle[Cause::AfterWait as usize].ns).sum::<i64>();
        section.fact("idle_after_ns", "GPU idle because of them", Unit::Ns, gpu.map(idle));
        let loads = facts.implicit.loads().fold((0, 0), |sum, (_, count, ns)| (sum.0 + count, sum.1 + ns));
        section.fact("loads", "calls that load or compile code", Unit::Count, loads.0);
        section.fact("loads_ns", "time in them", Unit::Ns, loads.1);
        let spins = facts
            .busy()
            .iter()
            .map(|(id, _)| syncs.spins(*id))
            .fold((0, 0, 0), |sum, spins| (sum.0 + spins.runs, sum.1 + spins.queries, sum.2 + spins.ns));
        section.fact("spins", "spins (runs of queries)", Unit::Count, spins.0);
        section.fact("spin_queries", "queries in spins", Unit::Count, spins.1);
        section.fact("spins_ns", "time in spins", Unit::Ns, spins.2);
        if syncs.calls.iter().next().is_none() && implicit().all(|waited| waited.count == 0) {
            section.note("No synchronisation calls in this trace.");
        }
        polls_note(&mut section, facts);
        sites::cost_table(
            &mut section,
            facts,
            &[What::Wait, What::Hidden, What::Load],
            ("by_site", "By line, waits of the host, said or unsaid, and loading of code"),
        );
        idle_after(&mut section, facts);
        section.table(by_kind(facts));
        section.table(by_call(facts));
        section.table(implicit_syncs::table(facts));
        section.table(implicit_syncs::legacy(facts));
        super::loss::note(&mut section, facts, "waits and questions", TableId::Syncs);
        section
    }
}

/// Messages that ask a shared event of Metal's for its value, and a command buffer how far it is.
const POLLS: [&str; 2] = ["[MTLSharedEvent signaledValue]", STATUS];
const STATUS: &str = "[MTLCommandBuffer status]";
const COMMIT: &str = "[MTLCommandBuffer commit]";
/// How its command buffer ended a program asks a few times, without waiting for it.
const QUESTIONS: u64 = 8;

/// How often a process, or any, asked an object of Metal's how far it is: who waits by asking is at work of its own, as far as the
/// trace tells.
pub(crate) fn polls(facts: &Facts<'_>, process_id: Option<i64>) -> u64 {
    POLLS.iter().map(|poll| polls_by(facts, poll, process_id)).sum()
}

fn polls_by(facts: &Facts<'_>, poll: &str, process_id: Option<i64>) -> u64 {
    let processes = facts.processes().filter(|process| process_id.is_none_or(|own| own == process.process_id));
    let calls = processes.filter_map(|process| {
        let hooks = &process.manifest.as_ref()?.coverage.hooks;
        let of = |name: &str| hooks.iter().filter(|hook| hook.name == name).map(|hook| hook.calls).sum::<u64>();
        let calls = of(poll);
        (poll != STATUS || calls > QUESTIONS * of(COMMIT)).then_some(calls)
    });
    calls.sum()
}

fn polls_note(section: &mut Section, facts: &Facts<'_>) {
    for poll in POLLS {
        let calls = polls_by(facts, poll, None);
        if calls == 0 {
            continue;
        }
        let asked = counted(calls as f64, "time", "times");
        section.note(format!(
            "{poll} was called {asked}, which is counted and not timed: a host that waits by asking again and again is outside the driver here."
        ));
    }
}

/// Idle time of GPUs that waits caused, by line and function.
fn idle_after(section: &mut Section, facts: &Facts<'_>) {
    const COLUMNS: [Column; 8] = [
        column("process", "Process", Unit::Text),
        column("site", "Line", Unit::Text),
        column("api", "Function", Unit::Name),
        column("idle_ns", "GPU idle", Unit::Ns),
        column("gaps", "Gaps >= 1 us", Unit::Count),
        column("per_step_ns", "Per step", Unit::Ns),
        column("max_ns", "Longest", Unit::Ns),
        column("place", "File", Unit::Name),
    ];
    let Some(gpu) = facts.gpu.as_ref().filter(|gpu| gpu.any()) else { return };
    let row = |at: IdleAt<'_>| {
        let steps = facts.steps.of(at.process_id);
        vec![
            facts.label(at.process_id).into(),
            at.site.map_or_else(|| "(no stack)".to_owned(), Site::short).into(),
            facts.names.full(at.api_id).into(),
            at.ns.into(),
            at.count.into(),
            steps.map(|steps| at.middle_ns as f64 / steps.middle.max(1) as f64).into(),
            at.max_ns.into(),
            at.site.map(Site::place).into(),
        ]
    };
    let caused = idle_by_site(facts, gpu).into_iter().filter(|at| at.cause == Cause::AfterWait);
    section.table(Table::new("idle_after", "GPU idle because of waits, by line", &COLUMNS, caused.map(row).collect()));
}

fn by_kind(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 4] = [
        column("kind", "Kind", Unit::Text),
        column("calls", "Calls", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("host_waits", "Host waits", Unit::Text),
    ];
    let mut kinds: Vec<(super::passes::syncs::Kind, u64, i64)> = Vec::new();
    for (key, calls) in facts.syncs.calls.iter() {
        match kinds.iter_mut().find(|(kind, ..)| *kind == key.kind) {
            Some((_, count, ns)) => (*count, *ns) = (*count + calls.all.count, *ns + calls.all.sum),
            None => kinds.push((key.kind, calls.all.count, calls.all.sum)),
        }
    }
    kinds.sort_by_key(|(kind, ..)| *kind);
    let row = |(kind, count, ns): &(super::passes::syncs::Kind, u64, i64)| {
        vec![kind.text().into(), (*count).into(), (*ns).into(), kind.blocks().into()]
    };
    let mut rows: Vec<Vec<Value>> = kinds.iter().map(row).collect();
    let mut implicit: Vec<(implicit::Kind, u64, i64)> = Vec::new();
    let waits = facts.implicit.waits().map(|(key, calls)| (key, calls.waited.count, calls.waited.sum));
    for (key, count, ns) in waits.chain(facts.implicit.loads()) {
        match implicit.iter_mut().find(|(kind, ..)| *kind == key.kind) {
            Some(sum) => (sum.1, sum.2) = (sum.1 + count, sum.2 + ns),
            None => implicit.push((key.kind, count, ns)),
        }
    }
    implicit.sort_by_key(|(kind, ..)| *kind);
    rows.extend(
        implicit.into_iter().map(|(kind, count, ns)| vec![kind.text().into(), count.into(), ns.into(), true.into()]),
    );
    Table::new(
        "by_kind",
        "By kind; of implicit waits the waiting alone, of loading and compiling the whole call",
        &COLUMNS,
        rows,
    )
}

/// Calls of one function, for the table.
struct Row<'a> {
    process_id: i64,
    kind: &'static str,
    api_id: i64,
    stream: i64,
    blocks: bool,
    all: &'a Stats,
    steady: u64,
}

fn rows<'a>(facts: &'a Facts<'_>) -> Vec<Row<'a>> {
    let explicit = facts.syncs.calls.iter().map(|(key, calls): (&Key, &Calls)| Row {
        process_id: key.process_id,
        kind: key.kind.text(),
        api_id: key.api_id,
        stream: key.stream,
        blocks: key.kind.blocks(),
        all: &calls.all,
        steady: calls.steady,
    });
    let implicit = facts.implicit.waits().map(|(key, calls)| Row {
        process_id: key.process_id,
        kind: key.kind.text(),
        api_id: key.api_id,
        stream: -1,
        blocks: true,
        all: &calls.waited,
        steady: calls.waited_steady,
    });
    let mut rows: Vec<Row<'_>> = explicit.chain(implicit).collect();
    rows.sort_by_key(|row| {
        (!row.blocks, std::cmp::Reverse(row.all.sum), row.api_id, row.stream, facts.place(row.process_id))
    });
    rows
}

fn by_call(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 11] = [
        column("process", "Process", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("api", "Function", Unit::Name),
        column("stream", "Stream", Unit::Text),
        column("calls", "Calls", Unit::Count),
        column("per_step", "Per step", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
        column("avg_ns", "Avg", Unit::Ns),
        column("med_ns", "Med", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
    ];
    let row = |row: &Row<'_>| {
        let steps = facts.steps.of(row.process_id).map(|s| s.sorted_ns.len().max(1));
        let stream = match row.stream {
            -1 => Value::Missing,
            0..=2 => row.stream.to_string().into(),
            handle => format!("{handle:#x}").into(),
        };
        vec![
            facts.label(row.process_id).into(),
            row.kind.into(),
            facts.names.full(row.api_id).into(),
            stream,
            row.all.count.into(),
            steps.map(|n| row.steady as f64 / n as f64).into(),
            row.all.sum.into(),
            percent(row.all.sum as f64, facts.wall_ns(row.process_id)),
            row.all.mean().into(),
            row.all.median().into(),
            row.all.max.into(),
        ]
    };
    Table::new("by_call", "By call, waits of the host first", &COLUMNS, rows(facts).iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn waits_are_told_from_questions() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        thread.sync("cuStreamSynchronize", "stream", 300_000);
        thread.sync("cuStreamSynchronize", "stream", 500_000);
        thread.sync("cuCtxSynchronize", "context", 1_000_000);
        thread.sync("cuStreamWaitEvent", "stream_wait", 2_000);
        for _ in 0..50 {
            thread.sync("cuStreamQuery", "query", 1_000);
            thread.host(9_000);
        }
        thread.host(50_000_000);
        thread.sync("cuStreamQuery", "query", 1_000);
        let section = trace.section(&Syncs);
        assert_eq!((section.get("waits"), section.get("waits_ns")), (&Value::Int(3), &Value::Int(1_800_000)));
        assert_eq!(section.get("waits_wall_percent"), &Value::Num(1.8));
        assert_eq!((section.get("spins"), section.get("spin_queries")), (&Value::Int(1), &Value::Int(50)));
        assert_eq!(section.get("spins_ns"), &Value::Int(49 * 10_000 + 1_000));
        assert_eq!(section.cell("by_call", 0, "api"), &Value::from("cuCtxSynchronize"));
        assert_eq!(section.cell("by_call", 0, "stream"), &Value::Missing);
        assert_eq!(section.cell("by_call", 1, "med_ns"), &Value::Int(300_000));
        assert_eq!(section.cell("by_call", 1, "stream"), &Value::from("0x7"));
    }

    #[test]
    fn a_wait_names_the_idle_time_of_the_gpu_that_it_caused() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let line = trace.stack("main", "/home/u/train.py", 44);
        let mut thread = trace.thread(1, 11);
        for _ in 0..3 {
            let begin = thread.now + 6_000;
            let end = thread.launch_running("k", 5_000, 7, (begin, 50_000));
            thread.stack = Some((line, 0));
            thread.sync("cuStreamSynchronize", "stream", end + 3_000 - thread.now);
            thread.stack = None;
            thread.host(100_000);
        }
        let section = trace.section(&Syncs);
        let cell = |column: &str| section.cell("idle_after", 0, column).clone();
        assert_eq!(cell("site"), Value::from("train.py:44 main"));
        assert_eq!([cell("idle_ns"), cell("gaps")], [Value::Int(2 * 109_000), Value::Int(2)]);
        assert_eq!(section.get("idle_after_ns"), &Value::Int(2 * 109_000));
    }

    #[test]
    fn a_copy_that_waited_is_an_implicit_wait() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let mut thread = trace.thread(1, 11);
        thread.copy("DtoH", ("device", "pageable"), true, 4, 1_020_002);
        thread.copy("DtoH", ("device", "pageable"), true, 4, 15_000);
        thread.copy("DtoH", ("device", "pinned"), true, 4, 2_000_000);
        let section = trace.section(&Syncs);
        assert_eq!((section.get("waits"), section.get("implicit_waits")), (&Value::Int(0), &Value::Int(1)));
        assert_eq!(section.get("implicit_waits_ns"), &Value::Int(1_000_000));
        assert_eq!(section.get("waits_wall_percent"), &Value::Num(10.0));
        assert_eq!(section.cell("by_kind", 0, "kind"), &Value::from("pageable copy"));
        assert_eq!(section.cell("by_call", 0, "api"), &Value::from("cuMemcpyAsync"));
        assert_eq!(section.cell("by_call", 0, "total_ns"), &Value::Int(1_000_000));
    }

    /// The row of the table `implicit` with this kind: calls, rule calls, found work, waits, waiting, total.
    fn row(section: &Section, kind: &str) -> [Value; 6] {
        let table = section.tables.iter().find(|t| t.key == "implicit").expect("the table");
        let nth = table.rows.iter().position(|row| row[1] == Value::from(kind)).expect("a row of this kind");
        ["calls", "rule_calls", "pending", "waits", "waited_ns", "total_ns"]
            .map(|column| section.cell("implicit", nth, column).clone())
    }

    #[test]
    fn each_kind_of_implicit_wait_is_told_with_its_waiting() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        thread.copy("HtoD", ("pageable", "device"), false, 100, 520_000);
        thread.copy("DtoH", ("device", "pageable"), false, 100, 520_050);
        thread.copy("DtoD", ("device", "device"), false, 100, 520_000);
        thread.set("pinned", false, 100, 320_050);
        thread.set("device", false, 100, 320_000);
        thread.pending = 0;
        for n in 0..3 {
            thread.alloc("cuMemAlloc_v2", "device", n, 4096, 10_000);
            thread.free("cuMemFree_v2", "device", n, 200_000);
            thread.copy("DtoH", ("device", "pageable"), false, 100, 900_000);
        }
        thread.pending = 2;
        thread.alloc("cuMemAlloc_v2", "device", 9, 4096, 15_000);
        thread.free("cuMemFree_v2", "device", 9, 1_200_000);
        thread.free("cuMemFreeAsync", "async", 10, 1_200_000);
        thread.other("cuModuleLoadData", "module", 7_000_000);
        thread.launch("first", 500_000);
        (0..20).for_each(|_| thread.launch("first", 3_000));
        thread.launch("second", 4_000);
        // Neither loads a kernel's module.
        thread.launch_graph(Some(1), Some(3), 800_000);
        let section = trace.section(&Syncs);
        let int = Value::Int;
        let none = || Value::Missing;
        assert_eq!(row(&section, "copy"), [int(5), int(4), int(2), int(2), int(999_950), int(3_740_050)]);
        assert_eq!(row(&section, "set"), [int(1), int(1), int(1), int(1), int(300_000), int(320_050)]);
        assert_eq!(row(&section, "free"), [int(4), none(), int(1), int(1), int(1_000_000), int(1_800_000)]);
        assert_eq!(row(&section, "allocation"), [int(4), none(), int(1), int(0), int(0), int(45_000)]);
        assert_eq!(row(&section, "module loading"), [int(1), none(), int(1), none(), none(), int(7_000_000)]);
        assert_eq!(row(&section, "lazy loading"), [int(1), none(), none(), none(), none(), int(497_000)]);
        assert_eq!((section.get("loads"), section.get("loads_ns")), (&int(2), &int(7_497_000)));
        assert_eq!(section.get("implicit_waits"), &int(4));
        assert_eq!(section.get("implicit_waits_ns"), &int(2_299_950));
    }
}
