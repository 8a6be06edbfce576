//! `gputrace check`: holds a trace against limits and against another trace, and says so with its exit code.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::report::{no_trace, whole};
use super::select::{self, wrong};
use super::unfinished;
use crate::analysis::Facts;
use crate::check::{self, Bound, Given, Judged, Limit, Outcome};
use crate::cli::{CheckArgs, Select};
use crate::launch::exit::{Ending, Failure, USAGE};
use crate::metrics::{self, Answer, Answers, Named};
use crate::new_file;
use crate::progress;
use crate::render::{Layout, unit_name, wrapped};
use crate::trace::{Problem, Trace};

/// `--tolerance` when it is not given, as a share.
const TOLERANCE: f64 = 0.05;
/// `--floor` when it is not given.
const FLOOR_NS: f64 = 5_000.0;

/// Prints what does not hold. Exits with 1 when a limit is exceeded, else with 2 when something was not measured, whatever the reason.
pub(crate) fn run(args: &CheckArgs) -> Result<Ending> {
    if args.list {
        return print(&list()).map(|()| Ending::Code(0));
    }
    let name = args.traces.iter().map(|trace| trace.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let write = |file: &Path, judged: &[Judged]| -> Result<()> {
        let text = check::xml(judged, &name)?;
        new_file::write(file, text).with_context(|| format!("cannot write the result to {}", file.display()))
    };
    let (judged, problems) = asked(args).inspect_err(|error| {
        // CI shows the file: without one, or with an older one, nobody would see that nothing was checked.
        let why = Outcome::NotMeasured(format!("{error:#}"));
        let (name, limit) = ("check".to_owned(), "can be made".to_owned());
        let none = Judged { name, limit, of_base: false, outcome: why };
        let _ = args.junit.as_ref().map(|file| write(file, &[none]));
    })?;
    print(&check::text(&judged, &name))?;
    if let Some(file) = &args.junit {
        write(file, &judged)?;
    }
    let any = |wanted: fn(&Outcome) -> bool| judged.iter().any(|one| wanted(&one.outcome));
    let exceeded = any(|outcome| matches!(outcome, Outcome::Exceeded(_)));
    // What a trace that is not whole does not exceed was not measured.
    let code = if exceeded { 1 } else { USAGE };
    whole("check", &problems).map_err(|error| Failure::error(code, format!("{error:#}")))?;
    Ok(Ending::Code(match () {
        () if exceeded => 1,
        () if any(|outcome| matches!(outcome, Outcome::NotMeasured(_))) => USAGE,
        () => 0,
    }))
}

/// What was asked for, judged.
fn asked(args: &CheckArgs) -> Result<(Vec<Judged>, Vec<Problem>)> {
    let given = check::given(&args.max, &args.min, args.limits.as_deref())?;
    if given.limits.is_empty() && args.against.is_none() {
        return Err(wrong("no limit given: name one with --max METRIC=VALUE, --limits FILE or --against TRACE"));
    }
    if args.traces.is_empty() {
        return Err(wrong(no_trace(Path::new("."), "check")));
    }
    judge(args, &given)
}

fn judge(args: &CheckArgs, given: &Given) -> Result<(Vec<Judged>, Vec<Problem>)> {
    let compared = compared(args, given)?;
    let metrics: Vec<Named> =
        given.limits.iter().map(|limit| limit.named).chain(compared.iter().map(|(named, ..)| *named)).collect();
    let _work = progress::of("looking");
    let (answers, mut problems) = answers(&args.traces, &args.select, &metrics)?;
    let floor_ns = args.floor.as_deref().map(|text| metrics::at_least_0(text, crate::analysis::Unit::Ns)).transpose();
    let floor_ns = floor_ns.map_err(|problem| wrong(format!("--floor: {problem}")))?.unwrap_or(FLOOR_NS);
    let mut judged: Vec<Judged> = given.limits.iter().map(|limit| limit.judge(&answers)).collect();
    if let Some(base) = &args.against {
        let (before, more) = self::answers(std::slice::from_ref(base), &args.select, &metrics)?;
        problems.extend(more);
        for (named, tolerance, by_name) in compared {
            // Who gave a metric a tolerance of its own means that one.
            let own = given.tolerances.iter().any(|(of, _)| of.name() == named.name());
            let floor = if own { 0.0 } else { check::floor(named.metric.unit, floor_ns) };
            // A report on neither has it.
            if !by_name && !answers.is_of_trace(&named) && !before.is_of_trace(&named) {
                continue;
            }
            let apart = |which: &str, why: String| {
                let outcome = Outcome::NotCompared(format!("only {which} has it; the other: {why}"));
                Judged { name: named.name(), limit: check::BASE.to_owned(), of_base: true, outcome }
            };
            let now = answers.get(&named);
            if !by_name && answers.is_other(&named, &before) {
                let why =
                    "it is replayed where times of a GPU are in the trace, and estimated in the one without".to_owned();
                let outcome = Outcome::NotCompared(why);
                judged.push(Judged { name: named.name(), limit: check::BASE.to_owned(), of_base: true, outcome });
                continue;
            }
            match (before.get(&named), now) {
                (Answer::Known(_), Answer::Absent(why)) if !by_name => judged.push(apart(&base.to_string_lossy(), why)),
                (Answer::Known(value), _) => {
                    judged.push(Limit { named, bound: Bound::Base(value, tolerance, floor) }.judge(&answers));
                }
                (Answer::Absent(why) | Answer::Unknown(why), _) if by_name => {
                    let why = format!("{}: {why}", base.display());
                    let (name, limit) = (named.name(), check::BASE.to_owned());
                    judged.push(Judged { name, limit, of_base: true, outcome: Outcome::NotMeasured(why) });
                }
                (Answer::Absent(why) | Answer::Unknown(why), Answer::Known(_)) => {
                    let own: Vec<_> = args.traces.iter().map(|trace| trace.to_string_lossy()).collect();
                    judged.push(apart(&own.join(" "), why));
                }
                _ => {}
            }
        }
    }
    if judged.iter().all(|one| matches!(one.outcome, Outcome::NotCompared(_))) {
        return Err(wrong(
            "the two traces have no metric in common that is compared by itself (check --list): name some with --metric",
        ));
    }
    Ok((judged, problems))
}

/// What is compared with another trace: each metric, its tolerance, and whether it was named.
fn compared(args: &CheckArgs, given: &Given) -> Result<Vec<(Named, f64, bool)>> {
    if args.against.is_none() {
        return match given.tolerances.first() {
            Some((named, _)) => Err(wrong(format!("{}: a tolerance needs --against TRACE", named.name()))),
            None => Ok(Vec::new()),
        };
    }
    let tolerance = args.tolerance.as_deref().map(|text| metrics::at_least_0(text, crate::analysis::Unit::Percent));
    let tolerance = tolerance.transpose().map_err(|problem| wrong(format!("--tolerance: {problem}")))?;
    let tolerance = tolerance.map_or(TOLERANCE, |percent| percent / 100.0);
    let own = |named: &Named| given.tolerances.iter().find(|(of, _)| of.name() == named.name()).map(|(_, own)| *own);
    let mut compared = Vec::new();
    for name in args.metric.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        let named = metrics::find(name).map_err(|problem| wrong(format!("--metric {problem}")))?;
        compared.push((named, own(&named).unwrap_or(tolerance), true));
    }
    if compared.is_empty() {
        let directed = metrics::all().filter(|named| named.metric.is_compared() || own(named).is_some());
        compared.extend(directed.map(|named| (named, own(&named).unwrap_or(tolerance), own(&named).is_some())));
    }
    Ok(compared)
}

