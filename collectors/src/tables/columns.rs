//! Columns that grow by a value and become Arrow arrays without a copy, and batches of them.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, BooleanBufferBuilder, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    UInt8Array, UInt8DictionaryArray, new_null_array,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{Field, Schema, SchemaRef};
use gputrace_abi::Class;

use crate::schema::{IMPORTED_ONLY, TableId};
use crate::share::{Share, add};
use crate::writer::Message;

/// A column on its way into a batch.
pub(crate) trait Column {
    /// The values so far, as an array; the column is empty afterwards.
    fn take(&mut self) -> ArrayRef;
}

/// Values that are always there.
#[derive(Default)]
pub(crate) struct Plain<T>(Vec<T>);

impl<T> Plain<T> {
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        self.0.push(value);
    }

    fn empty(&mut self) -> Vec<T> {
        // The next batch will be about as long.
        let next = Vec::with_capacity(self.0.len());
        std::mem::replace(&mut self.0, next)
    }
}

/// Values that may be missing.
pub(crate) struct Optional<T> {
    values: Plain<T>,
    there: BooleanBufferBuilder,
    missing: usize,
}

impl<T: Default> Default for Optional<T> {
    fn default() -> Optional<T> {
        Optional { values: Plain(Vec::new()), there: BooleanBufferBuilder::new(0), missing: 0 }
    }
}

impl<T: Default> Optional<T> {
    #[inline]
    pub(crate) fn push(&mut self, value: Option<T>) {
        self.there.append(value.is_some());
        self.missing += usize::from(value.is_none());
        self.values.push(value.unwrap_or_default());
    }

    fn empty(&mut self) -> (Vec<T>, Option<NullBuffer>) {
        let there = self.there.finish();
        let nulls = (self.missing > 0).then(|| NullBuffer::new(there));
        self.missing = 0;
        (self.values.empty(), nulls)
    }
}

macro_rules! numbers {
    ($($type:ty => $array:ty),*) => {$(
        impl Column for Plain<$type> {
            fn take(&mut self) -> ArrayRef {
                Arc::new(<$array>::new(ScalarBuffer::from(self.empty()), None))
            }
        }

        impl Column for Optional<$type> {
            fn take(&mut self) -> ArrayRef {
                let (values, nulls) = self.empty();
                Arc::new(<$array>::new(ScalarBuffer::from(values), nulls))
            }
        }
    )*};
}

numbers!(i64 => Int64Array, i32 => Int32Array, f64 => Float64Array);

/// Booleans.
pub(crate) struct Flags(BooleanBufferBuilder);

impl Default for Flags {
    fn default() -> Flags {
        Flags(BooleanBufferBuilder::new(0))
    }
}

impl Flags {
    #[inline]
    pub(crate) fn push(&mut self, value: bool) {
        self.0.append(value);
    }
}

impl Column for Flags {
    fn take(&mut self) -> ArrayRef {
        Arc::new(BooleanArray::new(self.0.finish(), None))
    }
}

/// Texts out of a fixed list, by their place in it. A dictionary array in memory only; files hold plain texts.
pub(crate) struct Coded {
    keys: Vec<u8>,
    texts: ArrayRef,
    /// Place that stands for a missing value.
    none: u8,
    missing: bool,
}

impl Coded {
    pub(crate) fn new(texts: &[&str]) -> Coded {
        Coded {
            keys: Vec::new(),
            texts: Arc::new(StringArray::from(texts.to_vec())),
            none: texts.len() as u8,
            missing: false,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, key: u8) {
        self.keys.push(key);
    }

    #[inline]
    pub(crate) fn push_none(&mut self) {
        self.missing = true;
        self.keys.push(self.none);
    }

    #[inline]
    pub(crate) fn push_some(&mut self, key: Option<u8>) {
        match key {
            Some(key) => self.push(key),
            None => self.push_none(),
        }
    }
}

impl Column for Coded {
    fn take(&mut self) -> ArrayRef {
        let next = Vec::with_capacity(self.keys.len());
        let mut keys = std::mem::replace(&mut self.keys, next);
        let nulls = self.missing.then(|| NullBuffer::from_iter(keys.iter().map(|k| *k < self.none)));
        self.missing = false;
        for key in &mut keys {
            if *key >= self.none {
                *key = 0;
            }
        }
        Arc::new(UInt8DictionaryArray::new(UInt8Array::new(ScalarBuffer::from(keys), nulls), self.texts.clone()))
    }
}

/// Texts of any kind; for tables with few rows.
#[derive(Default)]
pub(crate) struct Texts(Vec<Option<String>>);

impl Texts {
    pub(crate) fn push(&mut self, text: Option<&str>) {
        self.0.push(text.map(str::to_owned));
    }
}

impl Column for Texts {
    fn take(&mut self) -> ArrayRef {
        Arc::new(std::mem::take(&mut self.0).into_iter().collect::<StringArray>())
    }
}

/// Rows, whose they are, and the schema that their batches have.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) count: usize,
    shares: Vec<Share>,
    schema: Option<SchemaRef>,
}

impl Rows {
    #[inline]
    pub(super) fn add(&mut self, process_id: i64, class: Class) {
        self.add_events(process_id, class, 1);
    }

    /// A row that stands for so many events: where it is lost they all are.
    #[inline]
    pub(super) fn add_events(&mut self, process_id: i64, class: Class, events: u64) {
        self.count += 1;
        let class = class as u8;
        match self.shares.last_mut() {
            Some(last) if last.process_id == process_id && last.class == class => last.rows += events,
            _ => add(&mut self.shares, Share { process_id, class, rows: events, culled: 0 }),
        }
    }

    /// The same where no column says how many events that are: the row has a share of its own, in the order of the rows.
    pub(super) fn add_apart(&mut self, process_id: i64, class: Class, events: u64) {
        self.count += 1;
        self.shares.push(Share { process_id, class: class as u8, rows: events, culled: 0 });
    }

    /// A row that sums so many allocations and their frees.
    pub(super) fn add_culled(&mut self, process_id: i64, allocations: u64) {
        self.count += 1;
        for class in [Class::HostAlloc, Class::HostFree] {
            add(&mut self.shares, Share { process_id, class: class as u8, rows: 0, culled: allocations });
        }
    }

    pub(super) fn batch(&mut self, table: TableId, mut columns: Vec<ArrayRef>) -> Option<Message> {
        let about = table.table().columns;
        if let Some(last) = about.get(columns.len()).filter(|column| column.name == IMPORTED_ONLY) {
            columns.push(new_null_array(&last.kind.arrow(), self.count));
        }
        let schema = self.schema.get_or_insert_with(|| {
            let fields = about.iter().zip(&columns);
            Arc::new(Schema::new(
                fields.map(|(c, a)| Field::new(c.name, a.data_type().clone(), c.nullable)).collect::<Vec<_>>(),
            ))
        });
        self.count = 0;
        let batch = RecordBatch::try_new(schema.clone(), columns);
        debug_assert!(batch.is_ok(), "{}: {batch:?}", table.table().name);
        Some(Message::Rows(table, batch.ok()?, std::mem::take(&mut self.shares)))
    }
}

/// The columns, emptied, as arrays.
macro_rules! take {
    ($($column:expr),* $(,)?) => { vec![$($crate::tables::columns::Column::take(&mut $column)),*] };
}
pub(super) use take;
