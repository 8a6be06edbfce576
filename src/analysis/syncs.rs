//! syncs: where the host waits for the GPU, and where it only asks.

use super::passes::stats::Stats;
use super::passes::syncs::{Calls, Key};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Need, What, sites};

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
                (cuCtxSynchronize, cuStreamSynchronize, cuEventSynchronize). Queries ask without waiting; a run of at least \
                three queries on one stream or event by one thread, each within 1 ms of the one before, is a spin: from its \
                first query to the end of its last the host does nothing but ask. stream_wait makes a stream wait, not the \
                host. Kind copy are implicit waits: blocking copies that took longer than their bytes can explain (see \
                --explain transfers); their time is the waiting alone. Per line of \
                Python, else per native function: count, total time, share of wall time, per step. Per process, kind, function \
                and stream: the same, median, max.",
            unit: "ns in JSON; in text the column's head names the unit. Streams are raw handles: 0 default, 1 legacy, 2 per \
                thread; an event wait has no stream.",
            limits: "Of implicit waits those in copies are told, as a lower bound; what frees, allocations and module loading \
                wait is not told from their work, and stands under device-memory and the summary. Which GPU work a wait was for, and how long the GPU was idle after it, needs \
                GPU times, which this version does not record. A line is the innermost one of the user's own code, neither \
                installed nor Python's; calls of less than 20 us (--stacks-over) have none, and stand together.",
            source: "Nsight Systems rule cuda_api_sync; metrics.md, Synchronisation.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Syncs, Need::Transfers, Need::Sites]
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let syncs = &facts.syncs;
        let waits = || syncs.calls.iter().filter(|(key, _)| key.kind.blocks());
        let wall: f64 = facts.busy().iter().map(|(id, _)| facts.wall_ns(*id)).sum();
        let wait_ns: i64 = waits().map(|(_, calls)| calls.all.sum).sum();
        section.fact("waits", "waits of the host", Unit::Count, waits().map(|(_, c)| c.all.count).sum::<u64>());
        section.fact("waits_ns", "time in them", Unit::Ns, wait_ns);
        let implicit = || facts.transfers.sums.iter().map(|(_, sum)| &sum.waited);
        let implicit_ns: i64 = implicit().map(|waited| waited.sum).sum();
        section.fact("implicit_waits", "copies that waited", Unit::Count, implicit().map(|w| w.count).sum::<u64>());
        section.fact("implicit_waits_ns", "of their time waiting", Unit::Ns, implicit_ns);
        let wait_ns = wait_ns + implicit_ns;
        section.fact("waits_wall_percent", "both, of wall time", Unit::Percent, percent(wait_ns as f64, wall));
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
        sites::cost_table(&mut section, facts, What::Wait, "By line, waits of the host and of copies");
        section.table(by_kind(facts));
        section.table(by_call(facts));
        super::loss::note(
            &mut section,
            facts,
            "waits and questions",
            gputrace_collectors::schema::TableId::Syncs,
            &["sync"],
        );
        section
    }
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
    let waited = || facts.transfers.sums.iter().map(|(_, sum)| &sum.waited);
    let count: u64 = waited().map(|waited| waited.count).sum();
    if count > 0 {
        rows.push(vec![COPY.into(), count.into(), waited().map(|waited| waited.sum).sum::<i64>().into(), true.into()]);
    }
    Table::new("by_kind", "By kind", &COLUMNS, rows)
}

/// Kind of a copy that waited.
const COPY: &str = "copy";

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
    let implicit = facts.transfers.sums.iter().filter(|(_, sum)| sum.waited.count > 0).map(|(key, sum)| Row {
        process_id: key.process_id,
        kind: COPY,
        api_id: key.api_id,
        stream: -1,
        blocks: true,
        all: &sum.waited,
        steady: sum.waited_steady,
    });
    let mut rows: Vec<Row<'_>> = explicit.chain(implicit).collect();
    rows.sort_by_key(|row| (!row.blocks, std::cmp::Reverse(row.all.sum), row.api_id, row.stream));
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
        assert_eq!(section.cell("by_kind", 0, "kind"), &Value::from("copy"));
        assert_eq!(section.cell("by_call", 0, "api"), &Value::from("cuMemcpyAsync"));
        assert_eq!(section.cell("by_call", 0, "total_ns"), &Value::Int(1_000_000));
    }
}
