//! critical-path: which work a step's length consists of, and what would be gained without it.

use super::passes::critical::{CLASSES, Class, Critical, PIECES, Sums, Without};
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, gpu};
use crate::trace::NO_NAME;

/// The analysis.
pub(crate) struct CriticalPath;

/// Rows of a process in the table of what is on the path.
const NAMES: usize = 20;

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
                would gain nothing, because something else takes as long. Gains of several kinds do not add up; all of \
                them together are replayed as well, and the joint gain of findings is made of that. Per usual step; of the whole run \
                where there are no steps.",
            unit: "ns in JSON; in text the column's head names the unit.",
            limits: "Operations keep their lengths: what ran at once does not get faster alone. A launch takes 5 us to an idle GPU, \
                and the next queued operation no time, where the trace does not show more. Threads of a process are one line of \
                time, on which the last call counts. Other ranks are as late as they were: NCCL's kernels keep the time in which \
                they wait for them. A full queue, which makes launches wait, is the host's own time here. Steps of more than a \
                million calls and operations have gains, and no path.",
            source: "critical path method; HTA's critical path analysis has the same edges but for events, and one step at a time.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Critical]
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
                "what a step would gain without the host's time, waits, copies and communication",
            ),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.critical.is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let Some(critical) = &facts.critical else {
            section.note(gpu::NO_TIMES);
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
        let mut names: Vec<_> = sums.names.iter().collect();
        names.sort_by_key(|(key, (_, ns))| (std::cmp::Reverse(*ns), key.1));
        rows.extend(names.into_iter().take(NAMES).map(|((piece, name), (times, ns))| {
            let known = (*name != NO_NAME).then(|| facts.names.full(*name));
            vec![
                facts.label(*process_id).into(),
                piece.map_or("others", |piece| PIECES[piece as usize].1).into(),
                sums.each(*ns as f64).into(),
                percent(*ns as f64, all as f64),
                sums.each(*times as f64).into(),
                known.into(),
            ]
        }));
    }
    Table::new(
        "by_name",
        "What is on the path: kernels, calls, and the calls before which the host was elsewhere",
        &COLUMNS,
        rows,
    )
}
