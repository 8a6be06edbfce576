//! Metrics by name, `ANALYSIS.KEY`, and what they are in a trace.
//!
//! The list is what the analyses declare ([`Analysis::metrics`]), so a new analysis is in `check`, `diff` and `check --list`
//! by its own file. A metric without a value says why: a limit on it must not pass for want of a measurement.

mod quantity;

use gputrace_collectors::schema::TableId;

use crate::analysis::{
    ALL, Analysis, Facts, Loss, Metric, Need, Section, Shed, Unit, Value, answer, has_sums_alone, loss, of_all_events,
    removed, steps_unknown, sums_answer,
};
use crate::render::share;

pub(crate) use quantity::{at_least_0, parse, shown};

/// A metric and the analysis that states it.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    /// The analysis.
    pub(crate) analysis: &'static dyn Analysis,
    /// The metric.
    pub(crate) metric: Metric,
}

impl Named {
    /// `summary.step_p50_ns`.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.analysis.name(), self.metric.key)
    }

    fn is(&self, name: &str) -> bool {
        name.split_once('.') == Some((self.analysis.name(), self.metric.key))
    }
}

/// Every metric, in the order of a report.
pub(crate) fn all() -> impl Iterator<Item = Named> {
    ALL.iter()
        .flat_map(|analysis| analysis.metrics().iter().map(|metric| Named { analysis: *analysis, metric: *metric }))
}

/// Names that are proposed for one that does not exist.
const PROPOSED: usize = 3;

/// The metric with this name; else what to say, with the names that are nearest.
pub(crate) fn find(name: &str) -> Result<Named, String> {
    if let Some(named) = all().find(|named| named.is(name)) {
        return Ok(named);
    }
    // A key alone, or one under another analysis, is as near as one with a letter too many.
    let key = name.rsplit('.').next().unwrap_or(name);
    let near = |named: &Named| {
        let whole = strsim::normalized_damerau_levenshtein(name, &named.name());
        whole.max(0.95 * strsim::normalized_damerau_levenshtein(key, named.metric.key))
    };
    let mut names: Vec<(f64, String)> = all().map(|named| (near(&named), named.name())).collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let names: Vec<&str> = names.iter().take(PROPOSED).map(|(_, name)| name.as_str()).collect();
    Err(format!("{name}: no such metric; the nearest are {}; all: gputrace check --list", names.join(", ")))
}

/// What a metric is in a trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Known.
    Known(f64),
    /// The trace does not hold what it takes, because.
    Absent(String),
    /// It is not known, or cannot be trusted, because.
    Unknown(String),
}

/// Analyses that look at no single event, nor at sums of them.
const OF_NO_EVENT: [&str; 3] = ["counters", "node-health", "self"];

/// What one analysis says.
struct Answered {
    name: &'static str,
    section: Section,
    /// It is about such a trace: a report has it.
    is_of_trace: bool,
}

/// The answers of some analyses to one trace.
pub(crate) struct Answers {
    sections: Vec<Answered>,
    not_whole: Option<String>,
    lost: Option<String>,
    lost_of_malloc: Option<String>,
    /// Why nobody knows how much was lost, where that is so.
    uncounted: Option<String>,
    shed: Option<String>,
    /// Why nobody knows the steps of some process, where that is so.
    steps_unknown: Option<String>,
    /// Why nothing is known of single events, where that is so, and whether their sums are.
    unknown: Option<&'static str>,
    in_sums: bool,
    /// Times of a GPU are in the trace.
    gpu: bool,
    /// Numbers for which rows are missing, and why.
    lacking: Vec<(Named, String)>,
    /// The same analyses by the sums of all events, where these are whole.
    sums: Vec<(&'static str, Section)>,
}

impl Answers {
    /// The passes that these metrics need.
    pub(crate) fn needs(metrics: &[Named]) -> Vec<Need> {
        metrics.iter().flat_map(|named| named.analysis.needs()).copied().collect()
    }

