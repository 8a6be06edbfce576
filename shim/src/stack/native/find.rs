//! Which library an address lies in, where its unwinding tables are, and how it is told to the collector.
//!
//! glibc 2.35 and newer answer with `_dl_find_object`, which takes no lock; older ones walk the list of libraries.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use gputrace_abi::event::text_kind;

use crate::interpose::elf::{self, Function};
use crate::stack::known::{Known, mix};
use crate::thread::State;
use crate::{session, sys};

/// A loaded library.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Object {
    /// Where it was loaded: its addresses in the file are so much lower.
    pub(super) base: usize,
    /// Where its last segment ends.
    end: usize,
    /// Its `.eh_frame_hdr`; 0 when it has none.
    pub(super) tables: usize,
    /// Its path; empty for the program itself.
    name: Option<&'static CStr>,
}

/// `struct dl_find_object` of dlfcn.h.
#[repr(C)]
struct Found {
    flags: u64,
    start: usize,
    end: usize,
    link: *const Link,
    tables: usize,
    spare: [u64; 8],
}

/// `struct link_map` of link.h.
#[repr(C)]
struct Link {
    base: usize,
    name: *const c_char,
}

static FIND_OBJECT: Function = Function::anywhere(c"_dl_find_object");

/// Where our own code lies.
static OURS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Finds what answers without a lock, and ourselves. For the constructor.
pub(in crate::stack) fn prepare() {
    FIND_OBJECT.address();
    if let Some(object) = object(prepare as *const () as usize) {
        let [start, end] = &OURS;
        start.store(object.base, Ordering::Relaxed);
        end.store(object.end, Ordering::Relaxed);
    }
}

/// Where our own code lies.
#[inline(always)]
pub(super) fn ours() -> Range<usize> {
    let [start, end] = &OURS;
    start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)
}

/// Whether libraries are found without a lock.
pub(in crate::stack) fn is_lock_free() -> bool {
    FIND_OBJECT.known() != 0
}

/// The library that holds this address.
pub(super) fn object(address: usize) -> Option<Object> {
    // Known from the constructor on. It is not looked up here: where there is none, each stack would search all libraries,
    // under the lock that a signal handler must not leave behind.
    match FIND_OBJECT.known() {
        0 => walk(address),
        function => ask(function, address),
    }
}

fn ask(function: usize, address: usize) -> Option<Object> {
    type FindObject = unsafe extern "C" fn(usize, *mut Found) -> c_int;
    // SAFETY: glibc's function of this name has this signature.
    let find: FindObject = unsafe { core::mem::transmute(function) };
    let mut found = Found { flags: 0, start: 0, end: 0, link: core::ptr::null(), tables: 0, spare: [0; 8] };
    // SAFETY: the structure is larger than any that glibc fills.
    if unsafe { find(address, &mut found) } != 0 {
        return None;
    }
    // SAFETY: the loader's entry of a library that is loaded: code in it is being executed.
    let link = unsafe { found.link.as_ref()? };
    Some(Object { base: link.base, end: found.end, tables: found.tables, name: name(link.name) })
}

fn name(name: *const c_char) -> Option<&'static CStr> {
    // SAFETY: the loader's text, which stays as long as the library, whose code is being executed.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

struct Walk {
    address: usize,
    found: Option<Object>,
}

fn walk(address: usize) -> Option<Object> {
    let mut walk = Walk { address, found: None };
    sys::without_signals(|| elf::for_each_library(visit, (&raw mut walk).cast()));
    walk.found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, walk: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid info, and `walk` its own structure.
    let (info, walk) = unsafe { (&*info, &mut *walk.cast::<Walk>()) };
    let base = info.dlpi_addr as usize;
    let start = |s: &libc::Elf64_Phdr| base.wrapping_add(s.p_vaddr as usize);
    let holds = |s: &libc::Elf64_Phdr| (start(s)..start(s).saturating_add(s.p_memsz as usize)).contains(&walk.address);
    let segments = elf::segments(info);
    if !segments.iter().any(|s| s.p_type == libc::PT_LOAD && holds(s)) {
        return 0;
    }
    let tables = segments.iter().find(|s| s.p_type == libc::PT_GNU_EH_FRAME).map_or(0, start);
    let ends =
        segments.iter().filter(|s| s.p_type == libc::PT_LOAD).map(|s| start(s).saturating_add(s.p_memsz as usize));
    walk.found = Some(Object { base, end: ends.max().unwrap_or(base), tables, name: name(info.dlpi_name) });
    1
}

static WRITTEN: Known = Known::new();

impl Object {
    /// From where to where it lies.
    pub(super) fn range(&self) -> Range<usize> {
        self.base..self.end
    }

    /// The kernel's own, which no file holds.
    pub(super) fn is_kernels(&self) -> bool {
        self.name.is_some_and(|name| name.to_bytes().ends_with(b"vdso.so.1"))
    }

    /// Tells the collector about the library once, under this number; its key, or none where there was no room.
    pub(super) fn write(&self, state: &State, since: u64) -> Option<u64> {
        let path = self.name.unwrap_or(c"").to_bytes();
        // Asked for each frame of each new stack: by words.
        let (words, rest) = path.as_chunks();
        let hash = words.iter().fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        let key = mix(rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte))), self.base as u64);
        if !WRITTEN.has(key, since) {
            let told = match path.first() {
                Some(first) if *first != b'/' && path.contains(&b'/') => self.write_absolute(state, key, path),
                _ => self.write_path(state, key, path),
            };
            if !told {
                return None;
            }
            WRITTEN.insert(key, since);
        }
        Some(key)
    }

    fn write_path(&self, state: &State, key: u64, path: &[u8]) -> bool {
        state.write_text(text_kind::MODULE, key, self.base as u64, path, session::now())
    }

    /// A path as it was given to dlopen, from where the process is now: that it is gone when somebody asks where it was.
    #[cold]
    #[inline(never)]
    fn write_absolute(&self, state: &State, key: u64, path: &[u8]) -> bool {
        let mut whole = [0u8; 1024];
        let folder = sys::working_directory(&mut whole);
        match whole.get_mut(folder..folder + 1 + path.len()) {
            Some([slash, rest @ ..]) if folder > 0 => {
                *slash = b'/';
                rest.copy_from_slice(path);
            }
            _ => return self.write_path(state, key, path),
        }
        self.write_path(state, key, whole.get(..folder + 1 + path.len()).unwrap_or(path))
    }
}
