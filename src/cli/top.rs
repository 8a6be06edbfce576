//! Options of `top`.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::top::PROCESSES;

/// Options of `top`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace top [OPTIONS] [SESSION|PID|TRACE]",
    after_help = "Keys: q quits, h lists the others.\n\nExit code: 0 when it was ended by a key, or its frame was printed; 1 if the session does not \
                  answer; 2 if there is no such session and no such trace, or several sessions and none was named.\n\nExamples:\n  \
                  gputrace top\n  gputrace top 4711 --sort gpu\n  gputrace top --once | head -n 4\n  gputrace top train-trace"
)]
pub(crate) struct TopArgs {
    /// The session: the pid of gputrace or of a process that it traces, the folder of its trace, or its own folder. Default: the
    /// only one of this user, but for sessions of collect with a folder of their own. Of a trace that is finished the whole run is
    /// shown, with means of its time, and of device memory the most that each process had at once
    #[arg(value_name = "SESSION|PID|TRACE")]
    pub(crate) session: Option<String>,

    /// Look this often, in seconds from 0.1 to 3600. The session is not asked more often, and the program not at all
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval, allow_negative_numbers = true)]
    pub(crate) interval: Duration,

    /// Print one frame as text, of what happens within a second, and end. So it is where stdout is no terminal
    #[arg(long)]
    pub(crate) once: bool,

    /// Sort the processes by this column
    #[arg(long, value_name = "COLUMN", default_value = "launches", value_parser = columns())]
    pub(crate) sort: String,
}

fn columns() -> PossibleValuesParser {
    PossibleValuesParser::new(PROCESSES.iter().map(|column| column.name))
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 0.1 to 3600".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_neither_so_short_that_it_costs_nor_without_end() {
        assert_eq!(interval("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("2.5"), Ok(Duration::from_millis(2500)));
        ["0", "0.09", "-1", "nan", "inf", "1e9", "", "1s"]
            .into_iter()
            .for_each(|text| assert!(interval(text).is_err(), "{text}"));
    }
}
