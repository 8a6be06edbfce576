//! Resource limits, sandboxes and small file systems: the program runs on as it would alone.

use crate::util::{Scratch, Target, count, gputrace, lacks, needs, program, shim};

/// Runs a script in mount namespace of its own, where it may mount; none where this machine does not let us.
pub(crate) fn with_mounts<'a>(scratch: &'a Scratch, script: &str) -> Option<Target<'a>> {
    // SAFETY: the call only reads this process's credentials.
    let options: &[&str] = if unsafe { libc::geteuid() } == 0 { &["-m"] } else { &["-Urm"] };
    let works = scratch.target("unshare").args(options).args(["mount", "-t", "tmpfs", "none", "/mnt"]);
    let found = std::process::Command::new("unshare").arg("--version").output().is_ok_and(|out| out.status.success());
    if !found || !works.plain().status.success() {
        lacks("the right to mount in a namespace (unshare -m)");
        return None;
    }
    Some(scratch.target("unshare").args(options).args(["sh", "-c", script]))
}

/// `gputrace -o <a new trace> --`, for scripts.
pub(crate) fn prefix(scratch: &Scratch, options: &str) -> (String, std::path::PathBuf) {
    shim();
    let trace = scratch.new_trace();
    (format!("{} {options} -o {} --", gputrace().display(), trace.display()), trace)
}

#[test]
fn after_its_start_a_program_makes_no_system_call_because_of_us() {
    let scratch = Scratch::new();
    for mode in ["off", "sample", "sample=1000", "full"] {
        for what in ["malloc", "cuda", "both"] {
            let target = scratch.target(program("sandboxed")).arg(what).with_instant_driver();
            // Who waits for room (full mode, unless told) sleeps by a system call.
            let run = target.options(["--malloc", mode, "--on-full", "drop"]).same().expect(17);
            let process = run.read().root();
            if what != "malloc" {
                let launches = count(&process, "launch");
                assert_eq!(launches.seen, 20_001, "{mode} {what}");
                assert_eq!(launches.recorded + launches.dropped, 20_001, "{mode} {what}");
            }
            if what != "cuda" && mode == "full" {
                assert!(count(&process, "host_alloc").seen >= 120_000, "{process:?}");
            }
        }
    }
}

#[test]
fn a_limit_on_file_sizes_never_kills_the_program() {
    let scratch = Scratch::new();
    let cuda = program("cuda_routes").display().to_string();
    // In blocks of 512 or 1,024 bytes: none at all, less than a segment needs, less than it asks for, enough.
    for blocks in [0, 1, 1_000, 6_000, 8_000, 100_000] {
        let script = format!("ulimit -f {blocks}; exec {cuda} dlopen");
        let target = scratch.shell(&script).with_instant_driver();
        let (plain, traced) = (target.plain(), target.traced().expect(0));
        assert_eq!(plain.stdout, traced.stdout);
        let own = traced.own_stderr();
        let lines: Vec<_> = own.lines().collect();
        assert!(lines.len() <= 1 && lines.iter().all(|line| line.starts_with("gputrace: process ")), "{lines:?}");
        if blocks <= 6_000 {
            assert!(own.contains("RLIMIT_FSIZE"), "{own}");
        } else {
            assert_eq!(traced.read().table("launches").len(), 3, "with {blocks} blocks");
        }
    }
}

#[test]
fn one_line_tells_of_all_processes_that_a_limit_keeps_from_being_traced() {
    let scratch = Scratch::new();
    let script = "ulimit -f 100; for i in 1 2 3 4; do /bin/true; done; exec /bin/echo ran";
    let run = scratch.shell(script).traced().expect(0);
    assert_eq!(run.text(), "ran\n");
    let own = run.own_stderr();
    assert_eq!(own.lines().count(), 1, "{own}");
    let says = "is not traced: RLIMIT_FSIZE leaves no room for its events: raise it to 4 MiB (ulimit -f)";
    assert!(own.starts_with("gputrace: process ") && own.contains(says), "{own}");
    // Each is in the trace, with its program; the summary has a line for a program.
    let manifest = run.read().manifest().clone();
    let of = |name: &str| manifest.untraced.iter().filter(|process| process.exe.ends_with(name)).count();
    assert_eq!((of("/true"), of("/echo")), (4, 1), "{:?}", manifest.untraced);
    let whole = run.whole_lines();
    assert!(whole.lines().any(|line| line.starts_with("not traced: /") && line.ends_with(" x 4")), "{whole}");
}

