//! What hooks cost is held under `--budget`: the dearest detail is left out first, what is left out is counted, and a budget
//! that is kept leaves out nothing.

use gputrace_collectors::manifest::{HookBudget, Process};

use crate::util::{Driver, Finished, Scratch, Trace, program, truth};

/// Runs steps of launches with hardly a pause, each launch with a stack, under this budget.
fn steps(scratch: &Scratch, seconds: &str, options: &[&str]) -> Finished {
    let target = scratch.target(program("steps")).args([seconds, "200", "2", "1"]).with_driver(Driver::Plain);
    let target = target.env("FAKE_CUDA_TRUTH", scratch.path().join("truth.json"));
    target.options(["--launch-stacks", "1"]).options(options).traced().expect(0)
}

/// Launches that the driver counted.
fn launched(scratch: &Scratch) -> u64 {
    truth(&scratch.path().join("truth.json"))["cuLaunchKernel"]
}

fn budget(trace: &Trace) -> (Process, HookBudget) {
    let root = trace.root();
    let budget = root.budget.clone().expect("a budget");
    (root, budget)
}

/// What was left out, in its order.
fn parts(budget: &HookBudget) -> Vec<&str> {
    budget.shed.iter().map(|part| part.what.as_str()).collect()
}

#[test]
fn launches_whose_times_are_estimated_go_last_as_well() {
    for how in ["events", "auto"] {
        let scratch = Scratch::new();
        // 200 kernels of 10 us and half a millisecond without any.
        let target = scratch.target(program("steps")).args(["6", "200", "10", "500"]).with_driver(Driver::Plain);
        let target = target.env("FAKE_CUDA_TRUTH", scratch.path().join("truth.json"));
        let options = ["--launch-stacks", "1", "--budget", "0.05", "--gpu-time", how, "--malloc", "off"];
        let run = target.options(options).traced().expect(0);
        let trace = run.read();
        trace.assert_balanced();
        let (root, budget) = budget(&trace);
        assert_eq!(parts(&budget), ["stacks", "gpu_times", "launches"], "{how}: {budget:?}");
        let shed = budget.shed.last().expect("launches");
        let launches = root.accounting["launch"];
        assert_eq!(launches.seen, launched(&scratch));
        assert!(
            launches.sampled_out > launches.recorded && launches.sampled_out == shed.sampled_out,
            "{how}: {launches:?}"
        );
        // Rows say how many they stand for, and all of them all there were.
        let rows = trace.table("launches");
        let stand_for = |row: &crate::util::Row<'_>| row.maybe_int("stands_for").unwrap_or(1);
        let (all, drawn): (i64, i64) = rows
            .rows()
            .fold((0, 0), |(all, drawn), row| (all + stand_for(&row), drawn + i64::from(stand_for(&row) > 1)));
        let (all, drawn, seen) = (all as f64, drawn as f64, launches.seen as f64);
        assert!(drawn > 100.0 && (all / seen - 1.0).abs() < 5.0 / drawn.sqrt(), "{how}: {all} {drawn} {seen}");
        // A launch that is timed has its row, and stands for at least as many.
        let events = root.gpu_time.and_then(|about| about.events).expect("launches were timed");
        assert!(events.timed > 20 && events.without_call == 0, "{how}: {events:?}");
        let late = trace
            .table("gpu_samples")
            .rows()
            .filter(|row| row.int("start_ns") > shed.from_ns + 1_000_000_000)
            .map(|row| row.int("weight"))
            .min();
        assert!(late.is_none_or(|weight| weight >= 64), "{how}: {late:?}");
        let found = scratch.section(&run, "gpu-utilisation");
        let busy = found["facts"]["busy_percent"].as_f64().unwrap_or_else(|| panic!("{how}: {found}"));
        let truth = crate::gpu_events::busy(&scratch.path().join("truth.json"));
        assert!(truth < 97.0 && (busy - truth).abs() < 3.0, "{how}: {busy} {truth} {found}");
    }
}

