//! Hooks of concrete classes, put in as objects of them appear.
//!
//! A class and the one above it may both have a method of the same name, of which one calls the other. So each hooked
//! class has a trampoline and an original of its own, and only the class of the object that appeared is touched: a method
//! that it has from above is added to it, and passes messages on to what stands above then, also where another one puts a method into a
//! class between ([`Role::follow`]). The trampoline of a class below another hooked one finds that one's trampoline
//! as its original; the guard of [`crate::record`] counts the outermost.

use core::ffi::CStr;
use core::hint::cold_path;
use core::sync::atomic::{AtomicUsize, Ordering};

use gputrace_abi::layout::note;
use gputrace_abi::metal::unseen;

use super::strangers::{self, Strangers};
use super::{
    Class, Id, Method, class_addMethod, class_getInstanceMethod, class_getSuperclass, code, encoding,
    method_getImplementation, method_getTypeEncoding, method_setImplementation, object_getClass, selector,
};
use crate::{session, sys};

/// In a class's address, which is even: a thread is putting its hooks in.
const UNFINISHED: usize = 1;

/// How long other threads wait for that one, in naps: they would have messages that nobody sees. It takes some us, unless it
/// is not let run; and it may be this very thread, where the runtime calls the program.
const NAP_NS: u64 = 100_000;
const MOST_NAPS: u32 = 1_000;

/// Classes of one role that are hooked. Apple's driver has one; layers for debugging and capturing bring theirs.
const SLOTS: usize = 4;

/// What the trampolines of a message pass it on to, by slot of the class: the method that the class had itself, or else the one that it
/// has from above, wherever that leads by then. Another one's hook may come there, and go.
pub(crate) struct Originals {
    own: [AtomicUsize; SLOTS],
    above: [AtomicUsize; SLOTS],
}

impl Originals {
    pub(crate) const fn new() -> Originals {
        Originals { own: [const { AtomicUsize::new(0) }; SLOTS], above: [const { AtomicUsize::new(0) }; SLOTS] }
    }

    /// The original for a slot; there is one before its trampoline can be reached.
    #[inline(always)]
    pub(crate) fn at<const SLOT: usize>(&self) -> *const () {
        self.of(SLOT)
    }

    #[inline(always)]
    fn of(&self, slot: usize) -> *const () {
        let at = |places: &[AtomicUsize; SLOTS]| places.get(slot).map_or(0, |place| place.load(Ordering::Relaxed));
        match at(&self.own) {
            0 => code(at(&self.above) as Method),
            own => own as *const (),
        }
    }

    /// Before the trampoline of a slot is put in: its class has the method itself.
    fn is_own(&self, slot: usize, code: *const ()) {
        self.own.get(slot).iter().for_each(|own| own.store(code as usize, Ordering::Release));
    }

    /// Whether a hooked class has the method from above.
    fn inherits(&self, slot: usize) -> bool {
        let at = |places: &[AtomicUsize; SLOTS]| places.get(slot).map_or(0, |place| place.load(Ordering::Acquire));
        at(&self.own) == 0 && at(&self.above) != 0
    }

    /// The same: its class has this method from above.
    fn is_inherited(&self, slot: usize, method: Method) {
        self.above.get(slot).iter().for_each(|above| above.store(method as usize, Ordering::Release));
    }
}

/// A message that is hooked.
pub(crate) struct Message {
    pub(crate) selector: &'static CStr,
    /// Its signature, as the runtime encodes it.
    pub(crate) encoding: &'static str,
    /// By slot.
    pub(crate) trampolines: [*const (); SLOTS],
    pub(crate) originals: &'static Originals,
}

// SAFETY: the pointers are addresses of functions.
unsafe impl Sync for Message {}

/// What objects are to Metal, whatever their class: a queue, a command buffer.
pub(crate) struct Role {
    /// Metal's word for it.
    kind: &'static CStr,
    /// Selectors without which a class is something else of the same look: `commit` is a common word.
    needs: &'static [&'static CStr],
    messages: &'static [Message],
    /// Classes that were met, with [`UNFINISHED`] as long as not all of their messages are hooked.
    classes: [AtomicUsize; SLOTS],
    /// Those that are not hooked.
    strangers: Strangers,
}

