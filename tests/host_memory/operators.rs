//! C++'s operators new and delete of allocators that do not come to their own malloc: each call once, whichever library makes it.

use crate::util::{Scratch, Trace, cpp_program_with, needs, system_library};

/// How often the program does each thing.
const COUNT: usize = 50;

const PRELOADED: [&str; 3] = ["libtcmalloc_minimal.so.4", "libjemalloc.so.2", "libmimalloc.so.2.0"];

/// The program's arguments: what it opens, and that it fails, which ends a process that has mimalloc.
fn arguments(allocator: &str) -> Vec<String> {
    let shared = ["-shared", "-fPIC", "-DPLUGIN"];
    let plugin = cpp_program_with("operators", "plugin.so", &shared);
    let own = cpp_program_with("operators", "own.so", &[&shared[..], &["-DOWN", "-Wl,-Bsymbolic"]].concat());
    let fails = (!allocator.contains("mimalloc")).then(|| "fails".to_owned());
    let files = [COUNT.to_string(), plugin.display().to_string(), own.display().to_string()];
    files.into_iter().chain(fails).collect()
}

/// How many blocks of so many bytes were allocated, and how many freed.
fn blocks(trace: &Trace, bytes: i64) -> (usize, usize) {
    let table = trace.table("host_memory");
    let of = |action| table.rows().filter(|row| row.text("action") == action && row.int("bytes") == bytes).count();
    (of("alloc"), of("free"))
}

/// Each size of the program and how often it has it.
fn sizes() -> impl Iterator<Item = (i64, usize)> {
    let others = [(70_002, COUNT), (80_001, 4 * COUNT), (90_001, COUNT), (90_003, 20), (33_333, COUNT)];
    (60_001..60_009).map(|bytes| (bytes, COUNT)).chain(others)
}

fn counts_are_exact(trace: &Trace, what: &str) {
    for (bytes, count) in sizes() {
        assert_eq!(blocks(trace, bytes), (count, count), "{what}: {bytes}");
    }
    assert!(trace.table("host_memory").rows().all(|row| (0..=1 << 50).contains(&row.int("bytes"))), "{what}");
    let notes = trace.root().notes;
    assert!(!notes.iter().any(|note| note.contains("operator new")), "{what}: {notes:?}");
}

#[test]
fn operators_of_a_preloaded_allocator_are_each_seen_once() {
    if !needs(&["c++"]) {
        return;
    }
    let scratch = Scratch::new();
    for (name, path) in PRELOADED.iter().filter_map(|name| Some((name, system_library(name)?))) {
        let target = |options: &[&str]| {
            let target = scratch.target(cpp_program_with("operators", "", &[])).args(arguments(name));
            target.env("LD_PRELOAD", &path).options(options).same().expect(0).read()
        };
        counts_are_exact(&target(&["--malloc", "full"]), name);
        // One sample in two blocks, about.
        let sampled = target(&["--malloc", "sample=100000"]);
        let (all, freed) =
            sizes().map(|(bytes, _)| blocks(&sampled, bytes)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert!((200..550).contains(&all) && freed == all, "{name}: {all} {freed}");
        let culled = target(&["--malloc", "full", "--cull", "10000"]);
        let table = culled.table("host_memory");
        let pairs: i64 = table.rows().filter(|row| row.text("action") == "culled").map(|row| row.int("calls")).sum();
        let told = sizes().map(|(bytes, _)| blocks(&culled, bytes).0).sum::<usize>();
        let wanted = sizes().map(|(_, count)| count).sum::<usize>();
        assert!(pairs as usize + told >= wanted && pairs as usize >= wanted / 2, "{name}: {pairs} {told} {wanted}");
    }
}

#[test]
fn a_program_that_replaces_some_operators_has_the_others_of_the_allocator() {
    if !needs(&["c++"]) {
        return;
    }
    let scratch = Scratch::new();
    for (name, path) in PRELOADED.iter().filter_map(|name| Some((name, system_library(name)?))) {
        let target = scratch.target(cpp_program_with("operators", "replaced", &["-DREPLACED"]));
        let target = target.args(&arguments("")[..3]);
        let trace = target.env("LD_PRELOAD", &path).options(["--malloc", "full"]).same().expect(0).read();
        counts_are_exact(&trace, name);
    }
}

#[test]
fn operators_of_a_linked_allocator_are_each_seen_once_however_they_are_bound() {
    let name = "libtcmalloc_minimal.so.4";
    if !needs(&["c++"]) || system_library(name).is_none() {
        return;
    }
    let scratch = Scratch::new();
    for (tag, binding) in [("lazy", "-Wl,-z,lazy"), ("now", "-Wl,-z,now"), ("fixed", "-no-pie")] {
        let linked = ["-Wl,--no-as-needed", &format!("-l:{name}"), "-Wl,--as-needed", binding];
        let program = cpp_program_with("operators", &format!("linked-{tag}"), &linked);
        let trace = scratch.target(program).args(arguments(name)).options(["--malloc", "full"]).same().expect(0).read();
        counts_are_exact(&trace, tag);
    }
}

#[test]
fn a_program_without_such_an_allocator_keeps_its_operators() {
    if !needs(&["c++"]) {
        return;
    }
    let scratch = Scratch::new();
    let target = scratch.target(cpp_program_with("operators", "", &[])).args(arguments(""));
    let trace = target.options(["--malloc", "full"]).same().expect(0).read();
    // libstdc++'s come to malloc; with an alignment they ask for a multiple of it.
    for (bytes, count) in sizes().filter(|(bytes, _)| !(60_005..60_009).contains(bytes)) {
        assert_eq!(blocks(&trace, bytes), (count, count), "{bytes}");
    }
}
