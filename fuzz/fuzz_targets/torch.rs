//! `torch` of `src/fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gputrace_fuzz::run("torch", data));
