//! What goes to the writer: it is never waited for, and what it has no room for is kept.

use std::sync::PoisonError;
use std::time::Instant;

use crossbeam_channel::{Sender, TrySendError, bounded};

use super::{BUSY, Drain};
use crate::process::Process;
use crate::schema::TableId;
use crate::tables::{self, ProcessRow, ThreadRow};
use crate::writer::Message;

impl Drain {
    /// Names that the writer could not store must be written once more.
    pub(super) fn take_names_again(&mut self) {
        let mut report = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut report.names_lost) {
            self.written.forget();
            for process in self.processes.values_mut() {
                process.announce_again();
            }
        }
    }

    /// Rows of everything that still runs, for the journal.
    pub(super) fn send_live(&mut self) {
        let host = &self.config.host;
        let mut rows: Vec<ProcessRow> = self.processes.values().map(|p| p.row(&self.clocks, host)).collect();
        rows.extend(self.rows.iter().cloned());
        let threads: Vec<ThreadRow> = self.processes.values().flat_map(|p| p.live_threads(&self.clocks)).collect();
        self.unsent.extend(tables::processes(&rows).map(|b| Message::Live(TableId::Processes, b)));
        self.unsent.extend(tables::threads(&threads).map(|b| Message::Live(TableId::Threads, b)));
        self.unsent.extend(self.tables.live_rollups());
        let windows: Vec<_> = self.processes.values().flat_map(Process::open_windows).collect();
        // None is told of once, where there were some.
        if std::mem::replace(&mut self.has_windows, !windows.is_empty()) || !windows.is_empty() {
            self.unsent.extend(tables::open_windows(windows));
        }
    }

    /// Sends what the writer has room for. True: nothing is left.
    pub(super) fn flush_unsent(&mut self) -> bool {
        let mut unsent = std::mem::take(&mut self.unsent).into_iter();
        for message in unsent.by_ref() {
            match self.writer.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => {
                    self.unsent.push(message);
                    break;
                }
                // The writer is gone, which only a defect of ours can bring about; the rings must still be emptied.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
        self.unsent.extend(unsent);
        self.unsent.is_empty() && self.flush_wanted()
    }

    /// Whether the writer has not yet taken all that is for it, or a client is about to say something.
    pub(super) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
            || self.stage.as_ref().is_some_and(|stage| !stage.is_empty())
            || self.control.as_ref().is_some_and(|control| control.is_waiting())
    }

    /// Sends rows that were held back and are wanted. False: so many wait that no more must come.
    pub(super) fn flush_wanted(&mut self) -> bool {
        let Some(stage) = &mut self.stage else { return true };
        while let Some(message) = stage.next() {
            if let Err(TrySendError::Full(message)) = self.writer.try_send(message) {
                stage.put_back(message);
                break;
            }
        }
        !stage.is_full()
    }

    /// Sends what is left when no more rows come, one after the other. False: the time was up.
    pub(super) fn send_rest(&mut self, deadline: Instant) -> bool {
        let mut stage = self.stage.take();
        let wanted = std::iter::from_fn(|| stage.as_mut()?.next());
        let mut rest = std::mem::take(&mut self.unsent).into_iter().chain(wanted);
        // The writer works until the channel is closed, so this waits for it at most until the deadline.
        let sent = rest.all(|message| self.writer.send_deadline(message, deadline.max(Instant::now() + BUSY)).is_ok());
        drop(rest);
        let now_ns = self.clocks.now_ns();
        stage.iter_mut().for_each(|stage| stage.finish(now_ns));
        self.stage = stage;
        sent
    }

    /// Has the writer bring to disk what it was sent, and waits for its word that it did.
    pub(super) fn is_written(&self, ask: fn(Sender<bool>) -> Message, deadline: Instant) -> bool {
        let (sender, receiver) = bounded(1);
        self.writer.send_deadline(ask(sender), deadline).is_ok() && receiver.recv_deadline(deadline) == Ok(true)
    }

    /// Takes all rows that were held back and are wanted for the writer: they go first.
    pub(super) fn take_wanted(&mut self) {
        if let Some(stage) = &mut self.stage {
            self.unsent.extend(std::iter::from_fn(|| stage.next()));
        }
    }

    /// Rows of processes and threads that have ended. The root's last image waits for its exit status.
    pub(super) fn send_rows(&mut self, all: bool) {
        let is_root = |row: &ProcessRow| self.root.is_none_or(|root| row.pid as u32 == root);
        let last_root = self.rows.iter().rposition(is_root).filter(|_| !all);
        let kept = last_root.map(|at| self.rows.remove(at));
        let (rows, threads) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.thread_rows));
        self.rows.extend(kept);
        let some = !rows.is_empty() || !threads.is_empty();
        if !rows.is_empty() {
            let batch = tables::processes(&rows).map(|b| Message::Rows(TableId::Processes, b, Vec::new()));
            self.unsent.extend(batch);
        }
        if !threads.is_empty() {
            let batch = tables::threads(&threads).map(|b| Message::Rows(TableId::Threads, b, Vec::new()));
            self.unsent.extend(batch);
        }
        if some && !all {
            self.send_live();
        }
    }
}
