//! ranks: which rank the others wait for, and how evenly the work is shared out.

use std::cmp::Reverse;

use gputrace_collectors::schema::TableId;

use super::passes::clocks::{Aligned, Clock};
use super::passes::ranks::Late;
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::slowest::{Rank, ranks, slowest};
use super::{Analysis, Explain, Facts, Metric, Need, Part};

/// The analysis.
pub(crate) struct Ranks;

impl Analysis for Ranks {
    fn name(&self) -> &'static str {
        "ranks"
    }

    fn title(&self) -> &'static str {
        "Ranks"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Of each rank its busiest process, or each that gives a GPU work where several have its number: steps, p50, the host's time in a usual step (outside the driver, in \
                launch calls, in waits), time in calls of NCCL, GPU busy in a usual step where the GPU's time is known. \
                Imbalance is the coefficient of variation (standard deviation / mean) over the ranks. Stragglers: the n-th \
                collective of a communicator is the same on all its ranks (by the hash of its unique id). Its begin on a \
                rank is that of its kernel where kernels have times (the one that the rank's thread launched during the \
                call), else the host's call. Waited: the time in which a rank had begun a collective and not all others \
                had; Kept all waiting: the time in which all others of a collective had begun and only this rank had not. \
                Each is a union: a ns counts once, however many collectives were queued, so neither is longer than the run. \
                A rank is the straggler of a step, of one communicator, when it was the last at most of its \
                collectives. Clocks: recorded processes of a host share one, and each imported file has its own. Each is \
                compared with the first rank's on the common end of collectives: the median difference of the ends of their \
                kernels, else (of recorded ones) of the making of communicators, which all ranks finish together; what was \
                found is taken off before begins are compared. Error: half of the differences lie within so much of the \
                median; a rank that was last by no more than the errors of both clocks is not called the last. The slowest rank is \
                the one with the longest median step; of those whose steps are alike to 1 %, as they are where ranks wait \
                for each other, the one that kept all others waiting longest.",
            unit: "ns in JSON, per usual step where the title says so; percent for imbalance.",
            limits: "Where kernels have no times a begin is the host's call: a rank whose GPU is late shows in its waits then. \
                One offset holds for the whole run, and a clock that drifts shows as error; a broadcast or reduce \
                may end earlier at its root, which the offset takes for the clock's where there is nothing else. Files whose \
                profiles begin at different collectives are compared wrongly: the error is then as long as a step. Ranks \
                that are not in this trace cannot be compared; for one rank nothing of this is known. 3,000,000 calls and \
                2,000,000 kernels of collectives are held; collectives in a group have no kernel here. Calls under \
                capture count when they are captured.",
            source: "HTA get_potential_stragglers (which takes the latest start of the kernel too).",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Ranks, Need::Collectives, Need::Busy]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("ranks", Count, "ranks in the trace"),
            Metric::about("world_size", Count, "ranks that the run had"),
            Metric::cost("missing", Count, "ranks of the run that are not in the trace"),
            Metric::cost("p50_cv_percent", Percent, "imbalance of the median step over the ranks"),
            Metric::cost("host_cv_percent", Percent, "imbalance of the host's time outside of waits over the ranks"),
            Metric::cost("slowest_percent", Percent, "the slowest rank's median step beyond that of the median rank"),
            Metric::about("compared", Count, "collectives whose begins on several ranks were compared")
                .sums(&[TableId::Collectives]),
            Metric::cost(
                "spread_p50_ns",
                Ns,
                "median time from the first rank's begin of a collective to the last one's",
            ),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.processes().any(|process| process.rank.is_some())
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let ranks = ranks(facts);
        let world = ranks.iter().filter_map(|rank| rank.process.world_size).max();
        let count = ranks.chunk_by(|one, next| one.process.rank == next.process.rank).count();
        let world = world.map_or(count, |world| (world.max(0) as usize).max(count));
        let missing: Vec<usize> = match facts.filter.processes {
            None => (0..world).filter(|n| ranks.iter().all(|rank| rank.process.rank != Some(*n as i32))).collect(),
            Some(_) => Vec::new(),
        };
        let p50: Vec<f64> = ranks.iter().filter_map(|rank| rank.p50_ns).collect();
        let busy: Vec<f64> = ranks.iter().map(|rank| rank.busy_ns).collect();
        let spread = &facts.ranks.spread;
        section.fact("ranks", "ranks in the trace", Unit::Count, count as u64);
        section.fact("world_size", "ranks of the run", Unit::Count, world as u64);
        section.fact("missing", "missing", Unit::Count, missing.len() as u64);
        let slowest = slowest(facts);
        section.fact("slowest", "slowest rank", Unit::Text, slowest.map(|(rank, _)| facts.label(rank)));
        let beyond = slowest.and_then(|(_, beyond)| beyond).map(|beyond| 100.0 * beyond);
        section.fact("slowest_percent", "beyond the median rank", Unit::Percent, beyond);
        section.fact("p50_cv_percent", "imbalance of steps (p50)", Unit::Percent, variation(&p50));
        section.fact("host_cv_percent", "imbalance of the host's time", Unit::Percent, variation(&busy));
        section.fact("compared", "collectives compared", Unit::Count, spread.count);
        let median = (spread.count > 0).then(|| spread.median());
        section.fact("spread_p50_ns", "first to last begin, median", Unit::Ns, median);
        let begins = match (spread.count, facts.ranks.by_kernels) {
            (0, _) => None,
            (_, 0) => Some("the hosts' calls"),
            (all, kernels) if all == kernels => Some("kernels on the GPU"),
            _ => Some("kernels on the GPU; the hosts' calls of some communicators"),
        };
        section.fact("begins", "begins are those of", Unit::Text, begins);
        notes(&mut section, facts, &ranks, &missing);
        super::gpu::unread_note(&mut section, facts);
        super::loss::unread_note(&mut section, facts, "calls of NCCL", &[TableId::Collectives]);
        section.table(by_rank(facts, &ranks));
        section.table(stragglers(facts, &ranks));
        section.table(clocks(facts));
        section
    }
}

