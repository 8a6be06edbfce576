//! CUPTI's library: found where the program's own CUDA has it, and its functions.
//!
//! It is never linked. A library that the program has loaded already is the one; else the one that belongs to the CUDA
//! libraries that the program has loaded: in the same folder, in the neighbouring package of a Python wheel, or in a
//! toolkit's `extras`; else what the loader finds by name.

use core::ffi::{CStr, c_void};

use super::path::Path;
use crate::interpose::{elf, lookup};

/// cuptiActivityRegisterCallbacks' functions.
pub(super) type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(super) type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
pub(super) type Stamp = unsafe extern "C" fn() -> u64;

/// What cuptiActivityConfigureUnifiedMemoryCounter is told of a counter.
#[repr(C)]
pub(super) struct Counter {
    pub(super) scope: u32,
    pub(super) kind: u32,
    pub(super) device: u32,
    pub(super) enable: u32,
}

macro_rules! functions {
    ($($field:ident $name:literal ($($argument:ty),*);)+) => {
        /// The functions that are used. Each returns a CUptiResult, 0 for success.
        #[derive(Clone, Copy)]
        pub(super) struct Cupti {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> u32,)+
            /// Since CUPTI 11.6.
            timestamps: Option<unsafe extern "C" fn(Stamp) -> u32>,
            pub(super) finalize: Option<unsafe extern "C" fn() -> u32>,
            pub(super) configure_memory: Option<unsafe extern "C" fn(*const Counter, u32) -> u32>,
        }

        impl Cupti {
            /// Looks them up in the library of this handle. Err: it has no function of this name.
            fn bind(handle: usize) -> Result<Cupti, &'static CStr> {
                $(
                    let $field = lookup::real_dlsym(handle, $name);
                    if $field == 0 {
                        return Err($name);
                    }
                )+
                // SAFETY: the addresses are those of CUPTI's functions of these names, whose signatures these are.
                unsafe {
                    Ok(Cupti {
                        $($field: core::mem::transmute::<usize, unsafe extern "C" fn($($argument),*) -> u32>($field),)+
                        timestamps: core::mem::transmute::<usize, Option<unsafe extern "C" fn(Stamp) -> u32>>(
                            lookup::real_dlsym(handle, c"cuptiActivityRegisterTimestampCallback"),
                        ),
                        finalize: core::mem::transmute::<usize, Option<unsafe extern "C" fn() -> u32>>(
                            lookup::real_dlsym(handle, c"cuptiFinalize"),
                        ),
                        configure_memory: core::mem::transmute::<
                            usize,
                            Option<unsafe extern "C" fn(*const Counter, u32) -> u32>,
                        >(lookup::real_dlsym(handle, c"cuptiActivityConfigureUnifiedMemoryCounter")),
                    })
                }
            }
        }
    };
}

functions! {
    version c"cuptiGetVersion" (*mut u32);
    register c"cuptiActivityRegisterCallbacks" (Request, Complete);
    enable c"cuptiActivityEnable" (u32);
    disable c"cuptiActivityDisable" (u32);
    flush c"cuptiActivityFlushAll" (u32);
    time c"cuptiGetTimestamp" (*mut u64);
    next c"cuptiActivityGetNextRecord" (*mut u8, usize, *mut *mut u8);
    dropped c"cuptiActivityGetNumDroppedRecords" (*mut c_void, u32, *mut usize);
}

impl Cupti {
    /// Has times told on the clock of `stamp`; whether the library can.
    pub(super) fn tell_time(&self, stamp: Stamp) -> bool {
        // SAFETY: the function is never unloaded, takes no arguments and returns a time.
        self.timestamps.is_some_and(|register| unsafe { register(stamp) } == 0)
    }
}

/// Names of the library by the major version of the CUDA that it belongs to.
const NAMES: [(&[u8], &CStr); 3] =
    [(b"13", c"libcupti.so.13"), (b"12", c"libcupti.so.12"), (b"11", c"libcupti.so.11.8")];
/// Where it is, seen from the folder of another library of the same CUDA.
const NEIGHBOURS: [&[u8]; 4] =
    [b"/", b"/../../cuda_cupti/lib/", b"/../extras/CUPTI/lib64/", b"/../../../extras/CUPTI/lib64/"];
