//! How large a record is in each version of CUPTI.
//!
//! Where a field stands in its record is the same from 11.8 to 13.5 (`record.rs`); later versions only append.

use crate::kinds;

pub(crate) struct Layout {
    /// The release of CUDA.
    pub(crate) version: &'static str,
    /// What cuptiGetVersion answers.
    pub(crate) api: u32,
    kernel: usize,
    memcpy: usize,
    memcpy2: usize,
    memset: usize,
    synchronization: usize,
    overhead: usize,
    graph_trace: usize,
    unified_memory: usize,
}

/// (kernel, memcpy, memcpy2, memset, synchronization, overhead, graph trace, unified memory counter), in bytes.
type Sizes = (usize, usize, usize, usize, usize, usize, usize, usize);

const fn layout(version: &'static str, api: u32, sizes: Sizes) -> Layout {
    let (kernel, memcpy, memcpy2, memset, synchronization, overhead, graph_trace, unified_memory) = sizes;
    Layout { version, api, kernel, memcpy, memcpy2, memset, synchronization, overhead, graph_trace, unified_memory }
}

pub(crate) static LAYOUTS: &[Layout] = &[
    layout("11.8", 18, (200, 88, 96, 88, 40, 40, 48, 64)),
    layout("12.1", 18, (208, 88, 96, 88, 40, 40, 48, 64)),
    layout("12.4", 22, (208, 88, 96, 88, 40, 56, 56, 64)),
    layout("12.6", 24, (208, 88, 96, 88, 40, 56, 56, 64)),
    layout("12.8", 26, (208, 96, 96, 88, 56, 56, 56, 104)),
    layout("13.0", 130_001, (216, 96, 96, 88, 56, 56, 56, 104)),
    layout("13.5", 130_500, (248, 112, 96, 104, 56, 56, 56, 104)),
];

impl Layout {
    /// The size of a record, if there are records of its kind.
    pub(crate) fn size(&self, kind: u32) -> Option<usize> {
        match kind {
            kinds::KERNEL | kinds::CONCURRENT_KERNEL => Some(self.kernel),
            kinds::MEMCPY => Some(self.memcpy),
            kinds::MEMCPY2 => Some(self.memcpy2),
            kinds::MEMSET => Some(self.memset),
            kinds::SYNCHRONIZATION => Some(self.synchronization),
            kinds::OVERHEAD => Some(self.overhead),
            kinds::UNIFIED_MEMORY_COUNTER => Some(self.unified_memory),
            kinds::GRAPH_TRACE => Some(self.graph_trace),
            _ => None,
        }
    }
}
