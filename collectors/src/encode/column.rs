//! One column of one row group: values gathered into pages, pages into a chunk.

use arrow::array::{Array, AsArray, BooleanBufferBuilder};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type, UInt8Type};
use parquet::basic::{Compression, Encoding as ParquetEncoding};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::delta;
use super::dictionary::{Numbers, Texts};
use super::page::{self, Codec, Press};
use crate::schema::{Column, Encoding, Type};

/// So few rows are not compressed: a reader makes a zstd context for each column chunk, 40 us each, and a run of a short
/// command has little else to read.
const FEW_ROWS: usize = 64;

/// Values of the page that is being filled.
enum Values {
    /// Numbers of a dictionary of 64-bit values.
    Numbered(Vec<u16>, Numbers),
    /// Numbers of a dictionary of texts.
    NumberedTexts(Vec<u16>, Texts),
    /// 64-bit values (narrower ones sign extended).
    Wide(Vec<u64>),
    /// Booleans.
    Bits(BooleanBufferBuilder),
    /// Texts as PLAIN has them, and how many.
    Texts(Vec<u8>),
}

impl Values {
    fn new(column: &Column) -> Values {
        match (column.kind, column.encoding) {
            (Type::Bool, _) => Values::Bits(BooleanBufferBuilder::new(0)),
            (Type::Text, Encoding::Dictionary) => Values::NumberedTexts(Vec::new(), Texts::default()),
            (Type::Text, _) => Values::Texts(Vec::new()),
            (_, Encoding::Dictionary) => Values::Numbered(Vec::new(), Numbers::default()),
            _ => Values::Wide(Vec::new()),
        }
    }
}

/// The encoder of one column.
pub(crate) struct ColumnEncoder {
    column: &'static Column,
    descriptor: ColumnDescPtr,
    values: Values,
    /// Rows in the page that is being filled.
    page_rows: usize,
    /// Which of them have a value; empty as long as all have.
    present: BooleanBufferBuilder,
    least: i64,
    most: i64,
    nulls: u64,
    /// Finished pages.
    pages: Vec<u8>,
    rows: usize,
    uncompressed: usize,
    encodings: Vec<ParquetEncoding>,
    /// The dictionary of the pages so far, where a column has left its dictionary.
    left: Option<Values>,
}

impl ColumnEncoder {
    pub(crate) fn new(column: &'static Column, descriptor: ColumnDescPtr) -> ColumnEncoder {
        ColumnEncoder {
            column,
            descriptor,
            values: Values::new(column),
            page_rows: 0,
            present: BooleanBufferBuilder::new(0),
            least: i64::MAX,
            most: i64::MIN,
            nulls: 0,
            pages: Vec::new(),
            rows: 0,
            uncompressed: 0,
            encodings: vec![ParquetEncoding::RLE],
            left: None,
        }
    }

