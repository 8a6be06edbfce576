//! Options of `record` that are about host memory.

use clap::Args;
use gputrace_collectors::manifest::HostMemory;

use super::limits::parse_size;
use super::record::Switch;

/// Mean distance of two samples of `--malloc sample`, in bytes.
const SAMPLE_BYTES: u64 = 1 << 20;

/// How host memory is recorded.
#[derive(Args, Clone, Debug)]
pub(crate) struct MallocArgs {
    /// How malloc and free are recorded: off, sample, sample=BYTES or full
    ///
    /// sample records one allocation per BYTES allocated on average (1M unless told): a fourth of BYTES has half the error of what
    /// reports estimate, and four times the samples. full records each one, which costs more. Example: --malloc sample=64K
    #[arg(long, value_name = "MODE", default_value = "sample", value_parser = parse_malloc, allow_negative_numbers = true)]
    pub(crate) malloc: Malloc,

    /// Whether recorded allocations get a stack, of Python lines or of native functions: on or off
    ///
    /// As --stacks unless told. Example: --malloc full --malloc-stacks off
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) malloc_stacks: Option<Switch>,

    /// Record memory that the program asks the kernel for, too: mmap, munmap, mremap, brk, sbrk
    ///
    /// Each call that the program or a library makes by its name, with its stack; not those that libc makes for malloc or for
    /// threads. Example: --mmap --malloc full
    #[arg(long)]
    pub(crate) mmap: bool,

    /// Ask glibc's malloc every so many seconds what its arenas hold, and how much of that is free; fractions are allowed
    ///
    /// A thread in each process that is started asks, and each arena is locked while what is free in it is counted: some us, with
    /// a million free blocks some ms. Not of forked children, nor on macOS, whose malloc is another. Example: --malloc-arenas 1
    #[arg(long, value_name = "SECONDS", value_parser = parse_arenas, allow_negative_numbers = true)]
    pub(crate) malloc_arenas: Option<Arenas>,

    /// Sum up allocations that are freed again within so many milliseconds; fractions are allowed
    ///
    /// Each of them and its free would be a row; so they are one for each thread, stack, function and power of two of the size in
    /// about a second. Sums of allocations stay what they were; live memory is without them. Only with --malloc full. With --malloc-stacks
    /// off the process itself sums up blocks below a KiB that their own thread frees, which costs a fraction; lives are known by steps of 5 ms
    /// and more then, so that with a shorter limit blocks of up to two steps count as well. From 0.000001 to 10000.
    /// Example: --malloc full --cull 0.5
    #[arg(long, value_name = "MS", value_parser = parse_cull, allow_negative_numbers = true)]
    pub(crate) cull: Option<Cull>,
}

/// How long a block lives, at most, that is left out, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cull(i64);

/// How long it is between two looks at malloc's arenas, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arenas(u64);

/// How malloc and free are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malloc {
    /// Not at all.
    Off,
    /// One per so many bytes on average.
    Sample(u64),
    /// Each one.
    Full,
}

impl Default for MallocArgs {
    fn default() -> MallocArgs {
        MallocArgs {
            malloc: Malloc::Sample(SAMPLE_BYTES),
            malloc_stacks: None,
            mmap: false,
            malloc_arenas: None,
            cull: None,
        }
    }
}

const STACKS: &str = "GPUTRACE_MALLOC_STACKS";
const MMAP: &str = "GPUTRACE_MMAP";
const ARENAS: &str = "GPUTRACE_MALLOC_ARENAS";
const CULL: &str = "GPUTRACE_CULL";

impl MallocArgs {
    /// Variables that are there only where something differs from the default.
    pub(crate) const SWITCHES: [&str; 4] = [STACKS, MMAP, ARENAS, CULL];

