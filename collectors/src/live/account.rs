//! What processes say of themselves, as sums that never run back.

use std::collections::BTreeMap;

use super::snapshot::{Kind, Sums};
use crate::manifest::{self, Count};

/// The account of a process: calls that it began, those that were lost or left out, and what tracing cost it.
pub(crate) fn sums_of(accounting: &BTreeMap<String, Count>, cost_ns: Option<f64>) -> Sums {
    let kind = |count: &Count| Kind {
        seen: count.seen,
        dropped: count.dropped,
        sampled_out: count.sampled_out,
        ..Kind::default()
    };
    let kinds = accounting.iter().map(|(class, count)| (class.clone().into(), kind(count)));
    Sums { kinds: kinds.collect(), cost_ns: cost_ns.filter(|ns| ns.is_finite()), ..Sums::default() }
}

/// The same of a process in the manifest.
pub(super) fn described(process: &manifest::Process) -> Sums {
    sums_of(&process.accounting, process.cost.total_ns)
}

impl Sums {
    /// No less than was told before: a thread counts a call before it knows what becomes of it.
    pub(super) fn at_least(&mut self, before: &Sums) {
        for (class, before) in &before.kinds {
            let kind = self.kinds.entry(class.clone()).or_default();
            kind.seen = kind.seen.max(before.seen);
            kind.dropped = kind.dropped.max(before.dropped);
            kind.sampled_out = kind.sampled_out.max(before.sampled_out);
        }
        if let Some(before) = before.cost_ns {
            self.cost_ns = Some(self.cost_ns.map_or(before, |now| now.max(before)));
        }
    }
}
