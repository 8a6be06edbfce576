//! cuGetExportTable: the private tables that the real runtime library (libcudart 12 and 13) asks for at its start.
//!
//! They are not documented. Which are asked for and which of their functions are called was seen by running both
//! libraries on tables of logging stubs; the signatures agree with what open implementations of the driver publish.
//! A table begins with its size in bytes, except that of context-local storage. A slot whose meaning is not known holds
//! a stub that says so on stderr with FAKE_CUDA_LOG=1 and answers 801 (not supported).
//!
//! **Deliberately absent:** table d4082055-bde6-704b-8d34-ba123c66e1f2, in which every libcudart from 11.7 to 13.5
//! has the driver prove that it is the vendor's (a keyed hash over process, devices and addresses). Answering it would
//! circumvent an authentication mechanism, which the licence of libcudart forbids. So a real libcudart resolves its
//! 419 (12.9) or 458 (13.5) functions here, makes the primary context, and then fails its first call with 500.

use crate::codes::*;
use crate::config::config;
use crate::context::current_raw;
use crate::module::Image;
use crate::state::{driver, out, put};
use crate::table::{R, driver as functions};
use std::ffi::c_void;

struct Table {
    id: [u8; 16],
    slots: &'static [Slot],
}

/// A slot of a table: a function, or a number.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Slot(*const c_void);

// SAFETY: the slots are addresses of code and plain numbers.
unsafe impl Sync for Slot {}
unsafe impl Sync for Table {}

/// The size of a table as its first slot.
const fn size(slots: usize) -> Slot {
    Slot(std::ptr::without_provenance(slots * 8))
}

extern "C" fn unknown<const TABLE: u32, const SLOT: u32>() -> u32 {
    if config().log {
        eprintln!("fake-cuda: export table {TABLE:08x}: slot {SLOT} was called");
    }
    NOT_SUPPORTED
}

macro_rules! stub {
    ($table:literal, $slot:literal) => {
        Slot(unknown::<$table, $slot> as *const c_void)
    };
}

static TABLES: &[Table] = &[
    // The runtime's own: primary contexts, modules of registered fat binaries.
    Table {
        id: [0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9],
        slots: &[
            size(13),
            Slot(module_of_wrapper as *const c_void),
            Slot(primary_context as *const c_void),
            stub!(0x6bd5fb6c, 3),
            stub!(0x6bd5fb6c, 4),
            stub!(0x6bd5fb6c, 5),
            Slot(module_of_wrapper as *const c_void),
            Slot(nothing as *const c_void),
            Slot(module_of_binary as *const c_void),
            stub!(0x6bd5fb6c, 9),
            stub!(0x6bd5fb6c, 10),
            stub!(0x6bd5fb6c, 11),
            Slot(nothing as *const c_void),
        ],
    },
    // Hooks of tools into the runtime: two buffers of flags, of which none is ever set here.
    Table {
        id: [0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66],
        slots: &[
            size(7),
            stub!(0xa094798c, 1),
            Slot(first_flags as *const c_void),
            stub!(0xa094798c, 3),
            stub!(0xa094798c, 4),
            stub!(0xa094798c, 5),
            Slot(second_flags as *const c_void),
        ],
    },
    // What tools keep per thread.
    Table {
        id: [0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc],
        slots: &[size(4), stub!(0x42d85a81, 1), Slot(current as *const c_void), stub!(0x42d85a81, 3)],
    },
    // Values that the runtime keeps with a context.
    Table {
        id: [0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93],
        slots: &[
            Slot(storage_put as *const c_void),
            Slot(storage_delete as *const c_void),
            Slot(storage_get as *const c_void),
            stub!(0xc693336e, 3),
        ],
    },
    // What tools ask of a context.
    Table {
        id: [0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2],
        slots: &[
            size(5),
            stub!(0x21318c60, 1),
            stub!(0x21318c60, 2),
            stub!(0x21318c60, 3),
            Slot(context_number as *const c_void),
        ],
    },
    // Questions about a context: nothing is wrong with it.
    Table {
        id: [0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e],
        slots: &[size(4), stub!(0x263e8860, 1), Slot(context_check as *const c_void), Slot(nothing as *const c_void)],
    },
];

/// What nvcc leaves in a program for each fat binary.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const u8,
}

