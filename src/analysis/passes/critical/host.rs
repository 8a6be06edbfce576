//! The host's side of one process: one line of time for all threads that call the driver.
//!
//! Threads that give a GPU its work in turn (a loop and its backward pass) hand over to each other, which no row tells. So at
//! each time one of them counts: the one whose driver call began last. While no call is open the host is outside of the driver,
//! but for waits for the operating system of the thread that called last.

use super::device::{Device, Ended};
use super::lanes::{CLASSES, Class, Lanes, Since, Without};
use super::path::{FIRST, Node, Nodes, Piece};
use crate::analysis::passes::gpu::Did;
use crate::trace::NO_NAME;

/// A call's end may lie so much before that of the GPU's work for which it waited: two clocks were compared.
const SKEW_NS: i64 = 2_000;

/// A launch or copy that takes so long while so many operations are outstanding may have waited for room in the queue of its
/// stream, which holds about a thousand; then it ends soon after one of them.
const QUEUED_NS: i64 = 20_000;
const QUEUED: u32 = 500;
const ROOM_NS: i64 = 20_000;

/// A call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) tid: i32,
    pub(super) did: Did,
    pub(super) api_id: i64,
    /// Correlation id of a launch or transfer; the stream of a wait for one.
    pub(super) id: i64,
    /// It caused one operation: nothing else of it will come.
    pub(super) single: bool,
    /// Its work was queued behind another stream's, by the legacy default stream's rule.
    pub(super) legacy: bool,
}

/// Stands for a call that has neither.
pub(super) const NO_ID: i64 = i64::MIN;
/// Stands for a wait for everything in the context.
pub(super) const ALL_ID: i64 = i64::MIN + 1;

impl Call {
    /// Correlation id, when it may have caused operations.
    pub(super) fn cause(&self) -> Option<i64> {
        matches!(self.did, Did::Launch | Did::Transfer).then_some(self.id)
    }

    /// The stream that it waits for, when it is one.
    pub(super) fn stream(&self) -> Option<i64> {
        (self.did == Did::Wait && ![NO_ID, ALL_ID].contains(&self.id)).then_some(self.id)
    }

    fn piece(&self) -> Piece {
        match self.did {
            Did::Launch => Piece::Launch,
            Did::Transfer => Piece::Transfer,
            Did::Wait => Piece::Wait,
            Did::Memory => Piece::Memory,
            Did::Load => Piece::Load,
            Did::System => Piece::System,
            Did::Ask | Did::Other | Did::Collective => Piece::Other,
        }
    }

    /// Whether it may have to wait until the GPU has done something.
    fn may_wait(&self) -> bool {
        matches!(self.did, Did::Wait | Did::Transfer | Did::Memory)
    }

    /// Whether it waits for all that was given before it, and not for one stream or event.
    fn waits_for_all(&self) -> bool {
        self.did == Did::Memory || self.did == Did::Wait && self.id == ALL_ID
    }

    /// Whether it counts while another thread is in a call.
    fn interrupts(&self) -> bool {
        matches!(self.did, Did::Launch | Did::Transfer)
    }
}

/// The host.
#[derive(Debug)]
pub(super) struct Host {
    /// Up to here it was looked at.
    pub(super) at: i64,
    /// The same in every lane.
    pub(super) lanes: Since,
    /// The last piece.
    pub(super) node: u64,
    open: Vec<Call>,
    /// Thread of the last call.
    active: i32,
    /// Time by class.
    pub(super) spent_ns: [i64; CLASSES.len()],
}

impl Host {
    /// The host from some time on; `active`: the thread that will call first; `classes`: those that the trace has.
    pub(super) fn new(at: i64, active: i32, classes: Without) -> Host {
        Host {
            at,
            lanes: Since::new(Lanes::at(0.0, classes)),
            node: FIRST,
            open: Vec::new(),
            active,
            spent_ns: Default::default(),
        }
    }

    /// What it is at since [`Host::at`], and the function of the call: of the `next` one while it is outside of the driver.
    fn now(&self, next: i64) -> (Piece, i64) {
        let call = self.open.iter().rev().find(|call| call.did != Did::System);
        let call = call.or(self.open.iter().rev().find(|call| call.tid == self.active));
        call.map_or((Piece::Outside, next), |call| (call.piece(), call.api_id))
    }

    /// Where it will be at some later time, when nothing happens until then, and what it is at.
    pub(super) fn reaches(&self, at: i64) -> (Since, Piece) {
        let (mut lanes, (piece, _)) = (self.lanes.clone(), self.now(NO_NAME));
        lanes.pass((at - self.at).max(0) as f64, piece.class());
        (lanes, piece)
    }

