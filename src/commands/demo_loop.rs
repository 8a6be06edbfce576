//! The program that `gputrace demo` traces: a small training loop that makes the mistakes which reports are about.
//!
//! Each step makes a batch and copies it from pageable memory, launches some sixty short kernels with host work between them,
//! allocates and frees a scratch buffer, and reads the loss back, which waits. It speaks to whatever `libcuda.so.1` it
//! finds, by the route of most frameworks (dlopen and dlsym); `demo` gives it the simulated one.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Write;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const STEPS: usize = 200;
const LAYERS: usize = 10;
const BATCH_BYTES: usize = 2 << 20;
const SCRATCH_BYTES: usize = 8 << 20;
/// What an interpreter does between two launches.
const HOST_WORK: Duration = Duration::from_micros(20);
/// What preparing a batch takes.
const LOADING: Duration = Duration::from_millis(3);

/// Kernels of one layer, as a compiler names them; the simulated driver takes the duration from the name.
const LAYER: [&CStr; 6] = [
    c"_Z16gemm_spin_us_200PKfS0_Pfi",
    c"_Z14bias_spin_us_3PKfPfi",
    c"_Z14relu_spin_us_3Pfi",
    c"_Z17softmax_spin_us_5PKfPfi",
    c"_Z20layer_norm_spin_us_6PKfPfi",
    c"_Z15adamw_spin_us_4PfPKfi",
];

type Handle = *mut c_void;
type Code = c_int;

/// The functions of the driver that the loop calls.
struct Driver {
    init: unsafe extern "C" fn(c_uint) -> Code,
    retain_context: unsafe extern "C" fn(*mut Handle, c_int) -> Code,
    set_context: unsafe extern "C" fn(Handle) -> Code,
    create_stream: unsafe extern "C" fn(*mut Handle, c_uint) -> Code,
    synchronize: unsafe extern "C" fn(Handle) -> Code,
    load_module: unsafe extern "C" fn(*mut Handle, *const c_void) -> Code,
    get_function: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> Code,
    #[allow(clippy::type_complexity, reason = "this is the driver's signature")]
    launch: unsafe extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> Code,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> Code,
    free: unsafe extern "C" fn(u64) -> Code,
    copy_in: unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> Code,
    copy_out: unsafe extern "C" fn(*mut c_void, u64, usize, Handle) -> Code,
}

impl Driver {
    fn open() -> Result<Driver> {
        // SAFETY: the name ends in a nul byte; the library's constructors are the driver's own.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            bail!("libcuda.so.1 cannot be loaded; this program is started by: gputrace demo");
        }
        // SAFETY: each type is the signature that the driver documents for that name.
        unsafe {
            Ok(Driver {
                init: function(library, c"cuInit")?,
                retain_context: function(library, c"cuDevicePrimaryCtxRetain")?,
                set_context: function(library, c"cuCtxSetCurrent")?,
                create_stream: function(library, c"cuStreamCreate")?,
                synchronize: function(library, c"cuStreamSynchronize")?,
                load_module: function(library, c"cuModuleLoadData")?,
                get_function: function(library, c"cuModuleGetFunction")?,
                launch: function(library, c"cuLaunchKernel")?,
                allocate: function(library, c"cuMemAlloc_v2")?,
                free: function(library, c"cuMemFree_v2")?,
                copy_in: function(library, c"cuMemcpyHtoDAsync_v2")?,
                copy_out: function(library, c"cuMemcpyDtoHAsync_v2")?,
            })
        }
    }
}

/// # Safety
/// `F` is the type of a pointer to the function called `name`.
unsafe fn function<F: Copy>(library: Handle, name: &CStr) -> Result<F> {
    const { assert!(size_of::<F>() == size_of::<Handle>()) };
    // SAFETY: the library is open and the name ends in a nul byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        bail!("libcuda.so.1 has no {}", name.to_string_lossy());
    }
    // SAFETY: both are pointers; the caller vouches for the type.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn check(what: &str, code: Code) -> Result<()> {
    if code != 0 {
        bail!("{what} failed with CUDA error {code}");
    }
    Ok(())
}

