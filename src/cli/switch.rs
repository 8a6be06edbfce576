//! Options of `start` and `stop`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use gputrace_collectors::Capture;

use super::record::parse_seconds;

/// Options of `start`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Prints the folder of the trace. Exit code: 0 when all processes of the session were told, or the session knows when to tell \
                        them; 1 if it does not answer; 2 if there is no such session, or several and none was named.\n\nExamples:\n  gputrace --start-paused -o trace -- python \
                        train.py &\n  gputrace start; sleep 10; gputrace stop\n  gputrace start --for 10\n  \
                        at=$(($(date +%s) + 5)); for host in a b; do ssh $host gputrace start --at $at --for 10; done\n  gputrace report trace"
)]
pub(crate) struct StartArgs {
    /// The session: the pid of gputrace or of a process that it traces, the folder of its trace, or its own folder. Default: the
    /// only one of this user, but for sessions of collect with a folder of their own
    #[arg(value_name = "SESSION|PID|TRACE")]
    pub(crate) session: Option<String>,

    /// When recording begins: +SECONDS from now, or seconds since the Unix epoch
    ///
    /// So all ranks of a job begin at the same time of the wall clock, whenever each hears of it; until then recording is off. Example: --at +5
    #[arg(long, value_name = "WHEN", value_parser = parse_at)]
    pub(crate) at: Option<At>,

    /// How long it stays on, in seconds
    ///
    /// Example: --for 10
    #[arg(long = "for", value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) length: Option<Duration>,

    /// How often it is switched on, in seconds of the wall clock; with --for
    ///
    /// Example: --for 2 --every 60
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) every: Option<Duration>,
}

/// Options of `stop`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Prints the folder of the trace. Exit code: 0 when all processes of the session were told; 1 if it does not answer; 2 if there \
                        is no such session, or several and none was named.\n\nExample:\n  gputrace start; sleep 10; gputrace stop"
)]
pub(crate) struct StopArgs {
    /// The session, as for start. Default: the only one of this user
    #[arg(value_name = "SESSION|PID|TRACE")]
    pub(crate) session: Option<String>,
}

impl StartArgs {
    /// What the session is asked for. Err: what is wrong with it.
    pub(crate) fn request(&self) -> Result<String, String> {
        Capture::check(self.length, self.every, ["--for", "--every"])?;
        if self.at.is_none() && self.length.is_none() {
            return Ok("start".to_owned());
        }
        let from = self.at.unwrap_or(At::In(Duration::ZERO)).since_epoch(SystemTime::now());
        Ok(format!("start {}", Capture::new(from, self.length, self.every)))
    }
}

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum At {
    /// So much later.
    In(Duration),
    /// So long after the Unix epoch.
    Unix(Duration),
}

impl At {
    /// How long after the Unix epoch.
    fn since_epoch(self, now: SystemTime) -> Duration {
        match self {
            At::In(time) => now.duration_since(UNIX_EPOCH).unwrap_or_default() + time,
            At::Unix(time) => time,
        }
    }
}

fn parse_at(text: &str) -> Result<At, String> {
    let seconds = |text: &str| {
        let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        seconds.ok_or_else(|| "expected +SECONDS, or seconds since the Unix epoch as date +%s prints them".to_owned())
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match text.strip_prefix('+') {
        Some(later) => {
            Some(At::In(seconds(later)?)).filter(|at| !matches!(at, At::In(time) if *time > Capture::LATEST))
        }
        None => Some(seconds(text)?).filter(|at| at.abs_diff(now) <= Capture::LATEST).map(At::Unix),
    }
    .ok_or_else(|| {
        "more than a week away: expected +SECONDS, or seconds since the Unix epoch as date +%s prints them".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_so_much_later_or_a_time_of_the_wall_clock() {
        assert_eq!(parse_at("+2.5"), Ok(At::In(Duration::from_millis(2500))));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(parse_at(&now.as_secs().to_string()), Ok(At::Unix(Duration::from_secs(now.as_secs()))));
        for wrong in ["", "+", "soon", "12:30", "5", "+-1", "-5", "+9999999", "nan"] {
            assert!(parse_at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_session_is_told_when_and_how_long() {
        let s = |seconds| Some(Duration::from_secs(seconds));
        let args = |at, length, every| StartArgs { session: None, at, length, every };
        assert_eq!(args(None, None, None).request(), Ok("start".to_owned()));
        let at = Some(At::Unix(Duration::from_secs(9)));
        assert_eq!(
            args(at, s(2), s(60)).request(),
            Ok("start from=9000000000 for=2000000000 every=60000000000".to_owned())
        );
        assert_eq!(args(at, None, None).request(), Ok("start from=9000000000".to_owned()));
        assert!(args(None, None, s(60)).request().unwrap_err().contains("--every says how often"));
        assert!(args(None, s(60), s(60)).request().is_err());
    }
}
