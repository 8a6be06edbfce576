//! A page of `report --format html` in a real browser shows what the trace holds, does what keys and mouse ask, in both themes, asks
//! the network for nothing, and takes no name for more than a name.
//!
//! Debian's Chromium, headless, by playwright-core (`tests/pages/browse.mjs`). With GPUTRACE_PAGE_SHOTS it leaves pictures in that folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::util::{Driver, Scratch, Trace, lacks, needs, program};

/// Two ranks in Python, with a wait by a line, kernels, one of which has a name that is markup, and copies.
const PROGRAM: &str = "import ctypes, time
cuda = ctypes.CDLL('libcuda.so.1')
names = [b'gemm', b'relu', b'torture</script><img src=x onerror=window.evil=1>', b'<script>window.evil=2</script>']
c, m, d = (ctypes.c_void_p() for _ in range(3))
assert cuda.cuInit(0) == 0
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)
cuda.cuCtxSetCurrent(c)
assert cuda.cuModuleLoadData(ctypes.byref(m), b'fakecuda:' + b','.join(names)) == 0
functions = [ctypes.c_void_p() for _ in names]
for function, name in zip(functions, names):
    assert cuda.cuModuleGetFunction(ctypes.byref(function), m, name) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(d), 1 << 20) == 0
host = ctypes.create_string_buffer(4096)
kept = []
def load():
    kept.append(bytearray(300_000))
    cuda.cuMemcpyHtoDAsync_v2(d, host, ctypes.c_size_t(4096), None)
def item():
    cuda.cuStreamSynchronize(None)
def step():
    load()
    for n in range(12):
        cuda.cuLaunchKernel(functions[n % 3], 8, 1, 1, 128, 1, 1, 0, None, None, None)
    item()
cuda.cuLaunchKernel(functions[3], 8, 1, 1, 128, 1, 1, 0, None, None, None)
for n in range(60):
    step()
    time.sleep(0.001 if n % 20 == 0 else 0)
";

/// The browser, and who drives it.
fn browser() -> Option<(PathBuf, PathBuf)> {
    let Some(modules) = std::env::var_os("GPUTRACE_NODE_MODULES") else {
        lacks("GPUTRACE_NODE_MODULES: playwright-core");
        return None;
    };
    let modules = PathBuf::from(modules);
    let missing = if modules.join("playwright-core").is_dir() { "" } else { "playwright-core" };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let chromium = std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|file| file.is_file());
    (lacks(missing) && needs(&["node", "chromium", "python3"])).then(|| (modules, chromium.expect("it is there")))
}

