//! What a process hands to its children is what they would have got without us, and each child has its own rows.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::util::{Finished, Scratch, Trace, copied, gputrace, needs, poll, program, program_with, shim};

/// What `forks` printed: launches by pid. A pid that made several images has the sum.
fn printed(run: &Finished) -> BTreeMap<i64, u64> {
    let mut launches = BTreeMap::new();
    for line in run.text().lines() {
        let mut words = line.split(" launched ");
        let mut number = || words.next().expect("two numbers").parse::<u64>().expect("a number");
        let (pid, count) = (number() as i64, number());
        *launches.entry(pid).or_default() += count;
    }
    launches
}

/// Asserts that the trace of `forks` has what each process printed.
#[track_caller]
pub(crate) fn assert_launches(run: &Finished, processes: usize) -> Trace {
    let expected = printed(run);
    assert_eq!(expected.len(), processes, "{}", run.text());
    let trace = run.read();
    trace.assert_balanced();
    let mut seen = BTreeMap::new();
    let launches = trace.table("launches");
    for row in launches.rows() {
        *seen.entry(row.int("pid")).or_default() += 1;
    }
    assert_eq!(seen, expected);
    trace
}

#[track_caller]
fn each_process_has_its_launches(way: &str, processes: usize, images: usize) {
    let scratch = Scratch::new();
    let run = scratch.target(program("forks")).arg(way).with_odd_driver().traced().expect(0);
    let trace = assert_launches(&run, processes);
    let table = trace.table("processes");
    assert_eq!(table.len(), images);
    for row in table.rows() {
        assert!(row.maybe_int("end_ns") > row.maybe_int("start_ns"), "it has ended after it began");
        assert_eq!(row.int("traced"), 1);
    }
    // Children that were forked and did not call exec say so, and name their parent.
    let forked = table.rows().filter(|row| row.text("origin") == "fork");
    let root = trace.root().pid;
    for row in forked {
        let parent = row.int("parent_pid");
        assert!(parent == i64::from(root) || table.rows().any(|other| other.int("pid") == parent));
    }
}

#[test]
fn a_fork_has_rows_of_its_own() {
    each_process_has_its_launches("fork", 5, 5);
}

#[test]
fn a_fork_without_handlers_has_rows_of_its_own() {
    each_process_has_its_launches("_Fork", 5, 5);
}

#[test]
fn a_raw_clone_has_rows_of_its_own() {
    each_process_has_its_launches("clone", 5, 5);
}

#[test]
fn a_vfork_runs_none_of_our_code_and_its_exec_is_traced() {
    each_process_has_its_launches("vfork", 4, 4);
}

#[test]
fn a_spawned_process_is_traced() {
    each_process_has_its_launches("spawn", 2, 2);
}

#[test]
fn an_exec_begins_a_new_image_of_the_same_pid() {
    each_process_has_its_launches("exec", 1, 3);
}

#[test]
fn a_fork_while_another_thread_is_with_the_loader_calls_what_nobody_has_called_yet() {
    let ways: [&[&str]; 3] =
        [&["--malloc", "full", "--mmap"], &["--malloc", "sample", "--os", "all"], &["--malloc", "off"]];
    for options in ways {
        let scratch = Scratch::new();
        scratch.target(program("fork_in_loader")).options(options).traced().expect(0).read().assert_balanced();
    }
}

#[test]
fn a_fork_beside_working_threads_harms_neither() {
    for _ in 0..5 {
        each_process_has_its_launches("threads", 2, 2);
    }
}

#[test]
fn a_daemon_outlives_gputrace_unharmed() {
    let scratch = Scratch::new();
    let done = scratch.path().join("done");
    let target =
        scratch.target(program("forks")).arg("daemon").arg(&done).with_odd_driver().options(["--grace", "0.1"]);
    let run = target.traced().expect(0);
    assert!(run.stderr.contains("gputrace: 1 process outlives the command"), "{}", run.stderr);
    let trace = run.read();
    // 10 of the parent, 12 of the daemon; what it does now is not in the trace.
    assert_eq!(trace.table("launches").len(), 22);
    assert!(trace.manifest().processes.iter().any(|process| process.running));
    scratch.file("done.go", "");
    let text = poll(Duration::from_secs(20), || fs::read_to_string(&done).ok().filter(|text| !text.is_empty()));
    assert_eq!(text.as_deref(), Some("done"));
}

