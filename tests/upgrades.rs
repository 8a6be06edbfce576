//! What becomes of processes whose collector is another one than theirs: in another namespace of pids.

use std::process::Command;

use crate::standing::Session;
use crate::util::{Driver, Scratch, Trace, count, driver_folder, gputrace, lacks, needs, program};

#[test]
fn processes_that_call_themselves_the_same_in_namespaces_of_their_own_have_each_its_own_end() {
    // SAFETY: the call only reads this process's credentials.
    if unsafe { libc::geteuid() } != 0 || !needs(&["unshare"]) {
        return;
    }
    if !Command::new("unshare").args(["-p", "-f", "true"]).status().is_ok_and(|status| status.success()) {
        lacks("the right to make a namespace of pids (unshare -p)");
        return;
    }
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &["--detail", "full"]);
    session.collect();
    // Each lives for some milliseconds: with an odd number of launches it ends with 3, else with 0.
    let start = |steps: u32| {
        let mut command = Command::new(gputrace());
        command.arg("env").arg(&session.root).args(["--", "unshare", "-p", "-f"]).arg(program("incident"));
        command.arg(steps.to_string()).arg(if steps % 2 == 1 { "exit" } else { "nothing" });
        let command = command.env("LD_LIBRARY_PATH", driver_folder(Driver::Plain)).stdout(std::process::Stdio::null());
        (steps, command.spawn().expect("it starts"))
    };
    for _ in 0..3 {
        let all: Vec<_> = (1..=12).map(start).collect();
        for (steps, mut child) in all {
            let code = child.wait().expect("it is our child").code();
            assert_eq!(code, Some(if steps % 2 == 1 { 3 } else { 0 }));
        }
    }
    session.settle();
    session.end(libc::SIGTERM);
    let trace = Trace::open(&session.trace);
    let processes = trace.table("processes");
    let ends: std::collections::HashMap<i64, Option<i64>> =
        processes.rows().map(|row| (row.int("process_id"), row.maybe_int("exit_code"))).collect();
    let manifest = trace.manifests().remove(0);
    let incidents: Vec<_> = manifest.processes.iter().filter(|process| process.exe.ends_with("incident")).collect();
    assert_eq!(incidents.len(), 36);
    for process in incidents {
        let wanted = if count(process, "launch").seen % 2 == 1 { 3 } else { 0 };
        // Where the kernel tells nobody but the parent (before Linux 6.15) no end is known, and none is made up.
        let told = ends[&process.process_id];
        assert!(told.is_none_or(|code| code == wanted), "{process:?}: {told:?}");
    }
    let distinct = |pid: i32| manifest.processes.iter().filter(|process| process.pid == pid).count();
    assert!(manifest.processes.iter().all(|process| process.exe.ends_with("unshare") || distinct(process.pid) == 1));
}
