//! How much of a trace lies outside of the span that is exported.
//!
//! Timelines count what they write, so that what is in the file and what is left out are together what the whole export has. Others count
//! rows of the tables that they read.

use gputrace_collectors::schema::TableId;

use super::timeline;
use crate::render::number;
use crate::trace::{Filter, Trace, Want};

/// Tables of what has a stack.
pub(super) const EVENTS: [TableId; 12] = [
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

/// Says how many bars and values of the processes that are kept began outside of the span that was named; none where none was, or none did.
pub(super) fn of_timeline(trace: &Trace, filter: &Filter) -> Option<String> {
    text("events", filter, |filter| timeline::count(trace, filter))
}

/// The same of rows of these tables.
pub(super) fn of_rows(trace: &Trace, filter: &Filter, tables: impl IntoIterator<Item = TableId>) -> Option<String> {
    let wants: Vec<Want> = tables.into_iter().map(|table| Want { table, columns: &[] }).collect();
    text("rows of the trace", filter, |filter| {
        let mut all = 0;
        trace.scan(&wants, filter, &mut |rows| all += rows.len as u64);
        all
    })
}

fn text(what: &str, filter: &Filter, count: impl Fn(&Filter) -> u64) -> Option<String> {
    if !filter.is_window() {
        return None;
    }
    let whole =
        Filter { from_ns: None, to_ns: None, within: Vec::new(), steps: None, interval: None, ..filter.clone() };
    let [all, kept] = [&whole, filter].map(count);
    let [out, of] = [all.saturating_sub(kept), all].map(|of| number(of as f64));
    (all > kept).then(|| format!("{out} of {of} {what} lie outside of the chosen span and are left out"))
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
        let said = |from: i64| of_timeline(&trace, &Filter { from_ns: Some(START + from), ..Filter::default() });
        assert_eq!(of_timeline(&trace, &Filter::default()), None);
        assert_eq!(said(-10), None);
        assert_eq!(said(100_000_000).unwrap(), "1,500 of 1,500 events lie outside of the chosen span and are left out");
        let late = Filter { from_ns: Some(START + 100_000_000), ..Filter::default() };
        let rows = of_rows(&trace, &late, EVENTS).unwrap();
        assert_eq!(rows, "1,500 of 1,500 rows of the trace lie outside of the chosen span and are left out");
        assert!(said(50_000).unwrap().contains(" of 1,500 events lie outside"), "{:?}", said(50_000));
    }
}
