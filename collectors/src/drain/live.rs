//! What is answered to whoever watches the session: a snapshot of it, made between two passes.

use std::sync::Arc;

use crossbeam_channel::Sender;

use super::Drain;
use crate::control::Client;
use crate::live::{Answers, OFTEN_NS, Snapshot, VERSION};

/// Who watches, and what they were told last.
#[derive(Default)]
pub(super) struct Watched {
    last: Option<Arc<Snapshot>>,
    answers: Answers,
}

impl Drain {
    /// Tells a thread of this process.
    pub(super) fn show(&mut self, hot: bool, answer: &Sender<Arc<Snapshot>>) {
        let snapshot = self.snapshot(hot);
        // Who waits no more has gone.
        let _ = answer.try_send(snapshot);
    }

    /// Tells a client at the control socket.
    pub(super) fn show_client(&mut self, client: Client) {
        let snapshot = self.snapshot(true);
        self.watched_by.answers.give(snapshot, client);
    }

    /// The session as it is now, or was a moment ago.
    fn snapshot(&mut self, hot: bool) -> Arc<Snapshot> {
        let now_ns = self.clocks.now_ns();
        if hot {
            self.tables.live.want_hot(now_ns);
        }
        if let Some(last) = &self.watched_by.last
            && (0..OFTEN_NS).contains(&(now_ns - last.at_ns))
            && (last.hot.is_some() || !hot)
        {
            return Arc::clone(last);
        }
        let snapshot = Arc::new(self.make_snapshot(now_ns));
        self.watched_by.last = Some(Arc::clone(&snapshot));
        snapshot
    }

    fn make_snapshot(&mut self, now_ns: i64) -> Snapshot {
        let live = &mut self.tables.live;
        let (own, beyond): (Vec<_>, Vec<_>) = self.processes.values().partition(|process| live.has_own(process.id));
        let mut processes: Vec<_> = own.iter().map(|process| process.live(&self.clocks, self.unwritten_ns)).collect();
        processes.iter_mut().for_each(|process| live.complete(process));
        processes.sort_by_key(|process| process.process_id);
        let mut snapshot = Snapshot {
            version: VERSION,
            at_ns: now_ns,
            started_ns: self.manifest.started_ns,
            command: self.config.command.clone(),
            host: self.config.host.clone(),
            tool_version: self.config.tool_version.clone(),
            processes,
            beyond: beyond.len() as u64,
            untraced: self.manifest.untraced.len() as u64,
            hangs: self.hangs.count(),
            ..Snapshot::default()
        };
        live.describe(now_ns, &mut snapshot);
        snapshot.trace = self.trace().display().to_string();
        snapshot
    }
}
