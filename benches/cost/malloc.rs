//! ns added to a malloc+free pair of 16..512 bytes, by mode and by the depth of the stack that allocates; heaptrack beside it.
//!
//! The pairs come from one place, so most of a stack is what it was: the best case of whoever remembers stacks, and heaptrack's
//! too, which has a tree of them. `benches/malloc_programs.py` has programs.

use std::process::Command;

use super::{Bench, Spread, lines};

/// Frames between `main` and the loop.
const DEPTHS: [&str; 3] = ["1", "5", "30"];

/// A way to run the program.
struct Mode {
    name: &'static str,
    options: &'static [&'static str],
}

const MODES: [Mode; 6] = [
    Mode { name: "none", options: &[] },
    Mode { name: "off", options: &["--malloc", "off"] },
    Mode { name: "sample", options: &["--malloc", "sample"] },
    Mode { name: "full without stacks", options: &["--malloc", "full", "--malloc-stacks", "off"] },
    Mode { name: "full", options: &["--malloc", "full"] },
    Mode { name: HEAPTRACK, options: &[] },
];
const HEAPTRACK: &str = "heaptrack";

pub(super) fn measure(bench: &Bench) {
    let program = bench.compile("malloc_cost", &["malloc_cost.c", "-lpthread"]);
    let has_heaptrack = Command::new(HEAPTRACK).arg("--version").output().is_ok();
    for depth in DEPTHS {
        let mut times = MODES.map(|mode| (mode, Vec::new()));
        for _ in 0..5 {
            for (mode, times) in &mut times {
                let mut command = match mode.name {
                    "none" => Command::new(&program),
                    HEAPTRACK if !has_heaptrack => continue,
                    HEAPTRACK => {
                        let mut command = Command::new(HEAPTRACK);
                        command.arg("-o").arg(bench.work.join("heap")).arg(&program);
                        command
                    }
                    _ => bench.traced("malloc", mode.options, &program),
                };
                command.args(["31", "50000", "1", "512", depth]);
                times.extend(lines(&mut command).iter().filter_map(|l| l.parse::<f64>().ok()));
                if mode.name == "full" {
                    println!("malloc full: {}", bench.lost("malloc"));
                }
            }
        }
        let spreads = times.map(|(mode, times)| (mode.name, Spread::of(times)));
        let added = |name: &str| {
            let median = |name: &str| spreads.iter().find(|(n, _)| *n == name).map_or(f64::NAN, |(_, s)| s.median);
            median(name) - median("none")
        };
        for (name, spread) in &spreads {
            let share = match *name {
                "none" | "off" | HEAPTRACK => String::new(),
                _ => format!(", heaptrack's is {:.1} times that", added(HEAPTRACK) / added(name)),
            };
            println!("malloc {name}, {depth} deep: ns per pair {spread}, added {:.2}{share}", added(name));
        }
    }
}
