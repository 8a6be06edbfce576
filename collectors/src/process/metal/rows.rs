//! Waits, memory, and what became of a commit: the rows of Metal that are not launches.

use gputrace_abi::event::{Event, detail};
use gputrace_abi::metal::{FLAG_NUMBERED, UNSCHEDULED, status};

use super::content::Content;
use super::{Around, Message, Metal, Open, Queue, Times, key};
use crate::names::{self, NameKind};
use crate::process::pending::{Ahead, StreamId};
use crate::process::resolve::size;
use crate::tables::{CommandBuffer, Copies, Kernel, Launch, OnGpu, Worked};

/// A new command buffer waited for room when it took longer, and its queue was full, or may have been.
const ROOM_NS: i64 = 20_000;
/// The GPU's clock and the host's differ by less.
const CLOCKS_NS: i64 = 1_000_000_000;

/// What ran so long ago is not held back for others that may have begun before it.
const HELD_NS: i64 = 1_000_000_000;

/// What a command buffer was on the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    row: CommandBuffer,
    context: i32,
    grid: [u32; 3],
    block: [u32; 3],
}

impl Ran {
    fn on_gpu(&self, (start_ns, gpu_ns): (i64, i64)) -> OnGpu {
        let row = &self.row;
        OnGpu {
            start_ns,
            gpu_ns,
            process_id: row.process_id,
            pid: row.pid,
            device: row.device,
            context: self.context,
            stream: row.queue,
            correlation_id: Some(row.correlation_id),
            graph_node: None,
        }
    }

    fn worked(&self, copies: Option<Copies>) -> Worked {
        let kernel = Kernel { name_id: self.row.name_id, grid: self.grid, block: self.block, ..Kernel::default() };
        copies.map_or(Worked::Kernel(kernel), Worked::Copies)
    }
}

/// A command buffer that the GPU is done with: when it began and how long it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completed {
    gpu: (i64, i64),
    ran: Ran,
    copies: Option<Copies>,
}

/// A command buffer that was committed and not yet seen to complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Committed {
    ran: Ran,
    copies: Option<Copies>,
}

impl Committed {
    pub(super) fn new(
        message: &Message,
        content: &Content,
        launch: &Launch,
        command_buffers: i32,
        (labelled, queue_name_id): (bool, Option<i64>),
    ) -> Committed {
        let call = &message.call;
        let row = CommandBuffer {
            start_ns: call.start_ns,
            process_id: call.process_id,
            pid: call.pid,
            correlation_id: call.correlation_id,
            device: call.device,
            queue: call.stream,
            queue_name_id,
            name_id: launch.name_id,
            labelled,
            command_buffers,
            dispatches: launch.kernels.unwrap_or(0),
            encoders: content.encoders,
            encode_ns: content.encode_ns,
            events: content.events,
            ..CommandBuffer::default()
        };
        let ran = Ran { row, context: call.context, grid: launch.grid, block: launch.block };
        Committed { ran, copies: content.only_copies() }
    }
}

impl Times {
    pub(super) fn of(event: &Event, told_ns: i64) -> Times {
        let [object, begin, end, schedule] = event.payload;
        let before = |ns: u64| told_ns.saturating_sub(ns.cast_signed());
        Times {
            key: key(object, event.flags & FLAG_NUMBERED != 0),
            told_ns,
            gpu_ns: ((begin, end) != (0, 0)).then(|| (before(begin), before(end))),
            right_ns: None,
            schedule_ns: (schedule != UNSCHEDULED).then(|| size(schedule)),
            completed: event.result == status::COMPLETED,
        }
    }
}

/// Begin and length, if they can be those of a command buffer that was committed and told to have ended then.
pub(super) fn sound((begin_ns, end_ns): (i64, i64), (committed_ns, told_ns): (i64, i64)) -> Option<(i64, i64)> {
    let is_sound = begin_ns >= committed_ns.saturating_sub(CLOCKS_NS)
        && end_ns >= begin_ns
        && end_ns <= told_ns.saturating_add(CLOCKS_NS);
    is_sound.then(|| (begin_ns, end_ns - begin_ns))
}

impl Open {
    pub(super) fn took(&mut self, message: &Message) {
        self.content.took(&message.call);
    }
}

impl Around<'_> {
    /// The id of a command buffer's name.
    pub(super) fn name(&mut self, name: &str) -> i64 {
        let id = names::id(NameKind::Kernel, name);
        if self.written.insert(id) {
            self.tables.name(id, NameKind::Kernel.name(), name);
        }
        id
    }
}

