//! What a page shows, as JSON: what is read first, and every section with its tables.

use serde_json::{Value as Json, json};

use super::{Beside, Report};
use crate::analysis::{Analysis, Section, Table, Unit, Value};

/// Key figures of the summary, in their order; those that are not known are left out.
const FIGURES: [&str; 16] = [
    "step_p50_ns",
    "step_p99_ns",
    "steps",
    "gpu_idle_percent",
    "gpu_busy_ns",
    "gpu_idle_ns",
    "outside_driver_ns",
    "launch_ns",
    "wait_ns",
    "copy_ns",
    "launches",
    "waits",
    "copies",
    "joint_gain_ns",
    "cost_percent",
    "lost",
];

/// What is read first: whose report it is, and its findings.
pub(super) fn about(report: &Report, beside: &Beside) -> Json {
    let summary = report.sections.iter().find(|(analysis, _)| analysis.name() == "summary").map(|of| &of.1);
    let figure = |key: &&str| {
        let fact = summary?.facts.iter().find(|fact| fact.key == *key)?;
        (fact.value != Value::Missing).then(|| json!([fact.title, value(&fact.value), unit(fact.unit)]))
    };
    let text =
        |key: &str| summary.and_then(|s| s.facts.iter().find(|fact| fact.key == key)).map(|fact| value(&fact.value));
    let findings = summary.and_then(|summary| summary.tables.iter().find(|table| table.key == "findings"));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "traces": report.traces,
        "notes": report.notes.iter().chain(&beside.incomplete).collect::<Vec<_>>(),
        "problems": report.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "literal": summary.and_then(|summary| summary.literal.clone()),
        "summary_notes": summary.map(|summary| &summary.notes),
        "verdict": text("verdict"),
        "verdict_text": text("verdict_text"),
        "fine": text("checked_fine"),
        "unit": text("unit"),
        "figures": FIGURES.iter().filter_map(figure).collect::<Vec<_>>(),
        "findings": findings.map(table),
        "shown": beside.timeline.shown,
    })
}

/// Every section.
pub(super) fn sections(report: &Report) -> Json {
    report.sections.iter().map(|(analysis, section)| of_section(*analysis, section)).collect()
}

fn of_section(analysis: &dyn Analysis, section: &Section) -> Json {
    let about = analysis.explain();
    let facts = section.shown_facts().map(|fact| json!([fact.title, value(&fact.value), unit(fact.unit)]));
    json!({
        "name": analysis.name(),
        "title": analysis.title(),
        "facts": facts.collect::<Vec<_>>(),
        "tables": section.tables.iter().map(table).collect::<Vec<_>>(),
        "notes": section.notes,
        "explain": [about.definition, about.unit, about.limits, about.source],
    })
}

fn table(table: &Table) -> Json {
    let columns = table.columns.iter().map(|column| json!([column.key, column.title, unit(column.unit)]));
    let rows = table.rows.iter().map(|row| row.iter().map(value).collect::<Json>());
    json!({
        "key": table.key,
        "title": table.title,
        "columns": columns.collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
        "left_out": table.left_out,
    })
}

/// Numbers beyond what a browser's hold exactly are told in digits.
fn value(of: &Value) -> Json {
    const EXACT: u64 = 1 << 53;
    match of {
        Value::Int(v) if v.unsigned_abs() > EXACT => json!(v.to_string()),
        Value::Int(v) => json!(v),
        Value::Num(v) => json!(v),
        Value::Text(text) => json!(text),
        Value::Missing => Json::Null,
    }
}

/// What `numbers.js` knows units by.
fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Text => "text",
        Unit::Name => "name",
        Unit::Stack => "stack",
        Unit::Count => "count",
        Unit::Id => "id",
        Unit::Ns => "ns",
        Unit::Bytes => "bytes",
        Unit::BytesEach => "bytes_each",
        Unit::BytesPerS => "bytes_per_s",
        Unit::Percent => "percent",
        Unit::PerS => "per_s",
    }
}
