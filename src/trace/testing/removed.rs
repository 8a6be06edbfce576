//! Rows that a limit of size or age removed, and launches that a budget left out.

use std::collections::BTreeMap;

use gputrace_collectors::manifest::{HookBudget, Removed, ShedPart};
use gputrace_collectors::schema::{TABLES, TableId};
use serde_json::Value;

use super::{START, TestTrace};

impl TestTrace {
    /// Removes a table's rows that began before then, as `--max-size` does, and notes it. Gives how many.
    pub(crate) fn remove_before(&mut self, table: TableId, until_ns: i64) -> u64 {
        let rows = &mut self.rows[table as usize];
        let before = rows.len();
        rows.retain(|row| row.get("start_ns").and_then(Value::as_i64).is_none_or(|start| start >= until_ns));
        let removed = (before - rows.len()) as u64;
        if removed > 0 {
            let (limit, table) = ("--max-size".to_owned(), table.table().name.to_owned());
            let removed = Removed { limit, table, rows: removed, from_ns: START, to_ns: until_ns };
            self.manifest.as_mut().expect("a manifest").removed.push(removed);
        }
        removed
    }

    /// Leaves launches out from then on, as `--budget` does: of so many one stays, by chance, and stands for the others, and a
    /// thread's calls are numbered without those that went. Gives how many went.
    pub(crate) fn thin(&mut self, from_ns: i64, one_in: i64) -> u64 {
        let int =
            |row: &serde_json::Map<String, Value>, column: &str| row.get(column).and_then(Value::as_i64).unwrap_or(0);
        let launches = &mut self.rows[TableId::Launches as usize];
        let (before, mut chance) = (launches.len(), 1_u64);
        launches.retain_mut(|row| {
            if int(row, "start_ns") < from_ns {
                return true;
            }
            row.insert("stands_for".to_owned(), one_in.into());
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % one_in as u64 == 0
        });
        let sampled_out = (before - launches.len()) as u64;
        /// When it began, and where its row is.
        type Call = (i64, usize, usize);
        let mut calls: BTreeMap<(i64, i64), Vec<Call>> = BTreeMap::new();
        for table in TABLES.iter().filter(|table| table.columns.iter().any(|of| of.name == "correlation_id")) {
            for (at, row) in
                self.rows[table.id as usize].iter().enumerate().filter(|(_, row)| row.contains_key("api_id"))
            {
                let thread = (int(row, "process_id"), int(row, "tid"));
                calls.entry(thread).or_default().push((int(row, "start_ns"), table.id as usize, at));
            }
        }
        for ((_, tid), mut calls) in calls {
            calls.sort_unstable();
            for (number, (_, table, at)) in calls.into_iter().enumerate() {
                self.rows[table][at].insert("correlation_id".to_owned(), ((tid << 32) + number as i64).into());
            }
        }
        let part = ShedPart { what: "launches".into(), from_ns, to_ns: None, one_in: Some(one_in as u64), sampled_out };
        let budget = HookBudget { percent: 1.0, shed: vec![part], ..HookBudget::default() };
        self.manifest.as_mut().expect("a manifest").processes[0].budget = Some(budget);
        sampled_out
    }
}
