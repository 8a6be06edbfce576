//! Batches in a few bytes a row: Arrow's own format, compressed. A row of `launches` takes 150 bytes in memory and repeats most of
//! what the one before it says, so that a queue of packed ones reaches several times further back.

use std::io::Cursor;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

/// zstd's fastest usual level.
const LEVEL: i32 = 1;

/// Packs batches.
pub(super) struct Packer(Option<zstd::bulk::Compressor<'static>>);

/// A packed batch.
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// Bytes before they were compressed.
    length: usize,
}

impl Packer {
    pub(super) fn new() -> Packer {
        Packer(zstd::bulk::Compressor::new(LEVEL).ok())
    }

    /// None: it cannot be done, for want of memory.
    pub(super) fn pack(&mut self, rows: &RecordBatch) -> Option<Packed> {
        let compressor = self.0.as_mut()?;
        let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema()).ok()?;
        writer.write(rows).ok()?;
        let plain = writer.into_inner().ok()?;
        let mut bytes = compressor.compress(&plain).ok()?;
        bytes.shrink_to_fit();
        Some(Packed { bytes, length: plain.len() })
    }
}

impl Packed {
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + size_of::<Packed>()
    }

    /// The batch as it was.
    pub(super) fn unpack(&self) -> Option<RecordBatch> {
        let plain = zstd::bulk::decompress(&self.bytes, self.length).ok()?;
        StreamReader::try_new(Cursor::new(plain), None).ok()?.next()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{HostCall, Range, RangeKind, Tables};
    use crate::writer::Message;

    #[test]
    fn a_packed_batch_is_the_same_afterwards_and_takes_less_room() {
        let mut tables = Tables::new();
        let range = Range {
            start_ns: 0,
            end_ns: None,
            process_id: 1,
            pid: 1,
            tid: 1,
            correlation_id: 1,
            kind: RangeKind::Mark,
            name_id: Some(5),
            domain_id: None,
            level: None,
            category: None,
            category_id: None,
            color: None,
            payload_int: None,
            payload_float: Some(0.5),
        };
        for start_ns in 0..4000 {
            tables.range(&Range { start_ns, end_ns: (start_ns % 3 == 0).then_some(start_ns + 7), ..range });
            tables.host(&HostCall { start_ns, address: start_ns * 64, ..HostCall::default() });
        }
        let mut packer = Packer::new();
        let mut packed = 0;
        for message in tables.take(1) {
            let Message::Rows(_, rows, _) = message else { continue };
            let small = packer.pack(&rows).unwrap();
            assert!(small.bytes() * 4 < rows.get_array_memory_size(), "{}", small.bytes());
            assert_eq!(small.unpack().unwrap(), rows);
            packed += 1;
        }
        assert_eq!(packed, 2);
    }
}
