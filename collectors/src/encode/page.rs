//! Pages: levels and values, compressed, behind their header.

use std::io::Write;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};

use super::delta::varint;

/// What a column chunk is compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// Nothing.
    Plain,
    /// zstd level 1: level 3 saves 1 %, level 9 nothing more.
    Zstd,
}

/// Buffers that every column's pages pass through, and the compressor.
pub(crate) struct Press {
    /// The page before compression.
    pub(crate) plain: Vec<u8>,
    /// What pages are compressed with from now on.
    pub(crate) codec: Codec,
    compressor: zstd::bulk::Compressor<'static>,
}

impl Press {
    pub(crate) fn new() -> Result<Press> {
        let compressor = zstd::bulk::Compressor::new(1).map_err(|e| ParquetError::External(Box::new(e)))?;
        Ok(Press { plain: Vec::new(), codec: Codec::Zstd, compressor })
    }

    /// Compresses `plain` and appends it to `out` as a data page. Returns its uncompressed size with the header.
    pub(crate) fn data_page(&mut self, values: u32, encoding: Encoding, out: &mut Vec<u8>) -> Result<usize> {
        let buf = self.compress()?;
        let page = Page::DataPage {
            buf,
            num_values: values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        self.write(page, out)
    }

    /// Compresses `plain` and appends it to `out` as a dictionary page.
    pub(crate) fn dictionary_page(&mut self, values: u32, out: &mut Vec<u8>) -> Result<usize> {
        let buf = self.compress()?;
        let page = Page::DictionaryPage { buf, num_values: values, encoding: Encoding::PLAIN, is_sorted: false };
        self.write(page, out)
    }

    fn compress(&mut self) -> Result<Bytes> {
        match self.codec {
            Codec::Plain => Ok(Bytes::copy_from_slice(&self.plain)),
            Codec::Zstd => {
                let bytes = self.compressor.compress(&self.plain).map_err(|e| ParquetError::External(Box::new(e)))?;
                Ok(bytes.into())
            }
        }
    }

    fn write(&mut self, page: Page, out: &mut Vec<u8>) -> Result<usize> {
        let page = CompressedPage::new(page, self.plain.len());
        let mut sink = TrackedWrite::new(out);
        let written = SerializedPageWriter::new(&mut sink).write_page(page)?;
        sink.flush()?;
        Ok(written.uncompressed_size)
    }
}

/// Appends definition levels: which of `rows` values are there (`bits`, lowest first), or that all are.
pub(crate) fn levels(rows: usize, bits: Option<&[u8]>, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    match bits {
        None => {
            varint((rows as u64) << 1, out);
            out.push(1);
        }
        Some(bits) => {
            varint((rows.div_ceil(8) as u64) << 1 | 1, out);
            out.extend_from_slice(bits);
        }
    }
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

/// Values this many in a row are written as one run.
const RUN: usize = 512;

/// Appends dictionary numbers: a width, then runs of one number and stretches of one or two bytes a number.
///
/// The narrowest width would be a few bits; whole bytes let zstd find the pattern that a training step repeats.
pub(crate) fn numbers(numbers: &[u16], out: &mut Vec<u8>) {
    let wide = numbers.iter().fold(0, |all, n| all | n) > 0xff;
    let width = if wide { 16 } else { 8 };
    out.push(width);
    let alike = |part: &[u16]| part.first().is_some_and(|first| part.iter().all(|n| n == first));
    let mut rest = numbers;
    while !rest.is_empty() {
        let mut parts = rest.chunks(RUN).map(alike);
        let run = parts.next() == Some(true);
        let same = |part: usize| rest.get(part * RUN) == rest.first();
        let mut count = 1;
        for (n, part) in parts.enumerate() {
            if part != run || run && !same(n + 1) {
                break;
            }
            count += 1;
        }
        let (now, later) = rest.split_at((count * RUN).min(rest.len()));
        if run {
            varint((now.len() as u64) << 1, out);
            put(&now[..1], wide, out);
        } else {
            varint((now.len().div_ceil(8) as u64) << 1 | 1, out);
            put(now, wide, out);
            // A stretch consists of groups of eight; only the last one of a page may have values that nobody reads.
            let missing = now.len().next_multiple_of(8) - now.len();
            out.resize(out.len() + missing * usize::from(width) / 8, 0);
        }
        rest = later;
    }
}

fn put(numbers: &[u16], wide: bool, out: &mut Vec<u8>) {
    if wide {
        out.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
    } else {
        out.extend(numbers.iter().map(|n| *n as u8));
    }
}

/// Appends PLAIN of values of 4 or 8 bytes.
pub(crate) fn plain(values: &[u64], bytes: usize, out: &mut Vec<u8>) {
    match bytes {
        4 => out.extend(values.iter().flat_map(|v| (*v as u32).to_le_bytes())),
        _ => out.extend(values.iter().flat_map(|v| v.to_le_bytes())),
    }
}

/// Appends PLAIN of a text.
pub(crate) fn plain_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}
