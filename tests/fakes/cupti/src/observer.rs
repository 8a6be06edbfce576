//! What the simulated driver tells, and what is enabled.

use crate::clock::busy;
use crate::config::config;
use crate::observed::{Observer, Operation, Wait, class};
use crate::{beside, delivery, kinds, record};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// The kinds that are enabled, a bit each.
static ENABLED: AtomicU64 = AtomicU64::new(0);
/// From the first enable until the library is finalized: launches pay for it, whatever is enabled.
static IS_ATTACHED: AtomicBool = AtomicBool::new(false);
/// Graphs were launched meanwhile when nothing was enabled: they break when the library is finalized.
static HAS_GRAPHS: AtomicBool = AtomicBool::new(false);
/// The last correlation id.
static CORRELATION: AtomicU32 = AtomicU32::new(0);
/// How often the library was finalized: records of calls before the last time are not made.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// Calls that wait are counted too.
static NUMBERS_WAITS: AtomicBool = AtomicBool::new(false);
/// Operations that records were made of, for FAKE_CUPTI_DROP and FAKE_CUPTI_INVALID.
static MADE: AtomicU64 = AtomicU64::new(0);

/// What a record needs to have been enabled when its call was made.
const WANTED: [u32; 5] = [kinds::CONCURRENT_KERNEL, kinds::KERNEL, kinds::MEMCPY, kinds::MEMCPY2, kinds::MEMSET];

static OBSERVER: Observer = Observer { begun, ended, waits, waited };

type Observe = unsafe extern "C" fn(*const Observer);

/// A function of the driver's, in whatever libcuda.so.1 the process has.
fn function(name: &CStr) -> *const c_void {
    unsafe {
        let driver = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        if driver.is_null() { driver } else { libc::dlsym(driver, name.as_ptr()) }
    }
}

fn observe() -> Option<Observe> {
    static FOUND: AtomicU64 = AtomicU64::new(0);
    if FOUND.load(Relaxed) == 0 {
        FOUND.store(function(c"fakeCudaObserve") as u64, Relaxed);
    }
    let found = FOUND.load(Relaxed) as *const c_void;
    // The driver exports it with this signature.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*const c_void, Observe>(found) })
}

/// Another copy of the library is at work in the process, or was: the driver serves one, until the process ends.
pub(crate) fn is_taken() -> bool {
    let observed = function(c"fakeCudaObserved");
    // The driver exports it with this signature.
    let observed = (!observed.is_null()).then(|| unsafe {
        std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *const Observer>(observed)()
    });
    observed.is_some_and(|observer| !observer.is_null() && !std::ptr::eq(observer, &raw const OBSERVER))
}

/// True: the library was not at work in the process.
pub(crate) fn attach() -> bool {
    !IS_ATTACHED.swap(true, SeqCst)
}

/// Has the driver tell what it does while the library is at work, and what has ended until now. False without our driver.
pub(crate) fn look() -> bool {
    let Some(observe) = observe() else { return false };
    unsafe { observe(if IS_ATTACHED.load(SeqCst) { &raw const OBSERVER } else { std::ptr::null() }) };
    true
}

pub(crate) fn enable(kind: u32) {
    ENABLED.fetch_or(1 << kind, SeqCst);
}

/// Whether a kind is enabled.
pub(crate) fn is_enabled(kind: u32) -> bool {
    ENABLED.load(Relaxed) & 1 << kind != 0
}

pub(crate) fn disable(kind: u32) {
    ENABLED.fetch_and(!(1 << kind), SeqCst);
}

/// Forgets what was enabled, and the calls whose operations have yet to end. Graphs that were launched while nothing was
/// enabled break, and the contexts with them.
pub(crate) fn finalize() {
    ENABLED.store(0, SeqCst);
    IS_ATTACHED.store(false, SeqCst);
    CORRELATION.store(0, SeqCst);
    NUMBERS_WAITS.store(false, SeqCst);
    EPOCH.fetch_add(1, SeqCst);
    let fail = function(c"fakeCudaFail");
    if HAS_GRAPHS.swap(false, SeqCst) && !fail.is_null() {
        const LAUNCH_FAILED: u32 = 719;
        // The driver exports it with this signature.
        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn(u32)>(fail)(LAUNCH_FAILED) };
    }
}

extern "C" fn begun(class: u32) -> u64 {
    let enabled = ENABLED.load(Relaxed);
    if matches!(class, class::KERNEL | class::GRAPH) {
        busy(config().idle_ns);
    }
    if enabled == 0 {
        if class == class::GRAPH {
            HAS_GRAPHS.store(true, Relaxed);
        }
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
        beside::launched(id);
    }
    let wanted = (0..WANTED.len()).filter(|i| enabled & 1 << WANTED[*i] != 0).fold(0, |bits, i| bits | 1 << i);
    if wanted != 0 {
        delivery::prepare();
    }
    u64::from(EPOCH.load(Relaxed) as u16) << 48 | wanted << 32 | u64::from(id)
}

extern "C" fn waits(_kind: u32) -> u64 {
    if is_enabled(kinds::SYNCHRONIZATION) {
        NUMBERS_WAITS.store(true, Relaxed);
    }
    if ENABLED.load(Relaxed) == 0 || !NUMBERS_WAITS.load(Relaxed) {
        return 0;
    }
    u64::from(CORRELATION.fetch_add(1, Relaxed).wrapping_add(1))
}

extern "C" fn waited(wait: *const Wait) {
    beside::waited(unsafe { &*wait });
}

extern "C" fn ended(operation: *const Operation) {
    let operation = unsafe { &*operation };
    if operation.tag >> 48 != u64::from(EPOCH.load(Relaxed) as u16) {
        return;
    }
    beside::moved(operation);
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
