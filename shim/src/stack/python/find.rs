//! Is there a Python in this process, which one, and how its structures look.
//!
//! Looked for at the start, by the symbols that it exports: in the program itself or in libpython. A program that embeds
//! Python may open it late, so it is looked for again when the program looks a symbol up after a dlopen, without which it
//! can use nothing of a library. Never when a stack is taken: that may be in a signal handler that interrupted the loader, whose
//! lists then hold libraries that are unmapped already (a target died so, in a dlclose), or which holds a lock that the loader waits for.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_abi::python::{self as layout, Layout};

use crate::interpose::elf;
use crate::stack::{memory, native};
use crate::sys;

/// An interpreter.
pub(super) struct Python {
    pub(super) layout: Layout,
    /// Types of code objects, texts and bytes.
    pub(super) code_type: usize,
    pub(super) text_type: usize,
    pub(super) bytes_type: usize,
    /// The second number of its version.
    pub(super) minor: u8,
    /// The code of the function that runs Python's, as far as it lies in one piece.
    pub(super) evaluation: Range<usize>,
    /// The library that has it: the interpreter's own code.
    pub(super) code: Range<usize>,
    this_thread: unsafe extern "C" fn() -> usize,
    is_initialized: unsafe extern "C" fn() -> c_int,
}

impl Python {
    /// The calling thread's state; 0 when it has none.
    pub(super) fn this_thread(&self) -> usize {
        // SAFETY: PyGILState_GetThisThreadState needs no GIL: it reads thread-specific storage.
        unsafe { (self.this_thread)() }
    }

    /// Whether the interpreter runs: no longer once it is being finalised.
    pub(super) fn is_initialized(&self) -> bool {
        // SAFETY: Py_IsInitialized needs no GIL: it reads a flag.
        unsafe { (self.is_initialized)() != 0 }
    }
}

/// What was found.
pub(super) enum Search {
    Found(&'static Python),
    None,
    /// A Python whose structures are not known.
    Unknown,
}

const LOOKING: u32 = 1;
const FOUND: u32 = 2;
const UNKNOWN: u32 = 3;
/// From here on: nothing was there when so many libraries had been opened.
const NONE: u32 = 4;

static STATE: AtomicU32 = AtomicU32::new(0);
static OPENED: AtomicU32 = AtomicU32::new(0);
static PYTHON: Cell = Cell(UnsafeCell::new(MaybeUninit::uninit()));

struct Cell(UnsafeCell<MaybeUninit<Python>>);

// SAFETY: written by the one thread that set LOOKING, read by others only after FOUND.
unsafe impl Sync for Cell {}

/// The program opens a library.
pub(crate) fn library_opens() {
    OPENED.fetch_add(1, Ordering::Relaxed);
}

/// How many libraries the program has opened.
pub(in crate::stack) fn opened() -> u32 {
    OPENED.load(Ordering::Relaxed)
}

/// Looks for it, where nobody has yet.
pub(in crate::stack) fn begin() {
    if STATE.load(Ordering::Acquire) == 0 {
        prepare();
    }
}

/// Looks for it, unless it is known, or somebody looked since a library was opened. Only where the program itself calls the loader, or
/// could.
pub(in crate::stack) fn prepare() {
    let none = NONE.wrapping_add(opened() % (u32::MAX - NONE));
    let state = STATE.load(Ordering::Acquire);
    if [LOOKING, FOUND, UNKNOWN, none].contains(&state)
        || STATE.compare_exchange(state, LOOKING, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return;
    }
    // Under the loader's lock, which a handler must not leave held, nor this state.
    let state = match sys::without_signals(look) {
        Looked::Python(python) => {
            // SAFETY: LOOKING was set by this thread, so no other one writes, and none reads before FOUND.
            unsafe { (*PYTHON.0.get()).write(python) };
            FOUND
        }
        Looked::Unknown => UNKNOWN,
        Looked::None => none,
    };
    STATE.store(state, Ordering::Release);
}

/// Whether it was found: nobody needs to look for it any more.
pub(in crate::stack) fn is_known() -> bool {
    STATE.load(Ordering::Acquire) == FOUND
}

/// The process's Python, as far as somebody has looked.
pub(super) fn python() -> Search {
    match STATE.load(Ordering::Acquire) {
        // SAFETY: FOUND is set, with Release, after it was written, and never changes again.
        FOUND => Search::Found(unsafe { (*PYTHON.0.get()).assume_init_ref() }),
        UNKNOWN => Search::Unknown,
        _ => Search::None,
    }
}

/// What came of looking.
enum Looked {
    Python(Python),
    None,
    Unknown,
}

fn look() -> Looked {
    let this_thread = elf::anywhere(c"PyGILState_GetThisThreadState");
    if this_thread == 0 {
        return Looked::None;
    }
    let Some(minor) = minor_version() else { return Looked::Unknown };
    let Some(layout) = layout::of(minor) else { return Looked::Unknown };
    let names = [c"Py_IsInitialized", c"PyCode_Type", c"PyUnicode_Type", c"PyBytes_Type", c"_PyRuntime"];
    let [is_initialized, code_type, text_type, bytes_type, runtime] = names.map(elf::anywhere);
    if [is_initialized, code_type, text_type, bytes_type, runtime].contains(&0) {
        return Looked::Unknown;
    }
    let evaluation = elf::anywhere(c"_PyEval_EvalFrameDefault");
    Looked::Python(Python {
        // SAFETY: the runtime's own memory, which is larger than the list of what it publishes by far.
        layout: layout::published(layout, minor, |place| unsafe { memory::word(runtime + 8 * place) })
            .unwrap_or(layout),
        code_type,
        text_type,
        bytes_type,
        minor,
        evaluation: native::extent(evaluation),
        code: native::library(evaluation),
        // SAFETY: CPython's function of this name has this signature.
        this_thread: unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> usize>(this_thread) },
        // SAFETY: as above.
        is_initialized: unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> c_int>(is_initialized) },
    })
}

/// The second number of the version; none where the first is not 3.
fn minor_version() -> Option<u8> {
    // A number since 3.11.
    let at = elf::anywhere(c"Py_Version");
    if at != 0 {
        // SAFETY: a constant of type unsigned long.
        let version = unsafe { *(at as *const usize) };
        return (version >> 24 == 3).then_some((version >> 16) as u8);
    }
    let at = elf::anywhere(c"Py_GetVersion");
    if at == 0 {
        return None;
    }
    // SAFETY: CPython's function of this name, which prints into a buffer of its own, the same text each time.
    let text = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> *const c_char>(at)() };
    // SAFETY: it returns a C string that stays.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    let digits = text.strip_prefix(b"3.")?;
    let digits = digits.get(..digits.iter().position(|b| !b.is_ascii_digit())?)?;
    u8::try_from(crate::session::number(digits)?).ok()
}
