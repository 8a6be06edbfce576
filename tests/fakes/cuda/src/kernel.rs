//! Kernels: how long one runs, by its name, and the few that compute something.
//!
//! | in the name | meaning |
//! |---|---|
//! | `spin_us_N`, `spin_ns_N` | runs that long (others: FAKE_CUDA_KERNEL_US) |
//! | `load_us_N` | its first launch takes that long: its code is loaded then |
//! | `load_waits_us_N` | the same, and it waits for all that the device was given, with events and launches of others held up |
//! | `regs_N` | a thread takes N registers (others: 32) |
//! | `shared_N` | a block declares N bytes of shared memory (others: 0) |
//! | `compile_us_N` | loading an image that lists it takes that long: its code is compiled |
//! | `saxpy` | (int n, float a, float *x, float *y): y = a x + y |
//! | `fill_` | (unsigned *target, unsigned value, int n) |
//! | `illegal_address` | every later call of its context fails with 700 |
//! | `missing_` at the front | no such kernel: look-ups give 500 |

use crate::codes::*;
use crate::config::config;
use crate::launch::Geometry;
use crate::state::Driver;
use std::ffi::c_void;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Kernel {
    pub(crate) name: Arc<str>,
    pub(crate) ns: u64,
    pub(crate) function: u64,
    pub(crate) geometry: Geometry,
    pub(crate) static_shared: u32,
    pub(crate) registers: u32,
    pub(crate) builtin: Option<Box<Builtin>>,
}

#[derive(Clone)]
pub(crate) enum Builtin {
    Saxpy { n: i32, a: f32, x: u64, y: u64 },
    Fill { target: u64, value: u32, n: i32 },
    IllegalAddress,
}

/// The number behind a mark in a name.
fn number(name: &str, mark: &str) -> Option<u64> {
    let rest = &name[name.find(mark)? + mark.len()..];
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    rest[..digits].parse().ok()
}

/// How long a kernel of this name runs.
pub(crate) fn duration_ns(name: &str) -> u64 {
    let us = number(name, "spin_us_").map(|us| us * 1000);
    us.or_else(|| number(name, "spin_ns_")).unwrap_or(config().kernel_ns)
}

/// How long the host is busy with the code of a kernel of this name: `load_us_` or `compile_us_`.
pub(crate) fn host_ns(name: &str, mark: &str) -> u64 {
    if config().instant { 0 } else { number(name, mark).unwrap_or(0) * 1000 }
}

/// Its attributes as far as they are known from the name: threads of a block, bytes of its own shared memory, registers of a
/// thread, and what its code was made for.
pub(crate) fn attributes(name: &str) -> [i32; 18] {
    let [registers, shared] =
        [("regs_", 32), ("shared_", 0)].map(|(mark, other)| number(name, mark).unwrap_or(other) as i32);
    let mut all = [0; 18];
    (all[0], all[1], all[4], all[5], all[6]) = (1024, shared, registers, 90, 90);
    all
}

/// A launch of this kernel changes something that the host can see.
pub(crate) fn computes(name: &str) -> bool {
    ["saxpy", "fill_", "illegal_address"].iter().any(|part| name.contains(part))
}

/// Reads the arguments of a computing kernel, from an array of pointers or from a buffer.
pub(crate) unsafe fn builtin(
    name: &str,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Option<Box<Builtin>> {
    let buffer = unsafe { buffer(extra) };
    let argument = |index: usize, offset: usize| -> Option<*const c_void> {
        match (params.is_null(), buffer.is_null()) {
            (false, _) => Some(unsafe { *params.add(index) }).filter(|p| !p.is_null()),
            (true, false) => Some(unsafe { buffer.byte_add(offset) }),
            _ => None,
        }
    };
    let int = |p: *const c_void| unsafe { p.cast::<i32>().read_unaligned() };
    let word = |p: *const c_void| unsafe { p.cast::<u64>().read_unaligned() };
    let found = if name.contains("saxpy") {
        let (n, a) = (int(argument(0, 0)?), f32::from_bits(int(argument(1, 4)?) as u32));
        Builtin::Saxpy { n, a, x: word(argument(2, 8)?), y: word(argument(3, 16)?) }
    } else if name.contains("fill_") {
        let value = int(argument(1, 8)?) as u32;
        Builtin::Fill { target: word(argument(0, 0)?), value, n: int(argument(2, 12)?) }
    } else if name.contains("illegal_address") {
        Builtin::IllegalAddress
    } else {
        return None;
    };
    Some(Box::new(found))
}

/// CU_LAUNCH_PARAM_BUFFER_POINTER's value.
unsafe fn buffer(extra: *const *const c_void) -> *const c_void {
    let mut at = extra;
    while !at.is_null() && !unsafe { *at }.is_null() {
        unsafe {
            if *at as usize == 1 {
                return *at.add(1);
            }
            at = at.add(2);
        }
    }
    std::ptr::null()
}

impl Kernel {
    /// Computes; a wrong address faults the stream's context instead of the process.
    pub(crate) fn run(&self, driver: &mut Driver, stream: u64) {
        let Some(builtin) = self.builtin.as_deref() else { return };
        let right = match *builtin {
            Builtin::Saxpy { n, a, x, y } => saxpy(driver, n, a, x, y),
            Builtin::Fill { target, value, n } => fill(driver, target, value, n),
            Builtin::IllegalAddress => false,
        };
        if !right && let Some(context) = driver.streams.get(stream).map(|s| s.context) {
            driver.fault(context, ILLEGAL_ADDRESS);
        }
    }
}

fn saxpy(driver: &Driver, n: i32, a: f32, x: u64, y: u64) -> bool {
    let bytes = n.max(0) as u64 * 4;
    if !driver.memory.holds(x, bytes) || !driver.memory.holds(y, bytes) {
        return false;
    }
    let (x, y) = (x as *const f32, y as *mut f32);
    (0..n.max(0) as usize).for_each(|i| unsafe { *y.add(i) += a * *x.add(i) });
    true
}

fn fill(driver: &Driver, target: u64, value: u32, n: i32) -> bool {
    if !driver.memory.holds(target, n.max(0) as u64 * 4) {
        return false;
    }
    (0..n.max(0) as usize).for_each(|i| unsafe { *(target as *mut u32).add(i) = value });
    true
}
