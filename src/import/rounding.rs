//! What a thread does lies side by side or one inside the other; by rounded times the end of one may be a hair behind the
//! begin of the next, or behind the end of what it lies in.
//!
//! Microseconds since 1970 are a quarter of one apart where a profiler has them as floating point numbers, and some profilers
//! write whole ones. Taken as they stand, a step would lie inside of the one before it, and an operator would hold its caller.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::events::Range;

/// By so much a time may be wrong.
const NS: i64 = 1_000;

/// Whether what began before `until`, within something that ends then, lies inside of it.
pub(super) fn is_inside((start, end): (i64, i64), until: i64) -> bool {
    end <= until || end - until <= NS && until - start > NS
}

/// Puts the ends of ranges where they must have been, for ranges in the order of their begin, the outer first. `thread`: of
/// those that nest.
pub(super) fn straighten<T: Eq + Hash>(ranges: &mut [Range], thread: impl Fn(&Range) -> Option<T>) {
    // The places of those that have not ended, the innermost last.
    let mut open: FxHashMap<T, Vec<usize>> = FxHashMap::default();
    for place in 0..ranges.len() {
        let range = ranges[place];
        let Some(thread) = thread(&range) else { continue };
        let open = open.entry(thread).or_default();
        while let Some(outer) = open.last().map(|outer| &mut ranges[*outer]) {
            let over = outer.end_ns.min(range.end_ns) - range.start_ns;
            if outer.end_ns <= range.start_ns {
                open.pop();
            } else if outer.end_ns >= range.end_ns {
                break;
            } else if is_inside((range.start_ns, range.end_ns), outer.end_ns) {
                ranges[place].end_ns = outer.end_ns;
                break;
            } else if over <= NS {
                outer.end_ns = range.start_ns;
            } else {
                // Ranges that cross for longer are none of one thread's; they stay as they are.
                break;
            }
        }
        open.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranges of one thread after they were put right.
    fn straight(ranges: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let range = |(start_ns, end_ns): &(i64, i64)| Range {
            start_ns: *start_ns,
            end_ns: *end_ns,
            named: 0,
            level: -1,
            external: None,
        };
        let mut ranges: Vec<Range> = ranges.iter().map(range).collect();
        straighten(&mut ranges, |_| Some(1));
        ranges.iter().map(|range| (range.start_ns, range.end_ns)).collect()
    }

    #[test]
    fn ends_that_are_a_hair_late_are_put_where_they_were() {
        // A step after another one; and what lies in a step and ends behind it.
        assert_eq!(straight(&[(0, 10_001), (10_000, 20_000)]), [(0, 10_000), (10_000, 20_000)]);
        assert_eq!(straight(&[(0, 10_000), (4_000, 10_250)]), [(0, 10_000), (4_000, 10_000)]);
        // Both at once: of the step that ended late the last operator did so too.
        let late = [(0, 10_250), (4_000, 10_500), (10_000, 20_000), (10_100, 12_000)];
        assert_eq!(straight(&late), [(0, 10_000), (4_000, 10_000), (10_000, 20_000), (10_100, 12_000)]);
    }

    #[test]
    fn what_is_not_late_by_rounding_stays_as_it_is() {
        for whole in
            [&[(0, 10_000), (2_000, 3_000), (2_500, 2_600), (10_000, 20_000)][..], &[(0, 10_000), (5_000, 15_000)]]
        {
            assert_eq!(straight(whole), whole);
        }
    }
}
