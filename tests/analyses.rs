//! Reports on whole runs: their numbers are the simulated driver's own, and the same every time.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::util::{Scratch, count, gputrace, program, truth};

/// The JSON report on a trace.
fn report(scratch: &Scratch, trace: &str, more: &[&str]) -> Value {
    let arguments: Vec<&str> = ["report", trace, "--format", "json"].iter().chain(more).copied().collect();
    let run = scratch.gputrace(&arguments).expect(0);
    serde_json::from_str(&run.text()).expect("the report is JSON")
}

/// Sums a column of a table by the text in another.
fn by(analysis: &Value, table: &str, key: &str, number: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in analysis["tables"][table]["rows"].as_array().map_or(&[][..], Vec::as_slice) {
        let name = row[key].as_str().expect("a name").to_owned();
        *sums.entry(name).or_default() += row[number].as_u64().expect("a number");
    }
    sums
}

#[test]
fn a_report_counts_what_the_driver_counted() {
    let scratch = Scratch::new();
    let file = scratch.path().join("truth.json");
    let target = scratch.target(program("cuda_threads")).args(["500", "8"]).with_instant_driver();
    let target = target.env("FAKE_CUDA_TRUTH", &file).options(["--on-full", "block"]);
    let run = target.traced().expect(0);
    let driver = truth(&file);
    let trace = run.read();
    let report = report(&scratch, &run.trace.to_string_lossy(), &[]);
    let analyses = &report["analyses"];
    let mut reported = by(&analyses["launch-overhead"], "by_api", "api", "calls");
    reported.extend(by(&analyses["syncs"], "by_call", "api", "calls"));
    reported.extend(by(&analyses["transfers"], "by_direction", "api", "calls"));
    reported.extend(by(&analyses["device-memory"], "by_call", "api", "calls"));
    assert!(reported.len() > 8, "{reported:?}");
    for (api, calls) in &reported {
        assert_eq!(driver.get(api), Some(calls), "{api}");
    }
    let launches = count(&trace.root(), "launch");
    assert_eq!(analyses["launch-overhead"]["facts"]["launches"], launches.recorded);
    assert_eq!(report["problems"], Value::Array(Vec::new()));
}

#[test]
fn the_demo_is_reported_as_what_it_is() {
    let scratch = Scratch::new();
    crate::util::shim();
    let run = scratch.target(gputrace()).args(["demo", "-o", "t"]).plain().expect(0);
    assert!(run.text().contains("\nLaunch overhead\n"), "{}", run.text());
    let summary = &report(&scratch, "t", &["--only", "summary"])["analyses"]["summary"];
    let facts = &summary["facts"];
    assert_eq!((&facts["steps"], &facts["step_anchor"]), (&200.into(), &"cuStreamSynchronize".into()));
    assert_eq!((&facts["launches"], &facts["copies"]), (&60.0.into(), &2.0.into()));
    // A wait is one whether its call says so or not, as in the line for people.
    let [waits, implicit] = ["waits", "implicit_waits"].map(|key| facts[key].as_f64().expect("a number"));
    assert!((waits - implicit - 1.0).abs() < 1e-9 && implicit > 0.0, "{facts}");
    let parts = ["outside_driver_ns", "launch_ns", "wait_ns", "copy_ns", "memory_ns", "other_ns"];
    let sum: f64 = parts.iter().map(|part| facts[part].as_f64().expect("a time")).sum();
    assert!(
        (sum / facts["unit_host_ns"].as_f64().expect("a time") - 1.0).abs() < 1e-6,
        "the parts are the step: {facts}"
    );
    let found = summary["tables"]["findings"]["rows"].to_string();
    // The loop reads its loss in every step: four bytes, for which it waits until the kernels are done.
    assert!(
        ["wait-every-step", "cuMemcpyDtoH", "DtoH of 4 B", "demo_loop.rs:"].iter().all(|part| found.contains(part)),
        "{found}"
    );
    for format in ["text", "json", "markdown"] {
        let again = || scratch.gputrace(&["report", "t", "--format", format]).expect(0).text();
        assert_eq!(again(), again(), "{format} is the same every time");
    }
}

