//! Messages to command queues.

use super::command_buffer::COMMAND_BUFFER;
use super::{commits, late, messages, names};
use crate::interpose::objc::Id;

messages! {
    /// A queue of command buffers.
    QUEUE: "MTLCommandQueue", from super::device::END, needs ["commandBuffer", "device"];

    Sync ROOM commandBuffer "commandBuffer" "@@:" () -> Id [|_, _| true] => made;
    Sync ROOM unretained "commandBufferWithUnretainedReferences" "@@:" () -> Id [|_, _| true] => made;
    Sync ROOM withDescriptor "commandBufferWithDescriptor:" "@@:@" (descriptor: Id) -> Id [|_, _| true] => made;
    Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => @at |this, (), at| names::labelled(this, label, at);
}

/// `is_told`: the collector will know whose it is.
fn made(queue: Id, made: Id, is_told: bool) -> [u64; 4] {
    if COMMAND_BUFFER.meet(made) {
        late::watch(made);
    }
    commits::made(made, is_told);
    [made as u64, queue as u64, 0, 0]
}
