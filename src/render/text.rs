//! A report for a terminal: aligned, as wide as the terminal, plain when it is none.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table as Grid, presets};

use super::{Layout, Report, numbers, wrapped};
use crate::analysis::{Section, Table, Unit, Value};
use crate::trace::shortened;

/// Rows of a table that are shown; JSON has more.
const ROWS: usize = 15;

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

/// Columns that say the same in every row: their head and that value. The process is left out, the summary names it.
fn constant(table: &Table) -> Vec<(usize, Option<String>)> {
    let same = |at: &usize| table.rows.iter().all(|row| row[*at] == table.rows[0][*at]);
    let about = |at: usize| match (&table.rows[0][at], &table.columns[at]) {
        (Value::Missing, _) => Some((at, None)),
        (_, column) if column.key == "process" => Some((at, None)),
        (Value::Text(text), column) if table.rows.len() > 1 => Some((at, Some(format!("{} {text}", column.title)))),
        _ => None,
    };
    (0..table.columns.len()).filter(same).filter_map(about).collect()
}

/// The table, names shortened so that lines fit; what is the same in every row stands in the title.
fn grid(table: &Table, layout: Layout) -> String {
    let shown = &table.rows[..table.rows.len().min(ROWS)];
    let constant = constant(table);
    let said: Vec<&str> = constant.iter().filter_map(|(_, text)| text.as_deref()).collect();
    let said = if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) };
    let columns: Vec<usize> = (0..table.columns.len()).filter(|at| constant.iter().all(|(c, _)| c != at)).collect();
    let mut cells: Vec<(bool, String, Vec<String>)> = Vec::new();
    for at in &columns {
        let about = &table.columns[*at];
        let (head, column) = numbers::column(about, shown.iter().map(|row| &row[*at]));
        cells.push((about.unit == Unit::Name, head, column));
    }
    let width = |(_, head, column): &(bool, String, Vec<String>)| {
        column.iter().chain([head]).map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let fixed: usize = cells.iter().filter(|c| !c.0).map(width).sum::<usize>() + 2 * cells.len() + 2;
    let names = cells.iter().filter(|c| c.0).count().max(1);
    let mut room = layout.width.saturating_sub(fixed);
    // Narrow name columns leave what they do not need to the wide ones.
    let mut wide: Vec<usize> = cells.iter().filter(|c| c.0).map(width).collect();
    wide.sort_unstable();
    let mut left = names;
    for needed in wide {
        if needed <= room / left.max(1) {
            room -= needed;
            left -= 1;
        }
    }
    let most = (room / left.max(1)).max(20);
    let mut grid = Grid::new();
    grid.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    grid.set_header(cells.iter().map(|(_, head, _)| head));
    for row in 0..shown.len() {
        grid.add_row(
            cells
                .iter()
                .map(|(name, _, column)| if *name { shortened(&column[row], most) } else { column[row].clone() }),
        );
    }
    for (index, at) in columns.iter().enumerate() {
        if let Some(column) = grid.column_mut(index) {
            let left = matches!(table.columns[*at].unit, Unit::Text | Unit::Name);
            column.set_cell_alignment(if left { CellAlignment::Left } else { CellAlignment::Right });
            column.set_padding((if index == 0 { 0 } else { 1 }, 1));
        }
    }
    let mut out =
        format!("\n  {}{}\n", table.title, shortened(&said, layout.width.saturating_sub(table.title.len() + 2)));
    grid.lines().for_each(|line| out.push_str(&format!("    {}\n", line.trim_end())));
    let more = table.rows.len() - shown.len() + table.left_out;
    if more > 0 {
        let _ = writeln!(out, "    ... and {} more rows: --format json", numbers::number(more as f64));
    }
    out
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
        let label = who(&rows[0]);
        let last = numbers::value(&rows[rows.len() - 1][time], Unit::Ns);
        let most = numbers::value(&Value::Num(most), table.columns[quantity].unit);
        let _ = writeln!(out, "    {label}  {line}  0 .. {last}, most {most}");
    }
    out
}
