//! What of a session may be set while it runs, as `KEY=VALUE`: times in seconds, sizes in bytes, `off` for never.

use std::fmt;
use std::time::Duration;

/// Something that may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A GPU that idles for so long is a moment worth keeping.
    DumpGpuIdle(Option<Duration>),
    /// A kernel that is new after so long is one.
    DumpNewKernel(Option<Duration>),
    /// A wait of so many times what is usual is one.
    DumpSlow(Option<u32>),
    /// A step of so many times the median is one.
    DumpSlowStep(Option<u32>),
    /// A call that stands still for so long hangs.
    HangAfter(Option<Duration>),
    /// How long single events stay.
    KeepDetail(Option<Duration>),
    /// How long anything stays.
    MaxAge(Option<Duration>),
    /// How large the trace may be.
    MaxSize(u64),
}

impl Setting {
    /// What a word says; none: nothing that this version knows.
    pub fn of(word: &str) -> Option<Setting> {
        let (key, value) = word.split_once('=')?;
        let time = || Some(if value == "off" { None } else { Some(seconds(value)?) });
        let times = || Some(if value == "off" { None } else { Some(value.parse().ok().filter(|times| *times > 1)?) });
        Some(match key {
            "dump-gpu-idle" => Setting::DumpGpuIdle(time()?),
            "dump-new-kernel" => Setting::DumpNewKernel(time()?),
            "dump-slow" => Setting::DumpSlow(times()?),
            "dump-slow-step" => Setting::DumpSlowStep(times()?),
            "hang-after" => Setting::HangAfter(time()?),
            "keep-detail" => Setting::KeepDetail(time()?),
            "max-age" => Setting::MaxAge(time()?),
            "max-size" => Setting::MaxSize(value.parse().ok().filter(|bytes| *bytes > 0)?),
            _ => return None,
        })
    }
}

/// A time of more than nothing.
fn seconds(value: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(value.parse().ok()?).ok().filter(|time| !time.is_zero())
}

impl fmt::Display for Setting {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: Option<Duration>| time.map_or("off".to_owned(), |time| time.as_secs_f64().to_string());
        let times = |times: Option<u32>| times.map_or("off".to_owned(), |times| times.to_string());
        let (key, value) = match *self {
            Setting::DumpGpuIdle(of) => ("dump-gpu-idle", time(of)),
            Setting::DumpNewKernel(of) => ("dump-new-kernel", time(of)),
            Setting::DumpSlow(of) => ("dump-slow", times(of)),
            Setting::DumpSlowStep(of) => ("dump-slow-step", times(of)),
            Setting::HangAfter(of) => ("hang-after", time(of)),
            Setting::KeepDetail(of) => ("keep-detail", time(of)),
            Setting::MaxAge(of) => ("max-age", time(of)),
            Setting::MaxSize(bytes) => ("max-size", bytes.to_string()),
        };
        write!(to, "{key}={value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_what_its_word_says() {
        let (time, times) = (Some(Duration::from_millis(1500)), Some(3));
        let all = [
            Setting::DumpGpuIdle(time),
            Setting::DumpNewKernel(time),
            Setting::DumpSlow(times),
            Setting::DumpSlowStep(None),
            Setting::HangAfter(time),
            Setting::KeepDetail(None),
            Setting::MaxAge(time),
            Setting::MaxSize(1 << 40),
        ];
        assert!(all.iter().all(|setting| Setting::of(&setting.to_string()) == Some(*setting)));
        let wrong = ["hang-after", "hang-after=", "hang-after=0", "hang-after=-1", "hang-after=nan", "max-size=off"];
        let wrong = wrong.iter().chain(&["max-size=0", "dump-slow=1", "dump-slow=x", "budget=1", "max-age=1e300"]);
        wrong.for_each(|word| assert_eq!(Setting::of(word), None, "{word}"));
    }
}
