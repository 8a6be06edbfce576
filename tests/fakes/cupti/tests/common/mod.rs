//! A client of the stand-in, in a process of its own for each test, with the simulated driver beside it.
#![allow(dead_code, reason = "no test file uses all of it")]

#[path = "../../../cuda/tests/common/mod.rs"]
mod driver;

#[allow(unused_imports, reason = "no test file uses all of it")]
pub(crate) use driver::{Cuda, Gate, NON_BLOCKING, at};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, Once};
use std::thread::ThreadId;

pub(crate) const MEMCPY: u64 = 1;
pub(crate) const MEMSET: u64 = 2;
pub(crate) const MEMCPY2: u64 = 22;
pub(crate) const KERNEL: u64 = 10;

const MARK: &str = "FAKE_CUPTI_TEST_CHILD";

/// Runs the body of the calling test in a process of its own, with these variables.
pub(crate) fn alone(variables: &[(&str, &str)], body: impl FnOnce(&Cuda, &Cupti)) {
    if std::env::var_os(MARK).is_some() {
        let cuda = Cuda::start(&[]);
        let cupti = Cupti::load();
        return body(&cuda, &cupti);
    }
    static BUILT: Once = Once::new();
    BUILT.call_once(build);
    let name = std::thread::current().name().expect("a test has a name").to_owned();
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child.args([&name, "--exact", "--nocapture"]).env(MARK, "1").envs(variables.iter().copied());
    let output = child.output().expect("the test starts");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{variables:?}: {text}");
}

fn products() -> std::path::PathBuf {
    let tests = std::env::current_exe().expect("a path");
    tests.ancestors().nth(2).expect("target/debug").to_owned()
}

/// `cargo test` alone does not build libraries that nothing can link.
fn build() {
    let products = products();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", "fake-cuda", "-p", "fake-cupti", "--target-dir"]);
    cargo.arg(products.parent().expect("profiles lie in the target folder"));
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    if products.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("cargo runs").success());
}

type Function = unsafe extern "C" fn(u64, u64, u64, u64) -> u32;

/// The loaded stand-in.
pub(crate) struct Cupti(usize);

impl Cupti {
    fn load() -> Cupti {
        let path = products().join("libfake_cupti.so");
        let name = CString::new(path.to_str().expect("a plain path")).expect("no zero byte");
        // SAFETY: the name is a C string.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{} does not load", path.display());
        HANDLE.store(handle as usize, SeqCst);
        Cupti(handle as usize)
    }

    pub(crate) fn call(&self, name: &str, arguments: &[u64]) -> u32 {
        let symbol = CString::new(name).expect("no zero byte");
        let mut a = [0u64; 4];
        a[..arguments.len()].copy_from_slice(arguments);
        // SAFETY: each function takes integers and pointers only, and returns a CUptiResult.
        unsafe {
            let found = libc::dlsym(self.0 as *mut c_void, symbol.as_ptr());
            assert!(!found.is_null(), "{name} is not exported");
            std::mem::transmute::<*mut c_void, Function>(found)(a[0], a[1], a[2], a[3])
        }
    }

    #[track_caller]
    pub(crate) fn ok(&self, name: &str, arguments: &[u64]) {
        assert_eq!(self.call(name, arguments), 0, "{name}");
    }

    pub(crate) fn register(&self, party: &Party) {
        self.ok(
            "cuptiActivityRegisterCallbacks",
            &[party.request as *const () as u64, party.complete as *const () as u64],
        );
    }

    pub(crate) fn enable(&self, kinds: &[u64]) {
        kinds.iter().for_each(|kind| self.ok("cuptiActivityEnable", &[*kind]));
    }

    pub(crate) fn disable(&self, kinds: &[u64]) {
        kinds.iter().for_each(|kind| self.ok("cuptiActivityDisable", &[*kind]));
    }

    /// Flushes, and takes what a party has got.
    pub(crate) fn flushed(&self, party: &Party) -> Vec<Record> {
        self.ok("cuptiActivityFlushAll", &[0]);
        party.taken()
    }

    pub(crate) fn dropped(&self) -> usize {
        let mut dropped = 0usize;
        self.ok("cuptiActivityGetNumDroppedRecords", &[0, 0, at(&mut dropped)]);
        dropped
    }
}

