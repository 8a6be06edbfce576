//! A terminal for a test's program: a pseudoterminal as its stderr, and what is left to be seen on it.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::process::{Command, Stdio};
use std::ptr;
use std::thread;

/// What a program wrote on its terminal, and how it ended.
pub(crate) struct Shown {
    /// As it was written.
    pub(crate) raw: String,
    /// Lines that are left at the end.
    pub(crate) lines: Vec<String>,
    /// Its stdout, which is no terminal.
    pub(crate) stdout: Vec<u8>,
    /// Exit code.
    pub(crate) code: Option<i32>,
}

/// Runs a command whose stderr is a terminal of 100 columns and 24 lines.
pub(crate) fn on_a_terminal(mut command: Command) -> Shown {
    let size = libc::winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: two places for descriptors and a size, which the call only reads; no name and no settings are asked for.
    let made = unsafe { libc::openpty(&mut ours, &mut theirs, ptr::null_mut(), ptr::null(), &size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both are new, and nobody else's.
    let (mut ours, theirs) = unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) };
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        // Where nobody has the other end any more reading fails.
        while let Ok(read @ 1..) = ours.read(&mut part) {
            bytes.extend_from_slice(&part[..read]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    });
    command.env("TERM", "xterm-256color").stdout(Stdio::piped()).stderr(theirs);
    let child = command.spawn().expect("it starts");
    // Its copy of the other end would keep the reader waiting.
    drop(command);
    let done = child.wait_with_output().expect("it is our child");
    let raw = reader.join().expect("the reader ends");
    Shown { lines: left(&raw), raw, stdout: done.stdout, code: done.status.code() }
}

/// The lines that are left when a terminal has done all of this: texts, returns, moves up and down, erasures.
fn left(raw: &str) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![Vec::new()], 0_usize, 0_usize);
    let mut rest = raw.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' if rest.next_if_eq(&'[').is_some() => {
                let mut number = String::new();
                while let Some(digit) = rest.next_if(|c| c.is_ascii_digit() || *c == ';' || *c == '?') {
                    number.push(digit);
                }
                let times = number.parse().unwrap_or(1);
                match rest.next() {
                    Some('A') => row = row.saturating_sub(times),
                    Some('B') => row += times,
                    Some('K') if number == "2" => lines[row].clear(),
                    Some('K') => lines[row].truncate(column),
                    Some('J') => lines.truncate(row + 1),
                    _ => {}
                }
            }
            c if !c.is_control() => {
                let line: &mut Vec<char> = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
            _ => {}
        }
        lines.resize(lines.len().max(row + 1), Vec::new());
    }
    let lines = lines.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn what_is_erased_is_not_left() {
    assert_eq!(left("one\r\nbar 10 %\r\u{1b}[2Kbar 20 %\r\u{1b}[2Kdone\r\n"), ["one", "done"]);
    assert_eq!(left("a\r\nb\r\n\u{1b}[1A\u{1b}[2Kc"), ["a", "c"]);
}
