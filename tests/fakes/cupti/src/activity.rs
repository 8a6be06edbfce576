//! The activity functions: registration, what is enabled, flushing, and walking a buffer.

use crate::codes::*;
use crate::config::config;
use crate::delivery::{self, Complete, Request};
use crate::{beside, clock, functions, kinds, observer};
use std::ffi::{c_char, c_void};
use std::time::Duration;

/// The highest CUpti_ActivityAttribute.
const LAST_ATTRIBUTE: u32 = 8;

fn wait_ms(ms: u64) {
    if ms > 0 {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

fn enable(kind: u32) -> u32 {
    if kind == 0 || kind > kinds::LAST {
        return INVALID_KIND;
    }
    if config().refused == u64::from(kind) {
        return NOT_SUPPORTED;
    }
    if kind == kinds::UNIFIED_MEMORY_COUNTER && !beside::is_configured() {
        return INVALID_OPERATION;
    }
    if observer::is_taken() {
        return MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    if observer::attach() {
        wait_ms(config().first_enable_ms);
    }
    delivery::start_thread();
    observer::enable(kind);
    if observer::look() {
        return SUCCESS;
    }
    observer::disable(kind);
    NOT_INITIALIZED
}

fn disable(kind: u32) -> u32 {
    if kind == 0 || kind > kinds::LAST {
        return INVALID_KIND;
    }
    observer::disable(kind);
    observer::look();
    SUCCESS
}

fn flush() -> u32 {
    if !delivery::registered() {
        return INVALID_OPERATION;
    }
    let start_ns = clock::now();
    wait_ms(config().flush_ms);
    observer::look();
    delivery::deliver(true);
    // What it took is told at once, in another buffer.
    if beside::overhead(beside::FLUSH, start_ns) {
        delivery::deliver(true);
    }
    SUCCESS
}

unsafe fn next(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> u32 {
    if buffer.is_null() || record.is_null() {
        return INVALID_PARAMETER;
    }
    let size = |at: *mut u8| config().layout.size(unsafe { at.cast::<u32>().read_unaligned() });
    let last = unsafe { *record };
    let at = match last.is_null() {
        true => buffer,
        false => match size(last) {
            Some(bytes) => last.wrapping_add(bytes),
            None => return INVALID_KIND,
        },
    };
    let left = (buffer as usize + valid).saturating_sub(at as usize);
    if left < size_of::<u32>() {
        return MAX_LIMIT_REACHED;
    }
    match size(at) {
        Some(bytes) if bytes <= left => unsafe { *record = at },
        _ => return INVALID_KIND,
    }
    SUCCESS
}

unsafe fn put<T>(result: *mut T, value: T) -> u32 {
    if result.is_null() {
        return INVALID_PARAMETER;
    }
    unsafe { *result = value };
    SUCCESS
}

functions! {
    fn cuptiGetVersion(version: *mut u32) [0] { put(version, config().layout.api) }
    fn cuptiGetTimestamp(timestamp: *mut u64) [0] { put(timestamp, clock::timestamp()) }
    fn cuptiGetResultString(result: u32, text: *mut *const c_char) [0] {
        let name = match result {
            SUCCESS => c"CUPTI_SUCCESS",
            INVALID_PARAMETER => c"CUPTI_ERROR_INVALID_PARAMETER",
            INVALID_OPERATION => c"CUPTI_ERROR_INVALID_OPERATION",
            MAX_LIMIT_REACHED => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
            NOT_INITIALIZED => c"CUPTI_ERROR_NOT_INITIALIZED",
            INVALID_KIND => c"CUPTI_ERROR_INVALID_KIND",
            35 => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
            MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
            999 => c"CUPTI_ERROR_UNKNOWN",
            _ => return INVALID_PARAMETER,
        };
        put(text, name.as_ptr())
    }
    fn cuptiActivityRegisterCallbacks(request: Option<Request>, complete: Option<Complete>) [0] {
        let (Some(request), Some(complete)) = (request, complete) else { return INVALID_PARAMETER };
        if observer::is_taken() {
            return MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
        }
        delivery::register(Some((request, complete)));
        SUCCESS
    }
    fn cuptiActivityRegisterTimestampCallback(stamp: Option<clock::Stamp>) [0] {
        if stamp.is_none() {
            return INVALID_PARAMETER;
        }
        clock::register(stamp);
        SUCCESS
    }
    fn cuptiActivityEnable(kind: u32) [kind] { enable(kind) }
    fn cuptiActivityDisable(kind: u32) [kind] { disable(kind) }
    fn cuptiActivityConfigureUnifiedMemoryCounter(counters: *const u32, count: u32) [count] {
        beside::configure(counters, count)
    }
    fn cuptiActivityFlushAll(flag: u32) [flag] { flush() }
    fn cuptiActivityFlushPeriod(ms: u32) [ms] { SUCCESS }
    fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8) [0] { next(buffer, valid, record) }
    fn cuptiActivityGetNumDroppedRecords(_context: *mut c_void, _stream: u32, dropped: *mut usize) [0] {
        if dropped.is_null() { INVALID_PARAMETER } else { put(dropped, delivery::take_dropped()) }
    }
    fn cuptiActivitySetAttribute(attribute: u32, bytes: *mut usize, value: *mut c_void) [attribute] {
        if attribute > LAST_ATTRIBUTE || bytes.is_null() || value.is_null() { INVALID_PARAMETER } else { SUCCESS }
    }
}
