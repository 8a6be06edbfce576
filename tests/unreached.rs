//! Children that the shim cannot reach: they run as they do alone, and those that use CUDA, or where malloc is recorded all of
//! them, are named with the reason.

use crate::util::{Driver, Finished, Scratch, driver_folder, lacks, needs, program};

/// A command line that uses CUDA for six seconds: looks of the launcher's may be seconds apart on a loaded machine.
fn victim(scratch: &Scratch, name: &str) -> String {
    let folder = driver_folder(Driver::Plain);
    let count = scratch.path().join(name);
    format!("LD_LIBRARY_PATH={} {} {} 6000 1000", folder.display(), program("victim").display(), count.display())
}

/// Asserts that so many processes were named, each with this reason. Shells around them may be, too: malloc is recorded.
#[track_caller]
fn named(run: &Finished, count: usize, reason: &str) {
    let untraced = run.read().manifest().untraced;
    let is_victim = |u: &&gputrace_collectors::Untraced| u.exe.ends_with("victim");
    assert_eq!(untraced.iter().filter(is_victim).count(), count, "{untraced:?}\n{}", run.stderr);
    assert!(untraced.iter().all(|u| u.reason.contains(reason)), "{untraced:?}");
}

#[test]
fn a_child_that_clears_its_environment() {
    let scratch = Scratch::new();
    named(
        &scratch.shell(&format!("env -i {}", victim(&scratch, "count"))).traced().expect(0),
        1,
        "environment was cleared",
    );
}

#[test]
fn a_child_that_a_gputrace_inside_traces() {
    let scratch = Scratch::new();
    let inner = scratch.new_trace();
    let victim = victim(&scratch, "count");
    let script = format!("{} -o {} -- sh -c '{victim}'", crate::util::gputrace().display(), inner.display());
    let run = scratch.shell(&script).traced().expect(0);
    named(&run, 1, "another gputrace that runs inside this one traces it");
    let calls = crate::util::Trace::open(&inner).calls();
    assert_eq!(calls["cuLaunchKernel"], 6000, "{calls:?}");
}

#[test]
fn a_program_that_is_started_through_its_loader_is_reached_and_not_named() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    if !std::path::Path::new(loader).exists() {
        lacks(loader);
        return;
    }
    let scratch = Scratch::new();
    for run in [
        scratch.target(loader).args(["/bin/sleep", "0.3"]).same().expect(0),
        scratch.shell(&format!("{loader} /bin/sleep 0.3; true")).traced().expect(0),
    ] {
        let manifest = run.read().manifest();
        assert_eq!((manifest.untraced.len(), run.stderr.contains("not traced")), (0, false), "{}", run.stderr);
        assert!(manifest.processes.iter().any(|process| process.exe.contains("ld-")), "{:?}", manifest.processes);
    }
}

#[test]
fn a_child_whose_preload_is_dropped_or_replaced() {
    let scratch = Scratch::new();
    let [dropped, replaced] = ["dropped", "replaced"].map(|name| victim(&scratch, name));
    let run = scratch.shell(&format!("env -u LD_PRELOAD {dropped} & LD_PRELOAD=libm.so.6 {replaced}; wait"));
    named(&run.traced().expect(0), 2, "LD_PRELOAD was removed or replaced");
}

#[test]
fn children_without_cuda_are_named_where_malloc_is_recorded() {
    let scratch = Scratch::new();
    // As long as the others: looks may be seconds apart.
    let script = "env -i sleep 6 & LD_PRELOAD=libm.so.6 sleep 6 & sleep 6; wait";
    for (mode, reasons) in [("off", &[][..]), ("sample", &["removed or replaced", "environment was cleared"])] {
        let script = if mode == "off" { script.replace(" 6", " 1") } else { script.to_owned() };
        let run = scratch.shell(&script).options(["--malloc", mode]).traced().expect(0);
        let trace = run.read();
        let mut untraced = trace.manifest().untraced;
        untraced.sort_by(|a, b| a.reason.cmp(&b.reason));
        assert_eq!(untraced.len(), reasons.len(), "{mode}: {untraced:?}");
        for (one, reason) in untraced.iter().zip(reasons) {
            assert!(one.exe.ends_with("sleep") && one.reason.contains(reason), "{one:?}");
            assert!(run.stderr.contains("not traced: ") && run.stderr.contains(reason), "{}", run.stderr);
        }
        let table = trace.table("processes");
        let rows: Vec<_> = table.rows().filter(|row| row.int("traced") == 0).collect();
        assert_eq!(rows.len(), reasons.len(), "{mode}");
    }
}

#[test]
fn a_child_that_runs_as_another_user_hears_nothing_of_us() {
    // SAFETY: the call only reads this process's credentials.
    if unsafe { libc::geteuid() } != 0 || !needs(&["setpriv"]) {
        return;
    }
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("our own");
    let script = format!("{}; echo ended $?", victim(&scratch, "count"));
    let as_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script];
    let run = scratch.target("setpriv").args(as_nobody).traced().expect(0);
    assert_eq!(run.text(), "launched 6000\nended 0\n");
    assert!(!run.stderr.contains("ld.so") && !run.stderr.contains("collector"), "{}", run.stderr);
    named(&run, 1, "another user");
}

#[test]
fn a_child_that_does_not_see_the_sessions_folder() {
    // SAFETY: the call only reads this process's credentials.
    if unsafe { libc::geteuid() } != 0 || !needs(&["unshare"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = format!(
        "mount -t tmpfs none \"${{GPUTRACE_SESSION%/*}}\" || exit 77; {}; echo ended $?",
        victim(&scratch, "count")
    );
    let run = scratch.target("unshare").args(["-m", "sh", "-c", &script]).traced();
    if run.code() == 77 {
        lacks("the right to mount in a namespace (unshare -m)");
        return;
    }
    assert_eq!(run.text(), "launched 6000\nended 0\n", "{}", run.stderr);
    named(&run, 1, "session's folder");
}
