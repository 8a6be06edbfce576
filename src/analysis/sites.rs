//! Tables by call site, which several analyses have: whose line cost the time, or gave the GPU its work.

use std::collections::BTreeMap;

use super::Facts;
use super::passes::sites::{Cost, Drawn, What};
use super::passes::stats::Stats;
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use crate::trace::Site;

/// Stands in place of a site for calls of which no stack was taken.
const NONE: &str = "(no stack: short calls, or none wanted)";

/// Costs of one site.
#[derive(Debug, Default)]
pub(crate) struct AtSite {
    /// The site; none for calls without a stack.
    pub(crate) site: Option<Site>,
    /// Function.
    pub(crate) api_id: i64,
    /// Direction of a copy; else empty.
    pub(crate) direction: String,
    /// Process.
    pub(crate) process_id: i64,
    /// All calls.
    pub(crate) all: Stats,
    /// Bytes that they copied, set, took or gave back.
    pub(crate) bytes: i64,
    /// Calls in steady steps.
    pub(crate) steady: u64,
    /// In steady steps of usual duration: calls and their time.
    pub(crate) middle: (u64, i64),
}

impl AtSite {
    /// `cuMemcpyDtoH_v2 DtoH of 4 B`: the function, and what a call of it moves.
    pub(crate) fn called(&self, facts: &Facts<'_>) -> String {
        let mut text = facts.names.full(self.api_id);
        if !self.direction.is_empty() {
            text = format!("{text} {}", self.direction);
        }
        if self.bytes > 0 {
            let each = self.bytes as f64 / self.all.count.max(1) as f64;
            text = format!("{text} of {}", crate::render::bytes(each));
        }
        text
    }
}

/// What cost time with one of `what`, by process, site, function and direction, most time first.
pub(crate) fn costs(facts: &Facts<'_>, what: &[What]) -> Vec<AtSite> {
    let mut sums: BTreeMap<(i64, Option<&Site>, i64, &str), AtSite> = BTreeMap::new();
    for (key, Cost { all, bytes, steady, middle }) in
        facts.sites.costs.iter().filter(|(key, _)| what.contains(&key.what))
    {
        let site = facts.stacks.get(key.stack_id);
        let direction = facts.sites.texts.text(key.direction);
        let sum = sums.entry((key.process_id, site, key.api_id, direction)).or_insert_with(|| AtSite {
            site: site.cloned(),
            api_id: key.api_id,
            direction: direction.to_owned(),
            process_id: key.process_id,
            ..AtSite::default()
        });
        sum.all.merge(all);
        sum.bytes = sum.bytes.saturating_add(*bytes);
        sum.steady += steady;
        sum.middle = (sum.middle.0 + middle.0, sum.middle.1 + middle.1);
    }
    let mut sums: Vec<AtSite> = sums.into_values().collect();
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.all.sum));
    sums
}

