//! The driver's functions by which a graph is read: questions about it, which touch no stream and no device.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS_v2;
use gputrace_abi::graph::{KINDS, UNKNOWN};

use crate::capture;

/// A function of the driver; 0: it has none of this name.
struct Function(AtomicUsize);

static NODES: Function = Function::new();
static KIND: Function = Function::new();
static KERNEL: Function = Function::new();
static CHILD: Function = Function::new();
static GRAPH_ID: Function = Function::new();
static EXEC_ID: Function = Function::new();
static MODE: Function = Function::new();

/// Finds them.
pub(crate) fn bind(find: impl Fn(&CStr) -> usize) {
    NODES.set(find(c"cuGraphGetNodes"));
    KIND.set(find(c"cuGraphNodeGetType"));
    // The first version's parameters are the beginning of the second one's.
    KERNEL.set(match find(c"cuGraphKernelNodeGetParams_v2") {
        0 => find(c"cuGraphKernelNodeGetParams"),
        newer => newer,
    });
    CHILD.set(find(c"cuGraphChildGraphNodeGetGraph"));
    GRAPH_ID.set(find(c"cuGraphGetId"));
    EXEC_ID.set(find(c"cuGraphExecGetId"));
    MODE.set(find(c"cuThreadExchangeStreamCaptureMode"));
}

impl Function {
    const fn new() -> Function {
        Function(AtomicUsize::new(0))
    }

    fn set(&self, address: usize) {
        self.0.store(address, Ordering::Relaxed);
    }

    /// Calls it with one pointer; whether it succeeded.
    ///
    /// # Safety
    /// It takes a pointer to a `T`, and nothing else.
    unsafe fn exchange<T>(&self, place: &mut T) -> bool {
        let address = self.0.load(Ordering::Relaxed);
        if address == 0 {
            return false;
        }
        // SAFETY: the driver's function, whose signature this is, as the caller says.
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut T) -> u32>(address)(place) == 0 }
    }

    /// Asks it about a handle; none where it fails.
    ///
    /// # Safety
    /// It takes a handle and a pointer to a `T`, of which any bytes are a value, and nothing else.
    unsafe fn ask<T>(&self, handle: u64) -> Option<T> {
        let address = self.0.load(Ordering::Relaxed);
        if address == 0 {
            return None;
        }
        let mut answer = MaybeUninit::<T>::zeroed();
        type Ask<T> = unsafe extern "C" fn(usize, *mut T) -> u32;
        // SAFETY: the driver's function, whose signature this is, as the caller says.
        let result = unsafe { core::mem::transmute::<usize, Ask<T>>(address)(handle as usize, answer.as_mut_ptr()) };
        // SAFETY: zeroed, or written by the driver; any bytes are a value.
        (result == 0).then(|| unsafe { answer.assume_init() })
    }
}

/// Does work of ours while other threads may be capturing. None: they are, and this driver has no way to leave them alone.
pub(super) fn relaxed<R>(work: impl FnOnce() -> R) -> Option<R> {
    const RELAXED: u32 = 2; // CU_STREAM_CAPTURE_MODE_RELAXED
    let mut mode = RELAXED;
    // SAFETY: cuThreadExchangeStreamCaptureMode takes a pointer to the mode, and leaves there the one before.
    let exchanged = unsafe { MODE.exchange(&mut mode) };
    if !exchanged && capture::any() {
        return None;
    }
    let done = work();
    if exchanged {
        // SAFETY: as above.
        unsafe { MODE.exchange(&mut mode) };
    }
    Some(done)
}

/// How many nodes a graph has; none where the driver refuses.
pub(super) fn count(graph: u64) -> Option<usize> {
    let mut count = 0;
    nodes_into(graph, core::ptr::null_mut(), &mut count).then_some(count)
}

/// The first nodes of a graph; how many there are of them.
pub(super) fn nodes(graph: u64, into: &mut [u64]) -> Option<usize> {
    let mut count = into.len();
    let done = nodes_into(graph, into.as_mut_ptr(), &mut count);
    done.then_some(count.min(into.len()))
}

fn nodes_into(graph: u64, into: *mut u64, count: &mut usize) -> bool {
    let address = NODES.0.load(Ordering::Relaxed);
    if address == 0 {
        return false;
    }
    type Nodes = unsafe extern "C" fn(usize, *mut u64, *mut usize) -> u32;
    // SAFETY: the driver's cuGraphGetNodes, which writes at most `count` handles, or none to a null pointer.
    unsafe { core::mem::transmute::<usize, Nodes>(address)(graph as usize, into, count) == 0 }
}

/// What kind of node it is; [`UNKNOWN`] for those of newer drivers.
pub(super) fn kind(node: u64) -> Option<usize> {
    // SAFETY: cuGraphNodeGetType writes an enumeration of 32 bits.
    let kind = unsafe { KIND.ask::<u32>(node) }?;
    Some((kind as usize).min(UNKNOWN))
}

const _: () = assert!(UNKNOWN < KINDS);

/// The function of a kernel node, and whether it is a CUkernel.
pub(super) fn kernel(node: u64) -> Option<(u64, bool)> {
    // SAFETY: both versions write the beginning of this struct, or all of it; it holds numbers and pointers only.
    let parameters = unsafe { KERNEL.ask::<CUDA_KERNEL_NODE_PARAMS_v2>(node) }?;
    let (function, kernel) = (parameters.func as usize as u64, parameters.kern as usize as u64);
    match (function, kernel) {
        (0, 0) => None,
        (0, kernel) => Some((kernel, true)),
        (function, _) => Some((function, false)),
    }
}

/// The graph inside a child graph's node.
pub(super) fn child(node: u64) -> Option<u64> {
    // SAFETY: cuGraphChildGraphNodeGetGraph writes a handle.
    unsafe { CHILD.ask::<u64>(node) }.filter(|graph| *graph != 0)
}

/// The driver's own numbers of a graph and of an executable graph; 0 where it has none.
pub(super) fn ids(graph: u64, exec: u64) -> (u32, u32) {
    // SAFETY: cuGraphGetId and cuGraphExecGetId write a number of 32 bits.
    unsafe { (GRAPH_ID.ask::<u32>(graph).unwrap_or(0), EXEC_ID.ask::<u32>(exec).unwrap_or(0)) }
}
