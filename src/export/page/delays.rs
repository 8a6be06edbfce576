//! How long launch calls take, how long work waits until the GPU begins it, and how much of it waits at a time.
//!
//! Of all work of the trace, whatever is shown of it. A launch is remembered until its work has begun, or until many others were
//! made since.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::super::timeline::{Flow, Slice, Track};

/// Launches that are remembered.
const OPEN: usize = 1 << 16;
/// Cells of the queue's length over time.
const CELLS: usize = 512;
/// Classes of times: four for each doubling.
const CLASSES: usize = 160;

/// What was counted.
#[derive(Default)]
pub(super) struct Delays {
    calls: Histogram,
    starts: Histogram,
    queue: Curve,
    open: FxHashMap<(i64, i64), i64>,
    order: VecDeque<(i64, i64)>,
    /// Work that came before its call did, as rows of several tables may.
    early: FxHashMap<(i64, i64), i64>,
    early_order: VecDeque<(i64, i64)>,
}

impl Delays {
    pub(super) fn slice(&mut self, slice: &Slice<'_>) {
        match (slice.track, slice.flow) {
            (Track::Thread(..), Flow::Begins(process, call)) => {
                if slice.category == "launch" {
                    self.calls.add(slice.length_ns.unwrap_or(0));
                }
                match self.early.remove(&(process, call)) {
                    Some(began_ns) => self.began(slice.start_ns, began_ns),
                    None => remember(&mut self.open, &mut self.order, (process, call), slice.start_ns),
                }
            }
            // Of what a graph holds the first counts.
            (Track::Stream(..), Flow::Ends(process, call)) => match self.open.remove(&(process, call)) {
                Some(start_ns) => self.began(start_ns, slice.start_ns),
                None => remember(&mut self.early, &mut self.early_order, (process, call), slice.start_ns),
            },
            _ => {}
        }
    }

    fn began(&mut self, given_ns: i64, began_ns: i64) {
        let waited_ns = began_ns.saturating_sub(given_ns);
        if waited_ns >= 0 {
            self.starts.add(waited_ns);
            self.queue.add(given_ns, began_ns);
        }
    }

    /// What the page draws; times from `base_ns` on.
    pub(super) fn json(&self, base_ns: i64) -> Value {
        json!({ "calls": self.calls.json(), "starts": self.starts.json(), "queue": self.queue.json(base_ns) })
    }
}

fn remember(open: &mut FxHashMap<(i64, i64), i64>, order: &mut VecDeque<(i64, i64)>, key: (i64, i64), start_ns: i64) {
    if open.insert(key, start_ns).is_none() {
        order.push_back(key);
    }
    while order.len() > OPEN {
        let oldest = order.pop_front().expect("there are some");
        open.remove(&oldest);
    }
}

/// Times by class.
struct Histogram([u64; CLASSES]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([0; CLASSES])
    }
}

impl Histogram {
    fn add(&mut self, ns: i64) {
        let class = 4.0 * (ns.max(1) as f64).log2();
        self.0[(class as usize).min(CLASSES - 1)] += 1;
    }

    /// Pairs of a class's least time and how many were of it, without those that are empty.
    fn json(&self) -> Value {
        let least = |class: usize| (class as f64 / 4.0).exp2();
        let some = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        some.map(|(class, count)| json!([least(class).round(), least(class + 1).round(), count])).collect()
    }
}

/// How many intervals cover each moment, as means of cells that grow with the time.
#[derive(Default)]
struct Curve {
    first_ns: i64,
    cell_ns: i64,
    cells: Vec<f64>,
}

impl Curve {
    fn add(&mut self, from_ns: i64, to_ns: i64) {
        if self.cell_ns == 0 {
            (self.first_ns, self.cell_ns, self.cells) = (from_ns, 1 << 16, vec![0.0; CELLS]);
        }
        // What began before the first one begins with it.
        let after = |ns: i64| ns.saturating_sub(self.first_ns).max(0);
        let (from, to) = (after(from_ns), after(to_ns));
        while to / self.cell_ns >= CELLS as i64 {
            let halves: Vec<f64> = self.cells.chunks(2).map(|pair| pair.iter().sum()).collect();
            (self.cells, self.cell_ns) = (halves, self.cell_ns * 2);
            self.cells.resize(CELLS, 0.0);
        }
        for cell in from / self.cell_ns..=to / self.cell_ns {
            let begin = cell * self.cell_ns;
            self.cells[cell as usize] += (to.min(begin.saturating_add(self.cell_ns)) - from.max(begin)).max(0) as f64;
        }
    }

    fn json(&self, base_ns: i64) -> Value {
        let last = self.cells.iter().rposition(|sum| *sum > 0.0).map_or(0, |last| last + 1);
        let mean = |sum: &f64| (100.0 * sum / self.cell_ns as f64).round() / 100.0;
        let means: Vec<f64> = self.cells[..last].iter().map(mean).collect();
        json!({ "first_ns": self.first_ns.saturating_sub(base_ns), "cell_ns": self.cell_ns, "means": means })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_its_area_while_its_cells_grow() {
        let mut curve = Curve::default();
        (0..1000).for_each(|at| curve.add(at * 1_000_000, at * 1_000_000 + 500_000));
        let area: f64 = curve.cells.iter().sum();
        assert_eq!((area, curve.cells.len()), (1000.0 * 500_000.0, CELLS));
        let json = curve.json(0);
        let means = json["means"].as_array().unwrap();
        assert!(means[..means.len() - 1].iter().all(|mean| (mean.as_f64().unwrap() - 0.5).abs() < 0.15), "{json}");
    }

    #[test]
    fn classes_of_times_are_a_quarter_of_a_doubling() {
        let mut histogram = Histogram::default();
        [0, 1, 1000, 1010, 5000, i64::MAX].into_iter().for_each(|ns| histogram.add(ns));
        assert_eq!(
            histogram.json(),
            json!([
                [1.0, 1.0, 2],
                [861.0, 1024.0, 2],
                [4871.0, 5793.0, 1],
                [(2f64.powf(39.75)).round(), 2f64.powi(40), 1]
            ])
        );
    }
}
