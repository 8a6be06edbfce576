//! Wrong commands and broken traces: one clear line, the right exit code, and whatever can be read is reported.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::faults::one_line;
use crate::limits::with_mounts;
use crate::util::{Driver, Scratch, driver_folder, gputrace, needs, program, program_with, shim};

#[test]
fn a_command_that_is_missing_is_told_so() {
    let scratch = Scratch::new();
    for (arguments, code, says) in [
        (&[][..], 125, "no command given"),
        (&["--"], 125, "no command given"),
        (&["record"], 125, "no command given"),
        (&["-o", "t", "--"], 125, "no command given"),
        (&["-o", "t", "--", "no-such-command"], 127, "no-such-command: command not found"),
        (&["-o", "t", "--", "./no-such-file"], 127, "./no-such-file: no such file"),
        (&["-o", "t", "--", "/etc/passwd"], 126, "/etc/passwd: not executable"),
        (&["-o", "t", "--", "/etc"], 126, "/etc: is a folder"),
        (&["-o", "t", "--", ""], 127, "an empty word"),
        (&["schema", "lunches"], 2, "the tables are"),
        (&["--no-such-option", "--", "true"], 125, "--no-such-option"),
        (&["--malloc", "sometimes", "--", "true"], 125, "sometimes"),
        (&["--budget", "-1", "-o", "t", "--", "true"], 125, "expected a percentage above 0 and up to 100"),
        (
            &["--malloc", "full", "--cull", "-1", "-o", "t", "--", "true"],
            125,
            "invalid value '-1' for '--cull <MS>': expected milliseconds from 0.000001",
        ),
        (&["--os-over", "-1", "-o", "t", "--", "true"], 125, "invalid value '-1' for '--os-over <US>'"),
        (&["--max-size", "-1", "-o", "t", "--", "true"], 125, "invalid value '-1' for '--max-size <SIZE>'"),
        (&["--max-age", "1w", "-o", "t", "--", "true"], 125, "1w: expected a time such as 500ms, 1s, 5m or 24h"),
        (&["--keep-detail", "2d", "--max-age", "1d", "-o", "t", "--", "true"], 125, "--keep-detail must be shorter"),
        (&["--keep-detail", "1h", "--rollup", "off", "-o", "t", "--", "true"], 125, "does not go with --rollup off"),
        (&["--detail", "rollup", "--rollup", "off", "-o", "t", "--", "true"], 125, "nothing would be kept"),
        (&["--malloc", "-1", "-o", "t", "--", "true"], 125, "invalid value '-1' for '--malloc <MODE>'"),
        (
            &["-o", "t", "--segment-memory", "100T", "--", "true"],
            125,
            "asks for 100 TiB for each process, and this machine",
        ),
        (&["python", "train.py"], 125, "gputrace -- python train.py"),
        (&["--hang-after", "-1", "--", "true"], 125, "--hang-after"),
        (&["--flight-recorder", "-1", "--", "true"], 125, "--flight-recorder"),
        (
            &["--flight-recorder", "--detail", "full", "-o", "t", "--", "true"],
            125,
            "--flight-recorder is --detail triggered",
        ),
        (&["--keep-detail", "-5", "--", "true"], 125, "--keep-detail"),
        (&["report"], 2, "gputrace report TRACE"),
        (&["report", "--only", "lunches", "t"], 2, "the analyses are summary"),
        (&["report", "--only", ",", "t"], 2, "names no analysis"),
        (&["report", "--explain", "lunches"], 2, "pageable-copies"),
        (&["report", "t", "--no-such-option"], 2, "--no-such-option"),
    ] {
        shim();
        let run = scratch.gputrace(arguments);
        assert_eq!(run.code(), code, "{arguments:?}: {}", run.stderr);
        assert_eq!(run.text(), "", "{arguments:?}");
        one_line(&run.stderr, says);
        assert!(!scratch.path().join("t").exists(), "{arguments:?} left a trace of nothing");
    }
}

#[test]
fn what_cannot_be_executed_ends_as_it_does_with_env() {
    let scratch = Scratch::new();
    shim();
    let cases: [(&str, &[u8]); 3] = [
        ("interpreter", b"#!/no/such/interpreter\n"),
        // No program and no script either: the shell tries it, as execvp does.
        ("rubbish", b"\x7fELF rubbish that is no program"),
        ("empty", b""),
    ];
    for (name, content) in cases {
        let file = scratch.file(name, content);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("our own file");
        let env = scratch.target("env").arg(&file).plain();
        let trace = format!("trace-{name}");
        let run = scratch.target(gputrace()).args(["-o", &trace, "--"]).arg(&file).plain();
        assert_eq!(run.code(), env.code(), "{name}: {}", run.stderr);
    }
    assert!(!scratch.path().join("trace-interpreter").exists(), "nothing ran, so there is no trace");
}

