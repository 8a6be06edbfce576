//! Each rule: a loop that it is about, and the bound of its gain; a loop that it is not about.

mod agreement;
mod job;
mod kernels;
mod known_in_part;
mod metal;

use crate::analysis::{ALL, Section, Value};
use crate::trace::testing::{TestTrace, Thread};

/// The summary of 40 steps; each ends with a wait of 1 us, which costs nothing.
fn loop_of(step: impl Fn(&mut Thread<'_>)) -> Section {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        step(&mut thread);
        (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
        thread.sync("cuStreamSynchronize", "stream", 1_000);
    }
    trace.section(ALL[0])
}

/// Names of the findings and their gains per step in us, 0 where they are not known.
pub(super) fn found(section: &Section) -> Vec<(String, i64)> {
    let Some(table) = section.tables.iter().find(|t| t.key == "findings") else { return Vec::new() };
    let at = |key: &str| table.columns.iter().position(|c| c.key == key).unwrap();
    let finding = |row: &Vec<Value>| match (&row[at("name")], &row[at("gain_ns")]) {
        (Value::Text(name), Value::Num(ns)) => (name.clone(), (ns / 1e3).round() as i64),
        (Value::Text(name), Value::Missing) => (name.clone(), 0),
        other => panic!("{other:?}"),
    };
    table.rows.iter().map(finding).collect()
}

/// The only finding, and the verdict.
pub(super) fn expect(step: impl Fn(&mut Thread<'_>), verdict: &str, finding: (&str, i64)) {
    let section = loop_of(step);
    assert_eq!(found(&section), [(finding.0.to_owned(), finding.1)], "{:?}", section.literal);
    assert_eq!(section.get("verdict"), &Value::from(verdict), "{:?}", section.literal);
}

#[test]
fn allocation_in_the_loop_costs_at_most_its_calls() {
    let step = |t: &mut Thread<'_>| {
        t.alloc("cuMemAlloc_v2", "device", 64, 1 << 20, 200_000);
        t.free("cuMemFree_v2", "device", 64, 100_000);
        t.host(600_000);
    };
    expect(step, "ALLOCATION BOUND", ("allocation-in-loop", 300));
}

#[test]
fn blocking_copies_cost_at_most_the_rest_of_the_step() {
    let short = |t: &mut Thread<'_>| {
        t.copy("DtoH", ("device", "pinned"), false, 1 << 20, 300_000);
        t.host(700_000);
    };
    expect(short, "TRANSFER BOUND", ("sync-copies", 300));
    let long = |t: &mut Thread<'_>| {
        t.copy("DtoH", ("device", "pinned"), false, 6_000_000, 3_000_000);
        t.host(989_000);
    };
    expect(long, "TRANSFER BOUND", ("sync-copies", 1_000));
}

#[test]
fn pageable_copies_cost_at_most_their_calls() {
    let step = |t: &mut Thread<'_>| {
        t.copy("HtoD", ("pageable", "device"), true, 1 << 20, 500_000);
        t.host(500_000);
    };
    expect(step, "TRANSFER BOUND", ("pageable-copies", 500));
}

#[test]
fn small_transfers_cost_all_but_one() {
    let step = |t: &mut Thread<'_>| {
        (0..20).for_each(|_| t.copy("HtoD", ("pinned", "device"), true, 64, 5_000));
        t.host(900_000);
    };
    let section = loop_of(step);
    assert_eq!(found(&section), [("small-transfers".to_owned(), 95)]);
    assert_eq!(section.get("verdict"), &Value::from("HOST BOUND"));
}

#[test]
fn waits_cost_at_most_what_the_host_does_meanwhile() {
    let waits = |host: i64, wait: i64| {
        found(&loop_of(|t| {
            t.host(host);
            (0..4).for_each(|_| t.sync("cuCtxSynchronize", "context", wait));
        }))
    };
    assert_eq!(waits(989_000, 100_000), [("wait-every-step".to_owned(), 401)]);
    assert_eq!(waits(89_000, 1_000_000), [("wait-every-step".to_owned(), 99)]);
    assert_eq!(waits(989_000, 1_000), [], "a wait of 5 us in a millisecond is no finding");
}

