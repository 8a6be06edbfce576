//! A stand-in for NVML, with as many devices as anybody asks for: each UUID of the simulated CUDA driver is one of them.
//!
//! Values are constants of the device and of the environment (`config.rs`), so that a test knows what must stand in a trace. It has
//! not every function: `nvmlDeviceGetPcieReplayCounter` is missing on purpose, as newer functions are from an old driver's library.

#![allow(non_snake_case)] // NVML's names
#![cfg(target_os = "linux")]

mod config;
mod gpm;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use config::{config, make};

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_ARGUMENT: u32 = 2;
pub(crate) const NOT_SUPPORTED: u32 = 3;
const NOT_FOUND: u32 = 6;
const TIMEOUT: u32 = 10;
const GPU_IS_LOST: u32 = 15;

/// Devices that the simulated driver can have.
const DEVICES: u64 = 8;
/// Its UUIDs, without the last digit.
const UUID: &str = "66616b65-2d63-7564-612d-6770752d303";
const CRITICAL_XID: u64 = 8;

/// An exported function, which fails where the environment says so.
macro_rules! function {
    ($name:ident($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> u32 {
            let _inside = $crate::config::enter();
            if let Some(result) = $crate::config::failure(stringify!($name)) {
                return result;
            }
            $body
        }
    };
}
pub(crate) use function;

/// Gives the caller a value.
pub(crate) fn put<T>(out: *mut T, value: T) -> u32 {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller's own place for the answer.
    unsafe { out.write(value) };
    SUCCESS
}

/// Number of the device behind a handle.
pub(crate) fn known(device: *mut c_void) -> Option<u64> {
    (device as u64).checked_sub(1).filter(|number| *number < DEVICES)
}

/// Gives a value of a device.
fn of<T>(device: *mut c_void, out: *mut T, value: impl FnOnce(u64) -> T) -> u32 {
    known(device).map_or(INVALID_ARGUMENT, |number| put(out, value(number)))
}

/// The same of what a MIG instance does not tell.
fn of_whole<T>(device: *mut c_void, out: *mut T, value: impl FnOnce(u64) -> T) -> u32 {
    if config().mig { NOT_SUPPORTED } else { of(device, out, value) }
}

/// Initialises NVML. Whoever waits for that need not know whether it worked.
#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> u32 {
    make(config().started.as_ref());
    config::failure("nvmlInit_v2").unwrap_or(SUCCESS)
}
function!(nvmlShutdown() { SUCCESS });

function!(nvmlSystemGetDriverVersion(out: *mut c_char, bytes: u32) {
    let text = c"580.00";
    if (bytes as usize) < text.to_bytes_with_nul().len() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller's room is as long as it says, and long enough.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), out, text.to_bytes_with_nul().len()) };
    SUCCESS
});

function!(nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut *mut c_void) {
    // SAFETY: a text, by NVML's contract.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_string_lossy().into_owned();
    let kind = if config().mig { "MIG-" } else { "GPU-" };
    let number = uuid.strip_prefix(kind).and_then(|rest| rest.strip_prefix(UUID)).and_then(|digit| digit.parse::<u64>().ok());
    number.filter(|number| *number < DEVICES).map_or(NOT_FOUND, |number| put(out, (number + 1) as *mut c_void))
});
function!(nvmlDeviceGetHandleByPciBusId_v2(_pci: *const c_char, _out: *mut *mut c_void) { NOT_FOUND });
function!(nvmlDeviceIsMigDeviceHandle(device: *mut c_void, out: *mut u32) { of(device, out, |_| u32::from(config().mig)) });

function!(nvmlDeviceGetUtilizationRates(device: *mut c_void, out: *mut [u32; 2]) {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let asked = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    if config().lost_after.is_some_and(|after| asked >= after) {
        make(config().read.as_ref());
        return GPU_IS_LOST;
    }
    of_whole(device, out, |_| if config().work == "idle" && asked > config().busy { [0, 0] } else { [98, 40] })
});

/// Version, total, reserved, free, used.
#[repr(C)]
struct Memory(u32, [u64; 4]);

