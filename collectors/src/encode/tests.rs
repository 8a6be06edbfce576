//! What is written here is read back by parquet's own reader.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt8Array,
    UInt8DictionaryArray,
};
use arrow::datatypes::{Field, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;

use super::*;
use crate::schema::{Column, TABLES, TableId, Type};

/// A generator of values with the patterns that columns have: constant, few, growing, anything.
struct Pattern(u64);

impl Pattern {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn values(&mut self, rows: usize) -> Vec<i64> {
        let (kind, base) = (self.next() % 5, self.next() as i64);
        let value = |n: usize, random: u64| match kind {
            0 => base,
            1 => base.wrapping_add((random % 300) as i64),
            2 => base.wrapping_add(n as i64 * 1000 + (random % 900) as i64),
            3 => random as i64,
            _ => base.wrapping_add((n / 700) as i64),
        };
        (0..rows).map(|n| value(n, self.next())).collect()
    }

    fn column(&mut self, column: &Column, rows: usize) -> ArrayRef {
        let values = self.values(rows);
        let nulls = column.nullable && self.next().is_multiple_of(2);
        let there: Vec<bool> = values.iter().map(|_| !nulls || !self.next().is_multiple_of(3)).collect();
        let some = values.iter().zip(&there).map(|(v, there)| there.then_some(*v));
        match column.kind {
            Type::I64 => Arc::new(some.collect::<Int64Array>()),
            Type::I32 => Arc::new(some.map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
            Type::F64 => Arc::new(some.map(|v| v.map(|v| v as f64)).collect::<Float64Array>()),
            Type::Bool => Arc::new(some.map(|v| v.map(|v| v & 1 == 0)).collect::<BooleanArray>()),
            Type::Text if self.next().is_multiple_of(2) => {
                let texts: ArrayRef = Arc::new(StringArray::from(vec!["copy", "", "stream_wait"]));
                let keys: UInt8Array = some.map(|v| v.map(|v| (v.unsigned_abs() % 3) as u8)).collect();
                Arc::new(UInt8DictionaryArray::new(keys, texts))
            }
            Type::Text => Arc::new(some.map(|v| v.map(|v| format!("name {v}"))).collect::<StringArray>()),
        }
    }

    fn batch(&mut self, table: &Table, rows: usize) -> RecordBatch {
        let columns: Vec<ArrayRef> = table.columns.iter().map(|c| self.column(c, rows)).collect();
        let field = |(c, a): (&Column, &ArrayRef)| Field::new(c.name, a.data_type().clone(), c.nullable);
        let fields: Vec<Field> = table.columns.iter().zip(&columns).map(field).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }
}

/// The batch in the types of the file.
fn flat(batch: &RecordBatch, table: &Table) -> RecordBatch {
    let flat = |array: &ArrayRef| match array.as_any().downcast_ref::<UInt8DictionaryArray>() {
        Some(coded) => {
            let texts: &StringArray = coded.values().as_any().downcast_ref().unwrap();
            let text = |key: Option<u8>| key.map(|k| texts.value(usize::from(k)));
            Arc::new(coded.keys().iter().map(text).collect::<StringArray>()) as ArrayRef
        }
        None => array.clone(),
    };
    RecordBatch::try_new(plain_schema(table), batch.columns().iter().map(flat).collect()).unwrap()
}

fn plain_schema(table: &Table) -> Arc<Schema> {
    let field = |c: &Column| Field::new(c.name, c.kind.arrow(), c.nullable);
    Arc::new(Schema::new(table.columns.iter().map(field).collect::<Vec<_>>()))
}

fn read(file: Vec<u8>, table: &Table) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
    let batches: Vec<RecordBatch> = reader.with_batch_size(1 << 20).build().unwrap().map(Result::unwrap).collect();
    let schema = plain_schema(table);
    let batches: Vec<RecordBatch> =
        batches.into_iter().map(|b| RecordBatch::try_new(schema.clone(), b.columns().to_vec()).unwrap()).collect();
    concat(&schema, &batches)
}

fn concat(schema: &Arc<Schema>, batches: &[RecordBatch]) -> RecordBatch {
    let columns = (0..schema.fields().len()).map(|i| {
        let parts: Vec<_> = batches.iter().map(|b| b.column(i).to_data()).collect();
        let mut all = arrow::array::MutableArrayData::new(parts.iter().collect(), false, 0);
        parts.iter().enumerate().for_each(|(n, part)| all.try_extend(n, 0, part.len()).unwrap());
        arrow::array::make_array(all.freeze())
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).unwrap()
}

fn check(table: &'static Table, seed: u64, sizes: &[usize]) {
    let mut pattern = Pattern(seed | 1);
    let batches: Vec<RecordBatch> = sizes.iter().map(|rows| pattern.batch(table, *rows)).collect();
    let descriptor = describe(table).unwrap();
    let file = image(table, &descriptor, &batches, &[], &mut Press::new().unwrap()).unwrap();
    let wanted: Vec<RecordBatch> = batches.iter().map(|b| flat(b, table)).collect();
    let wanted = concat(&plain_schema(table), &wanted);
    let got = read(file, table);
    assert_eq!(got.num_rows(), wanted.num_rows());
    for (n, column) in table.columns.iter().enumerate() {
        assert_eq!(got.column(n), wanted.column(n), "{}.{}, seed {seed}, sizes {sizes:?}", table.name, column.name);
    }
}

#[test]
fn every_table_is_read_back_over_several_pages() {
    for (n, table) in TABLES.iter().enumerate() {
        check(table, 77 + n as u64, &[20_000, 1, 14_000, 511, 513, 8]);
    }
}

#[test]
fn every_table_is_read_back_with_few_rows() {
    for (n, table) in TABLES.iter().enumerate() {
        for sizes in [&[1][..], &[60, 4], &[60, 5]] {
            check(table, 7 + n as u64, sizes);
        }
    }
}

#[test]
fn a_column_with_too_many_values_leaves_its_dictionary() {
    for seed in [3, 33, 333] {
        check(TableId::Launches.table(), seed, &[30_000; 4]);
        check(TableId::Names.table(), seed, &[30_000; 2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_rows_are_read_back(table in 0..TABLES.len(), seed: u64, sizes in prop::collection::vec(1usize..2000, 1..6)) {
        check(&TABLES[table], seed, &sizes);
    }
}