#[test]
fn a_missing_shim_is_told_before_the_start() {
    let scratch = Scratch::new();
    // The command alone, without what it is built with.
    let folder = scratch.path().join("bin");
    fs::create_dir(&folder).expect("a folder");
    let alone = folder.join("gputrace");
    fs::copy(gputrace(), &alone).expect("a copy");
    let run = scratch.target(&alone).args(["-o", "t", "--", "echo", "ran"]).plain().expect(125);
    assert_eq!(run.text(), "");
    one_line(&run.stderr, "libgputrace_shim.so");
    // Put beside it, or into ../lib/gputrace, it works.
    for place in ["bin", "lib/gputrace"] {
        let place = scratch.path().join(place);
        fs::create_dir_all(&place).expect("a folder");
        let copy = place.join("libgputrace_shim.so");
        fs::copy(shim(), &copy).expect("a copy");
        let name = place.file_name().and_then(|n| n.to_str()).expect("a name");
        let run = scratch.target(&alone).args(["-o", name, "--", "echo", "ran"]);
        // Its traces are called as the places are; bin is taken.
        let run = run.args([""; 0]).plain();
        assert_eq!(run.code(), if name == "bin" { 125 } else { 0 }, "{}", run.stderr);
        if name == "bin" {
            let run = scratch.target(&alone).args(["-o", "beside", "--", "echo", "ran"]).plain().expect(0);
            assert_eq!(run.text(), "ran\n");
        }
        fs::remove_file(copy).expect("our own file");
    }
}

/// A trace with launches, and a copy of it to break.
fn recorded(scratch: &Scratch) -> PathBuf {
    let target = scratch.target(program("cuda_routes")).arg("dlopen").with_instant_driver();
    target.traced().expect(0).trace
}

fn copied(scratch: &Scratch, from: &Path, name: &str) -> PathBuf {
    let to = scratch.path().join(name);
    let done = std::process::Command::new("cp").arg("-r").arg(from).arg(&to).status().expect("cp runs");
    assert!(done.success());
    to
}

fn first_file(folder: &Path) -> PathBuf {
    let mut entries: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let first = entries.into_iter().next().unwrap_or_else(|| panic!("{} is empty", folder.display()));
    if first.is_dir() { first_file(&first) } else { first }
}

#[test]
fn a_report_on_no_trace_says_what_was_expected() {
    let scratch = Scratch::new();
    let empty = scratch.path().join("empty");
    fs::create_dir(&empty).expect("a folder");
    scratch.file("file", "no trace");
    for (name, says) in [("missing", "no trace at"), ("empty", "is not a trace"), ("file", "is not a trace")] {
        let run = scratch.gputrace(&["report", name]).expect(1);
        assert_eq!(run.text(), "");
        one_line(&run.stderr, says);
    }
}

#[test]
fn a_trace_of_another_version_is_refused_with_its_version() {
    let scratch = Scratch::new();
    let trace = recorded(&scratch);
    let manifest = first_file(&trace.join("manifest"));
    let text = fs::read_to_string(&manifest).expect("a manifest");
    let version = gputrace_collectors::schema::SCHEMA_VERSION;
    let other = text.replace(&format!("\"schema_version\": {version}"), "\"schema_version\": 999");
    assert_ne!(text, other);
    fs::write(&manifest, other).expect("our own file");
    let run = scratch.gputrace(&["report", trace.to_str().expect("a plain path")]).expect(1);
    assert_eq!(run.text(), "");
    assert!(run.stderr.lines().all(|line| line.starts_with("gputrace: ")), "{}", run.stderr);
    assert!(run.stderr.contains("999"), "{}", run.stderr);
}

