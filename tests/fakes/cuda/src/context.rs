//! Contexts, the stack of current ones of each thread, and their limits and flags.

use crate::codes::*;
use crate::config::config;
use crate::observe;
use crate::state::{Driver, driver, out, put, ready};
use crate::stream::Stream;
use crate::table::{Code, R, driver as functions};
use crate::timeline::wait;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(crate) struct Context {
    pub(crate) device: i32,
    pub(crate) flags: u32,
    pub(crate) primary: bool,
    pub(crate) id: u64,
    /// Counted from 1.
    pub(crate) number: u32,
    /// The legacy default stream.
    pub(crate) legacy: u64,
    /// Streams that the legacy stream waits for and that wait for it.
    pub(crate) blocking: Vec<u64>,
    pub(crate) all_streams: Vec<u64>,
    /// An error of a kernel, which every later call returns.
    pub(crate) sticky: Code,
    pub(crate) peers: Vec<u64>,
    limits: [usize; 16],
    cache: u32,
    shared: u32,
    /// Values that the runtime library keeps with a context, by its key.
    pub(crate) storage: HashMap<u64, u64>,
}

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// The contexts below the current one.
    static BELOW: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Some context is in an error state: the quiet paths must look.
pub(crate) static FAULTED: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn current_raw() -> u64 {
    CURRENT.get()
}

/// The calling thread's current context.
#[inline]
pub(crate) fn current() -> R<u64> {
    ready()?;
    match CURRENT.get() {
        0 => Err(INVALID_CONTEXT),
        context => Ok(context),
    }
}

impl Driver {
    /// The current context, alive and without an error of a kernel.
    pub(crate) fn current(&self) -> R<u64> {
        let context = current()?;
        match self.contexts.get(context) {
            None => Err(CONTEXT_IS_DESTROYED),
            Some(c) if c.sticky != 0 => Err(c.sticky),
            Some(_) => Ok(context),
        }
    }

    pub(crate) fn current_device(&self) -> R<i32> {
        let context = self.current()?;
        self.contexts.get(context).map(|c| c.device).ok_or(INVALID_CONTEXT)
    }

    pub(crate) fn sticky(&self, context: u64) -> Code {
        self.contexts.get(context).map_or(0, |c| c.sticky)
    }

    pub(crate) fn fault(&mut self, context: u64, code: Code) {
        FAULTED.store(true, Relaxed);
        if let Some(context) = self.contexts.get_mut(context) {
            context.sticky = code;
        }
    }

