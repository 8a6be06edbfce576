//! What a page is told of the numbers of its timeline: tracks, lines, kinds with their texts, and what is not as it was.

use serde_json::{Value, json};

use super::super::timeline::{Done, Track};
use super::bars::Bar;
use super::columns::{STEPS, most, of};
use super::values::Line;
use super::{Gathered, TRACKS};
use crate::render::{counted, number, time};

/// What the numbers are.
pub(super) fn head(gathered: &Gathered, order: &[usize], done: &Done, unit_ns: i64) -> Value {
    let mut ids: Vec<i64> = order.iter().map(|at| gathered.tracks[*at].0.process()).collect();
    ids.extend(gathered.values.lines.iter().filter_map(|line| line.process));
    ids.sort_unstable();
    ids.dedup();
    ids.sort_by_cached_key(|id| of(gathered, *id));
    let place = |id: i64| ids.iter().position(|of| *of == id);
    let track = |at: &usize| {
        let (track, domain) = &gathered.tracks[*at];
        let what = match track {
            Track::Thread(..) => "thread",
            Track::Ranges(..) | Track::Spans(_) => "ranges",
            Track::Waits(..) => "waits",
            Track::Stream(..) => "stream",
            Track::Recording(_) => "recording",
        };
        let bars = &gathered.bars.tracks[*at];
        json!({
            "process": place(track.process()), "name": gathered.places.track(*track, domain.as_deref()), "what": what,
            "bars": bars.len(), "runs": bars.iter().any(Bar::is_run),
        })
    };
    let line = |line: &Line| {
        json!({
            "process": line.process.and_then(place), "name": line.name, "unit": line.unit, "points": line.points.len(),
            "most": most(line),
        })
    };
    let process =
        |id: &i64| json!({ "pid": gathered.shown.get(id).map(|of| of.pid), "name": gathered.places.process(*id).1 });
    json!({
        "base_ns": gathered.base_ns.to_string(),
        "unit_ns": unit_ns,
        "steps": STEPS,
        "texts": gathered.kinds.list,
        "kinds": gathered.kinds.all,
        "processes": ids.iter().map(process).collect::<Vec<_>>(),
        "tracks": order.iter().map(track).collect::<Vec<_>>(),
        "lines": gathered.values.lines.iter().map(line).collect::<Vec<_>>(),
        "delays": gathered.delays.json(gathered.base_ns),
        "notes": notes(gathered, done, unit_ns),
    })
}

/// What is not as it was.
fn notes(gathered: &Gathered, done: &Done, unit_ns: i64) -> Vec<String> {
    let mut notes = Vec::new();
    if unit_ns > 1 {
        notes.push(format!(
            "Times in the timeline are rounded to {}; those in the tables are not.",
            time(unit_ns as f64)
        ));
    }
    if gathered.bars.cell_ns > 0 {
        notes.push(format!(
            "{} events are more than a page can hold: neighbours shorter than {} are shown as runs (hatched), with how many they \
             are and how long they took. report --from and --to show a part in full.",
            number(done.written as f64),
            time(gathered.bars.cell_ns as f64)
        ));
    }
    let others = gathered.others.len();
    if others > 0 {
        let those = counted(others as f64, "process is", "processes are");
        notes.push(format!(
            "{those} not in the timeline, which has the busiest ones; report --rank and --pid show others."
        ));
    }
    if gathered.hosts > 1 {
        notes
            .push("Each host's times are by its own clock; the report's ranks say how far these are apart.".to_owned());
    }
    if gathered.more_tracks {
        notes.push(format!("There are more than {TRACKS} tracks; the others are left out."));
    }
    if gathered.values.full {
        notes.push("There are more values over time than a page can hold; the others are left out.".to_owned());
    }
    if gathered.kinds.full {
        notes.push("There are more names than a page can hold; some bars have none.".to_owned());
    }
    if done.open_ranges > 0 {
        notes.push(format!("{} ranges have no end and are left out.", number(done.open_ranges as f64)));
    }
    notes
}