#[test]
fn loading_code_is_told_as_a_share_of_the_run() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    thread.other("cuModuleLoadData", "module", 30_000_000);
    for _ in 0..70 {
        thread.host(990_000);
        (0..4).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
        thread.sync("cuStreamSynchronize", "stream", 2_000);
    }
    let section = trace.section(ALL[0]);
    assert_eq!(found(&section), [("warm-up".to_owned(), 30_000)]);
    assert_eq!(section.cell("findings", 0, "gain_per"), &Value::from("run"));
    assert_eq!(section.cell("findings", 0, "gain_percent"), &Value::Num(30.0));
}

#[test]
fn a_loop_in_which_everything_is_right_has_no_finding() {
    let section = loop_of(|t| {
        t.copy("HtoD", ("pinned", "device"), true, 1 << 20, 3_000);
        t.host(50_000);
        t.sync("cuEventSynchronize", "event", 9_000_000);
    });
    assert_eq!(found(&section), []);
    assert_eq!(section.get("verdict"), &Value::from("HEALTHY"));
}

#[test]
fn a_small_copy_that_takes_long_is_a_wait() {
    let step = |t: &mut Thread<'_>| {
        t.copy("DtoH", ("device", "pageable"), false, 4, 1_020_002);
        t.host(3_968_998);
    };
    // 5 ms, of which the copy takes 20 us and waits for 1 ms.
    let section = loop_of(step);
    assert_eq!(found(&section), [("wait-every-step".to_owned(), 1_001)]);
    assert_eq!(section.get("verdict"), &Value::from("SYNC BOUND"), "{:?}", section.literal);
    let text = section.literal.unwrap_or_default();
    assert!(text.contains("; 2 waits (1 of them implicit); 1 copy or set\n"), "{text}");
    assert!(text.contains("\n   cuMemcpy DtoH of 4 B 1 a step, waits 1.00 ms each\n"), "{text}");
}

#[test]
fn a_small_copy_that_waited_is_not_advised_on_as_a_copy() {
    let step = |t: &mut Thread<'_>| {
        t.copy("DtoH", ("device", "pageable"), true, 4, 120_000);
        t.host(100_000);
    };
    assert_eq!(found(&loop_of(step)).iter().map(|f| f.0.as_str()).collect::<Vec<_>>(), ["wait-every-step"]);
}

/// The evidence of the first finding.
pub(super) fn evidence(section: &Section) -> String {
    match section.cell("findings", 0, "evidence") {
        Value::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wait_names_its_line() {
    let mut trace = TestTrace::new();
    let (item, log) = (trace.stack("main", "/home/u/train.py", 44), trace.stack("log", "/home/u/train.py", 90));
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
        thread.host(700_000);
        thread.stack = Some((log, 0));
        thread.copy("DtoH", ("device", "pinned"), false, 4, 220_002);
        thread.stack = Some((item, 0));
        thread.sync("cuStreamSynchronize", "stream", 300_000);
        thread.stack = None;
    }
    let text = evidence(&trace.section(ALL[0]));
    assert!(text.contains("train.py:44 main  cuStreamSynchronize 1 a step, 300 us each"), "{text}");
    assert!(text.contains("train.py:90 log  cuMemcpy DtoH of 4 B 1 a step, 200 us each"), "{text}");
}

#[test]
fn a_free_that_waits_names_its_line() {
    let mut trace = TestTrace::new();
    let line = trace.stack("forward", "/home/u/model.py", 7);
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
        thread.alloc("cuMemAlloc_v2", "device", 1, 4096, 5_000);
        thread.stack = Some((line, 0));
        thread.free("cuMemFree_v2", "device", 1, 2_100_000);
        thread.stack = None;
        thread.host(2_000_000);
    }
    let text = evidence(&trace.section(ALL[0]));
    assert!(text.contains("model.py:7 forward  cuMemFree_v2"), "{text}");
    assert!(text.contains(" 1 a step, 2.00 ms each"), "{text}");
}