/// Adds the table of what cost time with one of `what`, where stacks are known.
pub(crate) fn cost_table(
    section: &mut Section,
    facts: &Facts<'_>,
    what: &[What],
    (key, title): (&'static str, &'static str),
) {
    const COLUMNS: [Column; 12] = [
        column("process", "Process", Unit::Text),
        column("site", "Line", Unit::Text),
        column("total_ns", "Total", Unit::Ns),
        column("calls", "Calls", Unit::Count),
        column("per_step", "Per step", Unit::Count),
        column("wall_percent", "Of wall", Unit::Percent),
        column("avg_ns", "Avg", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
        column("direction", "Direction", Unit::Text),
        column("bytes", "Bytes", Unit::Bytes),
        column("api", "Function", Unit::Name),
        column("place", "File", Unit::Name),
    ];
    if !facts.sites.any() {
        return;
    }
    let row = |at: &AtSite| {
        let steps = facts.steps.of(at.process_id).map(|s| s.sorted_ns.len().max(1));
        vec![
            facts.label(at.process_id).into(),
            at.site.as_ref().map_or_else(|| NONE.to_owned(), Site::short).into(),
            at.all.sum.into(),
            at.all.count.into(),
            steps.map(|n| at.steady as f64 / n as f64).into(),
            percent(at.all.sum as f64, facts.wall_ns(at.process_id)),
            at.all.mean().into(),
            at.all.max.into(),
            Some(at.direction.clone()).filter(|direction| !direction.is_empty()).into(),
            Some(at.bytes).filter(|bytes| *bytes > 0).into(),
            facts.names.full(at.api_id).into(),
            at.site.as_ref().map(Site::place).into(),
        ]
    };
    section.table(Table::new(key, title, &COLUMNS, costs(facts, what).iter().map(row).collect()));
}

/// Launches by process and site: those that drawn stacks stand for, most first.
pub(crate) fn launches<'a>(facts: &'a Facts<'_>) -> Vec<(i64, &'a Site, Drawn)> {
    let mut sums: BTreeMap<(i64, &Site), Drawn> = BTreeMap::new();
    for ((process_id, stack_id), drawn) in facts.sites.launches.iter() {
        let Some(site) = facts.stacks.get(*stack_id) else { continue };
        let sum = sums.entry((*process_id, site)).or_default();
        sum.samples += drawn.samples;
        sum.launches = sum.launches.saturating_add(drawn.launches);
        sum.others += drawn.others;
    }
    let mut sums: Vec<_> = sums.into_iter().map(|((process_id, site), drawn)| (process_id, site, drawn)).collect();
    sums.sort_by_key(|(.., drawn)| (std::cmp::Reverse(drawn.launches), std::cmp::Reverse(drawn.others)));
    sums
}

/// Adds the table of launches by line, where stacks are known.
pub(crate) fn launch_table(section: &mut Section, facts: &Facts<'_>) {
    const COLUMNS: [Column; 7] = [
        column("process", "Process", Unit::Text),
        column("site", "Line", Unit::Text),
        column("launches_estimate", "Launches, about", Unit::Count),
        column("launches_percent", "Of launches", Unit::Percent),
        column("samples", "Drawn", Unit::Count),
        column("after_pause", "Long, or after a pause", Unit::Count),
        column("place", "File", Unit::Name),
    ];
    let sites = launches(facts);
    let row = |(process_id, site, drawn): &(i64, &Site, Drawn)| {
        let all = facts.launches.processes.get(process_id).map_or(0, |p| p.count);
        // How many were drawn is an accident; of which lines they were is what they tell.
        let of_process = sites.iter().filter(|(process, ..)| process == process_id);
        let stand_for: i64 = of_process.map(|(.., drawn)| drawn.launches).sum();
        let share = if stand_for > 0 { drawn.launches as f64 / stand_for as f64 } else { f64::NAN };
        vec![
            facts.label(*process_id).into(),
            site.named().into(),
            Value::from((share * all as f64).round()),
            Value::from(100.0 * share),
            drawn.samples.into(),
            drawn.others.into(),
            site.place().into(),
        ]
    };
    let title = "By line, from launches drawn at random";
    section.table(Table::new("by_site", title, &COLUMNS, sites.iter().map(row).collect()));
}

