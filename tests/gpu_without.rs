//! GPU times where CUPTI cannot be used, cannot go, or loses records: what is used in its place, what that costs, and that it is said.

use gputrace_collectors::manifest::GpuTime;

use crate::util::{Driver, Scratch, Target, Trace, driver_folder, linked_with_library, program, program_with};

/// What the manifest says of the command's process.
fn about(trace: &Trace) -> GpuTime {
    trace.root().gpu_time.expect("CUPTI was asked")
}

fn windows<'a>(scratch: &'a Scratch, words: &[&str], options: &[&str]) -> Target<'a> {
    let target = scratch.target(program("steps")).args(words).with_driver(Driver::Plain);
    target.options(["--gpu-time", "windows"]).options(options)
}

#[test]
fn where_cupti_cannot_be_used_launches_are_timed_and_the_trace_says_so() {
    // No library, no permission, a device or driver that does not support it (MPS, a virtual GPU), a late attach that is refused,
    // and one that gives nothing out.
    let cases = [
        ("GPUTRACE_CUPTI", "/nonexistent/libcupti.so.13", "no library of CUPTI"),
        ("GPUTRACE_CUPTI", "/dev/null", "is there and cannot be used: /dev/null: "),
        ("GPUTRACE_CUPTI", "libc.so.6", "cannot be used: libc.so.6 has no cuptiGetVersion"),
        ("FAKE_CUPTI_FAIL", "cuptiActivityEnable:35", "INSUFFICIENT_PRIVILEGES"),
        ("FAKE_CUPTI_FAIL", "cuptiActivityEnable:7", "NOT_COMPATIBLE"),
        ("FAKE_CUPTI_FAIL", "cuptiActivityEnable:24", "NOT_SUPPORTED"),
        ("FAKE_CUPTI_FAIL", "cuptiActivityEnable:37", "VIRTUALIZED_DEVICE"),
        ("FAKE_CUPTI_FAIL", "cuptiActivityRegisterCallbacks:39", "another profiler is at work"),
        ("FAKE_CUPTI_FAIL", "cuptiActivityFlushAll:1", "cuptiActivityFlushAll failed three times in a row"),
    ];
    for (variable, value, says) in cases {
        // How a library is looked for is the same in all of them: once for each that is there and is none.
        let is_none = ["/dev/null", "libc.so.6"].contains(&value);
        for how in if is_none { &["windows"][..] } else { &["full", "windows", "auto"] } {
            let scratch = Scratch::new();
            // Records for the whole run come by themselves as long as buffers get full: few are launched where flushes are to fail.
            let few = value.starts_with("cuptiActivityFlushAll") && *how == "full";
            // Kernels of 50 us: of shorter ones a busy host says less well when they began.
            let ways = if few { ["10", "20", "10", "10000"] } else { ["2.5", "40", "50", "1000"] };
            let target = scratch.target(program("steps")).args(ways).with_driver(Driver::Plain);
            let target = target.env("FAKE_CUDA_TRUTH", scratch.path().join("truth.json"));
            let target = target
                .env(variable, value)
                .options(["--gpu-window-every", "0.5"].into_iter().filter(|_| *how != "full"));
            let run = target.options(["--gpu-time", how, "--malloc", "off"]).traced().expect(0);
            let trace = run.read();
            let (about, notes) = (about(&trace), trace.root().notes.join("\n"));
            let case = format!("{value} {how}: {about:?}\n{notes}");
            let why = about.refused.iter().chain(&about.given_up).any(|why| why.contains(says));
            assert!(why && notes.contains(says) && notes.contains("launches were timed by events"), "{case}");
            assert!(about.events.is_some_and(|events| events.timed > 50), "{case}");
            let found = scratch.section(&run, "gpu-utilisation");
            let busy = found["facts"]["busy_percent"].as_f64().unwrap_or_else(|| panic!("{case}: {found}"));
            let truth = crate::gpu_events::busy(&scratch.path().join("truth.json"));
            assert!((busy - truth).abs() < 3.0, "{busy} {truth}: {case}");
        }
    }
}

