//! Our thread's search for CUPTI's library: a program may load it, or CUDA's others, after cuInit.

use core::ptr;
use core::sync::atomic::Ordering;

use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::state;

use super::engine::pause;
use super::library::{self, Cupti};
use super::path::Path;
use super::teller::Teller;
use super::{BOUND, CUPTI, WANTED, cupti_is_usable, ready};
use crate::session;

const SEARCHES: u32 = 60;
const SEARCH_EVERY_NS: u64 = 500_000_000;

/// Finds the library, or says that there is none.
pub(super) fn find(teller: &mut Teller) -> Option<Cupti> {
    let mut path = Path::new();
    for search in 0..SEARCHES {
        let version = session::present().map_or(0, |view| view.header().driver_version.load(Ordering::Relaxed));
        // SAFETY: written by the constructor only.
        let wanted = unsafe { &*WANTED.0.get() };
        if let Some(cupti) = library::find(wanted, version, &mut path) {
            let mut version = 0;
            // SAFETY: it writes one number.
            unsafe { (cupti.version)(&raw mut version) };
            teller.tell(text_kind::GPU_TIME, version.into(), state::LIBRARY, path.bytes());
            cupti_is_usable(true);
            // SAFETY: nobody reads it before the address is stored.
            unsafe {
                *BOUND.0.get() = Some(cupti);
                if let Some(bound) = (*BOUND.0.get()).as_ref() {
                    CUPTI.store(ptr::from_ref(bound).cast_mut(), Ordering::Release);
                }
            }
            return Some(cupti);
        }
        if search == 0 {
            if path.is_empty() {
                teller.tell(text_kind::GPU_TIME, 0, state::NO_LIBRARY, wanted.bytes());
            } else {
                teller.tell(text_kind::GPU_TIME, 0, state::UNUSABLE, path.bytes());
            }
            cupti_is_usable(false);
            ready();
        }
        if !wanted.is_empty() || !pause(SEARCH_EVERY_NS) {
            break;
        }
    }
    None
}
