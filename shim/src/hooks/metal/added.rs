//! Methods that the program, or another tool in it, puts into classes while it runs: a message that a hooked class has from above goes
//! to where it would go without the hook. What the system's own libraries put there does not come here.

use core::ffi::c_char;

use super::ROLES;
use crate::interpose::macho::interpose;
use crate::interpose::objc::{self, Class, Sel};

interpose! {
    /// `BOOL class_addMethod(Class cls, SEL name, IMP imp, const char *types)`
    fn class_addMethod(class: Class, selector: Sel, code: *const (), types: *const c_char) -> u8 {
        // SAFETY: the program's own arguments, passed on.
        let added = unsafe { objc::class_addMethod(class, selector, code, types) };
        if added != 0 {
            changed(class);
        }
        added
    }

    /// `IMP class_replaceMethod(Class cls, SEL name, IMP imp, const char *types)`, which adds one that is not there.
    fn class_replaceMethod(class: Class, selector: Sel, code: *const (), types: *const c_char) -> *const () {
        // SAFETY: the program's own arguments, passed on.
        let before = unsafe { objc::class_replaceMethod(class, selector, code, types) };
        changed(class);
        before
    }
}

fn changed(class: Class) {
    ROLES.iter().for_each(|role| role.follow(class));
}
