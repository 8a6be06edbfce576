//! What sampled mode says of bytes is right on average, and as far off as it may be.

use std::collections::HashMap;

use crate::util::{Row, Scratch, count, program};

/// Traffic in blocks of one size; the estimate must lie within five standard deviations of what Poisson sampling of bytes
/// has: variance n s^2 (1 - p) / p, with p = 1 - exp(-s / mean).
#[track_caller]
fn estimate_is_right(blocks: u32, bytes: u32, mean: u32) {
    let scratch = Scratch::new();
    let target = scratch.target(program("mallocs")).args(["traffic", &blocks.to_string(), &bytes.to_string()]);
    // An event that found no room would be missing in the estimate, on a busy machine.
    let run = target.options(["--malloc", &format!("sample={mean}"), "--on-full", "block"]).traced().expect(0);
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

/// Two hundred threads draw two hundred times: what each is said to have allocated, and to have left alive, lies within three
/// standard errors as often as it must, and all together are not off to one side.
#[test]
fn estimates_of_many_seeds_lie_within_their_error_and_their_mean_is_the_truth() {
    const MEAN: f64 = 8192.0;
    const SEEDS: usize = 200;
    let scratch = Scratch::new();
    let target = scratch.target(program("malloc_seeds")).arg(SEEDS.to_string());
    // 200,000 samples in a moment: more than the rings hold, where the collector has to wait for a processor.
    let run = target.options(["--malloc", "sample=8K", "--on-full", "block"]).traced().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    assert_eq!(count(&trace.root(), "host_alloc").dropped, 0);
    let mut found: HashMap<i64, [f64; 2]> = HashMap::new();
    let table = trace.table("host_memory");
    let ours = |row: &Row<'_>| [1025, 1200, 1900, 5000].contains(&row.int("bytes"));
    for row in table.rows().filter(ours) {
        let [allocated, live] = found.entry(row.int("tid")).or_default();
        let weight = row.float("weight_bytes");
        let frees = row.text("action") == "free";
        *allocated += if frees { 0.0 } else { weight };
        *live += if frees { -weight } else { weight };
    }
    // In standard errors: how far each estimate is off.
    let mut off: [Vec<f64>; 2] = Default::default();
    for line in run.text().lines() {
        let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        let estimates = found[&(numbers[0] as i64)];
        for (what, off) in off.iter_mut().enumerate() {
            let (mut truth, mut variance) = (0.0, 0.0);
            for counted in numbers[1..].chunks(3) {
                let (s, n) = (counted[0], counted[1 + what]);
                let p = 1.0 - (-s / MEAN).exp();
                truth += n * s;
                variance += n * s * s * (1.0 - p) / p;
            }
            assert!(variance.sqrt() < 0.1 * truth, "the test proves nothing");
            off.push((estimates[what] - truth) / variance.sqrt());
        }
    }
    for (off, what) in off.iter().zip(["allocated", "live"]) {
        assert_eq!(off.len(), SEEDS);
        let within = off.iter().filter(|off| off.abs() <= 3.0).count();
        assert!(within * 100 >= 97 * SEEDS, "{what}: {within} of {SEEDS} within three standard errors");
        let mean = off.iter().sum::<f64>() / SEEDS as f64;
        let error = mean * (SEEDS as f64).sqrt();
        // Three would be exceeded by chance in one run of 370.
        assert!(error.abs() < 5.0, "{what}: the mean is off by {error} of its own standard errors");
        let spread = (off.iter().map(|off| off * off).sum::<f64>() / SEEDS as f64).sqrt();
        assert!((0.75..1.25).contains(&spread), "{what}: spread {spread} of what is stated");
    }
}

/// What --max-size removed is missing, in the numbers of the report too.
#[test]
fn what_the_size_limit_removed_is_a_share_of_the_events_that_is_not_here() {
    let scratch = Scratch::new();
    let target = scratch.target(program("mallocs")).args(["traffic", "300000", "100"]);
    let run = target.options(["--malloc", "full", "--malloc-stacks", "off", "--max-size", "64K"]).traced().expect(0);
    let rows = run.read().table("host_memory").len() as f64;
    // Wherever the line is broken.
    let said = run.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("in the rows that --max-size left"), "{said}");
    let folder = run.trace.display().to_string();
    let json = scratch.gputrace(&["report", &folder, "--only", "host-memory", "--format", "json"]).expect(0).text();
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let kept = report["analyses"]["host-memory"]["facts"]["kept_percent"].as_f64().expect("a number");
    let accounts = [count(&run.read().root(), "host_alloc"), count(&run.read().root(), "host_free")];
    let recorded: u64 = accounts.iter().map(|account| account.recorded).sum();
    assert!(recorded >= 600_000 && rows < 600_000.0, "{rows} rows of {recorded}: nothing was removed");
    assert!((kept - 100.0 * rows / recorded as f64).abs() < 1e-6, "{kept} %: {rows} of {recorded}");
}
