//! `POST /start`, `/stop`, `/dump` and `/set`: what `gputrace start` and the like ask of a session, by HTTP.
//!
//! Only who has the session's token is heard (`Authorization: Bearer TOKEN`), and there is no such way at all unless a token was given.
//! An order becomes a line of the control socket ([`crate::control`]), whose answer is the answer: nothing is decided here.
//!
//! | order | parameters, in the address |
//! |---|---|
//! | `/start` | `in` or `at` (seconds from now, seconds since the Unix epoch), `for`, `every` (seconds) |
//! | `/stop`, `/dump` | none |
//! | `/set` | those of [`Setting`]: seconds, bytes, `off` |

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::capture::Capture;
use crate::control::{Setting, control_path};

/// What may be ordered.
const PATHS: [&str; 4] = ["/dump", "/set", "/start", "/stop"];
/// A dump is answered when the second after the order is in it, and written.
const PATIENCE: Duration = Duration::from_secs(30);
/// An answer is a line.
const MOST_BYTES: u64 = 8 << 10;

/// What proves that somebody may give orders.
#[derive(Clone, Serialize, Deserialize)]
pub struct Token(String);

/// Who gives orders to a session, and to which.
#[derive(Clone, Debug)]
pub struct Orders {
    token: Token,
    control: PathBuf,
}

/// How an order ended, and what is said of it.
type Answer = (StatusCode, String);

impl Token {
    /// Fewer characters could be guessed.
    pub const LEAST: usize = 16;

    /// A token; none: it is too short to be one, or has what no header can carry.
    pub fn new(text: &str) -> Option<Token> {
        (text.len() >= Token::LEAST && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Token(text.to_owned()))
    }

    /// Whether a header's value has it. How long that takes tells nothing but the length.
    fn is_in(&self, authorization: &[u8]) -> bool {
        const SCHEME: &[u8] = b"bearer ";
        let Some((scheme, said)) = authorization.split_at_checked(SCHEME.len()) else { return false };
        let said = said.trim_ascii();
        let differs = said.iter().zip(self.0.as_bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
        scheme.eq_ignore_ascii_case(SCHEME) && said.len() == self.0.len() && differs == 0
    }
}

/// It is a secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Orders {
    /// Orders to the session of this folder, from who has the token.
    pub fn new(token: Token, session: &Path) -> Orders {
        Orders { token, control: control_path(session) }
    }

    /// Does what is asked for.
    pub(super) async fn obey(&self, path: &str, query: &str, authorization: Option<&[u8]>) -> Answer {
        if !authorization.is_some_and(|value| self.token.is_in(value)) {
            return (StatusCode::UNAUTHORIZED, "who gives orders says Authorization: Bearer TOKEN".to_owned());
        }
        let line = match line(path, query, SystemTime::now()) {
            Ok(line) => line,
            Err(wrong) => return (StatusCode::BAD_REQUEST, wrong),
        };
        match timeout(PATIENCE, self.ask(&line)).await {
            Ok(Ok(said)) => match said.trim_end().split_once(' ') {
                Some(("ok", text)) => (StatusCode::OK, text.to_owned()),
                Some(("error", text)) => (StatusCode::CONFLICT, text.to_owned()),
                _ => (StatusCode::SERVICE_UNAVAILABLE, "the collector did not answer".to_owned()),
            },
            Ok(Err(_)) => (StatusCode::SERVICE_UNAVAILABLE, "the session is over".to_owned()),
            Err(_) => (StatusCode::GATEWAY_TIMEOUT, "the collector does not answer".to_owned()),
        }
    }

    async fn ask(&self, line: &str) -> io::Result<String> {
        let mut socket = UnixStream::connect(&self.control).await?;
        socket.write_all(format!("{line}\n").as_bytes()).await?;
        let mut said = String::new();
        socket.take(MOST_BYTES).read_to_string(&mut said).await?;
        Ok(said)
    }
}

