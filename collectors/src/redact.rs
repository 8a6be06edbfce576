//! What of a command line is nobody's business: values whose names say so, passwords in addresses, and keys by their look.
//!
//! A trace is copied, mailed and kept. Command lines are the only texts of a program's own in it that hold secrets as a rule: of
//! the environment a few named variables are read (ranks and job ids), of memory nothing. What is recognised is replaced before it
//! is written anywhere; what is not stays, so a secret under a name of its own needs that name (`--redact NAME`).

use serde::{Deserialize, Serialize};

use crate::facts::quote;

/// What stands in place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Names, and parts of names between `-`, `_` and `.`, whose values are secrets.
const NAMES: [&str; 16] = [
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "pw",
    "pwd",
    "secret",
    "secrets",
    "token",
];
/// What makes a secret of a `key` behind it.
const KEYS: [&str; 12] = [
    "access",
    "account",
    "api",
    "encryption",
    "license",
    "openai",
    "private",
    "session",
    "signing",
    "ssh",
    "stripe",
    "wandb",
];
/// How keys of well-known services begin.
const LOOKS: [&str; 11] =
    ["AKIA", "ASIA", "eyJ", "ghp_", "github_pat_", "glpat-", "hf_", "nvapi-", "sk-", "xoxb-", "xoxp-"];
/// Such a key has at least so many characters.
const SHORTEST_KEY: usize = 16;

/// What is replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redact {
    /// Nothing is.
    pub off: bool,
    /// Names of options and variables whose values are secrets as well, in small letters, with `-` between words.
    pub names: Vec<String>,
}

impl Redact {
    /// The words of a command line, without what is secret.
    pub fn words(&self, words: &[String]) -> Vec<String> {
        if self.off {
            return words.to_vec();
        }
        let mut is_next = false;
        words.iter().map(|word| self.word(word, &mut is_next)).collect()
    }

    /// Arguments, each ended by a zero byte, as one would type them.
    pub(crate) fn command_line(&self, bytes: &[u8]) -> String {
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        if bytes.is_empty() {
            return String::new();
        }
        let words: Vec<String> = bytes.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
        self.words(&words).iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
    }

    /// A word; of one that has several in it, such as a script of a shell, each. `is_next`: it is the value of the one before.
    fn word(&self, word: &str, is_next: &mut bool) -> String {
        if word.contains(char::is_whitespace) && !*is_next {
            let mut inside = false;
            return word
                .split_inclusive(char::is_whitespace)
                .map(|part| {
                    let text = part.trim_end();
                    format!("{}{}", self.one(text, &mut inside), &part[text.len()..])
                })
                .collect();
        }
        self.one(word, is_next)
    }

    fn one(&self, word: &str, is_next: &mut bool) -> String {
        let is_value = std::mem::take(is_next);
        if word.is_empty() {
            *is_next = is_value;
            return String::new();
        }
        if is_value && !word.starts_with('-') {
            // `Authorization: Bearer abc`: the scheme is none.
            *is_next = matches!(word.to_lowercase().as_str(), "bearer" | "basic");
            return if *is_next { word.to_owned() } else { REDACTED.to_owned() };
        }
        if let Some((name, value)) = word.split_once('=')
            && self.is_secret(name)
        {
            return if value.is_empty() { word.to_owned() } else { format!("{name}={REDACTED}") };
        }
        let is_name = word.starts_with('-') || word.ends_with(':') || word.eq_ignore_ascii_case("bearer");
        *is_next = is_name && self.is_secret(word.trim_end_matches(':'));
        without_keys(&without_password(word))
    }

    /// Whether the value of an option or a variable of this name is a secret.
    fn is_secret(&self, name: &str) -> bool {
        // `-H 'Authorization: x'`, `"password`: quotes belong to nobody's name.
        let plain = name.trim_end_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        // `--config={"password": "x"}`: the last of what stands there is the name.
        let is_of_none = |c: char| !c.is_alphanumeric() && !"-_.".contains(c);
        let plain = plain.rsplit(is_of_none).next().unwrap_or_default().trim_matches(['-', '_', '.']);
        let parts: Vec<&str> = plain.split(['-', '_', '.']).collect();
        let is_key = |pair: &[&str]| matches!(pair, [of, "key"] if KEYS.contains(of));
        self.names.contains(&parts.join("-"))
            || parts.iter().any(|part| NAMES.contains(part))
            || parts.windows(2).any(is_key)
    }
}

