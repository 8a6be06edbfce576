//! Command buffers of classes that no message returned an object of: a library made their queue for itself, in a way of its own.
//!
//! Such a class stands beside a known one, on a class that has most of what both can do. There the wait for the end is hooked
//! too: who waits for a command buffer of a class that is not known has its class hooked, and told, from then on. A commit is not
//! watched so, since that of each known class would come there again and cost twice; a wait is long.

use core::ffi::CStr;

use super::command_buffer::{COMMAND_BUFFER, waited};
use super::text;
use crate::interpose::objc::{Class, Id, Message, Originals, Role, Sel, class_getSuperclass, object_getClass};
use crate::{record, tls};

static ORIGINALS: Originals = Originals::new();
static MESSAGES: [Message; 1] = [Message {
    selector: text!("waitUntilCompleted"),
    encoding: "v@:",
    trampolines: [wait::<0> as *const (), wait::<1> as *const (), wait::<2> as *const (), wait::<3> as *const ()],
    originals: &ORIGINALS,
}];

/// Classes under those of command buffers.
static BELOW: Role = Role::new(text!("MTLCommandBuffer"), &NEEDS, &MESSAGES);
static NEEDS: [&CStr; 1] = [text!("GPUStartTime")];

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

unsafe extern "C" fn wait<const SLOT: usize>(this: Id, selector: Sel) {
    let here = 0u8;
    // SAFETY: the object that is sent this message.
    let class = unsafe { object_getClass(this) };
    // A message of the program's own, and not what a layer or a class does for one.
    let inside = tls::get().is_none_or(|state| record::is_inside_a_call(state, &raw const here as usize));
    let original = || {
        // SAFETY: the method of this selector that was there before, whose signature was compared.
        let code: unsafe extern "C" fn(Id, Sel) = unsafe { core::mem::transmute(ORIGINALS.at::<SLOT>()) };
        // SAFETY: the program's own arguments, passed on.
        unsafe { code(this, selector) }
    };
    if !inside && !COMMAND_BUFFER.knows(class) && COMMAND_BUFFER.meet_class(class) {
        COMMAND_BUFFER.is_late(class);
        // Not sent anew: somebody else's hook may have passed it on to here, and would see it twice.
        return waited(this, original);
    }
    original();
}
