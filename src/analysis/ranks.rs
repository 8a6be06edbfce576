//! ranks: which rank the others wait for, and how evenly the work is shared out.

use std::cmp::Reverse;

use super::passes::ranks::{Aligned, Clock, Late};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, Part};
use crate::trace::Process;

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
            definition: "Of each rank its busiest process: steps, p50, the host's time in a usual step (outside the driver, in \
                launch calls, in waits), time in calls of NCCL, GPU busy in a usual step where the GPU's time is known. \
                Imbalance is the coefficient of variation (standard deviation / mean) over the ranks. Stragglers: the n-th \
                collective of a communicator is the same on all its ranks (by the hash of its unique id); the rank that \
                began it last is late by the time to the one before it, and the others waited from their begin to that \
                one's. A rank is the straggler of a step, of one communicator, when it was the last at most of its \
                collectives. Clocks of hosts are compared with the first rank's host on the common end of collectives: \
                the median difference of the ends of NCCL's kernels, else of the making of communicators, which all ranks \
                finish together; what was found is taken off before begins are compared.",
            unit: "ns in JSON, per usual step where the title says so; percent for imbalance.",
            limits: "A begin is the host's call, not the kernel: a rank whose GPU is late shows in its waits and in the others' \
                kernels. A clock's comparison is as good as the network's latency (tens of us), and holds one offset for \
                the whole run. Ranks that are not in this trace cannot be compared; for one rank nothing of this is known. \
                4,000,000 begins are held. Calls under capture count when they are captured.",
            source: "HTA get_potential_stragglers (which takes the latest start too, and compares kernels); metrics.md, Steps, \
                ranks, communication.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Ranks, Need::Collectives, Need::Gpu]
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
            Metric::about("compared", Count, "collectives whose begins on several ranks were compared"),
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
        let world = world.map_or(ranks.len(), |world| (world.max(0) as usize).max(ranks.len()));
        let missing: Vec<usize> = match facts.filter.processes {
            None => (0..world).filter(|n| ranks.iter().all(|rank| rank.process.rank != Some(*n as i32))).collect(),
            Some(_) => Vec::new(),
        };
        let p50: Vec<f64> = ranks.iter().filter_map(|rank| rank.p50_ns).collect();
        let busy: Vec<f64> = ranks.iter().map(|rank| rank.busy_ns).collect();
        let spread = &facts.ranks.spread;
        section.fact("ranks", "ranks in the trace", Unit::Count, ranks.len() as u64);
        section.fact("world_size", "ranks of the run", Unit::Count, world as u64);
        section.fact("missing", "missing", Unit::Count, missing.len() as u64);
        section.fact("slowest", "slowest rank", Unit::Text, slowest(&ranks).map(|(rank, _)| rank.process.label()));
        let beyond = slowest(&ranks).map(|(_, beyond)| beyond);
        section.fact("slowest_percent", "beyond the median rank", Unit::Percent, beyond);
        section.fact("p50_cv_percent", "imbalance of steps (p50)", Unit::Percent, variation(&p50));
        section.fact("host_cv_percent", "imbalance of the host's time", Unit::Percent, variation(&busy));
        section.fact("compared", "collectives compared", Unit::Count, spread.count);
        let median = (spread.count > 0).then(|| spread.median());
        section.fact("spread_p50_ns", "first to last begin, median", Unit::Ns, median);
        notes(&mut section, facts, &ranks, &missing);
        section.table(by_rank(facts, &ranks));
        section.table(stragglers(facts, &ranks));
        section.table(clocks(facts));
        section
    }
}

/// One rank.
struct Rank<'a> {
    process: &'a Process,
    p50_ns: Option<f64>,
    /// What the host did in a usual step beside waiting; in the run, where there are no steps.
    busy_ns: f64,
}

