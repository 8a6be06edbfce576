//! `gputrace report`: prints what the analyses find in a trace.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::select::{self, wrong};
use super::unfinished;
use crate::analysis::{
    ALL, Analysis, Facts, Need, answer, find, has_sums_alone, loss, steps_one_by_one, sums_answer,
    unknown as unknown_name,
};
use crate::cli::{ReportArgs, ReportFormat};
use crate::export;
use crate::findings;
use crate::new_file;
use crate::note;
use crate::progress;
use crate::render::html::{self, Beside};
use crate::render::{self, Layout, Report};
use crate::trace::{Missing, Problem, Trace};

/// What flame graphs are made of.
const FLAMES: &[Need] = &[Need::Allocations, Need::Sites];

/// Prints the report. Fails after it when parts of the trace could not be read.
pub(crate) fn run(args: ReportArgs) -> Result<()> {
    if let Some(name) = &args.explain {
        let width = args.width.map_or_else(|| Layout::of_stdout().width.min(Layout::PLAIN.width), usize::from);
        return print(&explain(name, width)?);
    }
    let chosen = choose(&args.only)?;
    if args.format == ReportFormat::Html && args.output.is_none() && std::io::stdout().is_terminal() {
        return Err(wrong("a page is nothing for a terminal; name its file: -o report.html"));
    }
    if args.traces.is_empty() {
        return Err(wrong(no_trace(Path::new("."), "report")));
    }
    let work = progress::of("looking");
    let (text, problems, live) = Trace::read(&args.traces, |trace| made(&args, &chosen, trace))?;
    drop(work);
    live.iter().for_each(|text| note(text));
    match &args.output {
        Some(file) => {
            new_file::write(file, text).with_context(|| format!("cannot write the report to {}", file.display()))?;
        }
        None => print(&text)?,
    }
    whole("report", &problems)
}

