//! Events that the stage left out, by process and class.

use std::collections::BTreeMap;

use gputrace_abi::Class;

use crate::manifest::Manifest;
use crate::share::Share;
use crate::summed::Among;

/// How many events were left out: rows', and those that rows of sums stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut(BTreeMap<(i64, u8), (u64, u64)>);

impl LeftOut {
    pub(super) fn add(&mut self, shares: &[Share]) {
        for share in shares {
            let (rows, culled) = self.0.entry((share.process_id, share.class)).or_default();
            (*rows, *culled) = (*rows + share.rows, *culled + share.culled);
        }
    }

    /// Adds up those of processes that are summed up.
    pub(super) fn sum_up(&mut self, among: &Among) {
        let gone = self.0.extract_if(.., |(id, _), _| among.holds(*id) && *id != among.id());
        for ((_, class), (rows, culled)) in gone.collect::<Vec<_>>() {
            let sum = self.0.entry((among.id(), class)).or_default();
            *sum = (sum.0.saturating_add(rows), sum.1.saturating_add(culled));
        }
    }

    /// Moves them in the accounts of their processes from those that are in the trace to those that are not.
    pub(crate) fn enter(&self, manifest: &mut Manifest) {
        if let Some(among) = manifest.among()
            && let Some(summed) = &mut manifest.summed
        {
            for ((_, class), (rows, culled)) in self.0.iter().filter(|((id, _), _)| among.holds(*id)) {
                let class = Class::from_u8(*class).map_or("", Class::name);
                let count = summed.account.accounting.get_mut(class);
                count.into_iter().for_each(|count| count.leave_out(*rows, *culled));
            }
        }
        for process in &mut manifest.processes {
            let own = self.0.range((process.process_id, 0)..=(process.process_id, u8::MAX));
            for ((_, class), (rows, culled)) in own {
                let class = Class::from_u8(*class).map_or("", Class::name);
                if let Some(count) = process.accounting.get_mut(class) {
                    count.leave_out(*rows, *culled);
                }
            }
        }
    }
}
