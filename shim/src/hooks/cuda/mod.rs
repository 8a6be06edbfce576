//! The CUDA driver API, a file per theme, and what the lines' payloads need.
//!
//! Result codes are plain numbers here, and so are enumerations that are passed by value: a newer driver may know values
//! that no enum of ours does.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::Hook;
use crate::graphs;
use crate::interpose::procaddr;

pub(crate) mod array;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod cuda3;
pub(crate) mod device;
pub(crate) mod endpoint;
pub(crate) mod external;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod graphics;
pub(crate) mod green;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod nodes;
pub(crate) mod pointer;
pub(crate) mod pool;
mod shapes;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod texture;
pub(crate) mod tools;
pub(crate) mod virtual_memory;

/// Numbers the lists one after the other, and puts them into one.
macro_rules! lists {
    ($($first:ident $list:ident)+) => {
        lists!(@number 0, $($first $list)+);

        /// Every hook of the driver, by number.
        #[allow(clippy::indexing_slicing)] // evaluated at compile time only
        pub(super) const fn all() -> [Hook; END as usize] {
            let lists: [&[Hook]; _] = [$(&$list::LIST),+];
            let mut all = [lists[0][0]; END as usize];
            let (mut list, mut at, mut number) = (0, 0, 0);
            while list < lists.len() {
                if at == lists[list].len() {
                    (list, at) = (list + 1, 0);
                    continue;
                }
                all[number] = lists[list][at];
                (at, number) = (at + 1, number + 1);
            }
            all
        }
    };
    (@number $number:expr, $first:ident $list:ident $($more:tt)*) => {
        pub(crate) const $first: u16 = $number;
        lists!(@number $first + $list::COUNT, $($more)*);
    };
    (@number $number:expr,) => {
        /// The first number after the driver's hooks.
        pub(crate) const END: u16 = $number;
    };
}

lists! {
    ARRAY array
    CONTEXT context
    COPY copy
    CUDA3 cuda3
    DEVICE device
    ENDPOINT endpoint
    EXTERNAL external
    FUNCTION function
    GRAPH graph
    GRAPHICS graphics
    GREEN green
    IPC ipc
    LAUNCH launch
    MEMORY memory
    MODULE module
    NODES nodes
    POINTER pointer
    POOL pool
    PROC_ADDRESS procaddr
    STREAM stream
    SYNC sync
    TEXTURE texture
    TOOLS tools
    VIRTUAL_MEMORY virtual_memory
}

/// A CUmemLocation passed by value: two words of 32 bits, in one register.
type Location = u64;

/// A handle as a payload word.
fn handle<T>(handle: *mut T) -> u64 {
    handle as usize as u64
}

/// What a call wrote through its out pointer; 0 if it failed or was given none.
fn out<T: Copy + Into<Word>>(result: u32, place: *const T) -> u64 {
    if result != 0 || place.is_null() {
        return 0;
    }
    // SAFETY: the driver succeeded, so it has written the place that the program gave it.
    unsafe { *place }.into().0
}

/// How an image begins that was loaded: its first four bytes, fewer of a text that ends before; 0 if the call failed.
fn beginning(result: u32, image: *const c_void) -> u64 {
    let image = image.cast::<u8>();
    let (mut word, mut at) = (0, 0);
    while result == 0 && !image.is_null() && at < 4 {
        // SAFETY: the driver succeeded, so it has read the image: a text, which ends with a zero, or something longer.
        let byte = unsafe { *image.add(at) };
        if byte == 0 {
            break;
        }
        word |= u64::from(byte) << (8 * at);
        at += 1;
    }
    word
}

/// A payload word made of a handle, address or size.
struct Word(u64);

impl<T> From<*mut T> for Word {
    fn from(handle: *mut T) -> Word {
        Word(handle as usize as u64)
    }
}

impl From<u32> for Word {
    fn from(value: u32) -> Word {
        Word(u64::from(value))
    }
}

impl From<u64> for Word {
    fn from(value: u64) -> Word {
        Word(value)
    }
}

impl From<usize> for Word {
    fn from(value: usize) -> Word {
        Word(value as u64)
    }
}

/// The driver's functions that the shim itself calls: queries without side effect, legal under stream capture.
pub(crate) struct DriverCalls;

static CONTEXT_CURRENT: AtomicUsize = AtomicUsize::new(0);
static CONTEXT_DEVICE: AtomicUsize = AtomicUsize::new(0);
static FUNCTION_NAME: AtomicUsize = AtomicUsize::new(0);
static KERNEL_NAME: AtomicUsize = AtomicUsize::new(0);

impl DriverCalls {
    /// Finds them.
    pub(crate) fn bind(find: impl Fn(&CStr) -> usize) {
        CONTEXT_CURRENT.store(find(c"cuCtxGetCurrent"), Ordering::Relaxed);
        CONTEXT_DEVICE.store(find(c"cuCtxGetDevice"), Ordering::Relaxed);
        FUNCTION_NAME.store(find(c"cuFuncGetName"), Ordering::Relaxed);
        KERNEL_NAME.store(find(c"cuKernelGetName"), Ordering::Relaxed);
        crate::devices::bind(&find);
        crate::gpu_time::events::bind(&find);
        graphs::bind(find);
    }

    /// Handle of the calling thread's context, 0 for none; None when the driver cannot say yet.
    pub(crate) fn current_context() -> Option<u64> {
        type F = unsafe extern "C" fn(*mut usize) -> u32;
        let mut context = 0usize;
        let address = CONTEXT_CURRENT.load(Ordering::Relaxed);
        if address == 0 {
            return None;
        }
        // SAFETY: the driver's cuCtxGetCurrent, which writes one handle.
        let result = unsafe { core::mem::transmute::<usize, F>(address)(&mut context) };
        (result == 0).then_some(context as u64)
    }

    /// Ordinal of the current context's device.
    pub(crate) fn current_device() -> Option<u64> {
        type F = unsafe extern "C" fn(*mut c_int) -> u32;
        let mut device = 0;
        let address = CONTEXT_DEVICE.load(Ordering::Relaxed);
        if address == 0 {
            return None;
        }
        // SAFETY: the driver's cuCtxGetDevice, which writes one int.
        let result = unsafe { core::mem::transmute::<usize, F>(address)(&mut device) };
        (result == 0).then_some(device as u64)
    }

    /// Name of a function, where the driver has cuFuncGetName (12.3).
    pub(crate) fn function_name(function: u64) -> Option<*const c_char> {
        Self::name(&FUNCTION_NAME, function)
    }

    /// Name of a CUkernel, where the driver has cuKernelGetName (12.3).
    pub(crate) fn kernel_name(kernel: u64) -> Option<*const c_char> {
        Self::name(&KERNEL_NAME, kernel)
    }

    fn name(ask: &AtomicUsize, handle: u64) -> Option<*const c_char> {
        type F = unsafe extern "C" fn(*mut *const c_char, usize) -> u32;
        let mut name = core::ptr::null();
        let address = ask.load(Ordering::Relaxed);
        if address == 0 {
            return None;
        }
        // SAFETY: the driver's cuFuncGetName or cuKernelGetName, which write one pointer; the handle is in use.
        let result = unsafe { core::mem::transmute::<usize, F>(address)(&mut name, handle as usize) };
        (result == 0 && !name.is_null()).then_some(name)
    }
}
