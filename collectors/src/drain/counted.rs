//! Events that no row tells of, in the rollups: what was sampled out, only counted, or found no room, as the accounts have it.

use std::collections::BTreeMap;

use gputrace_abi::Class;
use gputrace_abi::layout::{CLASSES, THREADS_MAX};

use crate::manifest;
use crate::tables::Tables;

/// A thread counts a call before it knows whether the call gets an event. What is told is never taken back, so as many as may be in
/// between wait.
const BETWEEN: u64 = THREADS_MAX as u64;

/// What there was when the first look was made.
const TOLD: u64 = u64::MAX;

/// How many of each class were told, by process.
#[derive(Default)]
pub(super) struct Counted(BTreeMap<i64, [u64; CLASSES]>);

impl Counted {
    /// Goes on with a process of which the sums on the disk have so many beyond its rows there, by class.
    pub(super) fn go_on(&mut self, process_id: i64, told: [u64; CLASSES]) {
        self.0.insert(process_id, told);
    }

    /// Goes on with a process of whose sums some were removed: all so far counts as told.
    pub(super) fn go_on_anew(&mut self, process_id: i64) {
        self.0.insert(process_id, [TOLD; CLASSES]);
    }

    /// Tells those that came since the last look at a running process.
    pub(super) fn looked(&mut self, process: &manifest::Process, now_ns: i64, tables: &mut Tables) {
        self.tell(process, now_ns, BETWEEN, tables);
    }

    /// Tells the rest: the process has ended, and its account is closed.
    pub(super) fn ended(&mut self, process: &manifest::Process, now_ns: i64, tables: &mut Tables) {
        self.tell(process, now_ns, 0, tables);
        self.0.remove(&process.process_id);
    }

    fn tell(&mut self, process: &manifest::Process, now_ns: i64, between: u64, tables: &mut Tables) {
        let told = self.0.entry(process.process_id).or_default();
        for (class, told) in Class::ALL.into_iter().zip(told) {
            let Some(count) = process.accounting.get(class.name()) else { continue };
            let all = (count.sampled_out + count.dropped).saturating_sub(between);
            if *told == TOLD {
                *told = all;
            } else if all > *told {
                tables.counted(process.process_id, process.pid, class, now_ns, all - *told);
                *told = all;
            }
        }
    }
}
