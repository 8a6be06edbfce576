//! Answers to who asked at the control socket, written by a thread of their own: a snapshot of many processes is more than a socket
//! takes at once, and the drain waits for no client.

use std::sync::Arc;

use crossbeam_channel::{Sender, TrySendError, bounded};

use super::Snapshot;
use crate::control::Client;

/// Clients whose answers wait.
const MOST_WAITING: usize = 16;

/// The thread, once there is one.
#[derive(Default)]
pub(crate) struct Answers(Option<Sender<(Arc<Snapshot>, Client)>>);

impl Answers {
    /// Has a client answered.
    pub(crate) fn give(&mut self, snapshot: Arc<Snapshot>, client: Client) {
        let sender = self.0.get_or_insert_with(begin);
        match sender.try_send((snapshot, client)) {
            Ok(()) => {}
            Err(TrySendError::Full((_, client))) => client.answer(Err("too many ask at once")),
            Err(TrySendError::Disconnected((_, client))) => client.answer(Err("no thread can be started to answer")),
        }
    }
}

/// Starts the thread, which ends with the sender; where it cannot be started nobody receives.
fn begin() -> Sender<(Arc<Snapshot>, Client)> {
    let (sender, clients) = bounded::<(Arc<Snapshot>, Client)>(MOST_WAITING);
    let answer = move || {
        for (snapshot, client) in clients {
            match serde_json::to_string(&*snapshot) {
                Ok(text) => client.answer_at_length(&text),
                Err(error) => client.answer(Err(&error.to_string())),
            }
        }
    };
    let _ = std::thread::Builder::new().name("gputrace-live".to_owned()).spawn(answer);
    sender
}
