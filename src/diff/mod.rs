//! `gputrace diff`: two traces, number by number, and which differences are beyond the spread of the runs' own steps.
//!
//! Of the main process (of several ranks the slowest) the steps are compared as samples, whole and by kernel; of the whole
//! traces every metric, and the tables by call and by call site.

mod kernels;
mod render;
mod samples;
mod spread;
mod tables;

use crate::analysis::summary::main_subject;
use crate::analysis::{ALL, Analysis, Facts, Need, Section, Shed, Unit};
use crate::findings;
use crate::render::number;
use crate::trace::{Problem, shortened};
use kernels::Pair;
use samples::{Kernel, MOST_KERNELS, QUANTITIES, Quantity, Samples};
use spread::compare;

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
        let before = self.before.filter(|before| *before != 0.0)?;
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
}

/// The comparison.
pub(crate) struct Diff {
    /// The first trace.
    pub(crate) before: About,
    /// The second.
    pub(crate) after: About,
    /// Whether steps were compared.
    pub(crate) per_step: bool,
    /// What is compared.
    pub(crate) parts: Vec<Part>,
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

/// The passes that a comparison of these analyses needs.
pub(crate) fn needs(analyses: &[&'static dyn Analysis]) -> Vec<Need> {
    analyses.iter().flat_map(|analysis| analysis.needs()).chain(findings::NEEDS).copied().collect()
}

impl Diff {
    /// Compares two traces: those analyses, and the steps and kernels where `own` names them.
    pub(crate) fn of(before: &Side<'_>, after: &Side<'_>, analyses: &[&'static dyn Analysis], own: &[&str]) -> Diff {
        let subjects = [before, after].map(|side| findings::subjects(side.facts));
        let main = [0, 1].map(|i| main_subject([before, after][i].facts, &subjects[i]));
        let per_step = main.iter().all(|subject| subject.is_some_and(|s| s.steps.is_some()));
        let mut parts = Vec::new();
        if let ([Some(old), Some(new)], false) = (main, own.is_empty()) {
            let old = Samples::of(before.facts, old.process_id, per_step);
            let new = Samples::of(after.facts, new.process_id, per_step);
            parts.extend(own.contains(&"steps").then(|| steps(&old, &new)));
            parts.extend(own.contains(&"kernels").then(|| by_kernel(&old, &new)).into_iter().flatten());
        }
        for analysis in analyses {
            let sections: [Section; 2] = [before, after].map(|side| analysis.section(side.facts));
            parts.extend(tables::parts(*analysis, &sections));
        }
        let about = |side: &Side<'_>, main: Option<&findings::Subject<'_>>| About::of(side, main);
        if [before, after].iter().any(|side| Shed::of(side.facts.processes()).is_some()) {
            without_launches(&mut parts);
        }
        let mut problems = before.facts.trace.problems();
        problems.extend(after.facts.trace.problems());
        Diff { before: about(before, main[0]), after: about(after, main[1]), per_step, parts, problems }
    }

    /// Differences beyond the spread.
    pub(crate) fn beyond(&self) -> usize {
        self.parts.iter().flat_map(|part| &part.rows).filter(|row| row.beyond == Some(true)).count()
    }

    /// What is not the same around the two: versions, commands, devices, each in at most so many characters.
    pub(crate) fn apart(&self, width: usize) -> Vec<String> {
        let (a, b) = (&self.before, &self.after);
        let pairs = [
            ("version of gputrace", a.tool_version.clone(), b.tool_version.clone()),
            ("command", a.command.clone(), b.command.clone()),
            ("devices", a.devices.join(", "), b.devices.join(", ")),
            ("launches left out for --budget", number(a.launches_shed as f64), number(b.launches_shed as f64)),
            ("what times the steps", a.timed_by.to_owned(), b.timed_by.to_owned()),
        ];
        let shown = |text: &str| if text.is_empty() { "not known".to_owned() } else { shortened(text, width) };
        let apart = pairs.into_iter().filter(|(_, a, b)| a != b);
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
            launches_shed: Shed::of(side.facts.processes()).map_or(0, |shed| shed.launches),
            timed_by: main.and_then(|subject| subject.steps).map_or("", |steps| steps.whose()),
        }
    }
}

/// Takes back what is compared of launches, where one trace has not all of them.
fn without_launches(parts: &mut [Part]) {
    const WHY: &str = "launches were left out to keep to --budget";
    for part in parts {
        let analysis = ALL.iter().find(|analysis| analysis.name() == part.name);
        let is_of_launches = |row: &Change| match part.name.as_str() {
            // The analysis of that name counts none.
            "steps" => [Quantity::Launches, Quantity::LaunchNs].map(|of| about(of).0).contains(&row.what.as_str()),
            KERNEL_LAUNCHES => true,
            KERNEL_TIMES => part.title.contains(LAUNCH_TIME),
            name if name.starts_with("launch-overhead.") => true,
            _ => analysis
                .is_some_and(|of| of.metrics().iter().any(|metric| metric.of_launches && metric.key == row.what)),
        };
        let touched: Vec<bool> = part.rows.iter().map(is_of_launches).collect();
        for (row, _) in part.rows.iter_mut().zip(touched).filter(|(_, touched)| *touched) {
            (row.unmeasured, row.beyond, row.note) = (true, None, Some(format!("not compared: {WHY}")));
        }
    }
}

/// The quantities of a step, or of the run.
fn steps(before: &Samples, after: &Samples) -> Part {
    let rows = QUANTITIES.into_iter().filter_map(|quantity| {
        let (what, unit) = about(quantity);
        let compared = compare(before.get(quantity), after.get(quantity), QUANTITIES.len());
        let (old, new) = compared.values;
        let seen = old != 0.0 || new != 0.0;
        let (mean, beyond) = (compared.mean, compared.beyond.filter(|_| before.per_step));
        let what = what.to_owned();
        let on_gpu = matches!(quantity, Quantity::Kernels | Quantity::KernelNs);
        let known = |samples: &Samples, value: f64| (samples.gpu || !on_gpu).then_some(value);
        let (old, new) = (known(before, old), known(after, new));
        let change = Change { what, unit, before: old, after: new, mean, beyond, unmeasured: false, note: None };
        let told = old.is_some() && new.is_some();
        seen.then(|| if told { change } else { Change { beyond: None, ..change }.unmeasured("before", "after") })
    });
    let title = if before.per_step {
        "Usual step (medians; means where it says so, of equal medians)"
    } else {
        "Run (no steps in one of the traces)"
    };
    Part { name: "steps".to_owned(), title: title.to_owned(), rows: rows.collect(), ..Part::default() }
}

fn about(quantity: Quantity) -> (&'static str, Unit) {
    match quantity {
        Quantity::Duration => ("duration", Unit::Ns),
        Quantity::Launches => ("launches", Unit::Count),
        Quantity::LaunchNs => (LAUNCH_TIME, Unit::Ns),
        Quantity::Waits => ("waits", Unit::Count),
        Quantity::WaitNs => ("time in waits", Unit::Ns),
        Quantity::Copies => ("copies and sets", Unit::Count),
        Quantity::CopyNs => ("time in copies and sets", Unit::Ns),
        Quantity::MemoryCalls => ("allocation and free calls", Unit::Count),
        Quantity::MemoryNs => ("time in allocation and free", Unit::Ns),
        Quantity::Kernels => ("kernels that ran", Unit::Count),
        Quantity::KernelNs => ("time of kernels on the GPU", Unit::Ns),
    }
}

/// Names of the parts by kernel, and what the second one is of without times of a GPU.
const KERNEL_LAUNCHES: &str = "kernels.launches";
const KERNEL_TIMES: &str = "kernels.time_ns";
const LAUNCH_TIME: &str = "time in launch calls";

/// Launches and times by kernel; what did not change is left out.
fn by_kernel(before: &Samples, after: &Samples) -> Vec<Part> {
    let gpu = before.gpu && after.gpu;
    let pairs = kernels::pairs(&before.kernels, &after.kernels);
    let per = if before.per_step { "of a step" } else { "of the run" };
    let time = if gpu { "time on the GPU" } else { LAUNCH_TIME };
    let time_of = |kernel: &Kernel| if gpu { kernel.gpu_ns.clone() } else { kernel.launch_ns.clone() };
    let left_out = before.left_out + after.left_out;
    let unseen =
        (left_out > 0).then(|| format!("{left_out} more launches are of kernels beyond the first {MOST_KERNELS}"));
    let part = |name: &str, title: String, unit: Unit, of: &dyn Fn(&Kernel) -> Vec<f64>| {
        let none = |samples: &Samples| vec![0.0; samples.get(Quantity::Duration).len()];
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
        let mut rows: Vec<Change> = pairs.iter().filter_map(row).collect();
        tables::sort(&mut rows);
        Part { name: name.to_owned(), title, rows, left_out: 0, note: unseen.clone() }
    };
    vec![
        part(KERNEL_LAUNCHES, format!("Kernels: launches {per}"), Unit::Count, &|kernel| kernel.count.clone()),
        part(KERNEL_TIMES, format!("Kernels: {time} {per}"), Unit::Ns, &time_of),
    ]
}

pub(crate) use render::{json, markdown, text};

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::{HookBudget, ShedPart};

    use super::*;
    use crate::trace::testing::{START, TestTrace};
    use crate::trace::{Filter, Trace};

    /// A loop of 60 steps with noise; `waits` of them in a step, and a kernel of this name.
    fn made(seed: i64, waits: usize, kernel: &str) -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for step in 0..60 {
            let began = thread.range_begin();
            thread.host(100_000 + (step * 7919 + seed * 104_729) % 9_973);
            thread.launch("first", 3_000);
            thread.launch(kernel, 4_000 + (step * 31 + seed) % 500);
            thread.launch("last", 3_000);
            (0..waits).for_each(|_| thread.sync("cuStreamSynchronize", "stream", 20_000));
            thread.range_end(None, &format!("step {step}"), began, true);
        }
        trace
    }

