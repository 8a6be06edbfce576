//! A simulated CUDA driver: `libcuda.so.1` with the ABI of CUDA 12 and 13, for a machine without a GPU.
//!
//! It is the ground truth of gputrace's tests: contexts, streams, events, graphs, copies and memory behave as the
//! vendor's documentation says and as its library was seen to, durations are known beforehand (a kernel's name holds
//! it, `spin_us_50`; `kernel.rs`), every exported function counts its outermost calls (`truth.rs`), and failures can
//! be injected (`config.rs` lists the environment variables). Kernels compute nothing, but for a few (`kernel.rs`).
//! The stand-in for CUPTI observes it (`observe.rs`).
//!
//! A function is one item of a `driver!` list in the file of its theme; `LISTS` names the files. What no file
//! implements but the vendor's library exports is in `unsupported.rs` and answers 801 (not supported).
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "nearly every function gets C pointers; that they are right is what CUDA's interface asks of its caller"
)]

mod array;
mod capture;
mod codes;
mod conditional;
mod config;
mod context;
mod copy;
mod device;
mod event;
mod export_table;
mod function;
mod graph;
mod kernel;
mod launch;
mod memory;
mod module;
mod nodes;
mod observe;
mod observed;
mod pointer;
mod pool;
mod procaddr;
mod set;
mod slab;
mod state;
mod stream;
mod table;
mod timeline;
mod truth;
mod unsupported;
mod vmm;
mod work;

/// The exported functions, by theme; each item of a list is a function and its per-thread variant.
static LISTS: &[&[&[table::Entry]]] = &[
    array::TABLE,
    capture::TABLE,
    codes::TABLE,
    conditional::TABLE,
    context::TABLE,
    copy::TABLE,
    device::TABLE,
    event::TABLE,
    export_table::TABLE,
    function::TABLE,
    graph::TABLE,
    launch::TABLE,
    memory::TABLE,
    module::TABLE,
    nodes::TABLE,
    pointer::TABLE,
    pool::TABLE,
    procaddr::TABLE,
    set::TABLE,
    stream::TABLE,
    unsupported::TABLE,
    vmm::TABLE,
];
