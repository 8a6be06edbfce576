//! Kernel launches.
//!
//! With FAKE_CUDA_INSTANT=1 nothing is pending, so a launch of a kernel that computes nothing has no effect: it then
//! takes no lock, looks at its handles only, and costs a few nanoseconds. That is what hooks are measured against.

use crate::capture::OPEN;
use crate::codes::*;
use crate::config::config;
use crate::context::{FAULTED, current_raw, synchronize};
use crate::kernel::{Kernel, builtin};
use crate::observe;
use crate::slab::parts;
use crate::state::{Driver, FUNCTIONS, STREAMS, driver, kinds};
use crate::table::{Default, R, driver as functions};
use crate::timeline::{PENDING, busy_until, now};
use crate::work::Work;
use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Mutex};

/// CUlaunchConfig.
#[repr(C)]
pub(crate) struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: u64,
    attributes: *const c_void,
    attribute_count: u32,
}

/// Where and how wide a kernel is launched.
#[derive(Clone, Copy, Default)]
pub(crate) struct Geometry {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

const MOST_SHARED: u32 = 232_448;

/// Held while code is loaded that waits for the device.
static LOADING: Mutex<()> = Mutex::new(());

/// Waits until no such code is being loaded.
pub(crate) fn see_loading_out() {
    drop(LOADING.lock().unwrap_or_else(|e| e.into_inner()));
}

impl Geometry {
    #[inline]
    pub(crate) fn check(&self) -> R {
        let threads = self.block.iter().map(|n| u64::from(*n)).product::<u64>();
        let blocks = self.grid.iter().all(|n| *n > 0) && self.grid[1] <= 65535 && self.grid[2] <= 65535;
        if threads == 0 || threads > 1024 || self.block[2] > 64 || !blocks || self.shared > MOST_SHARED {
            return Err(INVALID_VALUE);
        }
        Ok(())
    }
}

/// The handles look right and nothing could come of the launch.
#[inline]
fn quiet(function: u64, stream: u64) -> bool {
    static QUIET: LazyLock<bool> = LazyLock::new(|| config().instant && config().truth.is_none());
    let known_function = parts(function).0 == kinds::FUNCTION && parts(function).1 < FUNCTIONS.load(Relaxed);
    let known_stream = stream <= 2 || (parts(stream).0 == kinds::STREAM && parts(stream).1 < STREAMS.load(Relaxed));
    // The lowest bit of a function's handle says that it computes something.
    *QUIET
        && known_function
        && known_stream
        && function & 1 == 0
        && current_raw() != 0
        && PENDING.load(Relaxed) == 0
        && OPEN.load(Relaxed) == 0
        && !FAULTED.load(Relaxed)
        && !observe::observed()
}

impl Driver {
    pub(crate) unsafe fn kernel(
        &self,
        function: u64,
        geometry: Geometry,
        params: *const *const c_void,
        extra: *const *const c_void,
    ) -> R<Kernel> {
        let f = self.functions.get(function & !1).ok_or(INVALID_HANDLE)?;
        if self.module_of(f).is_none() {
            return Err(INVALID_HANDLE);
        }
        let builtin = if f.computes { unsafe { builtin(&f.name, params, extra) } } else { None };
        // Its attributes: bytes of its own shared memory, and registers of a thread.
        let (static_shared, registers) = (f.attributes[1] as u32, f.attributes[4] as u32);
        Ok(Kernel { name: f.name.clone(), ns: f.ns, function, geometry, static_shared, registers, builtin })
    }
}

#[inline]
unsafe fn launch(
    default: Default,
    function: u64,
    geometry: Geometry,
    stream: u64,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> R {
    observe::begin(observe::class::KERNEL);
    geometry.check()?;
    if quiet(function, stream) {
        return Ok(());
    }
    let mut d = driver()?;
    let loads = d.function_mut(function).map(|f| (std::mem::take(&mut f.load_ns), f.load_waits));
    if let Ok((load_ns, waits)) = loads
        && load_ns > 0
    {
        drop(d);
        let _held_up = waits.then(|| LOADING.lock().unwrap_or_else(|e| e.into_inner()));
        busy_until(now() + load_ns);
        if waits {
            synchronize(current_raw())?;
        }
        d = driver()?;
    }
    let stream = d.stream(stream, default)?;
    let kernel = unsafe { d.kernel(function, geometry, params, extra)? };
    d.submit(stream, Work::Kernel(kernel)).map(|_| ())
}

functions! {
    fn cuLaunchKernel(function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64,
        params: *const *const c_void, extra: *const *const c_void)
        = "cuLaunchKernel" 4000 + "cuLaunchKernel_ptsz" 7000 |default| {
        let geometry = Geometry { grid: [gx, gy, gz], block: [bx, by, bz], shared };
        launch(default, function, geometry, stream, params, extra)
    }
    fn cuLaunchKernelEx(config: *const Config, function: u64, params: *const *const c_void,
        extra: *const *const c_void)
        = "cuLaunchKernelEx" 11060 + "cuLaunchKernelEx_ptsz" 11060 |default| {
        let config = config.as_ref().ok_or(INVALID_VALUE)?;
        let geometry = Geometry { grid: config.grid, block: config.block, shared: config.shared };
        launch(default, function, geometry, config.stream, params, extra)
    }
    fn cuLaunchCooperativeKernel(function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, params: *const *const c_void)
        = "cuLaunchCooperativeKernel" 9000 + "cuLaunchCooperativeKernel_ptsz" 9000 |default| {
        let geometry = Geometry { grid: [gx, gy, gz], block: [bx, by, bz], shared };
        launch(default, function, geometry, stream, params, std::ptr::null())
    }
}
