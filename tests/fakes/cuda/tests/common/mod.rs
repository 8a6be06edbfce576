//! Loads the simulated driver as a program would, and calls its functions by name.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::ffi::{CString, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};

pub(crate) const NON_BLOCKING: u64 = 1;

/// The loaded driver; one test at a time uses it, because captures and limits are the process's.
pub(crate) struct Cuda {
    _alone: MutexGuard<'static, ()>,
    handle: usize,
}

type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

/// Builds the library: `cargo test` alone does not, since a cdylib is nothing that a test could link.
fn build(products: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--lib"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.arg("--target-dir").arg(products.parent().expect("profiles lie in the target folder"));
    if products.ends_with("release") {
        cargo.arg("--release");
    }
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Cuda {
    /// The driver with the primary context of device 0 current. `environment` counts in the first call of a process.
    pub(crate) fn start(environment: &[(&str, &str)]) -> Cuda {
        let cuda = Cuda::load(environment);
        let mut context = 0u64;
        assert_eq!(cuda.call("cuInit", &[0]), 0);
        assert_eq!(cuda.call("cuDevicePrimaryCtxRetain", &[at(&mut context), 0]), 0);
        assert_eq!(cuda.call("cuCtxSetCurrent", &[context]), 0);
        cuda
    }

    /// The driver, not initialised.
    #[expect(clippy::disallowed_methods, reason = "the driver reads it when it is loaded, a few lines below")]
    pub(crate) fn load(environment: &[(&str, &str)]) -> Cuda {
        static ALONE: Mutex<()> = Mutex::new(());
        static HANDLE: OnceLock<usize> = OnceLock::new();
        let alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
        let handle = *HANDLE.get_or_init(|| {
            for (name, value) in environment {
                // SAFETY: the lock is held, and the other tests of this process wait for it.
                unsafe { std::env::set_var(name, value) };
            }
            let tests = std::env::current_exe().expect("a path");
            let products = tests.ancestors().nth(2).expect("target/debug");
            build(products);
            let path = products.join("libfake_cuda.so");
            let name = CString::new(path.to_str().expect("a plain path")).expect("no zero byte");
            // SAFETY: the name is a C string.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            assert!(!handle.is_null(), "{} does not load", path.display());
            handle as usize
        });
        Cuda { _alone: alone, handle }
    }

    pub(crate) fn address(&self, name: &str) -> usize {
        let symbol = CString::new(name).expect("no zero byte");
        // SAFETY: the handle is of a loaded library, the name a C string.
        let found = unsafe { libc::dlsym(self.handle as *mut c_void, symbol.as_ptr()) };
        assert!(!found.is_null(), "{name} is not exported");
        found as usize
    }

    /// Calls a function with up to eleven arguments; in C's convention it does not see the surplus ones.
    pub(crate) fn call(&self, name: &str, arguments: &[u64]) -> u32 {
        let mut a = [0u64; 11];
        a[..arguments.len()].copy_from_slice(arguments);
        // SAFETY: every function of the driver takes integers and pointers only and returns a CUresult.
        unsafe {
            let function: Function = std::mem::transmute(self.address(name));
            function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10])
        }
    }

    /// Calls a function that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, name: &str, arguments: &[u64]) {
        assert_eq!(self.call(name, arguments), 0, "{name}");
    }

    /// Calls a function that must succeed and whose first argument takes its result.
    #[track_caller]
    pub(crate) fn make(&self, name: &str, arguments: &[u64]) -> u64 {
        let mut result = 0u64;
        let mut all = vec![at(&mut result)];
        all.extend(arguments);
        self.ok(name, &all);
        result
    }

    pub(crate) fn stream(&self, flags: u64) -> u64 {
        self.make("cuStreamCreate", &[flags])
    }

    pub(crate) fn event(&self) -> u64 {
        self.make("cuEventCreate", &[0])
    }

    pub(crate) fn kernel(&self, name: &str) -> u64 {
        let image = CString::new("any bytes at all").expect("no zero byte");
        let name = CString::new(name).expect("no zero byte");
        let module = self.make("cuModuleLoadData", &[image.as_ptr() as u64]);
        self.make("cuModuleGetFunction", &[module, name.as_ptr() as u64])
    }

    pub(crate) fn launch(&self, kernel: u64, stream: u64) -> u32 {
        self.call("cuLaunchKernel", &[kernel, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0])
    }

    pub(crate) fn elapsed_ms(&self, start: u64, end: u64) -> f32 {
        let mut ms = 0f32;
        self.ok("cuEventElapsedTime", &[at(&mut ms), start, end]);
        ms
    }

    /// Outermost calls of a function so far.
    pub(crate) fn count(&self, name: &str) -> u64 {
        extern "C" fn each(name: *const i8, count: u64, user: *mut c_void) {
            // SAFETY: the driver passes a C string, and `user` is the pair below.
            unsafe {
                let wanted = &mut *user.cast::<(CString, u64)>();
                if std::ffi::CStr::from_ptr(name) == wanted.0.as_c_str() {
                    wanted.1 = count;
                }
            }
        }
        let mut wanted = (CString::new(name).expect("no zero byte"), u64::MAX);
        self.call("fakeCudaCounters", &[each as *const () as u64, at(&mut wanted)]);
        assert_ne!(wanted.1, u64::MAX, "{name} is not counted");
        wanted.1
    }
}

pub(crate) fn at<T>(value: &mut T) -> u64 {
    &raw mut *value as u64
}

/// A host function that blocks its stream until it is opened.
pub(crate) struct Gate(&'static (Mutex<bool>, Condvar));

impl Gate {
    pub(crate) fn close(cuda: &Cuda, stream: u64) -> Gate {
        extern "C" fn pass(gate: *mut c_void) {
            // SAFETY: a gate is never freed.
            let gate = unsafe { &*gate.cast::<(Mutex<bool>, Condvar)>() };
            let open = gate.0.lock().expect("no panic holds it");
            drop(gate.1.wait_while(open, |open| !*open).expect("no panic holds it"));
        }
        let gate: &'static (Mutex<bool>, Condvar) = Box::leak(Box::default());
        cuda.ok("cuLaunchHostFunc", &[stream, pass as *const () as u64, &raw const *gate as u64]);
        Gate(gate)
    }

    pub(crate) fn open(self) {
        *self.0.0.lock().expect("no panic holds it") = true;
        self.0.1.notify_all();
    }
}
