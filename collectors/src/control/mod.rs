//! The session's control socket: other processes of the same user ask, and are answered with one line.
//!
//! It stands in the session's folder, which only its owner may enter. A request is a line, `WORD [ARGUMENT]`; the answer is
//! `ok TEXT` or `error TEXT`, and ends the connection. The drain looks after it between two passes: a client that says
//! nothing is let go after a while, and no client is waited for.
//!
//! | request | answer |
//! |---|---|
//! | `ping` | the launcher's pid, the trace's folder and the command, with tabs between them |
//! | `start`, `stop` | the trace's folder: all processes of the session, and those that come, record from now on, or do not |
//! | `start from=NS [for=NS] [every=NS]` | the trace's folder: they do so from a moment of the wall clock on, and as long and as often as it says ([`Capture`]) |
//! | `set KEY=VALUE ...` | the trace's folder: all of it is set ([`Setting`]), or an error and nothing is |
//! | `live` | a [`crate::live::Snapshot`] of the session, with what is hot, as JSON |
//! | `dump` | the trace's folder, once what just happened, and the second after it, is in there |

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;
mod settings;

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::capture::Capture;

pub use settings::Setting;

/// A client that has said nothing is let go after this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// A client that reads nothing of a long answer for so long misses the rest.
const SLOW: Duration = Duration::from_secs(2);
/// Clients that may be there at once.
const MOST_CLIENTS: usize = 64;
/// A request is no longer than this.
const MOST_BYTES: usize = 1024;

/// Where the collector of a session answers.
pub fn control_path(session: &Path) -> PathBuf {
    session.join("control")
}

/// The socket, and who has come to it.
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
    waiting: Vec<Waiting>,
}

struct Waiting {
    stream: UnixStream,
    said: Vec<u8>,
    since: Instant,
}

/// Who waits for an answer.
pub(crate) struct Client(UnixStream);

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Ping,
    Dump,
    /// How the session is doing.
    Live,
    /// Record from now on, or when this says.
    Start(Option<Capture>),
    /// Record no more until [`Request::Start`] says so.
    Stop,
    /// Something is to be set.
    Set(Vec<Setting>),
    /// A word that this version does not know.
    Unknown(String),
}

impl Control {
    /// Listens in the session's folder.
    pub(crate) fn listen(session: &Path) -> io::Result<Control> {
        let path = control_path(session);
        // A collector that died here left its socket; the session's lock says that none is alive.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        Ok(Control { listener, path, waiting: Vec::new() })
    }

    /// The descriptor that becomes readable when a client comes.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Whether a client is still about to say what it wants: it must be looked at again soon.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The requests that have come.
    pub(crate) fn take(&mut self) -> Vec<(Request, Client)> {
        while let Ok((stream, _)) = self.listener.accept() {
            // One too many is let go at once: its end of the connection is closed.
            if self.waiting.len() < MOST_CLIENTS && stream.set_nonblocking(true).is_ok() {
                self.waiting.push(Waiting { stream, said: Vec::new(), since: Instant::now() });
            }
        }
        let mut requests = Vec::new();
        for mut client in std::mem::take(&mut self.waiting) {
            match client.read() {
                Ok(Some(request)) => requests.push((request, Client(client.stream))),
                Ok(None) if client.since.elapsed() < PATIENCE => self.waiting.push(client),
                Ok(None) | Err(_) => {}
            }
        }
        requests
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Waiting {
    /// The request, once its line is there.
    fn read(&mut self) -> io::Result<Option<Request>> {
        let mut bytes = [0; MOST_BYTES];
        loop {
            if let Some(line) = self.said.split(|byte| *byte == b'\n').next().filter(|l| l.len() < self.said.len()) {
                return Ok(Some(Request::of(&String::from_utf8_lossy(line))));
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) if self.said.len() > MOST_BYTES => return Err(ErrorKind::InvalidData.into()),
                Ok(got) => self.said.extend_from_slice(bytes.get(..got).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Request {
    fn of(line: &str) -> Request {
        let mut words = line.split_whitespace();
        match words.next().unwrap_or_default() {
            "ping" => Request::Ping,
            "dump" => Request::Dump,
            "live" => Request::Live,
            "set" => {
                let settings: Result<_, _> =
                    words.map(|word| Setting::of(word).ok_or_else(|| word.to_owned())).collect();
                settings.map_or_else(Request::Unknown, Request::Set)
            }
            "start" => match words.collect::<Vec<_>>().as_slice() {
                [] => Request::Start(None),
                words => moment(words).map_or_else(|| Request::Unknown(line.to_owned()), |at| Request::Start(Some(at))),
            },
            "stop" => Request::Stop,
            other => Request::Unknown(other.to_owned()),
        }
    }
}

impl Client {
    /// Answers; a client that has gone, or does not listen, misses it.
    pub(crate) fn answer(mut self, answer: Result<&str, &str>) {
        let (word, text) = match answer {
            Ok(text) => ("ok", text),
            Err(text) => ("error", text),
        };
        let _ = self.0.write_all(format!("{word} {}\n", text.replace('\n', " ")).as_bytes());
    }

    /// Answers with a line that may be longer than a socket takes at once: waits for the client to read it, but not for long.
    pub(crate) fn answer_at_length(mut self, line: &str) {
        let prepared = self.0.set_nonblocking(false).and_then(|()| self.0.set_write_timeout(Some(SLOW)));
        let _ = prepared.and_then(|()| self.0.write_all(format!("ok {line}\n").as_bytes()));
    }
}

/// When recording is to be on, as `start` says it.
fn moment(words: &[&str]) -> Option<Capture> {
    let mut capture = Capture { from_ns: 0, length: None, every: None };
    for word in words {
        let (key, value) = word.split_once('=')?;
        match key {
            "from" => capture.from_ns = value.parse().ok()?,
            "for" => capture.length = Some(Duration::from_nanos(value.parse().ok()?)),
            "every" => capture.every = Some(Duration::from_nanos(value.parse().ok()?)),
            _ => return None,
        }
    }
    Capture::check(capture.length, capture.every, ["for", "every"]).is_ok().then_some(capture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_pieces_is_answered_and_noise_is_not() {
        let folder = std::env::temp_dir().join(format!("gt-control-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut control = Control::listen(&folder).unwrap();
        let connect = || UnixStream::connect(control_path(&folder)).unwrap();
        let (mut slow, mut noisy, silent) = (connect(), connect(), connect());
        slow.write_all(b"pi").unwrap();
        noisy.write_all(&[b'x'; 3 * MOST_BYTES]).unwrap();
        assert_eq!(control.take().len(), 0);
        slow.write_all(b"ng\n").unwrap();
        let mut requests = control.take();
        assert_eq!(requests.len(), 1);
        let (request, client) = requests.remove(0);
        assert_eq!(request, Request::Ping);
        client.answer(Ok("17\n18"));
        let mut text = String::new();
        slow.read_to_string(&mut text).unwrap();
        assert_eq!(text, "ok 17 18\n");
        drop(silent);
        assert!(control.take().is_empty() && !control.is_waiting());
        assert_eq!(Request::of("reboot now"), Request::Unknown("reboot".to_owned()));
        let set = Request::Set(vec![Setting::MaxSize(7), Setting::HangAfter(None)]);
        assert_eq!(Request::of("set max-size=7 hang-after=off"), set);
        assert_eq!(Request::of("set max-size=7 budget=1"), Request::Unknown("budget=1".to_owned()));
        drop(control);
        assert!(!control_path(&folder).exists());
        fs::remove_dir(&folder).unwrap();
    }
}
