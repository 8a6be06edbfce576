//! critical-path: which work a step's length consists of, and what would be gained without it.

use gputrace_collectors::schema::TableId;

use super::passes::critical::{CLASSES, Class, Critical, PIECES, Sums, Without};
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, gpu, gpu_clock, unmatched};
use crate::trace::NO_NAME;

/// The analysis.
pub(crate) struct CriticalPath;

/// Rows of a process in the table of what is on the path.
const NAMES: usize = 20;

/// Why there is none of windows.
const WINDOWS: &str = "The run is replayed from one end to the other, and between windows it is not known what the GPU did: \
                       --gpu-time full records a run of which there is a critical path.";
/// Why ranges have no critical path.
const RANGES: &str =
    "Ranges are not replayed: what lies between them is not theirs. See the whole run, or steps of it (--steps).";

impl Analysis for CriticalPath {
    fn name(&self) -> &'static str {
        "critical-path"
    }

    fn title(&self) -> &'static str {
        "Critical path"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "The run is replayed: a call of the host begins when the one before it has ended and the host has done what it \
                did in between; an operation of a GPU begins when its call has reached it and the operation before it on its stream \
                has ended, or the one of another stream that ended just before it began (an event); a wait, copy, allocation or free \
                ends when the operation has ended that it waited for. The critical path of a step is the way back from its end, \
                each time to what ended last: its pieces sum to the step. The same is replayed without some of the work, everything else \
                coming as early as it can: gain is by how much steps would be shorter then. Slack is the time in such work that \
                would gain nothing, because something else takes as long; the default stream's order has the time in which work waited by it. Gains of several kinds do not add up; all of \
                them together are replayed as well, and the joint gain of findings is made of that. Per usual step; of the whole run \
                where there are no steps. Of a run of more than two million calls that has steps so many are replayed: stretches \
                of neighbouring steps, spread evenly over the run.",
            unit: "ns in JSON; in text the column's head names the unit.",
            limits: "Operations keep their lengths: what ran at once does not get faster alone. A launch takes 5 us to an idle GPU, \
                and the next queued operation no time, where the trace does not show more. Threads of a process are one line of \
                time, on which the last call counts. Other ranks are as late as they were: NCCL's kernels keep the time in which \
                they wait for them; a finding's gain is that of the rank that gains least, replayed without waiting for others. Whether a launch waits for room in a full queue is seen by its length (20 us), by 500 operations \
                that have not begun, and by one that ended just before it did. Steps of more than a \
                million calls and operations have gains, and no path.",
            source: "critical path method; HTA's critical path analysis has the same edges but for events, and one step at a time.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Critical, Need::GpuClock, Need::Metal]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::cost("step_ns", Ns, "usual step of the busiest process, from path's end to path's end"),
            Metric::about("host_percent", Percent, "its path on the host"),
            Metric::about("gpu_percent", Percent, "its path on the GPU"),
            Metric::cost(
                "all_gain_ns",
                Ns,
                "what a step would gain without host's time, waits, copies, NCCL, the default stream's order",
            )
            .in_steps()
            .sums(&[TableId::DeviceCopies, TableId::Kernels]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.critical.is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        gpu::unread_note(&mut section, facts);
        gpu_clock::note(&mut section, facts);
        unmatched::note_of_rest(&mut section, facts);
        super::uncalled::note(&mut section, facts);
        let Some(critical) = &facts.critical else {
            if facts.filter.projects() {
                section.note(RANGES);
            } else if facts.filter.observed.is_some() {
                section.note(WINDOWS);
            } else {
                gpu::no_times_note(&mut section, facts);
            }
            return section;
        };
        let processes = processes(facts, critical);
        let Some((_, sums)) = processes.first() else {
            section.note("No process of this trace has both calls and operations of a GPU.");
            return section;
        };
        let on_host = PIECES.iter().filter(|(piece, ..)| piece.is_host());
        let host: i64 = on_host.map(|(piece, ..)| sums.path_ns[*piece as usize]).sum();
        let all: i64 = sums.path_ns.iter().sum();
        section.fact("step_ns", "usual step, or the run", Unit::Ns, sums.unit_ns());
        section.fact("host_percent", "path on the host", Unit::Percent, percent(host as f64, all as f64));
        section.fact("gpu_percent", "path on the GPU", Unit::Percent, percent((all - host) as f64, all as f64));
        let together = Without::these(&CLASSES.map(|(class, ..)| class));
        section.fact("all_gain_ns", "gain without all that could go", Unit::Ns, sums.gain_ns(together));
        for (process_id, sums) in &processes {
            if let Some((stretches, steps)) = sums.replayed {
                section.note(format!(
                    "{}: a long run, of which {steps} steps are replayed in {stretches} stretches spread over it; {} usual ones count.",
                    facts.label(*process_id),
                    sums.count
                ));
            }
        }
        for (process_id, sums) in processes.iter().filter(|(_, sums)| sums.lost > 0) {
            section.note(format!(
                "{}: {} of {} steps have too many calls and operations for a path.",
                facts.label(*process_id),
                sums.lost,
                sums.count
            ));
        }
        section.table(by_piece(facts, &processes));
        section.table(by_class(facts, &processes));
        section.table(by_name(facts, &processes));
        section
    }
}

