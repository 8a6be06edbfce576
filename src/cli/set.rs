//! Options of `set`.

use clap::Args;
use gputrace_collectors::Setting;

use super::limits::{parse_size, parse_time};

/// Options of `set`.
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "gputrace set [SESSION|PID|TRACE] KEY=VALUE...",
    after_help = "Keys, as the options of record: hang-after, max-size, max-age, keep-detail; and of a session with a flight recorder \
                  dump-slow, dump-slow-step, dump-new-kernel, dump-gpu-idle. Values as there, or off. Prints the folder of the trace; the manifest notes \
                  what was set. Should gputrace be killed, the one that goes on has what the session began with.\n\nExit code: 0 when all was set; 1 if the session refuses, which then \
                  leaves all as it was; 2 if there is no such session or key.\n\nExamples:\n  gputrace set hang-after=60\n  \
                  gputrace set 4711 dump-slow=10 dump-gpu-idle=5s\n  gputrace set serve-trace max-size=50G keep-detail=12h"
)]
pub(crate) struct SetArgs {
    /// The session, as for start, unless there is only one; then what is set
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub(crate) words: Vec<String>,
}

impl SetArgs {
    /// The session, if one is named, and what is to be set. Err: what is wrong with it.
    pub(crate) fn read(&self) -> Result<(Option<&str>, Vec<Setting>), String> {
        let (session, words) = match self.words.split_first() {
            Some((first, rest)) if !first.contains('=') => (Some(first.as_str()), rest),
            _ => (None, self.words.as_slice()),
        };
        if words.is_empty() {
            return Err(format!("nothing to set: expected KEY=VALUE, with a key of {KEYS}"));
        }
        words.iter().map(|word| setting(word)).collect::<Result<_, _>>().map(|settings| (session, settings))
    }
}

const KEYS: &str =
    "dump-gpu-idle, dump-new-kernel, dump-slow, dump-slow-step, hang-after, keep-detail, max-age, max-size";

/// What a word of the command line says, whose times and sizes have units.
fn setting(word: &str) -> Result<Setting, String> {
    let (key, value) =
        word.split_once('=').ok_or_else(|| format!("{word}: expected KEY=VALUE, with a key of {KEYS}"))?;
    let is = |keys: &[&str]| keys.contains(&key);
    let plain = match value {
        "off" => value.to_owned(),
        "0" if key == "hang-after" => "off".to_owned(),
        _ if is(&["dump-gpu-idle", "dump-new-kernel", "hang-after", "keep-detail", "max-age"]) => {
            parse_time(value).map_err(|error| format!("{key}: {error}"))?.as_secs_f64().to_string()
        }
        _ if is(&["max-size"]) => parse_size(value).map_err(|error| format!("{key}: {error}"))?.to_string(),
        _ if is(&["dump-slow", "dump-slow-step"]) => value.to_owned(),
        _ => return Err(format!("{key}: what may be set is {KEYS}")),
    };
    Setting::of(&format!("{key}={plain}")).ok_or_else(|| format!("{key} cannot be {value}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(words: &[&str]) -> Result<(Option<String>, Vec<Setting>), String> {
        let args = SetArgs { words: words.iter().map(|word| (*word).to_owned()).collect() };
        args.read().map(|(session, settings)| (session.map(str::to_owned), settings))
    }

    #[test]
    fn a_session_may_be_named_before_what_is_set() {
        let (hang, size) = (Setting::HangAfter(Some(Duration::from_secs(60))), Setting::MaxSize(50 << 30));
        assert_eq!(read(&["hang-after=1m", "max-size=50G"]), Ok((None, vec![hang, size])));
        assert_eq!(read(&["4711", "hang-after=0"]), Ok((Some("4711".to_owned()), vec![Setting::HangAfter(None)])));
        assert_eq!(read(&["dump-slow=off"]), Ok((None, vec![Setting::DumpSlow(None)])));
        let unknown = read(&["budget=1"]).unwrap_err();
        assert!(unknown.contains("what may be set is ") && unknown.contains(KEYS), "{unknown}");
        for wrong in [&["4711"][..], &["hang-after=soon"], &["max-size=off"], &["dump-slow=1"], &["a", "b"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
