//! `gputrace top`: what a session is doing, in a terminal, while it does it.
//!
//! A thread asks the session (`feed`), two snapshots make rates (`rates`), these and what is hot make rows of text (`view`, `table`),
//! keys choose among them (`app`), and `screen` lays them out. A finished trace is shown as one still picture (`still`).

mod app;
mod devices;
mod feed;
mod rates;
mod reported;
mod screen;
mod still;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod view;
mod whole;

use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use app::{App, Asked};
use feed::Feed;
pub(crate) use feed::{Ask, News};
use rates::History;
pub(crate) use still::of_trace;
use terminal::Screen;
pub(crate) use view::{PROCESSES, View};

use crate::trace::SiteFinder;

/// How long a key is waited for, before it is looked whether there are news.
const PATIENCE: Duration = Duration::from_millis(50);
/// So many columns are written where there is no terminal.
const PLAIN_WIDTH: usize = 160;
/// From the first look to the second where one frame is asked for, at most.
const ONCE: Duration = Duration::from_secs(1);

/// How it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// From one look to the next.
    pub(crate) interval: Duration,
    /// Column that processes are sorted by.
    pub(crate) sort: String,
}

/// What a session does within one interval, as text.
pub(crate) fn once(mut ask: Ask, options: &Options) -> Result<String> {
    let (mut history, mut sites) = (History::default(), None);
    for look in 0..2 {
        if look == 1 {
            std::thread::sleep(options.interval.min(ONCE));
        }
        match ask() {
            News::Now(snapshot) => {
                sites.get_or_insert_with(|| SiteFinder::new(snapshot.started_ns));
                history.add(*snapshot);
            }
            // It ended meanwhile: what was seen before is all that there is.
            News::Over(_) if look == 1 => break,
            News::Over(why) | News::Silent(why) => bail!("{why}"),
        }
    }
    let mut sites = sites.unwrap_or_else(|| SiteFinder::new(0));
    Ok(still_text(&view::of_session(&history, &mut sites), options))
}

/// A picture as text.
pub(crate) fn still_text(view: &View, options: &Options) -> String {
    screen::plain(&mut App::new(options.interval, &options.sort), view, PLAIN_WIDTH)
}

/// Shows a finished trace until a key ends it. Returns the signal that did.
pub(crate) fn show_still(view: &View, options: &Options) -> Result<Option<i32>> {
    let mut app = App::new(options.interval, &options.sort);
    app.over = true;
    shown(&mut app, None, |_, _| view.clone())
}

/// Shows a session until a key ends it. Returns the signal that did.
pub(crate) fn show(ask: Ask, options: &Options) -> Result<Option<i32>> {
    let feed = Feed::start(ask, options.interval).context("cannot start a thread")?;
    let (mut history, mut sites) = (History::default(), None::<SiteFinder>);
    let mut app = App::new(options.interval, &options.sort);
    shown(&mut app, Some(&feed), |app, news| {
        match news {
            Some(News::Now(snapshot)) => {
                sites.get_or_insert_with(|| SiteFinder::new(snapshot.started_ns));
                history.add(*snapshot);
                app.message.clear();
            }
            Some(News::Over(_)) => {
                app.over = true;
                let trace = history.last().map_or("TRACE", |last| last.trace.as_str());
                app.message = format!("THE SESSION HAS ENDED: gputrace report {}", gputrace_collectors::quote(trace));
            }
            Some(News::Silent(why)) => app.message = format!("NO ANSWER: {why}"),
            None => {}
        }
        match &mut sites {
            Some(sites) => view::of_session(&history, sites),
            None => View { title: "asking the session ...".to_owned(), ..View::default() },
        }
    })
}

/// Draws what `view` makes of the news, and does what keys say, until one ends it.
fn shown(
    app: &mut App,
    feed: Option<&Feed>,
    mut view: impl FnMut(&mut App, Option<News>) -> View,
) -> Result<Option<i32>> {
    let mut screen = Screen::take().context("cannot use this terminal; --once prints one frame")?;
    let mut now = view(app, None);
    let mut changed = true;
    loop {
        loop {
            match feed.map_or(Err(TryRecvError::Empty), |feed| feed.news.try_recv()) {
                Ok(news) => now = view(app, Some(news)),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    app.over = true;
                    break;
                }
            }
            changed = true;
        }
        if let Some(signal) = screen.signal().context("the terminal is gone")? {
            return Ok(Some(signal));
        }
        if std::mem::take(&mut changed) {
            screen.terminal.draw(|frame| screen::draw(frame, app, &now)).context("cannot write to the terminal")?;
        }
        if !event::poll(PATIENCE).context("cannot read from the terminal")? {
            continue;
        }
        changed = true;
        match event::read().context("cannot read from the terminal")? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match app.key(key) {
                Asked::Quit => return Ok(None),
                Asked::Stop => screen.stop().context("cannot stop")?,
                Asked::Interval(interval) => feed.iter().for_each(|feed| feed.every(interval)),
                Asked::Pause(on) => feed.iter().for_each(|feed| feed.pause(on)),
                Asked::Nothing => {}
            },
            _ => {}
        }
    }
}