#[test]
fn stacks_go_first_and_those_that_are_missing_are_counted() {
    let scratch = Scratch::new();
    let run =
        steps(&scratch, "4", &["--budget", "0.01", "--malloc", "off", "--gpu-time", "full", "--on-full", "block"]);
    let trace = run.read();
    trace.assert_balanced();
    assert_eq!(trace.calls()["cuLaunchKernel"], launched(&scratch));
    let (root, budget) = budget(&trace);
    // Of launches whose kernels are all told of none is left out.
    assert_eq!((budget.percent, parts(&budget)), (0.01, vec!["stacks"]), "{budget:?}");
    let [shed] = &budget.shed[..] else { panic!("{budget:?}") };
    assert!(shed.sampled_out > 100 && shed.to_ns.is_none() && shed.one_in.is_none(), "{shed:?}");
    // Each launch had a stack until then, and from then on ten calls a second have one, waits among them, so that it stays known what one
    // takes.
    let (mut with, mut without, mut spared) = (0, 0, 0);
    let mut last_ns = shed.from_ns;
    for name in ["launches", "syncs"] {
        for row in trace.table(name).rows() {
            let (has, start_ns) = (row.maybe_int("stack_id").is_some(), row.int("start_ns"));
            last_ns = last_ns.max(start_ns);
            spared += i64::from(has && start_ns >= shed.from_ns + 100_000_000);
            if name == "launches" {
                *(if has { &mut with } else { &mut without }) += 1;
            }
        }
    }
    let most = (last_ns - shed.from_ns) / 100_000_000 + 1;
    assert!(spared > 0 && spared <= most, "{spared} stacks of {most} at most after {shed:?}");
    // Waits count as well.
    let missing = shed.sampled_out + root.stacks.none + root.stacks.lost;
    assert!(with > 0 && without > 100 && without <= missing, "{with} {without} {root:?}");
    assert!(
        budget.stack_ns.is_some_and(|ns| ns > 10.0) && root.cost.stacks_ns.is_some_and(|ns| ns > 1000.0),
        "{root:?}"
    );
    // Of a run shorter than ten seconds both are the same, but for how they were added up.
    assert!(budget.most_percent >= budget.hooks_percent * 0.999 && budget.hooks_percent > 0.01, "{budget:?}");
    let said = run.whole_lines();
    let line = said.lines().find(|line| line.starts_with("budget 0.01 %: hooks cost "));
    assert!(line.is_some_and(|line| line.contains("left out: stacks ")), "{}", run.stderr);
    // CUPTI is at work for the whole run, which no budget bounds.
    for told in [
        "; over the budget of 0.01 %)  lost ",
        "), CUPTI about ",
        ", over the budget; the budget does not bind --gpu-time full",
    ] {
        assert!(said.contains(told), "{told}: {}", run.stderr);
    }
}

#[test]
fn a_large_budget_leaves_out_nothing_and_none_says_nothing() {
    let scratch = Scratch::new();
    let run = steps(&scratch, "2.5", &["--budget", "100"]);
    let trace = run.read();
    trace.assert_balanced();
    let (_, budget) = budget(&trace);
    assert!(budget.shed.is_empty() && budget.hooks_percent > 0.0, "{budget:?}");
    assert!(run.stderr.contains("nothing was left out for it"), "{}", run.stderr);
    let run = steps(&scratch, "0.1", &[]);
    assert!(run.read().root().budget.is_none() && !run.stderr.contains("budget"), "{}", run.stderr);
}

#[test]
fn samples_of_malloc_get_rarer_and_their_sums_stay_right() {
    const BYTES: i64 = 1000;
    let scratch = Scratch::new();
    let target = scratch.target(program("mallocs")).args(["lasting", "3", &BYTES.to_string()]);
    let run = target
        .options(["--malloc", "sample=524288", "--on-full", "block", "--stacks", "off", "--budget", "0.01"])
        .traced()
        .expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let (root, budget) = budget(&trace);
    assert_eq!(parts(&budget), ["malloc"], "{budget:?}");
    let shed = &budget.shed[0];
    assert!(shed.one_in == Some(64) && shed.to_ns.is_none(), "{shed:?}");
    let allocations = root.accounting["host_alloc"];
    assert!(shed.sampled_out <= allocations.sampled_out && allocations.dropped == 0, "{shed:?} {allocations:?}");
    let printed = run.text().lines().next().and_then(|line| line.parse::<f64>().ok()).expect("the number of blocks");
    assert!(allocations.seen as f64 >= printed, "{allocations:?} of {printed}");
    let table = trace.table("host_memory");
    let ours = || table.rows().filter(|row| row.text("action") == "alloc" && row.int("bytes") == BYTES);
    let (mut before, mut after) = (0.0, 0.0);
    for row in ours() {
        // What was drawn before is over long before this.
        *(if row.int("start_ns") < shed.from_ns + 500_000_000 { &mut before } else { &mut after }) +=
            row.float("weight_bytes");
    }
    assert!(before > 0.0 && after > 0.0);
    // No worse than if samples had lain 64 times as far apart all the time, within five deviations.
    let p = 1.0 - (-(BYTES as f64) / (524_288.0 * 64.0)).exp();
    let deviation = BYTES as f64 * (printed * (1.0 - p) / p).sqrt();
    let off = (before + after - printed * BYTES as f64).abs();
    assert!(
        off <= 5.0 * deviation && 5.0 * deviation < 0.5 * printed * BYTES as f64,
        "{before} {after} {printed} {deviation}"
    );
}

