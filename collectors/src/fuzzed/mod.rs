//! What reads bytes that others wrote, each as a function of any bytes: for the fuzzer, and for a test that plays what it found.
//!
//! Not part of the collector: it is there in tests, and where cargo-fuzz builds (`fuzz/`, `--cfg fuzzing`). A target panics when a promise
//! is broken; that it comes back at all, within its memory, is promised by each. `fuzz/corpus/<target>` has inputs that once broke one,
//! or that reach far; the test plays them, and changes of them whose seed is fixed.
#![cfg_attr(fuzzing, allow(missing_docs, unreachable_pub, reason = "the fuzzer's own"))]

mod input;
mod journal;
mod manifest;
mod recover;
mod ring;
mod segment;
#[cfg(test)]
#[path = "../../../fuzz/shared/short.rs"]
mod short;

/// A target's name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// The targets, sorted.
pub const TARGETS: [Target; 11] = [
    ("control", crate::control::fuzzed::control),
    ("hello", crate::arrivals::fuzzed::hello),
    ("journal", journal::journal),
    ("manifest", manifest::manifest),
    ("orders", crate::serve::fuzzed::orders),
    ("perf_map", crate::symbols::fuzzed::perf_map),
    ("recover", recover::recover),
    ("ring", ring::ring),
    ("segment", segment::segment),
    ("symbols", crate::symbols::fuzzed::symbols),
    ("unwind", crate::outside::fuzzed::unwind),
];

/// A folder that is as fast as memory where there is one, by the name of its target and of this process.
pub(crate) fn folder(target: &str) -> std::path::PathBuf {
    let shared = std::path::Path::new("/dev/shm");
    let root = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    root.join(format!("gputrace-fuzz-{target}-{}-{thread}", std::process::id()))
}

#[cfg(test)]
#[test]
fn inputs_that_broke_a_reader_once_and_changes_of_them_are_read_to_an_end() {
    for (target, run) in TARGETS {
        short::play(target, run);
    }
}