/// What stands in pages, a line each of what the script tells.
fn browsed(asked: &[(&str, &Path)]) -> Option<Vec<Value>> {
    let (modules, chromium) = browser()?;
    let mut command = Command::new("node");
    command.arg(crate::util::repository().join("tests/pages/browse.mjs")).args([modules, chromium]);
    if let Ok(folder) = std::env::var("GPUTRACE_PAGE_SHOTS") {
        command.arg(format!("SHOTS={folder}"));
    }
    for (what, file) in asked {
        command.arg(what).arg(file);
    }
    let output = command.output().expect("node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("a text");
    Some(text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

/// Makes the page of a trace.
fn page(scratch: &Scratch, trace: &str) -> PathBuf {
    let file = scratch.path().join(format!("{trace}.html"));
    scratch.gputrace(&["report", trace, "--format", "html", "-o", &format!("{trace}.html")]).expect(0);
    file
}

/// What holds for every page.
#[track_caller]
fn is_sound(found: &Value) {
    for key in ["complaints", "requests", "twice"] {
        assert_eq!(found[key], Value::Array(Vec::new()), "{key} of {}", found["file"]);
    }
    assert_eq!(
        (&found["foreign"], &found["nameless"], &found["evil"]),
        (&0.into(), &0.into(), &"undefined".into()),
        "{found}"
    );
    let contrast = |of: &str| found["contrast"][of].as_f64().expect("a number");
    assert!(contrast("texts") >= 4.5 && contrast("bars") >= 4.5 && contrast("lines") >= 3.0, "{}", found["contrast"]);
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[test]
fn a_page_shows_its_trace_and_does_what_it_is_asked_in_both_themes() {
    if browser().is_none() {
        return;
    }
    let scratch = Scratch::new();
    let script = scratch.file("program.py", PROGRAM);
    let both = "RANK=0 WORLD_SIZE=2 python3 \"$0\" & RANK=1 WORLD_SIZE=2 python3 \"$0\" & wait %1 && wait %2";
    let target = scratch.target("sh").args(["-c", both]).arg(script).with_driver(Driver::Plain);
    let options =
        ["--gpu-time", "full", "--stacks-over", "0", "--malloc", "sample=64K", "--os-over", "50", "--on-full", "block"];
    let run = target.options(options).traced().expect(0);
    std::fs::rename(&run.trace, scratch.path().join("recorded")).expect("the trace is moved");
    let file = page(&scratch, "recorded");
    let Some(found) = browsed(&[("use", &file), ("old", &file)]) else { return };
    let [light, dark, old] = found.as_slice() else { panic!("{} pages", found.len()) };

    let trace = Trace::open(&scratch.path().join("recorded"));
    for page in [light, dark] {
        is_sound(page);
        assert_eq!(page["trouble"], Value::Null);
        assert!(text(page, "verdict").contains(": ") && text(page, "figures").contains("step p50"), "{page}");
        holds(page, &trace);
        // The lower one of two in the middle, as in the summary.
        assert!(text(page, "ranks").contains("\tmedian"), "{}", text(page, "ranks"));
    }
    does(&dark["uses"], named(&trace, "torture"));
    // What stands first needs no unpacking.
    assert!(text(old, "trouble").contains("it has no DecompressionStream (Chrome and Edge 86, "), "{old}");
    assert_eq!(
        (&old["complaints"], &old["verdict"], &old["requests"]),
        (&light["complaints"], &light["verdict"], &light["requests"])
    );
}

/// The timeline of a page has each row of the tables once, with its length.
#[track_caller]
fn holds(page: &Value, trace: &Trace) {
    let of = |tables: &[(&str, &str)]| {
        let each = tables.iter().map(|(table, length)| {
            let table = trace.table(table);
            (table.len() as i64, table.rows().map(|row| row.int(length)).sum::<i64>())
        });
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    assert_eq!(page["unit_ns"], 1);
    let calls =
        ["launches", "syncs", "transfers", "device_memory", "api", "collectives"].map(|table| (table, "api_ns"));
    let known = [
        ("thread", of(&calls)),
        ("stream", of(&[("kernels", "gpu_ns"), ("device_copies", "gpu_ns")])),
        ("waits", of(&[("os_waits", "wait_ns")])),
    ];
    for (what, (count, ns)) in known {
        assert!(count > 0, "no {what}");
        let shown = &page["bars"][what];
        assert_eq!((shown["count"].as_i64(), shown["ns"].as_i64()), (Some(count), Some(ns)), "{what}");
    }
}

/// How many launches and kernels have a name with this in it.
fn named(trace: &Trace, part: &str) -> usize {
    let names = trace.names();
    let has = |row: &crate::util::Row<'_>| row.maybe_int("name_id").is_some_and(|id| names[&id].contains(part));
    let of = |table: &str| trace.table(table).rows().filter(has).count();
    assert!(of("launches") == 480 && of("kernels") > 0);
    of("launches") + of("kernels")
}

/// What keys, mouse, search, tables, charts and flame graphs did.
#[track_caller]
fn does(uses: &Value, matches: usize) {
    let searched =
        serde_json::json!({ "hidden": true, "input": true, "match": true, "next": true, "elsewhere": "flame-of" });
    assert_eq!(uses["searches"], searched, "what / finds from the top of the page");
    let number = |of: &str, key: &str| uses[of][key].as_f64().unwrap_or_else(|| panic!("{of} {key}: {uses}"));
    for (of, zoom) in [("wheel", true), ("w", true), ("button", true), ("s", false)] {
        assert!((number(of, "zoom") > 1.1) == zoom && uses[of]["redrawn"] == true, "{of}: {}", uses[of]);
    }
    assert!(number("s", "zoom") < 0.95, "{}", uses["s"]);
    for (of, later) in [("sideways", true), ("d", true), ("a", false), ("drag", false)] {
        let by = number(of, "by");
        assert!(
            by.abs() > 0.05 && (by > 0.0) == later && (number(of, "zoom") - 1.0).abs() < 1e-6,
            "{of}: {}",
            uses[of]
        );
    }
    assert_eq!(uses["all"], true);
    assert!(text(uses, "sum").contains("What begins in it") && text(uses, "sum").contains("cuLaunchKernel"), "{uses}");
    // Innermost first, each of the three lines.
    let wait = text(uses, "wait");
    let at = |frame: &str| wait.find(frame).unwrap_or_else(|| panic!("no {frame} in {wait}"));
    assert!(
        wait.starts_with("cuStreamSynchronize") && at("item ") < at("step ") && at("step ") < at("<module> "),
        "{wait}"
    );
    assert!(wait.contains("program.py:19"), "{wait}");
    let (launch, kernel) = (text(uses, "launch"), text(uses, "kernel"));
    assert!(launch.starts_with("cuLaunchKernel") && launch.contains("Began on the GPU"), "{launch}");
    assert!(kernel.contains("Launched by cuLaunchKernel") && kernel.contains("Since its call"), "{kernel}");
    assert_eq!(
        (&uses["arrows"], &uses["redrawn"], &uses["back"]),
        (&serde_json::json!([1, 1]), &true.into(), &true.into())
    );
    assert_ne!(uses["next"], uses["launch"]);
    let matches = format!("{matches} matches");
    assert_eq!(text(uses, "found"), matches);
    assert!(uses["match"][0].as_str().is_some_and(|of| of.ends_with(&format!(" of {matches}"))), "{}", uses["match"]);
    assert!(
        uses["match"][1].as_str().is_some_and(|of| of.contains("torture</script><img src=x onerror=window.evil=1>")),
        "{}",
        uses["match"]
    );
    assert!(uses["reached"][0] == true && uses["reached"][1].as_f64() >= Some(4.0), "{}", uses["reached"]);
    assert_eq!(uses["drawn"][0], uses["drawn"][1], "bars that share a pixel");
    assert_eq!((text(uses, "none"), text(uses, "over")), ("no match", ""));
    assert!(uses["theme"][0] != uses["theme"][1] && uses["theme"][2] == true, "{}", uses["theme"]);
    let column = |of: &str| -> Vec<u64> {
        let cells = uses[of][1].as_array().expect("cells").iter();
        cells.map(|cell| cell.as_str().expect("text").replace(',', "").parse().expect("a number")).collect()
    };
    let (falling, rising) = (column("falling"), column("rising"));
    assert!(
        falling.is_sorted_by(|a, b| a >= b) && rising.is_sorted() && falling.first() != rising.first(),
        "{falling:?} {rising:?}"
    );
    assert_eq!((&uses["falling"][0], &uses["rising"][0]), (&"descending".into(), &"ascending".into()));
    let has = |of: &str, what: &str| {
        uses[of].as_array().expect("texts").iter().any(|text| text.as_str().is_some_and(|t| t.contains(what)))
    };
    assert!(
        has("graphs", "Host memory in use at the peak") && has("graphs", "Waits for the GPU"),
        "{}",
        uses["graphs"]
    );
    assert!(has("frames", "item (program.py:19)") && has("frames", "cuStreamSynchronize"), "{}", uses["frames"]);
    assert!(text(uses, "frame").starts_with("item (program.py:19): "), "{}", uses["frame"]);
    assert!(has("metrics", "p50") && !has("metrics", "Pid") && !has("metrics", ": Exit"), "{}", uses["metrics"]);
    let metrics: Vec<&str> = uses["metrics"].as_array().expect("texts").iter().filter_map(Value::as_str).collect();
    let names: std::collections::BTreeSet<&str> = metrics.iter().copied().collect();
    assert_eq!(names.len(), metrics.len(), "numbers that nobody can tell apart: {metrics:?}");
    assert_eq!(uses["narrow"], 320, "a narrow window is scrolled sideways");
    // A stream is called the same among the arguments of a bar as in its track's name.
    assert_eq!(uses["streams"], serde_json::json!(["7", "0x20000000010"]));
    assert!(text(uses, "chart").contains("mean ") && text(uses, "caption").contains(": "), "{uses}");
}

#[test]
fn a_page_is_nothing_for_a_terminal() {
    if !needs(&["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let run = scratch.target("true").traced().expect(0);
    let terminal = "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let words = ["report", "--format", "html"];
    let mut command = Command::new("python3");
    command.args(["-c", terminal]).arg(crate::util::gputrace()).args(words).arg(&run.trace);
    let output = command.stdin(std::process::Stdio::null()).output().expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("name its file: -o report.html"), "{text}");
    // A pipe takes it.
    let piped =
        scratch.gputrace(&[&words.map(std::ffi::OsStr::new), [run.trace.as_os_str()].as_slice()].concat()).expect(0);
    assert!(piped.text().starts_with("<!doctype html>"), "{}", piped.text());
}

#[test]
fn pages_of_traces_with_little_in_them_say_what_there_is() {
    if browser().is_none() {
        return;
    }
    let scratch = Scratch::new();
    // Nothing of a GPU at all; launches without times of the GPU; a trace whose program still runs.
    let make = |name: &str, target: crate::util::Target<'_>| {
        let run = target.traced().expect(0);
        std::fs::rename(&run.trace, scratch.path().join(name)).expect("the trace is moved");
        page(&scratch, name)
    };
    let nothing =
        make("nothing", scratch.target("true").options(["--malloc", "off", "--os", "off", "--counters", "off"]));
    let steps = || scratch.target(program("steps")).args(["0.05", "5", "5", "1000"]).with_driver(Driver::Plain);
    let host = make("host", steps().options(["--gpu-time", "off"]));
    let running = scratch.shell("echo ready > begun; read line < go").options(["--malloc", "full"]);
    let going = running_page(&scratch, &running);
    let Some(found) = browsed(&[("look", &nothing), ("look", &host), ("look", &going)]) else { return };
    found.iter().for_each(is_sound);
    let [nothing, _, host, _, going, _] = found.as_slice() else { panic!("{} pages", found.len()) };
    assert!(text(nothing, "tables").contains("Summary") && nothing["trouble"] == Value::Null, "{nothing}");
    assert!(host["bars"]["thread"]["count"].as_i64() > Some(0) && host["bars"]["stream"] == Value::Null, "{host}");
    assert!(text(host, "charts").contains("Launch calls: how long they take"), "{host}");
    assert!(!text(host, "charts").contains("Launch latency"), "{host}");
    assert!(text(going, "notes").contains("is still being written, by gputrace "), "{going}");
    assert!(text(going, "head").contains("exit not known"), "{going}");
    assert!(text(nothing, "verdict").starts_with("no CUDA calls seen"), "{nothing}");
}

/// The page of a trace while its program waits to be let go of.
fn running_page(scratch: &Scratch, target: &crate::util::Target<'_>) -> PathBuf {
    let go = scratch.path().join("go");
    assert!(Command::new("mkfifo").arg(&go).status().expect("mkfifo runs").success());
    let started = target.start();
    let begun = || scratch.path().join("begun").exists().then_some(());
    crate::util::poll(std::time::Duration::from_secs(60), begun).expect("the program begins");
    let trace = started.trace.file_name().expect("a name").to_string_lossy().into_owned();
    let file = page(scratch, &trace);
    std::fs::write(go, "go\n").expect("the program reads");
    started.wait().expect(0);
    file
}
