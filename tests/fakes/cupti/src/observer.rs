//! What the simulated driver tells, and what is enabled.

use crate::clock::busy;
use crate::config::config;
use crate::observed::{Observer, Operation, class};
use crate::{delivery, kinds, record};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// The kinds that are enabled, a bit each.
static ENABLED: AtomicU64 = AtomicU64::new(0);
/// The last correlation id.
static CORRELATION: AtomicU32 = AtomicU32::new(0);
/// How often the library was finalized: records of calls before the last time are not made.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// Operations that records were made of, for FAKE_CUPTI_DROP and FAKE_CUPTI_INVALID.
static MADE: AtomicU64 = AtomicU64::new(0);

/// What a record needs to have been enabled when its call was made.
const WANTED: [u32; 5] = [kinds::CONCURRENT_KERNEL, kinds::KERNEL, kinds::MEMCPY, kinds::MEMCPY2, kinds::MEMSET];

static OBSERVER: Observer = Observer { begun, ended };

type Observe = unsafe extern "C" fn(*const Observer);

/// The driver's function, in whatever libcuda.so.1 the process has.
fn observe() -> Option<Observe> {
    static FOUND: AtomicU64 = AtomicU64::new(0);
    if FOUND.load(Relaxed) == 0 {
        let found = unsafe {
            let driver = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
            if driver.is_null() { driver } else { libc::dlsym(driver, c"fakeCudaObserve".as_ptr()) }
        };
        FOUND.store(found as u64, Relaxed);
    }
    let found = FOUND.load(Relaxed) as *const c_void;
    // The driver exports it with this signature.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*const c_void, Observe>(found) })
}

/// Has the driver tell what it does while anything is enabled, and what has ended until now. False without our driver.
pub(crate) fn look() -> bool {
    let Some(observe) = observe() else { return false };
    unsafe { observe(if ENABLED.load(SeqCst) == 0 { std::ptr::null() } else { &raw const OBSERVER }) };
    true
}

pub(crate) fn enable(kind: u32) {
    ENABLED.fetch_or(1 << kind, SeqCst);
}

pub(crate) fn disable(kind: u32) {
    ENABLED.fetch_and(!(1 << kind), SeqCst);
}

/// Forgets what was enabled, and the calls whose operations have yet to end.
pub(crate) fn finalize() {
    ENABLED.store(0, SeqCst);
    EPOCH.fetch_add(1, SeqCst);
}

extern "C" fn begun(class: u32) -> u64 {
    let enabled = ENABLED.load(Relaxed);
    if enabled == 0 {
        return 0;
    }
    let id = CORRELATION.fetch_add(1, Relaxed).wrapping_add(1);
    let kernels = enabled & (1 << kinds::CONCURRENT_KERNEL | 1 << kinds::KERNEL) != 0;
    if kernels && matches!(class, class::KERNEL | class::GRAPH) {
        static LAUNCHED: AtomicBool = AtomicBool::new(false);
        if !LAUNCHED.swap(true, Relaxed) {
            busy(config().first_launch_ms * 1_000_000);
        }
        busy(config().cost_ns);
    }
    let wanted = (0..WANTED.len()).filter(|i| enabled & 1 << WANTED[*i] != 0).fold(0, |bits, i| bits | 1 << i);
    if wanted != 0 {
        delivery::prepare();
    }
    u64::from(EPOCH.load(Relaxed) as u16) << 48 | wanted << 32 | u64::from(id)
}

extern "C" fn ended(operation: *const Operation) {
    let operation = unsafe { &*operation };
    if operation.tag >> 48 != u64::from(EPOCH.load(Relaxed) as u16) {
        return;
    }
    let wanted = |kind: u32| WANTED.iter().position(|k| *k == kind).is_some_and(|i| operation.tag >> 32 & 1 << i != 0);
    let kind = match record::kind(operation) {
        kinds::CONCURRENT_KERNEL if !wanted(kinds::CONCURRENT_KERNEL) => kinds::KERNEL,
        kind => kind,
    };
    if !wanted(kind) {
        return;
    }
    let nth = MADE.fetch_add(1, Relaxed) + 1;
    let every = |n: u64| n > 0 && nth.is_multiple_of(n);
    if every(config().drop) {
        delivery::drop_one();
    } else {
        delivery::add(record::record(operation, kind, every(config().invalid)));
    }
}
