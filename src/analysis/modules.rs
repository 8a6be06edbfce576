//! modules: what loading and compiling code for the GPU takes, and what a run pays before its first steady step.

use std::cmp::Reverse;

use gputrace_collectors::schema::TableId;

use super::passes::modules::{Kernel, Key, Loads};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, What, loss, sites};

/// The analysis.
pub(crate) struct Modules;

impl Analysis for Modules {
    fn name(&self) -> &'static str {
        "modules"
    }

    fn title(&self) -> &'static str {
        "Module loading, JIT and warm-up"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Calls that load modules, libraries, kernels and functions, by process, function and whether the \
                driver compiled or linked code in them (JIT): count, total, before the first steady step and in steady \
                steps. First launches: where loading is lazy, the first launch of a kernel loads it; beyond is what it \
                took longer than the median of that kernel's later launches. Warm-up of a process: from its start to its \
                first driver call (imports), from there to its first step, its warm-up steps, and what these took longer than \
                as many steps of median duration.",
            unit: "ns in JSON; in text the column's head names the unit. Times are the host's.",
            limits: "A kernel that was launched once has no later launches, and no part in beyond; kernels that only graphs \
                launch neither. The file of a module is not recorded, the line that loaded it is (calls of 20 us and more). \
                PTX inside a fat binary or a file is not told from machine code; NVRTC's and Triton's compilers are the \
                host's own work. syncs counts first launches as loading only from 50 us and ten times the usual on, so \
                its sum is smaller. Kernels beyond 20,000 are not told apart.",
            source: "CUDA programming guide, Lazy Loading; the definition above.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Modules, Need::Sites]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("loads", Count, "calls that load modules, libraries, kernels and functions")
                .sums(&[TableId::Api]),
            Metric::cost("loads_ns", Ns, "time in calls that load code").sums(&[TableId::Api]).unsteady(),
            Metric::about("jit", Count, "loading calls in which the driver compiled or linked").sums(&[TableId::Api]),
            Metric::cost("jit_ns", Ns, "time in loading calls in which the driver compiled or linked")
                .sums(&[TableId::Api])
                .unsteady(),
            Metric::cost("steady_loads", Count, "loading calls in steady steps").sums(&[TableId::Api, TableId::Ranges]),
            Metric::cost("steady_loads_ns", Ns, "time in loading calls in steady steps")
                .sums(&[TableId::Api, TableId::Ranges])
                .unsteady(),
            Metric::about("kernels", Count, "kernels that were launched, by process").sums(&[TableId::Launches]),
            Metric::cost("first_launches_ns", Ns, "time of first launches of kernels beyond their later ones")
                .sums(&[TableId::Launches])
                .unsteady(),
            Metric::cost("steady_first_launches", Count, "kernels launched for the first time in a steady step")
                .sums(&[TableId::Launches, TableId::Ranges]),
        ];
        METRICS
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        let loads = || facts.modules.loads.iter();
        let sum = |of: fn(&Loads) -> (u64, i64), jit: bool| {
            let chosen = loads().filter(|(key, _)| key.jit || !jit).map(|(_, loads)| of(loads));
            chosen.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        };
        let all = sum(|loads| (loads.all.count, loads.all.sum), false);
        let jit = sum(|loads| (loads.all.count, loads.all.sum), true);
        let steady = sum(|loads| loads.steady, false);
        let kernels = || facts.modules.kernels().map(|(_, kernel)| kernel);
        let known = !facts.steps.all.is_empty();
        // Where no launch tells its kernel, none is a kernel's first.
        let named = known && kernels().next().is_some();
        let in_steady = named.then(|| kernels().filter(|kernel| kernel.steady).count() as u64);
        section.fact("loads", "loading calls", Unit::Count, all.0);
        section.fact("loads_ns", "time in them", Unit::Ns, all.1);
        section.fact("jit", "of them compiled or linked (JIT)", Unit::Count, jit.0);
        section.fact("jit_ns", "time in those", Unit::Ns, jit.1);
        section.fact("steady_loads", "loading calls in steady steps", Unit::Count, known.then_some(steady.0));
        section.fact("steady_loads_ns", "time in those", Unit::Ns, known.then_some(steady.1));
        // Metal launches command buffers: `dispatches` has its kernels.
        let launched = (!facts.is_metal_only()).then(|| kernels().count() as u64);
        section.fact("kernels", "kernels launched, by process", Unit::Count, launched);
        let beyond = |kernels: &mut dyn Iterator<Item = &Kernel>| kernels.map(Kernel::beyond_ns).sum::<i64>();
        section.fact("first_launches_ns", "first launches, beyond later ones", Unit::Ns, beyond(&mut kernels()));
        section.fact("steady_first_launches", "first launches in steady steps", Unit::Count, in_steady);
        if all.0 == 0 && kernels().next().is_none() {
            section.note("No loading of code is in this trace, and no kernel's name.");
        }
        section.table(warm_up(facts));
        section.table(by_function(facts));
        section.table(by_kernel(facts));
        sites::cost_table(&mut section, facts, &[What::Load], ("by_site", "By line, first launches that loaded too"));
        loss::note(&mut section, facts, "other driver calls, loads among them,", TableId::Api);
        section
    }
}

