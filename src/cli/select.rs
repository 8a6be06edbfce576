//! Options that say which part of a trace a command is about; `report`, `check` and `diff` share them.

use std::time::Duration;

use clap::Args;

/// Which rows.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which part of the trace")]
pub(crate) struct Select {
    /// Only these ranks, separated by commas. Default: all
    #[arg(long, value_name = "RANK,...", value_delimiter = ',')]
    pub(crate) rank: Vec<i32>,

    /// Only processes with these pids, separated by commas. Default: all
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pub(crate) pid: Vec<i32>,

    /// Only what began after so many seconds of the trace. Steps are those of the run, and whole ones count. Example: --from 10
    /// --to 12.5
    #[arg(long, value_name = "SECONDS", value_parser = super::record::parse_seconds, allow_negative_numbers = true)]
    pub(crate) from: Option<Duration>,

    /// Only what began before so many seconds of the trace
    #[arg(long, value_name = "SECONDS", value_parser = super::record::parse_seconds, allow_negative_numbers = true)]
    pub(crate) to: Option<Duration>,

    /// Of a trace that has single events in intervals only (record --flight-recorder, --detail), this one, counted from 1. Default:
    /// the last
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["from", "to"], allow_negative_numbers = true)]
    pub(crate) interval: Option<u32>,

    /// Only what lies inside ranges of NVTX of this name, thread by thread, and what the GPU did for launches in there. A star stands
    /// for a number, as in --only ranges ('ProfilerStep#*'). Steps are those of the run, or where these ranges are steps, they
    #[arg(long, value_name = "NAME")]
    pub(crate) range: Option<String>,

    /// Only these steps, counted from 0 with those of warm-up, or this one. Examples: --steps 10..19, --steps 10
    #[arg(long, value_name = "FIRST..LAST|N", value_parser = parse_steps)]
    pub(crate) steps: Option<(usize, usize)>,

    /// Only calls for, and work of, one GPU: by its ordinal in each process (--device 1; with CUDA_VISIBLE_DEVICES applied, as CUDA
    /// counts), or by its UUID or the begin of it (--device GPU-3f2a). Processes that use other GPUs alone are left out; what names
    /// no GPU stays
    #[arg(long, value_name = "ORDINAL|UUID")]
    pub(crate) device: Option<String>,

    /// Ranges named so with NVTX are the steps, whatever number their names end with (--step forward); else a step is from one call
    /// of that name to the next: a kernel (--step sample_tokens) or a function (--step cuStreamSynchronize, from end to end). Numbers are
    /// taken for --steps (--step 10..19, --step 10)
    #[arg(long, value_name = "NAME")]
    pub(crate) step: Option<String>,
}

impl Select {
    /// The steps to keep, however they were given.
    pub(crate) fn kept_steps(&self) -> Option<(usize, usize)> {
        self.steps.or_else(|| parse_steps(self.step.as_ref()?).ok())
    }

    /// The name of the ranges or calls that are steps.
    pub(crate) fn step_name(&self) -> Option<&String> {
        self.step.as_ref().filter(|step| parse_steps(step).is_err())
    }
}

/// `10..19`: the first and the last; `10`: one.
fn parse_steps(text: &str) -> Result<(usize, usize), String> {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let pair = number(first).zip(number(last));
    let (first, last) = pair.ok_or("expected the first and the last step, such as 10..19, or one, such as 10")?;
    if last < first {
        return Err("the last step comes before the first".to_owned());
    }
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_steps_are_told_from_names() {
        let select = |step: &str| Select { step: Some(step.to_owned()), ..Select::default() };
        assert_eq!((select("3..9").kept_steps(), select("3..9").step_name()), (Some((3, 9)), None));
        assert_eq!((select("a..b").kept_steps(), select("a..b").step_name()), (None, Some(&"a..b".to_owned())));
        assert_eq!((select("12").kept_steps(), select("12").step_name()), (Some((12, 12)), None));
        assert_eq!((parse_steps("7..7"), parse_steps("7")), (Ok((7, 7)), Ok((7, 7))));
        assert!(["9..3", "-1..3", "-1", "3..", "", ".."].iter().all(|text| parse_steps(text).is_err()));
    }
}
