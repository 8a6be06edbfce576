//! What an analysis hands to the renderers: numbers with their units, tables, notes. No formatting.

/// Unit of a number. The key of a number names it too, so that JSON needs no second place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Not a number.
    Text,
    /// A name that text output may shorten; JSON has it in full.
    Name,
    /// A whole stack: in JSON alone.
    Stack,
    /// A number of things.
    Count,
    /// A number that only names something: a stream, whose handle may have many digits.
    Id,
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Bytes that differ so much that text gives each its own unit.
    BytesEach,
    /// Bytes per second.
    BytesPerS,
    /// Percent.
    Percent,
    /// Per second.
    PerS,
}

impl Unit {
    /// Whether it is not a number.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Unit::Text | Unit::Name | Unit::Stack)
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A whole number.
    Int(i64),
    /// Any other number.
    Num(f64),
    /// Text.
    Text(String),
    /// Not known, or without meaning here.
    Missing,
}

impl From<i64> for Value {
    fn from(v: i64) -> Value {
        Value::Int(v)
    }
}

impl From<u64> for Value {
    fn from(v: u64) -> Value {
        Value::Int(i64::try_from(v).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(v: f64) -> Value {
        if v.is_finite() { Value::Num(v) } else { Value::Missing }
    }
}

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::Text(v.to_owned())
    }
}

impl From<String> for Value {
    fn from(v: String) -> Value {
        Value::Text(v)
    }
}

impl From<bool> for Value {
    fn from(v: bool) -> Value {
        Value::from(if v { "yes" } else { "no" })
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(v: Option<T>) -> Value {
        v.map_or(Value::Missing, Into::into)
    }
}

/// `part` of `whole` in percent; missing when there is no whole.
pub(crate) fn percent(part: f64, whole: f64) -> Value {
    if whole > 0.0 { Value::from(100.0 * part / whole) } else { Value::Missing }
}

/// One number of a section.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fact {
    /// Name in JSON, with the unit last.
    pub(crate) key: &'static str,
    /// Name in text.
    pub(crate) title: &'static str,
    /// Unit.
    pub(crate) unit: Unit,
    /// Value.
    pub(crate) value: Value,
    /// Text for people leaves it out where it is not known: it is of what few traces have.
    pub(crate) rare: bool,
}

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Name in JSON, with the unit last.
    pub(crate) key: &'static str,
    /// Name in text.
    pub(crate) title: &'static str,
    /// Unit.
    pub(crate) unit: Unit,
}

/// A column.
pub(crate) const fn column(key: &'static str, title: &'static str, unit: Unit) -> Column {
    Column { key, title, unit }
}

/// A table of a section; the most important rows come first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// Name in JSON.
    pub(crate) key: &'static str,
    /// Title in text.
    pub(crate) title: &'static str,
    /// Columns.
    pub(crate) columns: Vec<Column>,
    /// Rows.
    pub(crate) rows: Vec<Vec<Value>>,
    /// Rows that were left out even of JSON.
    pub(crate) left_out: usize,
}

/// Rows of one table in JSON; text shows fewer.
const ROWS: usize = 1000;

impl Table {
    /// A table.
    pub(crate) fn new(key: &'static str, title: &'static str, columns: &[Column], mut rows: Vec<Vec<Value>>) -> Table {
        let left_out = rows.len().saturating_sub(ROWS);
        rows.truncate(ROWS);
        Table { key, title, columns: columns.to_vec(), rows, left_out }
    }

    /// Whether the rows are a quantity over time, for each process in turn: who, time, quantity.
    pub(crate) fn is_series(&self) -> bool {
        self.key == "over_time" && self.columns.len() >= 3
    }
}

/// What one analysis found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Section {
    /// Text that is shown as it is instead of facts and tables; JSON has those.
    pub(crate) literal: Option<String>,
    /// Numbers.
    pub(crate) facts: Vec<Fact>,
    /// Tables.
    pub(crate) tables: Vec<Table>,
    /// Sentences that a reader of the numbers must know.
    pub(crate) notes: Vec<String>,
}

impl Section {
    /// Adds a number.
    pub(crate) fn fact(&mut self, key: &'static str, title: &'static str, unit: Unit, value: impl Into<Value>) {
        self.facts.push(Fact { key, title, unit, value: value.into(), rare: false });
    }

    /// Adds a number that few traces have.
    pub(crate) fn rare_fact(&mut self, key: &'static str, title: &'static str, unit: Unit, value: impl Into<Value>) {
        self.facts.push(Fact { key, title, unit, value: value.into(), rare: true });
    }

    /// The number with this key, if it is known.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        match self.facts.iter().find(|fact| fact.key == key)?.value {
            Value::Int(value) => Some(value as f64),
            Value::Num(value) => Some(value),
            _ => None,
        }
    }

    /// The numbers that text for people has.
    pub(crate) fn shown_facts(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter().filter(|fact| !fact.rare || fact.value != Value::Missing)
    }

    /// Adds a table, when it has rows.
    pub(crate) fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.tables.push(table);
        }
    }

    /// Adds a note.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

#[cfg(test)]
impl Section {
    /// The number with this key.
    pub(crate) fn get(&self, key: &str) -> &Value {
        &self.facts.iter().find(|f| f.key == key).unwrap_or_else(|| panic!("no {key}")).value
    }

    /// The value of a column in a row of a table.
    pub(crate) fn cell(&self, table: &str, row: usize, column: &str) -> &Value {
        let table = self.tables.iter().find(|t| t.key == table).unwrap_or_else(|| panic!("no {table}"));
        let at = table.columns.iter().position(|c| c.key == column).unwrap_or_else(|| panic!("no {column}"));
        &table.rows[row][at]
    }
}
