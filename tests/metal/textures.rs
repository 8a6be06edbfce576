//! Copies of parts of textures have the bytes of their pixels, by each kind of encoder.

use super::{assert_command_buffers, each, sorted};

#[test]
fn parts_of_textures_are_copies_with_the_bytes_of_their_pixels() {
    each("metal_every.m", &["textures"], |run| {
        let table = run.trace.table("transfers");
        let seen: Vec<_> = sorted(&table, "start_ns")
            .iter()
            .map(|row| (row.int("bytes"), row.text("direction"), row.int("async") == 1, row.int("stream") != 0))
            .collect();
        // Four bytes a pixel: 16 x 3 and 4 x 5 from the host, 8 x 5, two levels of two slices, 2 x 7 and 3 x 3 to the host.
        let expected = [
            (192, "HtoD", false, false),
            (80, "HtoD", false, false),
            (160, "DtoD", true, true),
            (2 * (4096 + 1024), "DtoD", true, true),
            (56, "DtoH", false, false),
            (36, "DtoH", false, false),
        ];
        assert_eq!(seen, expected, "{}", run.who);
        assert_command_buffers(run);
    });
}

#[test]
fn encoders_of_metal_4_copy_textures_and_take_sizes_of_dispatches_from_memory() {
    each("metal_every.m", &["encoder4"], |run| {
        let table = run.trace.table("transfers");
        let seen: Vec<_> = sorted(&table, "start_ns").iter().map(|row| (row.int("bytes"), row.int("async"))).collect();
        // 4 rows of 64 in 2 images, 5 rows of 64, 8 x 5 pixels, two levels of two slices, a texture as it lies in memory.
        assert_eq!(seen, [77, 78, 512, 320, 160, 2 * (4096 + 1024), 16384].map(|bytes| (bytes, 1)), "{}", run.who);
        let dispatches = run.trace.table("dispatches");
        let kinds: Vec<_> = sorted(&dispatches, "start_ns").iter().map(|row| row.text("kind").to_owned()).collect();
        assert_eq!(kinds, ["indirect", "indirect", "commands", "commands"], "{}", run.who);
        assert!(dispatches.rows().all(|row| row.maybe_int("correlation_id").is_some()), "{}", run.who);
        assert_command_buffers(run);
    });
}
