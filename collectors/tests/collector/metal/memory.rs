//! Buffers of Metal: what takes memory, and what gives it back.

use super::{COPY, record, table};
use crate::rows::{texts, values};

#[test]
fn each_free_has_the_size_of_its_block_however_many_there_are_at_once() {
    const BUFFERS: u64 = 6_000;
    let folder = record("metal-pool", |one, two| {
        for round in 0..3 {
            for buffer in 0..BUFFERS {
                let bytes = (round + 1) * 4096 + buffer;
                one.call("[MTLDevice newBufferWithLength:options:]", [0x10_0000 + 64 * buffer, 0, 0, bytes]);
            }
            // Another thread gives them all back, one after the other, and the addresses come again.
            for buffer in 0..BUFFERS {
                two.call("[MTLBuffer dealloc]", [0x10_0000 + 64 * buffer, 0, 0, 0]);
            }
        }
    });
    let memory = table(&folder, "device_memory");
    let of = |action: &str| -> Vec<i64> {
        let rows = texts(&memory, "action").into_iter().zip(values(&memory, "bytes"));
        let mut bytes: Vec<i64> = rows.filter(|(of, _)| of == action).map(|(_, bytes)| bytes).collect();
        bytes.sort();
        bytes
    };
    assert_eq!(of("alloc").len() as u64, 3 * BUFFERS);
    assert!(of("alloc") == of("free"), "{} frees", of("free").len());
}

#[test]
fn what_metal_refuses_has_failed_and_sizes_are_such_that_readers_believe_them() {
    let folder = record("metal-refused", |one, _| {
        one.call("[MTLDevice newBufferWithLength:options:]", [0, 0, 0, 1 << 60]);
        one.call("[MTLDevice newBufferWithLength:options:]", [0x50, 0, 0, 1 << 60]);
        one.call("[MTLBuffer dealloc]", [0x50, 0, 0, 0]);
        one.call(COPY, [0x60, 0x1010, 0x50, u64::MAX >> 1]);
        // Levels of a texture that nobody has: of no format that is known.
        one.call(COPY, [0x60, 0x1010, 0x50, u64::MAX]);
    });
    let memory = table(&folder, "device_memory");
    assert_eq!(values(&memory, "bytes"), [1 << 50; 3]);
    assert_eq!(values(&memory, "result"), [1, 0, 0]);
    assert_eq!(values(&table(&folder, "transfers"), "bytes"), [1 << 50, 0]);
}
