//! Who asks the session: a thread of its own, as often as the interval says and never more often, so that keys are heard while an
//! answer is on its way.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use gputrace_collectors::live::Snapshot;

/// What came of asking.
#[derive(Debug)]
pub(crate) enum News {
    /// How the session is doing.
    Now(Box<Snapshot>),
    /// There is no session any more, or nobody at work there: which of the two.
    Over(String),
    /// It did not answer, and why.
    Silent(String),
}

/// Asks a session once.
pub(crate) type Ask = Box<dyn FnMut() -> News + Send>;

enum Told {
    Interval(Duration),
    Pause(bool),
}

/// The thread's other end.
pub(crate) struct Feed {
    told: Sender<Told>,
    pub(crate) news: Receiver<News>,
}

impl Feed {
    /// Starts asking: at once, and a moment later, so that there are rates soon.
    pub(crate) fn start(mut ask: Ask, mut interval: Duration) -> std::io::Result<Feed> {
        let ((told, hears), (tells, news)) = (channel(), channel());
        let run = move || {
            let (mut paused, mut soon) = (false, true);
            loop {
                let asked = Instant::now();
                if !paused {
                    let news = ask();
                    let over = matches!(news, News::Over(_));
                    if tells.send(news).is_err() || over {
                        return;
                    }
                }
                let wait = if std::mem::take(&mut soon) { interval.min(FIRST) } else { interval };
                let mut next = asked + wait;
                loop {
                    match hears.recv_timeout(next.saturating_duration_since(Instant::now())) {
                        Ok(Told::Interval(new)) => {
                            interval = new;
                            next = asked + interval;
                        }
                        Ok(Told::Pause(on)) => paused = on,
                        Err(RecvTimeoutError::Timeout) => break,
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            }
        };
        std::thread::Builder::new().name("gputrace-ask".to_owned()).spawn(run)?;
        Ok(Feed { told, news })
    }

    /// Asks this often from now on.
    pub(crate) fn every(&self, interval: Duration) {
        let _ = self.told.send(Told::Interval(interval));
    }

    /// Asks no more, or again.
    pub(crate) fn pause(&self, on: bool) {
        let _ = self.told.send(Told::Pause(on));
    }
}

/// From the first question to the second.
const FIRST: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_session_is_asked_no_more_often_than_was_said_and_not_after_its_end() {
        let asked = Arc::new(AtomicU32::new(0));
        let counts = asked.clone();
        let ask = move || match counts.fetch_add(1, Ordering::Relaxed) {
            4 => News::Over(String::new()),
            _ => News::Silent("busy".to_owned()),
        };
        let begun = Instant::now();
        let feed = Feed::start(Box::new(ask), Duration::from_millis(20)).unwrap();
        let news: Vec<News> = feed.news.iter().collect();
        assert!(begun.elapsed() >= Duration::from_millis(4 * 20));
        assert_eq!((news.len(), asked.load(Ordering::Relaxed)), (5, 5));
        assert!(matches!(news.last(), Some(News::Over(_))));
    }
}
