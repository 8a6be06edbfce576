//! Launches that were drawn by chance, because others were left out to keep to a budget.

use gputrace_abi::shed::Shed;

/// How many launches a row stands for, by its `stands_for`: of a foreign trace no more than are ever left out beside one, so that sums of
/// times stay inside their numbers.
#[inline]
pub(crate) fn times(stands_for: i32) -> u32 {
    stands_for.clamp(1, 1 << Shed::MOST) as u32
}

/// The time of so many calls like one.
#[inline]
pub(crate) fn time_of(ns: i64, times: u32) -> i64 {
    ns.saturating_mul(i64::from(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_row_says_its_launch_stands_for_itself_and_for_no_more_than_are_left_out() {
        assert_eq!([i32::MIN, 0, 1, 64, i32::MAX].map(times), [1, 1, 1, 64, 1 << 16]);
        assert_eq!((time_of(7, 64), time_of(i64::MAX, 2)), (448, i64::MAX));
    }
}
