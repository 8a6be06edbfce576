//! What sampled mode says of bytes is right on average, and as far off as it may be.

use crate::util::{Scratch, count, program};

/// Traffic in blocks of one size; the estimate must lie within five standard deviations of what Poisson sampling of bytes
/// has: variance n s^2 (1 - p) / p, with p = 1 - exp(-s / mean).
#[track_caller]
fn estimate_is_right(blocks: u32, bytes: u32, mean: u32) {
    let scratch = Scratch::new();
    let target = scratch.target(program("mallocs")).args(["traffic", &blocks.to_string(), &bytes.to_string()]);
    let run = target.options(["--malloc", &format!("sample={mean}")]).traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let table = trace.table("host_memory");
    let ours = table.rows().filter(|row| row.text("action") == "alloc" && row.int("bytes") == i64::from(bytes));
    let estimate: f64 = ours.map(|row| row.float("weight_bytes")).sum();
    let (n, s) = (f64::from(blocks), f64::from(bytes));
    let p = 1.0 - (-s / f64::from(mean)).exp();
    let deviation = s * (n * (1.0 - p) / p).sqrt();
    let off = (estimate - n * s).abs();
    assert!(off <= 5.0 * deviation, "estimate {estimate} of {}, off by {} deviations", n * s, off / deviation);
    // So tight that a wrong logarithm (10 % low was seen elsewhere) cannot pass.
    assert!(5.0 * deviation < 0.1 * n * s, "the test proves nothing");
    assert_eq!(count(&trace.root(), "host_alloc").dropped, 0);
}

#[test]
fn the_estimate_of_sampled_bytes_is_unbiased_for_small_blocks() {
    estimate_is_right(2_000_000, 1_000, 65_536);
}

#[test]
fn the_estimate_of_sampled_bytes_is_unbiased_for_blocks_of_the_means_size() {
    estimate_is_right(20_000, 524_288, 524_288);
}

#[test]
fn the_estimate_of_sampled_bytes_is_unbiased_in_between() {
    estimate_is_right(100_000, 65_000, 524_288);
}
