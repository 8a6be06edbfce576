//! Metrics of a run for other programs: the address is taken before the command starts, the answers come with the collector.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use anyhow::Result;
use gputrace_collectors::Running;
use gputrace_collectors::serve::{Listener, Server};
#[cfg(feature = "otlp")]
use gputrace_collectors::serve::{Push, Target};

use crate::cli::MetricsArgs;
use crate::launch::exit::{Failure, OWN_FAILURE};
use crate::note;

/// What was asked for, before there is anything to tell.
pub(super) struct Prepared {
    listener: Option<Listener>,
    #[cfg(feature = "otlp")]
    target: Option<Target>,
}

/// Metrics, until this is dropped.
#[derive(Default)]
pub(super) struct Metrics {
    _server: Option<Server>,
    #[cfg(feature = "otlp")]
    _push: Option<Push>,
}

/// Takes the addresses; an error is the user's to cure, and nothing has started yet.
pub(super) fn prepare(args: &MetricsArgs) -> Result<Prepared> {
    let bind = |address: SocketAddr| {
        Listener::bind(address).map_err(|error| {
            let text = format!("--metrics {address}: cannot be listened at: {error}{}", cure(&error));
            Failure::error(OWN_FAILURE, text)
        })
    };
    let listener = args.metrics.map(bind).transpose()?;
    if let Some(listener) = listener.as_ref().filter(|_| args.metrics.is_some_and(|asked| asked.port() == 0)) {
        note(&format!("metrics at http://{}/metrics", listener.address()));
    }
    Ok(Prepared {
        listener,
        #[cfg(feature = "otlp")]
        target: target(args)?,
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
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(Listener::address)
    }

    /// Tells what the collector has.
    pub(super) fn begin(self, running: &Running) -> io::Result<Metrics> {
        let server = self.listener.map(|listener| listener.serve(running.live())).transpose()?;
        Ok(Metrics {
            _server: server,
            #[cfg(feature = "otlp")]
            _push: self.target.map(|target| target.push(running.live(), |failed| crate::say(&failed))).transpose()?,
        })
    }
}

/// What an heir goes on with: the address that its collector had.
pub(super) fn go_on(address: Option<SocketAddr>, running: &Running) -> io::Result<Metrics> {
    let listener = address.map(Listener::bind).transpose()?;
    let prepared = Prepared {
        listener,
        #[cfg(feature = "otlp")]
        target: None,
    };
    prepared.begin(running)
}