#[test]
fn launches_go_last_and_each_is_counted_all_the_same() {
    let scratch = Scratch::new();
    // What a collector without a processor has no room for is lost, and of which function it was is not known.
    let run = steps(&scratch, "4", &["--budget", "0.01", "--malloc", "sample=4096", "--on-full", "block"]);
    let trace = run.read();
    trace.assert_balanced();
    trace.assert_counts(&truth(&scratch.path().join("truth.json")));
    let (root, budget) = budget(&trace);
    let parts: Vec<&str> = parts(&budget).into_iter().filter(|part| *part != "malloc").collect();
    assert_eq!(parts, ["stacks", "launches"], "{budget:?}");
    assert!(budget.shed.is_sorted_by_key(|part| part.from_ns), "{budget:?}");
    let shed = budget.shed.last().expect("launches");
    let hook = root.coverage.hooks.iter().find(|hook| hook.name == "cuLaunchKernel").expect("launches");
    let count = root.accounting["launch"];
    assert_eq!((hook.calls, count.seen), (launched(&scratch), launched(&scratch)));
    assert_eq!((hook.left_out, count.sampled_out), (shed.sampled_out, shed.sampled_out), "{shed:?}");
    // One in 64 is recorded, drawn anew each time: five deviations, and what threads had not taken notice of.
    let left = |row: &crate::util::Row<'_>| row.int("start_ns") > shed.from_ns + 200_000_000;
    let kept = trace.table("launches").rows().filter(left).count() as f64;
    let wanted = shed.sampled_out as f64 / 63.0;
    assert!(shed.one_in == Some(64) && wanted > 100.0 && kept > 0.0, "{shed:?}");
    assert!(kept <= wanted + 5.0 * wanted.sqrt(), "{kept} of {wanted}");
    assert!(root.cost.counted_ns.is_some_and(|ns| ns > 0.0), "{:?}", root.cost);
    let folder = run.trace.to_string_lossy();
    let report = scratch.gputrace(&["report", &folder, "--only", "launch-overhead,host-memory"]).expect(0).text();
    assert_eq!(report.matches("launches of kernels were left out").count(), 1, "{report}");
    // A wait ends each step, and is recorded to the end.
    let steps = run.text().trim().parse::<f64>().unwrap_or_else(|error| panic!("{error}: {}", run.text()));
    let summary = &scratch.section(&run, "summary")["facts"];
    assert_eq!(summary["step_anchor"], "cuStreamSynchronize", "{summary}");
    let found = summary["steps"].as_f64().unwrap_or_else(|| panic!("{summary}"));
    assert!((found - steps).abs() <= 2.0, "{found} of {steps}");
    // What stands for the others counts for them.
    let drawn = trace.table("launches").rows().filter(|row| row.maybe_int("stands_for").is_some()).count() as f64;
    let counted = scratch.section(&run, "launch-overhead")["facts"]["launches"].as_f64().expect("launches");
    let off = (counted - launched(&scratch) as f64).abs();
    assert!(off <= 5.0 * 64.0 * drawn.sqrt(), "{counted} of {}, {drawn} drawn", launched(&scratch));
    // Whatever counts launches says so, or does not count.
    let most = ["check", &folder, "--max", "launch-overhead.launches=1000000000", "--max", "syncs.waits=1000000000"];
    let check = scratch.gputrace(&most).expect(2).text();
    assert!(check.contains("launch-overhead.launches") && check.contains("1 of 2 limits not measured"), "{check}");
    let file = scratch.path().join("trace.json");
    let export = scratch.gputrace(&["export", &folder, "--format", "kineto", "-o", &file.to_string_lossy()]).expect(0);
    assert!(export.stderr.contains("launches of kernels were left out"), "{}", export.stderr);
    let text = std::fs::read_to_string(&file).expect("the export");
    assert!(text.contains("process_labels"), "{}", &text[..text.len().min(2000)]);
}

#[test]
fn no_window_of_gpu_times_opens_while_launches_are_left_out() {
    let scratch = Scratch::new();
    let run = steps(&scratch, "4", &["--budget", "0.01", "--gpu-time", "windows", "--gpu-window-every", "0.5"]);
    let trace = run.read();
    trace.assert_balanced();
    let (root, budget) = budget(&trace);
    let shed = budget.shed.iter().find(|part| part.what == "launches").expect("launches");
    // The thread that asks CUPTI takes notice within a second.
    let late = |row: &crate::util::Row<'_>| row.int("start_ns") > shed.from_ns + 1_000_000_000;
    assert_eq!(trace.table("gpu_windows").rows().filter(late).count(), 0, "{shed:?}");
    let about = root.gpu_time.expect("CUPTI was asked");
    // On a busy machine the program may not have had its turn in the one window, of a millisecond or two.
    let met = about.records > 0 || (about.windows == 1 && about.on_ns < 20_000_000);
    assert!(met && about.joined * 100 >= about.records * 90, "{about:?}");
}
