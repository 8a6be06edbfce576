//! Metal 4: queues to which several command buffers are committed at once, and whose times come as feedback.

pub(crate) mod queue {
    use crate::hooks::metal::{feedback, messages};
    use crate::interpose::objc::{Id, send};

    messages! {
        /// A queue of Metal 4's.
        QUEUE: "MTL4CommandQueue", from crate::hooks::metal::event::END, needs ["commit:count:", "device"];

        // The same with options of ours, through which the times come.
        Commit NONE commit "commit:count:" "v@:^@Q" (buffers: *const Id, count: usize) -> ()
            [|_| feedback::begin(); |this: Id, number: usize| {
                let options = feedback::options(number);
                send!(this, "commit:count:options:", (buffers => *const Id, count => usize, options => Id); ());
                feedback::returned(number)
            }]
            => |this, (), number| feedback::committed(this, buffers, count, number);
        // The program's own options stay as they are: it may use them again.
        Commit NONE commitWithOptions "commit:count:options:" "v@:^@Q@" (buffers: *const Id, count: usize, options: Id) -> ()
            => |this, ()| feedback::committed(this, buffers, count, 0);
        Api NONE signal "signalEvent:value:" "v@:@Q" (event: Id, value: u64) -> ()
            => |this, ()| [event as u64, this as u64, 0, value];
        Sync STREAM_WAIT wait "waitForEvent:value:" "v@:@Q" (event: Id, value: u64) -> ()
            => |this, ()| [event as u64, this as u64, value, 0];
    }
}

pub(crate) mod buffer {
    use gputrace_abi::metal::encoder;

    use crate::hooks::metal::compute::COMPUTE;
    use crate::hooks::metal::copies::COPIES;
    use crate::hooks::metal::{messages, names};
    use crate::interpose::objc::Id;

    messages! {
        /// A command buffer of Metal 4's.
        BUFFER: "MTL4CommandBuffer", from super::queue::END, needs ["beginCommandBufferWithAllocator:", "endCommandBuffer"];

        Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => |this, ()| names::labelled(this, label);
        Encode ENCODER compute "computeCommandEncoder" "@@:" () -> Id => |this, made| {
            COMPUTE.meet(made);
            COPIES.meet(made);
            [made as u64, this as u64, 0, encoder::COMPUTE]
        };
        Encode ENCODER render "renderCommandEncoderWithDescriptor:" "@@:@" (descriptor: Id) -> Id
            => |this, made| [made as u64, this as u64, 0, encoder::RENDER];
    }
}
