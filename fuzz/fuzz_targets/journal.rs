//! `journal` of `collectors/src/fuzzed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gputrace_fuzz::run("journal", data));
