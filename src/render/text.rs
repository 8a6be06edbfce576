//! A report for a terminal: aligned, as wide as the terminal, plain when it is none.

use std::fmt::Write;

use super::dress;
use super::fit::fitted;
use super::grid::grid;
use super::{Layout, Report, numbers};
use crate::analysis::{Section, Table, Unit, Value};
use crate::trace::{columns_of, shortened};

/// Rows of a table that are shown; JSON has more.
pub(super) const ROWS: usize = 15;
/// Characters of a series' label.
const LABEL: usize = 30;
/// Left of a series' lines.
const INDENT: usize = 4;

pub(super) fn render(report: &Report, layout: Layout) -> String {
    let mut out = String::new();
    report.notes.iter().for_each(|note| push(&mut out, note, layout, 2));
    for (analysis, section) in &report.sections {
        if !out.is_empty() {
            out.push('\n');
        }
        render_section(&mut out, analysis.title(), section, layout);
    }
    if !report.problems.is_empty() {
        let _ = writeln!(out, "\n{}", heading("Problems with the trace", layout));
        report.problems.iter().for_each(|p| push(&mut out, &format!("  {p}"), layout, 2));
    }
    out
}

/// Writes a line, in several where it is too long.
fn push(out: &mut String, line: &str, layout: Layout, hang: usize) {
    fitted(line, layout.width, hang).iter().for_each(|line| out.push_str(&format!("{line}\n")));
}

fn heading(title: &str, layout: Layout) -> String {
    if layout.styled { dress::heading(title) } else { title.to_owned() }
}

fn render_section(out: &mut String, title: &str, section: &Section, layout: Layout) {
    if let Some(literal) = &section.literal {
        let mut text = String::new();
        literal.lines().for_each(|line| push(&mut text, line, layout, 2));
        out.push_str(&if layout.styled { dress::dressed(&text) } else { text });
        return;
    }
    let _ = writeln!(out, "{}", heading(title, layout));
    let width = section.shown_facts().map(|f| f.title.chars().count()).max().unwrap_or(0);
    for fact in section.shown_facts() {
        let value = numbers::value(&fact.value, fact.unit);
        push(out, &format!("  {:width$}  {value}", fact.title), layout, width + 2);
    }
    for table in &section.tables {
        out.push_str(&if table.is_series() { series(table, layout) } else { grid(table, layout) });
    }
    section.notes.iter().for_each(|note| push(out, &format!("  {note}"), layout, 0));
}

/// A quantity over time as one line per process, or two where there is little room.
fn series(table: &Table, layout: Layout) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let as_number = |v: &Value| match v {
        Value::Int(v) => *v as f64,
        Value::Num(v) => *v,
        _ => 0.0,
    };
    let mut out = String::from("\n");
    push(&mut out, &format!("  {}", table.title), layout, 2);
    // Who stands first, in one or more columns; then come the time and the quantity.
    let (time, quantity) = (table.columns.len() - 2, table.columns.len() - 1);
    let who = |row: &[Value]| {
        let parts = row[..time].iter().zip(&table.columns).filter(|(value, _)| **value != Value::Missing);
        let parts = parts.map(|(value, column)| numbers::value(value, column.unit));
        parts.collect::<Vec<_>>().join(" ")
    };
    for rows in table.rows.chunk_by(|a, b| a[..time] == b[..time]).take(ROWS) {
        let values: Vec<f64> = rows.iter().map(|row| as_number(&row[quantity])).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let bar = |v: &f64| BARS[((v / most.max(1.0) * 7.0).round() as usize).min(7)];
        let last = numbers::value(&rows[rows.len() - 1][time], Unit::Ns);
        let scale = numbers::value(&Value::Num(most), table.columns[quantity].unit);
        let about = format!("0 .. {last}, most {scale}");
        let room = layout.width.saturating_sub(INDENT + 2);
        let beside = room.checked_sub(2 + columns_of(&about)).filter(|room| *room >= LABEL);
        let room = beside.unwrap_or(room);
        let label = shortened(&who(&rows[0]), LABEL.min(room / 2));
        // Of neighbours that share a bar the highest counts.
        let bars = room.saturating_sub(columns_of(&label)).clamp(1, values.len().max(1));
        let highest = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
        let line: String = values.chunks(values.len().div_ceil(bars).max(1)).map(highest).map(|v| bar(&v)).collect();
        let gap = if beside.is_some() { "  ".to_owned() } else { format!("\n{:INDENT$}  ", "") };
        let _ = writeln!(out, "{:INDENT$}{label}  {line}{gap}{about}", "");
    }
    out
}