    pub(crate) fn new_context(&mut self, device: i32, flags: u32, primary: bool) -> u64 {
        let id = self.id();
        self.contexts_made += 1;
        let context = self.contexts.insert(Context {
            device,
            flags,
            primary,
            id,
            number: self.contexts_made,
            legacy: 0,
            blocking: Vec::new(),
            all_streams: Vec::new(),
            sticky: 0,
            peers: Vec::new(),
            limits: [1024, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            cache: 0,
            shared: 0,
            storage: HashMap::new(),
        });
        let id = self.id();
        let legacy = self.streams.insert(Stream::new(context, device, 0, 0, Some(0), id));
        if let Some(c) = self.contexts.get_mut(context) {
            c.legacy = legacy;
            c.all_streams.push(legacy);
        }
        context
    }

    /// Ends a context with all its streams and memory.
    pub(crate) fn end_context(&mut self, context: u64) -> R {
        let Some(c) = self.contexts.remove(context) else { return Err(INVALID_CONTEXT) };
        for stream in c.all_streams {
            self.streams.remove(stream);
        }
        self.thread_streams.retain(|key, _| key.1 != context);
        self.memory.release_context(context);
        Ok(())
    }

    /// (stream, sequence number) of all work so far in a context.
    pub(crate) fn outstanding(&self, context: u64) -> Vec<(u64, u64)> {
        let streams = self.contexts.get(context).map_or(&[][..], |c| &c.all_streams);
        streams
            .iter()
            .filter_map(|s| self.streams.get(*s).map(|o| (*s, o.issued, o.done)))
            .filter(|(_, issued, done)| issued > done)
            .map(|(s, issued, _)| (s, issued))
            .collect()
    }

    pub(crate) fn reached(&self, points: &[(u64, u64)]) -> bool {
        points.iter().all(|(stream, seq)| self.streams.get(*stream).is_none_or(|s| s.done >= *seq))
    }
}

/// Blocks until all work of a context so far has ended.
pub(crate) fn synchronize(context: u64) -> R {
    let mut waiting = observe::waits(observe::wait::CONTEXT);
    let mut d = driver()?;
    waiting.within(&d, context, None);
    if d.contexts.get(context).is_none() {
        return Err(INVALID_CONTEXT);
    }
    d.refuse_in_capture()?;
    d.refuse_captured_context(context)?;
    let points = d.outstanding(context);
    d = wait(d, |d| d.reached(&points));
    match d.sticky(context) {
        0 => Ok(()),
        code => Err(code),
    }
}

unsafe fn create(result: *mut u64, flags: u32, device: i32) -> R {
    let result = unsafe { out(result)? };
    let mut d = driver()?;
    if device < 0 || device >= config().devices {
        return Err(INVALID_DEVICE);
    }
    if flags & !0xff != 0 {
        return Err(INVALID_VALUE);
    }
    d.refuse_in_capture()?;
    *result = d.new_context(device, flags, false);
    push(*result);
    Ok(())
}

fn destroy(context: u64) -> R {
    let mut d = driver()?;
    match d.contexts.get(context) {
        None => return Err(INVALID_CONTEXT),
        Some(c) if c.primary => return Err(INVALID_CONTEXT),
        Some(_) => {}
    }
    let points = d.outstanding(context);
    d = wait(d, |d| d.reached(&points));
    d.end_context(context)?;
    if CURRENT.get() == context {
        pop();
    }
    Ok(())
}

fn push(context: u64) {
    let below = CURRENT.replace(context);
    BELOW.with_borrow_mut(|stack| stack.push(below));
}

fn pop() -> u64 {
    let below = BELOW.with_borrow_mut(|stack| stack.pop()).unwrap_or(0);
    CURRENT.replace(below)
}

pub(crate) fn set_current(context: u64) -> R {
    let d = driver()?;
    if context != 0 && d.contexts.get(context).is_none() {
        return Err(INVALID_CONTEXT);
    }
    CURRENT.set(context);
    Ok(())
}

unsafe fn push_current(context: u64) -> R {
    if driver()?.contexts.get(context).is_none() {
        return Err(INVALID_CONTEXT);
    }
    push(context);
    Ok(())
}

unsafe fn pop_current(result: *mut u64) -> R {
    current()?;
    let popped = pop();
    unsafe { put(result, popped) };
    Ok(())
}

functions! {
    fn cuCtxCreate(result: *mut u64, flags: u32, device: i32) = "cuCtxCreate" 2000 |_| { create(result, flags, device) }
    fn cuCtxCreate_v2(result: *mut u64, flags: u32, device: i32) = "cuCtxCreate" 3020 |_| {
        create(result, flags, device)
    }
    fn cuCtxCreate_v3(result: *mut u64, _affinity: *mut c_void, _count: i32, flags: u32, device: i32)
        = "cuCtxCreate" 11040 |_| { create(result, flags, device) }
    fn cuCtxCreate_v4(result: *mut u64, _params: *mut c_void, flags: u32, device: i32) = "cuCtxCreate" 12050 |_| {
        create(result, flags, device)
    }
    fn cuCtxDestroy(context: u64) = "cuCtxDestroy" 2000 |_| { destroy(context) }
    fn cuCtxDestroy_v2(context: u64) = "cuCtxDestroy" 4000 |_| { destroy(context) }
    fn cuCtxSetCurrent(context: u64) = "cuCtxSetCurrent" 4000 |_| { set_current(context) }
    fn cuCtxGetCurrent(result: *mut u64) = "cuCtxGetCurrent" 4000 |_| {
        ready()?;
        *out(result)? = CURRENT.get();
        Ok(())
    }
    fn cuCtxPushCurrent(context: u64) = "cuCtxPushCurrent" 2000 |_| { push_current(context) }
    fn cuCtxPushCurrent_v2(context: u64) = "cuCtxPushCurrent" 4000 |_| { push_current(context) }
    fn cuCtxPopCurrent(result: *mut u64) = "cuCtxPopCurrent" 2000 |_| { pop_current(result) }
    fn cuCtxPopCurrent_v2(result: *mut u64) = "cuCtxPopCurrent" 4000 |_| { pop_current(result) }
    fn cuCtxGetDevice(result: *mut i32) = "cuCtxGetDevice" 2000 |_| {
        *out(result)? = driver()?.current_device()?;
        Ok(())
    }
    fn cuCtxGetDevice_v2(result: *mut i32, context: u64) = "cuCtxGetDevice" 13000 |_| {
        let context = if context == 0 { current()? } else { context };
        *out(result)? = driver()?.contexts.get(context).ok_or(INVALID_CONTEXT)?.device;
        Ok(())
    }
    fn cuCtxSynchronize() = "cuCtxSynchronize" 2000 |_| { synchronize(current()?) }
    fn cuCtxSynchronize_v2(context: u64) = "cuCtxSynchronize" 13000 |_| {
        synchronize(if context == 0 { current()? } else { context })
    }
    fn cuCtxGetApiVersion(context: u64, version: *mut u32) = "cuCtxGetApiVersion" 3020 |_| {
        let context = if context == 0 { current()? } else { context };
        driver()?.contexts.get(context).ok_or(INVALID_CONTEXT)?;
        *out(version)? = 3020;
        Ok(())
    }
    fn cuCtxGetId(context: u64, id: *mut u64) = "cuCtxGetId" 12000 |_| {
        let context = if context == 0 { current()? } else { context };
        *out(id)? = driver()?.contexts.get(context).ok_or(INVALID_CONTEXT)?.id;
        Ok(())
    }
    fn cuCtxGetFlags(flags: *mut u32) = "cuCtxGetFlags" 7000 |_| {
        let d = driver()?;
        *out(flags)? = d.contexts.get(d.current()?).ok_or(INVALID_CONTEXT)?.flags;
        Ok(())
    }
    fn cuCtxSetFlags(flags: u32) = "cuCtxSetFlags" 12010 |_| {
        let mut d = driver()?;
        let context = d.current()?;
        d.contexts.get_mut(context).ok_or(INVALID_CONTEXT)?.flags = flags;
        Ok(())
    }
    fn cuCtxSetLimit(limit: u32, value: usize) = "cuCtxSetLimit" 3010 |_| {
        let mut d = driver()?;
        let context = d.current()?;
        let context = d.contexts.get_mut(context).ok_or(INVALID_CONTEXT)?;
        *context.limits.get_mut(limit as usize).ok_or(INVALID_VALUE)? = value;
        Ok(())
    }
    fn cuCtxGetLimit(value: *mut usize, limit: u32) = "cuCtxGetLimit" 3010 |_| {
        let d = driver()?;
        let context = d.contexts.get(d.current()?).ok_or(INVALID_CONTEXT)?;
        *out(value)? = *context.limits.get(limit as usize).ok_or(INVALID_VALUE)?;
        Ok(())
    }
    fn cuCtxSetCacheConfig(cache: u32) = "cuCtxSetCacheConfig" 3020 |_| {
        let mut d = driver()?;
        let context = d.current()?;
        d.contexts.get_mut(context).ok_or(INVALID_CONTEXT)?.cache = cache;
        Ok(())
    }
    fn cuCtxGetCacheConfig(cache: *mut u32) = "cuCtxGetCacheConfig" 3020 |_| {
        let d = driver()?;
        *out(cache)? = d.contexts.get(d.current()?).ok_or(INVALID_CONTEXT)?.cache;
        Ok(())
    }
    fn cuCtxSetSharedMemConfig(shared: u32) = "cuCtxSetSharedMemConfig" 4020 |_| {
        let mut d = driver()?;
        let context = d.current()?;
        d.contexts.get_mut(context).ok_or(INVALID_CONTEXT)?.shared = shared;
        Ok(())
    }
    fn cuCtxGetSharedMemConfig(shared: *mut u32) = "cuCtxGetSharedMemConfig" 4020 |_| {
        let d = driver()?;
        *out(shared)? = d.contexts.get(d.current()?).ok_or(INVALID_CONTEXT)?.shared;
        Ok(())
    }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) = "cuCtxGetStreamPriorityRange" 5050 |_| {
        driver()?.current()?;
        put(least, 0);
        put(greatest, -5);
        Ok(())
    }
    fn cuCtxResetPersistingL2Cache() = "cuCtxResetPersistingL2Cache" 11000 |_| { driver()?.current().map(|_| ()) }
    fn cuCtxEnablePeerAccess(peer: u64, _flags: u32) = "cuCtxEnablePeerAccess" 4000 |_| {
        let mut d = driver()?;
        let context = d.current()?;
        d.contexts.get(peer).ok_or(INVALID_CONTEXT)?;
        let context = d.contexts.get_mut(context).ok_or(INVALID_CONTEXT)?;
        if context.peers.contains(&peer) {
            return Err(PEER_ALREADY_ENABLED);
        }
        context.peers.push(peer);
        Ok(())
    }
    fn cuCtxDisablePeerAccess(peer: u64) = "cuCtxDisablePeerAccess" 4000 |_| {
        let mut d = driver()?;
        let context = d.current()?;
        let context = d.contexts.get_mut(context).ok_or(INVALID_CONTEXT)?;
        let at = context.peers.iter().position(|p| *p == peer).ok_or(PEER_NOT_ENABLED)?;
        context.peers.remove(at);
        Ok(())
    }
}
