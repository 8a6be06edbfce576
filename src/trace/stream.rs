//! The rows of one table of one launcher: its sealed files in order, then the young rows of its journal.
//!
//! They are decoded on another thread, a few batches ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use gputrace_collectors::schema::TableId;

use super::decode::{Job, Message};
use super::{Filter, Launcher, Problem, Reach, Rows, Trace, contain};

/// Batches that are decoded ahead.
const AHEAD: usize = 2;

/// The rows of one table, in order.
pub(crate) struct Stream<'a> {
    trace: &'a Trace,
    job: Arc<Job>,
    messages: Option<Receiver<Message>>,
}

impl<'a> Stream<'a> {
    /// Starts to decode.
    pub(crate) fn new(
        trace: &'a Trace,
        launcher: &Launcher,
        table: TableId,
        columns: Vec<&'static str>,
        filter: &Filter,
        reach: Reach,
    ) -> Stream<'a> {
        let (files, journal) = (launcher.sealed(table).to_vec(), launcher.journal.clone());
        let sums = matches!(table, TableId::Rollups | TableId::RollupNames);
        let filter = if sums { filter.of_sums() } else { filter.clone() };
        let job = Arc::new(Job { table, columns, filter, reach, files, journal });
        let mut stream = Stream { trace, job, messages: None };
        if !stream.job.files.is_empty() || stream.job.journal.is_some() {
            stream.decode_from(0);
        }
        stream
    }

    fn decode_from(&mut self, first: usize) {
        let (sender, receiver) = sync_channel(AHEAD);
        let current = Arc::new(AtomicUsize::new(first));
        let (job, to, at) = (self.job.clone(), sender.clone(), current.clone());
        let work = move || job.run(first, &to, &|index| at.store(index, Ordering::Relaxed));
        let tell = move |text| drop(sender.send(Message::Panicked(current.load(Ordering::Relaxed), text)));
        match contain::spawn(work, tell) {
            Ok(()) => self.messages = Some(receiver),
            Err(error) => {
                let path = self.job.files.first().or(self.job.journal.as_ref()).cloned().unwrap_or_default();
                self.trace.problem(Problem::lost(path, format!("cannot start a thread to read it: {error}")));
            }
        }
    }

    /// The next rows, never none at all, until the end.
    pub(crate) fn next(&mut self) -> Option<Rows> {
        loop {
            match self.messages.as_ref()?.recv() {
                Ok(Message::Rows(rows)) => return Some(rows),
                Ok(Message::Problem(problem)) => self.trace.problem(problem),
                Ok(Message::Panicked(index, text)) => {
                    let path = self.job.files.get(index).or(self.job.journal.as_ref()).cloned().unwrap_or_default();
                    self.trace.problem(Problem::lost(path, format!("is damaged, its other rows are left out: {text}")));
                    self.decode_from(index + 1);
                }
                Err(_) => {
                    self.messages = None;
                    return None;
                }
            }
        }
    }
}
