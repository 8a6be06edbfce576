//! Steps that took too long: what each had more of than the usual one, and the line that it went to.

use std::cmp::Reverse;

use super::passes::step_sums::{Cause, Outlier};
use super::section::{Column, Table, Unit, Value, column, percent};
use super::{Facts, ProcessSteps, clock};
use crate::trace::Site;

/// Causes that no call tells.
const OUTSIDE: &str = "host outside the driver";
const WORK: &str = "more GPU work";

/// A cause must explain so much of what an outlier took beyond the median.
const EXPLAINS: f64 = 0.5;
/// Causes that the summary names.
const NAMED: usize = 3;

/// The mean time by cause over the usual steps of a process.
fn usual_ns(facts: &Facts<'_>, slot: usize) -> [f64; 7] {
    let steps = &facts.steps.all[slot];
    let usual = facts.step_sums.tallies(slot).filter(|(index, _)| steps.is_middle(*index));
    let (mut count, mut sums) = (0.0_f64, [0.0; 7]);
    for (_, tally) in usual {
        count += 1.0;
        sums.iter_mut().zip(tally.ns).for_each(|(sum, ns)| *sum += ns as f64);
    }
    sums.map(|sum| sum / count.max(1.0))
}

/// Why a step took too long.
struct Why<'a> {
    /// What it took beyond the median, ns.
    beyond_ns: i64,
    /// What it had more of than the usual one, and how much more; none where nothing explains it.
    cause: Option<(&'static str, f64)>,
    /// The line that most of that went to.
    site: Option<&'a Site>,
}

fn why<'a>(facts: &'a Facts<'_>, outlier: &Outlier, usual_ns: &[f64; 7]) -> Why<'a> {
    let beyond_ns = outlier.ns - facts.steps.all[outlier.slot].quantile_ns(0.5);
    let more = Cause::ALL.map(|(cause, name)| {
        let at = cause as usize;
        (cause, name, outlier.tally.ns[at] as f64 - usual_ns[at])
    });
    let explains = |ns: &f64| *ns >= EXPLAINS * beyond_ns as f64;
    let most = more.into_iter().max_by(|a, b| a.2.total_cmp(&b.2)).filter(|(.., ns)| explains(ns));
    let at = |cause: Cause| facts.stacks.get(outlier.site(cause)?);
    // The host waits for the work that is more, or for room in the queue behind it.
    let work = facts.step_sums.work_beyond_ns(outlier).filter(explains);
    let is_effect = most.is_none_or(|(cause, ..)| matches!(cause, Cause::Wait | Cause::Launch));
    if let Some(ns) = work.filter(|_| is_effect) {
        return Why { beyond_ns, cause: Some((WORK, ns)), site: at(Cause::Launch) };
    }
    if let Some((cause, name, ns)) = most {
        return Why { beyond_ns, cause: Some((name, ns)), site: at(cause) };
    }
    let outside = outside_ns(&facts.steps.all[outlier.slot], outlier, usual_ns).filter(explains);
    Why { beyond_ns, cause: outside.map(|ns| (OUTSIDE, ns)), site: None }
}

/// What the host was longer outside of the driver, and in no wait for the system, than in the usual step; none where the step's
/// length is not the host's.
fn outside_ns(steps: &ProcessSteps, outlier: &Outlier, usual_ns: &[f64; 7]) -> Option<f64> {
    let of = |ns: f64, calls: f64| (ns - calls).max(0.0);
    let own = of(outlier.ns as f64, outlier.tally.ns.iter().sum::<i64>() as f64);
    (!steps.is_ahead()).then(|| own - of(steps.middle_ns, usual_ns.iter().sum()))
}

