//! How much of a trace lies outside of the span that is exported.

use gputrace_collectors::schema::TableId;

use crate::render::number;
use crate::trace::{Filter, Trace, Want};

/// Events that have a time of their own.
const EVENTS: [TableId; 12] = [
    TableId::Launches,
    TableId::Syncs,
    TableId::Transfers,
    TableId::DeviceMemory,
    TableId::Api,
    TableId::Collectives,
    TableId::Dispatches,
    TableId::Ranges,
    TableId::OsWaits,
    TableId::HostMemory,
    TableId::Kernels,
    TableId::DeviceCopies,
];

/// Says how many events of the processes that are kept began outside of the span that was named; none where none was, or none did.
pub(crate) fn text(trace: &Trace, filter: &Filter) -> Option<String> {
    if !filter.is_window() {
        return None;
    }
    let whole =
        Filter { from_ns: None, to_ns: None, within: Vec::new(), steps: None, interval: None, ..filter.clone() };
    let [all, kept] = [&whole, filter].map(|filter| events(trace, filter));
    let [out, of] = [all.saturating_sub(kept), all].map(|events| number(events as f64));
    (all > kept).then(|| format!("{out} of {of} events lie outside of the chosen span and are left out"))
}

fn events(trace: &Trace, filter: &Filter) -> u64 {
    let mut events = 0;
    let wants = EVENTS.map(|table| Want { table, columns: &[] });
    trace.scan(&wants, filter, &mut |rows| events += rows.len as u64);
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn what_lies_outside_of_a_span_is_counted() {
        let mut made = TestTrace::new();
        made.process(1, 100, None, START + 1_000_000);
        let mut thread = made.thread(1, 11);
        (0..1500).for_each(|_| thread.launch("k", 100));
        let trace = made.open();
        let said = |from: i64| text(&trace, &Filter { from_ns: Some(START + from), ..Filter::default() });
        assert_eq!(text(&trace, &Filter::default()), None);
        assert_eq!(said(-10), None);
        assert_eq!(said(100_000_000).unwrap(), "1,500 of 1,500 events lie outside of the chosen span and are left out");
        assert!(said(50_000).unwrap().contains(" of 1,500 events lie outside"), "{:?}", said(50_000));
    }
}
