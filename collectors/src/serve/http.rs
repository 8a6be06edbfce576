//! `GET /metrics` by HTTP: for Prometheus, and whoever else scrapes; and orders to the session ([`super::orders`]), where these are allowed.
//!
//! One thread speaks to all clients, and one more waits for the drain's snapshots; neither is in the way of any event. What a client
//! may cost is bounded: so many connections at once, for further ones those that have been idle longest are let go; so long for a request, and so long for a connection, whatever is
//! still to be read of it. The address is bound before the traced command starts, so that what is wrong with it is said then.
//!
//! Whoever reaches the port may read. On the loopback interface that is whoever has an account on this machine, and no page
//! in a browser: a request must name the host by its address, or as localhost, which other names that lead here do not.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::Look;
use super::connections::{Connection, Connections};
use super::families::families;
use super::orders::{Orders, is_order};
use super::text::{Format, text};
use crate::live::{Snapshot, Source};

/// Connections at once.
const MOST_CONNECTIONS: usize = 16;
/// Time for a request's head, and between two of a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection that is let go has so long to end by itself; where none can be it is looked for one this often.
const FAREWELL: Duration = Duration::from_millis(50);
/// Time for a connection.
const LIFE: Duration = Duration::from_secs(60);
/// Bytes of a request's head.
const MOST_BYTES: usize = 16 << 10;

/// An address at which nobody is answered yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

