//! Sums of periods, added up again: by class of events, by process and function, by what they are about, and over time.

use gputrace_collectors::rollups::Durations;
use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::groups::Groups;
use super::steps::Steps;
use super::texts::Texts;
use crate::trace::{NO_NAME, NO_STACK, Rows, Want};

/// Things that are told apart.
const MOST: usize = 100_000;
/// Process of what is beyond these.
const NO_PROCESS: i64 = -1;
/// Parts of the time, at most; half as many at least in a long run.
const PARTS: usize = 128;

/// Sums of any number of rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    /// Events.
    pub(crate) events: i64,
    /// Failed calls among them.
    pub(crate) errors: i64,
    /// Events with a duration.
    pub(crate) timed: i64,
    /// Their durations, ns.
    pub(crate) ns: i64,
    /// The shortest and the longest, ns.
    pub(crate) min_ns: i64,
    pub(crate) max_ns: i64,
    /// Bytes.
    pub(crate) bytes: i64,
    durations: Durations,
}

impl Sum {
    /// Mean duration, ns.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.ns as f64 / self.timed as f64)
    }

    /// The duration that this share of them does not exceed, ns.
    pub(crate) fn quantile_ns(&self, share: f64) -> Option<f64> {
        // The middle of a bucket may lie beside all that is in it.
        self.durations.quantile_ns(share).map(|ns| ns.max(self.min_ns as f64).min(self.max_ns as f64))
    }

    /// Adds all of another.
    pub(crate) fn add(&mut self, other: &Sum) {
        self.events = self.events.saturating_add(other.events);
        self.errors = self.errors.saturating_add(other.errors);
        if other.timed > 0 {
            self.min_ns = if self.timed == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        }
        self.timed = self.timed.saturating_add(other.timed);
        self.ns = self.ns.saturating_add(other.ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.durations.merge(&other.durations);
    }
}

/// What events are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct What {
    class: u16,
    /// Function that was called.
    pub(crate) api_id: i64,
    /// Kernel or range.
    pub(crate) name_id: i64,
    /// Whose line.
    pub(crate) stack_id: i64,
}

/// Who called which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    class: u16,
    /// The process.
    pub(crate) process_id: i64,
    /// Function that was called.
    pub(crate) api_id: i64,
}

/// Sums of equal parts of the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct OverTime {
    first_ns: i64,
    /// Length of a part, ns.
    pub(crate) part_ns: i64,
    /// By part, sums by number of a class.
    parts: Vec<Vec<Sum>>,
}

impl OverTime {
    fn add(&mut self, start_ns: i64, period_ns: i64, class: usize, sum: &Sum) {
        if self.parts.is_empty() {
            (self.first_ns, self.part_ns) = (start_ns, period_ns.max(1));
        }
        // What began before the first row came late.
        let at = |of: &OverTime| usize::try_from((start_ns - of.first_ns) / of.part_ns).unwrap_or(0);
        while at(self) >= PARTS {
            let halves = std::mem::take(&mut self.parts);
            self.parts = halves.chunks(2).map(joined).collect();
            self.part_ns = self.part_ns.saturating_mul(2);
        }
        let at = at(self);
        self.parts.resize_with(self.parts.len().max(at + 1), Vec::new);
        if let Some(part) = self.parts.get_mut(at) {
            part.resize_with(part.len().max(class + 1), Sum::default);
            part[class].add(sum);
        }
    }
}

