//! Messages to command buffers.

use core::hint::cold_path;

use gputrace_abi::metal::encoder;
use gputrace_abi::{Class, Event, local};

use super::blit::BLIT;
use super::compute::COMPUTE;
use super::copies::COPIES;
use super::late::Original;
use super::{commits, devices, messages, names};
use crate::interpose::objc::{Id, Sel, Selector, send};
use crate::{record, thread};

messages! {
    /// Work for the GPU, from its first encoder to its end.
    COMMAND_BUFFER: "MTLCommandBuffer", from super::queue::END, needs ["addCompletedHandler:", "GPUStartTime"];

    // It may be gone when its commit returns: a handler of the program's may have been the last one to hold it.
    Commit NONE commit "commit" "v@:" () -> () [|this, state| commits::begin::<SLOT>(this, state)]
        => |this: Id, (), [queue, label, count]: [u64; 3]| [this as u64, queue, label, count];
    Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => @at |this, (), at| names::labelled(this, label, at);
    Api NONE enqueue "enqueue" "v@:" () -> () => |this, ()| about(this);

    // Who asks again and again waits, and for less time than two readings of the clock.
    Count NONE asked "status" "Q@:" () -> usize => ();

    Sync STREAM waitUntilCompleted "waitUntilCompleted" "v@:" () -> () [|this, _| queue(this)]
        => |this: Id, (), queue| [this as u64, queue, 0, 0];
    Sync SCHEDULE waitUntilScheduled "waitUntilScheduled" "v@:" () -> () [|this, _| queue(this)]
        => |this: Id, (), queue| [this as u64, queue, 0, 0];
    Api NONE addScheduledHandler "addScheduledHandler:" "v@:@?" (block: Id) -> () => |this, ()| about(this);
    Api NONE addCompletedHandler "addCompletedHandler:" "v@:@?" (block: Id) -> () => |this, ()| about(this);
    Api NONE encodeSignalEvent "encodeSignalEvent:value:" "v@:@Q" (event: Id, value: u64) -> ()
        => |this, ()| [event as u64, queue(this), this as u64, value];
    Sync STREAM_WAIT encodeWaitForEvent "encodeWaitForEvent:value:" "v@:@Q" (event: Id, value: u64) -> ()
        => |this, ()| [event as u64, queue(this), value, this as u64];

    Encode ENCODER compute "computeCommandEncoder" "@@:" () -> Id
        => |this, made| begun(this, made, encoder::COMPUTE);
    Encode ENCODER computeWithType "computeCommandEncoderWithDispatchType:" "@@:Q" (kind: usize) -> Id
        => |this, made| begun(this, made, encoder::COMPUTE);
    Encode ENCODER computeWithDescriptor "computeCommandEncoderWithDescriptor:" "@@:@" (descriptor: Id) -> Id
        => |this, made| begun(this, made, encoder::COMPUTE);
    Encode ENCODER blit "blitCommandEncoder" "@@:" () -> Id => |this, made| begun(this, made, encoder::BLIT);
    Encode ENCODER blitWithDescriptor "blitCommandEncoderWithDescriptor:" "@@:@" (descriptor: Id) -> Id
        => |this, made| begun(this, made, encoder::BLIT);
    Encode ENCODER render "renderCommandEncoderWithDescriptor:" "@@:@" (descriptor: Id) -> Id
        => |this, made| begun(this, made, encoder::RENDER);
    Encode ENCODER parallelRender "parallelRenderCommandEncoderWithDescriptor:" "@@:@" (descriptor: Id) -> Id
        => |this, made| begun(this, made, encoder::RENDER);
    Encode ENCODER resourceState "resourceStateCommandEncoder" "@@:" () -> Id
        => |this, made| begun(this, made, encoder::OTHER);
    Encode ENCODER accelerationStructure "accelerationStructureCommandEncoder" "@@:" () -> Id
        => |this, made| begun(this, made, encoder::OTHER);
}

