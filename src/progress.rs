//! How far a long command has come: one bar on stderr, which is there only at a terminal, only after a second, and gone before
//! the result is printed.
//!
//! A command begins it ([`of`]); whoever does the work tells its stages ([`stage`]), each with a total that is known before it
//! begins, in bytes or rows, and how much of it is done ([`step`]). Where nobody looks both do nothing. There is one bar in a
//! process, since a terminal has one last line; so it is told from wherever work is done, and not handed through.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal;

/// Who waits for less needs no bar.
const AFTER: Duration = Duration::from_secs(1);
/// How often it is drawn, in a second.
const HZ: u8 = 10;
/// With a total, and without.
const BAR: &str = "gputrace: {msg} [{bar:24}] {percent} %  {human_pos}/{human_len}  {eta} left";
const BAR_OF_BYTES: &str = "gputrace: {msg} [{bar:24}] {percent} %  {binary_bytes}/{binary_total_bytes}  {eta} left";
const NO_BAR: &str = "gputrace: {msg} {spinner} {elapsed}";

/// The bar, if somebody may look at it.
static NOW: Mutex<Option<ProgressBar>> = Mutex::new(None);
/// The same to be read at each step.
static ANY: AtomicBool = AtomicBool::new(false);

/// See [`part`]: the number, and of how many.
static PART: AtomicU16 = AtomicU16::new(0);

/// What a total counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes.
    Bytes,
    /// Rows, or files.
    Number,
}

/// A command that may take long, until it is dropped.
pub(crate) struct Work {
    /// Tells the thread that shows the bar that there is none to be shown any more.
    waiting: Option<(Sender<()>, JoinHandle<()>)>,
}

/// Begins the work of a command: what it is doing, as in "reading".
pub(crate) fn of(what: &str) -> Work {
    let mut now = lock();
    if now.is_some() || terminal::is_quiet() || !std::io::stderr().is_terminal() {
        return Work { waiting: None };
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    dress(&bar, NO_BAR);
    bar.set_message(what.to_owned());
    let (sender, receiver) = channel();
    let shown = bar.clone();
    let show = move || {
        if receiver.recv_timeout(AFTER) == Err(RecvTimeoutError::Timeout) {
            shown.set_draw_target(ProgressDrawTarget::stderr_with_hz(HZ));
            shown.enable_steady_tick(Duration::from_millis(200));
        }
    };
    // Without room for a thread there is no bar.
    let Ok(thread) = thread::Builder::new().name("progress".to_owned()).spawn(show) else {
        return Work { waiting: None };
    };
    *now = Some(bar);
    ANY.store(true, Ordering::Relaxed);
    Work { waiting: Some((sender, thread)) }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Some((sender, thread)) = self.waiting.take() else { return };
        drop(sender);
        let _ = thread.join();
        ANY.store(false, Ordering::Relaxed);
        if let Some(bar) = lock().take() {
            bar.finish_and_clear();
        }
    }
}

/// The next part of the work, with its total where one is known.
pub(crate) fn stage(what: &str, total: Option<(u64, Unit)>) {
    with(|bar| begin(bar, what, total));
}

/// Each of these calls may draw: none must show the new stage with the numbers of the one before, nor a total of a bar that has none.
fn begin(bar: &ProgressBar, what: &str, total: Option<(u64, Unit)>) {
    dress(bar, NO_BAR);
    bar.set_message(what.to_owned());
    bar.set_position(0);
    match total {
        Some((total, unit)) => {
            bar.set_length(total);
            bar.reset_eta();
            dress(bar, if unit == Unit::Bytes { BAR_OF_BYTES } else { BAR });
        }
        None => bar.unset_length(),
    }
}

/// Which part of how many the stages are from now on; 0 of 0: they are all there is.
pub(crate) fn part(number: u8, of: u8) {
    PART.store(u16::from_be_bytes([number, of]), Ordering::Relaxed);
}

/// The same in words, behind what is done.
pub(crate) fn in_part(what: &str) -> String {
    words(what, PART.load(Ordering::Relaxed).to_be_bytes())
}

fn words(what: &str, [number, of]: [u8; 2]) -> String {
    if of == 0 { what.to_owned() } else { format!("{what}, part {number} of {of}") }
}

/// So much more of it is done.
pub(crate) fn step(done: u64) {
    with(|bar| bar.inc(done));
}

/// Whether anybody may look: who need not know how much work there is does not find out.
pub(crate) fn is_seen() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Does something on stderr while no bar is there.
pub(crate) fn aside(what: impl FnOnce()) {
    let bar = if is_seen() { lock().clone() } else { None };
    match bar {
        Some(bar) => bar.suspend(what),
        None => what(),
    }
}

fn with(what: impl FnOnce(&ProgressBar)) {
    if is_seen()
        && let Some(bar) = lock().as_ref()
    {
        what(bar);
    }
}

fn lock() -> MutexGuard<'static, Option<ProgressBar>> {
    NOW.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn dress(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> ").tick_chars("|/-\\ "));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use indicatif::TermLike;

    use super::*;

    /// All that was ever drawn.
    #[derive(Clone, Debug, Default)]
    struct Drawn(Arc<Mutex<Vec<String>>>);

    impl TermLike for Drawn {
        fn width(&self) -> u16 {
            120
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("nobody panics with it").push(text.to_owned());
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stage_is_never_shown_with_the_numbers_of_another() {
        let drawn = Drawn::default();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::term_like(Box::new(drawn.clone())));
        for total in [100 << 20, 7 << 20] {
            begin(&bar, "reading", Some((total, Unit::Bytes)));
            bar.inc(total);
            bar.tick();
            begin(&bar, "adding up", None);
            bar.tick();
        }
        let drawn = drawn.0.lock().expect("nobody panics with it").clone();
        let has = |line: &String, text: &str| line.contains(text);
        assert!(drawn.iter().any(|line| has(line, " 100 %  100.00 MiB/100.00 MiB")), "{drawn:#?}");
        for line in drawn.iter().filter(|line| has(line, " 0 %")) {
            assert!(has(line, " 0 B/"), "{line}");
        }
        assert!(!drawn.iter().any(|line| has(line, "adding up [")), "{drawn:#?}");
    }

    #[test]
    fn a_stage_says_which_part_it_is_of_how_many() {
        assert_eq!(words("reading", [0, 0]), "reading");
        assert_eq!(words("reading", [2, 4]), "reading, part 2 of 4");
    }

    #[test]
    fn every_template_is_understood() {
        for template in [BAR, BAR_OF_BYTES, NO_BAR] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn without_a_terminal_nothing_is_counted() {
        // Of a test run stderr may be a terminal: nobody begins a work here.
        stage("reading", Some((10, Unit::Bytes)));
        step(5);
        let mut done = false;
        aside(|| done = true);
        assert!(!is_seen() && done);
    }
}
