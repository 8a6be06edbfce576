//! Verdict and first finding are of one class, whatever a loop does, with and without GPU times.

use crate::analysis::{ALL, Section, Value};
use crate::findings::ALL as RULES;
use crate::trace::testing::{START, TestTrace, Thread};

/// What a step does beside a kernel; times in percent of its usual length.
type Do = fn(&mut Thread<'_>, i64);

const DONE: [(&str, Do); 14] = [
    ("nothing", |_, _| {}),
    ("host", |t, ns| t.host(ns)),
    ("launches", |t, ns| launches(t, "small", ns)),
    ("graphs", |t, ns| {
        for _ in 0..4 {
            t.launch_graph(Some(7), Some(20), 9_000);
            t.host(ns / 4);
        }
    }),
    ("pageable", |t, ns| t.copy("HtoD", ("pageable", "device"), true, 1 << 20, ns)),
    ("blocking", |t, ns| t.copy("DtoH", ("device", "pinned"), false, 1 << 20, ns)),
    ("small copies", |t, ns| (0..20).for_each(|_| t.copy("HtoD", ("pinned", "device"), true, 64, ns / 20))),
    ("copies", |t, ns| {
        t.copy_running("HtoD", 1 << 24, 5_000, (t.now + 5_000, ns));
    }),
    ("allocations", |t, ns| {
        t.free("cuMemFree_v2", "device", 64, ns / 2);
        t.alloc("cuMemAlloc_v2", "device", 64, 1 << 20, ns / 2);
    }),
    ("system", |t, ns| t.system_wait("read", "file", ns)),
    ("modules", |t, ns| t.other("cuModuleLoadData", "module", ns)),
    ("collectives", |t, ns| t.collective("ncclAllReduce", "all_reduce", 1, 8, false, ns)),
    ("waits", |t, ns| (0..4).for_each(|_| t.sync("cuStreamSynchronize", "stream", ns / 4))),
    ("other calls", |t, ns| t.other("cuEventRecord", "api", ns)),
];

fn launches(thread: &mut Thread<'_>, kernel: &str, ns: i64) {
    for _ in 0..20 {
        let begin = thread.now + 6_000;
        thread.launch_running(kernel, ns / 20, 7, (begin, 1_000));
    }
}

/// Some steps of 1 ms: so much of them by these two, the rest a kernel that is waited for; in every k-th twenty times as much of the first.
fn section(gpu_times: bool, (one, other): (Do, Do), (one_ns, other_ns): (i64, i64), every: Option<usize>) -> Section {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000_000);
    let mut thread = trace.thread(1, 11);
    for step in 0..44 {
        let began = thread.range_begin();
        let times = if every.is_some_and(|every| step % every == every - 1) { 20 } else { 1 };
        one(&mut thread, times * one_ns);
        other(&mut thread, other_ns);
        let kernel_ns = (1_000_000 - one_ns - other_ns).max(20_000);
        let end = thread.launch_running("k", 5_000, 7, (thread.now + 6_000, kernel_ns));
        thread.sync("cuStreamSynchronize", "stream", end + 3_000 - thread.now);
        thread.range_end(None, "step", began, true);
    }
    if !gpu_times {
        use gputrace_collectors::schema::TableId;
        [TableId::Kernels, TableId::DeviceCopies].into_iter().for_each(|table| trace.clear(table));
    }
    trace.section(ALL[0])
}

/// What is wrong with a summary's verdict.
fn disagrees(section: &Section) -> Option<String> {
    let Value::Text(verdict) = section.get("verdict") else { return Some("no verdict".to_owned()) };
    let table = section.tables.iter().find(|table| table.key == "findings");
    let Some(first) = table.and_then(|table| table.rows.first()) else {
        // What no finding is about may still be idle time of the GPU, or of the host.
        let bounds = ["LAUNCH", "SYNC", "TRANSFER", "ALLOCATION", "IMBALANCE", "OUTLIER"];
        let bound = bounds.iter().any(|word| verdict.starts_with(word));
        return bound.then(|| format!("{verdict} without a finding"));
    };
    let cell = |key: &str| section.cell("findings", 0, key).clone();
    let (Value::Text(name), gain) = (cell("name"), cell("gain_percent")) else { return Some(format!("{first:?}")) };
    let rule = RULES.iter().find(|rule| rule.name == name).and_then(|rule| rule.verdict);
    let share = match gain {
        Value::Num(share) => share,
        _ => 0.0,
    };
    let host_alone = section.get("gpu_busy_ns") == &Value::Missing;
    let waited_for = name == "wait-every-step" && verdict == "GPU BOUND" && host_alone;
    let words = ["HEALTHY", "UNKNOWN", "GPU BOUND", "HOST BOUND", "COMMUNICATION BOUND", "LOADING"];
    let agree = match rule {
        Some(word) if share >= 10.0 => verdict == word || waited_for,
        _ => words.contains(&verdict.as_str()),
    };
    (!agree).then(|| format!("{verdict}, and first {name} of {share:.1} %"))
}

#[test]
fn verdict_and_first_finding_are_of_one_class_whatever_a_loop_does() {
    let mut wrong = Vec::new();
    let mut words = std::collections::BTreeSet::new();
    for gpu_times in [true, false] {
        for (number, (one, first)) in DONE.iter().enumerate() {
            for (other, second) in &DONE[number..] {
                // Much of the one and little of the other, or the other way round.
                let shares = if (number + usize::from(gpu_times)) % 2 == 0 { (600, 100) } else { (150, 400) };
                let section = section(gpu_times, (*first, *second), (shares.0 * 1_000, shares.1 * 1_000), None);
                words.extend([format!("{:?}", section.get("verdict"))]);
                wrong.extend(disagrees(&section).map(|what| format!("{one}, {other} {shares:?} {gpu_times}: {what}")));
            }
            let section = section(gpu_times, (*first, DONE[0].1), (300_000, 0), Some(11));
            words.extend([format!("{:?}", section.get("verdict"))]);
            wrong.extend(disagrees(&section).map(|what| format!("{one}, every 11th {gpu_times}: {what}")));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(words.len() >= 9, "these loops are about many verdicts: {words:?}");
}