    /// Bytes of the finished pages.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len()
    }

    /// Takes the values of a batch.
    pub(crate) fn append(&mut self, array: &dyn Array) -> Result<()> {
        self.append_levels(array);
        let all = array.null_count() == 0;
        match self.column.kind {
            Type::I64 => {
                let array = array.as_primitive_opt::<Int64Type>().ok_or_else(|| self.wrong_type())?;
                if all {
                    self.wide(array.values(), |v| *v as u64)
                } else {
                    self.sparse(array.iter())
                }
                Ok(())
            }
            Type::I32 => {
                let array = array.as_primitive_opt::<Int32Type>().ok_or_else(|| self.wrong_type())?;
                let some = array.iter().map(|v| v.map(i64::from));
                if all {
                    self.wide(array.values(), |v| i64::from(*v) as u64)
                } else {
                    self.sparse(some)
                }
                Ok(())
            }
            Type::F64 => {
                let array = array.as_primitive_opt::<Float64Type>().ok_or_else(|| self.wrong_type())?;
                let some = array.iter().map(|v| v.map(|v| v.to_bits() as i64));
                if all {
                    self.wide(array.values(), |v| v.to_bits())
                } else {
                    self.sparse(some)
                }
                Ok(())
            }
            Type::Bool => {
                let array = array.as_boolean_opt().ok_or_else(|| self.wrong_type())?;
                if let Values::Bits(bits) = &mut self.values {
                    array.iter().flatten().for_each(|bit| bits.append(bit));
                }
                Ok(())
            }
            Type::Text => self.append_texts(array),
        }
    }

    fn wrong_type(&self) -> ParquetError {
        ParquetError::General(format!("column {} is not {}", self.column.name, self.column.kind.name()))
    }

    fn append_levels(&mut self, array: &dyn Array) {
        let rows = array.len();
        match array.nulls().filter(|n| n.null_count() > 0) {
            Some(nulls) => {
                self.present.append_n(self.page_rows - self.present.len(), true);
                self.present.append_buffer(nulls.inner());
                self.nulls += nulls.null_count() as u64;
            }
            None if !self.present.is_empty() => self.present.append_n(rows, true),
            None => {}
        }
        self.page_rows += rows;
        self.rows += rows;
    }

    fn sparse(&mut self, values: impl Iterator<Item = Option<i64>>) {
        let there: Vec<i64> = values.flatten().collect();
        self.wide(&there, |v| *v as u64)
    }

    /// The hot path: values of one batch, all of them there.
    #[inline(always)]
    fn wide<T: Copy + PartialEq>(&mut self, slice: &[T], bits: impl Fn(&T) -> u64) {
        if let Values::Numbered(numbers, dictionary) = &mut self.values {
            let Some(first) = slice.first() else { return };
            let Some(mut number) = dictionary.number(bits(first)) else { return self.leave(slice, bits) };
            // Most columns have one value in a whole batch.
            if slice.iter().all(|v| v == first) {
                numbers.resize(numbers.len() + slice.len(), number);
                return;
            }
            let mut last = bits(first);
            numbers.reserve(slice.len());
            for (n, value) in slice.iter().enumerate() {
                let value = bits(value);
                if value != last {
                    let Some(found) = dictionary.number(value) else {
                        return self.leave(slice.get(n..).unwrap_or(&[]), bits);
                    };
                    (last, number) = (value, found);
                }
                numbers.push(number);
            }
        } else if let Values::Wide(values) = &mut self.values {
            let (mut least, mut most) = (self.least, self.most);
            values.extend(slice.iter().map(|v| {
                let v = bits(v);
                least = least.min(v as i64);
                most = most.max(v as i64);
                v
            }));
            (self.least, self.most) = (least, most);
        }
    }

    /// The dictionary is full: ends this page with what it holds, and goes on without one.
    #[cold]
    fn leave<T: Copy + PartialEq>(&mut self, rest: &[T], bits: impl Fn(&T) -> u64) {
        // A page has whole rows, so this page is turned into plain values; the earlier ones keep the dictionary.
        let mut wide: Vec<u64> = Vec::new();
        if let Values::Numbered(numbers, dictionary) = &self.values {
            wide.extend(numbers.iter().filter_map(|n| dictionary.values().get(usize::from(*n))));
        }
        self.left = Some(std::mem::replace(&mut self.values, Values::Wide(wide)));
        self.wide(rest, bits)
    }

    fn append_texts(&mut self, array: &dyn Array) -> Result<()> {
        if let Some(coded) = array.as_dictionary_opt::<UInt8Type>() {
            let texts = coded.values().as_string_opt::<i32>().ok_or_else(|| self.wrong_type())?;
            if let Values::NumberedTexts(numbers, dictionary) = &mut self.values {
                // A batch brings its own few texts; a full dictionary cannot happen with them.
                let known: Vec<u16> = texts.iter().map(|t| dictionary.number(t.unwrap_or("")).unwrap_or(0)).collect();
                let number = |key: u8| known.get(usize::from(key)).copied().unwrap_or(0);
                if coded.null_count() == 0 {
                    numbers.extend(coded.keys().values().iter().map(|key| number(*key)));
                } else {
                    numbers.extend(coded.keys().iter().flatten().map(number));
                }
                return Ok(());
            }
            let text = |key: u8| if texts.is_valid(usize::from(key)) { texts.value(usize::from(key)) } else { "" };
            return coded.keys().iter().flatten().try_for_each(|key| self.append_text(text(key)));
        }
        let texts = array.as_string_opt::<i32>().ok_or_else(|| self.wrong_type())?;
        texts.iter().flatten().try_for_each(|text| self.append_text(text))
    }

    fn append_text(&mut self, text: &str) -> Result<()> {
        match &mut self.values {
            Values::NumberedTexts(numbers, dictionary) => match dictionary.number(text) {
                Some(number) => numbers.push(number),
                None => {
                    let mut plain = Vec::new();
                    for number in numbers.iter() {
                        let known = dictionary.values().get(usize::from(*number));
                        page::plain_text(known.map_or("", |t| t), &mut plain);
                    }
                    page::plain_text(text, &mut plain);
                    self.left = Some(std::mem::replace(&mut self.values, Values::Texts(plain)));
                }
            },
            Values::Texts(plain) => page::plain_text(text, plain),
            _ => return Err(self.wrong_type()),
        }
        Ok(())
    }

    /// Width of a value in PLAIN.
    fn value_bytes(&self) -> usize {
        if self.column.kind == Type::I32 { 4 } else { 8 }
    }

    /// Ends the page that is being filled.
    pub(crate) fn end_page(&mut self, press: &mut Press) -> Result<()> {
        if self.page_rows == 0 {
            return Ok(());
        }
        press.plain.clear();
        if self.column.nullable {
            let bits = (!self.present.is_empty()).then(|| self.present.as_slice());
            page::levels(self.page_rows, bits, &mut press.plain);
            self.present = BooleanBufferBuilder::new(0);
        }
        let bytes = self.value_bytes();
        let encoding = match &mut self.values {
            Values::Numbered(numbers, _) | Values::NumberedTexts(numbers, _) => {
                page::numbers(numbers, &mut press.plain);
                numbers.clear();
                ParquetEncoding::RLE_DICTIONARY
            }
            Values::Wide(values) => {
                let encoding = match self.column.encoding {
                    Encoding::Delta => {
                        delta::encode(values, &mut press.plain);
                        ParquetEncoding::DELTA_BINARY_PACKED
                    }
                    Encoding::Plain | Encoding::Dictionary => {
                        page::plain(values, bytes, &mut press.plain);
                        ParquetEncoding::PLAIN
                    }
                };
                values.clear();
                encoding
            }
            Values::Bits(bits) => {
                press.plain.extend_from_slice(bits.as_slice());
                *bits = BooleanBufferBuilder::new(0);
                ParquetEncoding::PLAIN
            }
            Values::Texts(plain) => {
                press.plain.append(plain);
                ParquetEncoding::PLAIN
            }
        };
        if !self.encodings.contains(&encoding) {
            self.encodings.push(encoding);
        }
        self.uncompressed += press.data_page(self.page_rows as u32, encoding, &mut self.pages)?;
        self.page_rows = 0;
        Ok(())
    }

    /// Ends the column: appends its chunk to `out`, which begins at `offset` of the file, and describes it.
    pub(crate) fn finish(mut self, offset: u64, out: &mut Vec<u8>, press: &mut Press) -> Result<ColumnChunkMetaData> {
        press.codec = if self.rows <= FEW_ROWS { Codec::Plain } else { Codec::Zstd };
        self.end_page(press)?;
        let start = offset + out.len() as u64;
        let dictionary = self.left.as_ref().unwrap_or(&self.values);
        press.plain.clear();
        let entries = match dictionary {
            Values::Numbered(_, numbers) => {
                page::plain(numbers.values(), self.value_bytes(), &mut press.plain);
                for value in numbers.values() {
                    self.least = self.least.min(*value as i64);
                    self.most = self.most.max(*value as i64);
                }
                Some(numbers.values().len())
            }
            Values::NumberedTexts(_, texts) => {
                texts.values().iter().for_each(|t| page::plain_text(t, &mut press.plain));
                Some(texts.values().len())
            }
            _ => None,
        };
        let has_pages = self.encodings.contains(&ParquetEncoding::RLE_DICTIONARY);
        if let Some(entries) = entries.filter(|_| has_pages) {
            self.uncompressed += press.dictionary_page(entries as u32, out)?;
            self.encodings.push(ParquetEncoding::PLAIN);
            self.encodings.dedup();
        }
        let data = offset + out.len() as u64;
        out.append(&mut self.pages);
        let compressed = offset + out.len() as u64 - start;
        let compression = match std::mem::replace(&mut press.codec, Codec::Zstd) {
            Codec::Plain => Compression::UNCOMPRESSED,
            Codec::Zstd => Compression::ZSTD(Default::default()),
        };
        let builder = ColumnChunkMetaData::builder(self.descriptor.clone())
            .set_compression(compression)
            .set_encodings(self.encodings.clone())
            .set_num_values(self.rows as i64)
            .set_total_compressed_size(compressed as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_data_page_offset(data as i64)
            .set_dictionary_page_offset((data > start).then_some(start as i64));
        match self.statistics() {
            Some(statistics) => builder.set_statistics(statistics),
            None => builder,
        }
        .build()
    }

    /// Least and greatest value, by which readers skip row groups.
    fn statistics(&self) -> Option<Statistics> {
        let (least, most, nulls) = (self.least, self.most, Some(self.nulls));
        if least > most {
            return None;
        }
        match self.column.kind {
            Type::I64 => Some(Statistics::int64(Some(least), Some(most), None, nulls, false)),
            Type::I32 => Some(Statistics::int32(Some(least as i32), Some(most as i32), None, nulls, false)),
            _ => None,
        }
    }
}