/// The report of a trace; what could not be read; and that it is still written, where that is so.
fn made(
    args: &ReportArgs,
    chosen: &[&'static dyn Analysis],
    trace: &Trace,
) -> Result<(String, Vec<Problem>, Option<String>)> {
    let filter = select::filter(&args.select, trace)?;
    let page = args.format == ReportFormat::Html;
    // Before the facts: what either needs while it is made is not needed at once.
    let timeline = if page { export::page::gather(trace, &filter) } else { Default::default() };
    let beside: &[Need] = if page { FLAMES } else { &[] };
    let needs: Vec<Need> = chosen.iter().flat_map(|a| a.needs()).chain(beside).copied().collect();
    let facts = Facts::gather(trace, &filter, &needs);
    select::found(&args.select, &facts)?;
    let sums_alone = has_sums_alone(&facts);
    let can_tell = |a: &dyn Analysis| a.answers(&facts) && (!sums_alone || sums_answer(a));
    let asked = |a: &dyn Analysis| !args.only.is_empty() || can_tell(a);
    let section = |of: &dyn Analysis| {
        let mut section = answer(of, &facts);
        loss::note_shed(&mut section, &facts, of.needs());
        section
    };
    let mut sections: Vec<_> = chosen.iter().copied().filter(|a| asked(*a)).map(|a| (a, section(a))).collect();
    loss::note_incomplete(&mut sections, trace);
    let traces = args.traces.iter().map(|t| t.to_string_lossy().into_owned()).collect();
    let unfinished = unfinished::of(trace);
    let live = unfinished.as_ref().filter(|unfinished| unfinished.is_live).map(|unfinished| unfinished.text.clone());
    let incomplete = unfinished.map(|unfinished| unfinished.text);
    // The text says it in its summary, or else in its first section; the page beside its notes.
    let beside_text =
        matches!(args.format, ReportFormat::Json | ReportFormat::Markdown).then(|| incomplete.clone()).flatten();
    let notes = trace.about_intervals(&filter).into_iter().chain(beside_text).collect();
    let flames = if page { export::stacks::flames(&facts) } else { Default::default() };
    let steps = if page { steps_one_by_one(&facts, html::STEPS) } else { Vec::new() };
    drop(facts);
    let report = Report { traces, notes, sections, problems: trace.problems() };
    let layout = Layout::of_report(args.output.is_some(), args.width);
    let text = match args.format.of_text() {
        Some(format) => report.render(format, layout),
        None => html::render(&report, &Beside { timeline, flames, steps, incomplete }),
    };
    Ok((text, report.problems, live))
}

/// Fails when something is missing from what was printed.
pub(crate) fn whole(what: &str, problems: &[Problem]) -> Result<()> {
    let lost: Vec<_> = problems.iter().filter(|p| p.missing != Missing::Nothing).collect();
    match lost.as_slice() {
        [] => Ok(()),
        [one] => bail!("the {what} is not whole: {one}"),
        [first, rest @ ..] => bail!("the {what} is not whole: {first} (and {} more, named in the report)", rest.len()),
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to stdout")
}

/// What to say when no trace was named: with the youngest trace in the folder where we are, if there is one.
pub(crate) fn no_trace(here: &Path, command: &str) -> String {
    let folders = fs::read_dir(here).into_iter().flatten().flatten().map(|entry| entry.path().join("manifest"));
    let written = |manifest: &PathBuf| fs::metadata(manifest).and_then(|m| m.modified()).ok();
    let youngest = folders.filter_map(|manifest| Some((written(&manifest)?, manifest))).max();
    let name = youngest.and_then(|(_, manifest)| Some(manifest.parent()?.file_name()?.to_string_lossy().into_owned()));
    let name = name.map_or_else(|| "TRACE".to_owned(), |name| gputrace_collectors::quote(&name));
    format!("no trace given; name the folder that gputrace wrote: gputrace {command} {name}")
}

/// The analyses with these names, in the order of a report; all when none is named. A comma too many names nothing.
fn choose(only: &[String]) -> Result<Vec<&'static dyn Analysis>> {
    let known = || ALL.iter().map(|a| a.name()).collect::<Vec<_>>().join(", ");
    let named: Vec<&str> = only.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
    let found: Vec<Option<&str>> = named.iter().map(|name| find(name).map(|analysis| analysis.name())).collect();
    if let Some((unknown, _)) = named.iter().zip(&found).find(|(_, found)| found.is_none()) {
        return Err(wrong(format!("{}; the analyses are {}", unknown_name(unknown, &[]), known())));
    }
    if named.is_empty() && !only.is_empty() {
        return Err(wrong(format!("--only names no analysis; the analyses are {}", known())));
    }
    Ok(ALL.iter().copied().filter(|a| named.is_empty() || found.contains(&Some(a.name()))).collect())
}

/// What `--explain NAME` prints.
fn explain(name: &str, width: usize) -> Result<String> {
    if let Some(analysis) = find(name) {
        let about = analysis.explain();
        let parts =
            [("what", about.definition), ("units", about.unit), ("limits", about.limits), ("source", about.source)];
        let lines: String = parts.iter().map(|(head, text)| paragraph(head, text, width)).collect();
        let own = analysis.name();
        let other = if name == own { String::new() } else { format!("{name} is answered by {own}\n") };
        return Ok(format!("{other}{own}: {}\n{lines}", analysis.title()));
    }
    if let Some(rule) = findings::ALL.iter().find(|r| r.name == name) {
        let parts = [("when", rule.condition), ("try", rule.advice)].into_iter();
        let parts = parts.chain(rule.on_metal.map(|text| ("Metal", text))).chain([("effort", rule.effort.text())]);
        let lines: String = parts.map(|(head, text)| paragraph(head, text, width)).collect();
        return Ok(format!("{name}: {}\n{lines}", rule.title.of_step));
    }
    let analyses: Vec<&str> = ALL.iter().map(|a| a.name()).collect();
    let rules: Vec<&str> = findings::ALL.iter().map(|r| r.name).collect();
    let said = unknown_name(name, &rules);
    let (analyses, rules) = (analyses.join(", "), rules.join(", "));
    Err(wrong(format!("{said}; the analyses are {analyses}; the findings are {rules}")))
}

/// A paragraph under a short head.
fn paragraph(head: &str, text: &str, width: usize) -> String {
    let heads = std::iter::once(head).chain(std::iter::repeat(""));
    render::wrapped(text, width.saturating_sub(10))
        .iter()
        .zip(heads)
        .map(|(line, head)| format!(" {head:7}{line}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_answered_with_those_there_are() {
        let error = choose(&["summary".into(), "lunches".into()]).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.starts_with("lunches: no such analysis") && error.contains("launch-overhead"), "{error}");
        let error = explain("lunches", 100).unwrap_err().to_string();
        assert!(error.contains("syncs") && error.contains("pageable-copies"), "{error}");
        assert_eq!(choose(&[]).map(|a| a.len()).ok(), Some(ALL.len()));
    }

    #[test]
    fn names_of_other_tools_lead_to_the_analysis_that_answers() {
        let chosen =
            choose(&["cuda_gpu_kern_sum".into(), "Temporal Breakdown".into(), "implicit-syncs".into()]).unwrap();
        assert_eq!(chosen.iter().map(|a| a.name()).collect::<Vec<_>>(), ["gpu-utilisation", "kernels", "syncs"]);
        let text = explain("cuda_kern_exec_sum", 100).unwrap();
        assert!(text.starts_with("cuda_kern_exec_sum is answered by launch-overhead\nlaunch-overhead: "), "{text}");
        assert!(explain("syncs", 100).unwrap().starts_with("syncs: "));
    }

    #[test]
    fn a_comma_too_many_is_no_name() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            choose(&only).map(|chosen| chosen.iter().map(|a| a.name()).collect::<Vec<_>>())
        };
        assert_eq!(names(&["transfers", "", " syncs"]).unwrap(), ["syncs", "transfers"]);
        assert!(names(&["", ""]).unwrap_err().to_string().contains("names no analysis"));
    }

    #[test]
    fn without_a_trace_the_youngest_one_here_is_named() {
        let folder = crate::launch::testing::Folder::new("report-none");
        assert!(no_trace(folder.path(), "check").ends_with(": gputrace check TRACE"));
        folder.file("my trace/manifest/h-1.json", b"{}", 0o600);
        folder.file("no-trace/launches", b"", 0o600);
        assert!(no_trace(folder.path(), "report").ends_with(": gputrace report 'my trace'"));
    }

    #[test]
    fn everything_is_explained_within_the_width() {
        let names = ALL.iter().map(|a| a.name()).chain(findings::ALL.iter().map(|r| r.name));
        for name in names {
            for width in [80, 100] {
                let text = explain(name, width).unwrap();
                assert!(text.lines().count() >= 4, "{text}");
                assert!(text.lines().all(|l| l.chars().count() <= width && l == l.trim_end()), "{text}");
            }
        }
    }
}
