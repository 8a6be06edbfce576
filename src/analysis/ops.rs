//! ops: which operators and modules the host's time and the launches belong to.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_collectors::schema::TableId;

use super::loss;
use super::passes::folds;
use super::passes::ops::Op;
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need};
use crate::trace::full_name;

/// The analysis.
pub(crate) struct Ops;

/// Processes that a note names.
const NAMED: usize = 8;

impl Analysis for Ops {
    fn name(&self) -> &'static str {
        "ops"
    }

    fn title(&self) -> &'static str {
        "Operators and modules"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Ranges that are nested in their thread, by process, kind and name: operators (names with ::, as \
                aten::mm), modules (nn.Module: Linear_0) and all other annotations. They come from imported traces \
                (cpu_op, user_annotation), torch.autograd.profiler.emit_nvtx, record_function and NVTX. What follows a \
                comma in a name (op_id, seq) does not count, and names that differ only in numbers are one where there are \
                more than 100. Total is from begin to end, own is without the ranges inside; launches are those of the same \
                thread inside, and GPU is what they took on the GPU wherever it ran later, both with those of inner ranges.",
            unit: "ns in JSON, of the host; GPU in ns of the GPU.",
            limits: "Launches of other threads (backward() on autograd's) belong to the ranges of those threads. A range is not \
                counted with its launches when 262,144 launches of its thread came after its begin; uncounted says how \
                many. Totals of nested ranges of one name count twice. Of 64 threads launches are known. Copies are no \
                launches.",
            source: "torch.profiler's key_averages (CPU total, self CPU, CUDA total); Nsight Systems nvtx_gpu_proj_sum.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Ops]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("ranges", Count, "ranges nested in their threads that ended").sums(&[TableId::Ranges]),
            Metric::about("names", Count, "operators, modules and annotations told apart, by process")
                .sums(&[TableId::Ranges]),
            Metric::about("uncounted", Count, "ranges whose launches are not known").sums(&[TableId::Ranges]),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.ops.ops.iter().next().is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let rows = rows(facts);
        section.fact("ranges", "ranges", Unit::Count, rows.iter().map(|(_, op)| op.total.count).sum::<u64>());
        section.fact("names", "names", Unit::Count, rows.len() as u64);
        let uncounted: u64 = rows.iter().map(|(_, op)| op.uncounted).sum();
        section.fact("uncounted", "without their launches", Unit::Count, uncounted);
        if rows.is_empty() {
            section.note(
                "No operators in this trace: import a trace of torch.profiler, or record a program that names ranges \
                 (torch.autograd.profiler.emit_nvtx).",
            );
        }
        let mut untimed: Vec<i64> = rows.iter().map(|((process, ..), _)| *process).collect();
        untimed.dedup();
        untimed.retain(|process| facts.trace.has_gpu_times() && !facts.ops.is_timed(*process));
        untimed.sort_unstable();
        untimed.dedup();
        if !untimed.is_empty() {
            let named: Vec<String> = untimed.iter().take(NAMED).map(|process| facts.label(*process)).collect();
            let more =
                if untimed.len() > NAMED { format!(" and {} more", untimed.len() - NAMED) } else { String::new() };
            section.note(format!(
                "No kernels of {}{more} have times: their time on the GPU is not recorded.",
                named.join(", ")
            ));
        }
        for (kind, key, title) in [
            (Kind::Operator, "operators", "Operators, most time of their own first"),
            (Kind::Module, "modules", "Modules"),
            (Kind::Other, "annotations", "Annotations"),
        ] {
            section.table(table(facts, key, title, rows.iter().filter(|((_, of, _), _)| *of == kind)));
        }
        super::gpu::unread_note(&mut section, facts);
        loss::note(&mut section, facts, "ends of ranges and marks", TableId::Ranges);
        section
    }
}

/// What a range stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Operator,
    Module,
    Other,
}

impl Kind {
    fn of(name: &str) -> Kind {
        match name {
            name if name.starts_with("nn.Module: ") => Kind::Module,
            name if name.contains("::") && !name.contains(' ') => Kind::Operator,
            _ => Kind::Other,
        }
    }
}

/// Ranges by process, kind and name, most time of their own first.
type Rows = Vec<((i64, Kind, String), Op)>;

fn rows(facts: &Facts<'_>) -> Rows {
    let mut sums: BTreeMap<(i64, Kind, String), Op> = BTreeMap::new();
    for (key, op) in facts.ops.ops.iter() {
        let name = match key.pattern {
            Some(number) => full_name(facts.ops.folds.pattern(number).0),
            None if key.name_id < 0 => "(no name)".to_owned(),
            None => facts.names.full(key.name_id),
        };
        let name = short(&name).to_owned();
        sums.entry((key.process_id, Kind::of(&name), name)).or_default().merge(op);
    }
    // Names that count something (step 17) are one row.
    let mut rows: BTreeMap<(i64, Kind, String), Vec<(String, Op)>> = BTreeMap::new();
    for ((process, kind, name), op) in sums {
        let pattern = if kind == Kind::Other { folds::pattern(&name, false) } else { name.clone() };
        rows.entry((process, kind, pattern)).or_default().push((name, op));
    }
    let mut all = Rows::new();
    for ((process, kind, pattern), members) in rows {
        let count: u64 = members.iter().map(|(_, op)| op.total.count).sum();
        if members.len() >= folds::FEWEST && count <= folds::TIMES * members.len() as u64 {
            let mut sum = Op::default();
            members.iter().for_each(|(_, op)| sum.merge(op));
            all.push(((process, kind, pattern), sum));
        } else {
            all.extend(members.into_iter().map(|(name, op)| ((process, kind, name), op)));
        }
    }
    all.sort_by(|(a, left), (b, right)| {
        (Reverse(left.own_ns), facts.place(a.0), a).cmp(&(Reverse(right.own_ns), facts.place(b.0), b))
    });
    all
}