/// Standard deviation / mean in percent; none for fewer than two.
fn variation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1 && mean > 0.0).then(|| 100.0 * (squares / count).sqrt() / mean)
}

fn notes(section: &mut Section, facts: &Facts<'_>, ranks: &[Rank<'_>], missing: &[usize]) {
    if ranks.is_empty() {
        section.note(
            "No ranks in this trace: no launcher (torchrun, accelerate, mpirun, srun) and no communicator gave one.",
        );
    } else if ranks.len() == 1 {
        section.note(
            "One rank only: who waits for whom is not known. Name the traces of the other ranks too: gputrace report A B.",
        );
    }
    for same in ranks.chunk_by(|one, next| one.process.rank == next.process.rank).filter(|same| same.len() > 1) {
        let pids: Vec<&str> = same.iter().filter_map(|rank| rank.process.apart.as_deref()).take(8).collect();
        section.note(format!(
            "{} processes that give a GPU work have rank {} ({}{}): each has its row; --rank keeps them all, --pid one.",
            same.len(),
            same[0].process.rank.unwrap_or_default(),
            pids.join(", "),
            if same.len() > pids.len() { ", ..." } else { "" }
        ));
    }
    if !missing.is_empty() {
        let named: Vec<String> = missing.iter().take(20).map(usize::to_string).collect();
        let more = if missing.len() > 20 { ", ..." } else { "" };
        section.note(format!("Missing ranks: {}{more}.", named.join(", ")));
    }
    for clock in facts.ranks.clocks.all.iter().filter(|clock| clock.by == Aligned::Not) {
        section.note(format!(
            "The clock of {} could not be compared: it has no collective with times of kernels and no communicator in \
             common with the others. Begins of its ranks are compared as they stand.",
            whose(facts, clock)
        ));
    }
    let (beyond, alone) = (facts.ranks.beyond, facts.ranks.alone);
    if beyond > 0 {
        section.note(format!("{beyond} collectives were too many to be compared."));
    }
    if alone > 0 && ranks.len() > 1 {
        section
            .note(format!("{alone} collectives are of communicators that are known on one rank only: not compared."));
    }
}