fn joined(parts: &[Vec<Sum>]) -> Vec<Sum> {
    let mut all = parts.first().cloned().unwrap_or_default();
    for part in parts.iter().skip(1) {
        all.resize_with(all.len().max(part.len()), Sum::default);
        all.iter_mut().zip(part).for_each(|(sum, more)| sum.add(more));
    }
    all
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Rollups {
    classes: Texts,
    /// By number of a class.
    sums: Vec<Sum>,
    /// By process and function.
    callers: Groups<Caller, Sum>,
    /// By what they are about.
    what: Groups<What, Sum>,
    over_time: OverTime,
    /// From the begin of the first period to the end of the last, ns.
    range_ns: Option<(i64, i64)>,
}

impl Default for Rollups {
    fn default() -> Rollups {
        let nobody = Caller { class: 0, process_id: NO_PROCESS, api_id: NO_NAME };
        let other = What { class: 0, api_id: NO_NAME, name_id: NO_NAME, stack_id: NO_STACK };
        Rollups {
            classes: Texts::default(),
            sums: Vec::new(),
            callers: Groups::new(MOST, nobody),
            what: Groups::new(MOST, other),
            over_time: OverTime::default(),
            range_ns: None,
        }
    }
}

impl Rollups {
    /// Classes with their sums.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (&str, &Sum)> {
        self.sums
            .iter()
            .enumerate()
            .filter(|(_, sum)| sum.events > 0)
            .map(|(n, sum)| (self.classes.text(n as u16), sum))
    }

    /// The sums of a class.
    pub(crate) fn of(&self, class: &str) -> Option<&Sum> {
        self.classes().find(|(name, _)| *name == class).map(|(_, sum)| sum)
    }

    /// Who called which function of which class, with their sums.
    pub(crate) fn callers(&self) -> impl Iterator<Item = (&str, &Caller, &Sum)> {
        self.callers.iter().map(|(caller, sum)| (self.classes.text(caller.class), caller, sum))
    }

    /// What events of which class are about, with their sums.
    pub(crate) fn what(&self) -> impl Iterator<Item = (&str, &What, &Sum)> {
        self.what.iter().map(|(what, sum)| (self.classes.text(what.class), what, sum))
    }

    /// Parts of the time: begin since the first one, ns, and sums of classes.
    pub(crate) fn over_time<'a>(&'a self, classes: &'a [&str]) -> impl Iterator<Item = (i64, Vec<Sum>)> + 'a {
        self.over_time.parts.iter().enumerate().map(move |(at, part)| {
            let of = |class: &&str| {
                let named = part.iter().enumerate().find(|(n, _)| self.classes.text(*n as u16) == *class);
                named.map(|(_, sum)| sum.clone()).unwrap_or_default()
            };
            (at as i64 * self.over_time.part_ns, classes.iter().map(of).collect())
        })
    }

    /// Length of a part of the time, ns.
    pub(crate) fn part_ns(&self) -> i64 {
        self.over_time.part_ns
    }

    /// From the begin of the first period to the end of the last, ns since the epoch.
    pub(crate) fn range(&self) -> Option<(i64, i64)> {
        self.range_ns.filter(|(from, to)| from < to)
    }

    /// Stacks behind the largest sums, whose lines a report shows.
    pub(crate) fn stacks(&self) -> FxHashSet<i64> {
        self.what.iter().map(|(what, _)| what.stack_id).filter(|id| *id != NO_STACK).collect()
    }
}

const COLUMNS: &[&str] = &[
    "period_ns",
    "process_id",
    "class",
    "events",
    "errors",
    "timed",
    "total_ns",
    "min_ns",
    "max_ns",
    "bytes",
    "durations",
    "api_id",
];
const NAMED: &[&str] = &[
    "period_ns",
    "class",
    "events",
    "errors",
    "timed",
    "total_ns",
    "min_ns",
    "max_ns",
    "bytes",
    "durations",
    "api_id",
    "name_id",
    "stack_id",
];

impl Pass for Rollups {
    fn wants(&self) -> &'static [Want] {
        const WANTS: &[Want] =
            &[Want { table: TableId::Rollups, columns: COLUMNS }, Want { table: TableId::RollupNames, columns: NAMED }];
        WANTS
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        let named = rows.table == TableId::RollupNames;
        let (start, period) = (rows.i64("start_ns"), rows.i64("period_ns"));
        let [events, errors, timed, total, most, bytes] =
            ["events", "errors", "timed", "total_ns", "max_ns", "bytes"].map(|column| rows.i64_or(column, 0));
        let least = rows.i64_or("min_ns", 0);
        let (classes, durations) = (rows.texts("class"), rows.texts("durations"));
        let ids = ["api_id", "name_id"].map(|column| rows.i64_or(column, NO_NAME));
        let stacks = rows.i64_or("stack_id", NO_STACK);
        let processes = rows.i64_or("process_id", NO_PROCESS);
        for row in 0..rows.len {
            let class = self.classes.number(classes.get(row));
            let sum = Sum {
                events: events[row],
                errors: errors[row],
                timed: timed[row],
                ns: total[row],
                min_ns: least[row],
                max_ns: most[row],
                bytes: bytes[row],
                durations: Durations::parse(durations.get(row)),
            };
            if named {
                let what = What { class, api_id: ids[0][row], name_id: ids[1][row], stack_id: stacks[row] };
                self.what.at(what).add(&sum);
                continue;
            }
            self.callers.at(Caller { class, process_id: processes[row], api_id: ids[0][row] }).add(&sum);
            let place = usize::from(class);
            self.sums.resize_with(self.sums.len().max(place + 1), Sum::default);
            self.sums[place].add(&sum);
            self.over_time.add(start[row], period[row], place, &sum);
            let (from, to) = (start[row], start[row].saturating_add(period[row]));
            self.range_ns = Some(self.range_ns.map_or((from, to), |all| (all.0.min(from), all.1.max(to))));
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.what.iter().flat_map(|(what, _)| [what.api_id, what.name_id]));
        ids.extend(self.callers.iter().map(|(caller, _)| caller.api_id));
    }
}
