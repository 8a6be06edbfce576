//! Whether two sets of samples differ by more than the runs' own spread.
//!
//! The samples are a quantity of single steps. Two-sided Mann-Whitney U test with correction for ties and continuity
//! ([`statrs`]), p below [`LEVEL`] divided by the number of tests of the same kind (Bonferroni), and a difference of at least
//! [`SMALLEST`]. Samples of one run know its own spread; what differs from run to run for other reasons they do not.

use statrs::stats_tests::Alternative;
use statrs::stats_tests::mannwhitneyu::{MannWhitneyUMethod, mannwhitneyu};

/// Errors in so many of 1 comparisons, where nothing differs.
const LEVEL: f64 = 0.01;
/// A smaller difference is none, however certain.
const SMALLEST: f64 = 0.01;
/// Fewer samples say nothing of spread.
pub(super) const FEWEST: usize = 8;

/// A quantity in the steps of two traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compared {
    /// The middle of it before, and after; the mean where the middle does not differ.
    pub(super) values: (f64, f64),
    /// They are means, and not the middle too.
    pub(super) mean: bool,
    /// Whether it differs beyond the spread; none where there are too few steps.
    pub(super) beyond: Option<bool>,
}

/// Compares the samples of one of `tests` quantities.
pub(super) fn compare(before: &[f64], after: &[f64], tests: usize) -> Compared {
    let medians = (median(before), median(after));
    let values = if medians.0 == medians.1 { (mean(before), mean(after)) } else { medians };
    Compared { values, mean: values != medians, beyond: beyond(before, after, values, tests) }
}

fn beyond(before: &[f64], after: &[f64], values: (f64, f64), tests: usize) -> Option<bool> {
    if before.len().min(after.len()) < FEWEST {
        return None;
    }
    let least = SMALLEST * values.0.abs().max(values.1.abs());
    if values.0 == values.1 || (values.1 - values.0).abs() < least {
        return Some(false);
    }
    let method = MannWhitneyUMethod::AsymptoticInclContinuityCorrection;
    let (_, p) = mannwhitneyu(before, after, method, Alternative::TwoSided).ok()?;
    Some(p < LEVEL / tests.max(1) as f64)
}

fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(before: &[f64], after: &[f64]) -> f64 {
        let method = MannWhitneyUMethod::AsymptoticInclContinuityCorrection;
        mannwhitneyu(before, after, method, Alternative::TwoSided).unwrap().1
    }

    #[test]
    fn the_test_is_the_one_that_scipy_has() {
        // The example of scipy.stats.mannwhitneyu, method="asymptotic": p = 0.11134688653314041.
        let (males, females) = ([19.0, 22.0, 16.0, 29.0, 24.0], [20.0, 11.0, 17.0, 12.0]);
        assert!((p(&males, &females) - 0.111_346_886_533_140_41).abs() < 1e-9, "{}", p(&males, &females));
        // With ties, as scipy has it too.
        let tied = p(&[1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0], &[3.0, 4.0, 4.0, 5.0, 5.0, 6.0, 7.0, 7.0, 8.0]);
        assert!((tied - 0.006_373_133_838_085_873).abs() < 1e-9, "{tied}");
    }

    #[test]
    fn noise_is_within_the_spread_and_a_shift_is_beyond_it() {
        let noise = |seed: u64, shift: f64| -> Vec<f64> {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f64 / (1u64 << 24) as f64
            };
            (0..300).map(|_| 1000.0 + shift + 100.0 * next()).collect()
        };
        assert_eq!(compare(&noise(1, 0.0), &noise(2, 0.0), 10).beyond, Some(false));
        assert_eq!(compare(&noise(1, 0.0), &noise(2, 30.0), 10).beyond, Some(true));
        assert_eq!(compare(&noise(1, 0.0), &noise(1, 0.0), 10).beyond, Some(false));
        assert_eq!(compare(&noise(1, 0.0)[..5], &noise(2, 900.0), 1).beyond, None, "too few");
        assert_eq!(
            compare(&[7.0; 50], &[7.0; 50], 1),
            Compared { values: (7.0, 7.0), mean: false, beyond: Some(false) }
        );
        assert_eq!(
            compare(&[7.0; 50], &[8.0; 50], 1),
            Compared { values: (7.0, 8.0), mean: false, beyond: Some(true) }
        );
        let now_and_then: Vec<f64> = (0..100).map(|i| f64::from(u8::from(i % 3 == 0))).collect();
        let means = Compared { values: (0.0, 0.34), mean: true, beyond: Some(true) };
        assert_eq!(compare(&[0.0; 100], &now_and_then, 1), means);
    }
}
