//! Long steps that come at even distances: a wait, a line of log, an evaluation, a checkpoint every so many steps.
//!
//! Whether they belong to the usual step is another question. Those of up to twice the median do, and those that come so often
//! that nobody would call them out of the ordinary: every eighth step or more often, ten times and more. A longer one that is
//! rarer is an outlier, which is told by its distance, unless it only waits for the work that the others gave: a host that runs
//! ahead of the GPU has short steps that hardly wait, and a long one that does ([`super::super::collected`]).
//!
//! A loop of a few calls is hardly a step. Where every so many turns of it one is long, as regularly as clockwork, those from one long
//! one to the next are the step ([`turns`]): eight products, and then the data of the next eight are waited for.

use super::quantile;

/// Long steps are at even distances where so many distances, and this share of them, are the same.
const EVEN: usize = 3;
const EVEN_SHARE: f64 = 0.8;
/// A step is long that takes more than so many times the median: as one that is no warm-up.
pub(super) const CALM: f64 = 1.3;
/// An outlier takes more than so many times the median.
pub(super) const OUTLIER: i64 = 2;
/// So often come long steps that are no outliers however long they are, and as many times.
const OFTEN: usize = 8;
const TIMES: usize = 10;

/// Long steps at even distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rhythm {
    /// Every so many steps there is one.
    pub(crate) every: usize,
    /// How long one is at most.
    pub(super) longest_ns: i64,
    /// They belong to the usual step.
    pub(crate) usual: bool,
}

/// The median distance of these places, which are in order, and the share of the distances that are the same.
fn usual_distance(places: &[usize]) -> Option<(usize, f64)> {
    let mut distances: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_unstable();
    let every = *distances.get(distances.len() / 2)?;
    let even = distances.iter().filter(|distance| **distance == every).count();
    Some((every, even as f64 / distances.len() as f64))
}

/// The rhythm of steps of these lengths, if they have one.
pub(super) fn rhythm(lengths: &[i64], median_ns: i64) -> Option<Rhythm> {
    let limits = [(CALM * median_ns as f64) as i64, median_ns.saturating_mul(OUTLIER)];
    // Where some steps in between are a little longer than most, the far longer ones may still be even.
    limits.into_iter().find_map(|limit| {
        let long: Vec<usize> = (0..lengths.len()).filter(|step| lengths[*step] > limit).collect();
        let (every, even) = usual_distance(&long).filter(|_| long.len() > EVEN)?;
        if every < 2 || even < EVEN_SHARE {
            return None;
        }
        let mut longest: Vec<i64> = long.iter().map(|step| lengths[*step]).collect();
        longest.sort_unstable();
        let long_ns = quantile(&longest, 0.5);
        let often = every <= OFTEN && long.len() >= TIMES;
        let usual = often || long_ns <= median_ns.saturating_mul(OUTLIER);
        Some(Rhythm { every, longest_ns: (CALM * long_ns as f64) as i64, usual })
    })
}

/// Turns of tiny loops are parts of a step that has so many of them at most, and of which there are so many.
const PARTS: usize = 128;
const STEPS: usize = 10;
/// As regular as clockwork: this share of the distances is the same.
const CLOCKWORK: f64 = 0.95;

/// Where the steps end that these turns of a tiny loop are parts of: places among them, the ends of long turns. None: the turns
/// are no parts of anything.
pub(super) fn turns(lengths: &[i64]) -> Option<Vec<usize>> {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let limit = (CALM * quantile(&sorted, 0.5) as f64) as i64;
    let ends: Vec<usize> = (0..lengths.len()).filter(|turn| lengths[*turn] > limit).map(|turn| turn + 1).collect();
    let (every, even) = usual_distance(&ends)?;
    ((2..=PARTS).contains(&every) && ends.len() > STEPS && even >= CLOCKWORK).then_some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: usize, long: impl Fn(usize) -> Option<i64>) -> Option<(usize, bool)> {
        let lengths: Vec<i64> = (0..steps).map(|step| long(step).unwrap_or(100)).collect();
        rhythm(&lengths, 100).map(|rhythm| (rhythm.every, rhythm.usual))
    }

    #[test]
    fn turns_of_a_tiny_loop_are_parts_of_a_step_where_one_in_so_many_is_long() {
        let lengths =
            |every: usize| (0..400).map(move |turn| if turn % every == 3 { 3000 } else { 172 + turn as i64 % 5 });
        let ends = turns(&lengths(8).collect::<Vec<_>>()).expect("parts");
        assert_eq!((ends.len(), &ends[..3]), (50, &[4, 12, 20][..]));
        assert_eq!(turns(&lengths(200).collect::<Vec<_>>()), None, "too rare");
        let mut uneven: Vec<i64> = lengths(8).collect();
        (0..400).step_by(24).for_each(|turn| uneven[turn] = 900);
        assert_eq!(turns(&uneven), None);
        assert_eq!(turns(&[100; 400]), None);
    }

    #[test]
    fn what_is_rare_and_far_longer_is_no_usual_step_however_even_its_distances() {
        let every = |k: usize, ns: i64| move |step: usize| (step % k == k - 1).then_some(ns);
        assert_eq!(of(104, every(25, 2_500)), Some((25, false)), "four of a hundred");
        assert_eq!(of(2_000, every(100, 2_500)), Some((100, false)), "twenty of two thousand");
        assert_eq!(of(104, every(25, 180)), Some((25, true)), "hardly longer");
        assert_eq!(of(104, every(4, 300)), Some((4, true)), "an optimizer every four steps");
        assert_eq!(of(32, every(8, 300)), Some((8, false)), "four times");
        assert_eq!(of(104, |step| [3, 17, 50, 91].contains(&step).then_some(900)), None);
        assert_eq!(
            of(104, |step| every(25, 900)(step).or((step % 7 == 3 || step % 11 == 5).then_some(150))),
            Some((25, false))
        );
    }
}
