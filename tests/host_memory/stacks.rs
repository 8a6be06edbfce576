//! Whose line allocated: native stacks of allocations, in every function and on every kind of stack.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::util::{Scratch, Trace, needs, program_by, program_with};

const FLAGS: [&str; 3] = ["-O2", "-fno-builtin", "-fomit-frame-pointer"];

fn program() -> PathBuf {
    program_with("alloc_stacks", "program", &FLAGS)
}

/// The stacks of all blocks of each size, innermost function first and as far as `main`; a block without a stack has none.
fn stacks(trace: &Trace) -> HashMap<i64, Vec<Vec<String>>> {
    let frames = trace.stacks(|row| row.text("function").to_owned());
    let mut blocks: HashMap<i64, Vec<Vec<String>>> = HashMap::new();
    let table = trace.table("host_memory");
    for row in table.rows().filter(|row| row.text("action") == "alloc" && row.int("bytes") >= 40_000) {
        let stack = row.maybe_int("stack_id").map_or_else(Vec::new, |id| {
            let all: Vec<String> = frames.of(id).cloned().collect();
            let end = all.iter().position(|function| function == "main").map_or(all.len(), |at| at + 1);
            all.into_iter().take(end).collect()
        });
        blocks.entry(row.int("bytes")).or_default().push(stack);
    }
    blocks
}

fn run(program: PathBuf, ways: &[&str], options: &[&str]) -> HashMap<i64, Vec<Vec<String>>> {
    let scratch = Scratch::new();
    let target = scratch.target(program).args(ways).options(["--malloc", "full"]).options(options);
    let trace = target.same().expect(0).read();
    trace.assert_balanced();
    stacks(&trace)
}

#[test]
fn each_function_of_the_family_has_its_caller() {
    let blocks = run(program(), &["functions"], &[]);
    let functions = ["by_malloc", "by_calloc", "by_realloc", "by_memalign", "by_aligned_alloc", "by_posix_memalign"];
    for (function, bytes) in functions.iter().zip([40_001, 40_002, 40_003, 40_004, 40_064, 40_006]) {
        assert_eq!(blocks[&bytes], [[*function, "main"]], "{bytes}");
    }
}

#[test]
fn operator_new_is_between_malloc_and_its_caller() {
    if !needs(&["g++"]) {
        return;
    }
    let flags = ["-xc++", "-std=gnu++17", "-O2", "-fno-builtin", "-Wno-error", "-w"];
    let blocks = run(program_by("g++", "alloc_stacks", "new", &flags), &["functions"], &[]);
    let [stack] = &blocks[&40_007][..] else { panic!("{blocks:?}") };
    assert_eq!(stack[stack.len() - 2..], ["by_new", "main"]);
    assert!(stack[0].starts_with("_Znw") || stack[0].is_empty() || stack[0].contains("new"), "{stack:?}");
}

#[test]
fn an_inlined_function_stands_before_the_one_that_it_is_in() {
    let blocks = run(program(), &["inlined"], &[]);
    assert_eq!(blocks[&40_010], [["inlined", "around_inlined", "main"]]);
}

#[test]
fn a_recursion_is_cut_where_stacks_end() {
    let blocks = run(program(), &["deep"], &[]);
    assert_eq!(blocks[&40_011], [vec!["deep"; 1024]]);
}

/// Its functions below those of Python are told once, also where one of them is inlined.
#[test]
fn what_two_functions_of_python_call_has_the_callers_of_each() {
    let library = program_with("alloc_stacks", "called.so", &["-O2", "-g", "-shared", "-fPIC", "-DLIBRARY=40030"]);
    let script = "import ctypes, sys\nlibrary = ctypes.CDLL(sys.argv[1])\ndef one(): library.around_there()\n\
                  def other(): library.around_there()\none()\nother()\none()\n";
    let scratch = Scratch::new();
    let target = scratch.target("python3").args(["-c", script]).arg(library);
    let trace = target.options(["--malloc", "full"]).traced().expect(0).read();
    let stacks = &stacks(&trace)[&40_031];
    let callers = stacks.iter().map(|stack| {
        assert_eq!(stack[..2], ["inlined_there", "around_there"], "{stack:?}");
        let module = stack.iter().position(|function| function == "<module>").expect("Python's outermost function");
        assert!(stack.len() > module + 1, "{stack:?}");
        stack[module - 1].as_str()
    });
    assert_eq!(callers.collect::<Vec<_>>(), ["one", "other", "one"]);
    let table = trace.table("stacks");
    let rows: Vec<_> = table.rows().filter(|row| row.text("function") == "inlined_there").collect();
    let told = rows.iter().filter(|row| row.maybe_int("outer_id").is_none()).count();
    assert_eq!((rows.len(), told), (4, 1), "by itself, and called in three places");
}

