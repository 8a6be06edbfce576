//! The CUDA driver API, a file per theme, and what the lines' payloads need.
//!
//! Result codes are plain numbers here: a newer driver may return codes that no enum of ours knows.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

pub(crate) mod copy;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod other;
mod shapes;
pub(crate) mod sync;

/// Number of the first hook of each list.
pub(crate) const LAUNCH: u16 = 0;
/// See [`LAUNCH`].
pub(crate) const SYNC: u16 = LAUNCH + launch::COUNT;
/// See [`LAUNCH`].
pub(crate) const COPY: u16 = SYNC + sync::COUNT;
/// See [`LAUNCH`].
pub(crate) const MEMORY: u16 = COPY + copy::COUNT;
/// See [`LAUNCH`].
pub(crate) const MODULE: u16 = MEMORY + memory::COUNT;
/// See [`LAUNCH`].
pub(crate) const OTHER: u16 = MODULE + module::COUNT;
/// See [`LAUNCH`].
pub(crate) const PROC_ADDRESS: u16 = OTHER + other::COUNT;
/// The first number after the driver's hooks.
pub(crate) const END: u16 = PROC_ADDRESS + crate::interpose::procaddr::LIST.len() as u16;

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

/// A payload word made of a handle, address or size.
struct Word(u64);

impl<T> From<*mut T> for Word {
    fn from(handle: *mut T) -> Word {
        Word(handle as usize as u64)
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

impl DriverCalls {
    /// Finds them.
    pub(crate) fn bind(find: impl Fn(&CStr) -> usize) {
        CONTEXT_CURRENT.store(find(c"cuCtxGetCurrent"), Ordering::Relaxed);
        CONTEXT_DEVICE.store(find(c"cuCtxGetDevice"), Ordering::Relaxed);
        FUNCTION_NAME.store(find(c"cuFuncGetName"), Ordering::Relaxed);
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
        type F = unsafe extern "C" fn(*mut *const c_char, usize) -> u32;
        let mut name = core::ptr::null();
        let address = FUNCTION_NAME.load(Ordering::Relaxed);
        if address == 0 {
            return None;
        }
        // SAFETY: the driver's cuFuncGetName, which writes one pointer; the function is being launched.
        let result = unsafe { core::mem::transmute::<usize, F>(address)(&mut name, function as usize) };
        (result == 0 && !name.is_null()).then_some(name)
    }
}
