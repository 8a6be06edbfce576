//! kernels: which kernels the GPU's time went into.

use super::launch_overhead::{TIMES, times};
use super::passes::launches::OTHER;
use super::passes::stats::Stats;
use super::section::{Column, Section, Table, Unit, Value, column};
use super::{Analysis, Explain, Facts, Metric, Need, gpu};
use crate::render::share;
use crate::trace::ALL_OTHERS;
use crate::trace::Axes;
use gputrace_collectors::schema::TableId;

/// The analysis.
pub(crate) struct Kernels;

impl Analysis for Kernels {
    fn name(&self) -> &'static str {
        "kernels"
    }

    fn title(&self) -> &'static str {
        "Kernels"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Time on the GPU from begin to end of each kernel, by name, and by name, grid and block: Time % (of all \
                kernels), Total, Calls, Avg, Med, Min, Max, StdDev. Kernels of graphs count like others. Metal tells when a \
                command buffer ran and not its kernels: there each row is one, by its label or its pipelines.",
            unit: "ns in JSON; in text the column's head names the unit.",
            limits: "Medians are exact up to 64 values, else within 1.6 %. Kernels that run beside each other count in full, so the \
                total may exceed the time in which the GPU was busy. 20,000 names and shapes are kept apart.",
            source: "Nsight Systems cuda_gpu_kern_sum and cuda_gpu_kern_gb_sum.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Executions]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("kernels", Count, "kernels that ran").sums(&[TableId::Kernels]),
            Metric::about("names", Count, "different names of kernels").sums(&[TableId::Kernels]),
            Metric::about("total_ns", Ns, "time of all kernels on the GPU").sums(&[TableId::Kernels]),
            Metric::cost("med_ns", Ns, "median kernel"),
            Metric::cost("p99_ns", Ns, "99th percentile of the kernels").unsteady(),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        facts.gpu.is_some()
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let Some(gpu) = gpu::sums(facts, &mut section) else { return section };
        let mut all = Stats::default();
        gpu.executions.kernels.iter().for_each(|(_, stats)| all.merge(stats));
        section.fact("kernels", "kernels", Unit::Count, all.count);
        let rest = gpu.executions.kernels.get(&OTHER);
        let more = rest.is_some();
        let names = gpu.executions.kernels.iter().count();
        section.fact("names", "different names", Unit::Count, (!more).then_some(names as u64));
        if let Some(rest) = rest {
            let (first, of) = (names - 1, share(rest.sum as f64 / all.sum.max(1) as f64));
            section.note(format!(
                "More than {first} names: those that came later are counted together, {of} of the time."
            ));
        }
        section.fact("total_ns", "time on the GPU", Unit::Ns, all.sum);
        section.fact("med_ns", "median kernel", Unit::Ns, all.median());
        section.fact("p99_ns", "99th percentile", Unit::Ns, all.quantile(0.99));
        let name = |id: i64| Value::from(facts.names.full(id));
        let head = [column("kernel", "Kernel", Unit::Name)];
        let rows = gpu.executions.kernels.iter().map(|(id, stats)| (vec![name(*id)], stats));
        section.table(table("by_kernel", "By kernel", &head, rows.collect(), all.sum));
        let head = [
            column("kernel", "Kernel", Unit::Name),
            column("grid", "Grid", Unit::Text),
            column("block", "Block", Unit::Text),
        ];
        let dimensions = |(x, y, z): Axes| format!("{x}x{y}x{z}");
        let rows = gpu.executions.shapes.iter().filter(|((_, (grid, _)), _)| grid.0 > 0);
        let rows = rows.map(|((id, (grid, block)), stats)| {
            (vec![name(*id), dimensions(*grid).into(), dimensions(*block).into()], stats)
        });
        section.table(table("by_grid", "By kernel, grid and block", &head, rows.collect(), all.sum));
        section
    }
}

/// Rows by what names them, most time first.
fn table(
    key: &'static str,
    title: &'static str,
    head: &[Column],
    mut rows: Vec<(Vec<Value>, &Stats)>,
    whole_ns: i64,
) -> Table {
    rows.sort_by(|(a, x), (b, y)| y.sum.cmp(&x.sum).then_with(|| format!("{a:?}").cmp(&format!("{b:?}"))));
    // What several are counted together in is no kernel: it stands last, however many are left out before it.
    let (rest, rows): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|(head, _)| head.first() == Some(&Value::from(ALL_OTHERS)));
    let row = |(head, stats): (Vec<Value>, &Stats)| head.into_iter().chain(times(stats, whole_ns as f64)).collect();
    let mut table = Table::new(key, title, &[head, &TIMES].concat(), rows.into_iter().map(row).collect());
    table.rows.extend(rest.into_iter().map(row));
    table
}

/// What the names of kernels have that only copy elements, or turn one layout of tensors into another.
const LAYOUTS: [&str; 3] = ["direct_copy", "nchwToNhwc", "nhwcToNchw"];

/// Kernels that compute nothing, the longest first, with their time on the GPUs, and the time of all kernels, ns; none without times.
pub(crate) fn layout_ns(facts: &Facts<'_>) -> Option<(Vec<(String, i64)>, i64)> {
    let kernels = || facts.gpu.iter().flat_map(|gpu| gpu.executions.kernels.iter());
    let all_ns: i64 = kernels().map(|(_, stats)| stats.sum).sum();
    let named = kernels().map(|(id, stats)| (facts.names.full(*id), stats.sum));
    let mut layouts: Vec<_> = named.filter(|(name, _)| LAYOUTS.iter().any(|part| name.contains(part))).collect();
    layouts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    (all_ns > 0).then_some((layouts, all_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::TestTrace;

    #[test]
    fn names_beyond_the_limit_are_not_counted_as_if_they_were_all() {
        let section = |names: i64| {
            let mut trace = TestTrace::new();
            let mut thread = trace.thread(1, 11);
            (0..names).for_each(|number| {
                thread.launch_running(&format!("kernel_{number}"), 5_000, 7, (thread.now + 6_000, 1_000));
            });
            trace.section(&Kernels)
        };
        assert_eq!((section(300).get("names"), section(300).notes.len()), (&Value::Int(300), 0));
        let more = section(20_003);
        assert_eq!((more.get("kernels"), more.get("names")), (&Value::Int(20_003), &Value::Missing));
        let rows = &more.tables[0].rows;
        assert!(rows.last().is_some_and(|row| row[0] == ALL_OTHERS.into()), "{:?} {:?}", rows.first(), rows.last());
        assert!(more.notes.iter().any(|note| note.starts_with("More than 20000 names")), "{:?}", more.notes);
    }
}
