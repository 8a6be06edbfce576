//! Ranks that wait for the latest one at their collectives: which one that is, what it costs, and what it has more of.
//!
//! NCCL's kernel of a rank that is early runs until the last rank has come. That time looks like communication in a trace of one
//! rank, and ends when the work is evened out.

use std::cmp::Reverse;

use super::{Evidence, Subject};
use crate::analysis::{Class, Late, Part, Without};
use crate::render::{number, share, time};

/// A rank is late because of what it has more of, when that is at least so much of its lateness.
const EXPLAINS: f64 = 0.25;
/// Ranks that are named where no single one is the last.
const NAMED: usize = 3;

/// A rank whose collectives were compared with those of others.
struct Rank<'a> {
    place: usize,
    subject: &'a Subject<'a>,
    late: &'a Late,
}

impl Rank<'_> {
    /// How long the others waited for it, per unit.
    fn kept_ns(&self) -> f64 {
        self.late.kept_ns() as f64 / self.subject.units
    }

    fn label(&self) -> String {
        self.subject.facts.label(self.subject.process_id)
    }
}

/// What ranks wait for each other, and the place of the one that they wait for most; none where nothing was compared.
pub(super) fn of(subjects: &[Subject<'_>]) -> Option<(usize, Evidence)> {
    let ranks: Vec<Rank<'_>> =
        subjects.iter().enumerate().filter_map(|(place, subject)| rank(place, subject)).collect();
    let waiting_ns: f64 = ranks.iter().map(Rank::kept_ns).sum();
    let worst = ranks.iter().max_by(|a, b| a.kept_ns().total_cmp(&b.kept_ns()).then(b.place.cmp(&a.place)))?;
    let others: Vec<&Subject<'_>> =
        ranks.iter().filter(|rank| rank.place != worst.place).map(|rank| rank.subject).collect();
    let ends_ns = others.iter().map(|other| ends_ns(other, worst.subject)).fold(0.0, f64::max);
    let gain_ns = waiting_ns.min(ends_ns);
    let mut lines = Vec::new();
    if worst.kept_ns() * 2.0 >= waiting_ns {
        let Late { last, compared, late, .. } = worst.late;
        let (label, median) = (worst.label(), time(late.median() as f64));
        lines.push(format!("{label} is the last at {last} of {compared} collectives, {median} late in the median"));
        if !worst.subject.per_step && late.max as f64 * 2.0 >= waiting_ns {
            lines.push(format!("{} of it at one of them", time(late.max as f64)));
        }
        lines.push(more_of(worst, &others));
    } else {
        let mut by_last: Vec<&Rank<'_>> = ranks.iter().collect();
        by_last.sort_by_key(|rank| (Reverse(rank.late.last), rank.place));
        let last = |rank: &&Rank<'_>| {
            let of = rank.late.last as f64 / rank.late.compared.max(1) as f64;
            format!("{} at {}", rank.label(), share(of))
        };
        let named: Vec<String> = by_last.iter().take(NAMED).map(last).collect();
        lines.push(format!("the last of {} ranks is {} of the collectives", ranks.len(), named.join(", ")));
    }
    Some((worst.place, Evidence { gain_ns, of_run: false, lines }))
}

fn rank<'a>(place: usize, subject: &'a Subject<'a>) -> Option<Rank<'a>> {
    let late = subject.facts.ranks.late.get(&subject.process_id)?;
    Some(Rank { place, subject, late })
}

/// How much of its waiting a rank can lose: what its steps gain without NCCL's kernels, for what computing hides costs nothing; where
/// no times of its GPU are known what its host waits longer for the GPU than the latest rank's does.
fn ends_ns(other: &Subject<'_>, latest: &Subject<'_>) -> f64 {
    match &other.on_gpu {
        Some(gpu) => other.shorter_ns(Without::these(&[Class::Communication])).unwrap_or(gpu.communication_ns),
        None => (other.ns(Part::Wait) - latest.ns(Part::Wait)).max(0.0),
    }
}

