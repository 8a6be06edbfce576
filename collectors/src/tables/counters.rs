//! Rows of `counters`.

use super::columns::{Coded, Optional, Plain, Rows, Texts, take};
use crate::counters::{COUNTERS, Id};
use crate::schema::TableId;
use crate::writer::Message;

/// A row of `counters`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterRow<'a> {
    pub(crate) start_ns: i64,
    pub(crate) interval_ns: Option<i64>,
    /// Process id of the trace, and pid.
    pub(crate) process: Option<(i64, i32)>,
    pub(crate) device: Option<&'a str>,
    pub(crate) id: Id,
    pub(crate) value: f64,
}

pub(super) struct CounterColumns {
    rows: Rows,
    start_ns: Plain<i64>,
    interval_ns: Optional<i64>,
    process_id: Optional<i64>,
    pid: Optional<i32>,
    device: Texts,
    /// Source, name and unit, by the counter's place in the list.
    words: [Coded; 3],
    value: Plain<f64>,
}

impl Default for CounterColumns {
    fn default() -> CounterColumns {
        let column = |of: fn(&crate::counters::Counter) -> &'static str| {
            let texts: Vec<&str> = COUNTERS.iter().map(of).collect();
            Coded::new(&texts)
        };
        CounterColumns {
            rows: Rows::default(),
            start_ns: Plain::default(),
            interval_ns: Optional::default(),
            process_id: Optional::default(),
            pid: Optional::default(),
            device: Texts::default(),
            words: [column(|c| c.source), column(|c| c.name), column(|c| c.unit)],
            value: Plain::default(),
        }
    }
}

impl CounterColumns {
    pub(super) fn push(&mut self, row: &CounterRow<'_>) {
        self.rows.count += 1;
        self.start_ns.push(row.start_ns);
        self.interval_ns.push(row.interval_ns);
        self.process_id.push(row.process.map(|(id, _)| id));
        self.pid.push(row.process.map(|(_, pid)| pid));
        self.device.push(row.device);
        self.words.iter_mut().for_each(|column| column.push(row.id as u8));
        self.value.push(row.value);
    }

    /// A batch of all rows: there are few.
    pub(super) fn take(&mut self) -> Option<Message> {
        if self.rows.count == 0 {
            return None;
        }
        let [source, name, unit] = &mut self.words;
        let columns = take![
            self.start_ns,
            self.interval_ns,
            self.process_id,
            self.pid,
            self.device,
            *source,
            *name,
            *unit,
            self.value
        ];
        self.rows.batch(TableId::Counters, columns)
    }
}
