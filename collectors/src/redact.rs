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
const NAMES: [&str; 20] = [
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "pgpass",
    "pw",
    "pwd",
    "secret",
    "secrets",
    "sig",
    "signature",
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
        let mut next = Next::Plain;
        words.iter().map(|word| self.word(word, &mut next)).collect()
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

    /// A word; of one that has several in it, such as a script of a shell, each.
    fn word(&self, word: &str, next: &mut Next) -> String {
        if word.contains(char::is_whitespace) && *next != Next::Secret {
            // `--password=two words`: a word of a command line that is a name and its value.
            if let Some((name, _)) = word.split_once('=').filter(|(name, _)| !name.contains(char::is_whitespace))
                && self.is_secret(name)
            {
                *next = Next::Plain;
                return format!("{name}={REDACTED}");
            }
            let (mut inside, mut open) = (Next::Plain, None);
            *next = Next::Plain;
            return word
                .split_inclusive(char::is_whitespace)
                .map(|part| {
                    let text = part.trim_end();
                    let space = &part[text.len()..];
                    // A secret of several words goes on to its closing quote.
                    if let Some(quote) = open {
                        open = open.filter(|_| !text.contains(quote));
                        return if open.is_some() { String::new() } else { space.to_owned() };
                    }
                    let shown = self.one(text, &mut inside);
                    let is_odd = |quote: &char| text.matches(*quote).count() % 2 == 1;
                    open = ['"', '\''].into_iter().find(is_odd).filter(|_| shown.ends_with(REDACTED));
                    if open.is_some() { shown } else { shown + space }
                })
                .collect();
        }
        self.one(word, next)
    }

    fn one(&self, word: &str, next: &mut Next) -> String {
        if word.is_empty() {
            return String::new();
        }
        let is = std::mem::take(next);
        if is == Next::Secret && !word.starts_with("--") {
            // `Authorization: Bearer abc`: the scheme is none.
            let is_scheme = matches!(word.to_lowercase().as_str(), "bearer" | "basic");
            *next = if is_scheme { Next::Secret } else { Next::Plain };
            return if is_scheme { word.to_owned() } else { REDACTED.to_owned() };
        }
        let (option, rest) = word.strip_prefix("-u").map_or(("", word), |rest| ("-u", rest));
        if let Some(user) = user_of(rest).filter(|_| is == Next::User || !option.is_empty()) {
            return format!("{option}{user}:{REDACTED}");
        }
        if let Some(name) = self.name_in_pair(word) {
            return format!("{name}{REDACTED}");
        }
        let is_name = word.starts_with('-') || word.ends_with(':') || word.eq_ignore_ascii_case("bearer");
        *next = match word {
            _ if is_name && self.is_secret(word.trim_end_matches(':')) => Next::Secret,
            "-u" | "--user" | "--proxy-user" => Next::User,
            _ => Next::Plain,
        };
        without_keys(&without_password(word))
    }

    /// The word up to where a secret begins: behind `NAME=` or `NAME:`, as in `password:x`, `{"lr":1,"password":"x"}`, `Server=h;Pwd=x`.
    /// Of modules with functions (`server.auth:app`) and images with versions (`team/token:latest`) there are too many to take them for that.
    fn name_in_pair<'a>(&self, word: &'a str) -> Option<&'a str> {
        let is_pair = |name: &&str| {
            let start = name.trim_end_matches(|c: char| !c.is_alphanumeric());
            let start = start.trim_end_matches(|c: char| c.is_alphanumeric() || "-_.".contains(c));
            let last = name[start.len()..].trim_end_matches(|c: char| !c.is_alphanumeric());
            let is_another = last.contains('.') || last.eq_ignore_ascii_case("auth") || start.ends_with('/');
            !is_another && self.is_secret(last)
        };
        let mut signs = word.match_indices(['=', ':']);
        let sign = signs.find(|(at, sign)| match *sign {
            "=" => self.is_secret(&word[..*at]),
            _ => !word[at + 1..].starts_with("//") && is_pair(&&word[..*at]),
        });
        sign.map(|(at, _)| &word[..=at]).filter(|name| name.len() < word.len())
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

/// What the word after this one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Plain,
    /// A secret.
    Secret,
    /// A user, who may have a password behind a colon.
    User,
}

/// The user of `user:password`; numbers are a user's and a group's.
fn user_of(word: &str) -> Option<&str> {
    let (user, password) = word.split_once(':')?;
    let are_ids = [user, password].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    (!user.starts_with('-') && !password.is_empty() && !are_ids).then_some(user)
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
            (
                &["password:x", "--set=db-password:x", "token:"],
                &["password:[redacted]", "--set=db-password:[redacted]", "token:"],
            ),
            (&["{\"lr\":1,\"password\":\"x\"}"], &["{\"lr\":1,\"password\":[redacted]"]),
            (&["curl", "-u", "me:x", "-H", "Token:x"], &["curl", "-u", "me:[redacted]", "-H", "Token:[redacted]"]),
            (
                &["curl", "-ume:x", "--proxy-user", "me:x"],
                &["curl", "-ume:[redacted]", "--proxy-user", "me:[redacted]"],
            ),
            (
                &["--password=a b", "PASS=a b", "--pass", "-x"],
                &["--password=[redacted]", "PASS=[redacted]", "--pass", "[redacted]"],
            ),
            (
                &["Server=h;Pwd=x;User=y", "https://h/?a=b&sig=x"],
                &["Server=h;Pwd=[redacted]", "https://h/?a=b&sig=[redacted]"],
            ),
            (&["sh", "-c", "curl --user me:x h:80"], &["sh", "-c", "curl --user me:[redacted] h:80"]),
            (&["--config={\"lr\": 1, \"password\": \"x\"}"], &["--config={\"lr\": 1, \"password\": [redacted]"]),
        ] {
            assert_eq!(redacted(&usual, line), expected, "{line:?}");
        }
        let plain =
            ["python", "train.py", "--max-tokens", "512", "--tokenizer=gpt2", "--sort-key", "a", "sk-learn", "--lr=1"];
        assert_eq!(redacted(&usual, &plain), plain);
        // A user and a group, users alone, modules, images, addresses, drives.
        let colons = [
            "docker",
            "-u",
            "1000:1000",
            "-u",
            "me",
            "me:x",
            "auth:app",
            "server.token:app",
            "team/token:latest",
            "token://h/x",
        ];
        assert_eq!(redacted(&usual, &colons), colons);
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
