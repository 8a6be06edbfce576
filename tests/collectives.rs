//! NCCL: every call is seen once, in the copy that it belongs to, by each way of reaching it, and its row holds what
//! the program passed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::util::{
    Finished, Scratch, Target, Trace, count, linked_with_library, nccl_folder, nccl_inside, program, program_with,
};

const LOOKUP: &[&str] = &["-DBY_LOOKUP", "-Wno-unused-variable"];

fn linked(name: &str) -> PathBuf {
    program_with(name, "linked", &linked_with_library("libnccl.so.2", &nccl_folder(), &[]))
}

fn looked_up(name: &str) -> PathBuf {
    program_with(name, "looked-up", LOOKUP)
}

fn stand_in(tag: &str, flags: &[&str]) -> PathBuf {
    let shared = ["-shared", "-fPIC", "-w"];
    program_with("nccl_stand_in", &format!("{tag}.so"), &shared.iter().chain(flags).copied().collect::<Vec<_>>())
}

/// The library that has a copy of NCCL inside, and exports it.
fn owner() -> PathBuf {
    let flags = ["-shared", "-fPIC", "-O2"].map(str::to_owned);
    program_with("nccl_owner", "owner.so", &flags.into_iter().chain(nccl_inside()).collect::<Vec<_>>())
}

/// Finds the stand-in for NCCL.
fn with_nccl<'a>(scratch: &'a Scratch, program: PathBuf) -> Target<'a> {
    scratch.target(program).env("LD_LIBRARY_PATH", nccl_folder()).env("TMPDIR", scratch.path())
}

/// Rows of `collectives` by function.
fn calls(trace: &Trace) -> BTreeMap<String, u64> {
    let (names, mut calls) = (trace.names(), BTreeMap::new());
    for row in trace.table("collectives").rows() {
        assert_eq!(row.int("result"), 0);
        *calls.entry(names[&row.int("api_id")].clone()).or_default() += 1;
    }
    calls
}

/// `NAME N` lines of the program, but for the function that is not hooked.
fn counted(run: &Finished) -> BTreeMap<String, u64> {
    let text = run.text();
    let lines = text.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(name, _)| name.starts_with("nccl"));
    let counts = lines.map(|(name, n)| (name.to_owned(), n.parse().expect("a count")));
    counts.filter(|(name, n)| *n > 0 && name != "ncclGetVersion").collect()
}

#[test]
fn each_call_is_seen_once_by_each_way_of_reaching_nccl() {
    let scratch = Scratch::new();
    let ways = [("dlopen", "dlsym"), ("default", "dlsym"), ("self", "dlsym"), ("next", "export"), ("link", "export")];
    for (way, route) in ways {
        let program = if way == "link" { linked("nccl_client") } else { looked_up("nccl_client") };
        for old in [false, true] {
            let mut target = with_nccl(&scratch, program.clone()).arg(way);
            if old {
                target = target.env("FAKE_NCCL_OLD", "1");
            }
            let run = target.traced().expect(0);
            let (trace, mut expected) = (run.read(), counted(&run));
            // What ncclCommInitAll of the stand-in asks itself for is no call of the program.
            *expected.get_mut("ncclGetUniqueId").expect("it was called") -= trace.root().nested.min(1);
            assert_eq!(calls(&trace), expected, "{way}");
            assert!(expected.len() > 25, "{expected:?}");
            trace.assert_balanced();
            let hooks = trace.root().coverage.hooks;
            let hook = hooks.iter().find(|hook| hook.name == "ncclAllReduce").expect("it was reached");
            assert_eq!(hook.routes, [route], "{way}");
        }
    }
}

