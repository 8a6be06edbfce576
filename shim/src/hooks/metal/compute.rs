//! Messages to encoders of kernels. Those of Metal 4 have most of them, some of their own, and copies beside them.

use super::{Range, Size, messages, names};
use crate::interpose::objc::Id;

messages! {
    /// Encodes kernels.
    COMPUTE: "MTLComputeCommandEncoder", from super::command_buffer::END,
        needs ["setComputePipelineState:", "dispatchThreadgroups:threadsPerThreadgroup:"];

    Encode PIPELINE setPipeline "setComputePipelineState:" "v@:@" (pipeline: Id) -> () => |this, ()| {
        names::pipeline_used(pipeline);
        [this as u64, 0, pipeline as u64, 0]
    };
    Encode THREADS threads "dispatchThreads:threadsPerThreadgroup:" "v@:{MTLSize=QQQ}{MTLSize=QQQ}"
        (threads: Size, group: Size) -> ()
        => |this, ()| [this as u64, 0, threads.grid(), group.group()];
    Encode GROUPS groups "dispatchThreadgroups:threadsPerThreadgroup:" "v@:{MTLSize=QQQ}{MTLSize=QQQ}"
        (groups: Size, group: Size) -> ()
        => |this, ()| [this as u64, 0, groups.grid(), group.group()];
    Encode INDIRECT indirect "dispatchThreadgroupsWithIndirectBuffer:indirectBufferOffset:threadsPerThreadgroup:"
        "v@:@Q{MTLSize=QQQ}" (buffer: Id, offset: usize, group: Size) -> ()
        => |this, ()| [this as u64, 0, 0, group.group()];
    Encode COMMANDS commands "executeCommandsInBuffer:withRange:" "v@:@{_NSRange=QQ}" (buffer: Id, range: Range) -> ()
        => |this, ()| [this as u64, 0, range.length as u64, 0];
    Encode COMMANDS commandsByBuffer "executeCommandsInBuffer:indirectBuffer:indirectBufferOffset:" "v@:@@Q"
        (commands: Id, buffer: Id, offset: usize) -> () => |this, ()| [this as u64, 0, 1, 0];
    Encode END_ENCODER end "endEncoding" "v@:" () -> () => |this, ()| [this as u64, 0, 0, 0];
    Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => @at |this, (), at| names::labelled(this, label, at);

    // Metal 4's: the address of the buffer in which the sizes stand.
    Encode INDIRECT indirectGroups4 "dispatchThreadgroupsWithIndirectBuffer:threadsPerThreadgroup:" "v@:Q{MTLSize=QQQ}"
        (at: u64, group: Size) -> () => |this, ()| [this as u64, 0, 0, group.group()];
    Encode INDIRECT indirectThreads4 "dispatchThreadsWithIndirectBuffer:" "v@:Q" (at: u64) -> ()
        => |this, ()| [this as u64, 0, 0, 0];
    Encode COMMANDS commandsByBuffer4 "executeCommandsInBuffer:indirectBuffer:" "v@:@Q" (commands: Id, at: u64) -> ()
        => |this, ()| [this as u64, 0, 1, 0];
}
