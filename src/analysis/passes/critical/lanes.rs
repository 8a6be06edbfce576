//! The run replayed in several ways at once: as it was, and without each set of classes of work.
//!
//! A lane is one way. All lanes go through the same events; each holds the time at which the event would have been reached
//! there. Times are whole ns in f64, exact up to 2^53: adding and taking the later of two is what a processor does for
//! several of them in one instruction. Lanes that differ only in classes of which a trace has no work are one.

use std::sync::Arc;

/// Work whose absence is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// The host's own time: outside the driver, in launches, NCCL and other calls.
    Host,
    /// Waits of the host for the GPU, those of copies for earlier work too.
    Wait,
    /// Copies and sets: their calls, and the GPU's time in them.
    Copy,
    /// Allocations and frees, and what these wait.
    Memory,
    /// Waits for the operating system.
    System,
    /// Kernels of NCCL.
    Communication,
    /// The order that the legacy default stream gives to work of other streams. It takes no time by itself, but makes work wait.
    Streams,
}

/// All classes, as they are shown: name in JSON, and what it is.
pub(crate) const CLASSES: [(Class, &str, &str); 7] = [
    (Class::Host, "host", "host's own time, launches"),
    (Class::Wait, "waits", "waits for the GPU"),
    (Class::Copy, "copies", "copies and sets"),
    (Class::Memory, "memory", "allocations and frees"),
    (Class::System, "system", "waits for the system"),
    (Class::Communication, "communication", "NCCL's kernels"),
    (Class::Streams, "streams", "the default stream's order"),
];

/// A set of classes, by their bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Without(u8);

impl Without {
    /// Some classes.
    pub(crate) fn these(classes: &[Class]) -> Without {
        Without(classes.iter().fold(0, |bits, class| bits | 1 << *class as u8))
    }

    /// Those of either.
    pub(crate) fn and(self, other: Without) -> Without {
        Without(self.0 | other.0)
    }

    /// All sets of some of these classes, the empty one and this one too.
    pub(super) fn parts(self) -> impl Iterator<Item = Without> {
        (0..LANES as u8).filter(move |bits| bits & !self.0 == 0).map(Without)
    }

    pub(super) fn lane(self) -> usize {
        usize::from(self.0)
    }

    /// How many rows of lanes differ in a trace that has these classes: those of the later half double them.
    fn rows(self) -> usize {
        usize::from((self.0 >> HALF) + 1).next_power_of_two()
    }
}

/// A lane for each set of classes; the first is the run as it was.
pub(super) const LANES: usize = 1 << CLASSES.len();

/// The first half of the classes, and the number of lanes that differ in them alone: neighbours.
const HALF: usize = CLASSES.len() / 2;
const ROW: usize = 1 << HALF;
/// The number of such rows, which differ in the others.
const ROWS: usize = LANES / ROW;

/// 1 in the lanes that have a class, 0 in those without it; the last row is for what no lane goes without.
static KEEP: [[[f64; ROW]; ROWS]; CLASSES.len() + 1] = keep();

const fn keep() -> [[[f64; ROW]; ROWS]; CLASSES.len() + 1] {
    let mut keep = [[[1.0; ROW]; ROWS]; CLASSES.len() + 1];
    let mut class = 0;
    while class < CLASSES.len() {
        let mut lane = 0;
        while lane < LANES {
            if lane & (1 << class) != 0 {
                keep[class][lane / ROW][lane % ROW] = 0.0;
            }
            lane += 1;
        }
        class += 1;
    }
    keep
}

fn kept(class: Option<Class>) -> &'static [f64] {
    KEEP[class.map_or(CLASSES.len(), |class| class as usize)].as_flattened()
}

/// When something was reached, in each lane: ns since the replay began.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    all: [[f64; ROW]; ROWS],
    /// The first rows that differ; those after them repeat these.
    rows: usize,
}

impl Lanes {
    /// All at one time, in a trace that has work of these classes.
    pub(super) fn at(ns: f64, classes: Without) -> Lanes {
        Lanes { all: [[ns; ROW]; ROWS], rows: classes.rows() }
    }

    /// All lanes, by number.
    pub(super) fn ns(&self) -> impl Iterator<Item = f64> {
        self.all[..self.rows].iter().cycle().flatten().copied().take(LANES)
    }

    #[inline]
    fn rows(&self) -> &[f64] {
        self.all[..self.rows].as_flattened()
    }

    #[inline]
    fn rows_mut(&mut self) -> &mut [f64] {
        self.all[..self.rows].as_flattened_mut()
    }

    /// Time goes by in the lanes that have the class.
    #[inline]
    pub(super) fn pass(&mut self, ns: f64, class: Option<Class>) {
        for (lane, keep) in self.rows_mut().iter_mut().zip(kept(class)) {
            *lane += keep * ns;
        }
    }

    /// Time goes by in the lanes that have one class and not the other.
    pub(super) fn pass_without(&mut self, ns: f64, class: Class, other: Class) {
        for ((lane, keep), other) in self.rows_mut().iter_mut().zip(kept(Some(class))).zip(kept(Some(other))) {
            *lane += keep * (1.0 - other) * ns;
        }
    }

    /// The later one.
    #[inline]
    pub(super) fn join(&mut self, other: &Lanes, after_ns: f64) {
        for (lane, other) in self.rows_mut().iter_mut().zip(other.rows()) {
            let other = other + after_ns;
            *lane = if *lane > other { *lane } else { other };
        }
    }

