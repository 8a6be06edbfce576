//! A batch cut into the rows that are wanted and the others, with each part's share of the account.
//!
//! Shares are counted anew for the wanted rows, from the columns that say what class a row's event is of and how many events it
//! stands for; the others have what is left of the whole. So the two add up, whatever stands in the columns.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::compute::{filter_record_batch, not};
use arrow::datatypes::{Int64Type, UInt8Type};
use gputrace_abi::Class;

use crate::names::NameKind;
use crate::schema::TableId;
use crate::share::{Share, add};

/// Rows of one table, and whose events they are.
pub(super) struct Part {
    table: TableId,
    rows: RecordBatch,
    shares: Vec<Share>,
    span: (i64, i64),
}

impl Part {
    pub(super) fn new(table: TableId, rows: RecordBatch, shares: Vec<Share>) -> Part {
        let starts = starts(&rows);
        let span = starts.iter().fold((i64::MAX, i64::MIN), |(first, last), at| (first.min(*at), last.max(*at)));
        Part { table, rows, shares, span }
    }

    pub(super) fn table(&self) -> TableId {
        self.table
    }

    pub(super) fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    pub(super) fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Begin of its first and of its last row.
    pub(super) fn span(&self) -> (i64, i64) {
        self.span
    }

    pub(super) fn bytes(&self) -> usize {
        self.rows.get_array_memory_size()
    }

    pub(super) fn into_parts(self) -> (TableId, RecordBatch, Vec<Share>) {
        (self.table, self.rows, self.shares)
    }

    /// The rows that began when it is wanted, and the others; `may`: whether any in this span are.
    pub(super) fn split(
        self,
        may: impl Fn((i64, i64)) -> bool,
        wants: impl Fn(i64) -> bool,
    ) -> (Option<Part>, Option<Part>) {
        if !may(self.span) {
            return (None, Some(self));
        }
        let wanted: BooleanArray = starts(&self.rows).iter().map(|at| Some(wants(*at))).collect();
        match wanted.true_count() {
            0 => return (None, Some(self)),
            all if all == self.rows.num_rows() => return (Some(self), None),
            _ => {}
        }
        let parts = not(&wanted).and_then(|others| {
            Ok((filter_record_batch(&self.rows, &wanted)?, filter_record_batch(&self.rows, &others)?))
        });
        // Only a defect of ours can do this: then all of it is kept.
        let Ok((kept, others)) = parts else { return (Some(self), None) };
        let (of_kept, of_others) = self.divide(&wanted);
        (Some(Part::new(self.table, kept, of_kept)), Some(Part::new(self.table, others, of_others)))
    }

    /// The account of the wanted rows, and of the others.
    fn divide(&self, wanted: &BooleanArray) -> (Vec<Share>, Vec<Share>) {
        if let Some(each) = self.share_by_row() {
            let (kept, others): (Vec<_>, Vec<_>) = each.iter().enumerate().partition(|(row, _)| wanted.value(*row));
            let shares = |part: Vec<(usize, &Share)>| part.into_iter().map(|(_, share)| *share).collect();
            return (shares(kept), shares(others));
        }
        let mut kept = Vec::new();
        let events = Events::new(self.table, &self.rows, &self.shares);
        (0..self.rows.num_rows()).filter(|row| wanted.value(*row)).for_each(|row| events.of(row, &mut kept));
        let mut others = Vec::new();
        for all in &self.shares {
            let same = |s: &&mut Share| s.process_id == all.process_id && s.class == all.class;
            let Some(part) = kept.iter_mut().find(same) else {
                others.push(*all);
                continue;
            };
            (part.rows, part.culled) = (part.rows.min(all.rows), part.culled.min(all.culled));
            let (rows, culled) = (all.rows - part.rows, all.culled - part.culled);
            if rows + culled > 0 {
                others.push(Share { rows, culled, ..*all });
            }
        }
        (kept, others)
    }

    /// Where no column says how many events a row stands for, there is a share for each row, in their order.
    fn share_by_row(&self) -> Option<&[Share]> {
        (self.table == TableId::CommandBuffers && self.shares.len() == self.rows.num_rows()).then_some(&self.shares)
    }
}

