//! Whether a quantity that changes now and then grows from step to step: a line through its value at the end of each, by
//! least squares, kept as sums.
//!
//! The value stays as it is between changes, so a change adds the steps since the last one in one go. Both halves of the
//! steps have sums of their own: what fills up once and stays, as caches do, grows in one of them only.

/// The steps, or slices of time, over which growth is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The first that counts: those before are warm-up.
    pub(crate) first: usize,
    /// One past the last.
    pub(crate) end: usize,
}

/// Fewer steps tell nothing.
pub(crate) const FEWEST: usize = 10;
/// Standard errors that a slope must be away from none. Values of steps next to each other are alike, so that the error is
/// larger than it is computed: more than the usual two or three are asked for.
pub(crate) const ERRORS: f64 = 6.0;
/// The part of the whole's slope that each half must have.
const EACH_HALF: f64 = 0.4;

/// A value over the steps, so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    /// The step up to which it was added up.
    at: usize,
    /// Its first value, from which it is counted so that no digits are lost.
    base: Option<f64>,
    halves: [Sums; 2],
}

/// What a line through points is computed from.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: f64,
    x: f64,
    xx: f64,
    y: f64,
    xy: f64,
    yy: f64,
}

/// How a value grows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Slope {
    /// By how much, each step.
    pub(crate) each: f64,
    /// How many standard errors that is.
    pub(crate) errors: f64,
    /// What that means.
    pub(crate) trend: Trend,
}

/// What a line through a value says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trend {
    /// It grew all the time, and by more than chance would have it.
    Steady,
    /// It is the same at the end as at the begin, or less.
    #[default]
    None,
    /// It is more, but swings by so much that this may be chance.
    Unsure,
    /// It grew in the first half and hardly in the second: it filled up.
    FirstHalf,
    /// It grew in the second half and hardly in the first: not for long yet.
    SecondHalf,
    /// It grew in neither by itself: in a jump between them.
    Jump,
}

impl Slope {
    /// Whether it grew all the time, and by more than chance would have it.
    pub(crate) fn is_steady(&self) -> bool {
        self.trend == Trend::Steady
    }
}

impl Growth {
    /// The value was this one until the step in which it changes now, or to the end.
    pub(crate) fn until(&mut self, step: usize, value: f64, span: Span) {
        let (from, to) = (self.at.max(span.first), step.min(span.end));
        self.at = self.at.max(step);
        if from >= to {
            return;
        }
        let value = value - *self.base.get_or_insert(value);
        let middle = span.first.midpoint(span.end).clamp(from, to);
        for (half, (from, to)) in self.halves.iter_mut().zip([(from, middle), (middle, to)]) {
            half.add((from - span.first) as f64, (to - span.first) as f64, value);
        }
    }

    /// The line through all of it, once it was told until the end.
    pub(crate) fn slope(&self, span: Span) -> Option<Slope> {
        let [first, second] = &self.halves;
        if span.end < span.first + FEWEST || self.at < span.end {
            return None;
        }
        let (each, errors) = first.and(second).line()?;
        let halves = [first, second].map(|half| half.line().map_or(0.0, |(each, _)| each) >= EACH_HALF * each);
        let trend = match halves {
            _ if each <= 0.0 => Trend::None,
            _ if errors < ERRORS => Trend::Unsure,
            [true, true] => Trend::Steady,
            [true, false] => Trend::FirstHalf,
            [false, true] => Trend::SecondHalf,
            [false, false] => Trend::Jump,
        };
        Some(Slope { each, errors, trend })
    }
}

impl Sums {
    /// Adds one value for the steps from one to before another.
    fn add(&mut self, from: f64, to: f64, value: f64) {
        let squares = |n: f64| (n - 1.0) * n * (2.0 * n - 1.0) / 6.0;
        let (n, x) = (to - from, (to - from) * (from + to - 1.0) / 2.0);
        self.n += n;
        self.x += x;
        self.xx += squares(to) - squares(from);
        self.y += n * value;
        self.xy += x * value;
        self.yy += n * value * value;
    }

