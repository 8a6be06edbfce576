//! Orders by HTTP: who has the token switches a session as `gputrace start` and `stop` do, nobody else does, and who goes on for a
//! killed gputrace takes them too.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::faults::{child_of, one_line};
use crate::recovering::{heir_of, holds, is_complete, kill};
use crate::switching::{grids, intervals, made, switched};
use crate::util::{Scratch, poll, program, shim};

const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn token_file(scratch: &Scratch, text: &str, mode: u32) -> PathBuf {
    let file = scratch.path().join("token");
    fs::write(&file, text).expect("the folder is writable");
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is ours");
    file
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").to_string()
}

/// What an order is answered: the status, and the text. None: nobody is there.
fn post(address: &str, order: &str, token: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!("POST {order} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n");
    write!(stream, "{head}Authorization: Bearer {token}\r\n\r\n").ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    let (head, body) = said.split_once("\r\n\r\n")?;
    Some((head.split_whitespace().nth(1)?.parse().ok()?, body.trim_end().to_owned()))
}

#[test]
fn a_token_that_is_no_file_lets_nobody_wait() {
    let scratch = Scratch::new();
    let pipe = scratch.path().join("pipe");
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let words = ["--metrics", "0", "--metrics-token", "pipe", "-o", "t", "--", "true"];
    let refused = scratch.gputrace(&words).expect(125).stderr;
    assert!(refused.contains("--metrics-token pipe: cannot be read: it is no file"), "{refused}");
}

#[test]
fn who_has_the_token_switches_a_session() {
    let scratch = Scratch::new();
    let (file, port) = (scratch.path().join("made"), free_port());
    let token = token_file(&scratch, &format!("{TOKEN}\n"), 0o600);
    let target = switched(&scratch, "loop").arg(&file);
    let options = ["--start-paused", "--metrics", &port, "--metrics-token", token.to_str().expect("a name")];
    let started = target.options(options).start();
    let until_made = |more: i64| {
        let from = made(&file).unwrap_or(0);
        poll(PATIENCE, || made(&file).filter(|now| *now >= from + more)).expect("the program goes on")
    };
    until_made(100);
    assert_eq!(post(&port, "/start", "0123456789abcdef0123456789abcdeX").map(|(status, _)| status), Some(401));
    until_made(500);
    let early = made(&file).expect("a count");
    let (status, said) = post(&port, "/start", TOKEN).expect("it is answered");
    assert_eq!((status, Path::new(&said)), (200, &*started.trace.canonicalize().expect("the trace")));
    until_made(300);
    let order = post(&port, "/set?hang-after=60", TOKEN).expect("it is answered");
    assert_eq!(order.0, 200, "{}", order.1);
    let order = post(&port, "/dump", TOKEN).expect("it is answered");
    assert_eq!(order.0, 409, "there is no flight recorder: {}", order.1);
    assert_eq!(post(&port, "/stop", TOKEN).map(|(status, _)| status), Some(200));
    let stopped = made(&file).expect("a count");
    until_made(500);
    fs::write(file.with_extension("stop"), "").expect("a file");
    let run = started.wait().expect(0);
    let trace = run.read();
    assert_eq!(intervals(&trace).len(), 1);
    let recorded: usize = grids(&trace).iter().map(|(_, count)| count).sum();
    assert!(recorded >= 300 && (recorded as i64) <= stopped - early + 1, "{recorded} of {early}..{stopped}");
    // The token is nowhere in what is kept.
    let manifest = fs::read_dir(run.trace.join("manifest")).expect("manifests").flatten();
    assert!(
        manifest
            .map(|file| fs::read(file.path()).expect("a file"))
            .all(|bytes| !String::from_utf8_lossy(&bytes).contains(TOKEN))
    );
}

#[test]
fn who_goes_on_for_a_killed_gputrace_takes_orders_too() {
    let scratch = Scratch::new();
    let (file, port) = (scratch.path().join("count"), free_port());
    let token = token_file(&scratch, TOKEN, 0o400);
    let target = scratch.target(program("victim")).arg(&file).args(["1000000", "1000"]).with_instant_driver();
    let options = ["--metrics", &port, "--metrics-token", token.to_str().expect("a name")];
    let mut started = target.options(options).start_to_be_killed();
    let obeyed = || post(&port, "/start", TOKEN).filter(|(status, _)| *status == 200);
    poll(PATIENCE, obeyed).expect("an order is taken");
    let victim = child_of(started.pid());
    holds(heir_of(&started), 1);
    started.kill();
    poll(PATIENCE, obeyed).expect("orders are taken again");
    assert_eq!(post(&port, "/start", "").map(|(status, _)| status), Some(401));
    kill(victim);
    poll(PATIENCE, || is_complete(&started.trace).then_some(())).expect("somebody seals the trace");
}

#[test]
fn a_token_that_is_none_is_told_before_the_command_starts() {
    let scratch = Scratch::new();
    shim();
    let refused = |file: &Path, address: &str, says: &str| {
        let file = file.to_str().expect("a name");
        let words = ["--metrics", address, "--metrics-token", file, "-o", "t", "--", "touch", "started"];
        one_line(&scratch.gputrace(&words).expect(125).stderr, says);
        assert!(!scratch.path().join("t").exists() && !scratch.path().join("started").exists(), "{says}");
    };
    refused(&scratch.path().join("none"), "0", "cannot be read: No such file");
    refused(&token_file(&scratch, TOKEN, 0o644), "0", "others may read it too: chmod 600");
    refused(&token_file(&scratch, "short\n", 0o600), "0", "one word of 16 characters and more");
    refused(&token_file(&scratch, TOKEN, 0o600), "0.0.0.0:0", "on the loopback interface only");
    let run = scratch.gputrace(&["--metrics-token", "token", "--", "true"]).expect(125);
    assert!(run.stderr.contains("--metrics <ADDR>"), "{}", run.stderr);
}