#[test]
fn the_simulated_gpus_own_times_are_in_the_demos_report() {
    let scratch = Scratch::new();
    crate::util::shim();
    scratch.target(gputrace()).args(["demo", "-o", "t"]).plain().expect(0);
    let analyses = &report(&scratch, "t", &[])["analyses"];
    let number = |value: &Value| value.as_f64().expect("a number");
    // Ten layers of kernels that say how long they run: 200 + 3 + 3 + 5 + 6 + 4 us.
    let summary = &analyses["summary"]["facts"];
    let step = number(&summary["unit_ns"]);
    assert!((number(&summary["gpu_compute_ns"]) / 2_210_000.0 - 1.0).abs() < 0.01, "{summary}");
    let whole = number(&summary["gpu_busy_ns"]) + number(&summary["gpu_idle_ns"]);
    assert!((whole / step - 1.0).abs() < 0.01, "busy and idle time are the step: {summary}");
    let kernels = &analyses["kernels"];
    assert_eq!(kernels["facts"]["kernels"], 12_000);
    assert_eq!(kernels["facts"]["total_ns"], 200 * 2_210_000);
    for row in kernels["tables"]["by_kernel"]["rows"].as_array().expect("rows") {
        let name = row["kernel"].as_str().expect("a name");
        let us: i64 = name.rsplit('_').next().and_then(|us| us.parse().ok()).expect("its time");
        assert_eq!((&row["med_ns"], &row["max_ns"]), (&(us * 1000).into(), &(us * 1000).into()), "{name}");
    }
    // Every operation found its call, and every gap a cause; the parts are the whole.
    let gaps = &analyses["gpu-gaps"];
    let causes = gaps["tables"]["by_cause"]["rows"].as_array().expect("rows");
    assert!(causes.iter().all(|row| row["cause"] != "unknown"), "{gaps}");
    let sum: f64 = causes.iter().map(|row| number(&row["idle_ns"])).sum();
    assert_eq!(sum, number(&gaps["facts"]["idle_ns"]));
    assert!(causes.iter().any(|row| row["cause"] == "after_wait"), "the loop reads its loss in every step: {causes:?}");
    assert_eq!(analyses["launch-overhead"]["facts"]["joined_kernels"], 12_000);
    let busy = &analyses["gpu-utilisation"]["facts"];
    assert_eq!(number(&busy["busy_ns"]) + number(&busy["idle_ns"]), number(&busy["range_ns"]));
}

/// The document's part about an analysis, by its heading.
fn part_about<'a>(document: &'a str, analysis: &str) -> &'a str {
    let is_its =
        |part: &&str| part.lines().next().is_some_and(|heading| heading.split(", ").any(|name| name == analysis));
    document.split("\n## ").find(is_its).unwrap_or_else(|| panic!("no heading {analysis}"))
}

#[test]
fn each_number_of_a_report_is_in_its_documentation() {
    let scratch = Scratch::new();
    crate::util::shim();
    scratch.target(gputrace()).args(["demo", "-o", "t"]).plain().expect(0);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/report-json.md");
    let document = std::fs::read_to_string(path).expect("the documentation");
    let keys = |value: &Value| value.as_object().map(|of| of.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let analyses = report(&scratch, "t", &[])["analyses"].clone();
    let mut missing = Vec::new();
    for name in keys(&analyses) {
        let (of, about) = (&analyses[&name], part_about(&document, &name));
        // Tables by line are described once.
        let by_site = |key: &String| key == "by_site" && document.contains("here and in transfers and device-memory");
        let told = |key: &String| about.contains(&format!("`{key}`")) || by_site(key);
        missing.extend(keys(&of["facts"]).into_iter().filter(|key| !told(key)).map(|key| format!("{name}.{key}")));
        for table in keys(&of["tables"]) {
            let columns = keys(&of["tables"][&table]["rows"][0]);
            let there = |key: &String| document.contains(&format!("`{key}`"));
            missing.extend((!told(&table)).then(|| format!("{name}.{table}")));
            missing.extend(columns.iter().filter(|key| !there(key)).map(|key| format!("{name}.{table}.{key}")));
        }
    }
    assert!(keys(&analyses).len() > 20 && missing.is_empty(), "{missing:?}");
}

/// A line of the summary without its figures, what stands in brackets, and the list that what was found shortens.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    let mut depth = 0;
    for c in line.trim_end().chars() {
        depth += i32::from(c == '(');
        match c {
            '0'..='9' if depth == 0 && !shape.ends_with('#') => shape.push('#'),
            '0'..='9' | '.' | ',' if shape.ends_with('#') => {}
            _ if depth == 0 => shape.push(c),
            _ => {}
        }
        depth -= i32::from(c == ')');
    }
    let words =
        shape.split_whitespace().map(|word| if ["ns", "us", "ms", "s"].contains(&word) { "time" } else { word });
    let shape = words.collect::<Vec<_>>().join(" ");
    let shape = shape
        .split("; outliers")
        .next()
        .unwrap_or_default()
        .trim_end()
        .replace(" , more once # is fixed", "")
        .replace("< #", "#");
    shape
        .split_once(": ")
        .filter(|(start, _)| *start == "checked, fine")
        .map_or(shape.as_str(), |(start, _)| start)
        .to_owned()
}

