//! A report for programs. docs/report-json.md describes it; [`VERSION`] is bumped when a key goes away or changes its
//! meaning or unit. New keys need no bump.

use serde_json::{Map, Value as Json, json};

use super::Report;
use crate::analysis::{Section, Table, Value};

/// `report_version`.
const VERSION: u32 = 1;

pub(super) fn render(report: &Report) -> String {
    let analyses: Map<String, Json> = report
        .sections
        .iter()
        .map(|(analysis, section)| (analysis.name().to_owned(), section_json(analysis.title(), section)))
        .collect();
    let problem = |p: &crate::trace::Problem| json!({ "path": p.path.to_string_lossy(), "text": p.text, "rows_lost": p.lost_rows() });
    let report = json!({
        "report_version": VERSION,
        "tool_version": env!("CARGO_PKG_VERSION"),
        "traces": report.traces,
        "notes": report.notes,
        "analyses": analyses,
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

fn section_json(title: &str, section: &Section) -> Json {
    let facts: Map<String, Json> = section.facts.iter().map(|f| (f.key.to_owned(), value_json(&f.value))).collect();
    let tables: Map<String, Json> = section.tables.iter().map(|t| (t.key.to_owned(), table_json(t))).collect();
    json!({ "title": title, "facts": facts, "tables": tables, "notes": section.notes })
}

fn table_json(table: &Table) -> Json {
    let row = |row: &Vec<Value>| -> Map<String, Json> {
        table.columns.iter().zip(row).map(|(column, value)| (column.key.to_owned(), value_json(value))).collect()
    };
    json!({
        "title": table.title,
        "rows": table.rows.iter().map(row).collect::<Vec<_>>(),
        "rows_left_out": table.left_out,
    })
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Int(v) => json!(v),
        Value::Num(v) => json!(v),
        Value::Text(text) => json!(text),
        Value::Missing => Json::Null,
    }
}
