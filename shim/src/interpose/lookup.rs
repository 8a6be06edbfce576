//! dlsym, dlvsym, dlopen, dlmopen and dlclose as the program calls them, and the function that libraries call first when they were opened.
//!
//! glibc looks at the return address of these calls (RTLD_NEXT, RPATH and RUNPATH of the caller). A wrapper that calls
//! on would be the caller then, which broke cuDNN and Julia in other tools; so each is a naked stub that asks one
//! function of ours and then either returns its answer or *jumps* to the next definition with everything as it was.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use gputrace_abi::event::past;
use gputrace_abi::layout::{note, route};

use super::{copies, driver, elf, nccl, scope};
use crate::hooks::alloc::operators;
use crate::hooks::cupti;
use crate::{gpu_time, hooks, names, session, stack};

pub(super) const RTLD_NEXT: usize = usize::MAX;
pub(super) const RTLD_DEFAULT: usize = 0;

/// In two registers: where to jump, or 0 and what to return.
#[repr(C)]
struct Answer {
    jump: usize,
    value: usize,
}

macro_rules! stub {
    ($(#[$doc:meta])* $name:ident, $answer:path) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "endbr64",
                "push rdi",
                "push rsi",
                "push rdx", // three words and the return address keep the stack aligned to 16
                "mov rcx, qword ptr [rsp + 24]", // the caller
                "call {answer}",
                "mov r11, rax",
                "mov rax, rdx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2: ret",
                answer = sym $answer,
            )
        }

        $(#[$doc])*
        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-48]!",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "mov x3, x30", // the caller
                "bl {answer}",
                "mov x16, x0",
                "mov x9, x1",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                "cbz x16, 2f",
                "br x16",
                "2: mov x0, x9",
                "ret",
                answer = sym $answer,
            )
        }
    };
}

stub!(
    /// `void *dlsym(void *handle, const char *name)`
    dlsym, answer_dlsym);
stub!(
    /// `void *dlvsym(void *handle, const char *name, const char *version)`
    dlvsym, answer_dlvsym);
stub!(
    /// `void *dlopen(const char *file, int mode)`
    dlopen, answer_dlopen);
stub!(
    /// `void *dlmopen(Lmid_t namespace, const char *file, int mode)`
    dlmopen, answer_dlmopen);
stub!(
    /// `int dlclose(void *handle)`
    dlclose, answer_dlclose);
stub!(
    /// `int __cxa_atexit(void (*function)(void *), void *argument, void *library)`
    __cxa_atexit, answer_cxa_atexit);

// Found at their first use: libdl may be loaded late.
static DLSYM: elf::Function = elf::Function::next(c"dlsym");
static DLVSYM: elf::Function = elf::Function::next(c"dlvsym");
static DLOPEN: elf::Function = elf::Function::next(c"dlopen");
static DLMOPEN: elf::Function = elf::Function::next(c"dlmopen");
static DLCLOSE: elf::Function = elf::Function::next(c"dlclose");
static CXA_ATEXIT: elf::Function = elf::Function::next(c"__cxa_atexit");
static DLERROR: elf::Function = elf::Function::next(c"dlerror");

/// The real dlsym, called by us. Does not leave an error text behind for the program to find.
pub(crate) fn real_dlsym(handle: usize, name: &CStr) -> usize {
    let found = call_dlsym(handle, name);
    if found == 0 {
        clear_error();
    }
    found
}

fn call_dlsym(handle: usize, name: &CStr) -> usize {
    let address = DLSYM.address();
    if address == 0 {
        return 0;
    }
    type Dlsym = unsafe extern "C" fn(usize, *const c_char) -> usize;
    // SAFETY: the address is that of a dlsym.
    let dlsym: Dlsym = unsafe { core::mem::transmute(address) };
    // SAFETY: the handle is the program's own or one of the special values.
    unsafe { dlsym(handle, name.as_ptr()) }
}

fn clear_error() {
    take_error(|_| {});
}

/// What the loader's last call in this thread failed with.
fn take_error(told: impl FnOnce(&CStr)) {
    let address = DLERROR.address();
    if address != 0 {
        // SAFETY: the address is that of a dlerror.
        let dlerror: unsafe extern "C" fn() -> *const c_char = unsafe { core::mem::transmute(address) };
        // SAFETY: no arguments.
        let text = unsafe { dlerror() };
        if !text.is_null() {
            // SAFETY: a C string of this thread's, until its next call of the loader.
            told(unsafe { CStr::from_ptr(text) });
        }
    }
}