/// Whether a path is that of an order.
pub(super) fn is_order(path: &str) -> bool {
    PATHS.contains(&path)
}

/// The line for the control socket. Err: what is wrong with the order.
pub(super) fn line(path: &str, query: &str, now: SystemTime) -> Result<String, String> {
    let words: Vec<&str> = query.split('&').filter(|word| !word.is_empty()).collect();
    match path {
        "/start" => start(&words, now),
        "/set" if words.is_empty() => Err("what is to be set? /set?max-size=1000000000, for instance".to_owned()),
        "/set" => {
            let unknown = words.iter().find(|word| Setting::of(word).is_none());
            unknown.map_or_else(
                || Ok(format!("set {}", words.join(" "))),
                |word| Err(format!("{word}: no such setting, or not such a value")),
            )
        }
        _ if words.is_empty() => Ok(path.trim_start_matches('/').to_owned()),
        _ => Err(format!("{path} has no parameters")),
    }
}

/// From now on, or as the parameters say.
fn start(words: &[&str], now: SystemTime) -> Result<String, String> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (mut from, mut length, mut every, mut began) = (now, None, None, false);
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let seconds = seconds.ok_or_else(|| format!("{word}: expected a number of seconds"))?;
        match key {
            "in" | "at" if began => return Err("in and at both say when: one of them".to_owned()),
            "in" => (from, began) = (now.saturating_add(seconds), true),
            "at" => (from, began) = (seconds, true),
            "for" => length = Some(seconds),
            "every" => every = Some(seconds),
            _ => return Err(format!("{word}: /start knows in, at, for and every")),
        }
    }
    if words.is_empty() {
        return Ok("start".to_owned());
    }
    if from.abs_diff(now) > Capture::LATEST {
        return Err("more than a week away: in is seconds from now, at is seconds since the Unix epoch".to_owned());
    }
    Capture::check(length, every, ["for", "every"])?;
    Ok(format!("start {}", Capture::new(from, length, every)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_line_of_the_control_socket() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let said = |path: &str, query: &str| line(path, query, now);
        for (path, query, expected) in [
            ("/start", "", "start"),
            ("/start", "for=2", "start from=100000000000 for=2000000000"),
            ("/start", "in=1.5&for=2&every=60", "start from=101500000000 for=2000000000 every=60000000000"),
            ("/start", "at=7", "start from=7000000000"),
            ("/stop", "", "stop"),
            ("/dump", "", "dump"),
            ("/set", "max-size=7&hang-after=off", "set max-size=7 hang-after=off"),
        ] {
            assert_eq!(said(path, query).as_deref(), Ok(expected), "{path}?{query}");
        }
        let wrong =
            ["for", "for=x", "for=0", "for=-1", "every=1", "for=2&every=2", "until=3", "for=1 dump", "for=1%0adump"];
        let wrong = wrong.iter().chain(&["at=1e6", "in=1e6", "in=1&at=7"]);
        wrong.for_each(|query| assert!(said("/start", query).is_err(), "{query}"));
        assert!(said("/stop", "for=1").is_err() && said("/set", "").is_err());
        assert!(said("/set", "max-size=7&budget=1").unwrap_err().starts_with("budget=1"));
        assert!(said("/set", "max-size=7\nstop").is_err());
    }

    #[test]
    fn a_token_is_long_and_is_what_was_given() {
        let text = "0123456789abcdef";
        assert!(Token::new(&text[1..]).is_none() && Token::new(&format!("{text} x")).is_none());
        let token = Token::new(text).unwrap();
        assert!(token.is_in(b"Bearer 0123456789abcdef") && token.is_in(b"bearer  0123456789abcdef "));
        for wrong in [
            "",
            "Bearer ",
            "Bearer 0123456789abcdeX",
            "Bearer 0123456789abcdefX",
            "Bearer 0123",
            text,
            "Basic  0123456789abcdef",
        ] {
            assert!(!token.is_in(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{token:?}").contains(text));
    }
}