    /// The later one in the lanes that have the class; the others stay.
    #[inline]
    pub(super) fn join_with(&mut self, other: &Lanes, after_ns: f64, class: Option<Class>) {
        for ((lane, other), keep) in self.rows_mut().iter_mut().zip(other.rows()).zip(kept(class)) {
            let other = other + after_ns;
            let later = if *lane > other { *lane } else { other };
            *lane += keep * (later - *lane);
        }
    }
}

/// Lanes, and time by class that has gone by since: cheap to take note of, and shared by many calls.
#[derive(Clone, Debug)]
pub(super) struct Since {
    base: Arc<Lanes>,
    ns: [f64; CLASSES.len() + 1],
}

impl Since {
    pub(super) fn new(lanes: Lanes) -> Since {
        Since { base: Arc::new(lanes), ns: [0.0; CLASSES.len() + 1] }
    }

    /// Time goes by in the lanes that have the class.
    #[inline]
    pub(super) fn pass(&mut self, ns: f64, class: Option<Class>) {
        self.ns[class.map_or(CLASSES.len(), |class| class as usize)] += ns;
    }

    /// The lanes now.
    pub(super) fn lanes(&self) -> Lanes {
        let mut lanes = Lanes::clone(&self.base);
        self.then(0.0, None, 0.0, &mut lanes);
        lanes
    }

    /// What begins some time after now and, if it has to wait for something, some time after that: how it ends.
    #[inline]
    pub(super) fn then(&self, after_ns: f64, other: Option<(&Lanes, f64)>, lasts_ns: f64, into: &mut Lanes) {
        let (low, high) = self.passed();
        let base = &self.base.all[..self.base.rows];
        let rows = into.all.iter_mut().zip(base).zip(high);
        let Some((other, other_ns)) = other else {
            for ((into, base), high) in rows {
                for ((into, base), low) in into.iter_mut().zip(base).zip(&low) {
                    *into = base + (low + (high + after_ns + lasts_ns));
                }
            }
            return;
        };
        for (((into, base), high), other) in rows.zip(&other.all) {
            for (((into, base), low), other) in into.iter_mut().zip(base).zip(&low).zip(other) {
                let (one, two) = (base + (low + (high + after_ns)), other + other_ns);
                *into = if one > two { one } else { two } + lasts_ns;
            }
        }
    }

    /// The time that has gone by since, as a sum of two: by which of the first classes a lane goes without, and by which of
    /// the others.
    #[inline]
    fn passed(&self) -> ([f64; ROW], [f64; ROWS]) {
        let [a, b, c, d, e, f, g, always] = self.ns;
        let [with, without] = [g, 0.0].map(|last| row([d, e, f], last));
        (row([a, b, c], always), std::array::from_fn(|at| if at < ROW { with[at] } else { without[at - ROW] }))
    }
}

/// The sum of the times of those classes that a lane of a row does not go without, and of what is always there.
#[inline]
fn row([a, b, c]: [f64; HALF], always: f64) -> [f64; ROW] {
    let (none, first) = (always, always + a);
    [first + b + c, none + b + c, first + c, none + c, first + b, none + b, first, none]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: f64) -> Lanes {
        Lanes::at(ns, Without::these(&CLASSES.map(|(class, ..)| class)))
    }

    fn lane(lanes: &Lanes, without: &[Class]) -> f64 {
        lanes.ns().nth(Without::these(without).lane()).unwrap()
    }

    #[test]
    fn a_lane_goes_without_each_class_of_its_set_and_with_all_others() {
        let mut lanes = at(0.0);
        for (class, ..) in CLASSES {
            lanes.pass(10f64.powi(class as i32), Some(class));
        }
        lanes.pass(0.5, None);
        assert_eq!(lane(&lanes, &[]), 1_111_111.5);
        assert_eq!(lane(&lanes, &[Class::Wait, Class::Communication]), 1_011_101.5);
        assert_eq!(lane(&lanes, &[Class::Host, Class::Streams]), 111_110.5);
        assert_eq!(lane(&lanes, &CLASSES.map(|(class, ..)| class)), 0.5);
    }

    #[test]
    fn the_later_one_counts_but_where_its_class_is_gone() {
        let mut lanes = at(100.0);
        lanes.join_with(&at(300.0), 50.0, Some(Class::Wait));
        assert_eq!((lane(&lanes, &[]), lane(&lanes, &[Class::Wait])), (350.0, 100.0));
        lanes.pass_without(7.0, Class::Copy, Class::Host);
        assert_eq!(lane(&lanes, &[Class::Host]), 357.0);
        assert_eq!(lane(&lanes, &[Class::Host, Class::Copy]), 350.0);
        lanes.join(&at(90.0), 50.0);
        assert_eq!((lane(&lanes, &[]), lane(&lanes, &[Class::Wait])), (350.0, 140.0));
    }

    #[test]
    fn classes_without_work_change_no_lane() {
        let replay = |classes: &[Class]| {
            let mut since = Since::new(Lanes::at(7.0, Without::these(classes)));
            since.pass(10.0, Some(Class::Host));
            let mut lanes = since.lanes();
            lanes.pass(100.0, Some(Class::Memory));
            since.pass(1_000.0, Some(Class::Wait));
            let mut later = lanes.clone();
            since.then(3.0, Some((&lanes, 2_000.0)), 5.0, &mut later);
            later.join_with(&lanes, 50.0, Some(Class::Wait));
            later.ns().collect::<Vec<f64>>()
        };
        let all = replay(&CLASSES.map(|(class, ..)| class));
        assert_eq!(all.len(), LANES);
        assert!([&[Class::Memory][..], &[Class::Memory, Class::System]].iter().all(|classes| replay(classes) == all));
    }
}
