//! Command buffers of classes that no message returned an object of: a library made their queue for itself, or its device.
//!
//! Such a class stands on one that has most of what command buffers can do: Metal's own, or one under a known class. There the
//! commit and the wait for the end are hooked too: the first command buffer of a class that is not known has its class hooked and
//! told, and its queue's and its device's. Those of known classes come there as well, as what their own methods call, and pass
//! without more than a look at their class.

use core::ffi::CStr;

use super::command_buffer::{COMMAND_BUFFER, committed, waited};
use super::queue::QUEUE;
use super::{devices, text};
use crate::interpose::objc::{
    Class, Id, Message, Originals, Role, Sel, class_getSuperclass, objc_getClass, object_getClass, send,
};
use crate::{record, thread};

static COMMITS: Originals = Originals::new();
static WAITS: Originals = Originals::new();
static MESSAGES: [Message; 2] = [
    Message {
        selector: text!("commit"),
        encoding: "v@:",
        trampolines: [
            commit::<0> as *const (),
            commit::<1> as *const (),
            commit::<2> as *const (),
            commit::<3> as *const (),
        ],
        originals: &COMMITS,
    },
    Message {
        selector: text!("waitUntilCompleted"),
        encoding: "v@:",
        trampolines: [wait::<0> as *const (), wait::<1> as *const (), wait::<2> as *const (), wait::<3> as *const ()],
        originals: &WAITS,
    },
];

/// Classes under those of command buffers.
pub(super) static BELOW: Role = Role::new(text!("MTLCommandBuffer"), &NEEDS, &MESSAGES);
static NEEDS: [&CStr; 1] = [text!("GPUStartTime")];

/// The process began: Metal's own class is watched, if it has that name, so that work is seen whose device was never given to the
/// program.
pub(crate) fn watch_metals_own() {
    // SAFETY: a C string.
    let class = unsafe { objc_getClass(c"_MTLCommandBuffer".as_ptr()) };
    if !class.is_null() && thread::state_slow().is_some() && BELOW.fits(class) {
        BELOW.meet_class(class);
    }
}

/// The class of a command buffer was hooked: what stands under it is watched.
#[cold]
#[inline(never)]
pub(super) fn watch(known: Id) {
    // SAFETY: an object that the program was just given, and its classes.
    let own = unsafe { object_getClass(known) };
    // SAFETY: a class; there is none above the root.
    let above = |class: &Class| Some(unsafe { class_getSuperclass(*class) }).filter(|class| !class.is_null());
    let last = core::iter::successors(above(&own), above).take_while(|class| COMMAND_BUFFER.fits(*class)).last();
    if let Some(class) = last.filter(|class| !COMMAND_BUFFER.knows(*class) && !BELOW.knows(*class)) {
        BELOW.meet_class(class);
    }
}

/// Whether the message is the program's own, and not what a layer or a class does for one, and the first to an object of its class.
fn is_first(this: Id, class: Class) -> bool {
    let here = 0u8;
    let inside = thread::state_slow().is_none_or(|state| record::is_inside_a_call(state, &raw const here as usize));
    if inside || !COMMAND_BUFFER.meet_class(class) {
        return false;
    }
    COMMAND_BUFFER.is_late(class);
    QUEUE.meet(send!(this, "commandQueue"; Id));
    devices::meet_late(send!(this, "device"; Id));
    true
}

type Code = unsafe extern "C" fn(Id, Sel);

/// The class of who is sent a message, if it is not known.
#[inline(always)]
fn stranger(this: Id) -> Option<Class> {
    // SAFETY: the object that is sent this message.
    let class = unsafe { object_getClass(this) };
    (!COMMAND_BUFFER.knows(class)).then_some(class)
}

/// A message to an object of a class that is not known: recorded by `record`, if it is the first one. Not sent anew: somebody else's
/// hook may have passed it on to here, and would see it twice.
#[cold]
#[inline(never)]
fn met(this: Id, selector: Sel, class: Class, code: Code, record: fn(Id, Original)) {
    let original = Original { code, this, selector };
    if is_first(this, class) { record(this, original) } else { original.call() }
}

/// What a message is passed on to.
pub(super) struct Original {
    code: Code,
    this: Id,
    selector: Sel,
}

impl Original {
    /// Passes it on.
    pub(super) fn call(self) {
        // SAFETY: the method of this selector that was there before, whose signature was compared, and the program's own arguments.
        unsafe { (self.code)(self.this, self.selector) }
    }
}

unsafe extern "C" fn commit<const SLOT: usize>(this: Id, selector: Sel) {
    // SAFETY: the method of this selector that was there before, whose signature was compared.
    let code: Code = unsafe { core::mem::transmute(COMMITS.at::<SLOT>()) };
    match stranger(this) {
        Some(class) => met(this, selector, class, code, committed),
        // SAFETY: the program's own arguments, passed on.
        None => unsafe { code(this, selector) },
    }
}

unsafe extern "C" fn wait<const SLOT: usize>(this: Id, selector: Sel) {
    // SAFETY: the method of this selector that was there before, whose signature was compared.
    let code: Code = unsafe { core::mem::transmute(WAITS.at::<SLOT>()) };
    match stranger(this) {
        Some(class) => met(this, selector, class, code, waited),
        // SAFETY: the program's own arguments, passed on.
        None => unsafe { code(this, selector) },
    }
}
