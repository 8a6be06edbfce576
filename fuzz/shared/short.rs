//! The fuzzer that needs nothing but this toolchain: what stands in a target's corpus, and changes of it whose seed is fixed.
//!
//! Shared by the tests of the collectors and of the command. It has no feedback, so that it finds little that is new: it keeps what was
//! found, and finds what a change of the code broke for good. `GPUTRACE_FUZZ_RUNS` asks for more changes than a test has time for.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// Changes of inputs that are tried of a target.
const RUNS: u64 = 400;
/// An input does not grow beyond this.
const MOST_BYTES: usize = 64 << 10;

/// Plays a target's corpus, and changes of it. The input that failed is kept, and named.
pub(crate) fn play(target: &str, run: fn(&[u8])) {
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "fuzz/corpus/{target} is empty");
    corpus.iter().for_each(|(path, input)| tried(path, input, run));
    let runs = std::env::var("GPUTRACE_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let mut random = Random(target.bytes().fold(1, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into())));
    for _ in 0..runs {
        let (of, with) = (random.below(corpus.len()), random.below(corpus.len()));
        let input = changed(&corpus[of].1, &corpus[with].1, &mut random);
        let path = std::env::temp_dir().join(format!("gputrace-fuzz-{target}-{}", random.0));
        tried(&path, &input, run);
    }
}

/// The inputs of a target by their names: the same order everywhere.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder =
        package.ancestors().map(|folder| folder.join("fuzz/corpus").join(target)).find(|folder| folder.is_dir());
    let entries = folder.into_iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let mut all: Vec<_> = entries.map(|entry| (entry.path(), fs::read(entry.path()).expect("an input"))).collect();
    all.sort();
    all
}

fn tried(path: &Path, input: &[u8], run: fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
        if !path.exists() {
            let _ = fs::write(path, input);
        }
        eprintln!("this input failed: {}", path.display());
        resume_unwind(panic);
    }
}

/// A few changes, each of a kind that damage, or somebody's will, may make.
fn changed(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let length = random.below((bytes.len() - at).min(32) + 1);
        match random.below(8) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'9', b'"', b'-'][random.below(8)],
            3 => drop(bytes.drain(at..at + length)),
            4 => drop(bytes.splice(at..at, std::iter::repeat_n(random.next() as u8, length).collect::<Vec<_>>())),
            5 => {
                let (from, count) = (random.below(other.len() + 1), random.below(64));
                let part: Vec<u8> = other[from..].iter().take(count).copied().collect();
                let end = at + length;
                bytes.splice(at..end, part);
            }
            6 => {
                let word = random.next() >> random.below(64);
                bytes.iter_mut().skip(at).zip(word.to_le_bytes()).for_each(|(byte, new)| *byte = new);
            }
            7 => bytes.truncate(at.max(bytes.len() / 2)),
            _ => {}
        }
        bytes.truncate(MOST_BYTES);
    }
    bytes
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.0 ^ self.0 >> 29
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 8) as usize % bound.max(1)
    }
}