    fn and(&self, other: &Sums) -> Sums {
        Sums {
            n: self.n + other.n,
            x: self.x + other.x,
            xx: self.xx + other.xx,
            y: self.y + other.y,
            xy: self.xy + other.xy,
            yy: self.yy + other.yy,
        }
    }

    /// Slope, and how many standard errors it is.
    fn line(&self) -> Option<(f64, f64)> {
        const MOST_ERRORS: f64 = 1e6;
        let (sxx, sxy) = (self.xx - self.x * self.x / self.n, self.xy - self.x * self.y / self.n);
        if self.n < 3.0 || sxx <= 0.0 {
            return None;
        }
        let syy = (self.yy - self.y * self.y / self.n).max(0.0);
        let (each, rest) = (sxy / sxx, syy - sxy * sxy / sxx);
        // A straight line leaves nothing but what rounding does.
        if rest <= 1e-9 * syy {
            return Some((each, if each == 0.0 { 0.0 } else { MOST_ERRORS.copysign(each) }));
        }
        Some((each, (each / (rest / (self.n - 2.0) / sxx).sqrt()).clamp(-MOST_ERRORS, MOST_ERRORS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { first: 10, end: 110 };

    /// Of a value at the end of each step.
    fn of(value: impl Fn(usize) -> f64) -> Slope {
        let (mut growth, mut now) = (Growth::default(), 0.0);
        for step in 0..SPAN.end {
            if value(step) != now {
                growth.until(step, now, SPAN);
                now = value(step);
            }
        }
        growth.until(SPAN.end, now, SPAN);
        growth.slope(SPAN).expect("enough steps")
    }

    #[test]
    fn a_value_that_grows_with_each_step_has_its_slope_whatever_warm_up_did() {
        let slope = of(|step| if step < 9 { 5e9 } else { 64.0 * step as f64 });
        assert!((slope.each - 64.0).abs() < 1e-6 && slope.is_steady(), "{slope:?}");
        let every_tenth = of(|step| 640.0 * (step / 10) as f64);
        assert!((every_tenth.each - 64.0).abs() < 1.0 && every_tenth.is_steady(), "{every_tenth:?}");
    }

    #[test]
    fn what_stays_shrinks_swings_or_fills_up_once_does_not_grow() {
        let trend = |value: fn(usize) -> f64| of(value).trend;
        assert_eq!(trend(|_| 1e12), Trend::None);
        assert_eq!(trend(|step| 1e6 - step as f64), Trend::None);
        assert_eq!(trend(|step| if step % 2 == 0 { 0.0 } else { 1e6 }), Trend::Unsure);
        assert_eq!(trend(|step| 1e6 * step.min(40) as f64), Trend::FirstHalf, "a cache");
        assert_eq!(trend(|step| if step < 60 { 0.0 } else { 1e6 }), Trend::Jump, "a table that was made larger");
        assert_eq!(trend(|step| 1e6 * step.saturating_sub(80) as f64), Trend::SecondHalf);
    }

    #[test]
    fn it_is_the_line_that_points_one_by_one_have() {
        let value = |step: usize| ((step * 7919) % 31) as f64 + 0.5 * step as f64;
        let points: Vec<(f64, f64)> = (SPAN.first..SPAN.end).map(|x| (x as f64, value(x))).collect();
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
        let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
        let sxy: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
        let rss: f64 = points.iter().map(|p| (p.1 - my - sxy / sxx * (p.0 - mx)).powi(2)).sum();
        let slope = of(value);
        assert!((slope.each - sxy / sxx).abs() < 1e-9);
        assert!((slope.errors - sxy / sxx / (rss / (n - 2.0) / sxx).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn few_steps_tell_nothing() {
        let span = Span { first: 0, end: 9 };
        let mut growth = Growth::default();
        (0..9).for_each(|step| growth.until(step, step as f64, span));
        growth.until(9, 9.0, span);
        assert_eq!(growth.slope(span), None);
        assert_eq!(Growth::default().slope(Span::default()), None);
    }
}