/// Lines of a summary as they were before they were broken at 100 columns.
fn unbroken<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let (mut length, mut indent) = (0, 0);
    for line in lines {
        let (text, width) = (line.trim_start(), line.chars().count());
        let word = text.split(' ').next().unwrap_or_default().chars().count();
        match all.last_mut() {
            Some(last) if width - text.chars().count() == indent + 2 && length + 1 + word > 100 => {
                last.push(' ');
                last.push_str(text);
            }
            _ => {
                indent = width - text.chars().count();
                all.push(line.to_owned());
            }
        }
        length = width;
    }
    all
}

/// Lines of the README's first screen that are not in the summary of a demo.
fn missing_of_the_first_screen() -> Option<String> {
    let scratch = Scratch::new();
    scratch.target(gputrace()).args(["demo", "-o", "demo-trace"]).plain().expect(0);
    let summary = std::fs::read_to_string(scratch.path().join("demo-trace/summary.txt")).expect("a summary");
    let shapes: Vec<String> = unbroken(summary.lines()).iter().map(|line| shape(line)).collect();
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("a README");
    let screen = readme.lines().skip_while(|line| !line.starts_with("    $ gputrace demo")).skip(1);
    let screen: Vec<&str> = screen.map_while(|line| line.strip_prefix("    ")).collect();
    assert!(screen.len() > 15, "{screen:?}");
    // The verdict depends on how busy the machine is, and where it is another one, so do the findings; the place of a call
    // depends on how gputrace was built.
    let same_verdict = summary.lines().any(|line| line.starts_with("HOST BOUND"));
    let of_finding = |line: &str| line.starts_with(|c: char| c.is_ascii_digit()) || line.starts_with("   ");
    let varies = |line: &str| {
        line.starts_with("HOST BOUND") || line.contains("demo_loop.rs:") || !same_verdict && of_finding(line)
    };
    // A busy machine may add a part to a line.
    let is_there = |line: &&String| {
        let shape = shape(line);
        shapes.iter().any(|found| found == &shape || found.starts_with(&format!("{shape} | ")))
    };
    let screen = unbroken(screen.into_iter());
    let missing = screen.iter().filter(|line| !varies(line)).find(|line| !is_there(line))?;
    Some(format!("{missing:?}\n{:?} is not in\n{}", shape(missing), shapes.join("\n")))
}

#[test]
fn the_readmes_first_screen_is_what_the_demo_ends_with() {
    crate::util::shim();
    // Where the demo's host is kept from its processor the summary tells of that: one quiet run of these has the screen.
    let runs: Vec<String> = (0..6).map_while(|_| missing_of_the_first_screen()).collect();
    assert!(runs.len() < 6, "{}", runs.join("\n\n"));
}

