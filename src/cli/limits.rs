//! Options of `record` that say how much of the trace is kept, and for how long.

use std::time::Duration;

use clap::Args;

/// How much is kept, and for how long.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct LimitArgs {
    /// Largest size of the trace on this node, in bytes or with K, M, G, T (powers of 1024)
    ///
    /// Beyond it the oldest sealed files are removed, single events before sums; summary, report and manifest say from when to when
    /// that was. Example: --max-size 20G
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) max_size: u64,

    /// How long anything stays in the trace while it is recorded: with s, m, h or d, in seconds without
    ///
    /// Files whose newest row is older are removed, those of rollups too. Names, stacks and rows of processes stay: the rest means
    /// nothing without them. What is left when the run ends stays. Example: --max-age 30d
    #[arg(long, value_name = "TIME", value_parser = parse_age, allow_hyphen_values = true)]
    pub(crate) max_age: Option<Duration>,

    /// How long single events stay in the trace while it is recorded; their sums in rollups stay longer
    ///
    /// Files of calls, kernels and ranges whose newest row is older are removed. Example: --keep-detail 24h --max-age 30d
    #[arg(long, value_name = "TIME", value_parser = parse_age, allow_hyphen_values = true)]
    pub(crate) keep_detail: Option<Duration>,
}

impl Default for LimitArgs {
    fn default() -> LimitArgs {
        LimitArgs { max_size: 2 << 30, max_age: None, keep_detail: None }
    }
}

impl LimitArgs {
    /// Err: what of it says nothing beside the rest. `sums`: whether there are rollups.
    pub(super) fn check(&self, sums: bool) -> Result<(), String> {
        let Some(keep) = self.keep_detail else { return Ok(()) };
        if !sums {
            return Err("--keep-detail leaves the sums of what it removes: it does not go with --rollup off".to_owned());
        }
        if self.max_age.is_some_and(|age| age <= keep) {
            return Err("--max-age removes detail as well: --keep-detail must be shorter".to_owned());
        }
        Ok(())
    }
}

/// A number of bytes: digits, then nothing or one of K, M, G, T, or KiB and the like, all powers of 1024, of which there may be fractions.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err("expected a size such as 500000, 64M or 2G".to_owned()),
    };
    let bytes = match number.parse::<u64>() {
        Ok(number) => number.checked_mul(1 << shift),
        Err(_) => {
            let number = number.parse::<f64>().ok().filter(|_| shift > 0);
            let number = number.ok_or_else(|| "expected a size such as 500000, 64M or 2G".to_owned())?;
            // More than there is becomes the most.
            Some((number * (1u64 << shift) as f64).round() as u64).filter(|bytes| *bytes < u64::MAX)
        }
    };
    bytes.filter(|n| *n > 0).ok_or_else(|| "expected a size of 1 byte to 16,777,215T".to_owned())
}

/// A number with its unit, ms, s, m, h or d; of seconds without one.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "ms" => Some(1e-3),
        "s" | "" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        "d" => Some(86_400.0),
        _ => None,
    };
    let number = number.parse::<f64>().ok();
    let time = number.zip(seconds).and_then(|(number, unit)| Duration::try_from_secs_f64(number * unit).ok());
    time.filter(|time| *time <= MOST).ok_or_else(|| format!("{text}: expected a time such as 500ms, 1s, 5m or 24h"))
}

/// Nobody keeps a trace for longer.
const MOST: Duration = Duration::from_secs(10 * 366 * 86_400);

/// A time from a second on.
fn parse_age(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time < Duration::from_secs(1) { Err("expected a time of a second or more".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_units_and_detail_goes_before_its_sums() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(
            (parse_age("24h"), parse_age("1.5d"), parse_age("90")),
            (Ok(hours(24)), Ok(hours(36)), Ok(hours(1) / 40))
        );
        for wrong in ["", "h", "0", "999ms", "-1h", "1w", "1e9d", "nan"] {
            assert!(parse_age(wrong).is_err(), "{wrong}");
        }
        let both = LimitArgs { max_age: Some(hours(48)), keep_detail: Some(hours(24)), ..LimitArgs::default() };
        assert!(both.check(true).is_ok() && both.check(false).is_err() && LimitArgs::default().check(false).is_ok());
        assert!(LimitArgs { max_age: Some(hours(24)), ..both }.check(true).is_err());
    }
}
