//! The bars of all tracks, of which there may be more than a page can hold.
//!
//! Where there are too many, those that are shorter than a cell of time become one with their neighbours of the same cell, row and track:
//! a run, which knows how many they were and how long they took. Longer ones stay as they are. The cell is doubled until they
//! fit, so that what is kept of a longer trace is what a screen could show of it.

/// Stands for no call: real numbers are not negative.
pub(super) const NO_CALL: i64 = -1;
/// Rows of a track; what nests deeper shares the last one.
const ROWS: usize = 64;
/// The first cell.
const CELL_NS: i64 = 1024;

/// A bar, or a run of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) start_ns: i64,
    /// To the end of the last one.
    pub(super) length_ns: i64,
    /// The call that caused it, or that it is, or [`NO_CALL`]. Of a run: how long its bars took together, ns.
    pub(super) call: i64,
    /// Of a run that of its longest bar.
    pub(super) kind: u32,
    /// Bars that it stands for.
    pub(super) count: u32,
}

impl Bar {
    pub(super) fn is_run(&self) -> bool {
        self.count > 1
    }

    pub(super) fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.length_ns)
    }

    /// How long its bars took.
    fn busy_ns(&self) -> i64 {
        if self.is_run() { self.call } else { self.length_ns }
    }
}

/// All of them.
pub(super) struct Bars {
    pub(super) tracks: Vec<Vec<Bar>>,
    /// More than these do not fit.
    most: usize,
    held: usize,
    /// Below this length bars were put together; 0 where none were.
    pub(super) cell_ns: i64,
}

impl Bars {
    pub(super) fn new(most: usize) -> Bars {
        Bars { tracks: Vec::new(), most, held: 0, cell_ns: 0 }
    }

    pub(super) fn add(&mut self, track: usize, bar: Bar) {
        if track >= self.tracks.len() {
            self.tracks.resize_with(track + 1, Vec::new);
        }
        self.tracks[track].push(bar);
        self.held += 1;
        if self.held > self.most {
            self.thin();
        }
    }

    /// Puts together what came since, then doubles the cell until half of the room is free. In the end a run is left of each row, which
    /// are far fewer than what a page holds.
    fn thin(&mut self) {
        self.put_together();
        while self.held > self.most / 2 && self.cell_ns < i64::MAX / 4 {
            self.cell_ns = (self.cell_ns * 2).max(CELL_NS);
            self.put_together();
        }
    }

    /// Brings each track into the order of its starts, and what begins together outermost first.
    pub(super) fn sort(&mut self) {
        self.put_together();
        self.tracks.iter_mut().for_each(|track| sort(track));
    }

    fn put_together(&mut self) {
        if self.cell_ns > 0 {
            self.tracks.iter_mut().for_each(|track| put_together(track, self.cell_ns));
            self.held = self.tracks.iter().map(Vec::len).sum();
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.held
    }
}

fn sort(bars: &mut [Bar]) {
    // Without the room that a stable order takes; no two bars are alike in all of this and differ.
    bars.sort_unstable_by_key(|bar| (bar.start_ns, std::cmp::Reverse(bar.length_ns), bar.call, bar.kind));
}

/// Makes runs of the short bars of one track.
fn put_together(bars: &mut Vec<Bar>, cell_ns: i64) {
    sort(bars);
    let mut ends: Vec<i64> = Vec::new();
    // Of each row the run that is open: its place, its cell, and the time of its longest bar.
    let mut open: [Option<(usize, i64, i64)>; ROWS] = [None; ROWS];
    let mut kept = 0;
    for at in 0..bars.len() {
        let bar = bars[at];
        let row = ends.iter().position(|end| *end <= bar.start_ns).unwrap_or(ends.len()).min(ROWS - 1);
        if row == ends.len() {
            ends.push(0);
        }
        ends[row] = bar.end_ns();
        if bar.length_ns < cell_ns {
            let cell = bar.start_ns.div_euclid(cell_ns);
            let busy_ns = bar.busy_ns();
            if let Some((place, of, longest)) = &mut open[row]
                && *of == cell
            {
                let run = &mut bars[*place];
                run.call = run.busy_ns().saturating_add(busy_ns);
                run.length_ns = run.length_ns.max(bar.end_ns().saturating_sub(run.start_ns));
                run.count = run.count.saturating_add(bar.count);
                if busy_ns > *longest {
                    (run.kind, *longest) = (bar.kind, busy_ns);
                }
                continue;
            }
            open[row] = Some((kept, cell, busy_ns));
        }
        bars[kept] = bar;
        kept += 1;
    }
    bars.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(start_ns: i64, length_ns: i64, kind: u32) -> Bar {
        Bar { start_ns, length_ns, call: 7, kind, count: 1 }
    }

    #[test]
    fn short_neighbours_become_runs_and_nothing_is_lost() {
        let mut bars = vec![bar(0, 5_000, 9), bar(100, 10, 1), bar(200, 30, 2), bar(1_500, 20, 1), bar(9_000, 10, 1)];
        put_together(&mut bars, 1024);
        let run = Bar { start_ns: 100, length_ns: 130, call: 40, kind: 2, count: 2 };
        assert_eq!(bars, [bar(0, 5_000, 9), run, bar(1_500, 20, 1), bar(9_000, 10, 1)]);
        put_together(&mut bars, 2048);
        assert_eq!(bars[1], Bar { start_ns: 100, length_ns: 1_420, call: 60, kind: 2, count: 3 });
    }

    #[test]
    fn however_many_come_no_more_than_fit_are_held() {
        let mut bars = Bars::new(1000);
        for number in 0..100_000i64 {
            bars.add((number % 3) as usize, bar(number * 700, if number % 1000 == 0 { 600_000 } else { 300 }, 1));
            assert!(bars.len() <= 1000, "{} at {number}, {} ns", bars.len(), bars.cell_ns);
        }
        bars.sort();
        let all = || bars.tracks.iter().flatten();
        assert_eq!(all().map(|bar| u64::from(bar.count)).sum::<u64>(), 100_000);
        let long = bars.cell_ns <= 600_000;
        assert!(
            !long || all().filter(|bar| !bar.is_run() && bar.length_ns == 600_000).count() == 100,
            "{}",
            bars.cell_ns
        );
        let busy: i64 = all().map(Bar::busy_ns).sum();
        assert_eq!(busy, 100 * 600_000 + (100_000 - 100) * 300);
        assert!(all().all(|bar| bar.start_ns >= 0 && bar.end_ns() <= 100_000 * 700 + 600_000));
    }

    #[test]
    fn bars_that_all_begin_and_end_together_are_held_too() {
        let mut bars = Bars::new(1000);
        (0..10_000).for_each(|_| bars.add(0, bar(5, 3_000, 1)));
        assert!(bars.len() <= 1000, "{}", bars.len());
    }
}