    /// The answers of the analyses that state these metrics.
    pub(crate) fn of(metrics: &[Named], facts: &Facts<'_>) -> Answers {
        let mut sections: Vec<Answered> = Vec::new();
        for analysis in metrics.iter().map(|named| named.analysis) {
            let name = analysis.name();
            if sections.iter().all(|answered| answered.name != name) {
                let is_of_trace = analysis.answers(facts);
                sections.push(Answered { name, section: answer(analysis, facts), is_of_trace });
            }
        }
        let why = |named: &Named| removed::why(facts, &named.metric).map(|why| (*named, why));
        let lacking: Vec<(Named, String)> = metrics.iter().filter_map(why).collect();
        let problem = facts.trace.problems().into_iter().find(|problem| problem.lost_rows());
        let beyond = |loss: Option<Loss>| loss.and_then(Loss::too_much).map(share);
        let lost = beyond(Loss::of_driver_calls(facts));
        let lost_of_malloc = beyond(Loss::of(facts, &[TableId::HostMemory]));
        Answers {
            sections,
            not_whole: problem.map(|problem| format!("the trace is not whole: {problem}")),
            uncounted: loss::is_incomplete(facts.trace)
                .then(|| format!("{}: how much more is lost nobody counted", loss::why_incomplete(facts.trace))),
            lost: lost.map(|lost| format!("{lost} of the driver's calls are lost")),
            lost_of_malloc: lost_of_malloc.map(|lost| format!("{lost} of the events of malloc are lost")),
            shed: Shed::of(facts.processes()).map(|shed| shed.text(facts.trace)),
            steps_unknown: steps_unknown(facts),
            unknown: facts.trace.intervals().filter(Vec::is_empty).map(|_| "no single event was kept (--detail)"),
            in_sums: has_sums_alone(facts),
            gpu: facts.trace.has_gpu_times(),
            sums: sums_beside(lacking.iter().map(|(named, _)| named.analysis), facts),
            lacking,
        }
    }

    fn of_analysis(&self, named: &Named) -> Option<&Answered> {
        self.sections.iter().find(|answered| answered.name == named.analysis.name())
    }

    /// Whether a report on the trace has the metric's analysis.
    pub(crate) fn is_of_trace(&self, named: &Named) -> bool {
        self.of_analysis(named).is_some_and(|answered| answered.is_of_trace)
    }

    /// Whether a metric is another thing in these two: what findings gain is replayed where GPU times are in the trace, else
    /// estimated from the host's.
    pub(crate) fn is_other(&self, named: &Named, other: &Answers) -> bool {
        named.metric.key == "joint_gain_ns" && self.gpu != other.gpu
    }

    /// One answer.
    pub(crate) fn get(&self, named: &Named) -> Answer {
        let Some(Answered { section, .. }) = self.of_analysis(named) else {
            return Answer::Unknown("its analysis was not asked".to_owned());
        };
        if let Some(why) = &self.not_whole {
            return Answer::Unknown(why.clone());
        }
        let told = self.in_sums && named.analysis.name() != "summary" && sums_answer(named.analysis);
        if let Some(why) = self.unknown.filter(|_| !told && !OF_NO_EVENT.contains(&named.analysis.name())) {
            return Answer::Unknown(why.to_owned());
        }
        let of = |key: &str| section.facts.iter().find(|fact| fact.key == key).map(|fact| &fact.value);
        if named.metric.of_step && of("unit") != Some(&Value::from("step")) {
            return Answer::Unknown(self.no_steps());
        }
        if let Some(shed) = self.shed.as_ref().filter(|_| named.metric.of_launches) {
            return Answer::Unknown(shed.clone());
        }
        if let Some((_, why)) = self.lacking.iter().find(|(lacking, _)| lacking.name() == named.name()) {
            let sums = self.sums.iter().find(|(name, _)| *name == named.analysis.name());
            return match sums.and_then(|(_, section)| section.number(named.metric.key)) {
                Some(value) => Answer::Known(value),
                None => Answer::Unknown(why.clone()),
            };
        }
        match of(named.metric.key) {
            Some(Value::Int(value)) => Answer::Known(*value as f64),
            Some(Value::Num(value)) => Answer::Known(*value),
            _ => self.silence(named, section),
        }
    }