    fn compared<T>(before: &TestTrace, after: &TestTrace, with: impl FnOnce(&Diff) -> T) -> T {
        let traces: [Trace; 2] = [before.open(), after.open()];
        let filter = Filter::default();
        let facts = [0, 1].map(|i| Facts::gather(&traces[i], &filter, &needs(ALL)));
        let [before, after] =
            [0, 1].map(|i| Side { trace: "abc".chars().nth(i).into_iter().collect(), facts: &facts[i] });
        with(&Diff::of(&before, &after, ALL, &OWN_PARTS))
    }

    fn row(diff: &Diff, part: &str, what: &str) -> Change {
        let part = diff.parts.iter().find(|p| p.name == part).unwrap_or_else(|| panic!("no {part}"));
        part.rows.iter().find(|row| row.what == what).unwrap_or_else(|| panic!("no {what} in {part:?}")).clone()
    }

    #[test]
    fn launches_are_not_compared_where_some_were_left_out() {
        let (one, mut other) = (made(1, 1, "gemm"), made(2, 2, "gemm"));
        let part = ShedPart { what: "launches".into(), sampled_out: 9, ..ShedPart::default() };
        let budget = HookBudget { shed: vec![part], ..HookBudget::default() };
        other.manifest.as_mut().expect("a manifest").processes[0].budget = Some(budget);
        compared(&one, &other, |diff| {
            let launches = row(diff, "steps", "launches");
            assert!(launches.unmeasured && launches.beyond.is_none() && launches.note.is_some(), "{launches:?}");
            assert_eq!(row(diff, "steps", "waits").beyond, Some(true));
            assert!(
                diff.apart(16).contains(&"launches left out for --budget (0 / 9)".to_owned()),
                "{:?}",
                diff.apart(16)
            );
            assert!(text(diff).contains("not known"), "{}", text(diff));
        });
    }