impl Role {
    pub(crate) const fn new(
        kind: &'static CStr,
        needs: &'static [&'static CStr],
        messages: &'static [Message],
    ) -> Role {
        let classes = [const { AtomicUsize::new(0) }; SLOTS];
        Role { kind, needs, messages, classes, strangers: Strangers::new() }
    }

    /// An object of this role appeared: its class is hooked, if it is a new one. Whether it was.
    #[inline(always)]
    pub(crate) fn meet(&self, object: Id) -> bool {
        if object.is_null() {
            return false;
        }
        // SAFETY: an object that the program was just given, or is using.
        let class = unsafe { object_getClass(object) } as usize;
        for known in &self.classes {
            match known.load(Ordering::Relaxed) {
                known if known == class => return false,
                0 => break,
                _ => {}
            }
        }
        cold_path();
        self.hook(class)
    }

    /// Whether a class is hooked.
    #[inline(always)]
    pub(crate) fn knows(&self, class: Class) -> bool {
        self.classes.iter().any(|known| known.load(Ordering::Relaxed) | UNFINISHED == class as usize | UNFINISHED)
    }

    /// What a message of this role calls for an object, past our own hook; null where that is not known. Of a class that was put below
    /// a hooked one, as observers of an object's values do, it is that one's.
    pub(crate) fn original(&self, object: Id, of: &Originals) -> *const () {
        let slot = |class: Class| self.classes.iter().position(|known| known.load(Ordering::Relaxed) == class as usize);
        // SAFETY: an object that a message to it is about.
        let own = unsafe { object_getClass(object) };
        // SAFETY: a class.
        let above = |class: &Class| Some(unsafe { class_getSuperclass(*class) }).filter(|class| !class.is_null());
        let slot = core::iter::successors(Some(own), above).find_map(slot);
        slot.map_or(core::ptr::null(), |slot| of.of(slot))
    }

    /// Whether a class has what this role has.
    pub(crate) fn fits(&self, class: Class) -> bool {
        // SAFETY: a class, and selectors.
        self.needs.iter().all(|need| !unsafe { class_getInstanceMethod(class, selector(need)) }.is_null())
    }

    /// Tells of an object whose class is only now met.
    pub(crate) fn is_late(&self, class: Class) {
        strangers::tell(unseen::LATE, self.kind, strangers::name(class as usize), 0);
    }

    /// A class of this role appeared.
    pub(crate) fn meet_class(&self, class: Class) -> bool {
        self.hook(class as usize)
    }

    #[cold]
    #[inline(never)]
    fn hook(&self, class: usize) -> bool {
        let why = || if self.fits(class as Class) { unseen::FULL } else { unseen::LACKS };
        if self.strangers.again(class, self.kind, why) {
            return false;
        }
        if !self.fits(class as Class) {
            session::say(note::METAL_CLASS_UNKNOWN);
            self.strangers.add(class, self.kind, unseen::LACKS);
            return false;
        }
        for (slot, place) in self.classes.iter().enumerate() {
            match place.compare_exchange(0, class | UNFINISHED, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    self.put_in(class, slot);
                    place.store(class, Ordering::Release);
                    return true;
                }
                Err(known) if known == class => return false,
                Err(known) if known == class | UNFINISHED => {
                    for _ in 0..MOST_NAPS {
                        if place.load(Ordering::Acquire) == class {
                            return false;
                        }
                        sys::nap(NAP_NS);
                    }
                    session::say(note::METAL_HOOKS_LATE);
                    return false;
                }
                Err(_) => {}
            }
        }
        session::say(note::METAL_CLASSES_FULL);
        self.strangers.add(class, self.kind, unseen::FULL);
        false
    }

    /// A class got a method: hooked ones below it may have theirs from there now, and not from further above.
    pub(crate) fn follow(&self, changed: Class) {
        for (slot, place) in self.classes.iter().enumerate() {
            let class = (place.load(Ordering::Acquire) & !UNFINISHED) as Class;
            // SAFETY: a class; there is none above the root.
            let above = |class: &Class| Some(unsafe { class_getSuperclass(*class) }).filter(|above| !above.is_null());
            if class.is_null() || !core::iter::successors(above(&class), above).any(|above| above == changed) {
                continue;
            }
            for message in self.messages.iter().filter(|message| message.originals.inherits(slot)) {
                // SAFETY: a class, whose superclass is there, and a selector.
                let method = unsafe { class_getInstanceMethod(class_getSuperclass(class), selector(message.selector)) };
                if !method.is_null() {
                    message.originals.is_inherited(slot, method);
                }
            }
        }
    }

    fn put_in(&self, class: usize, slot: usize) {
        let class = class as Id;
        for message in self.messages {
            let selector = selector(message.selector);
            let Some(ours) = message.trampolines.get(slot) else { continue };
            // SAFETY: a class and its method; the trampoline has the method's signature, which is compared, and finds its
            // original before anybody can reach it.
            unsafe {
                let method = class_getInstanceMethod(class, selector);
                if method.is_null() {
                    continue;
                }
                let types = method_getTypeEncoding(method);
                if types.is_null() || !encoding::alike(CStr::from_ptr(types).to_bytes(), message.encoding.as_bytes()) {
                    session::say(note::METAL_SIGNATURE);
                    strangers::tell(unseen::SIGNATURE, strangers::name(class as usize), message.selector, 0);
                    continue;
                }
                if class_getInstanceMethod(class_getSuperclass(class), selector) == method {
                    message.originals.is_inherited(slot, method);
                } else {
                    message.originals.is_own(slot, method_getImplementation(method));
                }
                if class_addMethod(class, selector, *ours, types) == 0 {
                    // It has its own, or got one meanwhile.
                    let before = method_setImplementation(class_getInstanceMethod(class, selector), *ours);
                    if !before.is_null() {
                        message.originals.is_own(slot, before);
                    }
                }
            }
        }
    }
}
