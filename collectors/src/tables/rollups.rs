//! Rows of `rollups` and `rollup_names`.

use super::columns::{Coded, Optional, Plain, Rows, Texts, take};
use crate::rollups::{Kind, Level, Row};
use crate::schema::TableId;
use crate::writer::Message;

/// Columns of either table.
struct RollupColumns {
    rows: Rows,
    front: [Plain<i64>; 3],
    pid: Plain<i32>,
    class: Coded,
    ids: [Optional<i64>; 3],
    context: Plain<i32>,
    device: Optional<i32>,
    stream: Optional<i64>,
    /// Events, errors, timed, total, bytes.
    sums: [Plain<i64>; 5],
    least_ns: Optional<i64>,
    most_ns: Optional<i64>,
    durations: Texts,
}

impl RollupColumns {
    fn new() -> RollupColumns {
        RollupColumns {
            rows: Rows::default(),
            front: Default::default(),
            pid: Plain::default(),
            class: Coded::new(&Kind::texts()),
            ids: Default::default(),
            context: Plain::default(),
            device: Optional::default(),
            stream: Optional::default(),
            sums: Default::default(),
            least_ns: Optional::default(),
            most_ns: Optional::default(),
            durations: Texts::default(),
        }
    }

    fn push(&mut self, row: &Row, period_ns: i64) {
        let (key, stats) = (&row.key, &row.stats);
        self.rows.count += 1;
        self.front.iter_mut().zip([row.start_ns, period_ns, key.process_id]).for_each(|(c, value)| c.push(value));
        self.pid.push(key.pid);
        self.class.push(key.kind.0);
        self.ids.iter_mut().zip([key.api_id, key.name_id, key.stack_id]).for_each(|(c, value)| c.push(value));
        self.context.push(key.context);
        self.device.push(key.device);
        self.stream.push(key.stream);
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let sums = [count(stats.events), count(stats.errors), count(stats.timed), stats.total_ns, stats.bytes];
        self.sums.iter_mut().zip(sums).for_each(|(c, value)| c.push(value));
        self.least_ns.push((stats.timed > 0).then_some(stats.least_ns));
        self.most_ns.push((stats.timed > 0).then_some(stats.most_ns));
        self.durations.push(Some(&stats.durations.text()));
    }

    fn take(&mut self, table: TableId) -> Option<Message> {
        let [start, period, process] = &mut self.front;
        let mut columns = take![*start, *period, *process, self.pid, self.class];
        let [api, name, stack] = &mut self.ids;
        columns.extend(take![*api]);
        // Both are emptied; one table has them.
        let names = take![*name, *stack];
        columns.extend(names.into_iter().filter(|_| table == TableId::RollupNames));
        let [events, errors, timed, total, bytes] = &mut self.sums;
        columns.extend(take![self.context, self.device, self.stream, *events, *errors, *timed, *total]);
        columns.extend(take![self.least_ns, self.most_ns, *bytes, self.durations]);
        self.rows.batch(table, columns)
    }
}

/// A batch of these sums, if there are any.
fn batch(table: TableId, period_ns: i64, rows: impl IntoIterator<Item = Row>) -> Option<Message> {
    let mut columns = RollupColumns::new();
    rows.into_iter().for_each(|row| columns.push(&row, period_ns));
    if columns.rows.count == 0 { None } else { columns.take(table) }
}

/// Rows of the periods that are over; and before them, for the journal, those of the open ones, in which what is over is no
/// longer: whoever is stopped between the two has each event once at most.
pub(super) fn take(table: TableId, level: &mut Level) -> Vec<Message> {
    let over = batch(table, level.period_ns, level.take());
    let live = over.is_some().then(|| live(table, level)).flatten();
    live.into_iter().chain(over).collect()
}

/// Rows of the open periods, for the journal.
pub(super) fn live(table: TableId, level: &Level) -> Option<Message> {
    let mut columns = RollupColumns::new();
    level.open().for_each(|row| columns.push(&row, level.period_ns));
    match columns.take(table)? {
        Message::Rows(table, batch, _) => Some(Message::Live(table, batch)),
        _ => None,
    }
}
