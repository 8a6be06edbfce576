//! Draws gputrace's options, and knows what follows from them for the checks.

use crate::program::{Driver, Program};
use crate::random::Draw;

/// Options of `gputrace record`.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// As they are given.
    pub(crate) words: Vec<String>,
    /// A call that finds no room waits.
    pub(crate) blocks: bool,
    /// Each block of malloc is an event.
    pub(crate) full_malloc: bool,
    /// There are threads of ours in the target.
    pub(crate) has_threads: bool,
    /// Recording is off at first, or in parts of the run.
    pub(crate) pauses: bool,
    /// How long it waits for children that outlive the command, ms.
    pub(crate) grace_ms: u64,
    /// Rows may be removed.
    pub(crate) removes: bool,
}

/// What of the machine and of the misfortune the choice depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    /// The engine of inline hooks is there.
    pub(crate) inline: bool,
    /// Recording is to begin when `gputrace start` says so.
    pub(crate) switched: bool,
    /// A flight recorder is wanted.
    pub(crate) recorder: bool,
}

impl Options {
    /// The options of a seed.
    pub(crate) fn of(seed: u64, program: &Program, given: Given) -> Options {
        let draw = |name: &str| Draw::of(seed, name);
        let mut words: Vec<String> = Vec::new();
        let mut add = |text: &str| words.extend(text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned));
        let malloc = draw("malloc").weighted(&[
            (3, ""),
            (2, "--malloc off"),
            (2, "--malloc sample=4096"),
            (2, "--malloc full"),
            (1, "--malloc full --mmap"),
            (1, "--malloc full --cull 1"),
            (1, "--malloc full --malloc-stacks off"),
            (2, "--malloc full --malloc-stacks off --cull 2"),
        ]);
        add(malloc);
        let full_malloc = malloc.contains("full");
        let gpu_time = match program.driver {
            Driver::Odd => "",
            _ => draw("gpu-time").weighted(&[
                (5, ""),
                (2, "--gpu-time full"),
                (1, "--gpu-time full --gpu-activity overhead,sync"),
                (2, "--gpu-time windows --gpu-window-every 0.5"),
                (2, "--gpu-time events"),
                (1, "--gpu-time auto --gpu-window-every 0.5"),
            ]),
        };
        add(gpu_time);
        let detail = match given.recorder {
            true => "--flight-recorder 5",
            false => draw("detail").weighted(&[
                (12, ""),
                (1, "--detail rollup"),
                (1, "--detail windows=0.1/0.3"),
                (1, "--detail triggered"),
                (1, "--flight-recorder --flight-recorder-memory 1M"),
            ]),
        };
        add(detail);
        let on_full = draw("on-full").weighted(&[(4, ""), (1, "--on-full drop"), (3, "--on-full block")]);
        add(on_full);
        add(draw("segment-memory").weighted(&[
            (4, ""),
            (2, "--segment-memory 1M"),
            (1, "--segment-memory 2M"),
            (1, "--segment-memory 64M"),
        ]));
        let max_size = draw("max-size").weighted(&[(10, ""), (1, "--max-size 100K"), (1, "--max-size 1M")]);
        add(max_size);
        add(draw("budget").weighted(&[(8, ""), (1, "--budget 0.1"), (1, "--budget 1")]));
        let hooks: &[(u64, &str)] = &[(6, ""), (1, "--hook symbols"), (2, "--hook inline")];
        let hook = draw("hook").weighted(hooks);
        if given.inline || !hook.contains("inline") {
            add(hook);
        }
        let capture = match given.switched {
            true => "--start-paused",
            false => draw("capture").weighted(&[(20, ""), (1, "--delay 0.1"), (1, "--duration 0.2")]),
        };
        add(capture);
        add(draw("stacks").weighted(&[
            (5, ""),
            (1, "--stacks off"),
            (1, "--stacks-over 0 --launch-stacks 1"),
            (1, "--launch-stacks 10"),
        ]));
        add(draw("os").weighted(&[(5, ""), (1, "--os off"), (2, "--os all --os-over 0")]));
        add(draw("nvtx").weighted(&[(5, ""), (1, "--nvtx off")]));
        add(draw("counters").weighted(&[(5, ""), (1, "--counters off"), (1, "--counters 10")]));
        let arenas = draw("malloc-arenas").weighted(&[(9, ""), (1, "--malloc-arenas 0.05")]);
        if !malloc.contains("off") {
            add(arenas);
        }
        let (grace, grace_ms) =
            draw("grace").weighted(&[(6, ("", 2000)), (1, ("--grace 0", 0)), (1, ("--grace 0.3", 300))]);
        add(grace);
        Options {
            blocks: on_full.contains("block") || (full_malloc && on_full.is_empty()),
            full_malloc,
            has_threads: !gpu_time.is_empty() || !arenas.is_empty(),
            pauses: !capture.is_empty(),
            grace_ms,
            removes: !max_size.is_empty(),
            words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_the_options_is_known() {
        for seed in 0..500 {
            let program = Program::of(seed);
            let options = Options::of(seed, &program, Given::default());
            let line = options.words.join(" ");
            assert!(!line.contains("inline"), "{line}");
            assert_eq!(options.full_malloc, line.contains("--malloc full"), "{line}");
            assert_eq!(options.pauses, line.contains("--delay") || line.contains("--duration"), "{line}");
            assert!(!options.blocks || !line.contains("drop"), "{line}");
            assert!(program.driver != Driver::Odd || !line.contains("gpu-time"), "{line}");
        }
    }
}
