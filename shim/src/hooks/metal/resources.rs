//! The end of buffers, heaps, textures and pipelines. What a heap gave out, and views of textures, end here too, and were not seen to
//! begin.

pub(crate) mod buffer {
    use crate::hooks::metal::{messages, names};
    use crate::interpose::objc::Id;

    messages! {
        /// Memory.
        BUFFER: "MTLBuffer", from crate::hooks::metal::blit::END, needs ["length", "contents"];

        Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => |this, ()| names::labelled(this, label);
        Free DEVICE dealloc "dealloc" "v@:" () -> () => |this, ()| [this as u64, 0, 0, 0];
    }
}

pub(crate) mod heap {
    use crate::hooks::metal::{messages, names};
    use crate::interpose::objc::Id;

    messages! {
        /// Memory that the program shares out itself.
        HEAP: "MTLHeap", from super::buffer::END, needs ["newBufferWithLength:options:", "usedSize"];

        Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => |this, ()| names::labelled(this, label);
        Free DEVICE dealloc "dealloc" "v@:" () -> () => |this, ()| [this as u64, 0, 0, 0];
    }
}

pub(crate) mod texture {
    use crate::hooks::metal::{messages, names};
    use crate::interpose::objc::Id;

    messages! {
        /// Memory of an image.
        TEXTURE: "MTLTexture", from super::heap::END, needs ["pixelFormat", "allocatedSize"];

        Api NONE setLabel "setLabel:" "v@:@" (label: Id) -> () => |this, ()| names::labelled(this, label);
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
