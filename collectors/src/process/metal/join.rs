//! Messages to encoders and command buffers: what belongs to which.

use gputrace_abi::event::detail;
use gputrace_abi::metal::AGAIN;

use super::content;
use super::rows::Committed;
use super::{Around, Encoder, MOST_HELD, Message, Metal, Open, Times};
use crate::facts::Role;
use crate::process::pending::StreamId;
use crate::tables::Launch;

impl Metal {
    pub(super) fn encode(&mut self, message: &Message, around: &mut Around<'_>) {
        let [encoder, buffer, pipeline, kind] = message.payload;
        match message.detail {
            detail::ENCODER => {
                if self.open.get(buffer).is_none() {
                    self.begin(buffer, 0, message.call.start_ns, around);
                }
                self.encoders.insert(encoder, Encoder { buffer, pipeline: 0, set_ns: 0, label: None });
                self.open.get_mut(buffer).into_iter().for_each(|open| open.content.encoder(kind));
            }
            detail::PIPELINE => {
                let set_ns = message.call.start_ns;
                let set = |known: &mut Encoder| (known.pipeline, known.set_ns) = (pipeline, set_ns);
                self.encoders.get_mut(encoder).into_iter().for_each(set);
            }
            _ => {}
        }
        let known = self.encoders.get(encoder).copied();
        // While recording was off another one may have been set.
        let holds = |known: &Encoder| !around.recording.went_on_between(known.set_ns, message.call.start_ns);
        let pipeline = known.filter(holds).map(|known| known.pipeline).filter(|pipeline| *pipeline != 0);
        let name_id = pipeline.and_then(|pipeline| around.names.find(pipeline, message.at));
        let dispatch = content::dispatch(message, name_id, known.and_then(|known| known.label));
        let open = known.and_then(|known| self.open.get_mut(known.buffer));
        match (open, dispatch) {
            (Some(open), Some(dispatch)) => {
                open.took(message);
                open.content.dispatch(&dispatch);
                if self.held < MOST_HELD {
                    self.held += 1;
                    open.content.dispatches.push(dispatch);
                } else {
                    self.not_held += 1;
                    around.tables.dispatch(&dispatch, None);
                }
            }
            (Some(open), None) => {
                open.took(message);
                open.content.events += 1;
            }
            (None, Some(dispatch)) => around.tables.dispatch(&dispatch, None),
            (None, None) => self.strays += 1,
        }
        if message.detail == detail::END_ENCODER {
            self.encoders.remove(encoder);
        }
    }

    /// A command buffer is there from then on. What had its address before is gone, whether it was seen to end or not.
    pub(super) fn begin(&mut self, buffer: u64, queue: u64, since_ns: i64, around: &mut Around<'_>) {
        if let Some(gone) = self.committed.remove(buffer) {
            self.close(&gone, None, around);
        }
        if let Some(gone) = self.open.remove(buffer) {
            self.discard(gone, around);
        }
        if let Some(oldest) = self.open.insert(buffer, Open { queue, since_ns, ..Open::default() }) {
            self.forget(&oldest, around);
        }
        if queue != 0 {
            self.queue(queue).open += 1;
        }
    }

    /// A command buffer that is gone and that nobody committed: the GPU was given nothing of it. Of one that nobody saw made, or where
    /// objects of some class are not seen in full, its commit may be what was not seen.
    pub(super) fn discard(&mut self, mut open: Open, around: &mut Around<'_>) {
        self.unseen_commits += u64::from(open.waited_for);
        let discarded = open.queue != 0 && self.unseen.is_empty() && self.unseen_commits == 0;
        open.content.dispatches.iter_mut().for_each(|dispatch| dispatch.discarded = discarded);
        self.forget(&open, around);
    }

    /// One of which nothing more is known.
    fn forget(&mut self, open: &Open, around: &mut Around<'_>) {
        self.leave(open);
        open.content.dispatches.iter().for_each(|dispatch| around.tables.dispatch(dispatch, None));
    }

    /// It is not among those that are being encoded any more.
    fn leave(&mut self, open: &Open) {
        self.held -= open.content.dispatches.len();
        if let Some(queue) = self.queues.get_mut(open.queue) {
            queue.open = queue.open.saturating_sub(1);
            queue.gone = queue.gone.min(queue.open);
        }
    }

    pub(super) fn transfer(&mut self, mut message: Message, around: &mut Around<'_>) {
        let transfer = content::transfer(&message, &self.memory);
        let known = self.encoders.get(message.payload[1]).copied();
        let open = known.and_then(|known| self.open.get_mut(known.buffer));
        message.call.stream = open.as_ref().map_or(0, |open| open.queue as i64);
        if let Some(open) = open {
            open.took(&message);
            open.content.copy(&transfer);
        }
        around.tables.transfer(&message.call, &transfer);
    }