fn by_rank(facts: &Facts<'_>, ranks: &[Rank<'_>]) -> Table {
    const COLUMNS: [Column; 10] = [
        column("rank", "Rank", Unit::Text),
        column("steps", "Steps", Unit::Count),
        column("p50_ns", "p50", Unit::Ns),
        column("outside_ns", "Outside driver", Unit::Ns),
        column("launch_ns", "Launch calls", Unit::Ns),
        column("wait_ns", "Waits", Unit::Ns),
        column("nccl_ns", "Calls of NCCL", Unit::Ns),
        column("gpu_busy_ns", "GPU busy", Unit::Ns),
        column("pid", "pid", Unit::Text),
        column("host", "Host", Unit::Text),
    ];
    let row = |rank: &Rank<'_>| -> Vec<Value> {
        let id = rank.process.process_id;
        let steps = facts.steps.of(id).filter(|steps| steps.middle > 0);
        let shares = facts.host.processes.get(&id).map(|time| time.shares_ns()).unwrap_or_default();
        let per = steps.map_or(1.0, |steps| steps.middle as f64);
        let whole = steps.map_or(facts.wall_ns(id), |steps| steps.middle_host_ns);
        let part = |part: Part| shares[part as usize] as f64 / per;
        let outside = whole - shares.iter().sum::<i64>() as f64 / per;
        let nccl = facts.collectives.calls.iter().filter(|(key, _)| key.process_id == id);
        let nccl = nccl.map(|(_, calls)| calls.api.sum).sum::<i64>() as f64;
        let all_steps = steps.map_or(1.0, |steps| (steps.sorted_ns.len() + steps.warm_up) as f64);
        let gpu = facts.gpu.iter().flat_map(|gpu| gpu.devices.iter()).filter_map(|device| device.in_steps.get(&id));
        let gpu: Vec<f64> = gpu.map(|in_steps| in_steps.busy.total_ns() as f64 / per).collect();
        vec![
            rank.process.label().into(),
            steps.map(|steps| steps.sorted_ns.len() as u64).into(),
            rank.p50_ns.into(),
            outside.max(0.0).into(),
            part(Part::Launch).into(),
            part(Part::Wait).into(),
            (nccl / all_steps).into(),
            (!gpu.is_empty() && steps.is_some()).then(|| gpu.iter().sum::<f64>()).into(),
            rank.process.pid.to_string().into(),
            rank.process.host.as_str().into(),
        ]
    };
    let title = "By rank, in a usual step (in the run where there are no steps)";
    Table::new("by_rank", title, &COLUMNS, ranks.iter().map(row).collect())
}

fn stragglers(facts: &Facts<'_>, ranks: &[Rank<'_>]) -> Table {
    const COLUMNS: [Column; 7] = [
        column("rank", "Rank", Unit::Text),
        column("last", "Last", Unit::Count),
        column("last_percent", "Of collectives", Unit::Percent),
        column("behind_ns", "Kept all waiting", Unit::Ns),
        column("waited_ns", "Waited", Unit::Ns),
        column("steps", "Steps", Unit::Count),
        column("compared", "Compared", Unit::Count),
    ];
    let mut late: Vec<(&i64, &Late)> = facts.ranks.late.iter().collect();
    let number = |process: &i64| ranks.iter().position(|rank| rank.process.process_id == *process);
    late.sort_by_key(|(process, late)| (Reverse(late.behind_ns()), number(process), facts.place(**process)));
    let row = |(process, late): &(&i64, &Late)| {
        vec![
            facts.label(**process).into(),
            late.last.into(),
            percent(late.last as f64, late.compared as f64),
            late.behind_ns().into(),
            late.ahead_ns().into(),
            late.steps.into(),
            late.compared.into(),
        ]
    };
    let title = "Stragglers: who begins collectives last (Steps: in which it is the last at most of them)";
    Table::new("stragglers", title, &COLUMNS, late.iter().map(row).collect())
}

/// `node`, `rank 3 (imported)`: an import may not tell its host, and each of its files has a clock.
fn whose(facts: &Facts<'_>, clock: &Clock) -> String {
    let first = facts.label(clock.process_id);
    match clock.processes {
        1 => format!("{first} ({})", clock.host),
        more => format!("{} ({first} and {} more)", clock.host, more - 1),
    }
}

