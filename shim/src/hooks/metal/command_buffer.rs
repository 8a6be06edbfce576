//! Messages to command buffers.

use gputrace_abi::metal::encoder;

use super::blit::BLIT;
use super::compute::COMPUTE;
use super::{completed, messages, names};
use crate::interpose::objc::{Id, Role, send};

messages! {
    /// Work for the GPU, from its first encoder to its end.
    COMMAND_BUFFER: "MTLCommandBuffer", from super::queue::END, needs ["addCompletedHandler:", "GPUStartTime"];

    Commit NONE commit "commit" "v@:" () -> () [completed::listen] => |this, ()| {
        [this as u64, queue(this), names::label(send!(this, "label"; Id)), 1]
    };
    Api NONE enqueue "enqueue" "v@:" () -> () => |this, ()| about(this);

    Sync STREAM waitUntilCompleted "waitUntilCompleted" "v@:" () -> () => |this, ()| about(this);
    Sync SCHEDULE waitUntilScheduled "waitUntilScheduled" "v@:" () -> () => |this, ()| about(this);
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

/// The queue of a command buffer.
fn queue(this: Id) -> u64 {
    send!(this, "commandQueue"; Id) as u64
}

fn about(this: Id) -> [u64; 4] {
    [this as u64, queue(this), 0, 0]
}

fn begun(this: Id, made: Id, kind: u64) -> [u64; 4] {
    let role: Option<&Role> = match kind {
        encoder::COMPUTE => Some(&COMPUTE),
        encoder::BLIT => Some(&BLIT),
        _ => None,
    };
    if let Some(role) = role {
        role.meet(made);
    }
    [made as u64, this as u64, 0, kind]
}