fn answers(folders: &[PathBuf], select: &Select, metrics: &[Named]) -> Result<(Answers, Vec<Problem>)> {
    Trace::read(folders, |trace| {
        let filter = select::filter(select, trace)?;
        select::tell(trace, &filter);
        unfinished::tell(trace);
        let facts = Facts::gather(trace, &filter, &Answers::needs(metrics));
        select::found(select, &facts)?;
        Ok((Answers::of(metrics, &facts), trace.problems()))
    })
}

/// Every metric: name, unit, the direction that is worse, whether --against compares it by itself, meaning.
fn list() -> String {
    let name = metrics::all().map(|named| named.name().len()).max().unwrap_or(0);
    let mut out = format!("{:name$}  {:7}  {:5}  {:7}  meaning\n", "metric", "unit", "worse", "against");
    let room = Layout::PLAIN.width.saturating_sub(name + 27);
    for named in metrics::all() {
        let metric = named.metric;
        let against = if metric.is_compared() { "yes" } else { "named" };
        let heads = [(named.name(), unit_name(metric.unit), metric.worse.text(), against)];
        let heads = heads.into_iter().chain(std::iter::repeat((String::new(), "", "", "")));
        for (line, (full, unit, worse, against)) in wrapped(metric.meaning, room).iter().zip(heads) {
            out.push_str(&format!("{full:name$}  {unit:7}  {worse:5}  {against:7}  {line}\n"));
        }
    }
    out
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to stdout")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_every_metric_within_a_hundred_columns() {
        let text = list();
        for named in metrics::all() {
            assert!(text.lines().any(|line| line.starts_with(&format!("{} ", named.name()))), "{}", named.name());
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let peak = text.lines().find(|line| line.starts_with("device-memory.peak_bytes")).unwrap_or_default();
        assert!(peak.contains("  bytes    more   yes      most bytes live"), "{peak}");
        // What tracing took, and what samples estimate, differs from run to run; the user may name it all the same.
        for unsteady in ["summary.cost_percent", "modules.jit_ns", "host-memory.peak_live_bytes"] {
            let line = text.lines().find(|line| line.starts_with(unsteady)).unwrap_or_default();
            assert!(line.contains("  more   named  "), "{line}");
        }
    }
}
