//! Moments worth keeping, where single events are held back: who asks for them, what else makes one, and what is told to
//! whoever waits until the disk has it.

use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Instant;

use crossbeam_channel::{Receiver, TryRecvError, bounded};

use super::{BUSY, Drain};
use crate::control::{Client, Request};
use crate::detail::{self, Refused};
use crate::facts::quote;
use crate::manifest::ExitStatusInfo;
use crate::process::Process;
use crate::writer::Message;

/// Passes after an interval's end until every event of it was read, held back for its bindings, and made a row.
const PASSES: u32 = 3;
/// What the GPU did in an interval is told of later; it is waited for this long.
const GPU_LATE_NS: i64 = 6_000_000_000;
/// Signals by which programs end their own children when all is well.
const USUAL: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE];

/// An interval that somebody waits for.
pub(super) struct Dump {
    to_ns: i64,
    /// Passes since its end.
    passes: u32,
    client: Client,
    /// The writer's word, once it was told to bring everything to disk.
    written: Option<Receiver<bool>>,
}

impl Drain {
    /// Answers who asks, and looks after what has been asked for.
    pub(super) fn answer(&mut self) {
        let now_ns = self.clocks.now_ns();
        if let Some(stage) = &mut self.stage {
            stage.tick(now_ns);
        }
        let requests = self.control.as_mut().map(|control| control.take()).unwrap_or_default();
        for (request, client) in requests {
            match request {
                Request::Ping => client.answer(Ok(&self.about())),
                Request::Live => self.show_client(client),
                Request::Dump => self.dump(Some(client), "gputrace dump"),
                Request::Set(settings) => self.set(&settings, client),
                Request::Start(None) => self.switch_all(true, client),
                Request::Start(Some(capture)) => self.schedule(capture, client),
                Request::Stop => self.switch_all(false, client),
                Request::Unknown(word) => client.answer(Err(&format!("{word}: this gputrace does not know that"))),
            }
        }
        for mut dump in std::mem::take(&mut self.dumps) {
            match dump.written.as_ref().map(|written| written.try_recv()) {
                Some(Err(TryRecvError::Empty)) => self.dumps.push(dump),
                Some(written) => self.tell(dump.client, written == Ok(true)),
                None => {
                    dump.passes += u32::from(self.has_reached(dump.to_ns, now_ns));
                    if dump.passes >= PASSES {
                        dump.written = Some(self.bring_to_disk());
                    }
                    self.dumps.push(dump);
                }
            }
        }
    }

    /// Whether what began before this moment is over, and as good as told.
    fn has_reached(&self, to_ns: i64, now_ns: i64) -> bool {
        let is_late = now_ns > to_ns.saturating_add(GPU_LATE_NS);
        let sent = self.unsent.is_empty() && self.stage.as_ref().is_none_or(|stage| stage.is_empty());
        now_ns >= to_ns && sent && (self.unwritten_ns >= to_ns || is_late)
    }

    /// Has the writer bring all rows so far to disk, and the account of them.
    pub(super) fn bring_to_disk(&mut self) -> Receiver<bool> {
        let (sender, receiver) = bounded(1);
        detail::hand_on(&mut self.stage, self.tables.take(1), &mut self.unsent);
        // What is wanted goes first: rows that wait for the writer are part of what was asked for.
        self.take_wanted();
        self.send_live();
        self.unsent.push(Message::Manifest(Box::new(self.describe())));
        self.unsent.push(Message::Flush(sender));
        receiver
    }

    fn tell(&self, client: Client, is_written: bool) {
        let trace = self.trace();
        let trace = trace.display();
        match is_written {
            true => client.answer(Ok(&trace.to_string())),
            false => {
                client.answer(Err(&format!("it could not be written to {trace}; its last lines on stderr say why")))
            }
        }
    }

    /// Answers when the disk has all that began before this moment.
    pub(super) fn answer_when_written(&mut self, to_ns: i64, client: Client) {
        self.dumps.push(Dump { to_ns, passes: 0, client, written: None });
    }

    /// The trace's folder for somebody who may be in another one.
    pub(super) fn trace(&self) -> PathBuf {
        std::path::absolute(&self.config.trace).unwrap_or_else(|_| self.config.trace.clone())
    }

    /// The launcher's pid, the trace and the command.
    fn about(&self) -> String {
        let words: Vec<String> = self.config.command.iter().map(|word| quote(word)).collect();
        format!("{}\t{}\t{}", std::process::id(), self.trace().display(), words.join(" "))
    }

    /// Keeps what just happened.
    pub(super) fn dump(&mut self, client: Option<Client>, why: &str) {
        let now_ns = self.clocks.now_ns();
        let opened = self.stage.as_mut().ok_or(Refused::NoRecorder).and_then(|stage| stage.trigger(now_ns, why));
        self.changed = true;
        match (opened, client) {
            (Ok(to_ns), Some(client)) => self.answer_when_written(to_ns, client),
            (Ok(_), None) => {}
            (Err(refused), Some(client)) => client.answer(Err(refused.text())),
            (Err(refused), None) => {
                let line = format!("{why}: {}", refused.text());
                self.shared.lock().unwrap_or_else(PoisonError::into_inner).warnings.push_back(line);
            }
        }
    }

    /// A process has ended: its death is worth keeping.
    pub(super) fn note_death(&mut self, process: &Process) {
        let (Some(stage), Some((signal, at_ns))) = (&mut self.stage, process.killed_by()) else { return };
        if self.root == Some(process.pid as u32) {
            let _ = stage.trigger(at_ns, &ended_by(signal));
        } else if !USUAL.contains(&signal) {
            let _ = stage.trigger(at_ns, &format!("process {} was ended by signal {signal}", process.pid));
        }
        self.changed = true;
    }

    /// The command has ended: so it is, unless all went well.
    pub(super) fn note_end(&mut self, status: Option<ExitStatusInfo>) {
        let status = status.unwrap_or_default();
        let why = match (status.signal, status.code) {
            (Some(signal), _) => ended_by(signal),
            (None, Some(code)) if code != 0 => format!("the command ended with exit code {code}"),
            _ => return,
        };
        let of_root = |row: &&crate::tables::ProcessRow| self.root == Some(row.pid as u32);
        let ended_ns = self.rows.iter().rev().find(of_root).and_then(|row| row.end_ns);
        let at_ns = ended_ns.unwrap_or_else(|| self.clocks.now_ns());
        if let Some(stage) = &mut self.stage {
            stage.trigger_last(at_ns, &why);
        }
    }

    /// Answers who still waits when the run is over.
    pub(super) fn finish_dumps(&mut self, deadline: Instant) {
        for dump in std::mem::take(&mut self.dumps) {
            let written = self.is_written(Message::Flush, deadline.max(Instant::now() + BUSY));
            self.tell(dump.client, written);
        }
    }
}

fn ended_by(signal: i32) -> String {
    format!("the command was ended by signal {signal}")
}
