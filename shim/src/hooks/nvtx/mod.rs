//! NVTX: the ranges that the program, PyTorch, NCCL or anybody else names.
//!
//! NVTX is a header. Each library that includes it has a table of function pointers of its own; at its first call it
//! loads the library that NVTX_INJECTION64_PATH names and lets that fill the table. The launcher names the shim there,
//! by the same path as in LD_PRELOAD, so the loader gives the copy that is in the process already. An injection that
//! was set before fills each table first, and our callbacks call its own ([`previous`]).
//!
//! [`callbacks`] is the list. A push and a pop are two events with one read of the clock each; the collector pairs
//! them. Names travel once ([`texts`]). What names resources (streams, devices, synchronisation objects) and what
//! extensions do is left to the previous injection, or to nobody.

mod attributes;
mod callbacks;
mod previous;
mod texts;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use gputrace_abi::layout::route;

use crate::interpose::{driver, elf};
use crate::session;
pub(crate) use callbacks::EVENTS;
pub(crate) use previous::remember as remember_previous;

/// Number of the first callback that makes events: after the allocation functions.
pub(crate) const BASE: u16 = super::cuda::END + super::alloc::LIST.len() as u16;

/// One of our callbacks.
#[derive(Clone, Copy)]
pub(crate) struct Callback {
    pub(crate) name: &'static str,
    /// Class-specific detail of its events; none for those that only name things.
    pub(crate) detail: u8,
    /// Module and number of its slot in a client's tables.
    slot: Slot,
    function: *const (),
}

// SAFETY: the only pointer is the address of a function.
unsafe impl Sync for Callback {}

/// Which function pointer of a client: `NVTX_CB_MODULE_*` and `NVTX_CBID_*`.
#[derive(Clone, Copy)]
struct Slot {
    module: u32,
    number: u32,
}

/// `NVTX_CB_MODULE_CORE`: functions of the default domain.
const CORE: u32 = 1;
/// `NVTX_CB_MODULE_CORE2`: functions that name their domain.
const CORE2: u32 = 5;
/// Both modules have fewer slots.
const SLOTS: usize = 16;

impl Slot {
    /// Its place among the slots of both modules.
    const fn place(self) -> usize {
        if self.module == CORE { self.number as usize } else { SLOTS + self.number as usize }
    }
}

/// `NvtxGetExportTableFunc_t`.
type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct CallbackTables {
    bytes: usize,
    get: Option<unsafe extern "C" fn(u32, *mut *const *const AtomicUsize, *mut u32) -> c_int>,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    bytes: usize,
    version: u32,
    reserved: u32,
    set_injection_version: Option<unsafe extern "C" fn(u32)>,
}

const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;
/// The interface that this is written to.
const NVTX_VERSION: u32 = 3;

/// What a copy of NVTX calls at its first use, to have its tables filled. 0: nobody wants its calls.
///
/// # Safety
/// NVTX's own contract: the function returns tables that live as long as the client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(tables: Option<GetExportTable>) -> c_int {
    let Some(tables) = tables else { return 0 };
    // A copy that was not preloaded, because the process has another one: that one records.
    let first = elf::in_library(c"libgputrace.so", c"InitializeInjectionNvtx2");
    if first != 0 && !session::was_preloaded() {
        // SAFETY: the function of this name in another copy of this library.
        let first: unsafe extern "C" fn(Option<GetExportTable>) -> c_int = unsafe { core::mem::transmute(first) };
        // SAFETY: the client's own argument, passed on.
        return unsafe { first(Some(tables)) };
    }
    let Some(client) = Client::of(tables) else { return 0 };
    let before = client.pointers();
    let chained = previous::attach(tables);
    let ours = session::live().is_some() && client.install(&before);
    if ours && !chained {
        client.say_version();
    }
    (ours || chained) as c_int
}

/// The entry of the libraries that came before the header: the same tables, of which some are missing.
///
/// # Safety
/// As for [`InitializeInjectionNvtx2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx(tables: Option<GetExportTable>) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { InitializeInjectionNvtx2(tables) }
}

/// Extensions (payload schemas, counters, memory) are the previous injection's, or nobody's. They are not refused: a
/// client that asks whether a domain is enabled would hear no, and the Python package then makes no ranges at all.
///
/// # Safety
/// NVTX's own contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(module: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let wanted = unsafe { previous::attach_extension(module) };
    (wanted != 0 || session::live().is_some()) as c_int
}

/// A library with a copy of NVTX.
struct Client {
    get: GetExportTable,
    tables: unsafe extern "C" fn(u32, *mut *const *const AtomicUsize, *mut u32) -> c_int,
}

/// What stands in each slot; 0 where there is none.
type Pointers = [usize; 2 * SLOTS];

impl Client {
    fn of(get: GetExportTable) -> Option<Client> {
        // SAFETY: the client's own function; it returns null or a table that lives as long as the client.
        let callbacks = unsafe { get(CALLBACKS).cast::<CallbackTables>().as_ref()? };
        let tables = callbacks.get.filter(|_| callbacks.bytes >= size_of::<CallbackTables>())?;
        Some(Client { get, tables })
    }

    /// The client's function pointer for a slot, if its version has it. Other threads of the client wait until we are
    /// done, and read it ever after.
    fn pointer(&self, slot: Slot) -> Option<&'static AtomicUsize> {
        let (mut table, mut slots) = (core::ptr::null(), 0);
        // SAFETY: the client writes the address of its table and the number of its slots to our locals.
        if unsafe { (self.tables)(slot.module, &mut table, &mut slots) } == 0 || table.is_null() || slot.number >= slots
        {
            return None;
        }
        // SAFETY: the table has so many entries, each null or the address of a function pointer of the client.
        unsafe { (*table.add(slot.number as usize)).as_ref() }
    }

    fn pointers(&self) -> Pointers {
        let mut pointers = [0; 2 * SLOTS];
        for callback in callbacks::all() {
            if let (Some(pointer), Some(place)) = (self.pointer(callback.slot), pointers.get_mut(callback.slot.place()))
            {
                *place = pointer.load(Ordering::Relaxed);
            }
        }
        pointers
    }

    /// Puts our callbacks into the client's tables, over those that the previous injection has put there meanwhile.
    fn install(&self, before: &Pointers) -> bool {
        let mut any = false;
        for (n, callback) in callbacks::all().enumerate() {
            let Some(pointer) = self.pointer(callback.slot) else { continue };
            let now = pointer.load(Ordering::Relaxed);
            let unchanged = before.get(callback.slot.place()) == Some(&now);
            // All clients share our callbacks, which know one previous function each.
            if !previous::knows(callback.slot, if unchanged { 0 } else { now }) {
                continue;
            }
            pointer.store(callback.function as usize, Ordering::Release);
            any = true;
            if n < EVENTS.len() {
                driver::note_route(BASE + n as u16, route::INJECTION);
            }
        }
        any
    }

    fn say_version(&self) {
        // SAFETY: as in `of`.
        let info = unsafe { (self.get)(VERSION_INFO).cast::<VersionInfo>().as_ref() };
        if let Some(info) = info.filter(|info| info.bytes >= size_of::<VersionInfo>())
            && let Some(set) = info.set_injection_version
        {
            // SAFETY: the client's own function.
            unsafe { set(NVTX_VERSION) };
        }
    }
}
