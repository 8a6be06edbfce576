//! ranges: what the program named with NVTX, and how long it took on the host.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_collectors::schema::TableId;

use super::loss;
use super::passes::folds;
use super::passes::ops::{self, Op};
use super::passes::ranges::{Key, Kind, Named};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need};
use crate::trace::{NO_NAME, full_name};

/// The analysis.
pub(crate) struct Ranges;

impl Analysis for Ranges {
    fn name(&self) -> &'static str {
        "ranges"
    }

    fn title(&self) -> &'static str {
        "Named ranges (NVTX)"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Ranges that the program and its libraries named with NVTX (torch.cuda.nvtx, emit_nvtx, the nvtx \
                package, NCCL), by process, domain, name and kind: how many, and total, share of wall time, average, min \
                and max of those that ended. push_pop are nested in their thread, start_end may end in another one, marks \
                are moments. Ranges around others hold the others' time. Names that differ only in numbers are one row with a star for \
                each number, and names says how many: step 17 and step 18 are step *. That is done for numbers that \
                stand alone (iter_0042, forward #3, 17), not inside a word or beside a dot (conv2d, layer.3), where there are \
                three such names or more and each occurs twice or less on average: those count something. Names that recur \
                more often (layer_3 in every step) are different things and have a row each. More than 100 names of a \
                pattern are folded in any case, and then numbers inside words as well (layer1.conv2). The table ranges has \
                every name in full. Where a process has ranges called ProfilerStep#N, \
                step, train step, training step, iteration, iter or batch (with a number or without, in any case, words \
                joined by _, - or a space), or what report --step names, the steps of all analyses are these: from the \
                beginning of one to the beginning of the next, and the last one to its end. Of push_pop ranges: launches are those \
                of their thread inside, GPU the time on it of the kernels that these launched, whenever they ran (projected), GPU own the \
                part of it whose launches lie in no range inside. report --range NAME keeps what lies inside ranges of that \
                name, thread by thread, and what the GPU did for launches and copies in there.",
            unit: "ns in JSON: of the host from the push to the pop, of the GPU the time of kernels, summed.",
            limits: "A range that was open when its thread or process ended, or whose end was lost, has no duration and \
                counts as open. Ranges that were open when gputrace itself was killed are not in the trace. Of more than 100 \
                names in a row, names counts those of the whole trace, whatever process or domain used them. 20,000 rows are told apart. \
                Kernels that run beside each other count in full, and copies not at all; ranges with more launches than are held (see ops) are \
                left out of launches and GPU.",
            source: "Nsight Systems nvtx_sum, nvtx_pushpop_sum and nvtx_startend_sum; nvtx_gpu_proj_sum, which takes the span from the first \
                operation to the last, where ours is the kernels' time.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Ranges, Need::Ops]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("ranges", Count, "ranges that the program named").sums(&[TableId::Ranges]),
            Metric::about("marks", Count, "marks that the program named").sums(&[TableId::Ranges]),
            Metric::about("open", Count, "ranges without an end in the trace").sums(&[TableId::Ranges]),
            Metric::about("folded_names", Count, "names with numbers that stand in one row with others")
                .sums(&[TableId::Ranges]),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let named = || facts.ranges.named.iter();
        let count =
            |mark: bool| named().filter(|(k, _)| (k.kind == Kind::Mark) == mark).map(|(_, n)| n.count).sum::<u64>();
        if named().next().is_none() {
            section.note("No ranges in this trace: nothing was named with NVTX (recorded with --nvtx on).");
            loss::note(&mut section, facts, "ends of ranges and marks", TableId::Ranges);
            return section;
        }
        section.fact("ranges", "ranges", Unit::Count, count(false));
        section.fact("marks", "marks", Unit::Count, count(true));
        section.fact("open", "ranges without an end", Unit::Count, named().map(|(_, n)| n.open).sum::<u64>());
        let rows = folded(facts);
        let names = rows.iter().filter(|row| row.names > 1).map(|row| row.names).sum::<usize>();
        section.fact("folded_names", "names with numbers, folded", Unit::Count, names as u64);
        section.table(by_name(facts, &rows));
        super::gpu::unread_note(&mut section, facts);
        loss::note(&mut section, facts, "ends of ranges and marks", TableId::Ranges);
        section
    }
}