/// Processes with a path, the one with most calls first.
fn processes<'a>(facts: &Facts<'_>, critical: &'a Critical) -> Vec<(i64, &'a Sums)> {
    facts.busy().into_iter().filter_map(|(process_id, _)| Some((process_id, critical.of(process_id)?))).collect()
}

fn by_piece(facts: &Facts<'_>, processes: &[(i64, &Sums)]) -> Table {
    const COLUMNS: [Column; 5] = [
        column("process", "Process", Unit::Text),
        column("piece", "Piece", Unit::Text),
        column("what", "What", Unit::Text),
        column("path_ns", "Path", Unit::Ns),
        column("path_percent", "Of path", Unit::Percent),
    ];
    let mut rows = Vec::new();
    for (process_id, sums) in processes {
        let all: i64 = sums.path_ns.iter().sum();
        let mut pieces: Vec<_> = PIECES.iter().map(|of| (of, sums.path_ns[of.0 as usize])).collect();
        pieces.retain(|(_, ns)| *ns > 0);
        pieces.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        rows.extend(pieces.into_iter().map(|((_, key, what), ns)| {
            vec![
                facts.label(*process_id).into(),
                (*key).into(),
                (*what).into(),
                sums.each(ns as f64).into(),
                percent(ns as f64, all as f64),
            ]
        }));
    }
    Table::new("by_piece", "What the path consists of, per step", &COLUMNS, rows)
}

fn by_class(facts: &Facts<'_>, processes: &[(i64, &Sums)]) -> Table {
    const COLUMNS: [Column; 7] = [
        column("process", "Process", Unit::Text),
        column("work", "Work", Unit::Text),
        column("what", "What", Unit::Text),
        column("time_ns", "Time", Unit::Ns),
        column("gain_ns", "Gain without", Unit::Ns),
        column("gain_percent", "Of step", Unit::Percent),
        column("slack_ns", "Slack", Unit::Ns),
    ];
    let mut rows = Vec::new();
    for (process_id, sums) in processes {
        let gain = |class: &Class| sums.gain_ns(Without::these(&[*class]));
        let row = |key: &'static str, what: &'static str, time_ns: Option<f64>, gain_ns: f64| {
            vec![
                facts.label(*process_id).into(),
                key.into(),
                what.into(),
                time_ns.into(),
                gain_ns.into(),
                percent(gain_ns, sums.unit_ns()),
                time_ns.map(|ns| (ns - gain_ns).max(0.0)).into(),
            ]
        };
        let mut classes: Vec<_> = CLASSES.iter().filter(|(class, ..)| sums.spent_ns[*class as usize] > 0).collect();
        classes.sort_by(|(a, ..), (b, ..)| gain(b).total_cmp(&gain(a)));
        for (class, key, what) in &classes {
            let spent = sums.each(sums.spent_ns[*class as usize] as f64);
            rows.push(row(key, what, Some(spent), gain(class)));
        }
        if classes.len() > 1 {
            let together = Without::these(&classes.iter().map(|(class, ..)| *class).collect::<Vec<_>>());
            rows.push(row("all", "all of these together", None, sums.gain_ns(together)));
        }
    }
    Table::new("by_work", "What a step would gain without it", &COLUMNS, rows)
}

