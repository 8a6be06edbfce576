//! Names of kernels: each goes through the ring once.

use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::event::{TEXT_MAX_BYTES, text_kind};
use gputrace_abi::text;

/// Keys of names that were told. Of our thread alone.
static TOLD: [AtomicU64; 8192] = [const { AtomicU64::new(0) }; 8192];
/// Places that a key may have; where they are all others', the name is told each time.
const PROBES: u64 = 16;

/// The key of a name; `tell` is called with what has not been told, and says whether that found room.
pub(super) fn key(name: &[u8], tell: impl FnOnce(u64, &[u8]) -> bool) -> u64 {
    let name = name.get(..TEXT_MAX_BYTES).unwrap_or(name);
    let key = text::key(text_kind::KERNEL_NAME, name);
    let places = (0..PROBES).filter_map(|probe| TOLD.get((key.wrapping_add(probe) & 8191) as usize));
    for place in places {
        match place.load(Ordering::Relaxed) {
            known if known == key => return key,
            0 => {
                if tell(key, name) {
                    place.store(key, Ordering::Relaxed);
                }
                return key;
            }
            _ => {}
        }
    }
    tell(key, name);
    key
}