/// Steps of a process that are far longer than the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LongSteps {
    /// How many, of all steady ones.
    pub(crate) count: usize,
    pub(crate) steps: usize,
    pub(crate) median_ns: i64,
    pub(crate) longest_ns: i64,
    /// What they took, and what of it was beyond the median and not the loading of code, which is a first time's.
    pub(crate) ns: i64,
    pub(crate) beyond_ns: i64,
    /// What all steady steps took.
    pub(crate) all_ns: i64,
    /// Every so many steps there is one, where they come at even distances.
    pub(crate) every: Option<usize>,
}

impl LongSteps {
    /// The part of the steps' time that they have beyond the median.
    pub(crate) fn share(&self) -> f64 {
        self.beyond_ns as f64 / self.all_ns.max(1) as f64
    }
}

/// Steps of less are uneven, and on a busy machine many are; one that takes so many times the median did something else.
const FAR: i64 = 4;
/// And one that comes at even distances did so if it takes so many.
const FAR_AND_EVEN: i64 = 2;

/// The steps of a process that are far longer than the median, but those that are usual all the same (--explain steps); none
/// where time runs back.
pub(crate) fn long(facts: &Facts<'_>, process_id: i64) -> Option<LongSteps> {
    let steps = facts.steps.of(process_id).filter(|_| clock::back(facts, process_id).is_none())?;
    let (median_ns, all_ns) = (steps.quantile_ns(0.5), steps.sorted_ns.iter().sum());
    let every = steps.rhythm.filter(|rhythm| !rhythm.usual).map(|rhythm| rhythm.every);
    let far = if every.is_some() { FAR_AND_EVEN } else { FAR };
    let mut long = LongSteps { steps: steps.sorted_ns.len(), median_ns, all_ns, every, ..LongSteps::default() };
    let own = |outlier: &&Outlier| facts.steps.all[outlier.slot].process_id == process_id;
    let is_far = |outlier: &&Outlier| outlier.ns > median_ns.saturating_mul(far) && !steps.is_usual(outlier.ns);
    for outlier in facts.step_sums.outliers.iter().filter(own).filter(is_far) {
        let loading_ns = outlier.tally.ns[Cause::Load as usize];
        long.count += 1;
        long.ns += outlier.ns;
        long.beyond_ns += (outlier.ns - median_ns - loading_ns).max(0);
        long.longest_ns = long.longest_ns.max(outlier.ns);
    }
    (long.count > 0).then_some(long)
}

/// All outliers, the longest first.
pub(super) fn table(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("step", "Step", Unit::Count),
        column("step_ns", "Took", Unit::Ns),
        column("beyond_ns", "Beyond median", Unit::Ns),
        column("cause", "Cause", Unit::Text),
        column("cause_percent", "Of beyond", Unit::Percent),
        column("site", "Line", Unit::Text),
        column("after_ns", "After", Unit::Ns),
        column("place", "File", Unit::Name),
    ];
    let usual: Vec<[f64; 7]> = (0..facts.steps.all.len()).map(|slot| usual_ns(facts, slot)).collect();
    let row = |outlier: &Outlier| -> Vec<Value> {
        let steps = &facts.steps.all[outlier.slot];
        let Why { beyond_ns, cause, site } = why(facts, outlier, &usual[outlier.slot]);
        vec![
            facts.label(steps.process_id).into(),
            ((steps.number + outlier.index) as u64).into(),
            outlier.ns.into(),
            beyond_ns.into(),
            cause.map_or("unknown", |(name, _)| name).into(),
            cause.map_or(Value::Missing, |(_, ns)| percent(ns.min(beyond_ns as f64), beyond_ns as f64)),
            site.map(Site::short).into(),
            (outlier.start_ns - steps.first_ns()).into(),
            site.map(Site::place).into(),
        ]
    };
    let mut all: Vec<&Outlier> = facts.step_sums.outliers.iter().collect();
    all.sort_by_key(|o| std::cmp::Reverse(o.ns));
    let title = "Outliers, the longest first (After: since the first step)";
    Table::new("outliers", title, &COLUMNS, all.into_iter().map(row).collect())
}

