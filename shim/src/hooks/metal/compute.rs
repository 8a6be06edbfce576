//! Messages to encoders of kernels. Those of Metal 4 have the same ones, and copies beside them.

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
    Encode END_ENCODER end "endEncoding" "v@:" () -> () => |this, ()| [this as u64, 0, 0, 0];
    Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => |this, ()| names::labelled(this, label);

    // Metal 4 has one kind of encoder for kernels and copies.
    Transfer COPY_ASYNC copy "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:" "v@:@Q@QQ"
        (from: Id, at: usize, to: Id, place: usize, bytes: usize) -> ()
        => |this, ()| [to as u64, this as u64, from as u64, bytes as u64];
    Transfer SET_ASYNC fill "fillBuffer:range:value:" "v@:@{_NSRange=QQ}C" (buffer: Id, range: Range, value: u8) -> ()
        => |this, ()| [buffer as u64, this as u64, u64::from(value), range.length as u64];
}
