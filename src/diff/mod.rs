//! `gputrace diff`: two traces, number by number, and which differences are beyond the spread of the runs' own steps.
//!
//! Of the main process (of several ranks the slowest) the steps are compared as samples, whole, by kernel, and for each
//! analysis whose numbers steps have; of the whole traces every metric, and the tables by call and by call site.

mod incomplete;
mod kernels;
mod processes;
mod quantities;
mod render;
mod samples;
mod spread;
mod summed;
mod tables;

use std::collections::BTreeSet;

use crate::analysis::summary::main_subject;
use crate::analysis::{Analysis, Facts, Need, Section, Shed, Unit, answer, answer_by_sums, lacks_rows};
use crate::findings;
use crate::render::number;
use crate::trace::{Problem, shortened};
use kernels::Pair;
use quantities::LAUNCH_TIME;
use samples::{Kernel, MOST_KERNELS, Samples};
use spread::{FEWEST, compare};
use summed::BySums;

/// Parts that are no analysis.
pub(crate) const OWN_PARTS: [&str; 2] = ["steps", "kernels"];

/// One number in both traces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// What it is: a metric, a quantity of a step, a kernel, a call.
    pub(crate) what: String,
    /// Its unit.
    pub(crate) unit: Unit,
    /// Before; none where only the other trace has it.
    pub(crate) before: Option<f64>,
    /// After.
    pub(crate) after: Option<f64>,
    /// Before and after are means over the steps, whose medians are equal.
    pub(crate) mean: bool,
    /// Beyond the spread of the steps; none where it is not known.
    pub(crate) beyond: Option<bool>,
    /// Only one of the traces can tell it.
    pub(crate) unmeasured: bool,
    /// What else is to be said of it.
    pub(crate) note: Option<String>,
}

impl Change {
    /// What only one of the traces can tell is no difference.
    fn unmeasured(mut self, before: &str, after: &str) -> Change {
        let missing = if self.before.is_none() { before } else { after };
        self.unmeasured = true;
        self.note = Some(format!("not measured in {missing}"));
        self
    }

    /// After less before.
    fn by(&self) -> f64 {
        if self.unmeasured {
            return 0.0;
        }
        self.after.unwrap_or(0.0) - self.before.unwrap_or(0.0)
    }

    /// The same in percent of before, where there was something.
    fn percent(&self) -> Option<f64> {
        let before = self.before.filter(|before| *before != 0.0 && !self.unmeasured)?;
        self.after.map(|after| 100.0 * (after - before) / before.abs())
    }
}

/// Numbers of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part {
    /// Name in JSON.
    pub(crate) name: String,
    /// Title in text.
    pub(crate) title: String,
    /// The numbers, the most important first.
    pub(crate) rows: Vec<Change>,
    /// Numbers that were left out.
    pub(crate) left_out: usize,
    /// What a reader must know.
    pub(crate) note: Option<String>,
}

/// A trace in a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct About {
    /// The folder, as the user named it.
    pub(crate) trace: String,
    /// What was traced.
    pub(crate) command: String,
    /// Version of gputrace that recorded it.
    pub(crate) tool_version: String,
    /// Names of its devices.
    pub(crate) devices: Vec<String>,
    /// The process whose steps are compared.
    pub(crate) process: Option<String>,
    /// How many there are.
    pub(crate) steps: Option<u64>,
    /// Whose steps they are: the GPU's where the host runs ahead of it.
    pub(crate) timed_by: &'static str,
    /// Launches that have no row, to keep to a budget.
    pub(crate) launches_shed: u64,
    /// Limits that rows were removed for.
    pub(crate) removed: String,
    /// That is why its steps are not known.
    pub(crate) steps_unknown: bool,
}

/// The comparison.
#[derive(Default)]
pub(crate) struct Diff {
    /// The first trace.
    pub(crate) before: About,
    /// The second.
    pub(crate) after: About,
    /// Whether steps were compared.
    pub(crate) per_step: bool,
    /// There are too few of them to know their spread.
    pub(crate) few: bool,
    /// What is compared.
    pub(crate) parts: Vec<Part>,
    /// Analyses that differ and whose numbers single steps do not have, so that nobody can say what is beyond the spread.
    pub(crate) unjudged: Vec<&'static str>,
    /// The traces were compared by the sums of all events, for one of them keeps no single one.
    pub(crate) by_sums: Option<BySums>,
    /// What could not be read.
    pub(crate) problems: Vec<Problem>,
}

/// One trace with the answers of the analyses.
pub(crate) struct Side<'a> {
    /// The folder, as the user named it.
    pub(crate) trace: String,
    /// What the passes found.
    pub(crate) facts: &'a Facts<'a>,
}

