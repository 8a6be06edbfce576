//! How far times of host and GPU may be off each other, and what contradicts them: tables of `self`.

use gputrace_collectors::manifest::Manifest;

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

/// The same of Metal: a row for each device of a process.
pub(super) fn metal(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 12] = [
        column("process", "Process", Unit::Text),
        column("device", "GPU", Unit::Id),
        column("pairs", "Pairs", Unit::Count),
        column("pair_error_ns", "A pair", Unit::Ns),
        column("runs_as_host", "As the host's", Unit::Text),
        column("offset_ns", "Off at first", Unit::Ns),
        column("drift_ns_per_s", "Gains a second", Unit::Ns),
        column("alignment_error_ns", "Host and GPU", Unit::Ns),
        column("joined", "Timed", Unit::Count),
        column("corrected", "Put right", Unit::Count),
        column("violations", "Outside of commit and end", Unit::Count),
        column("earliest_ns", "Before it by at most", Unit::Ns),
    ];
    let mut rows = Vec::new();
    for process in facts.trace.manifests().flat_map(Manifest::accounts) {
        for clock in &process.gpu_clocks {
            let runs_as_host = clock.runs_as_host.map(|as_host| if as_host { "yes" } else { "no" });
            rows.push(vec![
                facts.label(process.process_id).into(),
                i64::from(clock.device).into(),
                clock.pairs.into(),
                clock.pair_error_ns.into(),
                runs_as_host.into(),
                clock.offset_ns.into(),
                clock.drift_ppm.map(|ppm| ppm * 1e3).into(),
                clock.alignment_error_ns.into(),
                clock.joined.into(),
                clock.corrected.into(),
                clock.violations.into(),
                clock.earliest_ns.into(),
            ]);
        }
    }
    Table::new("gpu_clocks", "How far the clocks of Metal's GPUs may be off the host's", &COLUMNS, rows)
}