fn clocks(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 4] = [
        column("clock", "Clock", Unit::Text),
        column("ahead_ns", "Ahead", Unit::Ns),
        column("error_ns", "Error", Unit::Ns),
        column("compared_by", "Compared by", Unit::Text),
    ];
    let row = |clock: &Clock| {
        let by = match clock.by {
            Aligned::Reference => "all others are compared with it".to_owned(),
            Aligned::Kernels(count) => format!("ends of {count} collectives on the GPU"),
            Aligned::Communicators(count) => format!("the making of {count} communicators"),
            Aligned::Not => "nothing: taken as it is".to_owned(),
        };
        let error: Value = match clock.by {
            // One moment tells nothing of its own error.
            Aligned::Not | Aligned::Communicators(1) => Value::Missing,
            _ => clock.error_ns.into(),
        };
        vec![whose(facts, clock).into(), clock.ahead_ns.into(), error, by.into()]
    };
    let several = facts.ranks.clocks.all.len() > 1;
    let rows = facts.ranks.clocks.all.iter().filter(|_| several).map(row).collect();
    Table::new("clocks", "Clocks, which were aligned by this", &COLUMNS, rows)
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest;
    use serde_json::json;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    /// Two ranks in steps of a millisecond; the second one begins each collective 100 us later, by a clock that is ahead.
    fn two_ranks(host: &str, ahead: i64) -> TestTrace {
        let mut trace = TestTrace::new();
        for (rank, late, ahead) in [(0, 0, 0), (1, 100_000, ahead)] {
            let process = i64::from(rank) + 1;
            let row = json!({
                "process_id": process, "pid": 100 + rank, "host": if rank == 0 { "node" } else { host }, "rank": rank,
                "world_size": 3, "start_ns": START + ahead, "end_ns": START + ahead + 90_000_000, "traced": true,
            });
            trace.row(TableId::Processes, row);
            let made = json!({
                "start_ns": START + ahead, "process_id": process, "communicator": rank + 5, "unique_id": 77, "rank": rank,
                "ranks": 2,
            });
            trace.row(TableId::Communicators, made);
            let mut thread = trace.thread(process, 11);
            thread.now += ahead;
            for _ in 0..40 {
                let began = thread.range_begin();
                thread.host(100_000 + late);
                thread.collective("ncclAllReduce", "collective", rank + 5, 4096, false, 10_000);
                thread.launch("k", 1_000);
                thread.host(889_000 - late);
                thread.range_end(None, "step", began, true);
            }
        }
        trace
    }

    #[test]
    fn who_begins_collectives_last_is_the_straggler_whatever_its_clock_says() {
        for (host, ahead) in [("node", 0), ("other", 5_000_000_000), ("other", -7_000_000)] {
            let section = two_ranks(host, ahead).section(&Ranks);
            assert_eq!(
                (section.get("compared"), section.get("spread_p50_ns")),
                (&Value::Int(40), &Value::Int(100_000))
            );
            let cell = |column: &str| section.cell("stragglers", 0, column).clone();
            assert_eq!([cell("rank"), cell("last_percent")], ["rank 1".into(), Value::Num(100.0)]);
            assert_eq!([cell("behind_ns"), cell("steps")], [4_000_000, 40].map(Value::Int));
            assert_eq!(section.cell("stragglers", 1, "waited_ns"), &Value::Int(4_000_000));
            if host == "other" {
                assert_eq!(section.cell("clocks", 1, "ahead_ns"), &Value::Int(ahead));
            }
        }
    }

    /// Two imported ranks, each with a clock of its own. All ten collectives are given to the GPU at once; the second rank
    /// does so 600 us after the first, and its kernels end up to 2 us after those of the first.
    fn imported(ahead: i64) -> TestTrace {
        let mut trace = TestTrace::new();
        if let Some(manifest) = &mut trace.manifest {
            manifest.clock.kind = "imported".to_owned();
        }
        for (rank, late, ahead) in [(0, 0, 0), (1, 600_000, ahead)] {
            let process = (i64::from(rank) + 1) << 24;
            trace.process(process, 100 + rank, Some(rank), START + 2_000_000);
            let row = json!({
                "process_id": process, "pid": 100 + rank, "host": "imported", "rank": rank, "world_size": 2,
                "start_ns": START + ahead, "end_ns": START + ahead + 2_000_000, "traced": true,
            });
            trace.row(TableId::Processes, row);
            let made = json!({
                "start_ns": START + ahead, "process_id": process, "communicator": 1, "unique_id": 77, "rank": rank,
                "ranks": 2,
            });
            trace.row(TableId::Communicators, made);
            let mut thread = trace.thread(process, 11);
            thread.now += ahead + late;
            for n in 0..10 {
                let end = START + ahead + 700_000 + 20_000 * n + i64::from(rank) * (n % 3) * 1_000;
                let begin = if n == 0 { START + ahead + late + 10_000 } else { end - 5_000 };
                let call = thread.now;
                thread.launch_running("ncclDevKernel_AllReduce", 3_000, 7, (begin, end - begin));
                thread.now = call;
                thread.collective("ncclAllReduce", "collective", 1, 4096, false, 5_000);
            }
        }
        trace
    }

    #[test]
    fn clocks_of_imported_ranks_are_aligned_on_the_ends_of_collectives_and_waits_are_no_longer_than_the_run() {
        for ahead in [0, -3_000_000_000, 40_000] {
            let section = imported(ahead).section(&Ranks);
            let clock = |column: &str| section.cell("clocks", 1, column).clone();
            assert_eq!([clock("ahead_ns"), clock("error_ns")], [ahead + 1_000, 1_000].map(Value::Int));
            assert_eq!(clock("compared_by"), "ends of 10 collectives on the GPU".into());
            assert_eq!(section.get("begins"), &"kernels on the GPU".into());
            // Ten calls came 600 us late each; the GPU waited once.
            let cell = |row: usize, column: &str| section.cell("stragglers", row, column).clone();
            assert_eq!([cell(0, "rank"), cell(0, "behind_ns")], ["rank 1".into(), Value::Int(599_000)]);
            assert_eq!((cell(0, "last"), cell(1, "waited_ns")), (Value::Int(1), Value::Int(602_000)));
        }
    }

    #[test]
    fn calls_that_wait_in_a_queue_make_no_wait_longer_than_the_run() {
        let mut trace = imported(0);
        if let Some(manifest) = &mut trace.manifest {
            manifest.clock.kind = "tsc".to_owned();
        }
        trace.clear(TableId::Kernels);
        let section = trace.section(&Ranks);
        assert_eq!(section.get("begins"), &"the hosts' calls".into());
        assert_eq!(section.cell("stragglers", 0, "behind_ns"), &Value::Int(645_000));
        assert_eq!(section.cell("stragglers", 1, "waited_ns"), &Value::Int(645_000));
    }

    #[test]
    fn processes_that_have_one_rank_are_told_apart_and_said_and_its_helpers_are_not_among_them() {
        let mut trace = TestTrace::new();
        for (process, rank, pid, calls) in [(1, 0, 100, 40), (2, 1, 101, 40), (3, 1, 102, 30), (4, 1, 103, 0)] {
            trace.process(process, pid, Some(rank), START + 90_000_000);
            let count = manifest::Count { seen: calls, recorded: calls, ..Default::default() };
            let known = trace.manifest.as_mut().and_then(|manifest| manifest.processes.last_mut());
            known.expect("the process").accounting.insert("launch".to_owned(), count);
            let mut thread = trace.thread(process, 11);
            for _ in 0..calls {
                let began = thread.range_begin();
                thread.launch("k", 1_000);
                thread.host(100_000 * process);
                thread.range_end(None, "step", began, true);
            }
        }
        let section = trace.section(&Ranks);
        let rows = |column: &str| (0..3).map(|row| section.cell("by_rank", row, column).clone()).collect::<Vec<_>>();
        let named = ["rank 0", "rank 1 (pid 101)", "rank 1 (pid 102)"];
        assert_eq!(rows("rank"), named.map(Value::from));
        assert_eq!(rows("p50_ns"), [101_000, 201_000, 301_000].map(|ns| Value::Num(ns as f64)));
        assert_eq!((section.get("ranks"), section.tables[0].rows.len()), (&Value::Int(2), 3));
        let said = "2 processes that give a GPU work have rank 1 (pid 101, pid 102)";
        assert!(section.notes.iter().any(|note| note.starts_with(said)), "{:?}", section.notes);
        let text = trace.section(crate::analysis::ALL[0]).literal.unwrap_or_default();
        assert!(text.contains("  0 101.00 | 1 (pid 101) 201.00 | 1 (pid 102) 301.00"), "{text}");
    }

    #[test]
    fn missing_ranks_are_named_and_even_ones_are_in_balance() {
        let section = two_ranks("node", 0).section(&Ranks);
        assert_eq!((section.get("ranks"), section.get("missing")), (&Value::Int(2), &Value::Int(1)));
        assert_eq!(section.get("p50_cv_percent"), &Value::Num(0.0));
        assert!(section.notes.iter().any(|note| note == "Missing ranks: 2."), "{:?}", section.notes);
        assert_eq!(section.cell("by_rank", 1, "nccl_ns"), &Value::Num(10_000.0));
    }

    #[test]
    fn of_one_rank_it_is_said_what_cannot_be_known() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, Some(0), START + 1_000_000);
        let section = trace.section(&Ranks);
        assert!(section.notes[0].starts_with("One rank only"), "{:?}", section.notes);
        assert_eq!(section.get("p50_cv_percent"), &Value::Missing);
    }
}