const WRAPPER_MAGIC: u32 = 0x4662_43b1;

fn log(what: &str) {
    if config().log {
        eprintln!("fake-cuda: private call {what}");
    }
}

fn code(result: R) -> u32 {
    result.err().unwrap_or(0)
}

fn load(result: *mut u64, image: *const u8) -> u32 {
    code((|| {
        let image = unsafe { Image::of(image)? };
        unsafe { *out(result)? = driver()?.new_module(image)? };
        Ok(())
    })())
}

extern "C" fn nothing() -> u32 {
    0
}

extern "C" fn module_of_wrapper(result: *mut u64, wrapper: *const Wrapper) -> u32 {
    log("module of a wrapper");
    match unsafe { wrapper.as_ref() } {
        Some(wrapper) if wrapper.magic == WRAPPER_MAGIC => load(result, wrapper.data),
        _ => INVALID_IMAGE,
    }
}

extern "C" fn module_of_binary(binary: *const u8, result: *mut u64) -> u32 {
    log("module of a binary");
    load(result, binary)
}

extern "C" fn primary_context(result: *mut u64, device: i32) -> u32 {
    log("primary context");
    code((|| {
        unsafe { *out(result)? = driver()?.primary_context(device, false)? };
        Ok(())
    })())
}

extern "C" fn first_flags(result: *mut *const u8, bytes: *mut usize) {
    static FLAGS: [u64; 128] = [0; 128];
    unsafe {
        put(result, FLAGS.as_ptr().cast());
        put(bytes, size_of_val(&FLAGS));
    }
}

extern "C" fn second_flags(result: *mut *const u8, bytes: *mut usize) {
    static FLAGS: [u8; 14] = [0; 14];
    unsafe {
        put(result, FLAGS.as_ptr());
        put(bytes, FLAGS.len());
    }
}

fn storage_context(context: u64) -> u64 {
    if context == 0 { current_raw() } else { context }
}

extern "C" fn storage_put(context: u64, key: u64, value: u64, _destroy: *const c_void) -> u32 {
    log("storage put");
    code((|| {
        let mut d = driver()?;
        let context = d.contexts.get_mut(storage_context(context)).ok_or(INVALID_CONTEXT)?;
        context.storage.insert(key, value);
        Ok(())
    })())
}

extern "C" fn storage_delete(context: u64, key: u64) -> u32 {
    log("storage delete");
    code((|| {
        let mut d = driver()?;
        let context = d.contexts.get_mut(storage_context(context)).ok_or(INVALID_CONTEXT)?;
        context.storage.remove(&key);
        Ok(())
    })())
}

extern "C" fn storage_get(result: *mut u64, context: u64, key: u64) -> u32 {
    log("storage get");
    code((|| {
        let d = driver()?;
        let context = d.contexts.get(storage_context(context)).ok_or(INVALID_CONTEXT)?;
        unsafe { *out(result)? = *context.storage.get(&key).ok_or(INVALID_HANDLE)? };
        Ok(())
    })())
}

extern "C" fn current(result: *mut u64) -> u32 {
    log("current context");
    code((|| {
        unsafe { *out(result)? = current_raw() };
        Ok(())
    })())
}

extern "C" fn context_number(context: u64, result: *mut u64) -> u32 {
    log("number of a context");
    code((|| {
        let d = driver()?;
        unsafe { *out(result)? = d.contexts.get(storage_context(context)).ok_or(INVALID_CONTEXT)?.id };
        Ok(())
    })())
}

extern "C" fn context_check(_context: u64, result: *mut u32, detail: *mut *const c_void) -> u32 {
    log("context check");
    unsafe {
        put(result, 0);
        put(detail, std::ptr::null());
    }
    0
}

functions! {
    fn cuGetExportTable(result: *mut *const c_void, id: *const [u8; 16]) = "cuGetExportTable" 3000 |_| {
        let id = id.as_ref().ok_or(INVALID_VALUE)?;
        let found = TABLES.iter().find(|table| table.id == *id);
        if config().log {
            eprintln!("fake-cuda: cuGetExportTable({id:02x?}) found: {}", found.is_some());
        }
        *out(result)? = found.map_or(std::ptr::null(), |table| table.slots.as_ptr().cast());
        found.map(|_| ()).ok_or(NOT_FOUND)
    }
}