fn by_name(facts: &Facts<'_>, processes: &[(i64, &Sums)]) -> Table {
    const COLUMNS: [Column; 6] = [
        column("process", "Process", Unit::Text),
        column("piece", "Piece", Unit::Text),
        column("path_ns", "Path", Unit::Ns),
        column("path_percent", "Of path", Unit::Percent),
        column("times", "Times", Unit::Count),
        column("name", "Kernel or call", Unit::Name),
    ];
    let mut rows = Vec::new();
    for (process_id, sums) in processes {
        let all: i64 = sums.path_ns.iter().sum();
        let mut names: Vec<_> =
            sums.names.iter().filter_map(|((piece, name), sum)| Some((((*piece)?, *name), sum))).collect();
        names.sort_by_key(|(key, (_, ns))| (std::cmp::Reverse(*ns), key.1));
        names.truncate(NAMES);
        let mut row = |piece: &'static str, name: Option<String>, times: u64, ns: i64| {
            rows.push(vec![
                facts.label(*process_id).into(),
                piece.into(),
                sums.each(ns as f64).into(),
                percent(ns as f64, all as f64),
                sums.each(times as f64).into(),
                name.into(),
            ]);
        };
        for ((piece, name), (times, ns)) in &names {
            let known = (*name != NO_NAME).then(|| facts.names.full(*name));
            row(PIECES[*piece as usize].1, known, *times, *ns);
        }
        // The rows are the whole path, as those by piece are.
        let every = sums.names.iter().fold((0, 0), |sum, (_, (times, ns))| (sum.0 + times, sum.1 + ns));
        let shown = names.iter().fold((0, 0), |sum, (_, (times, ns))| (sum.0 + times, sum.1 + ns));
        if every.1 > shown.1 {
            row("others", None, every.0 - shown.0, every.1 - shown.1);
        }
    }
    Table::new(
        "by_name",
        "What is on the path: kernels, calls, and the calls before which the host was elsewhere",
        &COLUMNS,
        rows,
    )
}

#[cfg(test)]
mod tests {
    use super::super::Value;
    use super::*;
    use crate::trace::testing::TestTrace;

    #[test]
    fn the_rows_by_name_are_the_whole_path_as_those_by_piece_are() {
        let mut trace = TestTrace::new();
        let mut thread = trace.thread(1, 11);
        for _ in 0..10 {
            let began = thread.range_begin();
            for kernel in 0..2 * NAMES as i64 {
                thread.host(1_000);
                let begin = thread.now + 6_000;
                let end = thread.launch_running(&format!("kernel {kernel}"), 5_000, 7, (begin, 1_000 + kernel));
                thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
            }
            thread.range_end(None, "step", began, true);
        }
        let section = trace.section(&CriticalPath);
        let path = |key: &str| -> f64 {
            let table = section.tables.iter().find(|table| table.key == key).unwrap();
            let at = table.columns.iter().position(|column| column.key == "path_ns").unwrap();
            table.rows.iter().map(|row| if let Value::Num(ns) = row[at] { ns } else { panic!("{row:?}") }).sum()
        };
        assert!((path("by_name") - path("by_piece")).abs() < 0.5, "{} {}", path("by_name"), path("by_piece"));
        let last = section.tables.iter().find(|table| table.key == "by_name").map_or(0, |table| table.rows.len() - 1);
        assert_eq!((last, section.cell("by_name", last, "piece")), (NAMES, &Value::from("others")));
    }
}