    #[test]
    fn a_trace_does_not_differ_from_itself_nor_from_its_like() {
        let (one, other) = (made(1, 1, "gemm"), made(2, 1, "gemm"));
        compared(&one, &one, |diff| {
            assert!(text(diff).ends_with("\nno difference beyond spread\n"), "{}", text(diff));
            assert!(diff.parts.iter().filter(|part| part.name != "steps").all(|part| part.rows.is_empty()));
        });
        compared(&one, &other, |diff| {
            assert!(text(diff).ends_with("\nno difference beyond spread\n"), "{}", text(diff))
        });
    }

    #[test]
    fn another_wait_in_each_step_is_beyond_the_spread() {
        compared(&made(1, 1, "gemm"), &made(2, 2, "gemm"), |diff| {
            let waits = row(diff, "steps", "waits");
            assert_eq!((waits.before, waits.after, waits.beyond), (Some(1.0), Some(2.0), Some(true)));
            assert_eq!(row(diff, "steps", "duration").beyond, Some(true));
            assert_eq!(row(diff, "steps", "launches").beyond, Some(false));
            assert_eq!(row(diff, "syncs", "waits").by(), 60.0);
            assert_eq!(row(diff, "syncs.by_call", "stream cuStreamSynchronize").by(), 60.0 * 20_000.0);
            let said = text(diff);
            assert!(said.ends_with("\n3 differences beyond spread\n"), "{said}");
            assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
            let read: serde_json::Value = serde_json::from_str(&json(diff)).unwrap();
            assert_eq!((&read["diff_version"], &read["beyond_spread"]), (&1.into(), &3.into()));
            assert!(markdown(diff).contains("| waits | 1 | 2 | +1 | +100.0 | yes |"), "{}", markdown(diff));
        });
    }