impl Metal {
    pub(super) fn queue(&mut self, queue: u64) -> &mut Queue {
        self.queues.get_or_default(queue)
    }

    pub(super) fn times(&mut self, times: Times, around: &mut Around<'_>) {
        // Times that were told before it was committed are those of one that had its address.
        let own = self.committed.get(times.key).is_some_and(|committed| committed.ran.row.start_ns < times.told_ns);
        match own.then(|| self.committed.remove(times.key)).flatten() {
            Some(committed) => self.close(&committed, Some(&times), around),
            None => drop(self.early.insert(times.key, times)),
        }
    }

    /// The rows of a commit of which all is known that will be.
    pub(super) fn close(&mut self, committed: &Committed, times: Option<&Times>, around: &mut Around<'_>) {
        let mut row = committed.ran.row;
        if let Some(queue) = self.queues.get_mut(row.queue as u64) {
            queue.committed = queue.committed.saturating_sub(1);
        }
        if let Some(times) = times {
            row.gpu = self.gpu_clocks.gpu(committed.ran.context as u16, times, row.start_ns);
            row.schedule_ns = times.schedule_ns;
            row.completed = Some(times.completed);
        }
        around.tables.command_buffer(&row);
        if let Some(gpu) = row.gpu {
            self.ran.push(Completed { gpu, ran: Ran { row, ..committed.ran }, copies: committed.copies });
        }
    }

    /// Rows of what the GPU did, in the order of their begin: one that runs began after it was committed.
    pub(super) fn write_ran(&mut self, all: bool, around: &mut Around<'_>) {
        if self.ran.is_empty() {
            return;
        }
        self.ran.sort_by_key(|completed| completed.gpu.0);
        let newest_ns = self.ran.last().map_or(0, |completed| completed.gpu.0);
        let running = self.committed.iter().map(|(_, committed)| committed.ran.row.start_ns).min();
        let from_ns = running.unwrap_or(i64::MAX).max(newest_ns.saturating_sub(HELD_NS));
        let ready = self.ran.partition_point(|completed| all || completed.gpu.0 < from_ns);
        for Completed { gpu, ran, copies } in self.ran.drain(..ready) {
            around.tables.on_gpu(&ran.on_gpu(gpu), &ran.worked(copies));
        }
    }

    pub(super) fn sync(&mut self, mut message: Message, around: &mut Around<'_>) {
        let [object, queue, value, buffer] = message.payload;
        let (context, at) = (message.context(), message.at);
        let pending = &mut *around.pending;
        message.call.ahead = match message.detail {
            detail::STREAM | detail::SCHEDULE => {
                // Its commit is yet to be read, or was not seen: what nobody committed never ends.
                self.open.get_mut(object).into_iter().for_each(|open| open.waited_for = true);
                pending.wait_event(object, at, message.detail == detail::STREAM)
            }
            detail::EVENT => pending.wait_event(self.signals.awaited(object, value), at, message.call.result == 0),
            detail::STREAM_WAIT => {
                let known = self.open.get(buffer).map_or(0, |open| open.queue);
                let queue = if queue == 0 { known } else { queue };
                message.call.stream = queue as i64;
                pending.join(context, StreamId::new(queue, 0), self.signals.awaited(object, value), at)
            }
            detail::ROOM => {
                let limit = self.queue(queue).limit;
                let seems_full = self.waits_for_room.remove(&message.call.correlation_id);
                let full = (seems_full || limit == 0) && message.call.api_ns > ROOM_NS;
                if seems_full && !full {
                    // It was given room at once: of those that nobody committed some are gone. As long as they are, none counts.
                    let queue = self.queue(queue);
                    queue.gone = queue.open;
                }
                if object != 0 {
                    self.begin(object, queue, message.end_ns, around);
                }
                if !full {
                    return around.tables.api(&message.call, object as i64, false);
                }
                Ahead { streams: 1, legacy: false }
            }
            _ => Ahead::default(),
        };
        around.tables.sync(&message.call, message.detail, object as i64);
    }

    /// Whether a new command buffer has to wait for others to complete, as far as the queue's limit is known.
    pub(super) fn is_full(&mut self, queue: u64) -> bool {
        let Queue { limit, open, gone, committed, .. } = *self.queue(queue);
        limit != 0 && u64::from(open.saturating_sub(gone)) + u64::from(committed) >= limit
    }
}
