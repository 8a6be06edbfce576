//! What chaos is told.

use std::path::PathBuf;
use std::time::Duration;

/// What it is told, and what holds unless told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arguments {
    /// How long rounds of new seeds go on.
    pub(crate) time: Duration,
    /// The seed from which those of all rounds follow.
    pub(crate) master: Option<u64>,
    /// The seed of the only round.
    pub(crate) only: Option<u64>,
    /// The command under test, if it is not to be built.
    pub(crate) gputrace: Option<PathBuf>,
}

/// How it is called.
pub(crate) const USAGE: &str = "usage: chaos [--minutes 30] [--seed MASTER] [--only SEED] [--gputrace PATH]
Runs random programs under gputrace, mistreats both, and checks what gputrace promises after each round.
  --minutes N      for how long; a fraction is allowed. The seeds in tests/chaos/seeds come first, whatever time they take
  --seed MASTER    the seed from which those of all rounds follow; a new one unless told
  --only SEED      this round alone, as a failed one is repeated
  --gputrace PATH  the command under test, with its libraries and the simulated driver beside it; built unless told
Exit code: 0 when every round went well, 1 when one did not, 2 when it could not begin.";

impl Arguments {
    /// Reads them. Err: what is wrong, or how it is called.
    pub(crate) fn read(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut arguments = Arguments { time: Duration::from_secs(30 * 60), ..Arguments::default() };
        let mut words = words;
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.clone(), None),
            };
            if !["--minutes", "--seed", "--only", "--gputrace"].contains(&name.as_str()) {
                return Err(USAGE.to_owned());
            }
            let value = value.or_else(|| words.next()).ok_or_else(|| format!("{name} needs a value"))?;
            let seed = || value.parse::<u64>().map_err(|_| format!("{name} {value}: expected a whole number"));
            match name.as_str() {
                "--minutes" => {
                    let minutes: Option<f64> = value.parse().ok().filter(|minutes| (0.0..1e5).contains(minutes));
                    let minutes = minutes.ok_or_else(|| format!("--minutes {value}: expected a number"))?;
                    arguments.time = Duration::from_secs_f64(minutes * 60.0);
                }
                "--seed" => arguments.master = Some(seed()?),
                "--only" => arguments.only = Some(seed()?),
                _ => arguments.gputrace = Some(PathBuf::from(value)),
            }
        }
        Ok(arguments)
    }
}

/// The seeds in a file: a number a line, `#` begins a comment.
pub(crate) fn seeds(text: &str) -> Result<Vec<u64>, String> {
    let lines =
        text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty());
    lines.map(|line| line.parse().map_err(|_| format!("{line} is no seed"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, String> {
        Arguments::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read_in_both_ways() {
        let all = read("--minutes=0.5 --seed 7 --only 9 --gputrace /g").unwrap();
        assert_eq!((all.time, all.master, all.only), (Duration::from_secs(30), Some(7), Some(9)));
        assert_eq!(all.gputrace, Some(PathBuf::from("/g")));
        assert_eq!(read("").unwrap().time, Duration::from_secs(1800));
        for wrong in ["--help", "--minutes", "--minutes x", "--seed -1", "seed"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seeds_stand_a_line_each_with_their_stories() {
        assert_eq!(seeds("# head\n12  # a story\n\n 34\n"), Ok(vec![12, 34]));
        assert!(seeds("12 34").is_err());
    }

    #[test]
    fn the_file_of_seeds_can_be_read() {
        assert!(seeds(include_str!("../seeds")).is_ok());
    }
}