#[test]
fn children_get_the_same_environment_but_for_our_variables() {
    let scratch = Scratch::new();
    let ours = ["LD_AUDIT=", "LD_PRELOAD=", "GPUTRACE_", "NVTX_INJECTION64_PATH="];
    let others = |run: &Finished| -> Vec<String> {
        let text = run.text();
        let mut lines: Vec<String> =
            text.split('\0').filter(|line| !ours.iter().any(|o| line.starts_with(o))).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let target = scratch.shell("exec env -0").env("ODD", "a=b\nc").env("EMPTY", "");
    let (plain, traced) = (target.plain(), target.traced());
    assert_eq!(others(&plain), others(&traced));
    assert!(traced.text().contains("GPUTRACE_SESSION=/"), "ours are there");
}

#[test]
fn what_the_launcher_inherited_reaches_the_program_unchanged() {
    let scratch = Scratch::new();
    shim();
    let state = program("state").display().to_string();
    let settings = [
        "umask 027",
        "trap '' USR1 HUP PIPE QUIT",
        "ulimit -n 256; ulimit -c 0; ulimit -s 4096",
        "exec 7</dev/null 9>/dev/null",
        "cd /usr",
        "nice -n 5 true; exec 3<&1",
    ];
    for setting in settings {
        let plain = scratch.shell(&format!("{setting}; exec {state} x")).own_group().plain().expect(42);
        let command = format!("{} -o {}", gputrace().display(), scratch.new_trace().display());
        let traced = scratch.shell(&format!("{setting}; exec {command} -- {state} x")).own_group().plain().expect(42);
        let differs = |text: &str| {
            // The shell is the leader of its group; so is the launcher then, whose child is not.
            text.lines().filter(|line| !line.starts_with("threads")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(differs(&plain.text()), differs(&traced.text()), "{setting}");
    }
}

#[test]
fn a_musl_child_runs_and_is_named_as_untraced() {
    if !needs(&["musl-gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.file("m.c", "#include <stdio.h>\nint main(void) { puts(\"musl\"); return 7; }\n");
    let child = scratch.path().join("musl");
    let made =
        std::process::Command::new("musl-gcc").arg(&source).arg("-o").arg(&child).status().expect("musl-gcc runs");
    assert!(made.success());
    let run = scratch.target(&child).traced().expect(7);
    assert_eq!(run.text(), "musl\n");
    assert!(run.stderr.contains("is not traced: linked to musl"), "{}", run.stderr);
    assert_eq!(run.read().manifest().untraced.len(), 1);
    // As a child: the loader must not say a word about us.
    let run = scratch.shell(&format!("{}; echo $?", child.display())).same();
    assert_eq!(run.text(), "musl\n7\n");
}

#[test]
fn a_32_bit_child_runs_and_is_named_as_untraced() {
    let scratch = Scratch::new();
    let source = scratch.file("n.c", "#include <stdio.h>\nint main(void) { puts(\"narrow\"); return 7; }\n");
    let child = scratch.path().join("narrow");
    let made =
        std::process::Command::new("cc").arg("-m32").arg(&source).arg("-o").arg(&child).output().expect("cc runs");
    if !made.status.success() {
        crate::util::lacks("a compiler for 32-bit programs (gcc-12-multilib)");
        return;
    }
    let run = scratch.target(&child).traced().expect(7);
    assert_eq!(run.text(), "narrow\n");
    assert!(run.stderr.contains("is not traced: a 32-bit program"), "{}", run.stderr);
    let run = scratch.shell(&format!("{}; echo $?", child.display())).same();
    assert_eq!(run.text(), "narrow\n7\n");
}

#[test]
fn a_static_child_and_one_with_address_sanitizer_run_as_they_do_alone() {
    let scratch = Scratch::new();
    let fixed = program_with("mallocs", "static", &["-static"]);
    let run = scratch.target(&fixed).args(["known", "10"]).traced().expect(0);
    assert!(run.stderr.contains("is not traced: statically linked"), "{}", run.stderr);
    scratch.shell(&format!("{} known 10; echo $?", fixed.display())).same();
    let sanitized = program_with("mallocs", "asan", &["-fsanitize=address"]);
    let run = scratch.target(&sanitized).args(["known", "10"]).traced().expect(0);
    assert_eq!(run.text(), "done\n");
    assert!(run.stderr.contains("is not traced: built with AddressSanitizer"), "{}", run.stderr);
}

#[test]
fn children_that_no_loader_lets_us_into_are_named_with_the_reason() {
    let scratch = Scratch::new();
    let source = crate::util::repository().join("tests/programs/reads.c");
    // Not every machine has every compiler.
    let kinds: [(&str, &[&str], &str); 4] = [
        ("static", &["cc", "-static"], "statically linked"),
        ("narrow", &["cc", "-m32"], "a 32-bit program"),
        ("musl", &["musl-gcc"], "linked to musl"),
        ("ours", &["cc"], ""),
    ];
    let mut script = String::from("exec 3<&0; ");
    let mut expected = Vec::new();
    for (name, compiler, reason) in kinds {
        let file = scratch.path().join(name);
        let mut command = std::process::Command::new(compiler[0]);
        let made = command.args(&compiler[1..]).arg(&source).arg("-o").arg(&file).output();
        if !made.is_ok_and(|made| made.status.success()) {
            crate::util::lacks(&compiler.join(" "));
            continue;
        }
        script.push_str(&format!("{} <&3 & ", file.display()));
        expected.extend((!reason.is_empty()).then_some((name, reason)));
    }
    // An exec makes no new pid, and the process that is static then was a shell that is traced.
    script.push_str(&format!("(exec {}/static <&3) & ", scratch.path().display()));
    // They live long enough for several looks, on a machine with much to do as well.
    let run = scratch.shell(&format!("sleep 2 | ({script} wait)")).traced().expect(0);
    let untraced = run.read().manifest().untraced;
    for (name, reason) in &expected {
        let named = untraced.iter().filter(|process| process.exe.ends_with(&format!("/{name}")));
        let named: Vec<_> = named.inspect(|process| assert!(process.reason.contains(reason), "{process:?}")).collect();
        assert_eq!(named.len(), if *name == "static" { 2 } else { 1 }, "{name}: {untraced:?}");
    }
    assert!(untraced.iter().all(|process| !process.exe.ends_with("/ours")), "{untraced:?}");
    let lines = run.stderr.lines().filter(|line| line.starts_with("not traced: "));
    assert_eq!(lines.count(), expected.len(), "a line for each program: {}", run.stderr);
}

#[test]
fn a_child_with_the_rights_of_another_user_is_named_though_its_file_is_hidden() {
    // SAFETY: the call only reads this process's credentials.
    if unsafe { libc::geteuid() } != 0 || !needs(&["setpriv"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.path().join("lends");
    copied(&program_with::<&str>("reads", "plain", &[]), &program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("our own file");
    // Whoever is nobody may write here, and read what was built.
    for folder in [scratch.path().to_owned(), scratch.path().join("run")] {
        fs::create_dir_all(&folder).expect("a folder");
        std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).expect("root may");
    }
    let copy = |file: &std::path::Path| {
        let to = scratch.path().join(file.file_name().expect("a file"));
        copied(file, &to);
        to
    };
    let (gputrace, _) = (copy(gputrace()), copy(&shim()));
    let trace = scratch.path().join("trace");
    let command = format!("sleep 2 | {}; echo ended $?", program.display());
    let run = scratch.target("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let run = run.arg(gputrace).arg("-o").arg(&trace).args(["--", "sh", "-c", &command]).plain().expect(0);
    assert_eq!(run.text(), "ended 7\n", "{}", run.stderr);
    let untraced = crate::util::Trace::open(&trace).manifest().untraced;
    assert_eq!(untraced.len(), 1, "{untraced:?}\n{}", run.stderr);
    assert!(untraced[0].exe == "lends" && untraced[0].reason.contains("setuid"), "{untraced:?}");
}

#[test]
fn a_program_whose_malloc_is_not_ours_to_record_says_so_and_its_cuda_calls_are_recorded() {
    let scratch = Scratch::new();
    let sanitized = program_with("cuda_routes", "asan", &["-fsanitize=address"]).display().to_string();
    let own = program("own_malloc").display().to_string();
    let script = format!("ASAN_OPTIONS=detect_leaks=0 {sanitized} dlopen && {own}; echo $?");
    let run = scratch.shell(&script).with_instant_driver().same();
    assert!(run.text().ends_with("allocated\n0\n"), "{}", run.text());
    let trace = run.read();
    assert_eq!(trace.table("launches").len(), 3);
    let table = trace.table("processes");
    for (name, says) in [("-asan", "a sanitizer, built in or preloaded"), ("own_malloc", "the program brings its own")]
    {
        let row = table.rows().find(|row| row.text("exe").ends_with(name)).expect("a row");
        assert_eq!((row.int("traced"), row.text("malloc_mode")), (1, "off"), "{name}");
        assert!(
            row.text("reason").starts_with("malloc is not recorded") && row.text("reason").contains(says),
            "{name}"
        );
        let whole = run.whole_lines();
        let line = whole.lines().find(|line| line.starts_with("not traced in full: ") && line.contains(name));
        assert!(line.is_some_and(|line| line.contains(says)), "{name}: {}", run.stderr);
    }
    // Nobody asked for it: then there is nothing to say.
    let run = scratch.shell(&own).options(["--malloc", "off"]).traced().expect(0);
    assert!(!run.stderr.contains("in full"), "{}", run.stderr);
}

#[test]
fn scripts_run_with_their_interpreters() {
    let scratch = Scratch::new();
    let script = scratch.file("script", "#!/bin/sh\necho \"$0 $*\"\nexit 5\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("our own file");
    scratch.target(&script).args(["a", "b c"]).same().expect(5);
    // Found in PATH, and as a path below the current folder.
    let path = format!("{}:/usr/bin:/bin", scratch.path().display());
    scratch.target("script").env("PATH", path).same().expect(5);
    scratch.target("./script").same().expect(5);
}

#[test]
fn long_and_odd_arguments_are_passed_on_and_recorded_as_text() {
    let scratch = Scratch::new();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe not text \n\t\x7f");
    let long = "x".repeat(100_000);
    let run = scratch.target("printf").args(["%s|"]).arg(odd).arg(&long).arg("").same().expect(0);
    assert_eq!(run.stdout.len(), odd.len() + long.len() + 3);
    let table = run.read().table("processes");
    let command = table.rows().next().expect("a process").text("command").to_owned();
    assert!(command.starts_with("printf ") && command.contains("xxxx") && command.len() < 20_000, "{command}");
}

#[test]
fn every_one_of_hundreds_of_short_children_has_its_row() {
    let scratch = Scratch::new();
    let run = scratch.shell("for i in $(seq 300); do /bin/true; done; exit 0").traced().expect(0);
    let table = run.read().table("processes");
    let children = table.rows().filter(|row| row.text("exe").ends_with("/true"));
    let ended = children.inspect(|row| assert!(row.maybe_int("end_ns").is_some() && row.int("traced") == 1));
    assert_eq!(ended.count(), 300);
    run.read().assert_balanced();
}

#[test]
fn processes_without_an_event_have_true_times_from_the_start_of_a_run_on() {
    let scratch = Scratch::new();
    let run = scratch.shell("for i in 1 2 3 4; do sleep 0.2; done; exit 0").options(["--malloc", "off"]);
    let trace = run.traced().expect(0).read();
    let table = trace.table("processes");
    let mut sleeps: Vec<_> = table
        .rows()
        .filter(|row| row.text("exe").ends_with("/sleep"))
        .map(|row| (row.int("start_ns"), row.int("end_ns")))
        .collect();
    sleeps.sort_unstable();
    assert_eq!(sleeps.len(), 4);
    let ms = |ns: i64| ns / 1_000_000;
    // The shim begins after the process, so of its 200 ms a few are not seen, on a busy machine more.
    assert!(sleeps.iter().all(|(start, end)| ms(end - start) >= 100), "{sleeps:?}");
    assert!(sleeps.windows(2).all(|pair| pair[0].1 <= pair[1].0), "one after the other: {sleeps:?}");
    let shell = table.rows().find(|row| row.text("exe").ends_with("sh")).expect("the shell");
    assert!(shell.int("start_ns") <= sleeps[0].0 && shell.int("end_ns") >= sleeps[3].1);
}