/// CUDA's libraries whose own version is CUDA's.
const SIBLINGS: [&[u8]; 4] = [b"libcudart.so.", b"libcublas.so.", b"libcublasLt.so.", b"libnvrtc.so."];

/// What the loader's reason has in it where there is no such file.
const NOT_THERE: &[u8] = b"No such file";

/// Finds the library and binds it; the path is written into `path`, or why one that is there cannot be used. `wanted`: what the user
/// named.
pub(super) fn find(wanted: &Path, driver_version: u32, path: &mut Path) -> Option<Cupti> {
    if !wanted.is_empty() {
        return open(wanted, path);
    }
    if let Some(loaded) = loaded(b"libcupti.so.", &mut |_| true) {
        return open(&loaded, path);
    }
    for sibling in SIBLINGS {
        let mut major = *b"00";
        let found = loaded(sibling, &mut |name| {
            let digits = name.get(sibling.len()..).unwrap_or(b"");
            digits.iter().zip(&mut major).for_each(|(digit, place)| *place = *digit);
            NAMES.iter().any(|(known, _)| digits.starts_with(known))
        });
        let Some(found) = found else { continue };
        let Some((_, name)) = NAMES.iter().find(|(known, _)| **known == major) else { continue };
        for neighbour in NEIGHBOURS {
            let mut beside = found.folder();
            beside.push(neighbour);
            beside.push(name.to_bytes());
            if let Some(cupti) = open(&beside, path) {
                return Some(cupti);
            }
        }
    }
    // A CUPTI newer than the driver does not work with it.
    NAMES.iter().filter(|(major, _)| number(major) <= driver_version / 1000).find_map(|(_, name)| {
        let mut by_name = Path::new();
        by_name.push(name.to_bytes());
        open(&by_name, path)
    })
}

fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit.wrapping_sub(b'0')))
}

fn open(file: &Path, path: &mut Path) -> Option<Cupti> {
    let mut unusable = |parts: [&[u8]; 3]| {
        *path = Path::new();
        parts.iter().for_each(|part| path.push(part));
    };
    // SAFETY: a C string.
    let handle = unsafe {
        lookup::open_or(file.c_str().as_ptr(), |why| {
            // It names the file itself. One that is not there is no news.
            let why = why.to_bytes();
            if !why.windows(NOT_THERE.len()).any(|part| part == NOT_THERE) {
                unusable([why, b"", b""]);
            }
        })
    };
    if handle == 0 {
        return None;
    }
    let cupti = match Cupti::bind(handle) {
        Ok(cupti) => cupti,
        Err(function) => {
            unusable([file.bytes(), b" has no ", function.to_bytes()]);
            return None;
        }
    };
    *path = Path::new();
    let real = elf::file_of(cupti.enable as usize);
    path.push(CStr::from_bytes_until_nul(&real).unwrap_or(c"").to_bytes());
    learn_range(cupti.enable as usize);
    Some(cupti)
}

/// The path of a loaded library whose name begins like this and is accepted.
fn loaded(beginning: &[u8], accept: &mut dyn FnMut(&[u8]) -> bool) -> Option<Path> {
    let mut found = None;
    elf::each_file(&mut |file| {
        let name = file.rsplit(|byte| *byte == b'/').next().unwrap_or(file);
        if name.starts_with(beginning) && accept(name) {
            let mut path = Path::new();
            path.push(file);
            found = Some(path);
        }
        found.is_some()
    });
    found
}

/// Notes where the library lies that has this function: what it looks up for itself is none of the program's.
fn learn_range(function: usize) {
    super::CUPTI_RANGE.learn(elf::range_of(function));
}

/// The same of the copy that somebody else uses.
pub(super) fn learn_other(function: usize) {
    super::OTHER_RANGE.learn(elf::range_of(function));
}

/// Whether two functions lie in one library.
pub(super) fn is_beside(function: usize, other: usize) -> bool {
    let (from, to) = elf::range_of(function);
    (from..to).contains(&other)
}
