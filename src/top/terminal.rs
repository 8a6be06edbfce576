//! The terminal: taken at the start, and given back as it was, however the command ends.
//!
//! A panic gives it back before it is told of; a signal that ends programs ends the command once it has; after a stop the screen is
//! taken again.

use std::io::{self, Stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

/// Signals that end programs.
const ENDS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// The command has so long to end by itself after a signal.
const PATIENCE: Duration = Duration::from_secs(1);

/// The screen, as long as it is ours.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
    signals: Signals,
}

/// Signals that came.
struct Signals {
    /// The last one that ends programs; 0: none.
    end: Arc<AtomicUsize>,
    goes_on: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn take() -> io::Result<Screen> {
        let signals = Signals::hear()?;
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).inspect_err(|_| give_back())?;
        Ok(Screen { terminal, signals })
    }

    /// Gives the terminal back and stops, as any program does at Ctrl-Z; the next look at signals takes it again. Where nobody could let
    /// us go on (the shell is gone) the kernel does not stop us.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        give_back();
        self.signals.goes_on.store(true, Ordering::Relaxed);
        signal_hook::low_level::raise(SIGTSTP)
    }

    /// The signal that is to end us, if one came. After a stop the screen is taken again.
    pub(crate) fn signal(&mut self) -> io::Result<Option<i32>> {
        if self.signals.goes_on.swap(false, Ordering::Relaxed) {
            enter()?;
            self.terminal.clear()?;
        }
        let end = self.signals.end.load(Ordering::Relaxed);
        Ok(i32::try_from(end).ok().filter(|signal| *signal != 0))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

impl Signals {
    fn hear() -> io::Result<Signals> {
        let signals = Signals { end: Arc::default(), goes_on: Arc::default() };
        for signal in ENDS {
            signal_hook::flag::register_usize(signal, signals.end.clone(), signal as usize)?;
        }
        signal_hook::flag::register(SIGCONT, signals.goes_on.clone())?;
        let end = signals.end.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || insist(&end))?;
        Ok(signals)
    }
}

/// Ends the command when it does not end by itself: whoever waits for keys of a terminal that is gone waits for ever.
fn insist(end: &AtomicUsize) {
    loop {
        thread::sleep(PATIENCE);
        let signal = end.load(Ordering::Relaxed);
        if signal != 0 {
            thread::sleep(PATIENCE);
            give_back();
            let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
        }
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen).inspect_err(|_| give_back())
}

/// As it was. A terminal that is gone needs nothing.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;
    use crate::launch::testing::Folder;

    /// Set where the test runs itself, inside of a terminal.
    const INSIDE: &str = "GPUTRACE_TOP_PANICS";

    #[test]
    fn a_panic_is_told_on_the_terminal_as_it_was() {
        if std::env::var_os(INSIDE).is_some() {
            // As in a program that aborts: nothing is dropped.
            std::mem::forget(Screen::take().expect("a terminal"));
            panic!("on purpose");
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| folder.join("tmux").is_file()) {
            assert!(std::env::var_os("CI").is_none(), "not installed: tmux; .ci/run must install it");
            eprintln!("skipped: not here: tmux");
            return;
        }
        let folder = Folder::new("top-panics");
        let server = folder.path().join("tmux");
        let tmux = |arguments: &[&str]| {
            let output = Command::new("tmux").arg("-S").arg(&server).args(arguments).env_remove("TMUX").output();
            String::from_utf8_lossy(&output.expect("tmux runs").stdout).into_owned()
        };
        tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "env", "TERM=screen", "sh"]);
        let own = std::env::current_exe().expect("this program");
        let name = "top::terminal::tests::a_panic_is_told_on_the_terminal_as_it_was";
        let line = format!("{INSIDE}=1 {} --exact {name} --nocapture; stty -a; echo all''said", own.display());
        tmux(&["send-keys", "-l", &line]);
        tmux(&["send-keys", "Enter"]);
        let begun = Instant::now();
        let mut screen = String::new();
        while !screen.contains("allsaid") && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
            screen = tmux(&["capture-pane", "-p"]);
        }
        let state = tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        tmux(&["kill-server"]);
        let modes = screen.lines().find(|line| line.contains("icanon")).unwrap_or_default();
        let has = |mode: &str| modes.split_whitespace().any(|word| word == mode);
        assert!(screen.contains("on purpose"), "{screen}");
        assert!(["isig", "icanon", "echo"].into_iter().all(has), "{screen}");
        assert_eq!(state.trim(), "0 1", "alternate screen, cursor: {screen}");
    }
}