#[test]
fn a_span_of_the_run_is_reported_by_itself() {
    let scratch = Scratch::new();
    crate::util::shim();
    scratch.target(gputrace()).args(["demo", "-o", "t"]).plain().expect(0);
    let launches = |more: &[&str]| -> u64 {
        let report = report(&scratch, "t", &[&["--only", "launch-overhead"], more].concat());
        report["analyses"]["launch-overhead"]["facts"]["launches"].as_u64().unwrap_or(0)
    };
    let all = launches(&[]);
    let (before, after) = (launches(&["--to", "0.6"]), launches(&["--from", "0.6"]));
    assert_eq!((all, before + after), (12_000, 12_000));
    assert!(before > 0 && after > 0, "{before} {after}");
    let run = scratch.gputrace(&["report", "t", "--pid", "1"]);
    assert_eq!(run.code(), 2);
    assert!(run.stderr.contains("no process of the trace has that rank and pid"), "{}", run.stderr);
}

#[test]
fn a_part_of_the_run_is_reported_by_steps_ranges_and_devices() {
    let scratch = Scratch::new();
    crate::util::shim();
    scratch.target(gputrace()).args(["demo", "-o", "t"]).plain().expect(0);
    let launches = |more: &[&str]| {
        let more: Vec<&str> = ["--only", "launch-overhead"].iter().chain(more).copied().collect();
        report(&scratch, "t", &more)["analyses"]["launch-overhead"]["facts"]["launches"].clone()
    };
    // 60 launches a step.
    assert_eq!(launches(&["--steps", "50..59"]), 600);
    assert_eq!(launches(&["--step", "50..59"]), 600, "numbers are no name");
    assert_eq!(launches(&["--device", "0"]), launches(&[]));
    let wrong = |more: [&str; 2], says: &str| {
        crate::faults::one_line(&scratch.gputrace(&["report", "t", more[0], more[1]]).expect(2).stderr, says);
    };
    wrong(["--steps", "9000..9001"], "there are 200");
    wrong(["--steps", "9..3"], "9..3");
    wrong(["--range", "no such range"], "no range of that name");
    wrong(["--device", "7"], "of these it has: 0");
    wrong(["--width", "3"], "--width");
}

#[test]
fn text_fits_its_width_and_is_coloured_where_asked_for() {
    let scratch = Scratch::new();
    crate::util::shim();
    scratch.target(gputrace()).args(["demo", "-o", "t"]).plain().expect(0);
    let text = |more: &[&str]| scratch.gputrace(&[&["report", "t"], more].concat()).expect(0).text();
    for (width, more) in [(100, &[][..]), (160, &["--width", "160"])] {
        // The summary has a shape of its own.
        let said = text(&[more, &["--only", "launch-overhead,syncs,transfers,device-memory"]].concat());
        let wide: Vec<&str> = said.lines().filter(|line| line.chars().count() > width).collect();
        assert!(wide.is_empty(), "{width}: {wide:?}");
    }
    assert!(!text(&[]).contains('\u{1b}') && text(&["--color", "always"]).contains("\u{1b}[1mLaunch overhead"));
    assert!(!text(&["--color", "never"]).contains('\u{1b}'));
}

/// The keys that the tables of a section of docs/report-json.md name, up to the next heading.
fn documented(section: &str) -> std::collections::BTreeSet<String> {
    let text = std::fs::read_to_string(crate::util::repository().join("docs/report-json.md")).expect("the page");
    let section = text.split(&format!("\n## {section}\n")).nth(1).expect("the section").split("\n## ").next();
    // The first table is that of the object.
    let lines = section.unwrap_or_default().lines().skip_while(|line| !line.starts_with("| key"));
    let cells = lines.skip(2).map_while(|line| line.strip_prefix("| ")).filter_map(|line| line.split(" | ").next());
    cells.flat_map(|cell| cell.split(", ").map(|key| key.trim_matches('`').to_owned()).collect::<Vec<_>>()).collect()
}

#[test]
fn the_keys_that_json_has_are_those_that_its_page_documents() {
    let scratch = Scratch::new();
    crate::util::shim();
    scratch.target(gputrace()).args(["demo", "-o", "t"]).plain().expect(0);
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect();
    let printed: std::collections::BTreeSet<String> = keys(&report(&scratch, "t", &[]));
    assert_eq!(documented("The object"), printed);
    let diff = scratch.gputrace(&["diff", "t", "t", "--format", "json"]).expect(0).text();
    let printed: std::collections::BTreeSet<String> = keys(&serde_json::from_str(&diff).expect("JSON"));
    assert_eq!(documented("gputrace diff"), printed);
}