#[test]
fn rows_hold_what_the_program_passed() {
    let scratch = Scratch::new();
    let trace = with_nccl(&scratch, linked("nccl_client")).traced().expect(0).read();
    let names = trace.names();
    let table = trace.table("collectives");
    // Calls of rank 2 in the first communicator, by its thread.
    let communicators = trace.table("communicators");
    let made = communicators.rows().filter(|row| row.int("rank") == 2 && row.int("ranks") == 3);
    let first = made.min_by_key(|row| row.int("start_ns")).expect("rank 2");
    let (number, thread) = (first.int("communicator"), first.int("tid"));
    let mut rows: Vec<_> = table.rows().filter(|row| row.int("tid") == thread && row.int("stream") == 0x77).collect();
    rows.sort_by_key(|row| row.int("start_ns"));
    assert!(rows.iter().all(|row| row.int("communicator") == number && row.int("captured") == 0));
    let values: Vec<_> = rows
        .iter()
        .map(|row| {
            let name = names[&row.int("api_id")].as_str();
            let numbers = [row.int("count"), row.int("bytes"), row.int("in_group")];
            let parties = [row.maybe_int("root"), row.maybe_int("peer")];
            (name, row.text("kind"), numbers, row.text("data_type"), row.maybe_text("op"), parties)
        })
        .collect();
    let none = [None, None];
    let expected = [
        ("ncclAllReduce", "collective", [5, 20, 0], "float32", Some("sum"), none),
        ("ncclBroadcast", "collective", [6, 24, 0], "float32", None, [Some(1), None]),
        ("ncclBcast", "collective", [7, 28, 0], "float32", None, [Some(2), None]),
        ("ncclReduce", "collective", [8, 32, 0], "float32", Some("max"), [Some(0), None]),
        ("ncclAllGather", "collective", [5, 20, 0], "float32", None, none),
        ("ncclReduceScatter", "collective", [5, 20, 0], "float32", Some("avg"), none),
        ("ncclAlltoAll", "collective", [5, 20, 0], "float32", None, none),
        ("ncclGather", "collective", [5, 20, 0], "float32", None, [Some(2), None]),
        ("ncclScatter", "collective", [5, 20, 0], "float32", None, [Some(2), None]),
        ("ncclSend", "point_to_point", [1, 8, 1], "int64", None, [None, Some(0)]),
        ("ncclRecv", "point_to_point", [1, 8, 1], "int64", None, [None, Some(1)]),
    ];
    assert_eq!(values, expected);
    let other: Vec<_> = table.rows().filter(|row| row.text("kind") == "memory").collect();
    assert_eq!(other.iter().map(|row| row.int("bytes")).sum::<i64>(), 3 * 2 * 4096, "taken and registered");
    // A group inside a group is in one; the outer one is not.
    let groups = table.rows().filter(|row| row.text("kind") == "group");
    let inside = groups.filter(|row| row.int("in_group") == 1).count();
    assert_eq!(inside, 4, "two groups inside others, each with its begin and end");
}

#[test]
fn communicators_are_the_same_on_all_ranks() {
    let scratch = Scratch::new();
    for old in [false, true] {
        let mut target = with_nccl(&scratch, looked_up("nccl_client")).arg("dlopen");
        if old {
            target = target.env("FAKE_NCCL_OLD", "1").env("FAKE_NCCL_VERSION", "21003");
        }
        let trace = target.traced().expect(0).read();
        let names = trace.names();
        let mut made: BTreeMap<String, BTreeMap<i64, Vec<(i64, i64)>>> = BTreeMap::new();
        for row in trace.table("communicators").rows() {
            let maker = names[&row.int("api_id")].clone();
            let ranks = (row.int("rank"), row.int("ranks"));
            made.entry(maker).or_default().entry(row.int("unique_id")).or_default().push(ranks);
            assert!(row.text("library").ends_with("libnccl.so.2"), "{}", row.text("library"));
            assert_eq!(row.int("version"), if old { 21003 } else { 22803 });
        }
        let mut all: BTreeMap<String, Vec<Vec<(i64, i64)>>> = BTreeMap::new();
        for (maker, ids) in made {
            let mut members: Vec<_> = ids.into_values().collect();
            members.iter_mut().for_each(|ranks| ranks.sort_unstable());
            members.sort();
            all.insert(maker, members);
        }
        let (three, two) = ([(0, 3), (1, 3), (2, 3)], [(0, 2), (1, 2)]);
        assert_eq!(all["ncclCommInitAll"], [three]);
        // The ranks of threads; and rank 0 of those that one thread made, whose others other functions made.
        assert_eq!(all["ncclCommInitRank"], [vec![(0, 3)], three.to_vec()]);
        assert_eq!(all["ncclCommInitRankConfig"], [[(1, 3)]]);
        assert_eq!(all["ncclCommInitRankScalable"], [[(2, 3)]]);
        assert_eq!(all["ncclCommShrink"], [two]);
        assert_eq!(all["ncclCommSplit"], [vec![(0, 1)], two.to_vec(), two.to_vec()]);
        let parents: Vec<Option<i64>> =
            trace.table("communicators").rows().map(|row| row.maybe_int("parent")).collect();
        assert_eq!(parents.iter().flatten().count(), 7, "those that were split or shrunk");
    }
}