#[test]
fn many_launches_name_the_lines_that_make_them() {
    let mut trace = TestTrace::new();
    let forward = trace.stack("Block.forward", "/home/u/model.py", 88);
    let step = trace.stack("main", "/home/u/train.py", 41);
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        for k in 0..200 {
            thread.stack = (k % 50 == 0).then_some((if k < 150 { forward } else { step }, 50));
            thread.launch(&format!("k{}", k % 10), 2_000);
        }
        thread.stack = None;
        thread.sync("cuStreamSynchronize", "stream", 1_000);
        thread.host(100_000);
    }
    let text = evidence(&trace.section(ALL[0]));
    assert!(text.contains("about 150 launches model.py:88 Block.forward"), "{text}");
    assert!(text.contains("about 50 launches train.py:41 main"), "{text}");
}

#[test]
fn a_free_in_the_loop_that_waits_is_a_hidden_wait() {
    let step = |t: &mut Thread<'_>| {
        t.pending = 1;
        t.alloc("cuMemAlloc_v2", "device", 1, 4096, 5_000);
        t.free("cuMemFree_v2", "device", 1, 2_105_000);
        t.host(2_889_000);
        t.pending = 0;
    };
    // 5 ms, of which the free needs 100 us, by guess, and waits for 2 ms.
    let section = loop_of(step);
    let found = found(&section);
    assert_eq!(found[0], ("hidden-waits".to_owned(), 2_005));
    assert_eq!(found[1], ("allocation-in-loop".to_owned(), 105));
    let text = section.literal.unwrap_or_default();
    assert!(text.contains("cuMemFree_v2 (free) 1 a step, waits 2.00 ms each"), "{text}");
}

#[test]
fn a_loop_that_waits_for_its_data_is_host_bound_and_the_line_is_named() {
    let mut trace = TestTrace::new();
    let next = trace.stack("_get_data", "/home/u/data.py", 31);
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
        thread.stack = Some((next, 0));
        thread.system_wait("poll", "poll", 6_000_000);
        thread.stack = None;
        thread.host(2_000_000);
        thread.sync("cuStreamSynchronize", "stream", 1_000);
    }
    // A thread that has nothing to do waits longer than the loop.
    trace.thread(1, 12).system_wait("sem_wait", "semaphore", 300_000_000);
    let section = trace.section(ALL[0]);
    assert_eq!(found(&section), [("system-waits".to_owned(), 6_000)]);
    assert_eq!(section.get("verdict"), &Value::from("HOST BOUND"));
    assert_eq!(evidence(&section), "data.py:31 _get_data  poll 1 a step, 6.00 ms each");
}

#[test]
fn a_wait_in_which_another_thread_launches_is_that_threads_work() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
        thread.system_wait("pthread_cond_wait", "condition", 6_000_000);
        thread.host(2_000_000);
        thread.sync("cuStreamSynchronize", "stream", 1_000);
    }
    let mut backward = trace.thread(1, 12);
    for _ in 0..40 {
        backward.host(1_000_000);
        (0..40).for_each(|_| {
            backward.launch("backward", 2_000);
            backward.host(98_000);
        });
        backward.host(3_011_000);
    }
    let section = trace.section(ALL[0]);
    assert!(found(&section).iter().all(|(name, _)| name != "system-waits"), "{:?}", section.literal);
}

#[test]
fn what_was_not_recorded_is_not_called_fine() {
    let of = |waits: bool| {
        let section = loop_of(|t| if waits { t.system_wait("read", "read", 100_000) } else { t.host(9_000_000) });
        matches!(section.get("checked_fine"), Value::Text(fine) if fine.contains("system waits"))
    };
    assert!(!of(false), "no waits of that kind were looked at");
}

