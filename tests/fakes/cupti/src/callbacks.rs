//! Subscribers, of whom there can be one, and the end of everything. A subscriber's callback is never called.

use crate::codes::*;
use crate::{clock, delivery, functions, observer};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Somebody subscribes.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// What a subscriber's handle points to.
static HANDLE: u8 = 0;
/// The highest CUpti_CallbackDomain.
const LAST_DOMAIN: u32 = 6;

fn is_subscriber(handle: *const c_void) -> bool {
    TAKEN.load(SeqCst) && std::ptr::eq(handle.cast(), &raw const HANDLE)
}

fn switch(subscriber: *const c_void, domain: u32) -> u32 {
    if is_subscriber(subscriber) && (1..=LAST_DOMAIN).contains(&domain) { SUCCESS } else { INVALID_PARAMETER }
}

functions! {
    fn cuptiSubscribe(handle: *mut *const c_void, _callback: *const c_void, _user: *mut c_void) [0] {
        if handle.is_null() {
            return INVALID_PARAMETER;
        }
        if observer::is_taken() || TAKEN.swap(true, SeqCst) {
            return MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
        }
        *handle = (&raw const HANDLE).cast();
        SUCCESS
    }
    fn cuptiUnsubscribe(handle: *const c_void) [0] {
        if !is_subscriber(handle) {
            return INVALID_PARAMETER;
        }
        TAKEN.store(false, SeqCst);
        SUCCESS
    }
    fn cuptiEnableCallback(on: u32, handle: *const c_void, domain: u32, _function: u32) [on] { switch(handle, domain) }
    fn cuptiEnableDomain(on: u32, handle: *const c_void, domain: u32) [on] { switch(handle, domain) }
    fn cuptiFinalize() [0] {
        observer::finalize();
        observer::look();
        delivery::forget();
        delivery::register(None);
        clock::register(None);
        TAKEN.store(false, SeqCst);
        SUCCESS
    }
}
