//! Under the name that `-o` gives stands what is whole, or what stood there before; what is no regular file stays what it is.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::util::{Scratch, gputrace, poll, repository};

/// Formats of one file.
const FILES: [&str; 7] = ["chrome", "perfetto", "kineto", "sqlite", "pprof", "folded", "speedscope"];
/// Only a test that hangs waits for so long.
const HANGS: Duration = Duration::from_secs(300);

/// A trace of torch.profiler: its folder.
fn imported(scratch: &Scratch) -> PathBuf {
    let file = repository().join("tests/traces/kineto-rank0.json");
    scratch.gputrace(&[Path::new("import"), &file, Path::new("-o"), Path::new("imported")]).expect(0);
    scratch.path().join("imported")
}

/// All that is in a folder, with what is in its folders.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        all.push(entry.path());
        if entry.path().is_dir() {
            all.extend(names(&entry.path()));
        }
    }
    all.sort();
    all
}

/// gputrace with these words, each a text of a shell. Who starts the tests in the background has SIGINT ignored in them, and gputrace heeds that.
fn shell(scratch: &Scratch, before: &str, words: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{before} exec env --default-signal=INT,TERM \"$0\" {words}")])
        .arg(gputrace())
        .current_dir(scratch.path());
    command
}

#[test]
fn on_a_full_disk_the_older_file_stays_and_nothing_else_is_left() {
    let scratch = Scratch::new();
    imported(&scratch);
    let page = ("report imported --format html", "page.html");
    let json = ("report imported --format json", "report.json");
    let exports = ["chrome", "perfetto", "kineto", "sqlite"].map(|format| format!("export imported --format {format}"));
    for (words, file) in exports.iter().map(|words| (words.as_str(), "out")).chain([page, json]) {
        let old = scratch.file(file, "old");
        let was = names(scratch.path());
        let run =
            shell(&scratch, "trap '' XFSZ; ulimit -f 0;", &format!("{words} -o {file}")).output().expect("sh runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(1) && said.contains("cannot write"), "{words}: {said}");
        assert_eq!(
            (fs::read(&old).expect("the old file").as_slice(), names(scratch.path())),
            (&b"old"[..], was),
            "{words}"
        );
        // And goes when there is room.
        assert!(shell(&scratch, "", &format!("{words} -o {file}")).output().expect("sh runs").status.success());
        assert!(fs::read(&old).expect("the new file").len() > 100, "{words}");
        fs::remove_file(&old).expect("a file");
    }
}

#[test]
fn an_export_that_is_interrupted_leaves_the_older_file_and_nothing_else() {
    let scratch = Scratch::new();
    let trace = imported(&scratch);
    let is_kernels = |path: &PathBuf| path.extension().is_some_and(|end| end == "parquet");
    let kernels = names(&trace.join("kernels")).into_iter().find(is_kernels).expect("a file of kernels");
    fs::remove_file(&kernels).expect("a file");
    // Who reads it waits for a writer that never comes: so each export is caught at work.
    assert!(Command::new("mkfifo").arg(&kernels).status().expect("mkfifo runs").success());
    for format in ["chrome", "perfetto", "kineto", "sqlite", "csv", "arrow"] {
        for signal in ["INT", "TERM"] {
            let is_folder = matches!(format, "csv" | "arrow");
            let output = scratch.path().join("out");
            if !is_folder {
                fs::write(&output, "old").expect("the folder is writable");
            }
            let was = names(scratch.path());
            let words = format!("export imported --format {format} -o out");
            let mut child = shell(&scratch, "", &words).stderr(Stdio::piped()).spawn().expect("sh runs");
            let begun = || names(scratch.path()).iter().any(|path| path.extension().is_some_and(|end| end == "part"));
            assert!(poll(HANGS, || begun().then_some(())).is_some(), "{format}");
            let pid = child.id().to_string();
            assert!(Command::new("kill").args(["-s", signal, &pid]).status().expect("kill runs").success());
            let end = child.wait().expect("it is our child");
            assert!(!end.success(), "{format} {signal}: {end}");
            assert_eq!(names(scratch.path()), was, "{format} {signal}");
            if !is_folder {
                assert_eq!(fs::read(&output).expect("the old file"), b"old", "{format} {signal}");
                fs::remove_file(&output).expect("a file");
            }
        }
    }
}

#[test]
fn a_trace_is_not_written_through_a_link_that_lies_in_its_folder() {
    let scratch = Scratch::new();
    let precious = scratch.file("precious", b"precious");
    let victim = scratch.path().join("victim");
    fs::create_dir(&victim).expect("a folder");
    for (link, to) in [("manifest", &victim), ("launches", &victim), ("summary.txt", &precious)] {
        let trace = scratch.path().join(format!("t-{link}"));
        let there = if link == "manifest" { trace.clone() } else { trace.join("manifest") };
        fs::create_dir_all(there).expect("a folder");
        std::os::unix::fs::symlink(to, trace.join(link)).expect("a link");
        let words = ["-o", &format!("t-{link}"), "--", "touch", "ran"];
        let refused = scratch.gputrace(&words).expect(125).stderr;
        assert!(refused.lines().count() == 1 && refused.contains(&format!("t-{link}/{link} is a link")), "{refused}");
        assert!(!scratch.path().join("ran").exists());
    }
    assert_eq!((names(&victim).len(), fs::read(&precious).expect("a file")), (0, b"precious".to_vec()));
}

#[test]
fn exports_and_reports_of_a_trace_that_is_still_written_say_so() {
    let scratch = Scratch::new();
    let go = scratch.path().join("go");
    assert!(Command::new("mkfifo").arg(&go).status().expect("mkfifo runs").success());
    let started = scratch.shell("echo ready > begun; read line < go").options(["--malloc", "full"]).start();
    let begun = || scratch.path().join("begun").exists().then_some(());
    poll(HANGS, begun).expect("the program begins");
    let trace = started.trace.to_string_lossy().into_owned();
    let says = format!("is still being written, by gputrace {}", started.pid());
    for format in ["chrome", "perfetto", "kineto", "sqlite", "csv", "arrow", "pprof", "folded", "speedscope"] {
        let run = scratch.gputrace(&["export", &trace, "--format", format, "-o", &format!("x.{format}")]).expect(0);
        assert!(run.own_stderr().contains(&says), "{format}: {}", run.own_stderr());
    }
    // Numbers that are judged are of what there is so far.
    for words in [&["check", &trace, "--max", "summary.lost=0"][..], &["diff", &trace, &trace]] {
        let stderr = scratch.gputrace(words).own_stderr();
        assert!(stderr.contains(&says), "{words:?}: {stderr}");
    }
    let report = |more: &[&str]| scratch.gputrace(&[&["report", &trace, "--format", "json"], more].concat()).expect(0);
    for more in [&[][..], &["--only", "syncs"]] {
        let run = report(more);
        let told: serde_json::Value = serde_json::from_str(&run.text()).expect("JSON");
        assert!(told["notes"].to_string().contains(&says) && run.own_stderr().contains(&says), "{told}");
    }
    fs::write(go, "go\n").expect("the program reads");
    started.wait().expect(0);
    assert_eq!(report(&[]).own_stderr(), "");
    let run = scratch.gputrace(&["export", &trace, "--format", "chrome", "-o", "x.json"]).expect(0);
    assert!(!run.own_stderr().contains("still being written"), "{}", run.own_stderr());
}

#[test]
fn a_fifo_is_written_to_and_stays_one_and_a_symlink_leads_to_its_target() {
    let scratch = Scratch::new();
    imported(&scratch);
    let fifo = scratch.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    symlink("target", scratch.path().join("link")).expect("a link");
    for format in FILES {
        let run = |output: &str| {
            let mut of = shell(&scratch, "", &format!("export imported --format {format} -o {output}"));
            of.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sh runs")
        };
        let child = run("fifo");
        let through = fs::read(&fifo).expect("what is written");
        let done = child.wait_with_output().expect("it is our child");
        assert!(done.status.success(), "{format}: {}", String::from_utf8_lossy(&done.stderr));
        assert!(fs::symlink_metadata(&fifo).expect("it is there").file_type().is_fifo(), "{format}");
        let printed = run("/dev/stdout").wait_with_output().expect("it is our child");
        assert!(run("link").wait_with_output().expect("it is our child").status.success());
        assert!(fs::symlink_metadata(scratch.path().join("link")).expect("it is there").is_symlink(), "{format}");
        let file = fs::read(scratch.path().join("target")).expect("the export");
        // Kineto's has its own name in it.
        let same = |bytes: &[u8]| if format == "kineto" { bytes.len() > 500 } else { bytes == file };
        assert!(same(&through) && same(&printed.stdout), "{format}: {} {}", through.len(), file.len());
        fs::remove_file(scratch.path().join("target")).expect("a file");
    }
    let parts = names(scratch.path());
    assert!(!parts.iter().any(|path| path.extension().is_some_and(|end| end == "part")), "{parts:?}");
}
