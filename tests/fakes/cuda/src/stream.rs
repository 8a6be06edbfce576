//! Streams: creation, waiting, and how the legacy default stream orders itself among the others.

use crate::codes::*;
use crate::observe;
use crate::state::{Driver, driver, out, put};
use crate::table::{Default, R, driver as functions};
use crate::timeline::{Op, PENDING, wait};
use crate::work::{HostFn, StreamCallback, Work};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use std::time::Duration;

pub(crate) struct Stream {
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) id: u64,
    /// What a client calls it: 0 or 2 for the default streams.
    pub(crate) raw: Option<u64>,
    pub(crate) destroyed: bool,
    pub(crate) ops: VecDeque<Op>,
    pub(crate) running: bool,
    pub(crate) started_ns: u64,
    pub(crate) last_end_ns: u64,
    /// Sequence numbers of the last operation that was issued and of the last that ended.
    pub(crate) issued: u64,
    pub(crate) done: u64,
    /// Streams that wait for this one.
    pub(crate) blocks: Vec<u64>,
    /// The capture it takes part in, and the nodes that the next one depends on.
    pub(crate) capture: Option<u64>,
    pub(crate) tips: Vec<usize>,
    pub(crate) attributes: [[u64; 8]; 8],
}

const NON_BLOCKING: u32 = 1;

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
    /// The last (context, stream) that this thread's per-thread stream was looked up for.
    static MINE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// A number for the calling thread.
pub(crate) fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if THREAD.get() == 0 {
        THREAD.set(NEXT.fetch_add(1, Relaxed));
    }
    THREAD.get()
}

/// What became of an operation that was handed to a stream.
pub(crate) enum Issued {
    /// In the stream, at this sequence number.
    At(u64, u64),
    /// It became a node of a graph.
    Captured,
}

impl Stream {
    pub(crate) fn new(context: u64, device: i32, flags: u32, priority: i32, raw: Option<u64>, id: u64) -> Stream {
        Stream {
            context,
            device: device as usize,
            flags,
            priority,
            id,
            raw,
            destroyed: false,
            ops: VecDeque::new(),
            running: false,
            started_ns: 0,
            last_end_ns: 0,
            issued: 0,
            done: 0,
            blocks: Vec::new(),
            capture: None,
            tips: Vec::new(),
            attributes: [[0; 8]; 8],
        }
    }

    fn blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0 && self.raw != Some(0)
    }
}

impl Driver {
    /// The stream that a client's handle means.
    pub(crate) fn stream(&mut self, raw: u64, default: Default) -> R<u64> {
        let raw = match raw {
            0 if default == Default::PerThread => 2,
            0 => 1,
            raw => raw,
        };
        match raw {
            1 => {
                let context = self.current()?;
                Ok(self.contexts.get(context).ok_or(INVALID_CONTEXT)?.legacy)
            }
            2 => self.thread_stream(),
            _ => match self.streams.get(raw) {
                Some(s) if !s.destroyed => match self.sticky(s.context) {
                    0 => Ok(raw),
                    code => Err(code),
                },
                _ => Err(INVALID_HANDLE),
            },
        }
    }

    fn thread_stream(&mut self) -> R<u64> {
        let context = self.current()?;
        if MINE.get().0 == context && self.streams.get(MINE.get().1).is_some() {
            return Ok(MINE.get().1);
        }
        let key = (thread(), context);
        let stream = match self.thread_streams.get(&key) {
            Some(stream) => *stream,
            None => {
                let stream = self.new_stream(context, 0, 0, Some(2))?;
                self.thread_streams.insert(key, stream);
                stream
            }
        };
        MINE.set((context, stream));
        Ok(stream)
    }

    fn new_stream(&mut self, context: u64, flags: u32, priority: i32, raw: Option<u64>) -> R<u64> {
        let device = self.contexts.get(context).ok_or(INVALID_CONTEXT)?.device;
        let id = self.id();
        let stream = self.streams.insert(Stream::new(context, device, flags, priority.clamp(-5, 0), raw, id));
        let context = self.contexts.get_mut(context).ok_or(INVALID_CONTEXT)?;
        context.all_streams.push(stream);
        if flags & NON_BLOCKING == 0 {
            context.blocking.push(stream);
        }
        Ok(stream)
    }