/// What the rows of a batch are events of.
struct Events<'a> {
    table: TableId,
    processes: &'a [i64],
    shares: &'a [Share],
    /// The column that tells classes of one table apart.
    what: Option<Texts<'a>>,
    calls: &'a [i64],
    end_ns: Option<&'a ArrayRef>,
}

impl<'a> Events<'a> {
    fn new(table: TableId, rows: &'a RecordBatch, shares: &'a [Share]) -> Events<'a> {
        let what = match table {
            TableId::Api => "class",
            TableId::Ranges => "kind",
            _ => "action",
        };
        Events {
            table,
            processes: numbers(rows, "process_id"),
            shares,
            what: Texts::of(rows, what),
            calls: numbers(rows, "calls"),
            end_ns: rows.column_by_name("end_ns"),
        }
    }

    /// Adds the events that a row stands for.
    fn of(&self, row: usize, to: &mut Vec<Share>) {
        let Some(&process_id) = self.processes.get(row) else { return };
        let what = self.what.as_ref().map_or("", |texts| texts.get(row));
        let mut count = |class: Class, rows: u64, culled: u64| {
            add(to, Share { process_id, class: class as u8, rows, culled });
        };
        match self.table {
            TableId::Api => count(Class::named(what).unwrap_or(Class::Api), 1, 0),
            TableId::DeviceMemory => count(if what == "free" { Class::Free } else { Class::Alloc }, 1, 0),
            TableId::HostMemory => {
                let calls = self.calls.get(row).map_or(0, |calls| (*calls).max(0) as u64);
                match what {
                    "culled" => {
                        count(Class::HostAlloc, 0, calls);
                        count(Class::HostFree, 0, calls);
                    }
                    "free" | "unmap" => count(Class::HostFree, calls, 0),
                    _ => count(Class::HostAlloc, calls, 0),
                }
            }
            TableId::Ranges => {
                let ended = self.end_ns.is_some_and(|end| end.is_valid(row));
                count(Class::Range, 1 + u64::from(what != "mark" && ended), 0);
            }
            // Of one class in each process.
            _ => {
                if let Some(share) = self.shares.iter().find(|share| share.process_id == process_id) {
                    add(to, Share { rows: 1, culled: 0, ..*share });
                }
            }
        }
    }
}

/// A column of texts out of a fixed list.
pub(super) struct Texts<'a> {
    keys: &'a [u8],
    texts: &'a StringArray,
}

impl<'a> Texts<'a> {
    pub(super) fn of(rows: &'a RecordBatch, column: &str) -> Option<Texts<'a>> {
        let column = rows.column_by_name(column)?.as_dictionary_opt::<UInt8Type>()?;
        Some(Texts { keys: column.keys().values(), texts: column.values().as_string_opt::<i32>()? })
    }

    pub(super) fn get(&self, row: usize) -> &'a str {
        let key = self.keys.get(row).map(|key| usize::from(*key));
        key.filter(|key| *key < self.texts.len()).map_or("", |key| self.texts.value(key))
    }
}

fn starts(rows: &RecordBatch) -> &[i64] {
    numbers(rows, "start_ns")
}

/// Ids and names of this kind in rows of `names`.
pub(super) fn names(rows: &RecordBatch, kind: NameKind) -> impl Iterator<Item = (i64, &str)> {
    let text = |column: &str| rows.column_by_name(column).and_then(|column| column.as_string_opt::<i32>());
    let both = text("kind").zip(text("name")).into_iter().flat_map(|(kinds, names)| kinds.iter().zip(names));
    let all = numbers(rows, "name_id").iter().zip(both);
    all.filter(move |(_, (of, _))| *of == Some(kind.name())).filter_map(|(id, (_, name))| Some((*id, name?)))
}

/// The values of a column of numbers that are always there.
pub(super) fn numbers<'a>(rows: &'a RecordBatch, column: &str) -> &'a [i64] {
    let column = rows.column_by_name(column).and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.map_or(&[], |column| column.values())
}