#[test]
fn broken_files_are_named_and_the_rest_is_reported() {
    let scratch = Scratch::new();
    let whole = recorded(&scratch);
    let launches = first_file(&whole.join("launches"));
    let relative = launches.strip_prefix(&whole).expect("inside").to_owned();
    let bytes = fs::read(&launches).expect("a file");
    let flipped = {
        let mut copy = bytes.clone();
        let data = 4..copy.len() / 3;
        copy[data].fill(0xa5);
        copy
    };
    let cases: [(&str, Vec<u8>); 4] = [
        ("truncated", bytes[..bytes.len() / 2].to_vec()),
        ("emptied", Vec::new()),
        ("corrupt", flipped),
        ("another", b"PAR1 this is no Parquet file PAR1".to_vec()),
    ];
    for (name, content) in cases {
        let trace = copied(&scratch, &whole, name);
        fs::write(trace.join(&relative), content).expect("our own copy");
        let run = scratch.gputrace(&["report", name]);
        assert_ne!(run.code(), 101, "{name}: {}", run.stderr);
        assert!(!run.stderr.contains("panicked"), "{name}: {}", run.stderr);
        assert!(run.stderr.lines().all(|line| line.starts_with("gputrace: ")), "{name}: {}", run.stderr);
        assert!(run.stderr.contains("launches"), "{name} names the file: {}", run.stderr);
        assert_eq!(run.code(), 1, "{name}: rows are missing");
        // Copies stand in another file, which is whole.
        assert!(run.text().contains("cuMemcpyHtoD_v2") || run.text().contains("HtoD"), "{name}: {}", run.text());
    }
}

#[test]
fn a_trace_without_its_manifest_is_still_reported() {
    let scratch = Scratch::new();
    let trace = recorded(&scratch);
    fs::remove_file(first_file(&trace.join("manifest"))).expect("our own file");
    let run = scratch.gputrace(&["report", trace.to_str().expect("a plain path")]).expect(1);
    assert!(run.text().contains("spin_us_20"), "{}", run.text());
    crate::faults::one_line(&run.stderr, "no manifest");
    // Whatever else was removed, nobody can tell: so there is no verdict, and nothing is called fine.
    fs::remove_dir_all(trace.join("launches")).expect("our own folder");
    for what in ["UNKNOWN: without a manifest", "nobody knows what the trace lacks, nor what is fine"] {
        let run = scratch.gputrace(&["report", trace.to_str().expect("a plain path")]).expect(1);
        assert!(run.text().contains(what) && !run.text().contains("checked, fine"), "{}", run.text());
    }
    // Broken JSON is the same, and is named.
    let trace = recorded(&scratch);
    fs::write(first_file(&trace.join("manifest")), "{ \"schema_version\": ").expect("our own file");
    let run = scratch.gputrace(&["report", trace.to_str().expect("a plain path")]);
    assert!(run.text().contains("spin_us_20"), "{}\n{}", run.text(), run.stderr);
    crate::faults::one_line(&run.expect(1).stderr, "is not a manifest");
}

#[test]
fn a_report_on_a_trace_without_events_says_so() {
    let scratch = Scratch::new();
    let run = scratch.target("true").options(["--malloc", "off"]).traced().expect(0);
    let report = scratch.gputrace(&["report", run.trace.to_str().expect("a plain path")]).expect(0);
    assert!(!report.text().is_empty());
    assert_eq!(report.stderr, "");
    // And so does the summary, without a number that cannot be.
    assert!(!run.stderr.contains("NaN") && !run.stderr.contains("inf"), "{}", run.stderr);
    assert!(run.stderr.starts_with("gputrace: true  exit 0"), "{}", run.stderr);
}

#[test]
fn reports_come_in_every_format_and_to_a_file() {
    let scratch = Scratch::new();
    let trace = recorded(&scratch);
    let trace = trace.to_str().expect("a plain path");
    for format in ["text", "json", "markdown", "md"] {
        let run = scratch.gputrace(&["report", trace, "--format", format]).expect(0);
        // Markdown writes underscores in its own way.
        assert!(run.text().replace('\\', "").contains("spin_us_20"), "{format}: {}", run.text());
        scratch.gputrace(&["report", trace, "--format", format, "-o", "out"]).expect(0);
        assert_eq!(fs::read(scratch.path().join("out")).expect("the report"), run.stdout, "{format}");
    }
    let run = scratch.gputrace(&["report", trace, "--only", "no-such-analysis"]).expect(2);
    one_line(&run.stderr, "no-such-analysis");
    let (one, comma) = (["--only", "syncs"], ["--only", "syncs,"]);
    let [one, comma] = [one, comma].map(|only| scratch.gputrace(&["report", trace, only[0], only[1]]).expect(0));
    assert_eq!(one.text(), comma.text());
    let run = scratch.gputrace(&["report", trace, "-o", "/no/such/folder/report"]).expect(1);
    one_line(&run.stderr, "/no/such/folder/report");
}