/// At its end the recursion is deeper than is looked at, and on its way back where what was looked at ends.
#[test]
fn a_recursion_that_comes_back_has_its_own_callers() {
    let blocks = run(program(), &["back"], &[]);
    for (bytes, down) in [(40_021, 1024), (40_022, 211)] {
        let with = |side: &'static str| [vec!["down"; down], vec![side; 1024 - down]].concat();
        assert_eq!(blocks[&bytes], [with("left"), with("right")], "{bytes}");
    }
}

#[test]
fn frames_that_change_their_size_and_call_sites_in_turn_have_their_own_stacks() {
    let blocks = run(program(), &["turns", "frames"], &[]);
    assert_eq!(blocks[&40_012], vec![["here_and_there", "main"]; 50]);
    assert_eq!(blocks[&40_013], vec![["here_and_there", "main"]; 50]);
    assert_eq!(blocks[&40_014], vec![["in_changing_frame", "changing", "main"]; 100]);
}

#[test]
fn a_callback_of_libc_has_those_who_called_libc() {
    let blocks = run(program(), &["callback"], &[]);
    let stacks = &blocks[&40_015];
    assert!(stacks.len() > 50);
    assert!(
        stacks.iter().all(|stack| stack[0] == "compared" && stack.last().is_some_and(|f| f == "main")),
        "{stacks:?}"
    );
}

#[test]
fn stacks_that_the_program_made_itself_are_harmless_and_the_others_right() {
    let blocks = run(program(), &["signal", "coroutine"], &[]);
    // Where a stack ends that is not the thread's own is not known: none is taken, or one that stays in it.
    for (bytes, count, function) in [(40_016, 100, "on_signal"), (40_017, 50, "in_coroutine")] {
        assert_eq!(blocks[&bytes].len(), count);
        assert!(blocks[&bytes].iter().all(|stack| stack.first().is_none_or(|first| first == function)), "{blocks:?}");
    }
    assert!(blocks[&40_001].iter().all(|stack| stack[..2] == ["by_malloc", "with_alternate_stack"]), "{blocks:?}");
    assert_eq!(blocks[&40_018], vec![["resume", "main"]; 50]);
}

#[test]
fn a_library_in_the_place_of_another_has_its_own_functions() {
    let libraries = [40_101, 40_102, 40_103].map(|bytes| {
        let size = format!("-DLIBRARY={bytes}");
        program_with("alloc_stacks", &format!("{bytes}.so"), &["-O2", "-fno-builtin", "-shared", "-fPIC", &size])
    });
    let mut ways: Vec<&str> = libraries.iter().map(|path| path.to_str().expect("a plain path")).collect();
    ways.extend(ways.clone());
    let blocks = run(program(), &ways, &[]);
    for bytes in [40_101, 40_102, 40_103] {
        let function = format!("in_library_{bytes}");
        assert_eq!(blocks[&bytes], vec![[function.as_str(), "enter", "main"]; 6], "{bytes}");
    }
}

#[test]
fn a_library_that_is_opened_by_a_relative_path_has_its_functions_when_the_process_is_gone() {
    let flags = ["-O2", "-fno-builtin", "-shared", "-fPIC", "-DLIBRARY=40101"];
    let library = program_with("alloc_stacks", "40101.so", &flags);
    let (folder, name) =
        (library.parent().expect("a folder").display(), library.file_name().expect("a name").display());
    let scratch = Scratch::new();
    let target = scratch.shell(&format!("cd {folder} && exec {} ./{name}", program().display()));
    let blocks = stacks(&target.options(["--malloc", "full"]).same().expect(0).read());
    assert_eq!(blocks[&40_101], vec![["in_library_40101", "enter", "main"]; 3]);
}

#[test]
fn a_forked_child_has_stacks_of_its_own() {
    let blocks = run(program(), &["functions", "child"], &[]);
    assert_eq!(blocks[&40_019], [["in_child", "main"]]);
}

#[test]
fn stacks_of_allocations_are_left_out_where_nobody_wants_them() {
    for options in [["--malloc-stacks", "off"], ["--stacks", "off"]] {
        let blocks = run(program(), &["functions", "frames"], &options);
        assert!(blocks.len() > 5 && blocks.values().flatten().all(Vec::is_empty), "{options:?}: {blocks:?}");
    }
}
