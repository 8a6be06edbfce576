//! Messages to devices.

use core::ffi::{CStr, c_void};

use super::{devices, event, feedback, messages, metal4, names, queue, resources};
use crate::interpose::objc::{Id, send};
use crate::record::At;
use crate::thread::Reserved;

/// Command buffers of a queue that may be uncompleted, where the program does not say.
const USUAL_LIMIT: u64 = 64;

messages! {
    /// A GPU.
    DEVICE: "MTLDevice", from super::FIRST, needs ["newCommandQueue", "registryID"];

    Api NONE newCommandQueue "newCommandQueue" "@@:" () -> Id { devices::seen } => |_, made| queue(made, USUAL_LIMIT);
    Api NONE newCommandQueueWithMax "newCommandQueueWithMaxCommandBufferCount:" "@@:Q" (most: usize) -> Id { devices::seen }
        => |_, made| queue(made, most as u64);
    Api NONE newCommandQueueWithDescriptor "newCommandQueueWithDescriptor:" "@@:@" (descriptor: Id) -> Id { devices::seen }
        => |_, made| queue(made, send!(descriptor, "maxCommandBufferCount"; usize) as u64);

    Alloc DEVICE newBufferWithLength "newBufferWithLength:options:" "@@:QQ" (bytes: usize, options: usize) -> Id { devices::seen }
        => |_, made| buffer(made, options, bytes);
    Alloc DEVICE newBufferWithBytes "newBufferWithBytes:length:options:" "@@:^vQQ"
        (from: *const c_void, bytes: usize, options: usize) -> Id { devices::seen }
        => |_, made| buffer(made, options, bytes);
    Alloc REGISTERED newBufferWithBytesNoCopy "newBufferWithBytesNoCopy:length:options:deallocator:" "@@:^vQQ@?"
        (at: *mut c_void, bytes: usize, options: usize, deallocator: Id) -> Id { devices::seen }
        => |_, made| buffer(made, at as usize, bytes);
    Alloc DEVICE newHeapWithDescriptor "newHeapWithDescriptor:" "@@:@" (descriptor: Id) -> Id { devices::seen } => |_, made| {
        resources::heap::HEAP.meet(made);
        let [bytes, options] = [send!(descriptor, "size"; usize), send!(descriptor, "storageMode"; usize) << 4];
        [made as u64, 0, options as u64, bytes as u64]
    };
    Alloc DEVICE newTexture "newTextureWithDescriptor:" "@@:@" (descriptor: Id) -> Id { devices::seen } => |_, made| {
        resources::texture::TEXTURE.meet(made);
        let [bytes, options] = [send!(made, "allocatedSize"; usize), send!(made, "storageMode"; usize) << 4];
        [made as u64, 0, options as u64, bytes as u64]
    };

    Module NONE newPipeline "newComputePipelineStateWithFunction:error:" "@@:@^@" (function: Id, error: *mut Id) -> Id { devices::seen }
        => @at |_, made, at| pipeline(made, || function_name(function), at);
    Module NONE newPipelineReflected "newComputePipelineStateWithFunction:options:reflection:error:" "@@:@Q^@^@"
        (function: Id, options: usize, reflection: *mut Id, error: *mut Id) -> Id { devices::seen }
        => @at |_, made, at| pipeline(made, || function_name(function), at);
    Module NONE newPipelineWithDescriptor "newComputePipelineStateWithDescriptor:options:reflection:error:" "@@:@Q^@^@"
        (descriptor: Id, options: usize, reflection: *mut Id, error: *mut Id) -> Id { devices::seen }
        => @at |_, made, at| pipeline(made, || {
            let of_function = || function_name(send!(descriptor, "computeFunction"; Id));
            names::text(send!(descriptor, "label"; Id)).or_else(of_function)
        }, at);

    Api NONE newSharedEvent "newSharedEvent" "@@:" () -> Id { devices::seen } => |_, made| {
        event::SHARED_EVENT.meet(made);
        [made as u64, 0, 0, 0]
    };
    // Another process' event, by what it sent.
    Api NONE newSharedEventWithHandle "newSharedEventWithHandle:" "@@:@" (handle: Id) -> Id { devices::seen } => |_, made| {
        event::SHARED_EVENT.meet(made);
        [made as u64, 0, 0, 0]
    };

    Api NONE newMTL4CommandQueue "newMTL4CommandQueue" "@@:" () -> Id { devices::seen } => |_, made| {
        queue4(made);
        [made as u64, 0, 0, 0]
    };
    Api NONE newMTL4CommandQueueWithDescriptor "newMTL4CommandQueueWithDescriptor:error:" "@@:@^@"
        (descriptor: Id, error: *mut Id) -> Id { devices::seen }
        => @at |_, made, at| {
            queue4(made);
            // The descriptor's; it cannot be changed.
            [made as u64, 0, names::label(send!(made, "label"; Id), at), 0]
        };
    Api NONE newCommandBuffer "newCommandBuffer" "@@:" () -> Id { devices::seen } => |_, made| {
        metal4::buffer::BUFFER.meet(made);
        [made as u64, 0, 0, 0]
    };
}

fn queue(made: Id, most: u64) -> [u64; 4] {
    queue::QUEUE.meet(made);
    [made as u64, 0, 0, most]
}

fn queue4(made: Id) {
    metal4::queue::QUEUE.meet(made);
    if !made.is_null() {
        feedback::prepare();
    }
}

fn buffer(made: Id, options: usize, bytes: usize) -> [u64; 4] {
    resources::buffer::BUFFER.meet(made);
    [made as u64, 0, options as u64, if made.is_null() { 0 } else { bytes as u64 }]
}

#[inline(always)]
fn pipeline<'a>(made: Id, name: impl FnOnce() -> Option<&'a CStr>, at: At) -> ([u64; 4], Option<Reserved<'static>>) {
    ([made as u64, 0, 0, 0], names::pipeline(made, name, at))
}

#[inline(always)]
fn function_name<'a>(function: Id) -> Option<&'a CStr> {
    names::text(send!(function, "name"; Id))
}