/// Ranges that are shown together.
struct Row<'a> {
    key: &'a Key,
    name: Value,
    /// Names that it stands for.
    names: usize,
    named: Cow<'a, Named>,
    /// What was launched in them.
    op: Op,
}

/// Names of one pattern, with their ranges.
type Members<'a> = Vec<(&'a Key, &'a Named)>;

/// One row for each name, or for those that differ only in what they count; the longest in all first.
fn folded<'a>(facts: &'a Facts<'_>) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    let mut alike: BTreeMap<(i64, i64, Kind, String), Members<'a>> = BTreeMap::new();
    for (key, named) in facts.ranges.named.iter() {
        let of_key =
            |name: Value, names: usize| Row { key, name, names, named: Cow::Borrowed(named), op: op(facts, key) };
        let name = || facts.names.full(key.name_id);
        match key.pattern.map(|number| facts.ranges.folds.pattern(number)) {
            Some((pattern, names)) => rows.push(of_key(full_name(pattern).into(), names)),
            None if key.name_id < 0 => rows.push(of_key(name_of(facts, key.name_id), 1)),
            None => {
                let pattern = folds::pattern(&name(), false);
                alike.entry((key.process_id, key.domain_id, key.kind, pattern)).or_default().push((key, named));
            }
        }
    }
    for ((.., pattern), members) in alike {
        let count: u64 = members.iter().map(|(_, named)| named.count).sum();
        if members.len() >= folds::FEWEST && count <= folds::TIMES * members.len() as u64 {
            let mut sum = Named::default();
            let mut launched = Op::default();
            for (key, named) in &members {
                sum.merge(named);
                launched.merge(&op(facts, key));
            }
            let (key, names) = (members[0].0, members.len());
            rows.push(Row { key, name: pattern.into(), names, named: Cow::Owned(sum), op: launched });
        } else {
            let row = |(key, named): (&'a Key, &'a Named)| Row {
                key,
                name: name_of(facts, key.name_id),
                names: 1,
                named: Cow::Borrowed(named),
                op: op(facts, key),
            };
            rows.extend(members.into_iter().map(row));
        }
    }
    rows.sort_by_key(|Row { key, named, .. }| {
        (Reverse((named.durations.sum, named.count)), facts.place(key.process_id), key.domain_id, key.name_id, key.kind)
    });
    rows
}

/// What was launched in ranges of a key; nothing in those that may end in another thread.
fn op(facts: &Facts<'_>, key: &Key) -> Op {
    let Key { process_id, domain_id, name_id, pattern, kind } = *key;
    let found = facts.ops.ops.get(&ops::Key { process_id, domain_id, name_id, pattern });
    found.filter(|_| kind == Kind::PushPop).cloned().unwrap_or_default()
}

fn name_of(facts: &Facts<'_>, id: i64) -> Value {
    if id == NO_NAME { Value::Missing } else { facts.names.full(id).into() }
}