    /// Why a value cannot be trusted to be high enough, if so.
    pub(crate) fn lost(&self, named: &Named) -> Option<&str> {
        let of_malloc = matches!(named.analysis.needs(), [Need::HostMemory | Need::Allocations, ..]);
        let lost = if of_malloc { &self.lost_of_malloc } else { &self.lost };
        self.uncounted.as_deref().filter(|_| named.metric.of_losses).or(lost.as_deref())
    }

    /// Why there are no steps.
    fn no_steps(&self) -> String {
        self.steps_unknown.clone().unwrap_or_else(|| NO_STEPS.to_owned())
    }

    /// Why a metric has no value.
    fn silence(&self, named: &Named, section: &Section) -> Answer {
        let (name, Metric { key, unit, .. }) = (named.analysis.name(), named.metric);
        let of_steps = named.metric.in_steps || key.starts_with("step") || name == "steps";
        if let Some(why) = self.steps_unknown.as_ref().filter(|_| of_steps) {
            return Answer::Unknown(why.clone());
        }
        // A section that has no number at all says why first; beside other numbers its notes are about those.
        let any = section.facts.iter().any(|fact| !fact.unit.is_text() && fact.value != Value::Missing);
        match section.notes.first() {
            Some(note) if !any => Answer::Absent(note.clone()),
            _ if key.contains("gpu") && !self.gpu => Answer::Absent(NO_GPU_TIMES.to_owned()),
            _ if unit == Unit::Ns && key.starts_with("step") => Answer::Unknown(self.no_steps()),
            _ => Answer::Absent(format!(
                "the trace says nothing of it (gputrace report --explain {name} says what it takes)"
            )),
        }
    }
}

/// The answers that these analyses have by the sums of all events.
fn sums_beside<'a>(
    analyses: impl Iterator<Item = &'a dyn Analysis>,
    facts: &Facts<'_>,
) -> Vec<(&'static str, Section)> {
    let mut sums: Vec<(&'static str, Section)> = Vec::new();
    for analysis in analyses {
        if sums.iter().all(|(name, _)| *name != analysis.name()) {
            sums.extend(of_all_events(analysis, facts).map(|section| (analysis.name(), section)));
        }
    }
    sums
}

const NO_GPU_TIMES: &str = "no times of a GPU are in the trace: --gpu-time full records them, import reads them";
const NO_STEPS: &str = "no steps were found in the trace; --step NAME says which ranges of NVTX are steps";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::unit_name;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};
    use gputrace_collectors::manifest::{HookBudget, ShedPart};

    #[test]
    fn what_analyses_declare_is_what_they_state() {
        let made = TestTrace::rich();
        let (trace, filter) = (made.open(), Filter::default());
        for analysis in ALL {
            let section = analysis.section(&Facts::gather(&trace, &filter, analysis.needs()));
            let numbers = section.facts.iter().filter(|fact| !fact.unit.is_text());
            let mut stated: Vec<_> = numbers.map(|fact| (fact.key, unit_name(fact.unit))).collect();
            let mut declared: Vec<_> = analysis.metrics().iter().map(|m| (m.key, unit_name(m.unit))).collect();
            let name = analysis.name();
            stated.sort_unstable();
            declared.sort_unstable();
            assert_eq!(declared, stated, "{name}: Analysis::metrics and the facts that it pushes on TestTrace::rich()");
            for metric in analysis.metrics() {
                assert!(metric.meaning.len() > 4 && metric.meaning.len() <= 100, "{name}.{}", metric.key);
                assert_eq!(metric.meaning.trim_end_matches('.'), metric.meaning, "{name}.{}", metric.key);
            }
        }
    }

    #[test]
    fn an_unknown_metric_is_answered_with_the_nearest_names() {
        let said = |name: &str| find(name).err().unwrap_or_default();
        assert!(
            said("summary.step_p50").contains("the nearest are summary.step_p50_ns"),
            "{}",
            said("summary.step_p50")
        );
        assert!(said("launch.launches").contains("launch-overhead.launches"), "{}", said("launch.launches"));
        assert!(said("waits").contains("syncs.waits") && said("waits").contains("summary.waits"), "{}", said("waits"));
        assert!(said("").starts_with(": no such metric"));
        assert!(find("summary.step_p50_ns").is_ok_and(|named| named.name() == "summary.step_p50_ns"));
    }

    #[test]
    fn what_counts_launches_is_not_known_where_some_were_left_out() {
        let answers = |shed: bool, name: &str| {
            let mut made = TestTrace::rich();
            let part = ShedPart { what: "launches".into(), sampled_out: 9, ..ShedPart::default() };
            let budget = HookBudget { shed: vec![part], ..HookBudget::default() };
            made.manifest.as_mut().expect("a manifest").processes[0].budget = shed.then_some(budget);
            let named = find(name).unwrap_or_else(|error| panic!("{error}"));
            let (trace, filter) = (made.open(), Filter::default());
            Answers::of(&[named], &Facts::gather(&trace, &filter, &Answers::needs(&[named]))).get(&named)
        };
        for name in ["summary.launches", "launch-overhead.launches"] {
            assert!(matches!(answers(false, name), Answer::Known(_)), "{name}");
            let why = answers(true, name);
            assert!(
                matches!(&why, Answer::Unknown(why) if why.contains("9 launches of kernels were left out")),
                "{why:?}"
            );
        }
        assert_eq!(answers(true, "summary.waits"), answers(false, "summary.waits"));
    }

    /// What every metric is in a trace.
    fn answers_of(made: &TestTrace, filter: &Filter) -> Vec<(Named, Answer)> {
        let trace = made.open();
        let metrics: Vec<Named> = all().collect();
        let answers = Answers::of(&metrics, &Facts::gather(&trace, filter, &Answers::needs(&metrics)));
        metrics.into_iter().map(|named| (named, answers.get(&named))).collect()
    }

    #[test]
    fn what_counts_rows_is_not_known_where_some_of_them_were_removed() {
        // What a part of the run has as well, about.
        const TYPICAL: [&str; 13] = [
            "med",
            "p50",
            "p90",
            "p99",
            "mean",
            "avg",
            "percent",
            "jitter",
            "step",
            "concurrency",
            "launches_per",
            "gain",
            "growth",
        ];
        let made = |table: Option<TableId>| {
            let mut made = TestTrace::rich();
            made.clear(TableId::Rollups);
            let mut thread = made.thread(1, 12);
            thread.host(2_000_000);
            for _ in 0..20 {
                let begin = thread.now + 10_000;
                thread.commit(&[("gemm", 64)], 1_000, 5_000, (begin, 100_000));
                thread.host(500_000);
            }
            let removed = table.map(|table| made.remove_before(table, START + 8_000_000));
            (made, removed.unwrap_or(0))
        };
        let filter = Filter::default();
        let whole = answers_of(&made(None).0, &filter);
        let (mut tables, mut wrong) = (0, Vec::new());
        for table in gputrace_collectors::schema::TABLES.iter().filter(|table| table.id != TableId::Rollups) {
            let (made, removed) = made(Some(table.id));
            if removed == 0 || matches!(table.id, TableId::Processes | TableId::Threads | TableId::Communicators) {
                continue;
            }
            tables += 1;
            for ((named, before), (_, after)) in whole.iter().zip(answers_of(&made, &filter)) {
                let typical = named.metric.key == "trace_bytes"
                    || TYPICAL.iter().any(|word| named.metric.key.contains(word))
                    || named.metric.of_step;
                let told = matches!(after, Answer::Known(_)) && after != *before;
                // These count what there is of the trace, not what there was of the run.
                let of_trace = matches!(named.analysis.name(), "self" | "targets" | "node-health" | "counters");
                if told && !typical && !of_trace {
                    wrong.push(format!("{} of {}: {before:?}, {after:?}", table.name, named.name()));
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
        assert!(tables >= 10, "{tables}");
    }

    #[test]
    fn what_the_sums_of_all_events_tell_is_known_whatever_rows_were_removed() {
        let made = |summed: bool| {
            let mut made = TestTrace::new();
            made.process(1, 100, None, START + 1_000_000_000);
            let mut thread = made.thread(1, 11);
            for _ in 0..40 {
                thread.alloc("cuMemAlloc_v2", "device", 0x1000, 1000, 40_000);
            }
            let api_id = made.name(gputrace_collectors::names::NameKind::Api, "cuMemAlloc_v2");
            made.rollup(
            0,
            "alloc",
            &serde_json::json!({"api_id": api_id, "events": 40, "timed": 40, "total_ns": 1_600_000, "bytes": 40_000}),
        );
            if !summed {
                made.clear(TableId::Rollups);
            }
            assert!(made.remove_before(TableId::DeviceMemory, START + 1_000_000) > 0);
            made
        };
        let whole = made(true);
        let get = |made: &TestTrace, filter: &Filter, name: &str| {
            let found = answers_of(made, filter).into_iter().find(|(named, _)| named.is(name));
            found.expect("a metric").1
        };
        let all = Filter::default();
        assert_eq!(get(&whole, &all, "device-memory.allocations"), Answer::Known(40.0));
        let peak = get(&whole, &all, "device-memory.peak_bytes");
        assert!(
            matches!(&peak, Answer::Unknown(why) if why.contains("25 rows of device_memory were removed to keep to --max-size")),
            "{peak:?}"
        );
        // After what was removed all is there.
        let later = Filter { from_ns: Some(START + 1_100_000), ..Filter::default() };
        assert_eq!(get(&whole, &later, "device-memory.allocations"), Answer::Known(12.0));
        assert!(matches!(get(&made(false), &all, "device-memory.allocations"), Answer::Unknown(_)));
    }

    #[test]
    fn what_a_trace_does_not_hold_is_not_known_and_says_why() {
        let metrics: Vec<Named> = all().collect();
        let made = TestTrace::new();
        let (trace, filter) = (made.open(), Filter::default());
        let facts = Facts::gather(&trace, &filter, &Answers::needs(&metrics));
        let answers = Answers::of(&metrics, &facts);
        let why = |name: &str| match answers.get(&find(name).unwrap_or_else(|error| panic!("{error}"))) {
            Answer::Known(value) => panic!("{name} is {value}"),
            Answer::Absent(why) | Answer::Unknown(why) => why,
        };
        assert_eq!(why("summary.launches"), NO_STEPS);
        assert_eq!(why("summary.step_p50_ns"), NO_STEPS);
        assert_eq!(why("launch-overhead.launches"), "No launches in this trace.");
        assert!(why("host-memory.peak_live_bytes").contains("--malloc off"));
    }

    #[test]
    fn a_note_about_other_numbers_is_no_reason() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 1_000_000_000);
        let mut thread = made.thread(1, 11);
        for _ in 0..40 {
            let step = thread.range_begin();
            thread.launch("k", 2_000);
            thread.sync("cuStreamSynchronize", "stream", 90_000);
            thread.range_end(None, "step", step, true);
        }
        let (trace, from_ns) = (made.open(), Some(START));
        let filter = Filter { from_ns, ..Filter::default() };
        let metrics: Vec<Named> = all().collect();
        let answers = Answers::of(&metrics, &Facts::gather(&trace, &filter, &Answers::needs(&metrics)));
        let get = |name: &str| answers.get(&find(name).unwrap_or_else(|error| panic!("{error}")));
        // The summary's notes of a window are about what is of the whole run.
        assert_eq!(get("summary.gpu_idle_ns"), Answer::Absent(NO_GPU_TIMES.to_owned()));
        assert!(matches!(get("summary.wait_ns"), Answer::Known(_)));
        assert!(matches!(get("gpu-gaps.idle_percent"), Answer::Absent(why) if why.starts_with("No times of a GPU")));
    }
}