/// Takes a reference on the driver so that it stays where its functions' addresses say it is.
pub(super) fn pin(library: &CStr) {
    let address = DLOPEN.address();
    if address != 0 && !library.is_empty() {
        type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
        // SAFETY: the address is that of a dlopen.
        let dlopen: Dlopen = unsafe { core::mem::transmute(address) };
        // SAFETY: a C string; RTLD_NOLOAD loads nothing.
        if unsafe { dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }.is_null() {
            clear_error();
        }
    }
}

/// The same for a library of another namespace.
pub(super) fn pin_in(namespace: isize, path: *const c_char) {
    let address = DLMOPEN.address();
    if address != 0 && !path.is_null() {
        type Dlmopen = unsafe extern "C" fn(isize, *const c_char, c_int) -> *mut c_void;
        // SAFETY: the address is that of a dlmopen.
        let dlmopen: Dlmopen = unsafe { core::mem::transmute(address) };
        // SAFETY: a C string of the loader's; RTLD_NOLOAD loads nothing.
        if unsafe { dlmopen(namespace, path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) }.is_null() {
            clear_error();
        }
    }
}

/// Loads a library as the program could have done; 0 where that fails.
///
/// # Safety
/// A C string.
pub(crate) unsafe fn open(path: *const c_char) -> usize {
    // SAFETY: the caller's promise.
    unsafe { open_or(path, |_| {}) }
}

/// The same; where it fails the reason is told.
///
/// # Safety
/// A C string.
pub(crate) unsafe fn open_or(path: *const c_char, failed: impl FnOnce(&CStr)) -> usize {
    let address = DLOPEN.address();
    if address == 0 {
        return 0;
    }
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> usize;
    // SAFETY: the address is that of a dlopen.
    let dlopen: Dlopen = unsafe { core::mem::transmute(address) };
    // SAFETY: the caller's promise.
    let library = unsafe { dlopen(path, libc::RTLD_LAZY) };
    if library == 0 {
        take_error(failed);
    }
    library
}

unsafe extern "C" fn answer_dlsym(handle: usize, name: *const c_char, _: usize, caller: usize) -> Answer {
    // SAFETY: the program's own arguments of dlsym.
    unsafe { answer(&DLSYM, handle, name, core::ptr::null(), caller, route::DLSYM) }
}

