//! The driver's functions by which launches are timed, past our hooks: what is called here is in no trace.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

/// CUDA_SUCCESS.
pub(super) const SUCCESS: u32 = 0;
/// CUDA_ERROR_NOT_READY.
pub(super) const NOT_READY: u32 = 600;
/// What is answered for a function that this driver lacks: CUDA_ERROR_NOT_FOUND.
const MISSING: u32 = 500;

macro_rules! functions {
    ($($(#[$about:meta])* $name:ident [$($symbol:literal)+] ($($argument:ident: $type:ty),*);)+) => {
        /// Finds them.
        pub(crate) fn bind(find: impl Fn(&CStr) -> usize) {
            $($name::FOUND.store([$($symbol),+].into_iter().map(&find).find(|at| *at != 0).unwrap_or(0), Ordering::Relaxed);)+
        }

        $(
            #[allow(non_camel_case_types)]
            enum $name {}

            impl $name {
                const FOUND: &'static AtomicUsize = {
                    static FOUND: AtomicUsize = AtomicUsize::new(0);
                    &FOUND
                };
            }

            $(#[$about])*
            pub(super) fn $name($($argument: $type),*) -> u32 {
                let address = $name::FOUND.load(Ordering::Relaxed);
                if address == 0 {
                    return MISSING;
                }
                // SAFETY: the driver's function of this name, whose signature this is.
                let function: unsafe extern "C" fn($($type),*) -> u32 = unsafe { core::mem::transmute(address) };
                // SAFETY: handles that the driver gave, or the program uses, and places for what it writes.
                unsafe { function($($argument),*) }
            }
        )+
    };
}

functions! {
    /// The calling thread's context.
    current [c"cuCtxGetCurrent"] (context: &mut u64);
    /// Makes a context the calling thread's, for a while.
    push [c"cuCtxPushCurrent_v2"] (context: u64);
    /// Ends that.
    pop [c"cuCtxPopCurrent_v2"] (context: &mut u64);
    /// The current context's device.
    device [c"cuCtxGetDevice"] (device: &mut c_int);
    /// The context of a stream.
    context_of [c"cuStreamGetCtx"] (stream: u64, context: &mut u64);
    /// Makes a stream.
    make_stream [c"cuStreamCreate"] (stream: &mut u64, flags: u32);
    /// Ends it.
    end_stream [c"cuStreamDestroy_v2"] (stream: u64);
    /// Makes an event.
    make_event [c"cuEventCreate"] (event: &mut u64, flags: u32);
    /// Ends it.
    end_event [c"cuEventDestroy_v2"] (event: u64);
    /// Has the GPU note the time when it gets there in a stream.
    record [c"cuEventRecord"] (event: u64, stream: u64);
    /// Whether it has got there.
    query [c"cuEventQuery"] (event: u64);
    /// Milliseconds between two events.
    elapsed [c"cuEventElapsedTime_v2" c"cuEventElapsedTime"] (ms: &mut f32, from: u64, to: u64);
    /// Host memory that the device reaches.
    host_allocate [c"cuMemHostAlloc"] (at: &mut u64, bytes: usize, flags: u32);
    /// Gives it back.
    host_free [c"cuMemFreeHost"] (at: u64);
    /// Where the device finds it.
    device_pointer [c"cuMemHostGetDevicePointer_v2"] (there: &mut u64, at: u64, flags: u32);
    /// Has a stream wait until a word is so much, or more.
    wait_value [c"cuStreamWaitValue32_v2"] (stream: u64, there: u64, value: u32, flags: u32);
    /// Device memory.
    allocate [c"cuMemAlloc_v2"] (at: &mut u64, bytes: usize);
    /// Gives it back.
    free [c"cuMemFree_v2"] (at: u64);
    /// Sets words of it.
    set [c"cuMemsetD32Async"] (at: u64, value: u32, count: usize, stream: u64);
    /// Which calls of the calling thread other threads' captures forbid.
    exchange_mode [c"cuThreadExchangeStreamCaptureMode"] (mode: &mut u32);
}

/// CU_MEMHOSTALLOC_DEVICEMAP.
pub(super) const REACHED_BY_DEVICE: u32 = 2;
/// CU_STREAM_WAIT_VALUE_GEQ.
pub(super) const AT_LEAST: u32 = 0;
/// CU_STREAM_NON_BLOCKING.
pub(super) const NON_BLOCKING: u32 = 1;

/// Has the calling thread leave captures of other threads alone, and be left alone by them. The mode before.
pub(super) fn relax() -> Option<u32> {
    let mut mode = 2; // CU_STREAM_CAPTURE_MODE_RELAXED
    (exchange_mode(&mut mode) == SUCCESS).then_some(mode)
}

/// Sets the mode that [`relax`] found.
pub(super) fn unrelax(before: Option<u32>) {
    if let Some(mut mode) = before {
        exchange_mode(&mut mode);
    }
}

/// Nanoseconds between two events that the GPU has passed.
pub(super) fn ns_between(from: u64, to: u64) -> Option<f64> {
    let mut ms = 0.0;
    (elapsed(&mut ms, from, to) == SUCCESS).then(|| f64::from(ms) * 1e6)
}
