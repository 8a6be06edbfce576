//! The functions through which a program gets its devices. What the system's own libraries call does not come here.

use core::ffi::c_void;

use gputrace_abi::Class;
use gputrace_abi::event::detail;

use super::devices;
use crate::hooks::Hook;
use crate::interpose::macho::interpose;
use crate::interpose::objc::{Id, send};
use crate::record;

const FIRST: u16 = super::metal4::buffer::END;
/// Number after the last one.
pub(crate) const END: u16 = FIRST + HOOKS.len() as u16;

const fn function(name: &'static core::ffi::CStr) -> Hook {
    Hook::new(name, Class::Api, detail::NONE, false, core::ptr::null())
}

/// The hooks of this file.
pub(crate) static HOOKS: [Hook; 3] = [
    function(c"MTLCreateSystemDefaultDevice"),
    function(c"MTLCopyAllDevices"),
    function(c"MTLCopyAllDevicesWithObserver"),
];

mod metal {
    use super::*;

    #[link(name = "Metal", kind = "framework")]
    unsafe extern "C" {
        pub(super) fn MTLCreateSystemDefaultDevice() -> Id;
        pub(super) fn MTLCopyAllDevices() -> Id;
        pub(super) fn MTLCopyAllDevicesWithObserver(observer: *mut Id, handler: *mut c_void) -> Id;
    }
}

interpose! {
    /// `id<MTLDevice> MTLCreateSystemDefaultDevice(void)`
    fn MTLCreateSystemDefaultDevice() -> Id {
        // SAFETY: no arguments.
        given(0, || unsafe { metal::MTLCreateSystemDefaultDevice() }, devices::meet)
    }

    /// `NSArray<id<MTLDevice>> *MTLCopyAllDevices(void)`
    fn MTLCopyAllDevices() -> Id {
        // SAFETY: no arguments.
        given(1, || unsafe { metal::MTLCopyAllDevices() }, meet_all)
    }

    /// `NSArray<id<MTLDevice>> *MTLCopyAllDevicesWithObserver(id *observer, MTLDeviceNotificationHandler handler)`
    fn MTLCopyAllDevicesWithObserver(observer: *mut Id, handler: *mut c_void) -> Id {
        // SAFETY: the program's own arguments, passed on.
        given(2, || unsafe { metal::MTLCopyAllDevicesWithObserver(observer, handler) }, meet_all)
    }
}

fn given(nth: u16, original: impl FnOnce() -> Id, meet: impl FnOnce(Id)) -> Id {
    const HOOK: Hook = function(c"");
    record::message(
        HOOK,
        FIRST + nth,
        core::ptr::null_mut(),
        |_, _| (),
        |()| original(),
        |_, made, (), _| {
            meet(made);
            [made as u64, 0, 0, 0]
        },
    )
}

fn meet_all(devices: Id) {
    for nth in 0..send!(devices, "count"; usize) {
        devices::meet(send!(devices, "objectAtIndex:", (nth => usize); Id));
    }
}