/// What the latest rank does longer than the others do in the median.
fn more_of(worst: &Rank<'_>, others: &[&Subject<'_>]) -> String {
    let s = worst.subject;
    type Time = fn(&Subject<'_>) -> f64;
    let on_gpu: [(&str, Time); 2] = [
        ("its GPU computes", |s| s.on_gpu.as_ref().map_or(0.0, |gpu| gpu.compute_ns)),
        ("its GPU does nothing but copy for", |s| s.on_gpu.as_ref().map_or(0.0, |gpu| gpu.copy_ns)),
    ];
    let on_host: [(&str, Time); 6] = [
        ("its host is outside the driver", |s| s.unknown_ns()),
        ("its host waits for data, locks or threads", |s| s.system_ns.unwrap_or(0.0)),
        ("its host is in launch calls", |s| s.ns(Part::Launch)),
        ("its host is in copies", |s| s.ns(Part::Copy)),
        ("its host allocates and frees", |s| s.ns(Part::Memory)),
        ("its host is in other driver calls", |s| s.ns(Part::Other)),
    ];
    let usual = |of: Time| middle(others.iter().map(|other| of(other)).collect());
    let all = on_gpu.into_iter().chain(on_host);
    let most = all.map(|(what, of)| (what, of(s), usual(of))).max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)));
    let Some((what, own, usual_ns)) = most.filter(|(_, own, usual)| own - usual >= EXPLAINS * worst.kept_ns()) else {
        return "what it has more of than the others is not in the trace".to_owned();
    };
    let mut line = format!("{what} {} of a {}, those of the others {}", time(own), s.unit(), time(usual_ns));
    if what == on_gpu[0].0 {
        let operations: Time = |s| s.on_gpu.as_ref().map_or(0.0, |gpu| gpu.operations);
        let (own, usual) = (operations(s), usual(operations));
        line += &match (own - usual).abs() <= 0.01 * usual {
            true => "; in as many operations: a slower GPU, or more data".to_owned(),
            false => format!("; {} operations, the others {}", number(own), number(usual)),
        };
    }
    line
}