unsafe extern "C" fn answer_dlvsym(
    handle: usize,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Answer {
    // SAFETY: the program's own arguments of dlvsym.
    unsafe { answer(&DLVSYM, handle, name, version, caller, route::DLVSYM) }
}

/// # Safety
/// `name` is null or a C string, as dlsym demands.
unsafe fn answer(
    next: &elf::Function,
    handle: usize,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
    route: u32,
) -> Answer {
    let pass = Answer { jump: next.address(), value: 0 };
    stack::symbol_is_looked_up();
    operators::look_again();
    if name.is_null() {
        return pass;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let look = |handle| match version.is_null() {
        true => call_dlsym(handle, name),
        // SAFETY: handle, name and version are the program's own arguments.
        false => unsafe { call_dlvsym(handle, name.as_ptr(), version) },
    };
    // Allocation functions are never answered here: a later wrapper's dlsym(RTLD_NEXT, "malloc") would get our hook.
    let bytes = name.to_bytes();
    if bytes.starts_with(b"nccl") || bytes.starts_with(b"pnccl") {
        return nccl::answer(name, handle, caller, route, look).map_or(pass, |value| Answer { jump: 0, value });
    }
    if !bytes.starts_with(b"cu") || gpu_time::is_cupti(caller) {
        return pass;
    }
    if bytes.starts_with(b"cupti") {
        return answer_cupti(name, handle, pass, look);
    }
    let Some((hook, number)) = hooks::by_name(name) else {
        // A function of a driver that is newer than this list passes by, and the trace says so.
        if bytes.get(2).is_some_and(u8::is_ascii_uppercase) && driver::has(name) {
            names::uncovered(name, 0, 0);
        }
        return pass;
    };
    if handle == RTLD_NEXT || handle == RTLD_DEFAULT {
        // Our export would answer even where there is no driver: CUDA must not appear out of nothing.
        if driver::original(number) == 0 {
            return Answer { jump: 0, value: look(RTLD_NEXT) };
        }
        if handle == RTLD_NEXT {
            return pass;
        }
        // Nor where the program cannot see it: a driver that was opened RTLD_LOCAL, another version of the symbol.
        if look(RTLD_NEXT) == 0 {
            return Answer { jump: 0, value: 0 };
        }
        driver::note_route(number, route);
        return Answer { jump: 0, value: hook.wrapper as usize };
    }
    let value = match look(handle) {
        0 => 0,
        ours if ours == hook.wrapper as usize && driver::original(number) == 0 => look(RTLD_NEXT),
        real => driver::wrapper_for(real, hook, number, handle, route),
    };
    Answer { jump: 0, value }
}

/// A function of CUPTI: only where there is one, which is what the program would have got.
fn answer_cupti(name: &CStr, handle: usize, pass: Answer, look: impl Fn(usize) -> usize) -> Answer {
    if handle == RTLD_NEXT {
        return pass;
    }
    let real = match look(handle) {
        ours if cupti::is_entry(ours) => look(RTLD_NEXT),
        real => real,
    };
    let entry = if real == 0 { None } else { cupti::entry(name, real) };
    Answer { jump: 0, value: entry.unwrap_or(real) }
}

unsafe fn call_dlvsym(handle: usize, name: *const c_char, version: *const c_char) -> usize {
    let address = DLVSYM.address();
    if address == 0 {
        return 0;
    }
    type Dlvsym = unsafe extern "C" fn(usize, *const c_char, *const c_char) -> usize;
    // SAFETY: the address is that of a dlvsym.
    let dlvsym: Dlvsym = unsafe { core::mem::transmute(address) };
    // SAFETY: the caller's promise.
    unsafe { dlvsym(handle, name, version) }
}

/// Only looks: what is known of call sites is no longer true of the addresses of a library that goes.
unsafe extern "C" fn answer_dlclose(_handle: *mut c_void) -> Answer {
    driver::pin();
    operators::look_again();
    scope::look_at_global_scope(0);
    copies::library_closes();
    Answer { jump: DLCLOSE.address(), value: 0 }
}

/// Only looks: a library that is being opened is complete when its constructors run, which call this for each object that they made.
unsafe extern "C" fn answer_cxa_atexit(_: usize) -> Answer {
    operators::look_again();
    Answer { jump: CXA_ATEXIT.address(), value: 0 }
}

/// Only looks: the library may bring Python; it may be the driver; opened RTLD_DEEPBIND it sees the driver before us,
/// and the report should say so.
unsafe extern "C" fn answer_dlopen(file: *const c_char, mode: c_int) -> Answer {
    driver::pin();
    operators::look_again();
    scope::look_at_global_scope(mode);
    stack::library_opens();
    // SAFETY: null or a C string, as dlopen demands.
    let file = if file.is_null() { c"" } else { unsafe { CStr::from_ptr(file) } };
    if file.to_bytes().windows(10).any(|part| part == b"libcuda.so") {
        driver::may_be_here();
    }
    if mode & libc::RTLD_DEEPBIND != 0 {
        goes_past(file, note::DEEPBIND, past::DEEPBIND);
    }
    Answer { jump: DLOPEN.address(), value: 0 }
}

/// Only looks: what the library calls of itself does not come to us.
unsafe extern "C" fn answer_dlmopen(_namespace: isize, file: *const c_char, _mode: c_int) -> Answer {
    stack::library_opens();
    // SAFETY: null or a C string, as dlmopen demands.
    let file = if file.is_null() { c"" } else { unsafe { CStr::from_ptr(file) } };
    goes_past(file, note::NAMESPACE, past::NAMESPACE);
    Answer { jump: DLMOPEN.address(), value: 0 }
}

/// Notes a library whose own calls may go past our symbols.
fn goes_past(library: &CStr, bit: u32, how: u64) {
    if let Some(view) = session::present() {
        view.header().notes.fetch_or(bit, Ordering::Relaxed);
        names::opened_past(library, how);
    }
}
