//! A comparison as text, JSON and Markdown.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table as Grid, presets};
use serde_json::{Value as Json, json};

use super::{About, BySums, Change, Diff, Part};
use crate::analysis::{Unit, Value};
use crate::render::{self, Layout, number, wrapped};
use crate::trace::{columns_of, shortened, shortened_apart};

/// `diff_version`; docs/report-json.md has the rule.
const VERSION: u32 = 1;
/// Rows of a part that text and Markdown show; of the quantities of a step all.
const ROWS: usize = 8;
/// Columns that the numbers of a row take; the rest is for what it is about, which goes on below where that is too little.
const NUMBERS: usize = 58;
/// What is left for it however narrow the terminal is.
const LEAST: usize = 22;
/// Lines that it takes at most, and characters of it where there are no lines.
const LINES: usize = 3;
const WHOLE: usize = 126;

/// For people, in so many columns.
pub(crate) fn text(diff: &Diff, width: usize) -> String {
    let what = width.saturating_sub(NUMBERS).max(LEAST);
    let mut out = head(diff, width).join("\n") + "\n";
    for part in shown(diff) {
        let mut grid = Grid::new();
        grid.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        grid.set_header(HEADS);
        for (row, name) in named(part, LINES * what) {
            let [name, numbers @ ..] = cells(row, name);
            grid.add_row(std::iter::once(wrapped(&name, what).join("\n  ")).chain(numbers));
        }
        for index in 0..HEADS.len() {
            if let Some(column) = grid.column_mut(index) {
                column.set_cell_alignment(if index == 0 { CellAlignment::Left } else { CellAlignment::Right });
                column.set_padding((if index == 0 { 0 } else { 1 }, 1));
            }
        }
        let _ = writeln!(out, "\n{}", shortened(&part.title, width));
        grid.lines().for_each(|line| out.push_str(&format!("  {}\n", line.trim_end())));
        for note in notes(part) {
            wrapped(&note, width.saturating_sub(4)).iter().for_each(|line| out.push_str(&format!("    {line}\n")));
        }
    }
    let last = unjudged(diff).into_iter().chain([last(diff)]);
    let last: String = last.flat_map(|text| wrapped(&text, width)).map(|line| line + "\n").collect();
    out + "\n" + &last + &problems(diff, "")
}

/// For an issue or a pull request.
pub(crate) fn markdown(diff: &Diff) -> String {
    let mut out = String::from("# gputrace diff\n\n");
    head(diff, Layout::PLAIN.width)
        .iter()
        .for_each(|line| out.push_str(&format!("- {}\n", render::escaped(line.trim()))));
    for part in shown(diff) {
        let _ = writeln!(
            out,
            "\n## {}\n\n| {} |\n| --- |{}",
            render::escaped(&part.title),
            HEADS.join(" | "),
            " ---: |".repeat(5)
        );
        for (row, name) in named(part, WHOLE) {
            let _ = writeln!(out, "| {} |", cells(row, name).map(|cell| render::escaped(&cell)).join(" | "));
        }
        notes(part).iter().for_each(|note| out.push_str(&format!("\n{}\n", render::escaped(note))));
    }
    let unjudged = unjudged(diff).map_or(String::new(), |text| format!("\n{}\n", render::escaped(&text)));
    out + &unjudged + "\n**" + &last(diff) + "**\n" + &problems(diff, "- ")
}

/// For programs.
pub(crate) fn json(diff: &Diff) -> String {
    let about = |about: &About| {
        json!({
            "trace": about.trace, "command": about.command, "tool_version": about.tool_version,
            "devices": about.devices, "process": about.process, "steps": about.steps,
        })
    };
    let row = |row: &Change| -> Json {
        json!({
            "what": row.what, "unit": render::unit_name(row.unit), "before": row.before, "after": row.after,
            "mean": row.mean, "change": (!row.unmeasured).then(|| row.by()), "change_percent": row.percent(), "beyond_spread": row.beyond, "note": row.note,
        })
    };
    let part = |part: &Part| {
        let rows: Vec<Json> = part.rows.iter().map(row).collect();
        json!({ "name": part.name, "title": part.title, "rows": rows, "rows_left_out": part.left_out, "note": part.note })
    };
    let problem = |p: &crate::trace::Problem| json!({ "path": p.path.to_string_lossy(), "text": p.text, "rows_lost": p.lost_rows() });
    let diff = json!({
        "diff_version": VERSION,
        "tool_version": env!("CARGO_PKG_VERSION"),
        "before": about(&diff.before),
        "after": about(&diff.after),
        "differs": diff.apart(usize::MAX),
        "per_step": diff.per_step,
        "beyond_spread": diff.beyond(),
        "not_judged": diff.unjudged,
        "by_sums": diff.by_sums.is_some(),
        "not_compared": diff.by_sums.as_ref().map_or(&[][..], |sums| &sums.not_compared),
        "parts": diff.parts.iter().map(part).collect::<Vec<_>>(),
        "problems": diff.problems.iter().map(problem).collect::<Vec<_>>(),
    });
    format!("{diff:#}\n")
}

const HEADS: [&str; 6] = ["", "before", "after", "change", "%", "beyond spread"];

