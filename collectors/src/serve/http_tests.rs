//! What the endpoint answers, to whom, and for how long.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixListener;

use super::super::orders::Token;
use super::*;
use crate::control::control_path;

fn server(look: impl Fn() -> Option<Arc<Snapshot>> + Send + Sync + 'static) -> (Server, SocketAddr) {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.address();
    (listener.serve_of(Arc::new(look), None).unwrap(), address)
}

fn snapshot(ended: u64) -> Option<Arc<Snapshot>> {
    Some(Arc::new(Snapshot { ended, ..Snapshot::default() }))
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

fn get(address: SocketAddr, path: &str, more: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n"))
}

#[test]
fn metrics_are_at_one_path_and_are_only_read() {
    let (_server, address) = server(|| snapshot(3));
    let said = get(address, "/metrics", "");
    assert!(
        said.starts_with("HTTP/1.1 200 OK\r\n") && said.contains("content-type: text/plain; version=0.0.4"),
        "{said}"
    );
    assert!(said.contains("\ngputrace_processes_ended_total 3\n") && !said.contains("# EOF"), "{said}");
    let said = get(address, "/metrics?x=1", "Accept: application/openmetrics-text;version=1.0.0\r\n");
    assert!(said.contains("content-type: application/openmetrics-text") && said.ends_with("# EOF\n"), "{said}");
    assert!(get(address, "/", "").starts_with("HTTP/1.1 404 "));
    let said =
        ask(address, "POST /metrics HTTP/1.1\r\nHost: [::1]:1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 405 ") && said.contains("allow: GET, HEAD"), "{said}");
    let said = ask(address, "HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\n"), "{said}");
    assert!(ask(address, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let long = format!("X: {}\r\n", "x".repeat(4 * MOST_BYTES));
    assert!(get(address, "/metrics", &long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn orders_are_taken_from_who_has_the_token() {
    let post = |address, path: &str, more: &str| {
        ask(
            address,
            &format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n{more}\r\n"),
        )
    };
    let (_server, address) = server(|| snapshot(3));
    assert!(post(address, "/stop", "").starts_with("HTTP/1.1 403 "), "nobody gave a token");

    let folder = std::env::temp_dir().join(format!("gt-orders-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let socket = UnixListener::bind(control_path(&folder)).unwrap();
    // A session that starts and refuses to dump.
    let session = thread::spawn(move || {
        ["ok /trace", "error it cannot"].map(|answer| {
            let (mut client, _) = socket.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&client).read_line(&mut line).unwrap();
            writeln!(client, "{answer}").unwrap();
            line
        })
    });
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.address();
    let orders = Orders::new(Token::new("0123456789abcdef").unwrap(), &folder);
    let server = listener.serve_of(Arc::new(|| snapshot(3)), Some(orders)).unwrap();

    let said = post(address, "/start", "");
    assert!(said.starts_with("HTTP/1.1 401 ") && said.contains("www-authenticate: Bearer"), "{said}");
    assert!(post(address, "/start", "Authorization: Bearer 0123456789abcdeX\r\n").starts_with("HTTP/1.1 401 "));
    let token = "Authorization: Bearer 0123456789abcdef\r\n";
    let said = get(address, "/start", token);
    assert!(said.starts_with("HTTP/1.1 405 ") && said.contains("allow: POST"), "{said}");
    assert!(post(address, "/start?for=x", token).starts_with("HTTP/1.1 400 "));
    assert!(post(address, "/metrics", token).starts_with("HTTP/1.1 405 "));
    let said = post(address, "/start", token);
    assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("\r\n\r\n/trace\n"), "{said}");
    let said = post(address, "/dump", token);
    assert!(said.starts_with("HTTP/1.1 409 ") && said.ends_with("it cannot\n"), "{said}");
    assert_eq!(session.join().unwrap(), ["start\n", "dump\n"]);
    // Nobody is there any more.
    assert!(post(address, "/stop", token).starts_with("HTTP/1.1 503 "));
    drop(server);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_page_that_gave_this_machine_a_name_reads_nothing() {
    let (_server, address) = server(|| snapshot(3));
    let said = ask(address, "GET /metrics HTTP/1.1\r\nHost: evil.example:80\r\nConnection: close\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 421 ") && !said.contains("gputrace_"), "{said}");
}

#[test]
fn a_connection_is_used_again() {
    let (_server, address) = server(|| snapshot(1));
    let mut stream = TcpStream::connect(address).unwrap();
    for _ in 0..3 {
        stream.write_all(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            said.push(byte[0]);
        }
        assert!(said.starts_with(b"HTTP/1.1 200 OK"));
    }
}

#[test]
fn when_the_collector_is_over_the_last_values_stay_and_without_any_that_is_said() {
    let left = Mutex::new(vec![7]);
    let (_server, address) = server(move || left.lock().unwrap().pop().and_then(snapshot));
    for _ in 0..2 {
        assert!(get(address, "/metrics", "").contains("\ngputrace_processes_ended_total 7\n"));
    }
    let (_server, address) = server(|| None);
    assert!(get(address, "/metrics", "").starts_with("HTTP/1.1 503 "));
}

#[test]
fn who_says_nothing_is_let_go_and_keeps_nobody_out() {
    let (server, address) = server(|| snapshot(1));
    // More than there are places, some of which began to ask: for who comes now the first of them are let go, long before their time
    // for a request is over, and the last are not.
    let mut silent: Vec<TcpStream> = (0..3 * MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    silent.iter_mut().step_by(2).for_each(|stream| stream.write_all(b"GET /met").unwrap());
    assert!(get(address, "/metrics", "").starts_with("HTTP/1.1 200 OK"));
    let last = silent.last_mut().unwrap();
    last.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    last.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
    let mut rest = Vec::new();
    let ended = silent[0].read_to_end(&mut rest);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));
    // The end waits for none of them.
    let other = TcpStream::connect(address).unwrap();
    drop(server);
    drop(other);
    assert!(Listener::bind(address).is_ok(), "the address is free again");
}

#[test]
fn an_address_in_use_is_told_at_once() {
    let first = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    assert_eq!(Listener::bind(first.address()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
}
