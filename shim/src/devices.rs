//! Which driver and which devices the process has: asked once, when cuInit has succeeded.
//!
//! The driver's own queries, which change nothing and need no context. While a capture is open none of our own calls is
//! made; before the first cuInit there can be none.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::device::{ATTRIBUTES, Device, HEAD_BYTES};
use gputrace_abi::event::text_kind;

use crate::{capture, session, tls};

/// Devices that are told of.
const MOST: c_int = 64;
const NAME_BYTES: usize = 96;

/// A function of the driver that is asked, found together with the hooks' originals.
struct Query {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Query {
    const fn new(name: &'static CStr) -> Query {
        Query { name, address: AtomicUsize::new(0) }
    }

    /// Calls it; whether it is there and succeeded.
    ///
    /// # Safety
    /// The function takes these arguments, integers or pointers each, and writes no more than they give it room for.
    unsafe fn ask<A, B>(&self, first: A, second: B, device: c_int) -> bool {
        let address = self.address.load(Ordering::Relaxed);
        if address == 0 {
            return false;
        }
        // SAFETY: the caller's promise; a function of fewer parameters does not look at the last ones.
        unsafe {
            let f: unsafe extern "C" fn(A, B, c_int) -> u32 = core::mem::transmute(address);
            f(first, second, device) == 0
        }
    }
}

static VERSION: Query = Query::new(c"cuDriverGetVersion");
static COUNT: Query = Query::new(c"cuDeviceGetCount");
static GET: Query = Query::new(c"cuDeviceGet");
static NAME: Query = Query::new(c"cuDeviceGetName");
static PCI: Query = Query::new(c"cuDeviceGetPCIBusId");
static UUID: [Query; 2] = [Query::new(c"cuDeviceGetUuid_v2"), Query::new(c"cuDeviceGetUuid")];
static MEMORY: Query = Query::new(c"cuDeviceTotalMem_v2");
static ATTRIBUTE: Query = Query::new(c"cuDeviceGetAttribute");

/// Finds them.
pub(crate) fn bind(find: impl Fn(&CStr) -> usize) {
    for query in [&VERSION, &COUNT, &GET, &NAME, &PCI, &MEMORY, &ATTRIBUTE].into_iter().chain(&UUID) {
        query.address.store(find(query.name), Ordering::Relaxed);
    }
}

/// cuInit has succeeded: tells the collector, once per segment.
#[cold]
#[inline(never)]
pub(crate) fn tell() {
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let Some(state) = tls::get().filter(|s| s.row().is_some()) else { return };
    let segment = state.header().started.first().map_or(0, |ticks| ticks.load(Ordering::Relaxed));
    if capture::any() || TOLD.swap(segment, Ordering::Relaxed) == segment {
        return;
    }
    let (mut version, mut count): (c_int, c_int) = (0, 0);
    // SAFETY: cuDriverGetVersion and cuDeviceGetCount write one int.
    unsafe {
        if VERSION.ask(&mut version, 0usize, 0) {
            state.header().driver_version.store(version as u32, Ordering::Relaxed);
        }
        COUNT.ask(&mut count, 0usize, 0);
    }
    for ordinal in 0..count.min(MOST) {
        let mut text = [0u8; HEAD_BYTES + NAME_BYTES];
        if let Some(length) = describe(ordinal, &mut text) {
            let text = text.get(..length).unwrap_or(&[]);
            state.write_text(text_kind::DEVICE, ordinal as u64, 0, text, session::now());
        }
    }
}

/// Writes what is known of a device; returns the bytes written.
fn describe(ordinal: c_int, text: &mut [u8; HEAD_BYTES + NAME_BYTES]) -> Option<usize> {
    let mut device: c_int = 0;
    let (mut about, mut name) = (Device::default(), [0u8; NAME_BYTES]);
    let mut bytes = 0usize;
    // SAFETY: cuDeviceGet(int *, int) writes one int; cuDeviceGetName and cuDeviceGetPCIBusId (char *, int, CUdevice)
    // write as many bytes as they are told there are; cuDeviceGetUuid (CUuuid *, CUdevice) writes 16, cuDeviceTotalMem
    // (size_t *, CUdevice) one word, and cuDeviceGetAttribute (int *, attribute, CUdevice) one int.
    unsafe {
        if !GET.ask(&mut device, ordinal, 0) {
            return None;
        }
        NAME.ask(name.as_mut_ptr().cast::<c_char>(), NAME_BYTES as c_int, device);
        PCI.ask(about.pci.as_mut_ptr().cast::<c_char>(), about.pci.len() as c_int, device);
        let _ = UUID.iter().any(|query| query.ask(&mut about.uuid, device, 0));
        MEMORY.ask(&mut bytes, device, 0);
        for (number, value) in ATTRIBUTES.iter().zip(&mut about.attributes) {
            ATTRIBUTE.ask(value as *mut c_int, *number, device);
        }
    }
    about.memory_bytes = bytes as u64;
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let parts = about.to_bytes().into_iter().chain(name.into_iter().take(length));
    text.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
    Some(HEAD_BYTES + length)
}
