//! The name of the trace folder: what `-o` says, or one that tells the command and the time.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// What the `%` letters of `-o` stand for in this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) rank: Option<String>,
    pub(crate) job: Option<String>,
}

/// Variables in which launchers of distributed runs give the rank, in the order in which they are believed.
const RANK: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
/// Variables in which batch systems give the job's id.
const JOB: [&str; 5] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID"];

impl Place {
    /// From the environment and the kernel.
    pub(crate) fn here() -> Place {
        let first = |names: &[&str]| names.iter().find_map(|n| std::env::var(n).ok().filter(|v| !v.is_empty()));
        Place { host: host(), pid: std::process::id(), rank: first(&RANK), job: first(&JOB) }
    }

    /// `pattern` with its `%h %p %r %j %%` replaced.
    pub(crate) fn expand(&self, pattern: &str) -> Result<PathBuf> {
        let mut path = String::new();
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                path.push(letter);
                continue;
            }
            match letters.next() {
                Some('%') => path.push('%'),
                Some('h') => path.push_str(&self.host),
                Some('p') => path.push_str(&self.pid.to_string()),
                Some('r') => match &self.rank {
                    Some(rank) => path.push_str(&safe(rank)),
                    None => bail!("-o {pattern}: %r needs a rank, and none of {} is set", RANK.join(", ")),
                },
                Some('j') => match &self.job {
                    Some(job) => path.push_str(&safe(job)),
                    None => bail!("-o {pattern}: %j needs a job id, and none of {} is set", JOB.join(", ")),
                },
                other => {
                    let given = other.map_or(String::new(), String::from);
                    bail!(
                        "-o {pattern}: %{given} is not known; %h host, %p pid, %r rank, %j job id, %% a percent sign"
                    );
                }
            }
        }
        Ok(PathBuf::from(path))
    }
}

/// This host's name, made safe for file names.
pub(crate) fn host() -> String {
    let mut bytes = [0u8; 256];
    // SAFETY: the buffer is as long as the call is told, and one byte stays zero.
    unsafe { libc::gethostname(bytes.as_mut_ptr().cast(), bytes.len() - 1) };
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(0);
    let name = safe(&String::from_utf8_lossy(&bytes[..end]));
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// Letters that need no quoting anywhere; others become `_`.
fn safe(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    text.chars().map(|c| if keep(c) { c } else { '_' }).collect()
}

/// `gputrace-<command>-<UTC time>`.
pub(crate) fn default_name(command: &OsStr, now: SystemTime) -> String {
    let base = Path::new(command).file_name().unwrap_or(OsStr::new("command"));
    let base: String = safe(&base.to_string_lossy()).chars().take(40).collect();
    format!("gputrace-{base}-{}", utc(now))
}

/// The moment as `YYYYMMDDTHHMMSSZ`.
pub(crate) fn utc(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()) as i64;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a number of days since 1970-01-01, counting years from March so that leap days come last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_letters_of_o_are_replaced_and_unknown_ones_refused() {
        let place = Place { host: "n1".into(), pid: 42, rank: Some("3".into()), job: Some("7/8".into()) };
        assert_eq!(place.expand("t-%h-%p-%r-%j-%%").unwrap(), Path::new("t-n1-42-3-7_8-%"));
        assert!(place.expand("t-%x").unwrap_err().to_string().contains("%x is not known"));
        assert!(place.expand("t-%").is_err());
        let alone = Place { rank: None, job: None, ..place };
        assert!(alone.expand("%r").unwrap_err().to_string().contains("RANK"));
        assert!(alone.expand("%j").unwrap_err().to_string().contains("SLURM_JOB_ID"));
    }

    #[test]
    fn the_default_name_tells_the_command_and_the_time() {
        let at = |s| UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!(default_name(OsStr::new("/usr/bin/py thon"), at(0)), "gputrace-py_thon-19700101T000000Z");
        assert_eq!(default_name(OsStr::new("a"), at(951_827_696)), "gputrace-a-20000229T123456Z");
        assert_eq!(default_name(OsStr::new("a"), at(1_735_689_599)), "gputrace-a-20241231T235959Z");
        assert_eq!(default_name(OsStr::new("a"), at(4_107_542_400)), "gputrace-a-21000301T000000Z");
    }
}
