//! What keys do: which pane has them, how each is sorted, filtered and scrolled, whether time stands still.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::table::{self, Row};
use super::view::{PANES, View};

/// Times between two looks that keys choose from.
const INTERVALS_MS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
/// Letters of a filter.
const MOST_LETTERS: usize = 100;

/// What a key asks of whoever asks the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    Quit,
    /// Stop, as a shell has it, until the shell lets us go on.
    Stop,
    /// Look this often from now on.
    Interval(Duration),
    /// Look no more, or again.
    Pause(bool),
}

/// A pane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pane {
    /// Place of the column that it is sorted by.
    pub(crate) sort: usize,
    pub(crate) reverse: bool,
    pub(crate) selected: usize,
    /// The first row that is shown.
    pub(crate) top: usize,
    pub(crate) filter: String,
}

/// All that keys change.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) panes: [Pane; 3],
    pub(crate) focus: usize,
    pub(crate) paused: bool,
    pub(crate) help: bool,
    /// The first line of the help that is shown, and the last one that may be the first.
    pub(crate) help_at: usize,
    pub(crate) help_last: usize,
    /// A filter is being typed.
    pub(crate) typing: bool,
    pub(crate) interval: Duration,
    /// The session has ended, or it is a still picture: nothing changes any more.
    pub(crate) over: bool,
    /// What else must be said.
    pub(crate) message: String,
    /// Rows of each pane after its filter, when they were counted last.
    pub(crate) counts: [usize; 3],
}

impl App {
    /// Processes sorted by a column.
    pub(crate) fn new(interval: Duration, sort: &str) -> App {
        let place = PANES[0].iter().position(|column| column.name == sort).unwrap_or(0);
        let mut panes: [Pane; 3] = Default::default();
        panes[0].sort = place;
        App {
            panes,
            focus: 0,
            paused: false,
            help: false,
            help_at: 0,
            help_last: 0,
            typing: false,
            interval,
            over: false,
            message: String::new(),
            counts: [0; 3],
        }
    }

    /// The rows of a pane, as they are shown.
    pub(crate) fn rows<'v>(&mut self, view: &'v View, pane: usize) -> Vec<&'v Row> {
        let own = &self.panes[pane];
        let wanted = own.filter.to_lowercase();
        let has = |row: &&Row| row.iter().any(|cell| cell.text.to_lowercase().contains(&wanted));
        let mut rows: Vec<&Row> = view.rows[pane].iter().filter(|row| wanted.is_empty() || has(row)).collect();
        table::sort(&mut rows, own.sort, own.reverse);
        self.counts[pane] = rows.len();
        rows
    }

    /// A key was pressed.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Asked {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Asked::Quit,
                KeyCode::Char('z') => Asked::Stop,
                _ => Asked::Nothing,
            };
        }
        if self.typing {
            self.typed(key.code);
            return Asked::Nothing;
        }
        if self.help {
            return self.help_key(key.code);
        }
        let (rows, pane) = (self.counts[self.focus], &mut self.panes[self.focus]);
        let columns = PANES[self.focus].len();
        match key.code {
            KeyCode::Char('q') => return Asked::Quit,
            // What a filter hides comes back first.
            KeyCode::Esc if !pane.filter.is_empty() => pane.filter.clear(),
            KeyCode::Esc => return Asked::Quit,
            KeyCode::Char('h' | '?') => (self.help, self.help_at) = (true, 0),
            KeyCode::Char('/') => {
                pane.filter.clear();
                self.typing = true;
            }
            KeyCode::Down | KeyCode::Char('j') => pane.selected = (pane.selected + 1).min(rows.saturating_sub(1)),
            KeyCode::Up | KeyCode::Char('k') => pane.selected = pane.selected.saturating_sub(1),
            KeyCode::PageDown => pane.selected = (pane.selected + 10).min(rows.saturating_sub(1)),
            KeyCode::PageUp => pane.selected = pane.selected.saturating_sub(10),
            KeyCode::Home | KeyCode::Char('g') => pane.selected = 0,
            KeyCode::End | KeyCode::Char('G') => pane.selected = rows.saturating_sub(1),
            KeyCode::Char('s' | '>') => pane.sort = (pane.sort + 1) % columns,
            KeyCode::Char('<') => pane.sort = (pane.sort + columns - 1) % columns,
            KeyCode::Char('r') => pane.reverse = !pane.reverse,
            KeyCode::Tab => self.focus = (self.focus + 1) % PANES.len(),
            KeyCode::BackTab => self.focus = (self.focus + PANES.len() - 1) % PANES.len(),
            KeyCode::Char('p' | ' ') if !self.over => {
                self.paused = !self.paused;
                return Asked::Pause(self.paused);
            }
            KeyCode::Char('+' | '=') => return self.step(true),
            KeyCode::Char('-') => return self.step(false),
            _ => {}
        }
        Asked::Nothing
    }

    /// A key while the help is shown: it scrolls, where there is more of it than has room; any other ends it.
    fn help_key(&mut self, key: KeyCode) -> Asked {
        let at = match key {
            KeyCode::Down | KeyCode::Char('j') => self.help_at + 1,
            KeyCode::PageDown => self.help_at + 5,
            KeyCode::Up | KeyCode::Char('k') => self.help_at.saturating_sub(1),
            KeyCode::PageUp => self.help_at.saturating_sub(5),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => {
                self.help = false;
                return if key == KeyCode::Char('q') { Asked::Quit } else { Asked::Nothing };
            }
        };
        self.help_at = at.min(self.help_last);
        Asked::Nothing
    }

    /// A key of a filter that is being typed.
    fn typed(&mut self, key: KeyCode) {
        let pane = &mut self.panes[self.focus];
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                pane.filter.clear();
                self.typing = false;
            }
            KeyCode::Backspace => {
                pane.filter.pop();
            }
            KeyCode::Char(letter) if pane.filter.chars().count() < MOST_LETTERS => pane.filter.push(letter),
            _ => {}
        }
        (pane.selected, pane.top) = (0, 0);
    }

    /// The next longer interval, or the next shorter one.
    fn step(&mut self, longer: bool) -> Asked {
        let now = self.interval.as_millis() as u64;
        let next = match longer {
            true => INTERVALS_MS.iter().find(|ms| **ms > now),
            false => INTERVALS_MS.iter().rev().find(|ms| **ms < now),
        };
        let Some(next) = next.filter(|_| !self.over) else { return Asked::Nothing };
        self.interval = Duration::from_millis(*next);
        Asked::Interval(self.interval)
    }
}