    pub(super) fn other(&mut self, message: &Message, around: &mut Around<'_>) {
        let [object, queue, buffer, number] = message.payload;
        match message.role {
            Role::MakesQueue => {
                let label = around.written.by_key(buffer);
                let queue = self.queue(object);
                (queue.limit, queue.label) = (number, label);
            }
            Role::Labels(kind) => {
                self.label(kind, object, around.written.by_key(buffer), message.call.start_ns, around)
            }
            Role::BeginsBuffer => {
                if let Some(mut gone) = self.open.remove(object) {
                    let discarded = self.unseen.is_empty();
                    gone.content.dispatches.iter_mut().for_each(|dispatch| dispatch.discarded = discarded);
                    self.forget(&gone, around);
                }
            }
            Role::SignalsEvent => match self.open.get_mut(buffer) {
                // When it has run.
                Some(open) => open.content.signal(object, number),
                None => {
                    let given = self.signals.give(object, number);
                    around.pending.record(message.context(), given, StreamId::new(queue, 0), message.at);
                }
            },
            _ => {}
        }
        around.tables.api(&message.call, object as i64, false);
    }

    pub(super) fn commit(&mut self, mut message: Message, around: &mut Around<'_>) {
        let [object, queue, label, count] = message.payload;
        if !message.numbered && (count == AGAIN || self.is_under_way(object, message.call.start_ns)) {
            // What runs is the first one, which has the launch and the times.
            self.again += 1;
            message.call.stream = queue as i64;
            return around.tables.api(&message.call, object as i64, false);
        }
        let open = match message.numbered {
            true => self.members_of(object),
            // One that is there only since then has the address of the one that is committed, which was told too late.
            false if self.open.get(object).is_some_and(|open| open.since_ns > message.call.start_ns) => None,
            false => self.open.remove(object),
        };
        let key = message.key();
        let open = self.as_it_is(open.unwrap_or_default(), queue, message.call.start_ns, around);
        self.leave(&open);
        // The shim asks a command buffer for its queue only where nobody saw it made.
        let queue = if queue == 0 { open.queue } else { queue };
        message.call.stream = queue as i64;
        let content = open.content;
        let (context, stream) = (message.context(), StreamId::new(queue, 0));
        message.call.ahead = around.pending.work(context, stream, message.at);
        // Who waits for it, or for an event that it signals, waits for the queue as far as this.
        let given = content.signals.iter().map(|(event, value)| self.signals.give(*event, *value));
        let signals = given.chain((!message.numbered).then_some(object));
        signals.for_each(|event| around.pending.record(context, event, stream, message.at.saturating_add(1)));

        let name_id = open.label.or_else(|| self.name_of(&content.labels, around));
        let name_id = name_id.or_else(|| self.name_of(&content.pipelines, around));
        let (grid, block) = content.shape();
        let launch = Launch {
            name_id,
            function: object as i64,
            grid,
            block,
            shared_bytes: 0,
            kernels: Some(content.kernels.min(i32::MAX as u32) as i32),
            graph_exec_id: None,
            stack_launches: message.stack_launches,
            stands_for: None,
        };
        around.tables.launch(&message.call, &launch);
        for dispatch in &content.dispatches {
            around.tables.dispatch(dispatch, Some(message.call.correlation_id));
        }
        let count = if message.numbered { count.min(i32::MAX as u64) as i32 } else { 1 };
        // Of one that the messages before it did not tell of.
        let label = around.written.by_key(label);
        let of_queue = self.queue(queue);
        of_queue.label = label.or(of_queue.label);
        of_queue.committed += 1;
        let labels = (open.label.is_some(), of_queue.label);
        let committed = Committed::new(&message, &content, &launch, count, labels);
        match self.early.remove(key).filter(|times: &Times| times.told_ns > message.call.start_ns) {
            Some(times) => self.close(&committed, Some(&times), around),
            None => {
                // One whose end nobody told, or the oldest of too many.
                if let Some(gone) = self.committed.insert(key, committed) {
                    self.forgotten += 1;
                    self.close(&gone, None, around);
                }
            }
        }
        around.tables.settle();
    }

    /// What is known of a command buffer when it is committed. Of one that was there before recording went on somebody may have changed
    /// the label meanwhile; and where the shim saw nobody make it (it says the queue) it may be another one at that address.
    fn as_it_is(&mut self, mut open: Open, queue: u64, now_ns: i64, around: &mut Around<'_>) -> Open {
        if around.recording.went_on_between(open.since_ns, now_ns) {
            open.label = None;
            if queue != 0 {
                self.discard(std::mem::take(&mut open), around);
            }
        }
        open
    }

    /// Whether a command buffer was committed and is not seen to have completed: nothing was encoded since, nor the address given out
    /// again.
    fn is_under_way(&self, buffer: u64, now_ns: i64) -> bool {
        let is_open = self.open.get(buffer).is_some_and(|open| open.since_ns <= now_ns);
        !is_open && self.committed.get(buffer).is_some()
    }

    /// The command buffers of a commit with this number, as one.
    fn members_of(&mut self, number: u64) -> Option<Open> {
        let members = self.members.remove(number)?;
        let told = members.len() as u64;
        let parts = members.into_iter().filter_map(|buffer| self.open.remove(buffer)).collect::<Vec<_>>();
        let mut all = parts.into_iter().fold(Open::default(), |mut all, part| {
            all.content.append(part.content);
            all.label = all.label.or(part.label);
            all
        });
        all.content.events += told;
        Some(all)
    }
}
