//! Every line of every report's text is as short as it was asked to be, whatever the trace's names and numbers are.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use unicode_width::UnicodeWidthStr;

use crate::util::{Driver, Scratch, gputrace, program, repository};

/// A Kineto trace of names that are long, in words and in one, and of numbers that are wide.
fn odd() -> String {
    let template = format!("void at::native::kernel<{}>(int)", "std::tuple<int, float>, ".repeat(450));
    let word = "x".repeat(10_000);
    let words = "some words ".repeat(900);
    let wide = "核心计算".repeat(300);
    let mut events = String::new();
    let mut add = |cat: &str, name: &str, place: (i64, i64), span: (i64, i64), args: &str| {
        let _ = write!(
            events,
            "{}{{\"ph\": \"X\", \"cat\": \"{cat}\", \"name\": \"{name}\", \"pid\": {}, \"tid\": {}, \"ts\": {}, \"dur\": {}, \
             \"args\": {{{args}}}}}",
            if events.is_empty() { "" } else { ",\n" },
            place.0,
            place.1,
            span.0,
            span.1
        );
    };
    for step in 0..40 {
        let at = 1_000 + step * 900_000_000;
        let id = |n: i64| format!("\"correlation\": {}", step * 10 + n);
        add(
            "python_function",
            &format!("/a/path/{}/train.py(10): step", "deep/".repeat(40)),
            (9, 9),
            (at, 700_000_000),
            "",
        );
        add("user_annotation", &format!("ProfilerStep#{step}"), (9, 9), (at, 800_000_000), "");
        add("cpu_op", &words, (9, 9), (at + 10, 600_000_000), "");
        add("user_annotation", &word, (9, 9), (at + 20, 500_000_000), "");
        add("user_annotation", &wide, (9, 9), (at + 30, 400_000_000), "");
        for (n, name) in [&template, &word, &words, &wide].into_iter().enumerate() {
            let (n, from) = (n as i64, at + 1_000 * (n as i64 + 1));
            add("cuda_runtime", "cudaLaunchKernel", (9, 9), (from, 400), &id(n + 1));
            let args = format!("{}, \"device\": {n}, \"stream\": 7", id(n + 1));
            add("kernel", name, (n, 7), (from + 500, 300_000_000 + n), &args);
        }
        add("cuda_runtime", "cudaMemcpyAsync", (9, 9), (at + 400_000_000, 90_000_000), &id(5));
        let args = format!("{}, \"device\": 0, \"stream\": 7, \"bytes\": 123456789012345", id(5));
        add("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", (0, 7), (at + 400_000_500, 80_000_000), &args);
        add("cuda_runtime", "cudaStreamSynchronize", (9, 9), (at + 500_000_000, 99_000_000), "");
        let args = "\"Collective name\": \"allreduce\", \"dtype\": \"Float\", \"In msg nelems\": 123456789012, \
                    \"Out msg nelems\": 123456789012, \"Group size\": 2, \"Process Group Name\": \"0\"";
        add("cpu_op", "record_param_comms", (9, 9), (at + 650_000_000, 1_000_000), args);
    }
    format!("{{\"distributedInfo\": {{\"rank\": 0, \"world_size\": 2}}, \"traceEvents\": [{events}]}}")
}

/// The names of all analyses, as the answer to a wrong one lists them.
fn analyses(scratch: &Scratch) -> String {
    let said = scratch.gputrace(&["report", ".", "--only", "?"]).expect(2).stderr;
    said.rsplit_once("the analyses are ").expect("a list").1.trim().to_owned()
}

#[test]
fn no_line_of_a_report_is_longer_than_was_asked_for() {
    let scratch = Scratch::new();
    crate::util::shim();
    scratch.target(gputrace()).args(["demo", "-o", "demo"]).plain().expect(0);
    let values = scratch.target(program("cuda_values")).with_driver(Driver::Plain);
    assert!(values.traced_command(&scratch.path().join("recorded")).status().expect("gputrace runs").success());
    let sql = fs::read_to_string(repository().join("tests/traces/nsys.sql")).expect("the SQL");
    let nsys = scratch.path().join("nsys.sqlite");
    rusqlite::Connection::open(&nsys).expect("a database").execute_batch(&sql).expect("SQL");
    let traces = repository().join("tests/traces");
    let files = [
        ("kineto", traces.join("kineto-rank0.json")),
        ("memory", traces.join("torch-memory.pickle")),
        ("nsys", nsys),
        ("odd", scratch.file("odd.json", odd())),
    ];
    for (trace, file) in &files {
        scratch.gputrace(&["import", &file.to_string_lossy(), "-o", trace]).expect(0);
    }
    // A trace that is damaged has problems to tell.
    scratch.gputrace(&["import", &files[0].1.to_string_lossy(), "-o", "damaged"]).expect(0);
    let folder = scratch.path().join("damaged/kernels/host=imported");
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        fs::write(entry.path(), "no Parquet").expect("a file");
    }
    let all = analyses(&scratch).replace(' ', "");
    let mut wrong = Vec::new();
    for trace in ["demo", "recorded", "kineto", "memory", "nsys", "odd", "damaged"] {
        for width in [60, 80, 100, 140] {
            let text = width.to_string();
            // Of the damaged one the exit code says so.
            let text = scratch.gputrace(&["report", trace, "--only", &all, "--width", &text]).text();
            assert!(text.lines().count() > 40, "{trace}: {text}");
            // A path stays what it is, on a line of its own.
            let fits = |line: &&str| line.width() <= width || line.contains('/') && !line.trim().contains(' ');
            wrong.extend(text.lines().filter(|line| !fits(line)).map(|line| format!("{trace} {width}: {line}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_of_ten_thousand_characters_show_where_they_differ_and_are_whole_in_json() {
    let scratch = Scratch::new();
    let name =
        |last: &str| format!("void library::gemm<{}{last}>(float*)", "std::integral_constant<int, 7>, ".repeat(320));
    let names = ["float", "double", "half"].map(name);
    let kernel = |(n, name): (usize, &String)| {
        format!(
            r#",{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{}0,"dur":5,"args":{{"device":0,"stream":7,"correlation":4}}}}"#,
            n + 1
        )
    };
    let launch = r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":1,"dur":2,"args":{"correlation":4}}"#;
    let kernels: String = names.iter().enumerate().map(kernel).collect();
    let file = scratch.file("made.json", format!("{{\"traceEvents\":[{launch}{kernels}]}}"));
    scratch.gputrace(&[Path::new("import"), &file, Path::new("-o"), Path::new("t")]).expect(0);
    let report = |more: &[&str]| {
        scratch.gputrace(&[&["report", "t", "--only", "cuda_gpu_kern_sum"], more].concat()).expect(0).text()
    };
    for width in ["80", "100", "150"] {
        let text = report(&["--width", width]);
        assert!(text.contains("gemm.."), "{text}");
        assert!(["float", "double", "half"].iter().all(|last| text.contains(last)), "{width}: {text}");
    }
    let json = report(&["--format", "json"]);
    assert!(names.iter().all(|name| name.len() > 10_000 && json.contains(name.as_str())));
}