    /// Hands work to a stream: into the device's time, or into the graph that the stream is captured into.
    pub(crate) fn submit(&mut self, stream: u64, work: Work) -> R<Issued> {
        self.submit_after(stream, work, Vec::new())
    }

    pub(crate) fn submit_after(&mut self, stream: u64, work: Work, mut after: Vec<(u64, u64)>) -> R<Issued> {
        let s = self.streams.get(stream).ok_or(INVALID_HANDLE)?;
        if s.capture.is_some() {
            self.capture_work(stream, work)?;
            return Ok(Issued::Captured);
        }
        let (context, blocking, legacy) = (s.context, s.blocking(), s.raw == Some(0));
        if legacy {
            self.refuse_captured_blocking(context)?;
        }
        if PENDING.load(Relaxed) > 0 && (legacy || blocking) {
            let c = self.contexts.get(context).ok_or(INVALID_CONTEXT)?;
            let others = if legacy { &c.blocking[..] } else { std::slice::from_ref(&c.legacy) };
            let open = others.iter().filter_map(|o| self.streams.get(*o).map(|s| (*o, s.issued, s.done)));
            after.extend(open.filter(|(_, issued, done)| issued > done).map(|(o, issued, _)| (o, issued)));
        }
        Ok(Issued::At(stream, self.issue(stream, work, after)))
    }

    fn destroy_stream(&mut self, stream: u64) -> R {
        let s = self.streams.get_mut(stream).filter(|s| !s.destroyed && s.raw.is_none()).ok_or(INVALID_HANDLE)?;
        s.destroyed = true;
        let (context, idle, capture) = (s.context, s.ops.is_empty(), s.capture);
        if let Some(capture) = capture {
            self.invalidate(capture);
        }
        if let Some(c) = self.contexts.get_mut(context) {
            c.blocking.retain(|other| *other != stream);
            if idle {
                c.all_streams.retain(|other| *other != stream);
            }
        }
        if idle {
            self.streams.remove(stream);
        }
        Ok(())
    }
}

unsafe fn create(result: *mut u64, flags: u32, priority: i32) -> R {
    let result = unsafe { out(result)? };
    let mut d = driver()?;
    let context = d.current()?;
    if flags > NON_BLOCKING {
        return Err(INVALID_VALUE);
    }
    *result = d.new_stream(context, flags, priority, None)?;
    Ok(())
}

/// Writes a number in the order of a stream.
fn write_value(raw: u64, default: Default, address: u64, value: u64, bytes: usize) -> R {
    let mut d = driver()?;
    let stream = d.stream(raw, default)?;
    if !d.memory.holds(address, bytes as u64) {
        return Err(INVALID_VALUE);
    }
    d.submit(stream, Work::Write { address, value, bytes }).map(|_| ())
}

/// A word of memory, and what it must be at least.
struct Awaited {
    address: u64,
    value: u32,
}

/// Waits for one on the callback thread, as the device's front end would.
unsafe extern "C" fn await_value(data: *mut c_void) {
    let Awaited { address, value } = *unsafe { Box::from_raw(data.cast::<Awaited>()) };
    let word = unsafe { &*(address as *const AtomicU32) };
    while (word.load(Acquire).wrapping_sub(value) as i32) < 0 {
        std::thread::sleep(Duration::from_micros(1));
    }
}

/// Blocks until an operation has ended; a captured one has nothing to wait for.
pub(crate) fn wait_for(d: crate::state::Guard, issued: Issued) -> R {
    let Issued::At(stream, seq) = issued else { return Ok(()) };
    let context = d.streams.get(stream).map_or(0, |s| s.context);
    let d = wait(d, |d| d.reached(&[(stream, seq)]));
    match d.sticky(context) {
        0 => Ok(()),
        code => Err(code),
    }
}