fn warm_up(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("before_driver_ns", "To first driver call", Unit::Ns),
        column("before_steps_ns", "To first step", Unit::Ns),
        column("warm_up_steps", "Warm-up steps", Unit::Count),
        column("warm_up_ns", "They took", Unit::Ns),
        column("warm_up_beyond_ns", "Beyond usual", Unit::Ns),
        column("loads_ns", "Loading before steady", Unit::Ns),
        column("first_launches_ns", "First launches", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
    ];
    let row = |(process_id, time): &(i64, &super::ProcessTime)| -> Vec<Value> {
        let started = facts.trace.process(*process_id).map(|p| p.start_ns).filter(|at| *at > 0);
        let began = time.span_ns.0;
        let steps = facts.steps.of(*process_id);
        let loads = facts.modules.loads.iter().filter(|(key, _)| key.process_id == *process_id);
        let first = facts.modules.kernels().filter(|(process, _)| process == process_id);
        let beyond = steps.map(|s| s.warm_up_ns() - s.quantile_ns(0.5).saturating_mul(s.warm_up as i64));
        let until = steps.map(|s| s.steady_span().0 - started.unwrap_or(began));
        vec![
            facts.label(*process_id).into(),
            started.map(|at| (began - at).max(0)).into(),
            steps.map(|s| (s.first_ns() - began).max(0)).into(),
            steps.map(|s| s.warm_up as u64).into(),
            steps.map(|s| s.warm_up_ns()).into(),
            beyond.map(|ns| ns.max(0)).into(),
            loads.map(|(_, loads)| loads.before.1).sum::<i64>().into(),
            first.map(|(_, kernel)| kernel.beyond_ns()).sum::<i64>().into(),
            until.map_or(Value::Missing, |ns| percent(ns.max(0) as f64, facts.wall_ns(*process_id))),
        ]
    };
    let title = "Warm-up by process (Of wall: from the start to the first steady step)";
    Table::new("warm_up", title, &COLUMNS, facts.busy().iter().map(row).collect())
}

fn by_function(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 9] = [
        column("process", "Process", Unit::Text),
        column("api", "Function", Unit::Name),
        column("total_ns", "Total", Unit::Ns),
        column("calls", "Calls", Unit::Count),
        column("jit", "JIT", Unit::Text),
        column("med_ns", "Med", Unit::Ns),
        column("max_ns", "Max", Unit::Ns),
        column("before_steady_ns", "Before steady", Unit::Ns),
        column("steady_ns", "In steady steps", Unit::Ns),
    ];
    let mut loads: Vec<(&Key, &Loads)> = facts.modules.loads.iter().collect();
    loads.sort_by_key(|(key, loads)| (Reverse(loads.all.sum), facts.place(key.process_id), **key));
    let row = |(key, loads): &(&Key, &Loads)| {
        vec![
            facts.label(key.process_id).into(),
            facts.names.full(key.api_id).into(),
            loads.all.sum.into(),
            loads.all.count.into(),
            key.jit.into(),
            loads.all.median().into(),
            loads.all.max.into(),
            loads.before.1.into(),
            loads.steady.1.into(),
        ]
    };
    Table::new("by_function", "Loading calls by function", &COLUMNS, loads.iter().map(row).collect())
}

