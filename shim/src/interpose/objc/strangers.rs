//! Classes whose objects appear and are not hooked: each is told by name, and how many of its objects appeared.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::event::text_kind;

use super::{Class, class_getName};
use crate::{session, thread};

/// Classes that are told apart, of one kind of objects.
const MOST: usize = 4;

/// The classes of one kind of objects.
pub(super) struct Strangers([Stranger; MOST]);

struct Stranger {
    class: AtomicUsize,
    objects: AtomicU64,
}

impl Strangers {
    pub(super) const fn new() -> Strangers {
        Strangers([const { Stranger { class: AtomicUsize::new(0), objects: AtomicU64::new(0) } }; MOST])
    }

    /// Whether objects of this class appeared before; one more did then.
    pub(super) fn again(&self, class: usize, kind: &CStr, why: impl FnOnce() -> u64) -> bool {
        let known = self.0.iter().find(|known| known.class.load(Ordering::Relaxed) == class);
        known.is_some_and(|known| {
            known.count(kind, why);
            true
        })
    }

    /// The first object of a class appeared.
    pub(super) fn add(&self, class: usize, kind: &CStr, why: u64) {
        let free =
            |place: &&Stranger| place.class.compare_exchange(0, class, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        match self.0.iter().find(free) {
            Some(place) => place.count(kind, || why),
            // Without its number.
            None => tell(why, kind, name(class), 0),
        }
    }
}

impl Stranger {
    /// One more object. Each twofold number is told: rings hold what is written, and a program may end at any time.
    fn count(&self, kind: &CStr, why: impl FnOnce() -> u64) {
        let objects = self.objects.fetch_add(1, Ordering::Relaxed) + 1;
        if objects.is_power_of_two() {
            tell(why(), kind, name(self.class.load(Ordering::Relaxed)), objects);
        }
    }
}

/// The name of a class.
pub(super) fn name<'a>(class: usize) -> &'a CStr {
    // SAFETY: a class, whose name lives as long as it does.
    unsafe {
        let name = class_getName(class as Class);
        if name.is_null() { c"?" } else { CStr::from_ptr(name) }
    }
}

/// Tells of a class, as [`gputrace_abi::metal::unseen`] says.
pub(crate) fn tell(why: u64, first: &CStr, second: &CStr, objects: u64) {
    if let Some(state) = thread::state_slow() {
        let texts = [first.to_bytes(), b" ", second.to_bytes()];
        state.write_texts(text_kind::METAL_CLASS, why, objects, texts, session::now());
    }
}
