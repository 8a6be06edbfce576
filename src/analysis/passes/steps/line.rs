//! Boundaries of steps on a line of time, and in which step a moment lies.

/// Where steps begin, in order, and last where the last one ends.
#[derive(Debug, Default)]
pub(super) struct Line(Vec<i64>);

impl Line {
    /// Boundaries, which must be in order.
    pub(super) fn new(boundaries: Vec<i64>) -> Line {
        Line(boundaries)
    }

    /// How long each step takes.
    pub(super) fn lengths(&self) -> impl ExactSizeIterator<Item = i64> {
        self.each().map(|(_, ns)| ns)
    }

    /// When each step begins and how long it takes.
    pub(super) fn each(&self) -> impl ExactSizeIterator<Item = (i64, i64)> {
        self.0.windows(2).map(|pair| (pair[0], pair[1] - pair[0]))
    }

    /// Number of steps.
    pub(super) fn steps(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// The begin of a step, or the end of the last one.
    #[inline]
    pub(super) fn boundary(&self, step: usize) -> Option<i64> {
        self.0.get(step).copied()
    }

    /// The begin of the first step.
    pub(super) fn first(&self) -> Option<i64> {
        self.0.first().copied()
    }

    /// The end of the last step.
    pub(super) fn last(&self) -> Option<i64> {
        self.0.last().copied()
    }

    /// From the begin of one step to the end of another, as far as there are steps.
    pub(super) fn between(&self, first: usize, last: usize) -> Option<(i64, i64)> {
        let end = last.saturating_add(1).min(self.steps());
        (first < end).then(|| (self.0[first], self.0[end]))
    }

    /// These steps alone.
    pub(super) fn only(&self, first: usize, last: usize) -> Option<Line> {
        let end = last.saturating_add(1).min(self.steps());
        (first < end).then(|| Line(self.0[first..=end].to_vec()))
    }

    /// The step in which a moment lies; `hint`: where one lay before.
    #[inline]
    pub(super) fn index(&self, hint: &mut usize, at: i64) -> Option<usize> {
        let times = &self.0;
        let holds = |i: usize| times.get(i).is_some_and(|t| *t <= at) && times.get(i + 1).is_some_and(|t| at < *t);
        if !holds(*hint) {
            *hint = if holds(*hint + 1) {
                *hint + 1
            } else {
                match times.partition_point(|t| *t <= at) {
                    0 => return None,
                    after if after == times.len() => return None,
                    after => after - 1,
                }
            };
        }
        Some(*hint)
    }
}