/// The lower one of the two in the middle.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::schema::TableId;
    use serde_json::json;

    use crate::analysis::{ALL, Section, Value};
    use crate::trace::testing::{START, TestTrace};

    /// Three ranks in steps of a kernel and a collective that ends 30 us after the last one came to it; a rank's host is late by
    /// so much in each step, and its kernel takes so long.
    fn ranks(of: [(i64, i64); 3], on_gpu: bool) -> TestTrace {
        let mut trace = TestTrace::new();
        let latest = of.iter().map(|(late, kernel)| late + kernel).max().unwrap_or(0);
        for (rank, (late, kernel)) in (0..).zip(of) {
            let process = i64::from(rank) + 1;
            trace.process(process, 100 + rank, Some(rank), START + 100_000_000);
            trace.world(process, rank, 3);
            let mut thread = trace.thread(process, 11);
            thread.device = rank;
            for _ in 0..40 {
                let (step, began) = (thread.range_begin(), thread.now);
                thread.host(late);
                let ready = thread.launch_running("gemm", 5_000, 7, (thread.now + 6_000, kernel));
                let (end, call) = (began + latest + 36_000, thread.now);
                thread.launch_running("ncclDevKernel_AllReduce", 3_000, 7, (ready, end - ready));
                thread.now = call;
                thread.collective("ncclAllReduce", "collective", 1, 4096, false, 5_000);
                thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
                thread.host(10_000);
                thread.range_end(None, "step", step, true);
            }
        }
        if !on_gpu {
            trace.clear(TableId::Kernels);
        }
        trace
    }

    fn analysis(trace: &TestTrace, name: &str) -> Section {
        let analysis = ALL.iter().find(|analysis| analysis.name() == name);
        trace.section(*analysis.expect("an analysis"))
    }

    /// The finding's process, gain in us and evidence.
    fn found(summary: &Section) -> Option<(String, i64, String)> {
        let table = summary.tables.iter().find(|table| table.key == "findings").expect("findings");
        let row = table.rows.iter().position(|row| row[0] == "imbalance".into())?;
        let text = |column: &str| match summary.cell("findings", row, column) {
            Value::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        let Value::Num(gain) = summary.cell("findings", row, "gain_ns") else { panic!("no gain") };
        Some((text("process"), (gain / 1e3).round() as i64, text("evidence")))
    }

    #[test]
    fn the_rank_that_the_others_wait_for_is_named_with_what_it_has_more_of() {
        for (of, more) in [
            ([(0, 100_000), (200_000, 100_000), (0, 100_000)], "its host is outside the driver 21"),
            ([(0, 100_000), (0, 300_000), (0, 100_000)], "in as many operations: a slower GPU, or more data"),
        ] {
            let summary = analysis(&ranks(of, true), "summary");
            let (process, gain, evidence) = found(&summary).expect("a straggler");
            assert_eq!((process.as_str(), gain), ("rank 1", 200), "{:?}", summary.literal);
            assert!(evidence.starts_with("rank 1 is the last at 40 of 40 collectives, 200 us late in the median"));
            assert!(evidence.contains(more), "{evidence}");
            // What remains of NCCL is its 30 us of transfer.
            assert_eq!(summary.get("verdict"), &"IMBALANCE".into());
            let text = summary.literal.clone().unwrap_or_default();
            assert!(text.contains("checked, fine: allocations, communication,"), "{text}");
        }
    }

    #[test]
    fn kernels_that_no_call_names_are_compared_by_their_order_if_they_match() {
        let untold = |of| {
            let mut trace = ranks(of, true);
            trace.clear(TableId::Collectives);
            trace.clear(TableId::Communicators);
            trace
        };
        let mut trace = untold([(0, 100_000), (200_000, 100_000), (0, 100_000)]);
        let (process, gain, _) = found(&analysis(&trace, "summary")).expect("a straggler");
        assert_eq!((process.as_str(), gain), ("rank 1", 200));
        // One more on one rank: nothing matches, and the summary says that nothing is known.
        let not_known = "not known: which rank the others wait for";
        let mut thread = trace.thread(3, 11);
        thread.host(90_000_000);
        let begin = thread.now + 5_000;
        thread.launch_running("ncclDevKernel_AllReduce", 3_000, 7, (begin, 9_000));
        let summary = analysis(&trace, "summary");
        assert_eq!(found(&summary), None);
        let text = summary.literal.unwrap_or_default();
        assert!(text.contains(not_known), "{text}");
        let text = analysis(&untold([(0, 100_000); 3]), "summary").literal.unwrap_or_default();
        assert!(text.contains(" imbalance, ") && !text.contains(not_known), "{text}");
    }

    #[test]
    fn ranks_alike_wait_for_none_and_communicate() {
        let summary = analysis(&ranks([(0, 100_000), (1_000, 100_000), (0, 101_000)], true), "summary");
        assert_eq!(found(&summary), None, "{:?}", summary.literal);
        let text = summary.literal.clone().unwrap_or_default();
        let mut of_four = ranks([(0, 100_000), (1_000, 100_000), (0, 101_000)], true);
        of_four.set(TableId::Processes, "world_size", &json!(4));
        let missing = analysis(&of_four, "summary").literal.unwrap_or_default();
        assert!(missing.contains("ranks 3/4") && !missing.contains(" imbalance"), "{missing}");
        assert!(text.contains(", imbalance, ") && text.contains("communication that nothing runs beside"), "{text}");
    }

    #[test]
    fn of_ranks_whose_steps_are_alike_the_slowest_is_the_one_that_is_waited_for_in_every_report() {
        let trace = ranks([(0, 100_000), (0, 100_000), (50_000, 100_000)], true);
        assert_eq!(analysis(&trace, "ranks").get("slowest"), &"rank 2".into());
        let text = analysis(&trace, "summary").literal.unwrap_or_default();
        assert!(text.contains("\n slowest rank 2 (+0 % of the median rank); numbers are its\n"), "{text}");
    }

    #[test]
    fn without_times_of_gpus_the_others_wait_as_much_longer_as_the_latest_is_late() {
        let summary = analysis(&ranks([(0, 100_000), (200_000, 100_000), (0, 100_000)], false), "summary");
        let (process, gain, _) = found(&summary).expect("a straggler");
        assert_eq!((process.as_str(), gain), ("rank 1", 200), "{:?}", summary.literal);
        // A host that is late while its GPU has work keeps nobody waiting.
        let ahead = analysis(&ranks([(0, 300_000), (200_000, 100_000), (0, 300_000)], true), "summary");
        assert_eq!(found(&ahead), None, "{:?}", ahead.literal);
    }

    #[test]
    fn findings_of_ranks_gain_no_more_together_than_each_rank_could() {
        let summary = analysis(&ranks([(0, 100_000), (200_000, 100_000), (0, 100_000)], true), "summary");
        let Value::Num(joint) = *summary.get("joint_gain_ns") else { panic!("no joint gain") };
        let table = summary.tables.iter().find(|table| table.key == "findings").expect("findings");
        assert!(table.rows.len() > 1, "{:?}", summary.literal);
        // A step of 350 us: a rank that is in time has its 100 us of kernel left.
        assert!((200_000.0..=250_000.0).contains(&joint), "{joint} {:?}", summary.literal);
        let text = summary.literal.unwrap_or_default();
        assert!(text.contains("together: at most "), "{text}");
    }
}