function!(nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, out: *mut Memory) {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    // The readings before this one are over.
    if ASKED.fetch_add(1, Ordering::Relaxed) == config().readings {
        make(config().read.as_ref());
    }
    of(device, out, |number| Memory(2, [100 << 30, 1 << 30, 79 << 30, (20 + number) << 30]))
});
function!(nvmlDeviceGetPowerUsage(device: *mut c_void, out: *mut u32) { of_whole(device, out, |number| 612_500 + number as u32) });
function!(nvmlDeviceGetEnforcedPowerLimit(device: *mut c_void, out: *mut u32) { of_whole(device, out, |_| 700_000) });
function!(nvmlDeviceGetTemperature(device: *mut c_void, _sensor: u32, out: *mut u32) { of(device, out, |_| 61) });
function!(nvmlDeviceGetClockInfo(device: *mut c_void, kind: u32, out: *mut u32) {
    of_whole(device, out, |_| if kind == 2 { 3_201 } else { 1_755 })
});
function!(nvmlDeviceGetCurrentClocksThrottleReasons(device: *mut c_void, out: *mut u64) {
    of_whole(device, out, |_| config().reasons)
});
function!(nvmlDeviceGetCurrPcieLinkGeneration(device: *mut c_void, out: *mut u32) { of_whole(device, out, |_| 5) });
function!(nvmlDeviceGetMaxPcieLinkGeneration(device: *mut c_void, out: *mut u32) { of_whole(device, out, |_| 5) });
function!(nvmlDeviceGetCurrPcieLinkWidth(device: *mut c_void, out: *mut u32) { of_whole(device, out, |_| 8) });
function!(nvmlDeviceGetMaxPcieLinkWidth(device: *mut c_void, out: *mut u32) { of_whole(device, out, |_| 16) });
function!(nvmlDeviceGetPcieThroughput(device: *mut c_void, counter: u32, out: *mut u32) {
    of_whole(device, out, |_| if counter == 0 { 2_500 } else { 5_000 })
});
function!(nvmlDeviceGetVirtualizationMode(device: *mut c_void, out: *mut u32) {
    of(device, out, |_| if config().virtual_gpu { 2 } else { 0 })
});
function!(nvmlDeviceGetHandleByIndex_v2(index: u32, out: *mut *mut c_void) {
    if u64::from(index) < DEVICES { put(out, (index as usize + 1) as *mut c_void) } else { INVALID_ARGUMENT }
});
function!(nvmlDeviceGetTotalEccErrors(device: *mut c_void, kind: u32, _counter: u32, out: *mut u64) {
    of_whole(device, out, |_| if kind == 1 { config().ecc } else { 3 })
});

// Nobody but a process that is never there.
function!(nvmlDeviceGetComputeRunningProcesses_v3(device: *mut c_void, count: *mut u32, list: *mut [u64; 3]) {
    if known(device).is_none() {
        return INVALID_ARGUMENT;
    }
    // Process id, bytes, and that it is in no MIG instance.
    let room = !list.is_null() && put(list, [4_000_000, 5 << 30, u64::MAX]) == SUCCESS;
    put(count, 1);
    // NVML's word for a list that is too short.
    if room { SUCCESS } else { 7 }
});

function!(nvmlEventSetCreate(out: *mut *mut c_void) { put(out, Box::into_raw(Box::new(0u64)).cast()) });
function!(nvmlEventSetFree(set: *mut c_void) {
    // SAFETY: the caller gives back what nvmlEventSetCreate gave it, once.
    drop(unsafe { Box::from_raw(set.cast::<u64>()) });
    SUCCESS
});
function!(nvmlDeviceRegisterEvents(device: *mut c_void, _events: u64, set: *mut c_void) {
    if config().mig { NOT_SUPPORTED } else { put(set.cast::<u64>(), device as u64) }
});

#[repr(C)]
struct Event {
    device: *mut c_void,
    kind: u64,
    data: u64,
    instances: [u32; 2],
}

function!(nvmlEventSetWait_v2(set: *mut c_void, out: *mut Event, _timeout_ms: u32) {
    // SAFETY: a set of nvmlEventSetCreate: the device that is registered, 0 when its event has been told.
    let device = unsafe { std::mem::take(&mut *set.cast::<u64>()) };
    match config().xid.filter(|_| device > 0) {
        Some(data) => put(out, Event { device: device as *mut c_void, kind: CRITICAL_XID, data, instances: [u32::MAX; 2] }),
        None => TIMEOUT,
    }
});