static HANDLE: AtomicUsize = AtomicUsize::new(0);

/// A record as a client reads it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) bytes: Vec<u8>,
    pub(crate) completed_by: ThreadId,
}

impl Record {
    fn number<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes[at..at + N].try_into().expect("so many bytes")
    }

    pub(crate) fn u8(&self, at: usize) -> u8 {
        self.bytes[at]
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.number(at))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.number(at))
    }

    pub(crate) fn kind(&self) -> u64 {
        u64::from(self.u32(0))
    }

    /// (correlation id, context, stream).
    pub(crate) fn origin(&self) -> (u32, u32, u32) {
        if self.kind() == KERNEL {
            (self.u32(92), self.u32(44), self.u32(48))
        } else {
            (self.u32(44), self.u32(36), self.u32(40))
        }
    }

    /// (graph, node).
    pub(crate) fn graph(&self) -> (u32, u64) {
        if self.kind() == KERNEL { (self.u32(156), self.u64(144)) } else { (self.u32(72), self.u64(64)) }
    }

    /// (start, end).
    pub(crate) fn times(&self) -> (u64, u64) {
        (self.u64(16), self.u64(24))
    }

    pub(crate) fn kernel_name(&self) -> String {
        // SAFETY: the library never frees a name.
        unsafe { CStr::from_ptr(self.u64(104) as *const c_char) }.to_str().expect("text").to_owned()
    }
}

/// Somebody who registers callbacks.
pub(crate) struct Party {
    request: unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize),
    complete: unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize),
    got: &'static Mutex<Vec<Record>>,
    asked: &'static Mutex<Vec<ThreadId>>,
    /// It has no buffers to give.
    pub(crate) poor: &'static AtomicBool,
}

impl Party {
    pub(crate) fn taken(&self) -> Vec<Record> {
        std::mem::take(&mut *self.got.lock().expect("no panic holds it"))
    }

    /// The threads that asked it for buffers.
    pub(crate) fn asked(&self) -> Vec<ThreadId> {
        self.asked.lock().expect("no panic holds it").clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.got.lock().expect("no panic holds it").len()
    }
}

pub(crate) const BUFFER: usize = 4096;

fn requested(poor: &AtomicBool, buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    // SAFETY: the library passes places for its answers.
    unsafe {
        *most = 0;
        *size = BUFFER;
        *buffer = if poor.load(SeqCst) { std::ptr::null_mut() } else { libc::malloc(BUFFER).cast() };
    }
}

/// Walks a buffer as a client does, and frees it.
fn completed(got: &Mutex<Vec<Record>>, buffer: *mut u8, valid: usize) {
    let cupti = Cupti(HANDLE.load(SeqCst));
    let mut starts = Vec::new();
    let mut record: *mut u8 = std::ptr::null_mut();
    while cupti.call("cuptiActivityGetNextRecord", &[buffer as u64, valid as u64, at(&mut record)]) == 0 {
        starts.push(record as usize - buffer as usize);
    }
    let ends = starts.iter().skip(1).copied().chain([valid]);
    let completed_by = std::thread::current().id();
    let records = starts.iter().zip(ends).map(|(start, end)| {
        // SAFETY: the library has filled the buffer that far.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.add(*start), end - start) }.to_vec();
        Record { bytes, completed_by }
    });
    got.lock().expect("no panic holds it").extend(records);
    // SAFETY: it came from malloc, and the library is done with it.
    unsafe { libc::free(buffer.cast()) };
}

macro_rules! party {
    ($name:ident) => {
        pub(crate) fn $name() -> Party {
            static GOT: Mutex<Vec<Record>> = Mutex::new(Vec::new());
            static POOR: AtomicBool = AtomicBool::new(false);
            static ASKED: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
            unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
                ASKED.lock().expect("no panic holds it").push(std::thread::current().id());
                requested(&POOR, buffer, size, most);
            }
            unsafe extern "C" fn complete(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
                completed(&GOT, buffer, valid);
            }
            Party { request, complete, got: &GOT, asked: &ASKED, poor: &POOR }
        }
    };
}

party!(first);
party!(second);