    #[test]
    fn a_number_of_a_step_says_where_it_is_the_mean() {
        let rare = |every: usize| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000_000);
            let mut thread = trace.thread(1, 11);
            for step in 0..60 {
                let began = thread.range_begin();
                thread.host(100_000);
                thread.launch("first", 3_000);
                if step % every == 0 {
                    thread.sync("cuStreamSynchronize", "stream", 1_000);
                }
                thread.range_end(None, "step", began, true);
            }
            trace
        };
        compared(&rare(4), &rare(3), |diff| {
            let waits = row(diff, "steps", "waits");
            assert_eq!((waits.before, waits.after, waits.mean), (Some(0.25), Some(1.0 / 3.0), true));
            assert!(!row(diff, "steps", "launches").mean);
            let said = text(diff);
            assert!(said.contains("  waits (mean) ") && said.contains("  launches  "), "{said}");
            let read: serde_json::Value = serde_json::from_str(&json(diff)).unwrap();
            let rows = read["parts"][0]["rows"].as_array().cloned().unwrap_or_default();
            assert!(rows.iter().any(|row| row["what"] == "waits" && row["mean"] == true), "{rows:?}");
        });
    }

    #[test]
    fn gpu_times_that_one_trace_lacks_are_no_difference() {
        let mut timed = made(1, 1, "gemm");
        let mut thread = timed.thread(1, 11);
        for step in 0..60 {
            thread.now = START + step * 100_000;
            let begin = thread.now + 5_000;
            thread.launch_running("timed", 3_000, 7, (begin, 50_000));
        }
        compared(&timed, &made(1, 1, "gemm"), |diff| {
            let kernels = row(diff, "steps", "time of kernels on the GPU");
            assert!(kernels.before.is_some_and(|ns| ns > 0.0));
            assert_eq!((kernels.after, kernels.by(), kernels.beyond), (None, 0.0, None));
            assert_eq!(kernels.note.as_deref(), Some("not measured in after"));
            let busy = row(diff, "gpu-utilisation", "busy_ns");
            assert_eq!((busy.after, busy.by(), busy.note.as_deref()), (None, 0.0, Some("not measured in after")));
        });
    }

    #[test]
    fn a_renamed_kernel_is_said_to_be_matched_by_pattern() {
        compared(&made(1, 1, "gemm"), &made(1, 1, "gemm_v2"), |diff| {
            let kernel = row(diff, "kernels.launches", "gemm_v2");
            assert_eq!((kernel.before, kernel.after, kernel.beyond), (Some(1.0), Some(1.0), Some(false)));
            assert_eq!(kernel.note.as_deref(), Some("matched by pattern; before: gemm"));
        });
    }

    #[test]
    fn what_is_not_the_same_around_the_two_is_said_at_the_top() {
        let (one, mut other) = (made(1, 1, "gemm"), made(1, 1, "gemm"));
        if let Some(manifest) = &mut other.manifest {
            manifest.tool_version = "9.9.9".into();
            manifest.command = vec!["python".into(), "other\u{1b}.py".into()];
        }
        compared(&one, &other, |diff| {
            let said = text(diff);
            let line = said.lines().nth(2).unwrap_or_default();
            assert!(line.starts_with("not the same: version of gputrace (0.0.0 / 9.9.9); command ("), "{line}");
            assert!(!said.contains('\u{1b}'));
        });
    }

    #[test]
    fn without_steps_the_runs_are_compared_and_no_spread_is_claimed() {
        let run = |launches: usize| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000);
            let mut thread = trace.thread(1, 11);
            (0..launches).for_each(|i| thread.launch(&format!("k{i}"), 2_000));
            trace
        };
        compared(&run(12), &run(15), |diff| {
            assert_eq!(row(diff, "steps", "launches").by(), 3.0);
            assert_eq!(diff.beyond(), 0);
            assert!(text(diff).contains("spread is not known"), "{}", text(diff));
        });
        compared(&TestTrace::new(), &TestTrace::new(), |diff| assert!(text(diff).ends_with("\nno difference\n")));
    }
}