#[test]
fn the_traces_name_may_hold_the_rank_the_job_and_the_host() {
    let scratch = Scratch::new();
    shim();
    let target = scratch.target(gputrace()).env("RANK", "3").env("SLURM_JOB_ID", "77");
    target.args(["-o", "of-%j-%r-100%%", "--", "true"]).plain().expect(0);
    assert!(scratch.path().join("of-77-3-100%/manifest").is_dir());
    // Without a name it stands in the current folder, called after the command.
    scratch.target(gputrace()).args(["--", "/bin/true"]).plain().expect(0);
    let entries = fs::read_dir(scratch.path()).expect("our own folder").flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().any(|name| name.starts_with("gputrace-true-") && name.ends_with('Z')), "{names:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let scratch = Scratch::new();
    let trace = recorded(&scratch);
    let script = format!("{} report {} | head -n 1", gputrace().display(), trace.display());
    let run = scratch.shell(&script).plain().expect(0);
    assert_eq!(run.stderr, "");
}

#[test]
fn schema_doctor_demo_help_and_version_work() {
    let scratch = Scratch::new();
    shim();
    let schema = scratch.gputrace(&["schema", "--format", "json"]).expect(0);
    serde_json::from_slice::<serde_json::Value>(&schema.stdout).expect("JSON");
    for table in gputrace_collectors::schema::TABLES {
        assert!(scratch.gputrace(&["schema", table.name]).expect(0).text().contains(table.columns[0].name));
    }
    assert!(scratch.gputrace(&["--help"]).expect(0).text().contains("gputrace [record] [OPTIONS] -- COMMAND"));
    assert!(scratch.gputrace(&["--version"]).expect(0).text().starts_with("gputrace "));
    let doctor = scratch.gputrace(&["doctor"]);
    assert!(doctor.code() <= 1 && !doctor.text().is_empty(), "{}", doctor.stderr);
    assert!(doctor.text().contains("hook            symbols; nothing in the driver is changed"), "{}", doctor.text());
    let demo = scratch.gputrace(&["demo", "-o", "demo"]).expect(0);
    assert!(!demo.text().is_empty() || !demo.stderr.is_empty());
    crate::util::Trace::open(&scratch.path().join("demo")).assert_balanced();
}

#[test]
fn what_the_summary_names_can_be_typed_into_a_shell() {
    let scratch = Scratch::new();
    shim();
    let run = scratch.target(gputrace()).args(["-o", "it's a trace", "--", "sh", "-c", "exit 3"]).plain().expect(3);
    assert!(run.stderr.starts_with("gputrace: sh -c 'exit 3'  exit 3 "), "{}", run.stderr);
    let next = run.stderr.lines().find_map(|line| line.strip_prefix("next: gputrace ")).expect("a next step");
    let words = next.rsplit_once("   (").expect("the trace's size").0;
    let report = scratch.shell(&format!("{} {words}", gputrace().display())).plain().expect(0);
    assert!(report.text().starts_with("gputrace: sh -c 'exit 3'"), "{}", report.text());
    // And `report` alone names it as well.
    let hint = scratch.gputrace(&["report"]).expect(2);
    assert_eq!(hint.stderr.split("gputrace report ").nth(1), Some("'it'\\''s a trace'\n"), "{}", hint.stderr);
}

#[test]
fn where_proc_is_hidden_gputrace_finds_its_own_parts() {
    let scratch = Scratch::new();
    shim();
    let script = format!("mount -t tmpfs none /proc && {0} -o t -- echo seen && {0} doctor", gputrace().display());
    let Some(target) = with_mounts(&scratch, &script) else { return };
    let run = target.plain();
    assert!(run.text().starts_with("seen\n") && !run.text().contains("FAIL  shim"), "{}\n{}", run.text(), run.stderr);
    assert_eq!(crate::util::Trace::open(&scratch.path().join("t")).table("processes").len(), 1);
}

#[test]
fn doctor_tells_a_command_that_would_run_untraced_from_a_machine_that_does_not_work() {
    let scratch = Scratch::new();
    shim();
    assert!(scratch.gputrace(&["doctor", "--", "true"]).expect(0).text().ends_with("a traced run works here\n"));
    if !needs(&["gcc"]) {
        return;
    }
    let fixed = program_with("state", "static", &["-static"]);
    let run = scratch.target(gputrace()).args(["doctor", "--"]).arg(&fixed).plain().expect(1);
    let line = run.text().lines().find(|line| line.starts_with("FAIL  command")).map(str::to_owned);
    let line = line.expect("the command fails");
    assert!(line.contains("would run untraced: statically linked"), "{line}");
    assert!(run.text().ends_with("traced runs work here, but not of this command: see FAIL above\n"), "{}", run.text());
}

