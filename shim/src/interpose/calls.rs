//! The driver's functions that the shim itself calls: questions without side effect, legal while a stream captures.
//!
//! They are asked of the driver itself, past every hook. An older driver lacks some; the answer is then None, as it is
//! when the driver answers with an error.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

/// `name: "symbol", or an older one (types)`: a private function of that name that calls it.
macro_rules! calls {
    ($($name:ident: $($symbol:literal)|+ ($($argument:ident : $type:ty),*);)*) => {
        mod found {
            use core::sync::atomic::AtomicUsize;
            $(#[allow(non_upper_case_globals)] pub(super) static $name: AtomicUsize = AtomicUsize::new(0);)*
        }

        /// Finds them.
        pub(crate) fn bind(find: impl Fn(&CStr) -> usize) {
            $(
                let address = [$($symbol),+].into_iter().map(&find).find(|address| *address != 0);
                found::$name.store(address.unwrap_or(0), Ordering::Relaxed);
            )*
        }

        $(
            /// # Safety
            /// As the driver's function demands.
            unsafe fn $name($($argument: $type),*) -> Option<()> {
                type F = unsafe extern "C" fn($($type),*) -> u32;
                let address: &AtomicUsize = &found::$name;
                let address = match address.load(Ordering::Relaxed) {
                    0 => return None,
                    address => address,
                };
                // SAFETY: the address is that of the driver's function, whose signature this is.
                let f: F = unsafe { core::mem::transmute::<usize, F>(address) };
                // SAFETY: the caller's promise.
                (unsafe { f($($argument),*) } == 0).then_some(())
            }
        )*
    };
}

calls! {
    get_current: c"cuCtxGetCurrent" (context: *mut u64);
    get_device: c"cuCtxGetDevice" (device: *mut c_int);
    get_function_name: c"cuFuncGetName" (name: *mut *const c_char, function: u64);
    get_kernel_name: c"cuKernelGetName" (name: *mut *const c_char, kernel: u64);
    get_nodes: c"cuGraphGetNodes" (graph: u64, nodes: *mut u64, count: *mut usize);
    get_node_kind: c"cuGraphNodeGetType" (node: u64, kind: *mut u32);
    get_kernel_node: c"cuGraphKernelNodeGetParams_v2" | c"cuGraphKernelNodeGetParams" (node: u64, parameters: *mut u64);
    get_child_graph: c"cuGraphChildGraphNodeGetGraph" (node: u64, graph: *mut u64);
    exchange_capture_mode: c"cuThreadExchangeStreamCaptureMode" (mode: *mut u32);
}

/// Handle of the calling thread's context, 0 for none; None when the driver cannot say yet.
pub(crate) fn current_context() -> Option<u64> {
    let mut context = 0;
    // SAFETY: the place is a local.
    unsafe { get_current(&mut context) }.map(|()| context)
}

/// Ordinal of the current context's device.
pub(crate) fn current_device() -> Option<u64> {
    let mut device = 0;
    // SAFETY: the place is a local.
    unsafe { get_device(&mut device) }.map(|()| device as u64)
}

/// Name of a function or kernel, where the driver has cuFuncGetName (12.3).
pub(crate) fn function_name(function: u64) -> Option<*const c_char> {
    let mut name = core::ptr::null();
    // SAFETY: the place is a local; the handle is one that the program uses.
    let answer = unsafe { get_function_name(&mut name, function).or_else(|| get_kernel_name(&mut name, function)) };
    answer.and((!name.is_null()).then_some(name))
}

/// Fills `nodes` with the graph's nodes; how many there are.
pub(crate) fn graph_nodes(graph: u64, nodes: &mut [u64]) -> Option<usize> {
    let mut count = 0;
    // SAFETY: no list asks for the number; the graph is one that the program has just used.
    unsafe { get_nodes(graph, core::ptr::null_mut(), &mut count) }?;
    let mut room = nodes.len().min(count);
    if room > 0 {
        // SAFETY: the list has room for so many.
        unsafe { get_nodes(graph, nodes.as_mut_ptr(), &mut room) }?;
    }
    Some(count)
}

/// Kind of a node (CUgraphNodeType).
pub(crate) fn node_kind(node: u64) -> Option<u32> {
    let mut kind = 0;
    // SAFETY: the place is a local; the node is one that `graph_nodes` gave.
    unsafe { get_node_kind(node, &mut kind) }.map(|()| kind)
}

/// The function or kernel of a kernel node.
pub(crate) fn node_kernel(node: u64) -> Option<u64> {
    // CUDA_KERNEL_NODE_PARAMS is 56 bytes in its first version and 72 in its second, which has a kernel at 56.
    let mut parameters = [0; 16];
    // SAFETY: the list is longer than any version of the struct; the node is a kernel node.
    unsafe { get_kernel_node(node, parameters.as_mut_ptr()) }?;
    let [function, _, _, _, _, _, _, kernel, ..] = parameters;
    Some(if function != 0 { function } else { kernel })
}

/// The graph of a node that stands for one.
pub(crate) fn child_graph(node: u64) -> Option<u64> {
    let mut graph = 0;
    // SAFETY: the place is a local; the node is a child graph node.
    unsafe { get_child_graph(node, &mut graph) }.map(|()| graph)
}

/// Does `work` with calls allowed that would disturb another thread's or stream's capture.
pub(crate) fn relaxed<R>(work: impl FnOnce() -> R) -> R {
    const RELAXED: u32 = 2; // CU_STREAM_CAPTURE_MODE_RELAXED
    let mut mode = RELAXED;
    // SAFETY: the place is a local.
    let exchanged = unsafe { exchange_capture_mode(&mut mode) };
    let result = work();
    if exchanged.is_some() {
        // SAFETY: as above; the mode is the one that the thread had.
        unsafe { exchange_capture_mode(&mut mode) };
    }
    result
}