fn by_kernel(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 7] = [
        column("process", "Process", Unit::Text),
        column("kernel", "Kernel", Unit::Name),
        column("beyond_ns", "Beyond", Unit::Ns),
        column("first_ns", "First launch", Unit::Ns),
        column("later_med_ns", "Later, med", Unit::Ns),
        column("launches", "Launches", Unit::Count),
        column("steady", "In steady step", Unit::Text),
    ];
    let mut kernels: Vec<(i64, &Kernel)> = facts.modules.kernels().filter(|(_, k)| k.beyond_ns() > 0).collect();
    kernels.sort_by_key(|(process, k)| (Reverse(k.beyond_ns()), facts.place(*process), k.first_start_ns));
    let row = |(process, kernel): &(i64, &Kernel)| {
        vec![
            facts.label(*process).into(),
            facts.names.full(kernel.name_id).into(),
            kernel.beyond_ns().into(),
            kernel.first_ns.into(),
            kernel.later.median().into(),
            (kernel.later.count + 1).into(),
            kernel.steady.into(),
        ]
    };
    let title = "First launches, those that took most beyond later ones first";
    Table::new("by_kernel", title, &COLUMNS, kernels.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::names::NameKind;
    use serde_json::json;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    /// A launch of a kernel with a handle.
    fn launch(trace: &mut TestTrace, at: i64, function: i64, ns: i64) {
        let (api_id, name_id) = (trace.name(NameKind::Api, "cuLaunchKernel"), trace.name(NameKind::Kernel, "k"));
        let row = json!({
            "start_ns": START + at, "api_ns": ns, "process_id": 1, "tid": 11, "api_id": api_id, "name_id": name_id,
            "function": function, "grid_x": 1,
        });
        trace.row(TableId::Launches, row);
    }

    #[test]
    fn without_handles_kernels_are_told_by_their_names() {
        let mut trace = TestTrace::new();
        let api_id = trace.name(NameKind::Api, "cudaLaunchKernel");
        for (at, kernel) in ["gemm", "relu", "gemm"].iter().enumerate() {
            let name_id = trace.name(NameKind::Kernel, kernel);
            let row = json!({
                "start_ns": START + at as i64 * 10_000, "api_ns": 5_000, "process_id": 2, "tid": 12, "api_id": api_id,
                "name_id": name_id, "function": 0, "grid_x": 1,
            });
            trace.row(TableId::Launches, row);
        }
        assert_eq!(trace.section(&Modules).get("kernels"), &Value::Int(2));
    }

    #[test]
    fn a_command_buffer_is_no_kernel_that_is_launched_for_the_first_time() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let api_id = trace.name(NameKind::Api, "[MTLCommandBuffer commit]");
        let name_id = trace.name(NameKind::Kernel, "gemm");
        for n in 0..20 {
            let row = json!({
                "start_ns": START + n * 1_000_000, "api_ns": if n == 3 { 900_000 } else { 4_000 }, "process_id": 1, "tid": 11,
                "api_id": api_id, "name_id": name_id, "function": 0x1000 + n, "grid_x": 1,
            });
            trace.row(TableId::Launches, row);
        }
        let section = trace.section(&Modules);
        assert_eq!((section.get("kernels"), section.get("first_launches_ns")), (&Value::Int(0), &Value::Int(0)));
        let syncs = trace.section(&crate::analysis::syncs::Syncs);
        let lazy = syncs.tables.iter().flat_map(|table| &table.rows).any(|row| row.contains(&"lazy loading".into()));
        assert!(!lazy, "{:?}", syncs.tables);
    }

    #[test]
    fn a_first_launch_costs_what_later_ones_do_not() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        launch(&mut trace, 1_000, 5, 400_000);
        (1..10).for_each(|n| launch(&mut trace, 1_000_000 * n, 5, 4_000));
        launch(&mut trace, 20_000_000, 6, 900_000);
        let section = trace.section(&Modules);
        assert_eq!((section.get("kernels"), section.get("first_launches_ns")), (&Value::Int(2), &Value::Int(396_000)));
        let cell = |column: &str| section.cell("by_kernel", 0, column).clone();
        assert_eq!([cell("first_ns"), cell("later_med_ns"), cell("launches")], [400_000, 4_000, 10].map(Value::Int));
    }

    #[test]
    fn loads_and_warm_up_steps_are_what_a_run_pays_before_it_is_steady() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 200_000_000);
        let mut thread = trace.thread(1, 11);
        thread.host(5_000_000);
        thread.other("cuModuleLoadData", "module", 7_000_000);
        thread.other("cuStreamCreate", "api", 1_000_000);
        for n in 0..40 {
            let began = thread.range_begin();
            if n < 2 {
                thread.other("cuLibraryLoadData", "module", 10_000_000);
            }
            thread.launch("k", 2_000);
            thread.host(998_000);
            thread.range_end(None, "step", began, true);
        }
        let section = trace.section(&Modules);
        assert_eq!((section.get("loads"), section.get("loads_ns")), (&Value::Int(3), &Value::Int(27_000_000)));
        assert_eq!(section.get("steady_loads"), &Value::Int(0));
        let cell = |column: &str| section.cell("warm_up", 0, column).clone();
        assert_eq!([cell("before_driver_ns"), cell("before_steps_ns")], [5_000_000, 8_000_000].map(Value::Int));
        let warm = [cell("warm_up_steps"), cell("warm_up_ns"), cell("warm_up_beyond_ns"), cell("loads_ns")];
        assert_eq!(warm, [2, 22_000_000, 20_000_000, 27_000_000].map(Value::Int));
        assert_eq!(section.cell("by_function", 0, "api"), &"cuLibraryLoadData".into());
    }
}
