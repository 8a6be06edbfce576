//! Tables that may be larger than memory: what is in them lies in memory up to a bound, and beyond that in a temporary file.
//!
//! Exports keep what differs in a trace, names, stacks and the numbers that a format gives them, and a trace may have any number of each.
//! The file is a database of sqlite without a name (in SQLITE_TMPDIR, TMPDIR, /var/tmp or /tmp), which nobody else sees and which is gone
//! with the process, however that ends; sqlite keeps 2 MiB of it in memory. It is made when the bound is first reached: most traces never do.
//! What was asked for lately is kept beside it, so that a loop's few hundred names are looked up in memory.

mod numbers;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use rusqlite::types::{FromSql, ToSql};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

pub(crate) use numbers::Numbers;

/// Bytes of a table that are in memory alone, and as many of what was asked for lately.
const MOST_BYTES: usize = 4 << 20;
/// What an entry takes beside its value: key, place in a map that is not full, and what the allocator adds.
const ENTRY: usize = 64;

/// What a table holds.
pub(crate) trait Value: Clone + ToSql + FromSql {
    /// What it takes beside itself.
    fn bytes(&self) -> usize;
}

impl Value for i64 {
    fn bytes(&self) -> usize {
        0
    }
}

impl Value for Rc<str> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A table by number.
pub(crate) struct Spilled<V>(RefCell<Table<V>>);

struct Table<V> {
    /// What the file does not have yet.
    young: Part<V>,
    /// What it has and was asked for lately.
    recent: Part<V>,
    most: usize,
    file: Option<Connection>,
}

struct Part<V> {
    all: FxHashMap<i64, V>,
    bytes: usize,
}

impl<V> Default for Part<V> {
    fn default() -> Self {
        Part { all: FxHashMap::default(), bytes: 0 }
    }
}

impl<V: Value> Part<V> {
    fn insert(&mut self, key: i64, value: V) {
        self.bytes += value.bytes() + ENTRY;
        if let Some(old) = self.all.insert(key, value) {
            self.bytes -= old.bytes() + ENTRY;
        }
    }
}

impl<V> Default for Spilled<V> {
    fn default() -> Self {
        Spilled::within(MOST_BYTES)
    }
}

impl<V> Spilled<V> {
    /// With so many bytes in memory alone.
    fn within(most: usize) -> Self {
        Spilled(RefCell::new(Table { young: Part::default(), recent: Part::default(), most, file: None }))
    }
}

impl<V: Value> Spilled<V> {
    /// The value of a key.
    pub(crate) fn get(&self, key: i64) -> io::Result<Option<V>> {
        self.0.borrow_mut().get(key)
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&self, key: i64, value: V) -> io::Result<()> {
        self.0.borrow_mut().insert(key, value)
    }

    /// The value of a key, which is made where there is none.
    pub(crate) fn get_or_insert(&self, key: i64, make: impl FnOnce() -> V) -> io::Result<V> {
        if let Some(value) = self.get(key)? {
            return Ok(value);
        }
        let value = make();
        self.insert(key, value.clone())?;
        Ok(value)
    }
}

impl<V: Value> Table<V> {
    fn get(&mut self, key: i64) -> io::Result<Option<V>> {
        if let Some(value) = self.young.all.get(&key).or_else(|| self.recent.all.get(&key)) {
            return Ok(Some(value.clone()));
        }
        let Some(file) = &self.file else { return Ok(None) };
        let found: Option<V> = (|| {
            let mut select = file.prepare_cached("SELECT value FROM kept WHERE key = ?")?;
            select.query_row([key], |row| row.get(0)).optional()
        })()
        .map_err(failed)?;
        if let Some(value) = &found {
            if self.recent.bytes >= self.most {
                self.recent = Part::default();
            }
            self.recent.insert(key, value.clone());
        }
        Ok(found)
    }

    fn insert(&mut self, key: i64, value: V) -> io::Result<()> {
        // What the file has of it is old now.
        if let Some(old) = self.recent.all.remove(&key) {
            self.recent.bytes -= old.bytes() + ENTRY;
        }
        self.young.insert(key, value);
        if self.young.bytes > self.most { self.spill().map_err(failed) } else { Ok(()) }
    }

    /// Writes what is in memory alone to the file, in the order of the keys: neighbours share its pages.
    fn spill(&mut self) -> rusqlite::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(unnamed()?),
        };
        let mut all: Vec<(i64, V)> = std::mem::take(&mut self.young).all.into_iter().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        file.execute_batch("BEGIN")?;
        {
            let mut insert = file.prepare_cached("INSERT OR REPLACE INTO kept VALUES (?, ?)")?;
            for (key, value) in all {
                insert.execute((key, value))?;
            }
        }
        file.execute_batch("COMMIT")
    }
}

/// A database in a file that has no name.
fn unnamed() -> rusqlite::Result<Connection> {
    let file = Connection::open("")?;
    // Nothing of it is ever repaired: it goes with the process.
    file.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -2048;
         CREATE TABLE kept (key INTEGER PRIMARY KEY, value)",
    )?;
    Ok(file)
}

fn failed(error: rusqlite::Error) -> io::Error {
    io::Error::other(format!("the temporary file of what found no room in memory (TMPDIR, else /var/tmp): {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_in_memory_is_found_in_the_file() {
        let table = Spilled::<Rc<str>>::within(10_000);
        let text = |key: i64| Rc::from(format!("text {key}"));
        for key in 0..3_000 {
            table.insert(key * 7, text(key)).unwrap();
            assert!(table.0.borrow().young.bytes <= 10_000 + 200);
        }
        assert!(table.0.borrow().file.is_some());
        for key in (0..3_000).rev() {
            assert_eq!(table.get(key * 7).unwrap(), Some(text(key)));
            assert_eq!(table.get(key * 7 + 1).unwrap(), None);
            assert!(table.0.borrow().recent.bytes <= 10_000 + 200);
        }
    }

    #[test]
    fn the_last_value_of_a_key_holds_wherever_the_one_before_lies() {
        let table = Spilled::<i64>::within(1_000);
        for round in 0..3 {
            (0..100).for_each(|key| table.insert(key, key + round).unwrap());
            (0..100).for_each(|key| assert_eq!(table.get(key).unwrap(), Some(key + round)));
        }
        assert_eq!(table.get_or_insert(5, || 0).unwrap(), 7);
        assert_eq!(table.get_or_insert(500, || 3).unwrap(), 3);
        assert_eq!(table.get(500).unwrap(), Some(3));
    }
}