functions! {
    fn cuStreamCreate(result: *mut u64, flags: u32) = "cuStreamCreate" 2000 |_| { create(result, flags, 0) }
    fn cuStreamCreateWithPriority(result: *mut u64, flags: u32, priority: i32)
        = "cuStreamCreateWithPriority" 5050 |_| { create(result, flags, priority) }
    fn cuStreamDestroy(stream: u64) = "cuStreamDestroy" 2000 |_| { driver()?.destroy_stream(stream) }
    fn cuStreamDestroy_v2(stream: u64) = "cuStreamDestroy" 4000 |_| { driver()?.destroy_stream(stream) }
    fn cuStreamSynchronize(stream: u64)
        = "cuStreamSynchronize" 2000 + "cuStreamSynchronize_ptsz" 7000 |default| {
        let mut waiting = observe::waits(observe::wait::STREAM);
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        d.refuse_on_captured(stream)?;
        d.refuse_in_capture()?;
        let s = d.streams.get(stream).ok_or(INVALID_HANDLE)?;
        waiting.within(&d, s.context, Some(stream));
        let (context, legacy, mut points) = (s.context, s.raw == Some(0), vec![(stream, s.issued)]);
        if legacy {
            // Waiting for the legacy stream waits for what it would wait for.
            d.refuse_captured_blocking(context)?;
            let blocking = d.contexts.get(context).map_or(Vec::new(), |c| c.blocking.clone());
            points.extend(d.outstanding(context).into_iter().filter(|(s, _)| blocking.contains(s)));
        }
        let d = wait(d, |d| d.reached(&points));
        match d.sticky(context) {
            0 => Ok(()),
            code => Err(code),
        }
    }
    fn cuStreamQuery(stream: u64) = "cuStreamQuery" 2000 + "cuStreamQuery_ptsz" 7000 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        d.refuse_on_captured(stream)?;
        d.refuse_in_capture()?;
        d.advance(crate::timeline::now());
        let s = d.streams.get(stream).ok_or(INVALID_HANDLE)?;
        match d.sticky(s.context) {
            0 if s.done < s.issued => Err(NOT_READY),
            0 => Ok(()),
            code => Err(code),
        }
    }
    fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32)
        = "cuStreamWaitEvent" 3020 + "cuStreamWaitEvent_ptsz" 7000 |default| {
        let mut waiting = observe::waits(observe::wait::STREAM_EVENT);
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        waiting.within(&d, d.streams.get(stream).map_or(0, |s| s.context), Some(stream));
        crate::event::wait_in_stream(&mut d, stream, event)
    }
    fn cuStreamAddCallback(stream: u64, callback: Option<StreamCallback>, data: *mut c_void, flags: u32)
        = "cuStreamAddCallback" 5000 + "cuStreamAddCallback_ptsz" 7000 |default| {
        let callback = callback.ok_or(INVALID_VALUE)?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let mut d = driver()?;
        let raw = stream;
        let stream = d.stream(stream, default)?;
        d.refuse_on_captured(stream)?;
        d.submit(stream, Work::Callback(callback, raw, data as usize)).map(|_| ())
    }
    fn cuLaunchHostFunc(stream: u64, function: Option<HostFn>, data: *mut c_void)
        = "cuLaunchHostFunc" 10000 + "cuLaunchHostFunc_ptsz" 10000 |default| {
        let function = function.ok_or(INVALID_VALUE)?;
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        d.submit(stream, Work::Host(function, data as usize)).map(|_| ())
    }
    fn cuLaunchHostFunc_v2(stream: u64, function: Option<HostFn>, data: *mut c_void, _sync_mode: u32)
        = "cuLaunchHostFunc" 13010 + "cuLaunchHostFunc_v2_ptsz" 13010 |default| {
        let function = function.ok_or(INVALID_VALUE)?;
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        d.submit(stream, Work::Host(function, data as usize)).map(|_| ())
    }
    fn cuStreamGetCtx(stream: u64, context: *mut u64) = "cuStreamGetCtx" 9020 + "cuStreamGetCtx_ptsz" 9020 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        *out(context)? = d.streams.get(stream).ok_or(INVALID_HANDLE)?.context;
        Ok(())
    }
    fn cuStreamGetCtx_v2(stream: u64, context: *mut u64, green: *mut u64)
        = "cuStreamGetCtx" 12050 + "cuStreamGetCtx_v2_ptsz" 12050 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        *out(context)? = d.streams.get(stream).ok_or(INVALID_HANDLE)?.context;
        put(green, 0);
        Ok(())
    }
    fn cuStreamGetDevice(stream: u64, device: *mut i32)
        = "cuStreamGetDevice" 12080 + "cuStreamGetDevice_ptsz" 12080 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        *out(device)? = d.streams.get(stream).ok_or(INVALID_HANDLE)?.device as i32;
        Ok(())
    }
    fn cuStreamGetFlags(stream: u64, flags: *mut u32)
        = "cuStreamGetFlags" 5050 + "cuStreamGetFlags_ptsz" 7000 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        *out(flags)? = d.streams.get(stream).ok_or(INVALID_HANDLE)?.flags;
        Ok(())
    }
    fn cuStreamGetPriority(stream: u64, priority: *mut i32)
        = "cuStreamGetPriority" 5050 + "cuStreamGetPriority_ptsz" 7000 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        *out(priority)? = d.streams.get(stream).ok_or(INVALID_HANDLE)?.priority;
        Ok(())
    }
    fn cuStreamGetId(stream: u64, id: *mut u64) = "cuStreamGetId" 12000 + "cuStreamGetId_ptsz" 12000 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        *out(id)? = d.streams.get(stream).ok_or(INVALID_HANDLE)?.id;
        Ok(())
    }
    fn cuStreamGetAttribute(stream: u64, attribute: u32, value: *mut [u64; 8])
        = "cuStreamGetAttribute" 11000 + "cuStreamGetAttribute_ptsz" 11000 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        let s = d.streams.get(stream).ok_or(INVALID_HANDLE)?;
        *out(value)? = *s.attributes.get(attribute as usize).ok_or(INVALID_VALUE)?;
        Ok(())
    }
    fn cuStreamSetAttribute(stream: u64, attribute: u32, value: *const [u64; 8])
        = "cuStreamSetAttribute" 11000 + "cuStreamSetAttribute_ptsz" 11000 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        let s = d.streams.get_mut(stream).ok_or(INVALID_HANDLE)?;
        *s.attributes.get_mut(attribute as usize).ok_or(INVALID_VALUE)? = *value.as_ref().ok_or(INVALID_VALUE)?;
        Ok(())
    }
    fn cuStreamCopyAttributes(to: u64, from: u64)
        = "cuStreamCopyAttributes" 11000 + "cuStreamCopyAttributes_ptsz" 11000 |default| {
        let mut d = driver()?;
        let (to, from) = (d.stream(to, default)?, d.stream(from, default)?);
        let attributes = d.streams.get(from).ok_or(INVALID_HANDLE)?.attributes;
        d.streams.get_mut(to).ok_or(INVALID_HANDLE)?.attributes = attributes;
        Ok(())
    }
    fn cuStreamAttachMemAsync(stream: u64, _address: u64, _length: usize, _flags: u32)
        = "cuStreamAttachMemAsync" 6000 + "cuStreamAttachMemAsync_ptsz" 7000 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        d.submit(stream, Work::Nothing).map(|_| ())
    }
    fn cuStreamWaitValue32_v2(stream: u64, address: u64, value: u32, flags: u32)
        = "cuStreamWaitValue32" 11070 + "cuStreamWaitValue32_v2_ptsz" 11070 |default| {
        // Only CU_STREAM_WAIT_VALUE_GEQ is there.
        if flags != 0 {
            return Err(NOT_SUPPORTED);
        }
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        if !d.memory.holds(address, 4) {
            return Err(INVALID_VALUE);
        }
        let awaited = Box::into_raw(Box::new(Awaited { address, value }));
        d.submit(stream, Work::Host(await_value, awaited as usize)).map(|_| ())
    }
    fn cuStreamWriteValue32_v2(stream: u64, address: u64, value: u32, _flags: u32)
        = "cuStreamWriteValue32" 11070 + "cuStreamWriteValue32_v2_ptsz" 11070 |default| {
        write_value(stream, default, address, value as u64, 4)
    }
    fn cuStreamWriteValue64_v2(stream: u64, address: u64, value: u64, _flags: u32)
        = "cuStreamWriteValue64" 11070 + "cuStreamWriteValue64_v2_ptsz" 11070 |default| {
        write_value(stream, default, address, value, 8)
    }
}