/// `scheme://user:password@host` without its password.
fn without_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
        Some((user, host)) => format!("{scheme}://{user}:{REDACTED}@{host}{}", &rest[authority.len()..]),
        None => word.to_owned(),
    }
}

/// A word without what looks like a key of a well-known service.
fn without_keys(word: &str) -> String {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let part = |run: &str| {
        let is_key = run.len() >= SHORTEST_KEY && LOOKS.iter().any(|look| run.starts_with(look));
        // One of AWS may have no digit, and is all capitals.
        let is_plain = run.contains(|c: char| c.is_ascii_lowercase()) && !run.contains(|c: char| c.is_ascii_digit());
        if is_key && !is_plain { REDACTED.to_owned() } else { run.to_owned() }
    };
    let mut out = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let run = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        out.push_str(&part(&rest[..run]));
        let between = rest[run..].find(is_of_key).map_or(rest.len(), |at| run + at);
        out.push_str(&rest[run..between]);
        rest = &rest[between..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(redact: &Redact, line: &[&str]) -> Vec<String> {
        redact.words(&line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_of_secret_names_are_replaced_and_others_stay() {
        let usual = Redact::default();
        for (line, expected) in [
            (&["--password", "hunter2"][..], &["--password", "[redacted]"][..]),
            (&["--db-password=a=b"], &["--db-password=[redacted]"]),
            (&["WANDB_API_KEY=abc", "HF_TOKEN="], &["WANDB_API_KEY=[redacted]", "HF_TOKEN="]),
            (&["--api-key", "--verbose", "x"], &["--api-key", "--verbose", "x"]),
            (&["curl", "-H", "Authorization: Bearer abc"], &["curl", "-H", "Authorization: Bearer [redacted]"]),
            (&["sh", "-c", "run --token abc && echo done"], &["sh", "-c", "run --token [redacted] && echo done"]),
            (&["s3://me:pw@host/a?b", "http://host:80/@x"], &["s3://me:[redacted]@host/a?b", "http://host:80/@x"]),
            (&["login", "hf_abcdefghijklm0123"], &["login", "[redacted]"]),
            (&["a:sk-abcdefghijklm0123,b"], &["a:[redacted],b"]),
            (&["AKIAABCDEFGHIJKLMNOP"], &["[redacted]"]),
            (
                &["--ssh-key", "x", "STRIPE_KEY=x", "--cookie=x"],
                &["--ssh-key", "[redacted]", "STRIPE_KEY=[redacted]", "--cookie=[redacted]"],
            ),
            (&["--config={\"lr\": 1, \"password\": \"x\"}"], &["--config={\"lr\": 1, \"password\": [redacted]"]),
        ] {
            assert_eq!(redacted(&usual, line), expected, "{line:?}");
        }
        let plain =
            ["python", "train.py", "--max-tokens", "512", "--tokenizer=gpt2", "--sort-key", "a", "sk-learn", "--lr=1"];
        assert_eq!(redacted(&usual, &plain), plain);
    }

    #[test]
    fn who_asks_has_other_names_or_nothing_replaced() {
        let line = ["--run-id", "7", "RUN_ID=7", "--password", "x"];
        let more = Redact { names: vec!["run-id".to_owned()], ..Redact::default() };
        assert_eq!(redacted(&more, &line), ["--run-id", REDACTED, "RUN_ID=[redacted]", "--password", REDACTED]);
        assert_eq!(redacted(&Redact { off: true, ..more }, &line), line);
    }

    #[test]
    fn commands_are_quoted_for_a_shell() {
        assert_eq!(
            Redact::default().command_line(b"python3\0-c\0print('a b')\0\0"),
            r"python3 -c 'print('\''a b'\'')' ''"
        );
        assert_eq!(Redact::default().command_line(b"true\0"), "true");
        assert_eq!(Redact::default().command_line(b""), "");
    }
}
