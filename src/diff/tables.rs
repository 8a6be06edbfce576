//! The metrics of an analysis in two traces, and its tables: rows are matched by what their columns of text say.

use rustc_hash::FxHashMap;

use super::{Change, Part};
use crate::analysis::{Analysis, Column, Section, Table, Unit, Value};

/// Rows of a part that are kept.
const ROWS: usize = 1000;
/// The number of a row that is compared: the first of these that the table has.
const NUMBERS: [&str; 6] = ["total_ns", "gpu_ns", "bytes", "calls", "launches_estimate", "count"];
/// The same of tables in which the number of rows behind a row says nothing.
const OWN_NUMBERS: [(&str, &str); 1] = [("counters", "mean")];
/// Tables that list single things, or say again what another part says.
const SKIPPED: [&str; 8] =
    ["findings", "processes", "devices", "longest", "over_time", "by_kernel", "by_thread", "by_process"];
/// The tables of sums by line, and of what they are sums.
const LINES: (&str, &str) = ("by_line", "by_stack");
/// Columns that name a row only within its own run, or say what another one says.
const NO_NAME: [&str; 5] = ["tid", "place", "stream", "evidence", "via"];

/// What differs, of one analysis.
pub(super) fn parts(analysis: &'static dyn Analysis, sections: &[Section; 2]) -> Vec<Part> {
    let name = analysis.name();
    let mut parts = vec![Part { title: analysis.title().to_owned(), ..metrics(analysis, sections) }];
    let [before, after] = sections;
    let keys: Vec<&Table> = before.tables.iter().chain(&after.tables).collect();
    for (index, about) in keys.iter().enumerate() {
        if SKIPPED.contains(&about.key) || keys[..index].iter().any(|earlier| earlier.key == about.key) {
            continue;
        }
        let named = |section: &Section, key| section.tables.iter().find(|table| table.key == key).cloned();
        // Where each line has one stack there is no table by line: that by stack says the same.
        let of = |section: &Section| named(section, about.key).or_else(|| by_stack(named(section, LINES.1)?, about));
        let title = format!("{}: {}", analysis.title(), about.title);
        let Some(part) = table(&[of(before), of(after)], about) else { continue };
        parts.push(Part { name: format!("{name}.{}", about.key), title, ..part });
    }
    parts.retain(|part| !part.rows.is_empty());
    parts
}

/// The rows of a table by stack with the columns of this one by line.
fn by_stack(table: Table, about: &Table) -> Option<Table> {
    let at = |key: &str| table.columns.iter().position(|column| column.key == key);
    let places: Vec<_> = about.columns.iter().filter_map(|column| Some((*column, at(column.key)?))).collect();
    let row = |row: &Vec<Value>| places.iter().map(|(_, at)| row[*at].clone()).collect();
    let columns = places.iter().map(|(column, _)| *column).collect();
    (about.key == LINES.0).then(|| Table { columns, rows: table.rows.iter().map(row).collect(), ..table.clone() })
}

fn metrics(analysis: &'static dyn Analysis, sections: &[Section; 2]) -> Part {
    let number = |section: &Section, key: &str| {
        section.facts.iter().find(|fact| fact.key == key).and_then(|fact| as_number(&fact.value))
    };
    let rows = analysis.metrics().iter().filter_map(|metric| {
        let values = [0, 1].map(|i| number(&sections[i], metric.key));
        let change = changed(metric.key.to_owned(), metric.unit, values)?;
        Some(if values.contains(&None) { change.unmeasured("before", "after") } else { change })
    });
    Part { name: analysis.name().to_owned(), rows: rows.collect(), ..Part::default() }
}

