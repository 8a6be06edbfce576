//! Metrics of a run for other programs, and orders from them: the address is taken and the token is read before the command starts, the
//! answers come with the collector.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use gputrace_collectors::Running;
use gputrace_collectors::serve::{Listener, Orders, Server, Token};
#[cfg(feature = "otlp")]
use gputrace_collectors::serve::{Push, Target};
use serde::{Deserialize, Serialize};

use crate::cli::MetricsArgs;
use crate::launch::exit::{Failure, OWN_FAILURE};
use crate::note;

/// How long a killed process may take to give its address back, and how often that is looked for.
const CLOSING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(10);

/// What was asked for, before there is anything to tell.
pub(in crate::commands) struct Prepared {
    listener: Option<Listener>,
    token: Option<Token>,
    #[cfg(feature = "otlp")]
    target: Option<Target>,
}

/// Where a collector answers, for who goes on in its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Endpoint {
    address: SocketAddr,
    token: Option<Token>,
}

/// Metrics, until this is dropped.
#[derive(Default)]
pub(in crate::commands) struct Metrics {
    _server: Option<Server>,
    #[cfg(feature = "otlp")]
    _push: Option<Push>,
}

/// Takes the addresses; an error is the user's to cure, and nothing has started yet.
pub(in crate::commands) fn prepare(args: &MetricsArgs) -> Result<Prepared> {
    let bind = |address: SocketAddr| {
        Listener::bind(address).map_err(|error| {
            let text = format!("--metrics {address}: cannot be listened at: {error}{}", cure(&error));
            Failure::error(OWN_FAILURE, text)
        })
    };
    let token = args.metrics_token.as_deref().map(token).transpose()?;
    if let Some(address) = args.metrics.filter(|address| token.is_some() && !address.ip().is_loopback()) {
        let text =
            format!("--metrics-token: orders are taken on the loopback interface only, and {address} is not one of it");
        return Err(Failure::error(OWN_FAILURE, text));
    }
    let listener = args.metrics.map(bind).transpose()?;
    if let Some(listener) = listener.as_ref().filter(|_| args.metrics.is_some_and(|asked| asked.port() == 0)) {
        note(&format!("metrics at http://{}/metrics", listener.address()));
    }
    Ok(Prepared {
        listener,
        token,
        #[cfg(feature = "otlp")]
        target: target(args)?,
    })
}

/// The token of a file that nobody else may read.
fn token(file: &Path) -> Result<Token> {
    /// Longer ones are no tokens.
    const MOST: u64 = 4096;
    let shown = file.display();
    let wrong = |what: String| Failure::error(OWN_FAILURE, format!("--metrics-token {shown}: {what}"));
    let read = || {
        // A pipe without a writer would let us wait for ever.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mode = meta.mode();
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text)?;
        io::Result::Ok((mode, text))
    };
    let (mode, text) = read().map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if mode & 0o077 != 0 {
        return Err(wrong(format!("others may read it too: chmod 600 {shown}")));
    }
    Token::new(text.trim()).ok_or_else(|| {
        let least = Token::LEAST;
        wrong(format!("a token is one word of {least} characters and more: (umask 77; openssl rand -hex 16 > {shown})"))
    })
}

/// Where metrics are pushed.
#[cfg(feature = "otlp")]
fn target(args: &MetricsArgs) -> Result<Option<Target>> {
    const EVERY: std::time::Duration = std::time::Duration::from_secs(10);
    let target = |url: &String| {
        let target = Target::new(url, args.otlp_every.unwrap_or(EVERY));
        target.map_err(|wrong| Failure::error(OWN_FAILURE, format!("--otlp: {wrong}")))
    };
    args.otlp.as_ref().map(target).transpose()
}

fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => "; name another port, or 0 for any that is free",
        ErrorKind::PermissionDenied => "; ports below 1024 are the administrator's, name another",
        ErrorKind::AddrNotAvailable => "; it is no address of this machine",
        _ => "",
    }
}

impl Prepared {
    /// Where it will be listened, for an heir.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.listener.as_ref().map(|listener| Endpoint { address: listener.address(), token: self.token.clone() })
    }

    /// Tells what the collector of a session has.
    pub(in crate::commands) fn begin(self, running: &Running, session: &Path) -> io::Result<Metrics> {
        let orders = self.token.map(|token| Orders::new(token, session));
        let server = self.listener.map(|listener| listener.serve(running.live(), orders)).transpose()?;
        Ok(Metrics {
            _server: server,
            #[cfg(feature = "otlp")]
            _push: self.target.map(|target| target.push(running.live(), |failed| crate::say(&failed))).transpose()?,
        })
    }
}

/// Takes the address of a process that was killed: the kernel may not have closed its socket yet when its end is known.
fn bind_again(address: SocketAddr) -> io::Result<Listener> {
    let asked = Instant::now();
    loop {
        match Listener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && asked.elapsed() < CLOSING => thread::sleep(AGAIN),
            bound => return bound,
        }
    }
}

/// What an heir goes on with: the address that its collector had.
pub(super) fn go_on(endpoint: Option<Endpoint>, running: &Running, session: &Path) -> io::Result<Metrics> {
    let listener = endpoint.as_ref().map(|endpoint| bind_again(endpoint.address)).transpose()?;
    let prepared = Prepared {
        listener,
        token: endpoint.and_then(|endpoint| endpoint.token),
        #[cfg(feature = "otlp")]
        target: None,
    };
    prepared.begin(running, session)
}
