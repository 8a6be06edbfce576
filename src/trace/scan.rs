//! One read over several tables, in step with time, in bounded memory.
//!
//! A scan goes through the launchers one after another; within a launcher it hands out whichever table's next rows
//! begin first. So whoever listens sees all tables of a process move through time together, to within one batch, and
//! only one launcher's files are open: a trace of a thousand nodes needs no more memory than one of a single node.

use std::sync::Arc;

use gputrace_collectors::schema::TableId;

use super::stream::Stream;
use super::{Filter, Rows, Trace, counted};

/// Columns of one table that somebody wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// The table.
    pub(crate) table: TableId,
    /// Its columns.
    pub(crate) columns: &'static [&'static str],
}

/// Which rows of a table are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those that the filter keeps.
    Kept,
    /// Those of work that was not launched in the ranges that are kept.
    Beside,
    /// Those that it keeps and those before and between: each batch says which are kept ([`Rows::is_kept`]).
    Throughout,
}

impl Trace {
    /// Hands every wanted row that the filter keeps to `each`. Files that cannot be read become problems.
    pub(crate) fn scan(&self, wants: &[Want], filter: &Filter, each: &mut dyn FnMut(&Rows)) {
        self.scan_shared(&[(wants, Reach::Kept)], filter, &mut |rows| each(&rows));
    }

    /// The same, for who hands rows on to other threads, and wants more than those that the filter keeps: batches of their own,
    /// that say so. Nothing lies beside where the filter keeps no ranges.
    pub(crate) fn scan_shared(&self, wants: &[(&[Want], Reach)], filter: &Filter, each: &mut dyn FnMut(Arc<Rows>)) {
        let some = |reach: Reach| reach != Reach::Beside || filter.projects();
        let some = wants.iter().filter(|(_, reach)| some(*reach));
        let tables = some.flat_map(|(wants, reach)| merge(wants, filter).into_iter().map(|of| (of, *reach)));
        let tables: Vec<_> = tables.collect();
        let read: Vec<TableId> = tables.iter().map(|((table, _), _)| *table).collect();
        counted::begin(&self.launchers, &read);
        for (number, launcher) in self.launchers.iter().enumerate() {
            let mut streams: Vec<(Stream<'_>, Option<Rows>)> = tables
                .iter()
                .map(|((table, columns), reach)| {
                    let mut stream = Stream::new(self, launcher, *table, columns.clone(), filter, *reach);
                    let first = stream.next();
                    (stream, first)
                })
                .collect();
            loop {
                let start =
                    |rows: &Option<Rows>| rows.as_ref().map(|r| r.i64("start_ns").first().copied().unwrap_or(0));
                let earliest =
                    streams.iter_mut().filter(|(_, rows)| rows.is_some()).min_by_key(|(_, rows)| start(rows));
                let Some((stream, rows)) = earliest else { break };
                if let Some(mut rows) = rows.take() {
                    rows.launcher = number;
                    each(Arc::new(rows));
                }
                *rows = stream.next();
            }
        }
        counted::end();
    }
}

/// Whether a table holds what the GPU did: a call lies inside of a range, and with it what it caused.
pub(super) fn work(table: TableId) -> bool {
    matches!(table, TableId::Kernels | TableId::DeviceCopies)
}

/// The columns of all wants, once per table; time and process always come along, for the filter and for the order.
fn merge(wants: &[Want], filter: &Filter) -> Vec<(TableId, Vec<&'static str>)> {
    let mut tables: Vec<(TableId, Vec<&'static str>)> = Vec::new();
    for want in wants {
        let index = tables.iter().position(|(t, _)| *t == want.table).unwrap_or_else(|| {
            let within = !filter.within.is_empty();
            let place = [
                (within, "tid"),
                (within && work(want.table), "correlation_id"),
                (filter.device.is_some() && want.table != TableId::Counters, "device"),
            ];
            let place = place.into_iter().filter(|(asked, _)| *asked).map(|(_, column)| column);
            let always = ["start_ns", "process_id"].into_iter().chain(place);
            let always = always.filter(|c| want.table.table().position(c).is_some());
            tables.push((want.table, always.collect()));
            tables.len() - 1
        });
        for column in want.columns {
            if !tables[index].1.contains(column) {
                tables[index].1.push(column);
            }
        }
    }
    tables
}
