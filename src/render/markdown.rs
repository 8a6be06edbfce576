//! A report for an issue or a pull request: the same numbers as the text, in Markdown's tables.

use std::fmt::Write;

use super::grid::shown_columns;
use super::{Report, numbers};
use crate::analysis::{Section, Table};

/// Rows of a table that are shown; JSON has more.
const ROWS: usize = 25;

pub(super) fn render(report: &Report) -> String {
    let mut out = String::from("# gputrace report\n");
    for trace in &report.traces {
        let _ = writeln!(out, "\nTrace: `{}`", trace.replace('`', "'"));
    }
    for note in &report.notes {
        let _ = writeln!(out, "\n{}", escaped(note));
    }
    for (analysis, section) in &report.sections {
        let _ = writeln!(out, "\n## {}\n", analysis.title());
        render_section(&mut out, section);
    }
    if !report.problems.is_empty() {
        out.push_str("\n## Problems with the trace\n\n");
        report.problems.iter().for_each(|p| out.push_str(&format!("- {}\n", escaped(&p.to_string()))));
    }
    out
}

fn render_section(out: &mut String, section: &Section) {
    if let Some(literal) = &section.literal {
        let _ = writeln!(out, "```text\n{}\n```", literal.trim_end().replace("```", "'''"));
        return;
    }
    for fact in section.shown_facts() {
        let _ = writeln!(out, "- {}: **{}**", fact.title, escaped(&numbers::value(&fact.value, fact.unit)));
    }
    for table in &section.tables {
        let _ = writeln!(out, "\n### {}\n", table.title);
        render_table(out, table);
    }
    for note in &section.notes {
        let _ = writeln!(out, "\n{}", escaped(note));
    }
}

fn render_table(out: &mut String, table: &Table) {
    let shown = &table.rows[..table.rows.len().min(ROWS)];
    let columns: Vec<(String, Vec<String>)> =
        shown_columns(table).map(|at| numbers::column(&table.columns[at], shown.iter().map(|row| &row[at]))).collect();
    let heads: Vec<&str> = columns.iter().map(|(head, _)| head.as_str()).collect();
    let rule = |c: &crate::analysis::Column| if c.unit.is_text() { "---" } else { "---:" };
    let rules: Vec<&str> = shown_columns(table).map(|at| rule(&table.columns[at])).collect();
    let _ = writeln!(out, "| {} |\n| {} |", heads.join(" | "), rules.join(" | "));
    for row in 0..shown.len() {
        let cells: Vec<String> = columns.iter().map(|(_, column)| escaped(&column[row])).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    let more = table.rows.len() - shown.len() + table.left_out;
    if more > 0 {
        let _ = writeln!(out, "\n... and {} more rows", numbers::number(more as f64));
    }
}

/// Characters that Markdown or HTML would take for something else.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '\\' | '[' | ']' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_a_table() {
        assert_eq!(escaped("a<b>|c_d"), "a&lt;b&gt;\\|c\\_d");
    }
}
