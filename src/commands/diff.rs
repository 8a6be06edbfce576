//! `gputrace diff`: compares two traces.

use std::io::Write;

use anyhow::{Context, Result};

use super::report::whole;
use super::select::{self, wrong};
use super::unfinished;
use crate::analysis::{ALL, Analysis, Facts, find};
use crate::cli::{DiffArgs, Format};
use crate::diff::{self, Diff, OWN_PARTS, Side};
use crate::new_file;
use crate::progress;
use crate::render::Layout;
use crate::trace::{Problem, Trace};

/// Prints the comparison. Fails after it when parts of a trace could not be read.
pub(crate) fn run(args: &DiffArgs) -> Result<()> {
    let (analyses, own) = choose(&args.only)?;
    let work = progress::of("looking");
    let [before, after] = [&args.before, &args.after].map(std::slice::from_ref);
    let (text, problems) =
        Trace::read(before, |before| Trace::read(after, |after| made(args, (&analyses, &own), [before, after])))?;
    drop(work);
    match &args.output {
        Some(file) => {
            new_file::write(file, text)
                .with_context(|| format!("cannot write the comparison to {}", file.display()))?;
        }
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to stdout")?;
        }
    }
    whole("comparison", &problems)
}

/// The comparison of two traces, and what could not be read.
fn made(
    args: &DiffArgs,
    (analyses, own): (&[&'static dyn Analysis], &[&'static str]),
    [before, after]: [&Trace; 2],
) -> Result<(String, Vec<Problem>)> {
    let needs = diff::needs(analyses, before.keeps_no_event() || after.keeps_no_event());
    let filters = [select::filter(&args.select, before)?, select::filter(&args.select, after)?];
    [before, after].into_iter().for_each(unfinished::tell);
    [before, after].into_iter().for_each(Trace::leave_sources_out);
    [(before, &filters[0]), (after, &filters[1])].into_iter().for_each(|(trace, filter)| select::tell(trace, filter));
    let facts = [Facts::gather(before, &filters[0], &needs), Facts::gather(after, &filters[1], &needs)];
    facts.iter().try_for_each(|facts| select::found(&args.select, facts))?;
    let side = |folder: &std::path::Path, facts| Side { trace: folder.to_string_lossy().into_owned(), facts };
    let (old, new) = (side(&args.before, &facts[0]), side(&args.after, &facts[1]));
    let diff = Diff::of(&old, &new, analyses, own);
    let layout = Layout::of_report(args.output.is_some(), args.width);
    let text = match args.format {
        Format::Text => diff::text(&diff, layout.width),
        Format::Json => diff::json(&diff),
        Format::Markdown => diff::markdown(&diff),
    };
    Ok((text, diff.problems))
}

/// The analyses with these names, and the parts that are no analysis; all when none is named.
fn choose(only: &[String]) -> Result<(Vec<&'static dyn Analysis>, Vec<&'static str>)> {
    let named: Vec<&str> = only.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
    let known = |name: &str| OWN_PARTS.contains(&name) || find(name).is_some();
    // Names of other tools are understood.
    let found: Vec<&str> = named.iter().filter_map(|name| find(name).map(|analysis| analysis.name())).collect();
    let mut all: Vec<&str> = OWN_PARTS.into_iter().chain(ALL.iter().map(|analysis| analysis.name())).collect();
    all.dedup();
    if let Some(unknown) = named.iter().find(|name| !known(name)) {
        return Err(wrong(format!("{unknown}: no such part; there are {}", all.join(", "))));
    }
    if named.is_empty() && !only.is_empty() {
        return Err(wrong(format!("--only names nothing; there are {}", all.join(", "))));
    }
    let analyses = ALL.iter().copied().filter(|of| named.is_empty() || found.contains(&of.name())).collect();
    let own = OWN_PARTS.into_iter().filter(|part| named.is_empty() || named.contains(part)).collect();
    Ok((analyses, own))
}
