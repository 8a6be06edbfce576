//! Options of `record` that say which single events are kept.

use std::time::Duration;

use clap::Args;
use clap::builder::ArgPredicate;
use gputrace_collectors::detail::{Detail, QUEUE_BYTES, Triggers};

use super::limits::{parse_size, parse_time};
use super::record::parse_seconds;

/// What `--detail triggered` keeps before a trigger.
const BEFORE: Duration = Duration::from_secs(5);

/// Which single events.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct DetailArgs {
    /// Which single events are kept: full, windows=LENGTH/PERIOD, triggered or rollup
    ///
    /// full keeps all. windows=1s/60s keeps those that begin in the first second of each minute of the wall clock, on all hosts at
    /// the same moments. triggered keeps the 5 s before and the second after each of these: gputrace dump asks for it, SIGRTMAX is
    /// sent to gputrace, a call of the driver or of NCCL returns an error that its process never had before, NVML tells of a
    /// critical Xid error, a signal ends a process, a call hangs, the command ends with another exit code than 0. rollup keeps none. Names, stacks, processes, counters and the
    /// account of all calls are kept always. Example: --detail windows=1s/60s
    #[arg(long, value_name = "WHAT", default_value = "full", value_parser = parse)]
    #[arg(default_value_if("flight_recorder", ArgPredicate::IsPresent, "triggered"))]
    pub(crate) detail: DetailKind,

    /// Keep only the last seconds before something happens: --detail triggered with so many, 30 unless told
    ///
    /// Example: --flight-recorder 60
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "30", value_parser = parse_recorder, allow_negative_numbers = true)]
    pub(crate) flight_recorder: Option<Duration>,

    /// Memory for events that wait for something to happen, in bytes or with K, M, G (powers of 1024)
    ///
    /// Where they take more, less than was asked for is kept before it, and the summary says how much. 256M unless told.
    /// Example: --flight-recorder-memory 1G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) flight_recorder_memory: Option<u64>,

    /// A wait for the GPU that took more than so many times what is usual is something that happens, too
    ///
    /// Usual is the 99th percentile of the waits of that function in that process so far, from the 200th on; waits below a millisecond
    /// are never meant. Goes with --flight-recorder and --detail triggered. Example: --dump-slow 10
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(2..=1_000_000), allow_negative_numbers = true)]
    pub(crate) dump_slow: Option<u32>,

    /// A step that took more than so many times the median of its process is something that happens, too
    ///
    /// A step is a range that the program or its framework calls so (step, train_step 7, ProfilerStep#12, iteration, batch); the
    /// median is that of those so far, from the 20th on. Goes with --flight-recorder and --detail triggered.
    /// Example: --dump-slow-step 3
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(2..=1_000_000), allow_negative_numbers = true)]
    pub(crate) dump_slow_step: Option<u32>,

    /// A kernel that a process launches for the first time, after so long without a new one, is something that happens, too
    ///
    /// With ms, s or m, in seconds without. While a program starts its kernels are new one after another; of those that come together
    /// later (a validation, say) the first one counts. Kernels of graphs show where the GPU's work is recorded (--gpu-time full). Goes
    /// with --flight-recorder and --detail triggered. Example: --dump-new-kernel 60s
    #[arg(long, value_name = "TIME", value_parser = parse_idle, allow_hyphen_values = true)]
    pub(crate) dump_new_kernel: Option<Duration>,

    /// A GPU that was busy and has run nothing for so long is something that happens, too: with ms, s or m, in seconds without
    ///
    /// As NVML says, --counters times a second; once, until it is busy again. The recorder should hold more than that. Goes with
    /// --flight-recorder and --detail triggered. Example: --dump-gpu-idle 10s
    #[arg(long, value_name = "TIME", value_parser = parse_idle, allow_hyphen_values = true)]
    pub(crate) dump_gpu_idle: Option<Duration>,
}

/// What `--detail` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DetailKind {
    /// All.
    #[default]
    Full,
    /// Those of windows: length and period.
    Windows(Duration, Duration),
    /// Those around triggers.
    Triggered,
    /// None.
    Rollup,
}

impl DetailArgs {
    /// Err: what of it says nothing beside the rest.
    /// `counters`: whether they are read.
    pub(super) fn check(&self, counters: bool) -> Result<(), String> {
        if self.flight_recorder.is_some() && !self.is_triggered() {
            return Err("--flight-recorder is --detail triggered: no other --detail goes with it".to_owned());
        }
        if self.flight_recorder_memory.is_some() && !self.is_triggered() {
            return Err(
                "--flight-recorder-memory belongs to --flight-recorder or --detail triggered: nothing else waits in memory"
                    .to_owned(),
            );
        }
        let dumps = [
            ("--dump-slow", self.dump_slow.is_some()),
            ("--dump-slow-step", self.dump_slow_step.is_some()),
            ("--dump-new-kernel", self.dump_new_kernel.is_some()),
            ("--dump-gpu-idle", self.dump_gpu_idle.is_some()),
        ];
        if let Some((name, _)) = dumps.iter().find(|(_, given)| *given && !self.is_triggered()) {
            return Err(format!("{name} belongs to --flight-recorder or --detail triggered: nothing else is dumped"));
        }
        if self.dump_gpu_idle.is_some() && !counters {
            return Err("--dump-gpu-idle asks NVML: it does not go with --counters off".to_owned());
        }
        Ok(())
    }