#[test]
fn each_of_two_copies_gets_its_own_calls() {
    let scratch = Scratch::new();
    for program in [looked_up("nccl_copies"), linked("nccl_copies")] {
        let is_linked = program.to_string_lossy().contains("linked");
        let target = with_nccl(&scratch, program).arg(owner());
        let run = target.same().expect(0);
        let trace = run.read();
        trace.assert_balanced();
        let text = run.text();
        let sum = |name: &str| -> u64 {
            let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
            lines.filter(|(start, _)| start.ends_with(name)).map(|(_, n)| n.parse::<u64>().expect("a count")).sum()
        };
        let calls = calls(&trace);
        for name in ["ncclAllReduce", "ncclCommInitRank", "ncclGroupEnd", "ncclSend"] {
            assert_eq!(calls[name], sum(name), "{name}");
        }
        let table = trace.table("communicators");
        let inside = table.rows().filter(|row| row.text("library").ends_with("owner.so")).count();
        // Where the program is linked to NCCL, the library's calls go there as well, as they do untraced.
        assert_eq!(inside, if is_linked { 0 } else { table.len().div_ceil(2) }, "of {}", table.len());
        assert!(table.len() > 40, "{}", table.len());
    }
}

#[test]
fn a_first_call_of_one_of_two_copies_takes_no_lock_of_the_loader() {
    let scratch = Scratch::new();
    // The real stand-in's calls take that lock themselves, for what a thread of theirs does at its end.
    let (mine, other) = (stand_in("mine", &["-DVALUE=0x11"]), stand_in("other", &["-DVALUE=0x22"]));
    let linked = |tag: &str, flags: &[&str]| {
        let mine = mine.display().to_string();
        program_with("first_call", tag, &[&["-DNCCL", "-Wl,--no-as-needed", &mine], flags].concat())
    };
    let library = linked("nccl.so", &["-DLIBRARY", "-shared", "-fPIC", "-lpthread"]);
    // The thread that opens the library has the lock, and waits for the one that calls.
    for program in [linked("nccl", &[]), program_with("first_call", "alone", &["-DNO_CALL"])] {
        let run = scratch.target(program).arg(&other).arg(&library).same().expect(0);
        assert_eq!(run.text(), "opened\nopened\n");
        let trace = run.read();
        assert_eq!(calls(&trace)["ncclMemAlloc"], 1);
        trace.assert_balanced();
    }
}

/// A library with NCCL inside; `flags` say what becomes of NCCL's symbols.
fn with_nccl_inside(tag: &str, flags: &[&str]) -> PathBuf {
    let own =
        ["-DLIBRARY", "-shared", "-fPIC", "-Wno-unused-function"].iter().chain(flags).map(|flag| flag.to_string());
    program_with("nccl_static", &format!("{tag}.so"), &own.chain(nccl_inside()).collect::<Vec<_>>())
}

#[test]
fn nccl_inside_another_library_is_seen_where_its_symbols_are_exported_and_named_where_not() {
    let scratch = Scratch::new();
    for (tag, flags, is_seen) in [("exported", &[][..], true), ("hidden", &["-Wl,--exclude-libs,ALL"][..], false)] {
        let target = scratch.target(program("nccl_static")).arg(with_nccl_inside(tag, flags)).with_odd_driver();
        let run = target.env("TMPDIR", scratch.path()).same().expect(0);
        assert_eq!(run.text(), "sum 3\n");
        let trace = run.read();
        trace.assert_balanced();
        assert_eq!(trace.calls().get("cuLaunchKernel"), Some(&1), "{tag}");
        assert_eq!(calls(&trace).get("ncclAllReduce"), is_seen.then_some(&1), "{tag}");
        let folder = run.trace.to_str().expect("a plain path");
        let report = scratch.gputrace(&["report", folder, "--only", "collectives"]).expect(0).text();
        let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
        let named = report.contains("launched 1 kernel of NCCL, and no operation of it was seen");
        assert_eq!(named, !is_seen, "{tag}: {report}");
    }
}

