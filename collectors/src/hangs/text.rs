//! What is said of a hang: a few lines on stderr, and all that is known in a file.

use std::fmt::Write;

use super::{Case, Hang};
use crate::outside::{Outside, Seen};
use crate::tables::StackRow;

/// Frames of a stack that stderr gets, and sentences about other ranks.
const SAID_FRAMES: usize = 3;
const SAID_MISSING: usize = 3;
/// Threads that a file tells of, and frames of each.
const MOST_THREADS: usize = 512;
const MOST_FRAMES: usize = 64;
/// Characters of a line.
const MOST_CHARACTERS: usize = 2000;

/// A time in seconds, with as many places as it needs.
pub(super) fn seconds(ns: i64) -> String {
    let seconds = ns as f64 / 1e9;
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

/// `file:line function` of a Python frame, `function in module` of a native one.
pub(super) fn frame(row: &StackRow) -> String {
    let function = if row.function.is_empty() { "?" } else { &row.function };
    clean(&match (&row.file, row.line, &row.module) {
        (Some(file), Some(line), _) => format!("{file}:{line} {function}"),
        (Some(file), None, _) => format!("{file} {function}"),
        (_, _, Some(module)) => format!("{function} in {module}"),
        _ => function.to_owned(),
    })
}

/// Names come from the program: what is no text is not shown, and no line is endless.
fn clean(line: &str) -> String {
    line.chars().take(MOST_CHARACTERS).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The call, what it waits for and since when.
fn standing(hang: &Hang, now_ns: i64) -> String {
    let inside = hang.inside.as_ref().map_or_else(String::new, |inside| format!(" ({inside} inside it)"));
    let stream = match hang.stream {
        Some(1) => " of the legacy stream".to_owned(),
        Some(2) => " of its per-thread stream".to_owned(),
        Some(handle) => format!(" of stream {handle:#x}"),
        None => String::new(),
    };
    format!("{}{inside}{stream} for {}", hang.call, seconds(hang.took_ns(now_ns)))
}

fn thread(tid: i32, name: Option<&str>) -> String {
    match name {
        Some(name) if !name.is_empty() => format!("thread {tid} ({name})"),
        _ => format!("thread {tid}"),
    }
}

fn process(case: &Case) -> String {
    let Some(hang) = case.hangs.first() else { return String::new() };
    let rank = hang.rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
    let program = case.exe.rsplit('/').next().unwrap_or_default();
    format!("process {} ({rank}{program})", hang.pid)
}

/// What stderr gets of it, a line each.
pub(super) fn said(case: &Case, report: Option<&str>) -> Vec<String> {
    let Some(hang) = case.hangs.first() else { return Vec::new() };
    let more = match case.hangs.len() {
        1 => String::new(),
        2 => ", and one more thread hangs".to_owned(),
        n => format!(", and {} more threads hang", n - 1),
    };
    let who = thread(hang.tid, hang.thread.as_deref());
    let mut lines = vec![format!(
        "{} hangs: {who} has been in {}, and nothing that it waits for goes on{more}",
        process(case),
        standing(hang, case.now_ns)
    )];
    if !hang.stack.is_empty() {
        let seen = if hang.earlier { "last seen at" } else { "at" };
        lines
            .push(format!("  {seen} {}", hang.stack.iter().take(SAID_FRAMES).cloned().collect::<Vec<_>>().join(" < ")));
    }
    lines.extend(hang.missing.iter().take(SAID_MISSING).map(|sentence| format!("  {sentence}")));
    if hang.missing.len() > SAID_MISSING {
        lines.push(format!("  and {} more such ranks", hang.missing.len() - SAID_MISSING));
    }
    lines.extend(report.map(|path| format!("  all threads, streams and communicators: {path}")));
    if case.is_last_said {
        lines.push("further hangs are told in the trace alone".to_owned());
    }
    lines.iter().map(|line| clean(line)).collect()
}

/// All that is known.
pub(super) fn whole(case: &Case, outside: &Outside) -> String {
    let mut text = String::new();
    let mut line = |line: &str| {
        text.push_str(&clean(line));
        text.push('\n');
    };
    line(&format!("{} hangs", process(case)));
    line(&format!("program: {}", case.exe));
    line(&format!("command: {}", case.command));
    for hang in &case.hangs {
        let who = thread(hang.tid, hang.thread.as_deref());
        line(&format!("{who} has been in {}, and nothing that it waits for goes on", standing(hang, case.now_ns)));
    }
    line("");
    section(&mut line, "ranks", case.hangs.first().map_or(&[][..], |hang| &hang.missing));
    section(&mut line, "communicators", &case.communicators);
    section(&mut line, "streams", &case.streams);
    line("threads");
    let limit = match (&outside.limit, case.foreign) {
        (_, true) => Some("it runs in another pid namespace: only what it said itself is known"),
        (limit, false) => limit.as_deref(),
    };
    if let Some(limit) = limit {
        line(&format!(
            "  frames are missing: {limit}; of threads without a stack the last one is shown that was taken inside the process"
        ));
    }
    threads(&mut line, case, outside);
    text
}

fn section(line: &mut impl FnMut(&str), title: &str, lines: &[String]) {
    if !lines.is_empty() {
        line(title);
        lines.iter().for_each(|text| line(&format!("  {text}")));
        line("");
    }
}

fn threads(line: &mut impl FnMut(&str), case: &Case, outside: &Outside) {
    let nothing = Seen::default();
    let hangs = |tid: i32| case.hangs.iter().any(|hang| hang.tid == tid);
    let rows = case.threads.iter().map(|thread| thread.tid);
    let mut all: Vec<i32> = rows.chain(outside.threads.keys().copied()).collect();
    all.sort_by_key(|tid| (!hangs(*tid), *tid));
    all.dedup();
    for tid in all.iter().take(MOST_THREADS) {
        let row = case.threads.iter().find(|thread| thread.tid == *tid);
        let seen = outside.threads.get(tid).unwrap_or(&nothing);
        let name = row.map(|row| row.name.as_str()).filter(|name| !name.is_empty()).unwrap_or(&seen.name);
        let mut about = vec![thread(*tid, Some(name))];
        about.extend(Some(&seen.kernel).filter(|kernel| !kernel.is_empty()).cloned());
        about.extend(row.into_iter().flat_map(|row| row.calls.iter().cloned()));
        line(&format!("  {}", about.join("; ")));
        let last = row.map_or(&[][..], |row| &row.last_stack);
        match seen.frames.is_empty() {
            false => frames(line, &seen.frames),
            true if !last.is_empty() => {
                line("    the last stack that was taken of it:");
                frames(line, last);
            }
            true => {}
        }
    }
    if all.len() > MOST_THREADS {
        line(&format!("  and {} more threads", all.len() - MOST_THREADS));
    }
}

fn frames(line: &mut impl FnMut(&str), rows: &[StackRow]) {
    rows.iter().take(MOST_FRAMES).for_each(|row| line(&format!("    {}", frame(row))));
    let left = rows.len().saturating_sub(MOST_FRAMES);
    let mut rest = String::new();
    if left > 0 {
        let _ = write!(rest, "    and {left} more");
    } else if rows.last().is_some_and(|row| row.cut) {
        rest.push_str("    and more");
    }
    if !rest.is_empty() {
        line(&rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hangs::OneThread;

    fn row(function: &str, file: Option<&str>, line: Option<i32>) -> StackRow {
        StackRow {
            language: "python",
            function: function.into(),
            file: file.map(Into::into),
            line,
            ..StackRow::default()
        }
    }

    fn case() -> Case {
        let hang = Hang {
            pid: 7,
            rank: Some(1),
            tid: 7,
            thread: Some("python".to_owned()),
            call: "cuStreamSynchronize".to_owned(),
            stream: Some(0x2a),
            start_ns: 0,
            stack: ["a.py:3 step", "a.py:9 train", "a.py:20 main", "a.py:30 <module>"].map(str::to_owned).to_vec(),
            missing: (0..5).map(|rank| format!("rank {rank} is missing")).collect(),
            ..Hang::default()
        };
        Case {
            hangs: vec![hang.clone(), Hang { tid: 8, ..hang }],
            exe: "/bin/python".to_owned(),
            now_ns: 300_000_000_000,
            threads: vec![
                OneThread {
                    tid: 9,
                    name: "loader".to_owned(),
                    calls: vec!["in read for 1.0 s".to_owned()],
                    ..OneThread::default()
                },
                OneThread { tid: 7, last_stack: vec![row("before", Some("a.py"), Some(1))], ..OneThread::default() },
            ],
            ..Case::default()
        }
    }

    #[test]
    fn names_cannot_write_to_the_terminal() {
        let mut case = case();
        case.hangs[0].thread = Some("a\u{1b}[2Jb\nc".to_owned());
        case.is_last_said = true;
        let said = said(&case, None);
        assert!(said[0].contains("(a\u{fffd}[2Jb\u{fffd}c)"), "{said:?}");
        assert_eq!(said.last().map(String::as_str), Some("further hangs are told in the trace alone"));
        case.command = "x\n".repeat(4000);
        assert!(whole(&case, &Outside::default()).lines().all(|line| line.chars().count() <= MOST_CHARACTERS));
    }

    #[test]
    fn stderr_gets_a_few_lines_whatever_there_is() {
        assert_eq!(
            said(&case(), Some("t/hangs/x.txt")),
            [
                "process 7 (rank 1, python) hangs: thread 7 (python) has been in cuStreamSynchronize of stream 0x2a for \
                 300 s, and nothing that it waits for goes on, and one more thread hangs",
                "  at a.py:3 step < a.py:9 train < a.py:20 main",
                "  rank 0 is missing",
                "  rank 1 is missing",
                "  rank 2 is missing",
                "  and 2 more such ranks",
                "  all threads, streams and communicators: t/hangs/x.txt",
            ]
        );
    }

    #[test]
    fn where_memory_cannot_be_read_the_limit_is_named_and_the_last_stack_is_shown() {
        let forbidden = Outside { limit: Some("its memory cannot be read (EPERM)".to_owned()), ..Outside::default() };
        let text = whole(&case(), &forbidden);
        assert!(text.contains("missing: its memory cannot be read (EPERM); of threads without"), "{text}");
        assert!(text.contains("the last stack that was taken of it:\n    a.py:1 before\n"), "{text}");
        assert!(text.contains("  thread 9 (loader); in read for 1.0 s\n"), "{text}");
        let mut case = case();
        case.hangs[0].earlier = true;
        assert!(said(&case, None)[1].starts_with("  last seen at a.py:3 step < "), "{:?}", said(&case, None));
    }

    #[test]
    fn frames_from_outside_come_before_what_was_known_inside() {
        let seen =
            Seen { kernel: "sleeping, in futex".to_owned(), frames: vec![row("now", None, None)], ..Seen::default() };
        let text = whole(&case(), &Outside { threads: [(7, seen)].into(), limit: None });
        assert!(text.contains("  thread 7; sleeping, in futex\n    now\n"), "{text}");
        assert!(!text.contains("before") && !text.contains("missing:"), "{text}");
        let threads: Vec<&str> = text.lines().filter(|line| line.starts_with("  thread")).collect();
        assert!(threads[0].contains("thread 7"), "those that hang come first: {threads:?}");
    }
}