/// Adds a handler of ours to an object of a slot's class: no message of the program's, so it goes past our own hook. The slot is
/// that of the message which is being passed on, so the runtime is not asked for the class.
#[inline(always)]
pub(super) fn add_completed_handler<const SLOT: usize>(buffer: Id, block: Id) {
    type Code = unsafe extern "C" fn(Id, Sel, Id);
    static SELECTOR: Selector = Selector::new(c"addCompletedHandler:");
    let original = addCompletedHandler::ORIGINALS.at::<SLOT>();
    if original.is_null() {
        cold_path();
        return send!(buffer, "addCompletedHandler:", (block => Id); ());
    }
    // SAFETY: the method of this selector of the object's class, or of the one above it that has this slot; its signature was
    // compared.
    let code: Code = unsafe { core::mem::transmute(original) };
    // SAFETY: the command buffer that is being committed, and a block that lives for ever.
    unsafe { code(buffer, SELECTOR.get(), block) }
}

/// How far a command buffer is: no message of the program's, so it goes past our own hook.
pub(super) fn status(buffer: Id) -> usize {
    type Code = unsafe extern "C" fn(Id, Sel) -> usize;
    static SELECTOR: Selector = Selector::new(c"status");
    let original = COMMAND_BUFFER.original(buffer, &asked::ORIGINALS);
    if original.is_null() {
        cold_path();
        return send!(buffer, "status"; usize);
    }
    // SAFETY: the method of this selector of the object's class, whose signature was compared.
    let code: Code = unsafe { core::mem::transmute(original) };
    // SAFETY: a command buffer that is being committed, or whose handlers run.
    unsafe { code(buffer, SELECTOR.get()) }
}

/// Number of a commit.
pub(super) const COMMIT: u16 = commit::NUMBER;

/// Records a commit that was left by an exception, and whose work the GPU ran all the same: it began then. Its own event is among
/// those that may be missing.
#[cold]
#[inline(never)]
pub(super) fn left(this: Id, start: u64) {
    let Some(state) = thread::state_slow().filter(|state| !state.is_paused()) else { return };
    if let Some(seen) = state.row().and_then(|row| row.seen.get(Class::Commit as usize)) {
        local::increment(seen);
    }
    let event = Event {
        hook: commit::NUMBER,
        start,
        end: start,
        flags: commit::HOOK.flags,
        context: devices::number(this),
        payload: [this as u64, queue(this), 0, 1],
        ..Event::default()
    };
    state.write(event, Class::Commit);
}

/// No slot of any class.
const NO_SLOT: usize = usize::MAX;

/// Records a commit that did not come by a trampoline of its class.
pub(super) fn committed(this: Id, original: Original) {
    let payload = |this: Id, (), [queue, label, count]: [u64; 3], _| [this as u64, queue, label, count];
    let before = |this, state| commits::begin::<NO_SLOT>(this, state);
    record::message(commit::HOOK, commit::NUMBER, this, before, |_| original.call(), payload);
}

/// The same of a wait for the end.
pub(super) fn waited(this: Id, original: Original) {
    let payload = |this: Id, (), queue, _| [this as u64, queue, 0, 0];
    let before = |this, _| queue(this);
    record::message(waitUntilCompleted::HOOK, waitUntilCompleted::NUMBER, this, before, |_| original.call(), payload);
}

/// The queue of a command buffer.
pub(super) fn queue(this: Id) -> u64 {
    send!(this, "commandQueue"; Id) as u64
}

fn about(this: Id) -> [u64; 4] {
    [this as u64, queue(this), 0, 0]
}

fn begun(this: Id, made: Id, kind: u64) -> [u64; 4] {
    match kind {
        encoder::COMPUTE => _ = COMPUTE.meet(made),
        encoder::BLIT => _ = (BLIT.meet(made), COPIES.meet(made)),
        _ => {}
    }
    [made as u64, this as u64, 0, kind]
}