#[test]
fn ranks_in_processes_are_put_together_by_their_unique_id() {
    let scratch = Scratch::new();
    let run = with_nccl(&scratch, linked("nccl_rank")).arg("4").same().expect(0);
    assert_eq!(run.text(), "4 ranks, 2 ended badly\n");
    let trace = run.read();
    trace.assert_balanced();
    let table = trace.table("communicators");
    let mut ranks: Vec<_> = table.rows().map(|row| (row.int("rank"), row.int("ranks"), row.int("unique_id"))).collect();
    ranks.sort_unstable();
    let id = ranks[0].2;
    assert_eq!(ranks, [(0, 4, id), (1, 4, id), (2, 4, id), (3, 4, id)]);
    // No variable says their rank: the communicator does.
    let table = trace.table("processes");
    let mut ranks: Vec<_> = table.rows().map(|row| row.maybe_int("rank")).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [None, Some(0), Some(1), Some(2), Some(3)]);
    // Those that failed are named, though none of them called the driver.
    let pid = |rank: i64| table.rows().find(|row| row.maybe_int("rank") == Some(rank)).map(|row| row.int("pid"));
    let (first, last) = (pid(1).expect("rank 1"), pid(3).expect("rank 3"));
    let failed = format!("\n failed: rank 1 (pid {first}) exit 7; rank 3 (pid {last}) signal 11\n");
    assert!(run.stderr.contains(&failed) && run.stderr.contains("  ranks 4/4\n"), "{}", run.stderr);
}

#[test]
fn nccl_does_not_appear_where_there_is_none() {
    let scratch = Scratch::new();
    let run = scratch.target(program("nccl_odd")).arg("absent").same().expect(0);
    assert_eq!(run.text(), "0000 1\n");
}

#[test]
fn a_copy_that_was_closed_is_not_called_when_another_one_takes_its_place() {
    let scratch = Scratch::new();
    let libraries = [
        stand_in("first", &["-DVALUE=0x11"]),
        stand_in("second", &["-DVALUE=0x22", "-DPADDING"]),
        stand_in("third", &["-DVALUE=0x33"]),
    ];
    let run = scratch.target(program("nccl_odd")).arg("reopen").args(&libraries).same().expect(0);
    assert_eq!(run.text(), "0 0 11 11\n0 0 22 22\n0 0 33 33\n".repeat(3));
    assert_eq!(calls(&run.read())["ncclMemAlloc"], 18);
}

#[test]
fn a_stand_in_that_calls_on_is_one_call() {
    let scratch = Scratch::new();
    let target = with_nccl(&scratch, program("nccl_odd")).arg("forward").arg(stand_in("forward", &[]));
    let run = target.same().expect(0);
    assert_eq!(run.text(), "0 1\n");
    let trace = run.read();
    assert_eq!(calls(&trace)["ncclMemAlloc"], 1);
    assert_eq!(trace.root().nested, 1);
}

#[test]
fn a_communicator_that_is_made_while_recording_is_paused_is_known() {
    let scratch = Scratch::new();
    let run = with_nccl(&scratch, program("nccl_odd")).arg("paused").same().expect(0);
    let trace = run.read();
    trace.assert_balanced();
    let (communicators, collectives) = (trace.table("communicators"), trace.table("collectives"));
    let (made, call) = (communicators.rows().next().expect("it was made"), collectives.rows().next().expect("a call"));
    assert_eq!((communicators.len(), collectives.len()), (1, 1));
    assert_eq!(call.int("communicator"), made.int("communicator"));
    let began = trace.manifest().started_ns;
    assert!(made.int("start_ns") > began && made.int("start_ns") < call.int("start_ns"));
}

#[test]
fn a_collective_that_never_ends_is_in_flight() {
    let scratch = Scratch::new();
    let run = with_nccl(&scratch, program("nccl_odd")).arg("stuck").traced().expect(128 + libc::SIGKILL);
    let trace = run.read();
    trace.assert_balanced();
    let collectives = count(&trace.root(), "collective");
    assert_eq!((collectives.seen, collectives.in_flight), (3, 1), "{collectives:?}");
}