/// The endpoint, until it is dropped.
#[derive(Debug)]
pub struct Server {
    /// Dropped, it tells the thread to end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Takes an address; port 0 is any that is free.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Listener { socket, address })
    }

    /// The address, with the port that was found free.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers with the sums of a session, and takes orders if there is a token for them.
    pub fn serve(self, source: Source, orders: Option<Orders>) -> io::Result<Server> {
        self.serve_of(super::look(source), orders)
    }

    fn serve_of(self, look: Arc<Look>, orders: Option<Orders>) -> io::Result<Server> {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let (stop, stopped) = oneshot::channel();
        let here = self.address.ip().is_loopback();
        let session = Arc::new(Session { look, last: Mutex::default(), here, orders });
        let run = move || run(&runtime, self.socket, session, stopped);
        let thread = thread::Builder::new().name("gputrace-http".to_owned()).spawn(run)?;
        Ok(Server { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What is told.
struct Session {
    look: Arc<Look>,
    /// The last answer: for when there are no more snapshots, and for whoever asks again before there is a new one.
    last: Mutex<Last>,
    /// Only this machine reaches it.
    here: bool,
    /// What may be asked of it beside that.
    orders: Option<Orders>,
}

/// A snapshot and its texts, as far as somebody asked for them.
#[derive(Default)]
struct Last {
    snapshot: Option<Arc<Snapshot>>,
    texts: [Option<Bytes>; 2],
    /// How long the text was, which the next one will be.
    room: usize,
}

impl Session {
    fn text(&self, format: Format) -> Option<Bytes> {
        let new = (self.look)();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(new) = new
            && !last.snapshot.as_ref().is_some_and(|known| Arc::ptr_eq(known, &new))
        {
            (last.snapshot, last.texts) = (Some(new), [None, None]);
        }
        let place = format as usize;
        if last.texts[place].is_none() {
            let made = text(&families(last.snapshot.as_ref()?), format, last.room);
            last.room = made.len() + made.len() / 16;
            last.texts[place] = Some(made.into());
        }
        last.texts[place].clone()
    }
}

fn run(runtime: &Runtime, socket: TcpListener, session: Arc<Session>, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        tokio::select! {
            () = accept(socket, session) => {}
            _ = stopped => {}
        }
    });
}

async fn accept(socket: TcpListener, session: Arc<Session>) {
    let Ok(socket) = tokio::net::TcpListener::from_std(socket) else { return };
    let (room, open) = (Arc::new(Semaphore::new(MOST_CONNECTIONS)), Arc::new(Connections::default()));
    loop {
        let stream = match socket.accept().await {
            Ok((stream, _)) => stream,
            // Too many files are open, as a rule.
            Err(_) => {
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = place(&room, &open).await else { return };
        let (session, open) = (session.clone(), open.clone());
        tokio::spawn(async move {
            let own = open.open();
            converse(stream, session, &open, &own).await;
            open.close(&own);
            drop(place);
        });
    }
}

/// Room for one more connection, for which another one may have to go.
async fn place(room: &Arc<Semaphore>, open: &Connections) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = room.clone().try_acquire_owned() {
        return Some(place);
    }
    // While all are being answered none is let go, and it is looked for one again.
    while !open.let_go() {
        if let Ok(place) = timeout(FAREWELL, room.clone().acquire_owned()).await {
            return place.ok();
        }
    }
    room.clone().acquire_owned().await.ok()
}

async fn converse(
    stream: tokio::net::TcpStream,
    session: Arc<Session>,
    open: &Arc<Connections>,
    own: &Arc<Connection>,
) {
    let (all, one) = (open.clone(), own.clone());
    let service = service_fn(move |request| {
        let (session, all, one) = (session.clone(), all.clone(), one.clone());
        async move {
            all.begin(&one);
            let answer = answer(request, session).await;
            all.end(&one);
            answer
        }
    });
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(MOST_BYTES);
    let connection = protocol.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let patience = tokio::select! {
        _ = connection.as_mut() => return,
        () = own.leave.notified() => FAREWELL,
        () = sleep(LIFE) => PATIENCE,
    };
    connection.as_mut().graceful_shutdown();
    let _ = timeout(patience, connection).await;
}

/// What is no metrics.
const TEXT: (HeaderName, &str) = (CONTENT_TYPE, "text/plain; charset=utf-8");

async fn answer(request: Request<Incoming>, session: Arc<Session>) -> Result<Response<Full<Bytes>>, Infallible> {
    let said = |status, text: &'static str| response(status, [TEXT], text);
    if session.here && !names_this_machine(request.headers()) {
        return Ok(said(StatusCode::MISDIRECTED_REQUEST, "this host is known by its address, or as localhost\n"));
    }
    if is_order(request.uri().path()) {
        return Ok(order(&request, &session).await);
    }
    if request.uri().path() != "/metrics" {
        return Ok(said(StatusCode::NOT_FOUND, "metrics are at /metrics\n"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(response(StatusCode::METHOD_NOT_ALLOWED, [TEXT, (ALLOW, "GET, HEAD")], "only GET and HEAD\n"));
    }
    let accept = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>();
    let format = Format::accepted(&accept.join(","));
    let text = tokio::task::spawn_blocking(move || session.text(format)).await;
    Ok(match text {
        Ok(Some(text)) => response(StatusCode::OK, [(CONTENT_TYPE, format.content_type())], text),
        _ => said(StatusCode::SERVICE_UNAVAILABLE, "the collector does not answer\n"),
    })
}

/// What becomes of an order. One that is not from this machine is none, whoever opened the port.
async fn order(request: &Request<Incoming>, session: &Session) -> Response<Full<Bytes>> {
    let Some(orders) = session.orders.as_ref().filter(|_| session.here) else {
        return response(StatusCode::FORBIDDEN, [TEXT], "no orders are taken here: --metrics-token FILE allows them\n");
    };
    if request.method() != Method::POST {
        return response(StatusCode::METHOD_NOT_ALLOWED, [TEXT, (ALLOW, "POST")], "an order is a POST\n");
    }
    let authorization = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
    let (status, text) =
        orders.obey(request.uri().path(), request.uri().query().unwrap_or_default(), authorization).await;
    let text = format!("{text}\n");
    match status {
        StatusCode::UNAUTHORIZED => response(status, [TEXT, (WWW_AUTHENTICATE, "Bearer")], text),
        _ => response(status, [TEXT], text),
    }
}

fn response<const N: usize>(
    status: StatusCode,
    headers: [(HeaderName, &'static str); N],
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    for (name, value) in headers {
        response.headers_mut().insert(name, hyper::header::HeaderValue::from_static(value));
    }
    response
}

/// Whether a request means this machine by no name that somebody else gave it.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