#[test]
fn a_limit_on_the_address_space_is_respected() {
    let scratch = Scratch::new();
    let state = program("mallocs").display().to_string();
    for kib in [20_000, 40_000, 100_000, 400_000, 4_000_000] {
        let target = scratch.shell(&format!("ulimit -v {kib}; exec {state} known 100"));
        let (plain, traced) = (target.plain().expect(0), target.traced().expect(0));
        assert_eq!(plain.stdout, traced.stdout);
        let own = traced.own_stderr();
        assert!(own.lines().count() <= 1, "{own}");
        if kib >= 400_000 {
            assert_eq!(own, "");
            assert!(traced.read().root().traced);
        }
    }
}

#[test]
fn limits_of_descriptors_processes_and_locked_memory_are_respected() {
    let scratch = Scratch::new();
    let cuda = program("cuda_routes").display().to_string();
    for limit in ["-n 12", "-l 0", "-l 64"] {
        scratch.shell(&format!("ulimit {limit}; exec {cuda} dlopen")).with_instant_driver().same();
    }
    // None left for us: the program has what it needs, and one line and the trace say that it is not traced.
    let target = scratch.shell(&format!("ulimit -n 4; exec {cuda} dlopen")).with_instant_driver();
    let (plain, traced) = (target.plain(), target.traced().expect(0));
    assert_eq!(plain.stdout, traced.stdout);
    let why = "no file descriptor is free in it";
    let lines = traced.stderr.lines().filter(|line| line.contains(&format!("is not traced: {why}"))).count();
    assert_eq!(lines, 1, "{}", traced.stderr);
    let trace = traced.read();
    let untraced = trace.manifest().untraced;
    assert!(untraced.iter().any(|process| process.reason == why), "{untraced:?}");
}

#[test]
fn a_program_may_lock_all_its_memory() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    // What is there and what will be, in 64 MiB: the segment's untouched pages must not count.
    let script = "import ctypes\nprint(ctypes.CDLL(None).mlockall(3))\nprint(len([bytes(1000) for i in range(10000)]))";
    for limit in ["64000", "unlimited"] {
        scratch.shell(&format!("ulimit -l {limit}; exec python3 -c '{script}'")).same();
    }
}

#[test]
fn a_data_loader_may_fill_a_small_dev_shm() {
    let scratch = Scratch::new();
    let loader = program("shared_memory").display().to_string();
    let (gputrace, trace) = prefix(&scratch, "--malloc full");
    let mounted = |command: &str| format!("mount -t tmpfs -o size=64m none /dev/shm && exec {command}");
    // All but one page table's worth of it; and while it is full, a new process starts.
    let full =
        format!("sh -c '{loader} 60 && head -c 62M /dev/zero >/dev/shm/x && {loader} 0 && df --output=used /dev/shm'");
    let Some(plain) = with_mounts(&scratch, &mounted(&full)) else { return };
    let plain = plain.plain().expect(0);
    let traced =
        with_mounts(&scratch, &mounted(&format!("{gputrace} {full}"))).expect("it worked before").plain().expect(0);
    assert_eq!(plain.text(), traced.text(), "{}", traced.stderr);
    let processes = crate::util::Trace::open(&trace).table("processes");
    assert!(processes.len() >= 10 && processes.rows().all(|row| row.int("traced") == 1));
}

#[test]
fn dev_shm_may_be_missing() {
    let scratch = Scratch::new();
    let cuda = program("cuda_routes").display().to_string();
    let (gputrace, trace) = prefix(&scratch, "");
    let script = format!("mount -t tmpfs -o size=0,mode=000 none /dev/shm && exec {gputrace} {cuda} dlopen");
    let Some(target) = with_mounts(&scratch, &script) else { return };
    let run = target.with_instant_driver().plain().expect(0);
    assert!(run.text().contains("launches=3"), "{}", run.stderr);
    assert_eq!(crate::util::Trace::open(&trace).table("launches").len(), 3);
}

#[test]
fn a_chroot_without_proc_is_no_obstacle() {
    let scratch = Scratch::new();
    let (gputrace, trace) = prefix(&scratch, "");
    // An empty folder over /proc of the target alone.
    let script = format!("exec {gputrace} unshare -m sh -c 'mount -t tmpfs none /proc; echo seen; exit 3'");
    let Some(target) = with_mounts(&scratch, &script) else { return };
    let run = target.plain().expect(3);
    assert_eq!(run.text(), "seen\n", "{}", run.stderr);
    assert!(trace.join("manifest").is_dir());
}

#[test]
fn a_core_dump_leaves_our_memory_out() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = "import re\nmaps = re.split('(?m)^(?=[0-9a-f]+-)', open('/proc/self/smaps').read())\n\
        ours = [m for m in maps if 'memfd:gputrace' in m]\nassert ours\n\
        assert all(' dd' in re.search('VmFlags:.*', m)[0] for m in ours), ours\n";
    let script = scratch.file("flags.py", script);
    scratch.target("python3").arg(script).traced().expect(0);
}
