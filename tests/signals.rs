//! Signals reach the program as often as they were meant for it, and gputrace ends as the program does: also as process
//! 1 of a container, inside another gputrace, or where an administrator has switched it off.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use crate::limits::{prefix, with_mounts};
use crate::util::{Driver, Scratch, Trace, copied, gputrace, lacks, needs, poll, program, shim};

/// Waits until a file holds a text.
#[track_caller]
fn appears(file: &Path, text: &str) {
    let holds = || fs::read_to_string(file).ok().filter(|all| all.contains(text));
    poll(Duration::from_secs(60), holds).unwrap_or_else(|| panic!("no {text} in {}", file.display()));
}

fn send(pid: i32, signal: i32) {
    // SAFETY: the process is our child and has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn a_signal_that_a_process_sends_reaches_the_program_once() {
    let scratch = Scratch::new();
    let file = scratch.path().join("output");
    let script = format!("exec {} 5 300 >{}", program("signals").display(), file.display());
    let started = scratch.shell(&script).own_group().start();
    appears(&file, "ready");
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGUSR1, libc::SIGTERM, libc::SIGWINCH] {
        send(started.pid(), signal);
    }
    started.wait().expect(0);
    let text = fs::read_to_string(&file).expect("its output");
    let counts: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(counts, ["HUP 1", "INT 1", "USR1 1", "TERM 1", "WINCH 1"]);
}

#[test]
fn ctrl_c_at_a_terminal_reaches_the_program_once() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let (prefix, trace) = prefix(&scratch, "");
    let command = format!("{prefix} {} 1 300", program("signals").display());
    let terminal = "import os, pty, sys
pid, terminal = pty.fork()
if pid == 0: os.execvp('/bin/sh', ['sh', '-c', 'exec ' + sys.argv[1]])
seen, sent = b'', False
while True:
    try: part = os.read(terminal, 4096)
    except OSError: break
    if not part: break
    seen += part
    if not sent and b'ready' in seen:
        os.write(terminal, b'\\x03')
        sent = True
status = os.waitpid(pid, 0)[1]
print(seen.decode(), 'status', status)";
    let run = scratch.target("python3").args(["-c", terminal, &command]).plain().expect(0);
    assert!(run.text().contains("INT 1\r\n") && run.text().contains("status 0"), "{}", run.text());
    assert!(Trace::open(&trace).manifest().complete);
}

#[test]
fn a_program_that_is_told_to_end_leaves_a_whole_trace() {
    let scratch = Scratch::new();
    let file = scratch.path().join("count");
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let _ = fs::remove_file(&file);
        let started =
            scratch.target(program("victim")).arg(&file).arg("1000").with_instant_driver().own_group().start();
        let counted =
            || fs::read(&file).ok().filter(|bytes| bytes.get(..8) == Some(&1000u64.to_le_bytes())).map(|_| ());
        poll(Duration::from_secs(60), counted).expect("the victim works");
        send(started.pid(), signal);
        let run = started.wait().expect(128 + signal);
        assert!(run.read().manifest().complete);
        assert_eq!(run.read().table("launches").len(), 1000);
    }
}

#[test]
fn as_process_1_it_reaps_orphans_and_ends_with_the_command() {
    let scratch = Scratch::new();
    let (prefix, trace) = prefix(&scratch, "--grace 5");
    // The orphan ends after its parent, and no zombie is left of it while the command runs on.
    let command = "(sh -c \"sleep 0.1; exit 9\" &) ; sleep 0.4; cat /proc/[0-9]*/stat | grep -c \" Z \"; exit 3";
    let script = format!("exec unshare -fp --mount-proc {prefix} sh -c '{command}'");
    let Some(target) = with_mounts(&scratch, &script) else { return };
    let run = target.plain().expect(3);
    assert_eq!(run.text(), "0\n", "{}", run.stderr);
    assert!(Trace::open(&trace).manifest().complete);
    // And as process 1 a signal cannot end it the usual way.
    let script = format!("exec unshare -fp --mount-proc {} sh -c 'kill -TERM $$'", self::prefix(&scratch, "").0);
    with_mounts(&scratch, &script).expect("it worked before").plain().expect(143);
}

