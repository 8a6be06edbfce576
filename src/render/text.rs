//! A report for a terminal: aligned, as wide as the terminal, plain when it is none.

use std::fmt::Write;

use super::grid::grid;
use super::{Layout, Report, numbers, wrapped};
use crate::analysis::{Section, Table, Unit, Value};
use crate::trace::shortened;

/// Rows of a table that are shown; JSON has more.
pub(super) const ROWS: usize = 15;
/// Characters of a series' label.
const LABEL: usize = 30;

pub(super) fn render(report: &Report, layout: Layout) -> String {
    let mut out = String::new();
    for (analysis, section) in &report.sections {
        if !out.is_empty() {
            out.push('\n');
        }
        render_section(&mut out, analysis.title(), section, layout);
    }
    if !report.problems.is_empty() {
        let _ = writeln!(out, "\n{}", heading("Problems with the trace", layout));
        report.problems.iter().for_each(|p| out.push_str(&format!("  {p}\n")));
    }
    out
}

fn heading(title: &str, layout: Layout) -> String {
    if layout.bold { format!("\u{1b}[1m{title}\u{1b}[0m") } else { title.to_owned() }
}

fn render_section(out: &mut String, title: &str, section: &Section, layout: Layout) {
    if let Some(literal) = &section.literal {
        out.push_str(literal);
        return;
    }
    let _ = writeln!(out, "{}", heading(title, layout));
    let width = section.facts.iter().map(|f| f.title.chars().count()).max().unwrap_or(0);
    for fact in &section.facts {
        let _ = writeln!(out, "  {:width$}  {}", fact.title, numbers::value(&fact.value, fact.unit));
    }
    for table in &section.tables {
        out.push_str(&if table.is_series() { series(table) } else { grid(table, layout) });
    }
    for line in section.notes.iter().flat_map(|note| wrapped(note, layout.width.saturating_sub(2))) {
        let _ = writeln!(out, "  {line}");
    }
}

/// A quantity over time as one line per process.
fn series(table: &Table) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let as_number = |v: &Value| match v {
        Value::Int(v) => *v as f64,
        Value::Num(v) => *v,
        _ => 0.0,
    };
    let mut out = format!("\n  {}\n", table.title);
    // Who stands first, in one or more columns; then come the time and the quantity.
    let (time, quantity) = (table.columns.len() - 2, table.columns.len() - 1);
    let known = |value: &&Value| **value != Value::Missing;
    let who = |row: &[Value]| {
        let parts = row[..time].iter().filter(known).map(|value| numbers::value(value, Unit::Text));
        parts.collect::<Vec<_>>().join(" ")
    };
    for rows in table.rows.chunk_by(|a, b| a[..time] == b[..time]).take(ROWS) {
        let values: Vec<f64> = rows.iter().map(|row| as_number(&row[quantity])).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let bar = |v: &f64| BARS[((v / most.max(1.0) * 7.0).round() as usize).min(7)];
        let line: String = values.iter().map(bar).collect();
        let label = shortened(&who(&rows[0]), LABEL);
        let last = numbers::value(&rows[rows.len() - 1][time], Unit::Ns);
        let most = numbers::value(&Value::Num(most), table.columns[quantity].unit);
        let _ = writeln!(out, "    {label}  {line}  0 .. {last}, most {most}");
    }
    out
}