#[test]
fn few_launches_beside_a_cupti_that_stays_are_said_too() {
    let scratch = Scratch::new();
    // 20 launches in 20 ms: it would not be worth while to take CUPTI off, and it cannot be.
    let target = windows(&scratch, &["3", "20", "10", "20000"], &["--gpu-window-every", "0.5"]);
    let trace = target.env("FAKE_CUPTI_VERSION", "12.4").traced().expect(0).read();
    let about = trace.root().gpu_time.expect("CUPTI was asked");
    assert!(about.stays.as_deref().is_some_and(|why| why.contains("12.6")), "{about:?}");
    assert!(about.budget.is_some_and(|budget| budget.attached_launches > 500), "{:?}", trace.root().gpu_time);
}

#[test]
fn windows_of_which_records_were_lost_are_no_measurement() {
    let scratch = Scratch::new();
    let options = ["--gpu-window-every", "0.5", "--budget", "20"];
    let run = windows(&scratch, &["3", "20", "50", "1000"], &options).env("FAKE_CUPTI_DROP", "10").traced().expect(0);
    let trace = run.read();
    let about = trace.root().gpu_time.expect("CUPTI was asked");
    let windows = trace.table("gpu_windows");
    let lost: i64 = windows.rows().map(|row| row.int("lost")).sum();
    assert!(lost > 0 && lost as u64 <= about.dropped, "{about:?}");
    assert!(trace.root().notes.iter().any(|note| note.contains("are left out of reports")), "{:?}", trace.root().notes);
    let found = scratch.section(&run, "gpu-utilisation");
    // A tenth is missing of each: nothing is left that a share could be made of.
    if windows.rows().all(|row| row.int("lost") > 0) {
        assert!(found["facts"]["busy_percent"].is_null(), "{found}");
    }
}

#[test]
fn contexts_that_end_and_forks_harm_no_program_whose_gpu_is_timed() {
    let flags = linked_with_library("libcuda.so.1", &driver_folder(Driver::Plain), &["-l:libcuda.so.1"]);
    let timed = program_with("timed", "linked", &flags);
    for how in ["full", "windows", "auto"] {
        for scenario in ["contexts", "fork"] {
            let scratch = Scratch::new();
            let target = scratch.target(&timed).arg(scenario).with_driver(Driver::Plain);
            let trace = target.options(["--gpu-time", how]).same().expect(0).read();
            let about = about(&trace);
            assert!(about.records > 0 && about.violations == 0, "{how} {scenario}: {about:?}");
            let root = trace.root().process_id;
            let others = trace.manifest().processes.into_iter().filter(|process| process.process_id != root);
            assert_eq!(others.filter(|process| process.gpu_time.is_some()).count(), 0, "{how} {scenario}");
            // What a reset threw away has no record, and that is said.
            let notes = trace.root().notes.join("\n");
            assert!(
                about.without_record * 100 <= about.records || notes.contains("have no record of it"),
                "{how} {scenario}: {notes}"
            );
        }
    }
}

#[test]
fn of_two_gputraces_the_inner_one_has_the_program() {
    let scratch = Scratch::new();
    let inner = scratch.path().join("inner");
    let gputrace = env!("CARGO_BIN_EXE_gputrace");
    let script = format!(
        "{gputrace} -o {} --gpu-time full -- {} 0.5 > /dev/null 2>&1",
        inner.display(),
        program("steps").display()
    );
    let target = scratch.shell(&script).with_driver(Driver::Plain).options(["--gpu-time", "full"]);
    let outer = target.traced().expect(0).read();
    assert_eq!(outer.table("kernels").len(), 0);
    let inner = Trace::open(&inner);
    assert!(about(&inner).records > 100 && inner.table("kernels").len() > 100);
}
