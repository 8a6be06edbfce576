//! `gputrace schema`: every table and column of a trace, from the one place that defines them.

use std::io::Write;

use anyhow::Result;
use comfy_table::{ContentArrangement, Table as Grid, presets};
use gputrace_collectors::counters::COUNTERS;
use gputrace_collectors::schema::{SCHEMA_VERSION, TABLES, Table, TableId};

use crate::cli::{SchemaArgs, SchemaFormat};
use crate::launch::exit::{Failure, USAGE};
use crate::render::Layout;

/// Prints the schema.
pub(crate) fn run(args: &SchemaArgs) -> Result<()> {
    let known = || TABLES.iter().map(|table| table.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = args.tables.iter().find(|name| TABLES.iter().all(|table| table.name != **name)) {
        return Err(Failure::error(USAGE, format!("{unknown}: no such table; the tables are {}", known())));
    }
    let chosen = TABLES.iter().filter(|table| args.tables.is_empty() || args.tables.iter().any(|n| n == table.name));
    let text = match args.format {
        SchemaFormat::Text => {
            let layout = Layout::of_stdout();
            as_text(chosen, layout.must_fit.then(|| u16::try_from(layout.width).unwrap_or(u16::MAX) - 1))
        }
        SchemaFormat::Json => as_json(chosen)?,
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn as_text<'a>(tables: impl Iterator<Item = &'a Table>, width: Option<u16>) -> String {
    let mut text = format!("schema version {SCHEMA_VERSION}; a column marked ? may be null\n");
    for table in tables {
        let kind = |nullable, name: &str| if nullable { format!("{name}?") } else { name.to_owned() };
        let rows = table
            .columns
            .iter()
            .map(|c| [c.name.to_owned(), kind(c.nullable, c.kind.name()), c.unit.into(), c.meaning.into()]);
        text.push_str(&format!("\n{}: {}\n{}", table.name, table.meaning, grid(rows, width)));
        if table.id == TableId::Counters {
            let rows = COUNTERS.iter().map(|c| [c.source, c.name, c.unit, c.meaning].map(str::to_owned));
            text.push_str(&format!("\nvalues of source, name and unit, and what they mean\n{}", grid(rows, width)));
        }
    }
    text
}

/// Rows whose last column alone is longer than a word, and is broken where a width is given.
fn grid(rows: impl Iterator<Item = [String; 4]>, width: Option<u16>) -> String {
    let mut grid = Grid::new();
    grid.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(width) = width {
        grid.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    grid.add_rows(rows);
    grid.lines().map(|line| format!(" {}\n", line.trim_end())).collect()
}

fn as_json<'a>(tables: impl Iterator<Item = &'a Table>) -> Result<String> {
    let column = |column: &gputrace_collectors::schema::Column| {
        serde_json::json!({
            "name": column.name,
            "type": column.kind.name(),
            "nullable": column.nullable,
            "unit": column.unit,
            "meaning": column.meaning,
            "encoding": format!("{:?}", column.encoding.parquet()),
        })
    };
    let table = |table: &Table| {
        let columns: Vec<_> = table.columns.iter().map(column).collect();
        serde_json::json!({ "name": table.name, "meaning": table.meaning, "columns": columns })
    };
    let counter = |c: &gputrace_collectors::counters::Counter| serde_json::json!({ "source": c.source, "name": c.name, "unit": c.unit, "meaning": c.meaning });
    let tables: Vec<_> = tables.collect();
    let mut schema = serde_json::json!({ "schema_version": SCHEMA_VERSION });
    if tables.iter().any(|table| table.id == TableId::Counters) {
        schema["counters"] = COUNTERS.iter().map(counter).collect();
    }
    schema["tables"] = tables.into_iter().map(table).collect();
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_hold_every_column() {
        let text = as_text(TABLES.iter(), None);
        let json: serde_json::Value = serde_json::from_str(&as_json(TABLES.iter()).unwrap()).unwrap();
        for (i, table) in TABLES.iter().enumerate() {
            assert!(text.contains(&format!("\n{}: {}\n", table.name, table.meaning)));
            for (j, column) in table.columns.iter().enumerate() {
                assert!(text.contains(&format!(" {} ", column.name)) && text.contains(column.meaning));
                assert_eq!(json["tables"][i]["columns"][j]["name"], column.name);
            }
        }
        assert_eq!(json["schema_version"], SCHEMA_VERSION);
        assert_eq!(json["counters"].as_array().map(Vec::len), Some(COUNTERS.len()));
        assert!(COUNTERS.iter().all(|c| text.contains(&format!(" {} ", c.name)) && text.contains(c.meaning)));
    }

    #[test]
    fn an_unknown_table_is_named_with_those_there_are() {
        let args = SchemaArgs { tables: vec!["lunches".into()], format: SchemaFormat::Text };
        let error = run(&args).unwrap_err().to_string();
        assert!(error.starts_with("lunches: no such table") && error.contains("launches"), "{error}");
    }
}