/// A name without what emit_nvtx appends: `aten::add, op_id = 12`.
fn short(name: &str) -> &str {
    let appended = [", op_id = ", ", seq = ", ", sizes = "].iter().filter_map(|mark| name.find(mark)).min();
    appended.map_or(name, |end| &name[..end])
}

fn table<'a>(
    facts: &Facts<'_>,
    key: &'static str,
    title: &'static str,
    rows: impl Iterator<Item = &'a ((i64, Kind, String), Op)>,
) -> Table {
    const COLUMNS: [Column; 11] = [
        column("process", "Process", Unit::Text),
        column("name", "Name", Unit::Name),
        column("own_ns", "Own", Unit::Ns),
        column("own_percent", "Of wall", Unit::Percent),
        column("total_ns", "Total", Unit::Ns),
        column("count", "Count", Unit::Count),
        column("avg_ns", "Avg", Unit::Ns),
        column("launches", "Launches", Unit::Count),
        column("gpu_ns", "GPU", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
        column("uncounted", "Uncounted", Unit::Count),
    ];
    let row = |((process, _, name), op): &((i64, Kind, String), Op)| -> Vec<Value> {
        vec![
            facts.label(*process).into(),
            name.as_str().into(),
            op.own_ns.into(),
            percent(op.own_ns as f64, facts.wall_ns(*process)),
            op.total.sum.into(),
            op.total.count.into(),
            op.total.mean().into(),
            op.launches.into(),
            facts.ops.is_timed(*process).then_some(op.gpu_ns).into(),
            op.total.max.into(),
            op.uncounted.into(),
        ]
    };
    Table::new(key, title, &COLUMNS, rows.map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn time_and_launches_belong_to_operators_and_to_what_holds_them() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let mut thread = trace.thread(1, 11);
        for n in 0..3 {
            let module = thread.range_begin();
            thread.host(10_000);
            let op = thread.range_begin();
            thread.launch("gemm", 4_000);
            thread.launch("gemm", 4_000);
            thread.host(2_000);
            thread.range_end(Some("cpu_op"), &format!("aten::mm, op_id = {n}"), op, true);
            thread.launch("relu", 5_000);
            thread.range_end(Some("user_annotation"), "nn.Module: Linear_0", module, true);
        }
        trace.thread(1, 12).launch("other", 1_000);
        let section = trace.section(&Ops);
        assert_eq!((section.get("ranges"), section.get("names")), (&Value::Int(6), &Value::Int(2)));
        let of = |table: &str| {
            ["own_ns", "total_ns", "count", "launches"].map(|column| section.cell(table, 0, column).clone())
        };
        assert_eq!(section.cell("operators", 0, "name"), &"aten::mm".into());
        assert_eq!(of("operators"), [30_000, 30_000, 3, 6].map(Value::Int));
        assert_eq!(of("modules"), [45_000, 75_000, 3, 9].map(Value::Int));
        assert_eq!(section.cell("operators", 0, "gpu_ns"), &Value::Missing);
    }

    #[test]
    fn time_on_the_gpu_of_a_rank_without_times_is_not_recorded() {
        let mut trace = TestTrace::new();
        for rank in 0..2 {
            trace.process(i64::from(rank) + 1, 100 + rank, Some(rank), START + 10_000_000);
            let mut thread = trace.thread(i64::from(rank) + 1, 11);
            let op = thread.range_begin();
            match rank {
                0 => _ = thread.launch_running("gemm", 4_000, 7, (START + 9_000, 6_000)),
                _ => thread.launch("gemm", 4_000),
            }
            thread.range_end(Some("cpu_op"), "aten::mm", op, true);
        }
        let section = trace.section(&Ops);
        let row = |row: usize| ["process", "gpu_ns"].map(|column| section.cell("operators", row, column).clone());
        assert_eq!(row(0), ["rank 0".into(), Value::Int(6_000)]);
        assert_eq!(row(1), ["rank 1".into(), Value::Missing]);
        let said = "No kernels of rank 1 have times: their time on the GPU is not recorded.";
        assert!(section.notes.iter().any(|note| note == said), "{:?}", section.notes);
    }

    #[test]
    fn time_on_the_gpu_is_that_of_the_launches_inside_and_counted_steps_are_one_row() {
        let section = TestTrace::rich().section(&Ops);
        let cell = |column: &str| section.cell("annotations", 0, column).clone();
        assert_eq!([cell("name"), cell("count"), cell("launches")], ["step *".into(), Value::Int(60), Value::Int(240)]);
        assert_eq!(cell("gpu_ns"), Value::Int(60 * 3 * 9_000));
    }
}