#[test]
fn a_wrong_value_is_answered_with_those_that_there_are() {
    let scratch = Scratch::new();
    let run = scratch.gputrace(&["--gpu-time", "foo", "--", "true"]).expect(125);
    one_line(&run.stderr, "'foo'");
    one_line(&run.stderr, "[possible values: off, auto, events, windows, full]");
    for (wrong, code) in
        [(&["--flight-recorder", "--dump-slow-step", "0.5", "--", "true"][..], 125), (&["attach", "abc"], 2)]
    {
        let run = scratch.gputrace(wrong).expect(code);
        one_line(&run.stderr, "expected a whole number such as 3");
    }
    let run = scratch.gputrace(&["report", "--format", "foo", "."]).expect(2);
    one_line(&run.stderr, "[possible values: ");
    // What would be ignored is refused before anything starts.
    let run = scratch
        .gputrace(&["-o", "t", "--gpu-window-every", "2", "--gpu-time", "full", "--", "echo", "ran"])
        .expect(125);
    one_line(
        &run.stderr,
        "--gpu-window-every is about windows of GPU times: it belongs to --gpu-time windows or --gpu-time auto",
    );
    assert_eq!((run.text(), scratch.path().join("t").exists()), (String::new(), false));
}

#[test]
fn doctor_says_which_cupti_would_be_used_and_what_is_in_its_way() {
    let scratch = Scratch::new();
    // A virtual environment with CUPTI's wheel, and a driver that has none beside it.
    let environment = scratch.path().join("env");
    let packages = environment.join("lib/python3.12/site-packages/nvidia/cu13/lib");
    let (bin, driver) = (environment.join("bin"), scratch.path().join("driver"));
    for folder in [&packages, &bin, &driver] {
        fs::create_dir_all(folder).expect("a folder");
    }
    let python = scratch.file("env/bin/python", "#!/bin/sh\n");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("our own file");
    let link = |from: &Path, to: PathBuf| std::os::unix::fs::symlink(from, to).expect("a link");
    link(&driver_folder(Driver::Plain).join("libcupti.so.13"), packages.join("libcupti.so.13"));
    link(&driver_folder(Driver::Plain).join("libcuda.so.1"), driver.join("libcuda.so.1"));
    let ask = |variables: &[(&str, &str)]| {
        let target = scratch.target(gputrace()).args(["doctor", "--"]).arg(&python).env("LD_LIBRARY_PATH", &driver);
        variables.iter().fold(target, |target, (name, value)| target.env(name, value)).plain().text()
    };
    let both = driver_folder(Driver::Plain);
    let both = both.to_str().expect("a plain path");
    let found = ask(&[]);
    let line = format!("ok    cupti           {}, version ", packages.join("libcupti.so.13").display());
    assert!(found.contains(&line) && !found.contains("injection"), "{found}");
    // Of what the loader finds by name the folder is told, too.
    let by_loader = ask(&[("GPUTRACE_CUPTI", "libcupti.so.13"), ("LD_LIBRARY_PATH", both)]);
    assert!(by_loader.contains(&format!("cupti           {both}/libcupti.so.13, version ")), "{by_loader}");
    let named = ask(&[("GPUTRACE_CUPTI", "/no/such/libcupti.so")]);
    assert!(named.contains("note  cupti           /no/such/libcupti.so: cannot open"), "{named}");
    let injected = ask(&[("CUDA_INJECTION64_PATH", "/opt/tool.so")]);
    assert!(injected.contains("note  injection       CUDA_INJECTION64_PATH=/opt/tool.so: CUPTI is left"), "{injected}");
    // Without a device nobody asks.
    assert!(!ask(&[("FAKE_CUDA_DEVICES", "0")]).contains("cupti "));
}

#[test]
fn the_demo_can_be_recorded_as_on_a_gpu_by_the_stand_in_for_cupti() {
    let scratch = Scratch::new();
    for (how, kind) in [("full", "full"), ("windows", "window"), ("auto", "window")] {
        scratch.gputrace(&["demo", "-o", how, "--gpu-time", how]).expect(0);
        let trace = crate::util::Trace::open(&scratch.path().join(how));
        let about = trace.root().gpu_time.expect("CUPTI was asked");
        let library = about.library.clone().unwrap_or_default();
        assert!(library.contains("gputrace-demo-") && library.ends_with("/libcupti.so.13"), "{about:?}");
        assert!(about.records > 0 && about.joined > 0, "{about:?}");
        assert!(trace.table("gpu_windows").rows().all(|row| row.text("kind") == kind), "{how}");
        trace.assert_balanced();
    }
    // What is not asked for is not there, though the simulated device could tell it.
    scratch.gputrace(&["demo", "-o", "off", "--gpu-time", "off"]).expect(0);
    let trace = crate::util::Trace::open(&scratch.path().join("off"));
    assert!(trace.root().gpu_time.is_none() && trace.files("kernels").is_empty());
}