#[test]
fn one_gputrace_inside_another_traces_for_itself() {
    let scratch = Scratch::new();
    let (inner, trace) = prefix(&scratch, "");
    let command = format!("exec {inner} {} dlopen", program("cuda_routes").display());
    let run = scratch.shell(&command).with_driver(Driver::Plain).traced().expect(0);
    assert!(run.text().contains("launches=3"), "{}", run.text());
    assert_eq!(Trace::open(&trace).table("launches").len(), 3);
    assert_eq!(run.read().table("launches").len(), 0, "the outer one sees the inner one only");
}

#[test]
fn an_administrator_can_switch_it_off() {
    let scratch = Scratch::new();
    let (prefix, trace) = prefix(&scratch, "");
    let script = format!(
        "mount -t tmpfs none /etc && mkdir /etc/gputrace && : >/etc/gputrace/disable && exec {prefix} sh -c 'echo ran; exit 4'"
    );
    let Some(target) = with_mounts(&scratch, &script) else { return };
    let run = target.plain().expect(4);
    assert_eq!(run.text(), "ran\n");
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("/etc/gputrace/disable"), "{}", run.stderr);
    assert!(!trace.exists());
}

#[test]
fn a_setuid_program_runs_with_its_rights_and_is_named() {
    let scratch = Scratch::new();
    let program = scratch.path().join("id");
    copied(Path::new("/usr/bin/id"), &program);
    let given = std::os::unix::fs::chown(&program, Some(65534), None).is_ok();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("our own file");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
    if !given {
        crate::util::lacks("the right to give a file away (root)");
        return;
    }
    let target = scratch.target(&program).arg("-u");
    let (plain, traced) = (target.plain().expect(0), target.traced().expect(0));
    assert_eq!(plain.text(), traced.text());
    // Where setuid does not work (a mount or no_new_privs forbids it) the program is an ordinary one.
    let works = plain.text() == "65534\n";
    assert_eq!(traced.stderr.contains("is not traced: is setuid"), works, "{}", traced.stderr);
    let as_child = scratch.shell(&format!("{} -u", program.display()));
    assert_eq!(as_child.plain().text(), as_child.traced().expect(0).text());
}

#[test]
fn the_command_is_found_from_a_symbolic_link() {
    let scratch = Scratch::new();
    shim();
    let link = scratch.path().join("gputrace");
    std::os::unix::fs::symlink(gputrace(), &link).expect("a link");
    let run = scratch.target(&link).args(["-o", "t", "--", "echo", "ran"]).plain().expect(0);
    assert_eq!(run.text(), "ran\n");
}

#[test]
fn a_program_that_dumps_core_leaves_one_core() {
    let scratch = Scratch::new();
    let dumps = |command: &str| {
        let run = scratch
            .target("sh")
            .args(["-c", &format!("ulimit -c unlimited; cd {}; {command}", scratch.path().display())]);
        run.plain().status
    };
    let crash = "sh -c 'kill -SEGV $$'";
    if !dumps(&format!("exec {crash}")).core_dumped() {
        lacks("core dumps (ulimit -c unlimited)");
        return;
    }
    // The program's own core is there: gputrace ends by the same signal and adds none.
    let (gputrace, _) = prefix(&scratch, "");
    let ours = dumps(&format!("exec {gputrace} {crash}"));
    assert_eq!((ours.signal(), ours.core_dumped()), (Some(libc::SIGSEGV), false));
}

#[test]
fn an_orphan_gets_the_parent_that_it_would_have_without_us() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    // A child ends before its own child, which then says who its parent is.
    let script = "import os\nread, write = os.pipe()\nif os.fork() == 0:\n    parent = os.getpid()\n    \
        if os.fork() == 0:\n        while os.getppid() == parent: pass\n        os.write(write, str(os.getppid()).encode())\n    \
        os._exit(0)\nos.wait()\nprint('orphan of', os.read(read, 20).decode())\n";
    let run = scratch.target("python3").args(["-c", script]).same().expect(0);
    assert!(run.text().starts_with("orphan of "), "{}", run.text());
}