/// The busiest process of each rank, in their order.
fn ranks<'a>(facts: &'a Facts<'_>) -> Vec<Rank<'a>> {
    let busy = facts.busy();
    let mut ranked: Vec<&Process> = facts.processes().filter(|process| process.rank.is_some()).collect();
    let place = |process: &Process| busy.iter().position(|(id, _)| *id == process.process_id).unwrap_or(usize::MAX);
    ranked.sort_by_key(|process| (process.rank, place(process), process.process_id));
    ranked.dedup_by_key(|process| process.rank);
    let rank = |process: &'a Process| {
        let id = process.process_id;
        let waits = facts.host.processes.get(&id).map_or(0, |time| time.shares_ns()[Part::Wait as usize]) as f64;
        match facts.steps.of(id).filter(|steps| steps.middle > 0) {
            Some(steps) => {
                let busy_ns = steps.middle_ns - waits / steps.middle as f64;
                Rank { process, p50_ns: Some(steps.quantile_ns(0.5) as f64), busy_ns }
            }
            None => Rank { process, p50_ns: None, busy_ns: facts.wall_ns(id) - waits },
        }
    };
    ranked.into_iter().map(rank).collect()
}

/// The rank with the longest usual step, and how much longer that is than the median rank's, in percent.
fn slowest<'a>(ranks: &'a [Rank<'a>]) -> Option<(&'a Rank<'a>, f64)> {
    let mut stepping: Vec<(f64, &Rank<'_>)> = ranks.iter().filter_map(|rank| Some((rank.p50_ns?, rank))).collect();
    stepping.sort_by(|a, b| a.0.total_cmp(&b.0));
    let median = stepping.get(stepping.len() / 2).filter(|_| stepping.len() > 1)?.0;
    let (most, rank) = *stepping.last()?;
    (median > 0.0).then(|| (rank, 100.0 * (most / median - 1.0)))
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
    if !missing.is_empty() {
        let named: Vec<String> = missing.iter().take(20).map(usize::to_string).collect();
        let more = if missing.len() > 20 { ", ..." } else { "" };
        section.note(format!("Missing ranks: {}{more}.", named.join(", ")));
    }
    let not = facts.ranks.clocks.iter().filter(|clock| clock.by == Aligned::Not);
    for Clock { host, .. } in not {
        section.note(format!(
            "The clock of {host} could not be compared: no communicator and no kernels of NCCL are known on both hosts. \
             Begins of its ranks are compared as they stand."
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
        let whole = steps.map_or(facts.wall_ns(id), |steps| steps.middle_ns);
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
        column("behind_ns", "Behind the one before", Unit::Ns),
        column("waited_ns", "Began before the last", Unit::Ns),
        column("steps", "Steps", Unit::Count),
        column("compared", "Compared", Unit::Count),
    ];
    let mut late: Vec<(&i64, &Late)> = facts.ranks.late.iter().collect();
    let number = |process: &i64| ranks.iter().position(|rank| rank.process.process_id == *process);
    late.sort_by_key(|(process, late)| (Reverse(late.behind_ns), number(process), **process));
    let row = |(process, late): &(&i64, &Late)| {
        vec![
            facts.label(**process).into(),
            late.last.into(),
            percent(late.last as f64, late.compared as f64),
            late.behind_ns.into(),
            late.ahead_ns.into(),
            late.steps.into(),
            late.compared.into(),
        ]
    };
    let title = "Stragglers: who begins collectives last (Steps: in which it is the last at most of them)";
    Table::new("stragglers", title, &COLUMNS, late.iter().map(row).collect())
}

fn clocks(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 3] = [
        column("host", "Host", Unit::Text),
        column("ahead_ns", "Ahead", Unit::Ns),
        column("compared_by", "Compared by", Unit::Text),
    ];
    let row = |clock: &Clock| {
        let by = match clock.by {
            Aligned::Reference => "all others are compared with it".to_owned(),
            Aligned::Kernels(count) => format!("ends of {count} kernels of NCCL"),
            Aligned::Communicators(count) => format!("the making of {count} communicators"),
            Aligned::Not => "nothing: taken as it is".to_owned(),
        };
        vec![clock.host.as_str().into(), clock.ahead_ns.into(), by.into()]
    };
    let several = facts.ranks.clocks.len() > 1;
    let rows = facts.ranks.clocks.iter().filter(|_| several).map(row).collect();
    Table::new("clocks", "Clocks of the hosts, which were aligned by this", &COLUMNS, rows)
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::schema::TableId;
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
