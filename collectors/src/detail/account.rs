//! Events that the stage left out, by process and class.

use std::collections::BTreeMap;

use gputrace_abi::Class;

use crate::manifest::Process;
use crate::share::Share;

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

    /// Moves them in the accounts of their processes from those that are in the trace to those that are not.
    pub(crate) fn enter(&self, processes: &mut [Process]) {
        for process in processes {
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