fn head(diff: &Diff, width: usize) -> Vec<String> {
    let without = |name: &str| diff.by_sums.as_ref().is_some_and(|sums| [name, "either"].contains(&sums.without));
    let side = |name: &str, about: &About| {
        let none = match () {
            () if without(name) => "no single event kept",
            () if about.steps_unknown => "steps not known",
            () => "no steps",
        };
        let steps = about.steps.map_or(none.to_owned(), |steps| format!("{} steps", number(steps as f64)));
        let process = about.process.as_ref().map_or(String::new(), |process| format!("  {process}"));
        let trace = shortened(&about.trace, width / 4);
        let room =
            width.saturating_sub([name, trace.as_str(), &process, &steps].map(columns_of).iter().sum::<usize>() + 7);
        let command = shortened(&about.command.replace(char::is_control, " "), room.min(40));
        format!("{name:7} {trace}  {command}{process}  {steps}")
    };
    let mut lines = vec![side("before", &diff.before), side("after", &diff.after)];
    let apart = diff.apart(16);
    if !apart.is_empty() {
        lines.push(shortened(&format!("not the same: {}", apart.join("; ")).replace(char::is_control, " "), width));
    }
    if let Some(BySums { without, not_compared, .. }) = &diff.by_sums {
        let have = if *without == "either" { "both have" } else { &format!("{without} has") };
        let not = not_compared.join(", ");
        let not = if not.is_empty() { not } else { format!("; not compared: {not}") };
        let text = format!("compared are the sums of all events, which are all that {have} (--detail){not}");
        lines.extend(wrapped(&text, width));
    }
    lines
}

fn shown(diff: &Diff) -> impl Iterator<Item = &Part> {
    // What was left out must be said even where nothing else is.
    diff.parts.iter().filter(|part| !part.rows.is_empty() || part.note.is_some())
}

fn rows_shown(part: &Part) -> usize {
    if part.name == "steps" { part.rows.len() } else { part.rows.len().min(ROWS) }
}

/// The rows that are shown, each with what it is about in so many characters: those that differ look different.
fn named(part: &Part, room: usize) -> Vec<(&Change, String)> {
    let rows = &part.rows[..rows_shown(part)];
    let names: Vec<String> = rows.iter().map(|row| row.what.replace(char::is_control, " ")).collect();
    rows.iter().zip(shortened_apart(&names, room)).collect()
}

fn cells(row: &Change, name: String) -> [String; 6] {
    let value = |value: Option<f64>| value.map_or("-".to_owned(), |v| render::value(&Value::Num(v), row.unit));
    let by = row.by();
    let sign = if by < 0.0 { "-" } else { "+" };
    let change = match row.unit {
        // Of shares the difference is in points, not in percent of anything.
        Unit::Percent => format!("{sign}{:.1} pt", by.abs()),
        unit => format!("{sign}{}", render::value(&Value::Num(by.abs()), unit)),
    };
    let percent = row.percent().map_or(String::new(), |percent| match percent.abs() {
        p if p >= 1000.0 => format!("{:+.0}x", percent / 100.0),
        _ => format!("{percent:+.1}"),
    });
    let beyond = match row.beyond {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    };
    let what = name + if row.mean { " (mean)" } else { "" };
    [
        what,
        value(row.before),
        value(row.after),
        match () {
            () if row.unmeasured => "not known".to_owned(),
            () if by == 0.0 => "0".to_owned(),
            () => change,
        },
        percent,
        beyond.to_owned(),
    ]
}

/// What stands under a part.
fn notes(part: &Part) -> Vec<String> {
    let shown = part.rows.iter().take(ROWS);
    let of =
        |row: &Change| Some(format!("{}: {}", shortened(&row.what, WHOLE / LINES), shortened(row.note.as_ref()?, 90)));
    let mut notes: Vec<String> = shown.filter_map(of).chain(part.note.clone()).collect();
    let more = part.rows.len() - rows_shown(part) + part.left_out;
    if more > 0 {
        notes.push(format!("... and {} more: --format json", number(more as f64)));
    }
    notes
}

fn last(diff: &Diff) -> String {
    let compared = diff.parts.iter().flat_map(|part| &part.rows).any(|row| row.beyond.is_some());
    let not_known = |why: &str| format!("what is beyond the runs' own spread is not known: {why}");
    match diff.beyond() {
        0 if diff.by_sums.as_ref().is_some_and(|sums| !sums.compared) => "nothing was compared".to_owned(),
        0 if shown(diff).next().is_none() => "no difference".to_owned(),
        0 if diff.by_sums.is_some() => not_known("sums tell no steps"),
        0 if !diff.per_step && (diff.before.steps_unknown || diff.after.steps_unknown) => {
            not_known("the steps of one of the traces are not, for launches were left out to keep to --budget")
        }
        0 if !diff.per_step => not_known("one of the traces has no steps"),
        0 if diff.few => not_known("it takes eight steps and more of both"),
        0 if !compared && !diff.unjudged.is_empty() => not_known("steps tell of none of this"),
        0 => "no difference beyond spread".to_owned(),
        1 => "1 difference beyond spread".to_owned(),
        n => format!("{n} differences beyond spread"),
    }
}

/// What is said neither to be beyond the spread nor within it, though there are steps.
fn unjudged(diff: &Diff) -> Option<String> {
    let said = diff.per_step && !diff.few && !diff.unjudged.is_empty();
    said.then(|| format!("not judged, for single steps do not have these numbers: {}", diff.unjudged.join(", ")))
}

fn problems(diff: &Diff, mark: &str) -> String {
    if diff.problems.is_empty() {
        return String::new();
    }
    let lines = diff.problems.iter().map(|problem| format!("{mark}{problem}\n"));
    format!("\nProblems with the traces\n{}", lines.collect::<String>())
}
