//! Calls that wait without saying so, and what the legacy stream makes wait: the tables of syncs about them.

use super::Facts;
use super::passes::implicit;
use super::section::{Column, Table, Unit, Value, column};

/// By kind and function, most waiting first.
pub(super) fn table(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 10] = [
        column("process", "Process", Unit::Text),
        column("kind", "Kind", Unit::Text),
        column("rule", "Rule", Unit::Text),
        column("api", "Function", Unit::Name),
        column("calls", "Calls", Unit::Count),
        column("rule_calls", "Named", Unit::Count),
        column("pending", "Found work", Unit::Count),
        column("waits", "Waited", Unit::Count),
        column("waited_ns", "Waiting", Unit::Ns),
        column("total_ns", "Total", Unit::Ns),
    ];
    let row = |(key, calls): (&implicit::Key, &implicit::Calls)| {
        let rule = key.kind.rule();
        let lazy = key.kind == implicit::Kind::LazyLaunch;
        let waits = key.kind.waits().then_some(calls.waited.count);
        vec![
            facts.label(key.process_id).into(),
            key.kind.text().into(),
            rule.into(),
            facts.names.full(key.api_id).into(),
            calls.api.count.into(),
            rule.map(|_| calls.ruled).into(),
            if lazy { Value::Missing } else { calls.pending.into() },
            waits.into(),
            waits.map(|_| calls.waited.sum).into(),
            calls.api.sum.into(),
        ]
    };
    let mut all: Vec<_> = facts.implicit.calls.iter().collect();
    all.sort_by_key(|(key, calls)| {
        let cost = (calls.waited.sum, calls.api.sum);
        (std::cmp::Reverse(cost), key.kind, key.api_id, facts.place(key.process_id))
    });
    let title = "Calls that may wait without saying so (Found work: calls before which work was pending)";
    Table::new("implicit", title, &COLUMNS, all.into_iter().map(row).collect())
}

/// By function that uses the legacy stream.
pub(super) fn legacy(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 5] = [
        column("process", "Process", Unit::Text),
        column("api", "Function", Unit::Name),
        column("queued", "Queued behind", Unit::Count),
        column("waits", "Waits", Unit::Count),
        column("waits_ns", "Their time", Unit::Ns),
    ];
    let mut all: Vec<_> = facts.implicit.legacy.iter().collect();
    all.sort_by_key(|((process, api), sum)| {
        (std::cmp::Reverse((sum.waits.sum, sum.queued)), *api, facts.place(*process))
    });
    let row = |((process, api), sum): (&(i64, i64), &implicit::Legacy)| {
        vec![
            facts.label(*process).into(),
            facts.names.full(*api).into(),
            sum.queued.into(),
            sum.waits.count.into(),
            sum.waits.sum.into(),
        ]
    };
    let title = "Work behind other streams' and waits for other streams, because of the legacy stream";
    Table::new("legacy", title, &COLUMNS, all.into_iter().map(row).collect())
}