/// `2 system waits train.py:212, 1 host outside the driver`: how many of a process's outliers have which cause, most first.
pub(crate) fn causes(facts: &Facts<'_>, process_id: i64) -> String {
    let own = |slot: usize| facts.steps.all[slot].process_id == process_id;
    let mut usual = None;
    let mut groups: Vec<(u64, Option<&'static str>, Option<String>)> = Vec::new();
    for outlier in facts.step_sums.outliers.iter().filter(|outlier| own(outlier.slot)) {
        let usual = usual.get_or_insert_with(|| usual_ns(facts, outlier.slot));
        let why = why(facts, outlier, usual);
        let (name, site) = (why.cause.map(|(name, _)| name), why.site.map(Site::line));
        match groups.iter_mut().find(|(_, other, line)| (other, line) == (&name, &site)) {
            Some((count, ..)) => *count += 1,
            None => groups.push((1, name, site)),
        }
    }
    groups.sort_by_key(|(count, name, _)| (name.is_none(), Reverse(*count)));
    let (named, others) = groups.split_at(groups.iter().filter(|(_, name, _)| name.is_some()).count().min(NAMED));
    let named = named.iter().map(|(count, name, site)| {
        let site = site.as_ref().map(|site| format!(" {site}")).unwrap_or_default();
        let name = name.unwrap_or_default();
        format!("{count} {}{site}", if *count == 1 { of_one(name) } else { name })
    });
    let rest: u64 = others.iter().map(|(count, ..)| count).sum();
    let rest_is = if others.iter().all(|(_, name, _)| name.is_none()) { "unknown" } else { "of other causes" };
    named.chain((rest > 0).then(|| format!("{rest} {rest_is}"))).collect::<Vec<_>>().join(", ")
}

/// What a cause is called of one step.
fn of_one(cause: &str) -> &str {
    match cause {
        "copies" => "copy",
        "launches" => "launch",
        _ => cause.strip_suffix('s').unwrap_or(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, Value};
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn the_summary_says_how_many_outliers_have_which_cause_and_line() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 200_000_000);
        let line = trace.stack("save", "/home/u/train.py", 212);
        let mut thread = trace.thread(1, 11);
        for n in 0..60 {
            let began = thread.range_begin();
            thread.launch("k", 2_000);
            thread.stack = Some((line, 0));
            match n {
                20 | 41 => thread.copy("DtoH", ("device", "pageable"), false, 4, 9_000_000),
                25 | 31 | 38 => thread.other("cuModuleLoadData", "module", 4_000_000),
                50 => thread.host(5_000_000),
                _ => {}
            }
            thread.stack = None;
            thread.host(900_000);
            thread.range_end(None, "step", began, true);
        }
        let summary = trace.section(crate::analysis::ALL[0]);
        assert_eq!(
            summary.get("joint_gain_ns"),
            &Value::Num(35_000_000.0),
            "loading of code, and long steps without it: both are of the run, and no step's"
        );
        let text = summary.literal.unwrap_or_default();
        let said = "; outliers 6: 3 module loads train.py:212, 2 waits train.py:212, 1 host outside the driver\n";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn of_one_step_a_cause_is_named_in_the_singular() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 200_000_000);
        let mut thread = trace.thread(1, 11);
        for n in 0..60 {
            let began = thread.range_begin();
            thread.launch("k", 2_000);
            if n == 20 {
                thread.copy("DtoH", ("device", "pageable"), false, 4, 9_000_000);
            }
            thread.host(900_000);
            thread.range_end(None, "step", began, true);
        }
        let text = trace.section(crate::analysis::ALL[0]).literal.unwrap_or_default();
        assert!(text.contains("; outliers 1: 1 wait\n"), "{text}");
        let all = Cause::ALL.map(|(_, name)| super::of_one(name));
        assert_eq!(all, ["wait", "system wait", "module load", "allocation", "copy", "launch", "other driver call"]);
    }
}
