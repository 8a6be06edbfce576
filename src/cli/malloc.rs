//! Options of `record` that are about host memory.

use clap::Args;

use super::record::{Switch, parse_size};

/// Mean distance of two samples of `--malloc sample`, in bytes.
const SAMPLE_BYTES: u64 = 512 << 10;

/// How host memory is recorded.
#[derive(Args, Clone, Debug)]
pub(crate) struct MallocArgs {
    /// How malloc and free are recorded: off, sample, sample=BYTES or full
    ///
    /// sample records one allocation per BYTES allocated on average (512K unless told); full records each one, which
    /// costs more. Example: --malloc sample=64K
    #[arg(long, value_name = "MODE", default_value = "sample", value_parser = parse_malloc)]
    pub(crate) malloc: Malloc,

    /// Whether recorded allocations get a stack, of Python lines or of native functions: on or off
    ///
    /// --stacks is about calls of the driver and leaves this as it is. Example: --malloc full --malloc-stacks off
    #[arg(long, value_enum, value_name = "WHAT", default_value = "on")]
    pub(crate) malloc_stacks: Switch,

    /// Record memory that the program asks the kernel for, too: mmap, munmap, mremap, brk, sbrk
    ///
    /// Each call that the program or a library makes by its name, with its stack; not those that libc makes for malloc or for
    /// threads. Example: --mmap --malloc full
    #[arg(long)]
    pub(crate) mmap: bool,
}

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
        MallocArgs { malloc: Malloc::Sample(SAMPLE_BYTES), malloc_stacks: Switch::On, mmap: false }
    }
}

const STACKS: &str = "GPUTRACE_MALLOC_STACKS";
const MMAP: &str = "GPUTRACE_MMAP";

impl MallocArgs {
    /// Variables that are there only where something differs from the default.
    pub(crate) const SWITCHES: [&str; 2] = [STACKS, MMAP];

    /// What the shim is told: variables and their values.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let mode = match self.malloc {
            Malloc::Off => "off".to_owned(),
            Malloc::Sample(bytes) => format!("sample:{bytes}"),
            Malloc::Full => "full".to_owned(),
        };
        let mut variables = vec![("GPUTRACE_MALLOC", mode)];
        if self.malloc_stacks == Switch::Off {
            variables.push((STACKS, "off".to_owned()));
        }
        if self.mmap {
            variables.push((MMAP, "1".to_owned()));
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
    fn the_shim_is_told_what_was_asked_for_and_of_the_rest_nothing() {
        assert_eq!(args("").variables(), [("GPUTRACE_MALLOC", "sample:524288".to_owned())]);
        let all = args("--malloc full --malloc-stacks off --mmap").variables();
        let wanted = [("GPUTRACE_MALLOC", "full"), ("GPUTRACE_MALLOC_STACKS", "off"), ("GPUTRACE_MMAP", "1")];
        assert_eq!(all, wanted.map(|(name, value)| (name, value.to_owned())));
    }
}