    /// Err: what of them says nothing beside the others.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.cull.is_some() && self.malloc != Malloc::Full {
            return Err("--cull is about blocks of which each is recorded: it belongs to --malloc full".to_owned());
        }
        Ok(())
    }

    /// Whether anything of host memory is recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.malloc != Malloc::Off || self.mmap
    }

    /// What the collector is told. `calls`: whether those of the driver get stacks.
    pub(crate) fn asked(&self, calls: Switch) -> HostMemory {
        let stacks = self.malloc_stacks.unwrap_or(calls) == Switch::On;
        HostMemory { stacks: stacks && self.is_recorded(), mmap: self.mmap, cull_ns: self.cull.map(|Cull(ns)| ns) }
    }

    /// What the shim is told: variables and their values.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let mode = match self.malloc {
            Malloc::Off => "off".to_owned(),
            Malloc::Sample(bytes) => format!("sample:{bytes}"),
            Malloc::Full => "full".to_owned(),
        };
        let mut variables = vec![("GPUTRACE_MALLOC", mode)];
        if let Some(stacks) = self.malloc_stacks {
            let stacks = if stacks == Switch::Off { "off" } else { "on" };
            variables.push((STACKS, stacks.to_owned()));
        }
        if self.mmap {
            variables.push((MMAP, "1".to_owned()));
        }
        if let Some(Arenas(ms)) = self.malloc_arenas {
            variables.push((ARENAS, ms.to_string()));
        }
        if let Some(Cull(ns)) = self.cull {
            variables.push((CULL, ns.to_string()));
        }
        variables
    }
}

pub(super) fn parse_malloc(text: &str) -> Result<Malloc, String> {
    match text {
        "off" => Ok(Malloc::Off),
        "sample" => Ok(Malloc::Sample(SAMPLE_BYTES)),
        "full" => Ok(Malloc::Full),
        _ => match text.strip_prefix("sample=") {
            Some(size) => parse_size(size).map(Malloc::Sample),
            None => Err("expected off, sample, sample=BYTES or full".to_owned()),
        },
    }
}

fn parse_arenas(text: &str) -> Result<Arenas, String> {
    let ms = text.parse::<f64>().ok().map(|seconds| (seconds * 1e3).round()).filter(|ms| (10.0..=1e8).contains(ms));
    ms.map(|ms| Arenas(ms as u64)).ok_or_else(|| "expected seconds from 0.01 to 100000, such as 1 or 0.5".to_owned())
}

fn parse_cull(text: &str) -> Result<Cull, String> {
    let ns = text.parse::<f64>().ok().map(|ms| (ms * 1e6).round()).filter(|ns| (1.0..=1e10).contains(ns));
    ns.map(|ns| Cull(ns as i64))
        .ok_or_else(|| "expected milliseconds from 0.000001 to 10000, such as 1 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: MallocArgs,
    }

    fn args(line: &str) -> MallocArgs {
        Alone::try_parse_from(format!("x {line}").split_whitespace()).unwrap().args
    }

    #[test]
    fn modes_are_parsed_with_their_units() {
        assert_eq!(args("--malloc sample=64K").malloc, Malloc::Sample(65_536));
        assert!(parse_malloc("sometimes").is_err() && parse_malloc("sample=0").is_err());
    }

    #[test]
    fn culling_takes_milliseconds_and_needs_each_allocation() {
        assert_eq!(args("--malloc full --cull 0.25").asked(Switch::On).cull_ns, Some(250_000));
        assert_eq!(args("--malloc full --cull 2").check(), Ok(()));
        for wrong in ["0", "-1", "x", "1e9", "nan", "0.0000001"] {
            assert!(parse_cull(wrong).is_err(), "{wrong}");
        }
        for mode in ["", "--malloc sample=1K", "--malloc off"] {
            let error = args(&format!("{mode} --cull 2")).check().unwrap_err();
            assert!(error.contains("--cull") && error.contains("--malloc full"), "{error}");
        }
    }

    #[test]
    fn looks_at_arenas_are_some_time_apart() {
        assert_eq!(args("--malloc-arenas 2.5").malloc_arenas, Some(Arenas(2500)));
        for wrong in ["0", "0.001", "-1", "1e6", "inf", "x"] {
            assert!(parse_arenas(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_shim_is_told_what_was_asked_for_and_of_the_rest_nothing() {
        assert_eq!(args("").variables(), [("GPUTRACE_MALLOC", "sample:1048576".to_owned())]);
        let all = args("--malloc full --malloc-stacks off --mmap --malloc-arenas 0.25 --cull 1.5").variables();
        let wanted = [
            ("GPUTRACE_MALLOC", "full"),
            ("GPUTRACE_MALLOC_STACKS", "off"),
            ("GPUTRACE_MMAP", "1"),
            ("GPUTRACE_MALLOC_ARENAS", "250"),
            ("GPUTRACE_CULL", "1500000"),
        ];
        assert_eq!(all, wanted.map(|(name, value)| (name, value.to_owned())));
    }
}
