//! The process that touches the other one, and outlives gputrace by the way back.
//!
//! It is forked before gputrace has threads, does what it is told over a socket, and blocks every signal. When the socket ends without a
//! word, as it does whatever gputrace dies of, it takes all patches back and ends. The kernel lets go whatever it holds should it be killed itself.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use super::threads::Tracer;
use super::work;

/// What it is told to do.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Load { shim: String, environment: Vec<String> },
    Patch,
    TakeBack,
}

/// What it says of that: a number, or what went wrong.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Done(usize),
    Failed(Vec<String>),
}

/// gputrace's end.
#[derive(Debug)]
pub(crate) struct Keeper {
    socket: BufReader<UnixStream>,
    pid: libc::pid_t,
}

impl Keeper {
    /// Starts it, for the process `target`. Before this process has a second thread.
    pub(crate) fn start(target: i32) -> io::Result<Keeper> {
        let (ours, its) = UnixStream::pair()?;
        // SAFETY: this process has one thread, so the child may do all that this one may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                live(its, target)
            }
            pid => Ok(Keeper { socket: BufReader::new(ours), pid }),
        }
    }

    /// Has the shim loaded and started, with this in place of an environment.
    pub(crate) fn load(&mut self, shim: String, environment: Vec<String>) -> Result<(), String> {
        self.ask(&Order::Load { shim, environment }).map(|_| ()).map_err(|why| why.join("; "))
    }

    /// Has the driver's functions led to the shim's: how many.
    pub(crate) fn patch(&mut self) -> Result<usize, String> {
        self.ask(&Order::Patch).map_err(|why| why.join("; "))
    }

    /// Has all of it taken back. Err: what could not be.
    pub(crate) fn take_back(&mut self) -> Result<(), Vec<String>> {
        self.ask(&Order::TakeBack).map(|_| ())
    }

    fn ask(&mut self, order: &Order) -> Result<usize, Vec<String>> {
        let gone = |error: io::Error| vec![format!("gputrace's own process for this is gone: {error}")];
        let mut line = serde_json::to_vec(order).unwrap_or_default();
        line.push(b'\n');
        self.socket.get_mut().write_all(&line).map_err(gone)?;
        let mut said = String::new();
        self.socket.read_line(&mut said).map_err(gone)?;
        match serde_json::from_str(&said) {
            Ok(Answer::Done(number)) => Ok(number),
            Ok(Answer::Failed(why)) => Err(why),
            Err(_) => Err(vec!["gputrace's own process for this was killed".to_owned()]),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.socket.get_mut().shutdown(std::net::Shutdown::Both);
        let mut status = 0;
        // SAFETY: our own child, which ends when its socket does.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
    }
}

/// The child's life.
fn live(socket: UnixStream, target: i32) -> ! {
    hide();
    let mut tracer = Tracer::default();
    let mut patched = false;
    let mut lines = BufReader::new(socket);
    loop {
        // Threads that stopped late would stay so.
        while tracer.settle() && !is_readable(lines.get_ref(), 10) {}
        let mut line = String::new();
        let order = match lines.read_line(&mut line) {
            Ok(length) if length > 0 => serde_json::from_str::<Order>(&line),
            _ => break,
        };
        let answer = match order {
            Ok(Order::Load { shim, environment }) => {
                work::load(&mut tracer, target, &shim, &environment).map(|()| 0).map_err(|why| vec![why])
            }
            Ok(Order::Patch) => {
                patched = true;
                work::patch(&mut tracer, target).map_err(|why| vec![why])
            }
            Ok(Order::TakeBack) => {
                patched = false;
                let trouble = work::take_back(&mut tracer, target);
                if trouble.is_empty() { Ok(0) } else { Err(trouble) }
            }
            Err(error) => Err(vec![error.to_string()]),
        };
        let mut said = serde_json::to_vec(&answer.map_or_else(Answer::Failed, Answer::Done)).unwrap_or_default();
        said.push(b'\n');
        if lines.get_mut().write_all(&said).is_err() {
            break;
        }
    }
    if patched {
        let _ = work::take_back(&mut tracer, target);
    }
    // SAFETY: ends this process, without what gputrace registered for its own end.
    unsafe { libc::_exit(0) }
}

fn is_readable(socket: &UnixStream, patience_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel reads and writes one entry.
    unsafe { libc::poll(&mut poll, 1, patience_ms) != 0 }
}

/// Nothing that is meant for gputrace reaches this process, and nobody waits for it at the other end of gputrace's pipes.
fn hide() {
    // SAFETY: the set is plain data that sigfillset fills; a C string; descriptors.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"gputrace-attach".as_ptr());
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            for fd in 0..3 {
                libc::dup2(null.as_raw_fd(), fd);
            }
        }
    }
}
