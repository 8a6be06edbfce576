//! What CUPTI told beside the GPU's work: each record a row, and counted.

use gputrace_abi::activity::{Activity, kind};
use gputrace_abi::clock::ClockKind;

use super::{Gpu, about};
use crate::chain::Text;
use crate::clock::Clocks;
use crate::tables::{GPU_ACTIVITY_KINDS, GpuActivity, Tables};

impl Gpu {
    /// Makes rows of a text's records, in the order of their time. Those without one are none.
    pub(super) fn take_activities(&mut self, text: &Text, clocks: &Clocks, kind: ClockKind, tables: &mut Tables) {
        let (process_id, pid) = self.ids;
        let counts = &mut self.about.get_or_insert_default().activities;
        let mut rows: Vec<GpuActivity> = Activity::all(text.bytes())
            .filter(|activity| activity.start != 0)
            // CUPTI's times are ns of the clock that the collector's pairs are made with.
            .map(|activity| {
                let start_ns = clocks.ns_of_monotonic(kind, activity.start);
                GpuActivity { start_ns, process_id, pid, activity }
            })
            .collect();
        rows.sort_by_key(|row| row.start_ns);
        for row in &rows {
            *counts.entry(GPU_ACTIVITY_KINDS[row.kind()].to_owned()).or_default() += 1;
            tables.gpu_activity(row);
        }
    }

    /// CUPTI refused a kind; told once.
    pub(super) fn take_refusal(&mut self, text: &Text) {
        let refused = &mut self.about.get_or_insert_default().activities_refused;
        if refused.len() < kind::NAMES.len() {
            refused.push(format!("{}: {}", text.text(), about::result_name(text.key)));
        }
    }
}