#[cfg(test)]
mod tests {
    use crate::analysis::launch_overhead::LaunchOverhead;
    use crate::analysis::section::Value;
    use crate::analysis::syncs::Syncs;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn waits_are_summed_by_line_whatever_led_there_and_those_without_a_stack_apart() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let item = trace.stack("main", "/home/u/train.py", 44);
        let other = trace.stack("save", "/home/u/train.py", 90);
        let mut thread = trace.thread(1, 11);
        for _ in 0..3 {
            thread.stack = Some((item, 0));
            thread.sync("cuStreamSynchronize", "stream", 300_000);
            thread.stack = None;
            thread.sync("cuStreamSynchronize", "stream", 5_000);
        }
        thread.stack = Some((other, 0));
        thread.sync("cuCtxSynchronize", "context", 2_000_000);
        // A copy of four bytes that took a millisecond waited for nearly all of it.
        thread.stack = Some((item, 0));
        thread.copy("DtoH", ("device", "pageable"), false, 4, 1_000_000);
        let section = trace.section(&Syncs);
        let row = |row: usize| {
            let cell = |column: &str| section.cell("by_site", row, column).clone();
            (cell("site"), cell("calls"), cell("total_ns"), cell("place"))
        };
        let place = |line: u32| Value::from(format!("/home/u/train.py:{line}"));
        assert_eq!(row(0), ("train.py:90 save".into(), Value::Int(1), Value::Int(2_000_000), place(90)));
        assert_eq!(row(1), ("train.py:44 main".into(), Value::Int(1), Value::Int(979_998), place(44)));
        assert_eq!(row(2), ("train.py:44 main".into(), Value::Int(3), Value::Int(900_000), place(44)));
        assert_eq!(row(3), (super::NONE.into(), Value::Int(3), Value::Int(15_000), Value::Missing));
    }

    #[test]
    fn the_waits_of_all_lines_are_those_of_the_section() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let line = trace.stack("main", "/home/u/train.py", 44);
        let mut thread = trace.thread(1, 11);
        thread.stack = Some((line, 0));
        thread.sync("cuStreamSynchronize", "stream", 300_000);
        thread.copy("DtoH", ("device", "pageable"), false, 4, 1_020_002);
        // It is over when it is queued, whatever held it up.
        thread.copy("DtoD", ("device", "device"), false, 4, 1_020_002);
        let section = trace.section(&Syncs);
        let of_lines = section.tables.iter().find(|table| table.key == "by_site").map_or(0, |table| table.rows.len());
        assert_eq!((of_lines, section.cell("by_site", 0, "total_ns")), (2, &Value::Int(1_000_000)));
        assert_eq!(
            (section.get("implicit_waits_ns"), section.get("waits_ns")),
            (&Value::Int(1_000_000), &Value::Int(300_000))
        );
    }

    #[test]
    fn drawn_launches_stand_for_the_others_and_launches_after_a_pause_for_themselves() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let forward = trace.stack("Block.forward", "/home/u/model.py", 88);
        let mut thread = trace.thread(1, 11);
        for n in 0..40 {
            thread.stack = (n % 10 == 3).then_some((forward, 10));
            thread.launch("k", 2_000);
        }
        thread.stack = Some((forward, 0));
        thread.launch("k", 2_000);
        let section = trace.section(&LaunchOverhead);
        let cell = |column: &str| section.cell("by_site", 0, column).clone();
        assert_eq!(cell("site"), "model.py:88 Block.forward".into());
        assert_eq!(
            (cell("launches_estimate"), cell("samples"), cell("after_pause")),
            (Value::Num(41.0), Value::Int(4), Value::Int(1))
        );
    }

    #[test]
    fn loading_is_told_by_line_in_calls_for_it_and_in_first_launches_that_took_long() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let import = trace.stack("<module>", "/home/u/train.py", 3);
        let step = trace.stack("step", "/home/u/train.py", 50);
        let mut thread = trace.thread(1, 11);
        thread.stack = Some((import, 0));
        thread.other("cuLibraryLoadData", "module", 7_000_000);
        thread.other("cuStreamCreate", "api", 9_000_000);
        thread.stack = Some((step, 0));
        thread.launch("k", 2_000_000);
        (0..20).for_each(|_| thread.launch("k", 3_000));
        let section = trace.section(&Syncs);
        let row = |row: usize| ["site", "api", "total_ns"].map(|column| section.cell("by_site", row, column).clone());
        assert_eq!(row(0), ["train.py:3 <module>".into(), "cuLibraryLoadData".into(), Value::Int(7_000_000)]);
        assert_eq!(row(1), ["train.py:50 step".into(), "cuLaunchKernel".into(), Value::Int(1_997_000)]);
        assert_eq!(section.tables.iter().find(|table| table.key == "by_site").map(|table| table.rows.len()), Some(2));
        assert_eq!((section.get("loads"), section.get("loads_ns")), (&Value::Int(2), &Value::Int(8_997_000)));
    }

    #[test]
    fn a_trace_without_stacks_has_no_such_table() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        trace.thread(1, 11).sync("cuStreamSynchronize", "stream", 300_000);
        assert!(trace.section(&Syncs).tables.iter().all(|table| table.key != "by_site"));
    }
}
