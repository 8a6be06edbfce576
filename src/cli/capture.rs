//! Options of `record` that say when recording is on.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use gputrace_collectors::Capture;

use super::record::parse_seconds;

/// When recording is on.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CaptureArgs {
    /// Record nothing until gputrace start says so, or the program itself does
    ///
    /// By gputrace_resume, or by what --capture-range names. A call costs about 1 ns until then. What the report says is
    /// of the time in which recording was on.
    #[arg(long)]
    pub(crate) start_paused: bool,

    /// What switches recording: none, cudaProfilerApi, nvtx, steps or signal
    ///
    /// cudaProfilerApi records from cudaProfilerStart (cuProfilerStart, torch.cuda.profiler.start) to cudaProfilerStop, as often as
    /// they are called; nvtx the ranges that --nvtx-capture names; steps those that --capture-steps numbers; all of them in each process for itself.
    /// signal switches all processes on or off at each SIGUSR2 that gputrace gets, which the command then does not. Nothing is recorded
    /// before. Example: --capture-range cudaProfilerApi
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) capture_range: Option<CaptureRange>,

    /// Record while an NVTX range of this name is open, and only then; NAME* is any that begins so
    ///
    /// From the begin of the first one to its end, in whatever thread, and so for each that begins later. Example: --nvtx-capture validation
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) nvtx_capture: Option<String>,

    /// Record these steps only, as FIRST..LAST: each process counts its ranges that are steps, from 1
    ///
    /// Ranges that NVTX names ProfilerStep#N, step, iteration, batch or the like, or as --nvtx-capture says. Example: --capture-steps 100..120
    #[arg(long, value_name = "FIRST..LAST", value_parser = parse_steps)]
    pub(crate) capture_steps: Option<Steps>,

    /// Record nothing for so long from the start on, in seconds
    ///
    /// Example: --delay 60 --duration 10
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) delay: Option<Duration>,

    /// Record for so long only, in seconds; the command runs on
    ///
    /// Example: --duration 30
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) duration: Option<Duration>,

    /// Record for --duration each time that so many seconds of the wall clock are over
    ///
    /// So all ranks of a job, on whatever hosts, record at the same time. Example: --duration 2 --capture-every 60
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) capture_every: Option<Duration>,
}

/// What switches recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureRange {
    /// It is on from the start.
    None,
    /// On from cuProfilerStart to cuProfilerStop, which cudaProfilerStart and torch.cuda.profiler.start call.
    #[value(name = "cudaProfilerApi")]
    CudaProfilerApi,
    /// On while a range is open.
    Nvtx,
    /// On from the begin of one step to the end of another.
    Steps,
    /// Switched by each signal.
    Signal,
}

/// The first step and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    first: u32,
    last: u32,
}