fn by_name(facts: &Facts<'_>, rows: &[Row<'_>]) -> Table {
    const COLUMNS: [Column; 17] = [
        column("process", "Process", Unit::Text),
        column("domain", "Domain", Unit::Name),
        column("name", "Name", Unit::Name),
        column("names", "Names", Unit::Count),
        column("kind", "Kind", Unit::Text),
        column("count", "Count", Unit::Count),
        column("per_step", "Per step", Unit::Count),
        column("open", "Open", Unit::Count),
        column("total_ns", "Total", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
        column("launches", "Launches", Unit::Count),
        column("gpu_ns", "GPU", Unit::Ns),
        column("gpu_own_ns", "GPU own", Unit::Ns),
        column("avg_ns", "Avg", Unit::Ns),
        column("med_ns", "Med", Unit::Ns),
        column("min_ns", "Min", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
    ];
    let row = |Row { key, name, names, named, op }: &Row<'_>| {
        // Where the launches of all are not known, nothing can be said.
        let launched = (op.total.count > 0 && op.uncounted < op.total.count).then_some(op);
        let on_gpu = launched.filter(|_| facts.ops.is_timed(key.process_id));
        let ended = named.durations.count > 0;
        let of = |ns: Value| if ended { ns } else { Value::Missing };
        let steps = facts.steps.of(key.process_id).map(|s| s.sorted_ns.len().max(1));
        vec![
            facts.label(key.process_id).into(),
            name_of(facts, key.domain_id),
            name.clone(),
            (*names as u64).into(),
            key.kind.text().into(),
            named.count.into(),
            steps.map(|n| named.steady as f64 / n as f64).into(),
            if key.kind == Kind::Mark { Value::Missing } else { named.open.into() },
            of(named.durations.sum.into()),
            of(percent(named.durations.sum as f64, facts.wall_ns(key.process_id))),
            launched.map(|op| op.launches).into(),
            on_gpu.map(|op| op.gpu_ns).into(),
            on_gpu.map(|op| op.gpu_own_ns).into(),
            of(named.durations.mean().into()),
            of(named.durations.median().into()),
            of(named.durations.min.into()),
            of(named.durations.max.into()),
        ]
    };
    Table::new("by_name", "By name, the longest in all first", &COLUMNS, rows.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::passes::period::Name;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};
    use gputrace_collectors::names::{NameKind, id};

    #[test]
    fn ranges_are_summed_by_domain_and_name() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let mut thread = trace.thread(1, 11);
        for ns in [1_000, 3_000, 5_000] {
            let outer = thread.range_begin();
            let inner = thread.range_begin();
            thread.host(ns);
            thread.range_end(Some("loader"), "forward", inner, true);
            thread.host(1_000_000);
            thread.range_end(None, "epoch", outer, true);
        }
        let open = thread.range_begin();
        thread.host(5_000_000);
        thread.range_end(None, "epoch", open, false);
        thread.mark("checkpoint");
        let section = trace.section(&Ranges);
        assert_eq!(
            [section.get("ranges"), section.get("marks"), section.get("open")],
            [7, 1, 1].map(Value::Int).each_ref()
        );
        let row = |row: usize| {
            ["name", "domain", "count", "open", "total_ns", "min_ns", "max_ns"]
                .map(|c| section.cell("by_name", row, c).clone())
        };
        let text = |t: &str| Value::from(t);
        let int = Value::Int;
        let epoch = [text("epoch"), Value::Missing, int(4), int(1), int(3_009_000), int(1_001_000), int(1_005_000)];
        assert_eq!(row(0), epoch);
        let forward = [text("forward"), text("loader"), int(3), int(0), int(9_000), int(1_000), int(5_000)];
        assert_eq!(row(1), forward);
        let mark = [
            text("checkpoint"),
            Value::Missing,
            int(1),
            Value::Missing,
            Value::Missing,
            Value::Missing,
            Value::Missing,
        ];
        assert_eq!(row(2), mark);
        assert_eq!(section.cell("by_name", 1, "avg_ns"), &Value::Num(3_000.0));
        assert_eq!(section.cell("by_name", 0, "wall_percent"), &Value::Num(30.09));
    }

    #[test]
    fn the_gpus_time_is_that_of_the_launches_inside_and_each_kernel_is_owned_once() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let mut thread = trace.thread(1, 11);
        for step in 0..3 {
            let begin = START + 1_000_000 * (step + 1);
            let outer = thread.range_begin();
            thread.launch_running("k", 1_000, 7, (begin, 10_000));
            let inner = thread.range_begin();
            thread.launch_running("k", 1_000, 7, (begin + 20_000, 300_000));
            thread.range_end(None, "forward", inner, true);
            thread.range_end(Some("loop"), "batch of mine", outer, true);
        }
        let section = trace.section(&Ranges);
        let row = |row| ["name", "launches", "gpu_ns", "gpu_own_ns"].map(|of| section.cell("by_name", row, of).clone());
        let of = |name: &str, numbers: [i64; 3]| {
            let [launches, all, own] = numbers.map(Value::Int);
            [name.into(), launches, all, own]
        };
        assert_eq!(row(0), of("batch of mine", [6, 930_000, 30_000]));
        assert_eq!(row(1), of("forward", [3, 900_000, 900_000]));
    }

    /// Names, how many each row stands for, and counts, of ranges with these names, one after another.
    fn rows(names: impl IntoIterator<Item = String>) -> Vec<(String, u64, u64)> {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let mut thread = trace.thread(1, 11);
        for name in names {
            let begun = thread.range_begin();
            thread.host(1_000);
            thread.range_end(None, &name, begun, true);
        }
        let section = trace.section(&Ranges);
        let number = |cell: &Value| if let Value::Int(number) = cell { *number as u64 } else { panic!("{cell:?}") };
        let count = section.tables[0].rows.len();
        let row = |row| {
            let Value::Text(name) = section.cell("by_name", row, "name") else { panic!("no name") };
            let [names, count] = ["names", "count"].map(|column| number(section.cell("by_name", row, column)));
            (name.clone(), names, count)
        };
        let mut rows: Vec<_> = (0..count).map(row).collect();
        rows.sort();
        let folded: u64 = rows.iter().filter(|row| row.1 > 1).map(|row| row.1).sum();
        assert_eq!(section.get("folded_names"), &Value::Int(folded as i64));
        rows
    }

    #[test]
    fn names_that_count_something_are_one_row() {
        let steps = (0..6).flat_map(|n| [format!("iter_{n:04}"), format!("forward #{n}"), format!("forward #{n}")]);
        let of = |name: &str, names, count| (name.to_owned(), names, count);
        assert_eq!(rows(steps), [of("forward #*", 6, 12), of("iter_*", 6, 6)]);
        assert_eq!(rows(["7", "8", "9"].map(str::to_owned)), [of("*", 3, 3)]);
        assert_eq!(rows(["epoch 1", "epoch 2"].map(str::to_owned)), [of("epoch 1", 1, 1), of("epoch 2", 1, 1)]);
    }

    #[test]
    fn things_that_have_numbers_are_told_apart_unless_they_are_very_many() {
        let step = ["layer_1", "layer_2", "layer_3", "layer1.conv2", "layer2.conv2", "layer3.conv2"];
        let found = rows((0..3).flat_map(|_| step).map(str::to_owned));
        assert!(found.len() == 6 && found.iter().all(|row| (row.1, row.2) == (1, 3)), "{found:?}");
        // Once each, but part of the name.
        assert_eq!(rows(step[3..].iter().map(|name| (*name).to_owned())).len(), 3);
        let many = (0..3).flat_map(|_| (0..101).flat_map(|n| [format!("layer_{n}"), format!("layer{n}.conv2")]));
        let of = |name: &str| (name.to_owned(), 101, 303);
        assert_eq!(rows(many), [of("layer*.conv*"), of("layer_*")]);
    }

    #[test]
    fn a_long_run_that_numbers_its_steps_is_one_row_whatever_the_limit() {
        let names = (0..25_000).map(|n| format!("step {n}"));
        assert_eq!(rows(names), [("step *".to_owned(), 25_000, 25_000)]);
    }

    /// Twelve steps of 5 ms that begin with a range of this name, and a wait in the middle of each.
    fn loop_of(name: impl Fn(usize) -> String) -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        for n in 0..12 {
            let step = thread.range_begin();
            for _ in 0..20 {
                thread.launch("kernel", 10_000);
            }
            thread.sync("cuStreamSynchronize", "stream", 800_000);
            let nested = thread.range_begin();
            thread.host(3_000_000);
            thread.range_end(None, &name(n), nested, true);
            thread.range_end(None, &name(n), step, true);
            thread.host(1_000_000);
        }
        trace
    }

    fn anchor(trace: &TestTrace, step: Option<&str>) -> (Name, u64, i64) {
        let (open, filter) = (trace.open(), Filter { step: step.map(str::to_owned), ..Filter::default() });
        let facts = Facts::gather(&open, &filter, &[]);
        let steps = facts.steps.of(1).expect("steps");
        (steps.anchor, steps.count, steps.quantile_ns(0.5))
    }

    #[test]
    fn steps_that_the_program_names_are_the_steps() {
        let first = |name: &str| Name::Range(id(NameKind::Range, name));
        let profiler = loop_of(|n| format!("ProfilerStep#{n}"));
        assert_eq!(anchor(&profiler, None), (first("ProfilerStep#0"), 12, 5_000_000));
        let own = loop_of(|_| "my loop".to_owned());
        assert_eq!(anchor(&own, Some("My_Loop")), (first("my loop"), 12, 5_000_000));
        // A name that means nothing to us: the loop is found by its calls.
        assert!(matches!(anchor(&own, None), (Name::Wait(_), 12, 5_000_000)));
    }
}
