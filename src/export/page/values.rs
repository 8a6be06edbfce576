//! Values over time, of which a track is a few hundred pixels wide: of more, the highest of each cell of time is kept.

use rustc_hash::FxHashMap;

use super::super::timeline::Sample;

/// Points of a line.
const POINTS: usize = 2048;
/// Points of all lines together, and the fewest that a line keeps.
const ALL_POINTS: usize = 1 << 17;
const FEWEST: usize = 128;
/// Lines that are shown: the first to have a value.
const LINES: usize = 512;

/// A value over time.
pub(super) struct Line {
    pub(super) process: Option<i64>,
    pub(super) name: String,
    pub(super) unit: String,
    /// Since when, ns since the epoch, and what.
    pub(super) points: Vec<(i64, f64)>,
    /// One point is kept of so much time; 0 for each.
    cell_ns: i64,
}

/// All of them.
#[derive(Default)]
pub(super) struct Values {
    numbers: FxHashMap<(Option<i64>, String), usize>,
    pub(super) lines: Vec<Line>,
    /// Some lines found no room.
    pub(super) full: bool,
}

impl Values {
    /// Adds a value, as far as there is room for its line.
    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        let key = (sample.process, sample.name.to_owned());
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None if self.lines.len() < LINES => {
                let (process, name, unit) = (sample.process, sample.name.to_owned(), sample.unit.to_owned());
                self.lines.push(Line { process, name, unit, points: Vec::new(), cell_ns: 0 });
                self.numbers.insert(key, self.lines.len() - 1);
                self.lines.len() - 1
            }
            None => {
                self.full = true;
                return;
            }
        };
        let line = &mut self.lines[number];
        line.points.push((sample.start_ns, sample.value));
        if line.points.len() >= 2 * POINTS {
            line.thin(POINTS);
        }
    }

    /// Brings all lines into the order of time, no longer than fits.
    pub(super) fn finish(&mut self) {
        let most = (ALL_POINTS / self.lines.len().max(1)).clamp(FEWEST, POINTS);
        for line in &mut self.lines {
            line.thin(most);
            // A value that is as before says nothing; the last one says until when.
            let last = line.points.len().saturating_sub(1);
            let mut at = 0;
            let mut before = f64::NAN;
            line.points.retain(|(_, value)| {
                let says = *value != before || at == last;
                (at, before) = (at + 1, *value);
                says
            });
        }
    }

    /// How many points there are.
    pub(super) fn len(&self) -> usize {
        self.lines.iter().map(|line| line.points.len()).sum()
    }
}

impl Line {
    /// Keeps one point a cell, and doubles that only as long as there are more points than `most`.
    fn thin(&mut self, most: usize) {
        self.points.sort_by_key(|(start_ns, _)| *start_ns);
        self.merge();
        while self.points.len() > most && self.cell_ns < i64::MAX / 4 {
            let span_ns = self.points.last().map_or(0, |last| last.0).saturating_sub(self.points[0].0);
            self.cell_ns = (self.cell_ns * 2).max(span_ns / (2 * most as i64)).max(1);
            self.merge();
        }
    }

    fn merge(&mut self) {
        let cell = |start_ns: i64| start_ns.checked_div_euclid(self.cell_ns);
        self.points.dedup_by(|next, kept| {
            let same = cell(next.0).is_some_and(|of| Some(of) == cell(kept.0));
            if same && next.1 > kept.1 {
                kept.1 = next.1;
            }
            same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_value_stays_however_many_there_are() {
        let mut values = Values::default();
        for at in 0..1_000_000i64 {
            let value = if at == 77_777 { 1e9 } else { (at * at % 65_537) as f64 };
            values.add(&Sample { process: None, name: "x", unit: "", start_ns: at * 1000, value });
        }
        values.finish();
        let points = &values.lines[0].points;
        assert!(points.len() > POINTS / 4 && points.len() <= POINTS, "{}", points.len());
        assert_eq!(points.iter().filter(|(_, value)| *value == 1e9).count(), 1);
        assert!(points.is_sorted_by_key(|(at, _)| *at));
    }

    #[test]
    fn what_stays_as_it_was_is_told_once_and_at_the_end() {
        let mut values = Values::default();
        for (start_ns, value) in [(1, 5.0), (2, 5.0), (3, 5.0), (4, 6.0), (9, 6.0)] {
            values.add(&Sample { process: Some(1), name: "x", unit: "bytes", start_ns, value });
        }
        values.finish();
        assert_eq!(values.lines[0].points, [(1, 5.0), (4, 6.0), (9, 6.0)]);
    }
}