    /// Time goes by until `to`, in which the host is at some piece of some name.
    fn pass(&mut self, to: i64, (piece, name): (Piece, i64), nodes: &mut Nodes) {
        let ns = to - self.at;
        if ns <= 0 {
            return;
        }
        self.lanes.pass(ns as f64, piece.class());
        self.spend(piece, ns);
        self.node = nodes.add(Node { start: self.at, end: to, after: self.node, piece, before: piece, name_id: name });
        self.at = to;
    }

    fn spend(&mut self, piece: Piece, ns: i64) {
        if let Some(class) = piece.class() {
            self.spent_ns[class as usize] += ns;
        }
    }

    /// A call begins. False: it does not count, for another one does.
    pub(super) fn begin(&mut self, call: &Call, nodes: &mut Nodes) -> bool {
        let in_driver = self.open.iter().rev().find(|open| open.did != Did::System);
        if call.did == Did::System {
            if in_driver.is_some() || call.tid != self.active {
                return false;
            }
        } else if in_driver.is_some_and(|open| open.tid != call.tid) && !call.interrupts() {
            return false;
        }
        // While another thread waits for the GPU, this one works.
        let other_waits = in_driver.is_some_and(|open| open.tid != call.tid && open.did == Did::Wait);
        let meanwhile = if other_waits { (Piece::Outside, call.api_id) } else { self.now(call.api_id) };
        self.pass(call.start, meanwhile, nodes);
        self.open.push(*call);
        if call.did != Did::System {
            self.active = call.tid;
        }
        true
    }

    /// A call that began ends, perhaps because the GPU has done what it waited for; `outstanding`: operations that were
    /// called for and have not begun.
    pub(super) fn end(&mut self, call: &Call, outstanding: u32, device: &Device, nodes: &mut Nodes) {
        let same = |open: &Call| open.tid == call.tid && open.start == call.start && open.did == call.did;
        let Some(place) = self.open.iter().rposition(same) else { return };
        let full = outstanding >= QUEUED && call.interrupts() && call.end - call.start >= QUEUED_NS;
        let waited_for = (full || call.may_wait()).then(|| device.last_before(call.end + SKEW_NS, call)).flatten();
        match waited_for.filter(|(ended, _)| ended.end > self.at && call.end > self.at) {
            Some((ended, lanes)) if full && call.end - ended.end < ROOM_NS => self.queued(call, &ended, lanes, nodes),
            Some((ended, lanes)) if call.waits_for_all() => {
                let mut all = lanes.clone();
                device.all_before(call.end + SKEW_NS, call, &mut all);
                self.awaited(call, &ended, &all, nodes);
            }
            Some((ended, lanes)) if call.may_wait() => self.awaited(call, &ended, lanes, nodes),
            _ => self.pass(call.end, self.now(call.api_id), nodes),
        }
        self.open.remove(place);
    }

    /// The call that is at its end waited for room in the queue, which an operation made. No class of work is to blame: without
    /// what the GPU does before it the room would have come sooner, and without the host's own time too.
    fn queued(&mut self, call: &Call, ended: &Ended, lanes: &Lanes, nodes: &mut Nodes) {
        let rest_ns = (call.end - ended.end).max(0);
        let mut now = self.lanes.lanes();
        now.join(lanes, 0.0);
        now.pass(rest_ns as f64, call.piece().class());
        self.spend(call.piece(), rest_ns);
        self.lanes = Since::new(now);
        self.arrive(call, ended, nodes);
    }

    /// The host is at the end of a call, because an operation has ended.
    fn arrive(&mut self, call: &Call, ended: &Ended, nodes: &mut Nodes) {
        let piece = call.piece();
        let node = Node {
            start: ended.end.min(call.end),
            end: call.end,
            after: ended.node,
            piece,
            before: piece,
            name_id: call.api_id,
        };
        self.node = nodes.add(node);
        self.at = call.end;
    }

    /// The call that is at its end waited for an operation.
    fn awaited(&mut self, call: &Call, ended: &Ended, lanes: &Lanes, nodes: &mut Nodes) {
        let (piece, rest_ns) = (call.piece(), call.end - ended.end);
        let mut now = self.lanes.lanes();
        if call.did == Did::Transfer {
            // Without the wait it would still copy. Without the copy it would still wait for what was there before.
            let copied_ns = if ended.call == call.start { (ended.end - ended.start.max(self.at)).max(0) } else { 0 };
            now.join_with(lanes, 0.0, Some(Class::Wait));
            now.pass_without(copied_ns as f64, Class::Copy, Class::Wait);
            now.pass(rest_ns as f64, Some(Class::Copy));
            self.spend(piece, copied_ns + rest_ns);
            self.spend(Piece::Wait, call.end - self.at - copied_ns - rest_ns);
        } else {
            now.join_with(lanes, rest_ns as f64, piece.class());
            self.spend(piece, call.end - self.at);
        }
        self.lanes = Since::new(now);
        self.arrive(call, ended, nodes);
    }
}
