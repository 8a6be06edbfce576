//! Steps that took far longer than steps of their process do: a moment worth keeping, where somebody asked for it.
//!
//! A step is a range that the program or its framework names so (`step`, `train_step 7`, `ProfilerStep#12`). A step is slow when
//! it took so many times the median of those before its batch.

use std::collections::HashMap;

use super::failures::Noted;
use super::split::{Part, Texts, names, numbers};
use crate::names::NameKind;
use crate::rollups::Durations;
use crate::schema::TableId;
use crate::step_names;
use crate::summed::Among;
use crate::writer::Message;

/// Steps after which it is known how long they take.
const ENOUGH: u64 = 20;
/// Names of processes that are followed.
const MOST_KNOWN: usize = 4096;
/// Names of steps: each may have its own, by its number.
const MOST_NAMES: usize = 1 << 20;

/// How long steps took.
pub(super) struct SlowSteps {
    /// None: nobody asks. Names are learnt all the same, for they are told once.
    times: Option<f64>,
    /// Names that mean a step, and which of them: a batch and the iteration around it last differently long.
    named: HashMap<i64, usize>,
    known: HashMap<(i64, usize), Steps>,
}

#[derive(Default)]
struct Steps {
    durations: Durations,
    /// The median, as of the batch before.
    median_ns: Option<f64>,
}

impl SlowSteps {
    /// Steps of so many times the median are slow.
    pub(super) fn new(times: Option<u32>) -> SlowSteps {
        SlowSteps { times: times.map(f64::from), named: HashMap::new(), known: HashMap::new() }
    }

    /// The same from now on.
    pub(super) fn ask(&mut self, times: Option<u32>) {
        self.times = times.map(f64::from);
    }

    /// Forgets processes that have ended.
    pub(super) fn forget(&mut self, among: &Among) {
        self.known.retain(|(process, _), _| !among.holds(*process));
    }

    /// Learns which names mean a step.
    pub(super) fn learn(&mut self, message: &Message) {
        let Message::Rows(TableId::Names, rows, _) = message else { return };
        let steps = names(rows, NameKind::Range).filter_map(|(id, name)| Some((id, step_names::rank(name)?)));
        let room = MOST_NAMES.saturating_sub(self.named.len());
        self.named.extend(steps.take(room));
    }

    /// The slowest step of a batch, if it was slow.
    pub(super) fn slowest_of(&mut self, part: &Part) -> Option<Noted> {
        let times = self.times?;
        if part.table() != TableId::Ranges || self.named.is_empty() {
            return None;
        }
        let rows = part.rows();
        let column = |name| numbers(rows, name);
        let (processes, starts, named) = (column("process_id"), column("start_ns"), column("name_id"));
        let (ends, kinds) = (column("end_ns"), Texts::of(rows, "kind")?);
        for steps in self.known.values_mut() {
            steps.median_ns = steps.durations.quantile_ns(0.5).filter(|_| steps.durations.count() >= ENOUGH);
        }
        let mut slowest: Option<(i64, Noted)> = None;
        for row in 0..rows.num_rows() {
            let (process, start_ns, end_ns) = (*processes.get(row)?, *starts.get(row)?, *ends.get(row)?);
            let rank = self.named.get(named.get(row)?).filter(|_| kinds.get(row) != "mark" && end_ns > start_ns);
            let Some(key) = rank.map(|rank| (process, *rank)) else { continue };
            if self.known.len() >= MOST_KNOWN && !self.known.contains_key(&key) {
                continue;
            }
            let ns = end_ns.saturating_sub(start_ns);
            let of = self.known.entry(key).or_default();
            of.durations.add(ns.max(0) as u64);
            let Some(median_ns) = of.median_ns.filter(|median| ns as f64 > median * times) else { continue };
            if slowest.as_ref().is_none_or(|(longest, _)| ns > *longest) {
                let ms = |ns: f64| ns / 1e6;
                let why = format!("a step took {:.1} ms, where about {:.1} ms are usual", ms(ns as f64), ms(median_ns));
                slowest = Some((ns, Noted { at_ns: end_ns, why }));
            }
        }
        slowest.map(|(_, noted)| noted)
    }
}