/// Runs the loop.
pub(crate) fn run() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "training on a simulated GPU: {STEPS} steps; times are made up, calls are real")?;
    let driver = Driver::open()?;
    let mut training = Training::prepare(&driver)?;
    let mut loss = 0.0;
    for step in 0..STEPS {
        loss = training.step(step)?;
    }
    writeln!(out, "done: loss {loss:.3}")?;
    Ok(())
}

struct Training<'a> {
    driver: &'a Driver,
    stream: Handle,
    kernels: Vec<Handle>,
    input: u64,
}

impl<'a> Training<'a> {
    fn prepare(driver: &'a Driver) -> Result<Training<'a>> {
        let (mut context, mut stream, mut module, mut input) = (null_mut(), null_mut(), null_mut(), 0);
        // SAFETY: every pointer is to a variable that outlives its call; any bytes are an image to the simulated
        // driver, and a real one refuses these, which end with a nul byte.
        unsafe {
            check("cuInit", (driver.init)(0))?;
            check("cuDevicePrimaryCtxRetain", (driver.retain_context)(&mut context, 0))?;
            check("cuCtxSetCurrent", (driver.set_context)(context))?;
            check("cuStreamCreate", (driver.create_stream)(&mut stream, 1))?;
            check("cuModuleLoadData", (driver.load_module)(&mut module, c"demo".as_ptr().cast()))?;
            check("cuMemAlloc", (driver.allocate)(&mut input, BATCH_BYTES))?;
        }
        let kernel = |name: &&CStr| {
            let mut function = null_mut();
            // SAFETY: the module is loaded and the name ends in a nul byte.
            check("cuModuleGetFunction", unsafe { (driver.get_function)(&mut function, module, name.as_ptr()) })?;
            Ok(function)
        };
        let kernels = LAYER.iter().map(kernel).collect::<Result<_>>()?;
        Ok(Training { driver, stream, kernels, input })
    }

    fn step(&mut self, step: usize) -> Result<f64> {
        let (driver, stream) = (self.driver, self.stream);
        let (mut scratch, mut loss) = (0, 0f32);
        let batch = load();
        // SAFETY: the batch and the loss outlive the copies, which the synchronisation at the end awaits; the
        // buffers are as large as the copies say.
        unsafe {
            check("cuMemcpyHtoDAsync", (driver.copy_in)(self.input, batch.as_ptr().cast(), BATCH_BYTES, stream))?;
            check("cuMemAlloc", (driver.allocate)(&mut scratch, SCRATCH_BYTES))?;
        }
        for layer in 0..LAYERS {
            for kernel in &self.kernels {
                host_work(HOST_WORK);
                let blocks = 64 << (layer % 3);
                // SAFETY: the function is loaded; the simulated kernels read no arguments.
                let code = unsafe {
                    (driver.launch)(
                        *kernel,
                        blocks,
                        1,
                        1,
                        256,
                        1,
                        1,
                        0,
                        stream,
                        null_mut(),
                        null::<Handle>().cast_mut(),
                    )
                };
                check("cuLaunchKernel", code)?;
            }
        }
        // SAFETY: as above.
        unsafe {
            check("cuMemcpyDtoHAsync", (driver.copy_out)((&raw mut loss).cast(), self.input, 4, stream))?;
            check("cuStreamSynchronize", (driver.synchronize)(stream))?;
            check("cuMemFree", (driver.free)(scratch))?;
        }
        Ok(2.0 / (1.0 + step as f64 * 0.05) + f64::from(loss.min(0.0)))
    }
}

/// A batch in memory of its own, as data loaders make them.
fn load() -> Vec<u8> {
    let start = Instant::now();
    let batch = vec![1; BATCH_BYTES];
    host_work(LOADING.saturating_sub(start.elapsed()));
    batch
}

/// Keeps the processor busy for a while.
fn host_work(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
