//! Numbers that follow from a seed. Each property of a round is drawn from a stream of its own, named after it, so that a new
//! property leaves all others of an old seed what they were.

/// A stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    /// The stream of this name.
    pub(crate) fn of(seed: u64, name: &str) -> Draw {
        // FNV-1a: what a name comes to must be the same for ever.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Draw { state: seed ^ hash.rotate_left(17) }
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// From one to the other, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Whether it is one of so many in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub(crate) fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len() as u64) as usize]
    }

    /// One of these, each as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, all: &[(u64, T)]) -> T {
        let mut left = self.below(all.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in all {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return *one,
            }
        }
        all[0].1
    }
}

/// The seed of a round.
pub(crate) fn seed_of_round(master: u64, round: u64) -> u64 {
    // Short, so that it can be read out; 48 bits are enough never to meet twice.
    Draw::of(master.wrapping_add(round.wrapping_mul(0x9e37_79b9)), "round").next() >> 16
}

/// A seed that nobody chose.
pub(crate) fn new_master() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Draw::of(since.as_nanos() as u64 ^ u64::from(std::process::id()), "master").next() >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_the_same_for_ever() {
        // Seeds in the file `seeds` mean what they meant only as long as these are the numbers.
        let mut draw = Draw::of(42, "threads");
        assert_eq!([draw.next(), draw.next()], FIRST);
        assert_eq!(seed_of_round(1, 0), OF_ROUND);
    }

    const FIRST: [u64; 2] = [12_141_878_621_757_193_854, 14_003_705_346_215_235_963];
    const OF_ROUND: u64 = 223_749_491_600_483;

    #[test]
    fn streams_of_other_names_and_seeds_are_others() {
        let first = |seed, name| Draw::of(seed, name).next();
        let all = [first(1, "a"), first(1, "b"), first(2, "a"), first(2, "b")];
        let different: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(different.len(), 4);
    }

    #[test]
    fn rounds_have_seeds_of_their_own_that_one_can_read_out() {
        let seeds: std::collections::BTreeSet<_> = (0..10_000).map(|round| seed_of_round(7, round)).collect();
        assert!(seeds.len() == 10_000 && seeds.iter().all(|seed| *seed < 1 << 48));
    }

    #[test]
    fn what_is_drawn_lies_between_the_bounds_and_reaches_both() {
        let mut draw = Draw::of(3, "bounds");
        let drawn: std::collections::BTreeSet<_> = (0..1000).map(|_| draw.between(5, 9)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
        assert!((0..1000).all(|_| draw.weighted(&[(0, 'n'), (1, 'y')]) == 'y'));
        let fifth = (0..10_000).filter(|_| draw.chance(20)).count();
        assert!((1_800..2_200).contains(&fifth), "{fifth}");
        assert_eq!(*draw.one_of(&[&4]), 4);
    }
}
