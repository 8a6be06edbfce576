//! Names of ranges, domains and categories: each is sent once, and a key stands for it in the events.
//!
//! The key is a hash of the text itself, so a forked child, and a handle that its parent made, need nothing sent again.
//! A table remembers which texts were sent; a program with more names than fit sends some of them again.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::event::{TEXT_MAX_BYTES, text_kind};
use gputrace_abi::layout::note;
use gputrace_abi::text;

use crate::{ranges, session, thread};

/// Keys of texts that were sent: buckets of one cache line.
static SENT: [Bucket; 1024] = [const { Bucket([const { AtomicU64::new(0) }; 8]) }; 1024];

#[repr(align(64))]
struct Bucket([AtomicU64; 8]);

/// Bytes of UTF-8 that wide characters are turned into: on the stack of the program's thread, so not many.
const WIDE_BYTES: usize = 1024;

/// A text as a function of NVTX gets it: null, or characters ended by a 0.
pub(super) trait Text: Copy {
    /// Does something with its UTF-8, cut where it is too long; none for null.
    fn with<T>(self, work: impl FnOnce(&[u8]) -> T) -> Option<T>;
}

impl Text for *const c_char {
    #[inline(always)]
    fn with<T>(self, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.is_null() {
            return None;
        }
        // SAFETY: the program's own argument of a function that takes a C string.
        let text = unsafe { CStr::from_ptr(self) }.to_bytes();
        Some(work(text.get(..TEXT_MAX_BYTES).unwrap_or(text)))
    }
}

impl Text for *const u32 {
    #[inline(never)]
    fn with<T>(self, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let mut bytes = [0; WIDE_BYTES];
        let (mut length, mut at) = (0, self);
        if self.is_null() {
            return None;
        }
        // SAFETY: the program's own argument of a function that takes wide characters ended by a 0, and none before
        // this one was 0.
        while let wide @ 1.. = unsafe { at.read() } {
            let mut buffer = [0; 4];
            let character = char::from_u32(wide).unwrap_or(char::REPLACEMENT_CHARACTER);
            let utf8 = character.encode_utf8(&mut buffer).as_bytes();
            let Some(place) = bytes.get_mut(length..length + utf8.len()) else { break };
            place.copy_from_slice(utf8);
            length += utf8.len();
            // SAFETY: as above.
            at = unsafe { at.add(1) };
        }
        bytes.get(..length).map(work)
    }
}

/// The key of a text, which is sent if it has not been; 0 for null.
#[inline(always)]
pub(super) fn key(kind: u64, text: impl Text) -> u64 {
    let key = |text: &[u8]| {
        let key = text::key(kind, text);
        if let Some(Bucket(places)) = SENT.get((key >> 54) as usize)
            && !places.iter().any(|place| place.load(Ordering::Relaxed) == key)
        {
            send(kind, key, text, places);
        }
        key
    };
    text.with(key).unwrap_or(0)
}

/// Whether recording is switched by ranges of this name.
#[inline(always)]
pub(super) fn switches(text: impl Text) -> bool {
    ranges::is_on() && text.with(ranges::is_asked) == Some(true)
}

/// The key of a text that the program registers.
pub(super) fn register(text: impl Text) -> u64 {
    let key = key(text_kind::RANGE, text);
    if switches(text) {
        ranges::register(key);
    }
    key
}

/// Sends a text that is about a key and a number.
pub(super) fn say(kind: u64, key: u64, number: u64, text: impl Text) {
    text.with(|text| write(kind, key, number, text));
}

#[cold]
#[inline(never)]
fn send(kind: u64, key: u64, text: &[u8], places: &[AtomicU64; 8]) {
    if !write(kind, key, 0, text) {
        return;
    }
    let free = |place: &&AtomicU64| place.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if places.iter().find(free).is_none()
        && let Some(place) = places.get(key as usize & 7)
    {
        place.store(key, Ordering::Relaxed);
    }
}

/// Sends a text that is about a key and a number; false when there was no room.
fn write(kind: u64, key: u64, number: u64, text: &[u8]) -> bool {
    let Some(state) = thread::state_slow() else { return false };
    let written = state.write_text(kind, key, number, text, session::now());
    if !written {
        state.header().notes.fetch_or(note::RANGE_NAMES_LOST, Ordering::Relaxed);
    }
    written
}