fn table(tables: &[Option<Table>; 2], about: &Table) -> Option<Part> {
    let own = OWN_NUMBERS.iter().find(|(table, _)| *table == about.key).map(|(_, key)| *key);
    let keys = || own.into_iter().chain(NUMBERS.into_iter().filter(|_| own.is_none()));
    let number = keys().find_map(|key| about.columns.iter().find(|column| column.key == key))?;
    let mut order: Vec<String> = Vec::new();
    let mut sums: FxHashMap<String, [Option<f64>; 2]> = FxHashMap::default();
    for (side, table) in tables.iter().enumerate() {
        let Some(table) = table else { continue };
        let Some(at) = table.columns.iter().position(|column| column.key == number.key) else { continue };
        for row in &table.rows {
            let Some(value) = as_number(&row[at]) else { continue };
            let key = name_of(table, row);
            let sum = sums.entry(key.clone()).or_insert_with(|| {
                order.push(key);
                [None, None]
            });
            sum[side] = Some(sum[side].unwrap_or(0.0) + value);
        }
    }
    let row = |key: String| {
        let sums = sums.get(&key).copied()?;
        changed(key, number.unit, sums)
    };
    let mut rows: Vec<Change> = order.into_iter().filter_map(row).collect();
    sort(&mut rows);
    let left_out = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    Some(Part { rows, left_out, ..Part::default() })
}

/// A number that is not the same before and after, of which no steps are known.
fn changed(what: String, unit: Unit, [before, after]: [Option<f64>; 2]) -> Option<Change> {
    (before != after).then_some(Change {
        what,
        unit,
        before,
        after,
        mean: false,
        beyond: None,
        unmeasured: false,
        note: None,
    })
}

/// What a row is about: its texts, but for those that another run has otherwise.
fn name_of(table: &Table, row: &[Value]) -> String {
    let is_name =
        |column: &Column| column.unit.is_text() && column.unit != Unit::Stack && !NO_NAME.contains(&column.key);
    let texts = table.columns.iter().zip(row).filter(|(column, _)| is_name(column));
    let texts = texts.filter_map(|(column, value)| match value {
        Value::Text(text) if column.key == "process" && !text.starts_with("rank ") => None,
        // Flags say how a row is to be read, not which it is.
        Value::Text(text) if matches!(text.as_str(), "yes" | "no") => None,
        Value::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Num(value) => Some(*value),
        _ => None,
    }
}

/// What is beyond the spread first, then by the size of the difference.
pub(super) fn sort(rows: &mut [Change]) {
    rows.sort_by(|a, b| {
        let beyond = (b.beyond == Some(true)).cmp(&(a.beyond == Some(true)));
        beyond.then(b.by().abs().total_cmp(&a.by().abs())).then_with(|| a.what.cmp(&b.what))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_matched_by_their_texts_and_the_largest_difference_comes_first() {
        let columns = [
            Column { key: "process", title: "Process", unit: Unit::Text },
            Column { key: "api", title: "Function", unit: Unit::Name },
            Column { key: "tid", title: "Thread", unit: Unit::Text },
            Column { key: "calls", title: "Calls", unit: Unit::Count },
            Column { key: "total_ns", title: "Total", unit: Unit::Ns },
        ];
        let row = |process: &str, api: &str, tid: &str, ns: i64| -> Vec<Value> {
            vec![process.into(), api.into(), tid.into(), 1i64.into(), ns.into()]
        };
        let of = |rows| Some(Table::new("by_call", "By call", &columns, rows));
        let before = of(vec![row("pid 1", "a", "1", 10), row("pid 1", "a", "2", 5), row("pid 1", "b", "1", 7)]);
        let after = of(vec![row("pid 9", "a", "8", 16), row("pid 9", "c", "8", 90), row("pid 9", "b", "8", 7)]);
        let about = before.clone().unwrap();
        let part = table(&[before, after], &about).unwrap();
        let rows: Vec<_> = part.rows.iter().map(|row| (row.what.as_str(), row.before, row.after)).collect();
        assert_eq!(rows, [("c", None, Some(90.0)), ("a", Some(15.0), Some(16.0))]);
    }
}