impl CaptureArgs {
    /// Err: what of the options says nothing beside the others, or too much.
    pub(crate) fn check(&self) -> Result<(), String> {
        Capture::check(self.duration, self.capture_every, ["--duration", "--capture-every"])?;
        let timed = self.delay.is_some() || self.duration.is_some();
        match self.range()? {
            CaptureRange::CudaProfilerApi | CaptureRange::Nvtx | CaptureRange::Steps if cfg!(target_os = "macos") => {
                Err("CUDA's and NVTX's calls are none of macOS: --delay, --duration, --capture-range signal and gputrace start switch here".to_owned())
            }
            CaptureRange::Nvtx if self.nvtx_capture.is_none() => {
                Err("--capture-range nvtx: which range is to be recorded? --nvtx-capture NAME says it".to_owned())
            }
            CaptureRange::Steps if self.capture_steps.is_none() => {
                Err("--capture-range steps: which steps are to be recorded? --capture-steps FIRST..LAST says it"
                    .to_owned())
            }
            CaptureRange::None if !(timed && self.start_paused) => Ok(()),
            _ if timed => {
                Err("--delay and --duration switch recording by the clock; nothing else does so beside them".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// What switches recording. Err: two things do.
    pub(crate) fn range(&self) -> Result<CaptureRange, String> {
        let named = match (&self.nvtx_capture, self.capture_steps) {
            (_, Some(_)) => Some(CaptureRange::Steps),
            (Some(_), None) => Some(CaptureRange::Nvtx),
            (None, None) => None,
        };
        match (self.capture_range, named) {
            (Some(asked), Some(named)) if asked != named => {
                Err("--nvtx-capture belongs to --capture-range nvtx or steps, --capture-steps to steps: one thing switches recording".to_owned())
            }
            (asked, named) => Ok(asked.or(named).unwrap_or(CaptureRange::None)),
        }
    }

    /// What processes are told, in their environment: how they begin, and what switches them.
    pub(crate) fn variables(&self) -> [(&'static str, String); 2] {
        let range = self.range().unwrap_or(CaptureRange::None);
        let name = self.nvtx_capture.as_deref().unwrap_or_default();
        let by = match (range, self.capture_steps) {
            (CaptureRange::CudaProfilerApi, _) => "profiler".to_owned(),
            (CaptureRange::Steps, Some(Steps { first, last })) => format!("steps {first} {last} {name}"),
            (CaptureRange::Nvtx, _) => format!("nvtx {name}"),
            _ => "off".to_owned(),
        };
        let paused = if self.begins_paused() { "on" } else { "off" };
        [("GPUTRACE_PAUSED", paused.to_owned()), ("GPUTRACE_CAPTURE", by)]
    }

    /// Whether recording is off in processes when they begin.
    pub(crate) fn begins_paused(&self) -> bool {
        let later = self.delay.is_some_and(|delay| !delay.is_zero()) || self.capture_every.is_some();
        self.start_paused || self.range().unwrap_or(CaptureRange::None) != CaptureRange::None || later
    }

    /// What is to switch recording on, said of a run in which it did not come.
    pub(crate) fn awaited(&self) -> Option<String> {
        let name = self.nvtx_capture.as_deref();
        Some(match (self.range().ok()?, self.capture_steps) {
            (CaptureRange::CudaProfilerApi, _) => "neither cudaProfilerStart nor cuProfilerStart was called".to_owned(),
            (CaptureRange::Nvtx, _) => format!("no NVTX range named {} began", name.unwrap_or_default()),
            (CaptureRange::Steps, Some(Steps { first, .. })) => {
                let named = name.map(|name| format!(", of ranges named {name},")).unwrap_or_default();
                format!("step {first}{named} did not begin in any process")
            }
            (CaptureRange::Signal, _) => "gputrace got no SIGUSR2".to_owned(),
            _ if self.start_paused => "nobody switched it on (gputrace start)".to_owned(),
            _ if self.delay.is_some() => "the run ended before --delay was over".to_owned(),
            _ => return None,
        })
    }

    /// What the clock says of a run that starts now.
    pub(crate) fn schedule(&self) -> Option<Capture> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let asked = self.delay.is_some() || self.duration.is_some();
        asked.then(|| Capture::new(now + self.delay.unwrap_or_default(), self.duration, self.capture_every))
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    /// A process keeps no longer name.
    const MOST: usize = 255;
    match text.len() {
        0 => Err("expected the name of a range".to_owned()),
        length if length > MOST || text.contains('\n') => Err(format!("a name has one line of {MOST} bytes at most")),
        _ => Ok(text.to_owned()),
    }
}

fn parse_steps(text: &str) -> Result<Steps, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Steps { first, last }),
        _ => Err("expected FIRST..LAST, counted from 1, such as 100..120".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(change: impl FnOnce(&mut CaptureArgs)) -> CaptureArgs {
        let mut args = CaptureArgs::default();
        change(&mut args);
        args
    }

    #[test]
    fn names_and_steps_say_what_switches() {
        let variables = |args: &CaptureArgs| args.variables().map(|(_, value)| value);
        assert_eq!(variables(&CaptureArgs::default()), ["off", "off"]);
        let named = args(|args| args.nvtx_capture = Some("my range*".to_owned()));
        assert_eq!((named.check(), variables(&named)), (Ok(()), ["on", "nvtx my range*"].map(str::to_owned)));
        let steps = args(|args| args.capture_steps = parse_steps("10..20").ok());
        assert_eq!((steps.check(), variables(&steps)), (Ok(()), ["on", "steps 10 20 "].map(str::to_owned)));
        let delayed = args(|args| args.delay = Some(Duration::from_secs(1)));
        assert_eq!((delayed.check(), variables(&delayed)), (Ok(()), ["on", "off"].map(str::to_owned)));
        assert!(delayed.schedule().is_some() && steps.schedule().is_none());
    }

    #[test]
    fn one_thing_switches_and_says_all() {
        let second = Some(Duration::from_secs(1));
        let wrong = [
            args(|args| args.capture_range = Some(CaptureRange::Nvtx)),
            args(|args| args.capture_range = Some(CaptureRange::Steps)),
            args(|args| args.capture_every = second),
            args(|args| (args.duration, args.capture_every) = (second, second)),
            args(|args| args.duration = Some(Duration::ZERO)),
            args(|args| (args.duration, args.start_paused) = (second, true)),
            args(|args| (args.delay, args.nvtx_capture) = (second, Some("a".to_owned()))),
            args(|args| {
                (args.capture_range, args.nvtx_capture) = (Some(CaptureRange::CudaProfilerApi), Some("a".to_owned()));
            }),
        ];
        wrong.iter().for_each(|args| assert!(args.check().is_err(), "{args:?}"));
        for text in ["", "0..3", "5..3", "a..b", "1..", "-1"] {
            assert!(parse_steps(text).is_err(), "{text}");
        }
        assert_eq!(parse_steps("7"), Ok(Steps { first: 7, last: 7 }));
    }
}