    /// Whether events wait for something to happen.
    pub(crate) fn is_triggered(&self) -> bool {
        self.detail == DetailKind::Triggered
    }

    /// For the collector.
    pub(crate) fn wanted(&self) -> Detail {
        let bytes = self.flight_recorder_memory.unwrap_or(QUEUE_BYTES);
        let also = Triggers {
            slow: self.dump_slow,
            slow_step: self.dump_slow_step,
            gpu_idle: self.dump_gpu_idle,
            new_kernel: self.dump_new_kernel,
        };
        match self.detail {
            DetailKind::Triggered => Detail::Triggered { before: self.flight_recorder.unwrap_or(BEFORE), bytes, also },
            DetailKind::Windows(length, period) => Detail::Windows { length, period },
            DetailKind::Rollup => Detail::Rollup,
            DetailKind::Full => Detail::Full,
        }
    }
}

fn parse(text: &str) -> Result<DetailKind, String> {
    match text {
        "full" => return Ok(DetailKind::Full),
        "triggered" => return Ok(DetailKind::Triggered),
        "rollup" => return Ok(DetailKind::Rollup),
        _ => {}
    }
    let expected = "expected full, windows=LENGTH/PERIOD such as windows=1s/60s, triggered or rollup";
    let (length, period) = text.strip_prefix("windows=").and_then(|pair| pair.split_once('/')).ok_or(expected)?;
    let (length, period) = (parse_time(length)?, parse_time(period)?);
    if period > MOST {
        return Err("nobody waits longer than a week for a window".to_owned());
    }
    if length.is_zero() || length >= period {
        return Err("a window must be longer than nothing and shorter than its period".to_owned());
    }
    Ok(DetailKind::Windows(length, period))
}

/// The longest period of windows.
const MOST: Duration = Duration::from_secs(7 * 24 * 3600);

/// A time from a tenth of a second on.
fn parse_idle(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time < Duration::from_millis(100) { Err("expected 100ms or more".to_owned()) } else { Ok(time) }
}

/// A number of seconds from a tenth of one to an hour.
fn parse_recorder(text: &str) -> Result<Duration, String> {
    let time = parse_seconds(text)?;
    let fits = (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&time);
    if fits { Ok(time) } else { Err("expected a number of seconds from 0.1 to 3600".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_a_length_and_a_longer_period() {
        let seconds = Duration::from_secs;
        assert_eq!(parse("windows=1s/60s"), Ok(DetailKind::Windows(seconds(1), seconds(60))));
        assert_eq!(parse("windows=500ms/5m"), Ok(DetailKind::Windows(Duration::from_millis(500), seconds(300))));
        for wrong in ["windows", "windows=1s", "windows=2s/1s", "windows=0/1", "windows=1w/2w", "windows=-1/2", "some"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse_recorder("30").is_ok() && parse_recorder("0").is_err() && parse_recorder("1e9").is_err());
    }

    #[test]
    fn a_flight_recorder_is_triggered_and_nothing_else() {
        let triggered = DetailArgs { detail: DetailKind::Triggered, ..DetailArgs::default() };
        let recorder = DetailArgs { flight_recorder: Some(BEFORE), ..triggered };
        assert_eq!(
            recorder.wanted(),
            Detail::Triggered { before: BEFORE, bytes: QUEUE_BYTES, also: Triggers::default() }
        );
        assert!(recorder.check(true).is_ok());
        for other in [DetailKind::Rollup, DetailKind::Full] {
            assert!(DetailArgs { detail: other, ..recorder.clone() }.check(true).is_err());
        }
        let memory = DetailArgs { flight_recorder_memory: Some(1), ..DetailArgs::default() };
        assert!(memory.check(true).is_err());
        assert!(DetailArgs { dump_slow: Some(9), ..DetailArgs::default() }.check(true).is_err());
        assert_eq!(DetailArgs::default().wanted(), Detail::Full);
        let idle = DetailArgs { dump_gpu_idle: Some(BEFORE), ..recorder.clone() };
        assert!(idle.check(true).is_ok() && idle.check(false).is_err());
        let full = DetailArgs { detail: DetailKind::Full, flight_recorder: None, ..idle };
        assert!(full.check(true).is_err());
        assert!(DetailArgs { dump_slow_step: Some(3), ..DetailArgs::default() }.check(true).is_err());
    }
}
