//! Labels and the end of buffers, heaps, textures and pipelines, and what the host copies to and from textures. What a heap gave out, and views of textures, end here too, and were not seen to
//! begin.

pub(crate) mod buffer {
    use crate::hooks::metal::{messages, names};
    use crate::interpose::objc::Id;

    messages! {
        /// Memory.
        BUFFER: "MTLBuffer", from crate::hooks::metal::copies::END, needs ["length", "contents"];

        Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => @at |this, (), at| names::labelled(this, label, at);
        Free DEVICE dealloc "dealloc" "v@:" () -> () => |this, ()| [this as u64, 0, 0, 0];
    }
}

pub(crate) mod heap {
    use crate::hooks::metal::{messages, names};
    use crate::interpose::objc::Id;

    messages! {
        /// Memory that the program shares out itself.
        HEAP: "MTLHeap", from super::buffer::END, needs ["newBufferWithLength:options:", "usedSize"];

        Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => @at |this, (), at| names::labelled(this, label, at);
        Free DEVICE dealloc "dealloc" "v@:" () -> () => |this, ()| [this as u64, 0, 0, 0];
    }
}

pub(crate) mod texture {
    use core::ffi::c_void;

    use crate::hooks::metal::textures::{self, Region};
    use crate::hooks::metal::{messages, names};
    use crate::interpose::objc::Id;

    messages! {
        /// Memory of an image.
        TEXTURE: "MTLTexture", from super::heap::END, needs ["pixelFormat", "allocatedSize"];

        Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => @at |this, (), at| names::labelled(this, label, at);
        Transfer COPY replace "replaceRegion:mipmapLevel:withBytes:bytesPerRow:" "v@:{MTLRegion={MTLOrigin=QQQ}{MTLSize=QQQ}}Q^vQ"
            (region: Region, level: usize, from: *const c_void, row: usize) -> ()
            => |this, ()| textures::by_host(this, from as usize, true, region, row, 0);
        Transfer COPY replaceSlice "replaceRegion:mipmapLevel:slice:withBytes:bytesPerRow:bytesPerImage:" "v@:{MTLRegion={MTLOrigin=QQQ}{MTLSize=QQQ}}QQ^vQQ"
            (region: Region, level: usize, slice: usize, from: *const c_void, row: usize, image: usize) -> ()
            => |this, ()| textures::by_host(this, from as usize, true, region, row, image);
        Transfer COPY getBytes "getBytes:bytesPerRow:fromRegion:mipmapLevel:" "v@:^vQ{MTLRegion={MTLOrigin=QQQ}{MTLSize=QQQ}}Q"
            (to: *mut c_void, row: usize, region: Region, level: usize) -> ()
            => |this, ()| textures::by_host(this, to as usize, false, region, row, 0);
        Transfer COPY getSlice "getBytes:bytesPerRow:bytesPerImage:fromRegion:mipmapLevel:slice:" "v@:^vQQ{MTLRegion={MTLOrigin=QQQ}{MTLSize=QQQ}}QQ"
            (to: *mut c_void, row: usize, image: usize, region: Region, level: usize, slice: usize) -> ()
            => |this, ()| textures::by_host(this, to as usize, false, region, row, image);
        Free DEVICE dealloc "dealloc" "v@:" () -> () => |this, ()| [this as u64, 0, 0, 0];
    }
}

pub(crate) mod pipeline {
    use crate::hooks::metal::{messages, names};

    messages! {
        /// Compiled kernels.
        PIPELINE: "MTLComputePipelineState", from super::texture::END,
            needs ["threadExecutionWidth", "maxTotalThreadsPerThreadgroup"];

        // Before it ends: its address may be another one's at once.
        Api NONE dealloc "dealloc" "v@:" () -> () { names::pipeline_gone } => |this, ()| [this as u64, 0, 0, 0];
    }
}
