//! How far times of host and GPU may be off each other, and what contradicts them: a table of `self`.

use super::Facts;
use super::section::{Column, Table, Unit, Value, column};

/// The table: processes of whose GPU times are known.
pub(super) fn table(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 8] = [
        column("process", "Process", Unit::Text),
        column("host_error_ns", "Host's clock", Unit::Ns),
        column("cupti_error_ns", "CUPTI's clock", Unit::Ns),
        column("alignment_error_ns", "Host and CUPTI", Unit::Ns),
        column("joined", "Joined", Unit::Count),
        column("violations", "Before their call", Unit::Count),
        column("earliest_ns", "By at most", Unit::Ns),
        column("events_error_ns", "Events' clock", Unit::Ns),
    ];
    let mut rows = Vec::new();
    for manifest in facts.trace.manifests() {
        for process in manifest.accounts() {
            let Some(about) = process.gpu_time.as_ref().filter(|about| about.records > 0 || about.events.is_some())
            else {
                continue;
            };
            let told = about.records > 0;
            let only = |value: Value| if told { value } else { Value::Missing };
            let events = about.events.as_ref().filter(|events| events.timed > 0);
            rows.push(vec![
                facts.label(process.process_id).into(),
                manifest.clock.error_ns.into(),
                only(about.clock_error_ns.unwrap_or(0).into()),
                about.alignment_error_ns.into(),
                only(about.joined.into()),
                only(about.violations.into()),
                only(about.earliest_ns.into()),
                events.map(|events| events.error_ns).into(),
            ]);
        }
    }
    Table::new("clocks", "How far times of the GPU may be off those of the host", &COLUMNS, rows)
}