/// The passes that a comparison of these analyses needs; `sums`: one of the traces may have nothing else.
pub(crate) fn needs(analyses: &[&'static dyn Analysis], sums: bool) -> Vec<Need> {
    let needs = analyses.iter().flat_map(|analysis| analysis.needs()).chain(findings::NEEDS).copied();
    needs.chain(sums.then_some(Need::Rollups)).collect()
}

impl Diff {
    /// Compares two traces: those analyses, and the steps and kernels where `own` names them.
    pub(crate) fn of(before: &Side<'_>, after: &Side<'_>, analyses: &[&'static dyn Analysis], own: &[&str]) -> Diff {
        let subjects = [before, after].map(|side| findings::subjects(side.facts));
        let main = [0, 1].map(|i| main_subject([before, after][i].facts, &subjects[i]));
        let per_step = main.iter().all(|subject| subject.is_some_and(|s| s.steps.is_some()));
        let mut problems = before.facts.trace.problems();
        problems.extend(after.facts.trace.problems());
        let about = [0, 1].map(|i| About::of([before, after][i], main[i]));
        if let Some((parts, by_sums)) = summed::parts([before, after], analyses, own) {
            let [before, after] = about;
            let by_sums = Some(by_sums);
            return Diff { before, after, per_step: false, few: true, parts, unjudged: Vec::new(), by_sums, problems };
        }
        let mut parts = Vec::new();
        let samples = match main {
            [Some(old), Some(new)] => {
                let old = Samples::of(before.facts, old.process_id, per_step);
                Some((old, Samples::of(after.facts, new.process_id, per_step)))
            }
            _ => None,
        };
        if let Some((old, new)) = &samples {
            parts.extend(own.contains(&"steps").then(|| quantities::steps(old, new)));
            parts.extend(own.contains(&"kernels").then(|| by_kernel(old, new)).into_iter().flatten());
        }
        let mut unjudged = Vec::new();
        let renamed =
            samples.as_ref().map(|(old, new)| kernels::renamed_names(&old.kernels, &new.kernels)).unwrap_or_default();
        let names = [before, after].map(|side| processes::names(side.facts));
        for analysis in analyses.iter().filter(|of| [before, after].iter().any(|side| of.answers(side.facts))) {
            // What is left of rows is not compared with all of them.
            let left = [before, after].iter().any(|side| lacks_rows(*analysis, side.facts));
            let sums = left.then(|| [before, after].map(|side| answer_by_sums(*analysis, side.facts)));
            let mut sections: [Section; 2] = match sums {
                Some([Some(old), Some(new)]) => [old, new],
                _ => [before, after].map(|side| answer(*analysis, side.facts)),
            };
            sections.iter_mut().zip(&names).for_each(|(section, names)| processes::rename(section, names));
            kernels::rename(&mut sections[0], &renamed);
            let titled @ (name, _) = (analysis.name(), analysis.title());
            let of_run = tables::parts(*analysis, &sections);
            let differs = !of_run.is_empty();
            let samples = samples.as_ref();
            parts.extend(samples.and_then(|(old, new)| quantities::of_analysis(titled, differs, old, new)));
            unjudged.extend((differs && !quantities::tell_of(name)).then_some(name));
            parts.extend(of_run);
        }
        let samples = samples.filter(|_| per_step).map_or(0, |(old, new)| old.count.min(new.count));
        incomplete::take_back(&mut parts, [before, after].map(|side| side.facts), per_step);
        let [before, after] = about;
        Diff { before, after, per_step, few: samples < FEWEST, parts, unjudged, by_sums: None, problems }
    }

    /// Differences beyond the spread. A quantity of a step that stands with several analyses is one.
    pub(crate) fn beyond(&self) -> usize {
        let beyond = |part: &&Part| part.rows.iter().filter(|row| row.beyond == Some(true)).count();
        let (by_kernel, of_step): (Vec<&Part>, Vec<&Part>) =
            self.parts.iter().partition(|part| [KERNEL_LAUNCHES, KERNEL_TIMES].contains(&part.name.as_str()));
        let rows = of_step.iter().flat_map(|part| &part.rows).filter(|row| row.beyond == Some(true));
        let quantities: BTreeSet<&str> = rows.map(|row| row.what.as_str()).collect();
        by_kernel.iter().map(beyond).sum::<usize>() + quantities.len()
    }

    /// What is not the same around the two: versions, commands, devices, each in at most so many characters.
    pub(crate) fn apart(&self, width: usize) -> Vec<String> {
        let (a, b) = (&self.before, &self.after);
        let pairs = [
            ("version of gputrace", a.tool_version.clone(), b.tool_version.clone()),
            ("command", a.command.clone(), b.command.clone()),
            ("devices", a.devices.join(", "), b.devices.join(", ")),
            ("launches left out for --budget", number(a.launches_shed as f64), number(b.launches_shed as f64)),
            ("rows removed for", a.removed.clone(), b.removed.clone()),
            ("what times the steps", a.timed_by.to_owned(), b.timed_by.to_owned()),
        ];
        // Without steps nothing times them.
        let pairs =
            pairs.into_iter().filter(|(what, a, b)| *what != "what times the steps" || !(a.is_empty() || b.is_empty()));
        let shown = |text: &str| if text.is_empty() { "not known".to_owned() } else { shortened(text, width) };
        let apart = pairs.filter(|(_, a, b)| a != b);
        apart.map(|(what, a, b)| format!("{what} ({} / {})", shown(&a), shown(&b))).collect()
    }
}

impl About {
    fn of(side: &Side<'_>, main: Option<&findings::Subject<'_>>) -> About {
        let trace = side.facts.trace;
        let manifest = trace.manifests().min_by_key(|manifest| manifest.started_ns);
        let mut devices: Vec<String> = trace.manifests().flat_map(|m| &m.devices).map(|d| d.name.clone()).collect();
        devices.sort_unstable();
        devices.dedup();
        let words = manifest.map_or(&[][..], |manifest| &manifest.command);
        About {
            trace: side.trace.clone(),
            command: words.iter().map(|word| gputrace_collectors::quote(word)).collect::<Vec<_>>().join(" "),
            tool_version: manifest.map(|manifest| manifest.tool_version.clone()).unwrap_or_default(),
            devices,
            process: main.map(|subject| side.facts.label(subject.process_id)),
            steps: main.and_then(|subject| subject.steps).map(|steps| steps.count),
            steps_unknown: main.is_some_and(|subject| subject.without_steps().is_some() && subject.steps.is_none()),
            removed: incomplete::removed_of(side.facts),
            launches_shed: Shed::of(side.facts.processes()).map_or(0, |shed| shed.launches),
            timed_by: main.and_then(|subject| subject.steps).map_or("", |steps| steps.whose()),
        }
    }
}

/// Names of the parts by kernel, and what the second one is of without times of a GPU.
const KERNEL_LAUNCHES: &str = "kernels.launches";
const KERNEL_TIMES: &str = "kernels.time_ns";

/// Launches and times by kernel; what did not change is left out.
fn by_kernel(before: &Samples, after: &Samples) -> Vec<Part> {
    let gpu = before.gpu && after.gpu;
    let pairs = kernels::pairs(&before.kernels, &after.kernels);
    let per = if before.per_step { "of a step" } else { "of the run" };
    let time = if gpu { "time on the GPU" } else { LAUNCH_TIME };
    let time_of = |kernel: &Kernel| if gpu { kernel.gpu_ns.clone() } else { kernel.launch_ns.clone() };
    let named = before.names_kernels() && after.names_kernels();
    // What is the same in both is no difference.
    let unseen = (before.rest != after.rest).then(|| {
        let [old, new] = [&before.rest, &after.rest].map(|rest| number(rest.launches() as f64));
        format!("not compared: launches of kernels beyond the first {MOST_KERNELS}, {old} before and {new} after")
    });
    let part = |name: &str, title: String, unit: Unit, of: &dyn Fn(&Kernel) -> Vec<f64>| {
        let none = |samples: &Samples| vec![0.0; samples.count];
        let row = |pair: &Pair<'_>| {
            let (old, new) = (pair.before.map(of), pair.after.map(of));
            let (old_samples, new_samples) =
                (old.clone().unwrap_or_else(|| none(before)), new.clone().unwrap_or_else(|| none(after)));
            let compared = compare(&old_samples, &new_samples, pairs.len());
            let names = (pair.before.map(|kernel| &kernel.name), pair.after.map(|kernel| &kernel.name));
            let note = match names {
                (Some(old), Some(new)) if old != new => Some(format!("matched by pattern; before: {old}")),
                (Some(_), None) => Some("only before".to_owned()),
                (None, Some(_)) => Some("only after".to_owned()),
                _ => None,
            };
            let change = Change {
                what: names.1.or(names.0).cloned().unwrap_or_default(),
                unit,
                before: old.map(|_| compared.values.0),
                after: new.map(|_| compared.values.1),
                mean: compared.mean,
                beyond: compared.beyond.filter(|_| before.per_step),
                unmeasured: false,
                note,
            };
            (change.by() != 0.0 || change.note.is_some()).then_some(change)
        };
        let mut rows: Vec<Change> = pairs.iter().filter(|_| named).filter_map(row).collect();
        tables::sort(&mut rows);
        let unnamed = (!named).then(|| "not compared: the launches of one trace do not tell their kernels".to_owned());
        Part { name: name.to_owned(), title, rows, left_out: 0, note: unnamed.or_else(|| unseen.clone()) }
    };
    vec![
        part(KERNEL_LAUNCHES, format!("Kernels: launches {per}"), Unit::Count, &|kernel| kernel.count.clone()),
        part(KERNEL_TIMES, format!("Kernels: {time} {per}"), Unit::Ns, &time_of),
    ]
}

pub(crate) use render::{json, markdown, text};

#[cfg(test)]
mod tests;