#[test]
fn where_there_are_no_steps_no_finding_speaks_of_them() {
    let mut trace = TestTrace::new();
    let mut thread = trace.thread(1, 11);
    // Ever longer between the waits, and each kernel another one: nothing recurs.
    for n in 0..12i64 {
        (0..n * n).for_each(|k| thread.launch(&format!("k{n}-{k}"), 2_000));
        thread.sync("cuStreamSynchronize", "stream", 1_000_000 * n);
        thread.host(1_500_000 * n);
    }
    let section = trace.section(ALL[0]);
    assert_eq!(section.get("unit"), &Value::from("run"));
    assert_eq!(section.cell("findings", 0, "name"), &Value::from("wait-every-step"));
    assert_eq!(section.cell("findings", 0, "title"), &Value::from("many waits"));
    let text = section.literal.unwrap_or_default();
    assert!(text.contains("1 many waits  <= ") && !text.contains("every step"), "{text}");
}

/// Steps of so many small launches 12 us apart, and other work of the host.
fn launches_and_work(launches: i64, work_ns: i64) -> Vec<(String, i64)> {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, crate::trace::testing::START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        let step = thread.range_begin();
        for _ in 0..launches {
            let begin = thread.now + 4_000;
            thread.launch_running("k", 3_000, 7, (begin, 2_000));
            thread.host(9_000);
        }
        thread.host(work_ns);
        thread.range_end(None, "step", step, true);
    }
    found(&trace.section(ALL[0]))
}

#[test]
fn one_launch_more_changes_no_finding_by_more_than_itself() {
    let mut before: Option<Vec<(String, i64)>> = None;
    for launches in 44..56 {
        let found = launches_and_work(launches, 700_000);
        let (idle, work) = (launches * 10 + 40, 660);
        let mut expected = vec![("host-work".to_owned(), work), ("launch-bound".to_owned(), idle)];
        expected.sort_by_key(|(_, us)| -us);
        let close = |(a, b): (&(String, i64), &(String, i64))| a.0 == b.0 && (a.1 - b.1).abs() <= 20;
        assert!(found.len() == 2 && found.iter().zip(&expected).all(close), "{launches}: {found:?}, {expected:?}");
        if let Some(before) = before.replace(found.clone()) {
            assert!(before.iter().zip(&found).all(close), "{launches}: {before:?}, then {found:?}");
        }
    }
}

#[test]
fn idle_time_is_shared_out_between_launching_and_other_work_by_what_each_takes() {
    let names = |launches, work_ns| -> Vec<String> {
        launches_and_work(launches, work_ns).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(200, 0), ["launch-bound"]);
    assert_eq!(names(5, 3_000_000), ["host-work"]);
    assert_eq!(names(5, 0), ["launch-bound"], "few launches that are all that a step does bound it as well");
}

#[test]
fn of_two_waits_the_one_after_which_the_gpu_idles_is_named_first() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, crate::trace::testing::START + 1_000_000_000);
    let lines = [("loss", 10), ("log", 20)].map(|(function, line)| trace.stack(function, "/home/u/train.py", line));
    let mut thread = trace.thread(1, 11);
    for _ in 0..40 {
        let step = thread.range_begin();
        for (line, host_ns) in lines.into_iter().zip([1_000, 200_000]) {
            let end = thread.launch_running("k", 5_000, 7, (thread.now + 6_000, 300_000));
            thread.stack = Some((line, 0));
            thread.sync("cuStreamSynchronize", "stream", end + 3_000 - thread.now);
            thread.stack = None;
            thread.host(host_ns);
        }
        thread.range_end(None, "step", step, true);
    }
    let section = trace.section(ALL[0]);
    assert_eq!(found(&section)[0].0, "wait-every-step");
    assert!(evidence(&section).starts_with("train.py:20 log  cuStreamSynchronize"), "{}", evidence(&section));
}

/// Of a summary: names of the findings with what to try, and what was checked without one.
fn advised(section: &Section) -> (Vec<(String, String)>, String) {
    let findings = section.tables.iter().filter(|t| t.key == "findings").flat_map(|t| &t.rows);
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    let advised = findings.map(|row| (text(&row[0]), text(&row[8]))).collect();
    (advised, text(section.get("checked_fine")))
}
