//! Stream capture: work of a capturing stream becomes nodes of a graph, and calls that could disturb a capture are
//! refused and spoil it, as the vendor's driver does. That strictness is a test of whoever traces a program.

use crate::codes::*;
use crate::graph::{Body, Graph};
use crate::state::{Driver, driver, out, put, ready};
use crate::stream::thread;
use crate::table::{R, driver as functions};
use crate::work::Work;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) struct Capture {
    graph: u64,
    origin: u64,
    context: u64,
    mode: u32,
    thread: u64,
    id: u64,
    invalid: bool,
    /// The streams that take part.
    streams: Vec<u64>,
    /// The graph was the client's own before.
    borrowed: bool,
}

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

/// How many captures are open.
pub(crate) static OPEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
    /// What the last look at a capture's dependencies pointed to.
    static LISTED: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Driver {
    /// Refuses a potentially unsafe call while a capture that it could disturb is open.
    pub(crate) fn refuse_in_capture(&mut self) -> R {
        if OPEN.load(Relaxed) == 0 {
            return Ok(());
        }
        let (mode, me) = (MODE.get(), thread());
        let disturbed = |c: &Capture| match mode {
            GLOBAL => c.mode == GLOBAL || (c.thread == me && c.mode != RELAXED),
            THREAD_LOCAL => c.thread == me && c.mode != RELAXED,
            _ => false,
        };
        let spoilt: Vec<u64> = self.captures.iter().filter(|(_, c)| disturbed(c)).map(|(handle, _)| handle).collect();
        self.spoil(spoilt, CAPTURE_UNSUPPORTED)
    }

    /// The legacy stream must not be used while a blocking stream of its context is captured.
    pub(crate) fn refuse_captured_blocking(&mut self, context: u64) -> R {
        if OPEN.load(Relaxed) == 0 {
            return Ok(());
        }
        let blocking = |s: &u64| self.streams.get(*s).is_some_and(|s| s.flags & 1 == 0);
        let implied = |c: &Capture| c.context == context && c.streams.iter().any(blocking);
        let spoilt: Vec<u64> = self.captures.iter().filter(|(_, c)| implied(c)).map(|(handle, _)| handle).collect();
        self.spoil(spoilt, CAPTURE_IMPLICIT)
    }

    /// A context cannot be waited for while one of its streams is captured, in whatever mode.
    pub(crate) fn refuse_captured_context(&mut self, context: u64) -> R {
        let inside = |c: &Capture| c.context == context;
        let spoilt: Vec<u64> = self.captures.iter().filter(|(_, c)| inside(c)).map(|(handle, _)| handle).collect();
        self.spoil(spoilt, CAPTURE_UNSUPPORTED)
    }

    /// A captured stream has nothing that could be waited for.
    pub(crate) fn refuse_on_captured(&mut self, stream: u64) -> R {
        match self.streams.get(stream).and_then(|s| s.capture) {
            None => Ok(()),
            Some(capture) => self.spoil(vec![capture], CAPTURE_UNSUPPORTED),
        }
    }

    fn spoil(&mut self, captures: Vec<u64>, code: u32) -> R {
        let any = !captures.is_empty();
        captures.into_iter().for_each(|capture| self.invalidate(capture));
        if any { Err(code) } else { Ok(()) }
    }

    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(capture) {
            capture.invalid = true;
        }
    }

    pub(crate) fn valid_capture(&self, capture: u64) -> R {
        match self.captures.get(capture) {
            Some(c) if !c.invalid => Ok(()),
            _ => Err(CAPTURE_INVALIDATED),
        }
    }

    /// Makes a node of work that was handed to a captured stream.
    pub(crate) fn capture_work(&mut self, stream: u64, work: Work) -> R {
        self.capture_body(stream, Body::Work(work))
    }

    pub(crate) fn capture_body(&mut self, stream: u64, body: Body) -> R {
        let s = self.streams.get(stream).ok_or(INVALID_HANDLE)?;
        let (capture, tips) = (s.capture.ok_or(INVALID_HANDLE)?, s.tips.clone());
        self.valid_capture(capture)?;
        let graph = self.captures.get(capture).ok_or(INVALID_HANDLE)?.graph;
        let node = self.add_node(graph, body, tips)?;
        if let Some(s) = self.streams.get_mut(stream) {
            s.tips = vec![node];
        }
        Ok(())
    }

    /// Takes a stream into a capture, or adds to what its next node depends on.
    pub(crate) fn join(&mut self, stream: u64, capture: u64, tips: &[usize]) -> R {
        self.valid_capture(capture)?;
        let s = self.streams.get_mut(stream).ok_or(INVALID_HANDLE)?;
        match s.capture {
            Some(own) if own != capture => {
                self.invalidate(own);
                self.invalidate(capture);
                return Err(CAPTURE_MERGE);
            }
            Some(_) => {
                for tip in tips {
                    if !s.tips.contains(tip) {
                        s.tips.push(*tip);
                    }
                }
            }
            None if s.raw == Some(0) => return Err(CAPTURE_IMPLICIT),
            None => {
                s.capture = Some(capture);
                s.tips = tips.to_vec();
                if let Some(c) = self.captures.get_mut(capture) {
                    c.streams.push(stream);
                }
            }
        }
        Ok(())
    }

    fn begin_capture(&mut self, stream: u64, mode: u32, into: Option<(u64, Vec<usize>)>) -> R {
        let id = self.id();
        let s = self.streams.get(stream).ok_or(INVALID_HANDLE)?;
        if mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        if s.raw == Some(0) {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if s.capture.is_some() {
            return Err(401);
        }
        let (context, borrowed) = (s.context, into.is_some());
        let (graph, tips) = into.unwrap_or_else(|| (self.graphs.insert(Graph::default()), Vec::new()));
        let (origin, streams, thread) = (stream, vec![stream], thread());
        let capture = Capture { graph, origin, context, mode, thread, id, invalid: false, streams, borrowed };
        let capture = self.captures.insert(capture);
        if let Some(s) = self.streams.get_mut(stream) {
            s.capture = Some(capture);
            s.tips = tips;
        }
        OPEN.fetch_add(1, Relaxed);
        Ok(())
    }

    fn end_capture(&mut self, stream: u64) -> R<u64> {
        let handle = self.streams.get(stream).ok_or(INVALID_HANDLE)?.capture.ok_or(401u32)?;
        let c = self.captures.get(handle).ok_or(INVALID_HANDLE)?;
        if c.origin != stream {
            self.invalidate(handle);
            return Err(CAPTURE_UNMATCHED);
        }
        if c.mode != RELAXED && c.thread != thread() {
            return Err(CAPTURE_WRONG_THREAD);
        }
        let unjoined = !self.all_joined(c);
        let Some(c) = self.captures.remove(handle) else { return Err(INVALID_HANDLE) };
        OPEN.fetch_sub(1, Relaxed);
        for stream in c.streams {
            if let Some(s) = self.streams.get_mut(stream) {
                s.capture = None;
                s.tips.clear();
            }
        }
        if c.invalid || unjoined {
            if !c.borrowed {
                self.end_graph(c.graph);
            }
            return Err(if c.invalid { CAPTURE_INVALIDATED } else { CAPTURE_UNJOINED });
        }
        Ok(c.graph)
    }

    /// Whatever the other streams did last comes before what the origin did last.
    fn all_joined(&self, c: &Capture) -> bool {
        let Some(graph) = self.graphs.get(c.graph) else { return true };
        let tips = |stream: &u64| self.streams.get(*stream).map_or(&[][..], |s| &s.tips);
        let mut before = vec![false; graph.nodes.len()];
        let mut open: Vec<usize> = tips(&c.origin).to_vec();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut before[node], true) {
                open.extend(&graph.nodes[node].after);
            }
        }
        c.streams.iter().flat_map(tips).all(|node| before[*node])
    }
}

/// What a client may ask about a stream's capture: status, id, graph, dependencies.
unsafe fn info(raw: u64, default: crate::table::Default, status: *mut u32, id: *mut u64, more: Option<More>) -> R {
    let mut d = driver()?;
    let stream = d.stream(raw, default)?;
    let s = d.streams.get(stream).ok_or(INVALID_HANDLE)?;
    if s.raw == Some(0) {
        let context = s.context;
        d.refuse_captured_blocking(context).map_err(|_| CAPTURE_IMPLICIT)?;
    }
    let s = d.streams.get(stream).ok_or(INVALID_HANDLE)?;
    let Some(c) = s.capture.and_then(|capture| d.captures.get(capture)) else {
        unsafe { *out(status)? = 0 };
        return Ok(());
    };
    unsafe {
        *out(status)? = if c.invalid { 2 } else { 1 };
        put(id, c.id);
        if let Some(more) = more {
            let nodes =
                d.graphs.get(c.graph).map_or(Vec::new(), |g| s.tips.iter().map(|i| g.nodes[*i].handle).collect());
            put(more.graph, c.graph);
            put(more.count, nodes.len());
            LISTED.with_borrow_mut(|listed| {
                *listed = nodes;
                put(more.nodes, listed.as_ptr());
            });
        }
    }
    Ok(())
}

struct More {
    graph: *mut u64,
    nodes: *mut *const u64,
    count: *mut usize,
}

unsafe fn update(raw: u64, default: crate::table::Default, nodes: *const u64, count: usize, flags: u32) -> R {
    let mut d = driver()?;
    let stream = d.stream(raw, default)?;
    let capture = d.streams.get(stream).ok_or(INVALID_HANDLE)?.capture.ok_or(401u32)?;
    d.valid_capture(capture)?;
    let graph = d.captures.get(capture).ok_or(INVALID_HANDLE)?.graph;
    let tips = unsafe { d.positions(graph, nodes, count)? };
    let s = d.streams.get_mut(stream).ok_or(INVALID_HANDLE)?;
    if flags & 1 != 0 {
        s.tips = tips;
    } else {
        s.tips.extend(tips);
    }
    Ok(())
}

functions! {
    fn cuStreamBeginCapture(stream: u64) = "cuStreamBeginCapture" 10000 + "cuStreamBeginCapture_ptsz" 10000 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        d.begin_capture(stream, GLOBAL, None)
    }
    fn cuStreamBeginCapture_v2(stream: u64, mode: u32)
        = "cuStreamBeginCapture" 10010 + "cuStreamBeginCapture_v2_ptsz" 10010 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        d.begin_capture(stream, mode, None)
    }
    fn cuStreamBeginCaptureToGraph(stream: u64, graph: u64, nodes: *const u64, _edges: *const u64, count: usize,
        mode: u32) = "cuStreamBeginCaptureToGraph" 12030 + "cuStreamBeginCaptureToGraph_ptsz" 12030 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        let tips = d.positions(graph, nodes, count)?;
        d.begin_capture(stream, mode, Some((graph, tips)))
    }
    fn cuStreamEndCapture(stream: u64, graph: *mut u64)
        = "cuStreamEndCapture" 10000 + "cuStreamEndCapture_ptsz" 10000 |default| {
        let graph = out(graph)?;
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        *graph = 0;
        *graph = d.end_capture(stream)?;
        Ok(())
    }
    fn cuStreamIsCapturing(stream: u64, status: *mut u32)
        = "cuStreamIsCapturing" 10000 + "cuStreamIsCapturing_ptsz" 10000 |default| {
        info(stream, default, status, std::ptr::null_mut(), None)
    }
    fn cuStreamGetCaptureInfo(stream: u64, status: *mut u32, id: *mut u64)
        = "cuStreamGetCaptureInfo" 10010 + "cuStreamGetCaptureInfo_ptsz" 10010 |default| {
        info(stream, default, status, id, None)
    }
    fn cuStreamGetCaptureInfo_v2(stream: u64, status: *mut u32, id: *mut u64, graph: *mut u64,
        nodes: *mut *const u64, count: *mut usize)
        = "cuStreamGetCaptureInfo" 11030 + "cuStreamGetCaptureInfo_v2_ptsz" 11030 |default| {
        info(stream, default, status, id, Some(More { graph, nodes, count }))
    }
    fn cuStreamGetCaptureInfo_v3(stream: u64, status: *mut u32, id: *mut u64, graph: *mut u64,
        nodes: *mut *const u64, edges: *mut *const u64, count: *mut usize)
        = "cuStreamGetCaptureInfo" 12030 + "cuStreamGetCaptureInfo_v3_ptsz" 12030 |default| {
        put(edges, std::ptr::null());
        info(stream, default, status, id, Some(More { graph, nodes, count }))
    }
    fn cuStreamUpdateCaptureDependencies(stream: u64, nodes: *const u64, count: usize, flags: u32)
        = "cuStreamUpdateCaptureDependencies" 11030 + "cuStreamUpdateCaptureDependencies_ptsz" 11030 |default| {
        update(stream, default, nodes, count, flags)
    }
    fn cuStreamUpdateCaptureDependencies_v2(stream: u64, nodes: *const u64, _edges: *const u64, count: usize,
        flags: u32)
        = "cuStreamUpdateCaptureDependencies" 12030 + "cuStreamUpdateCaptureDependencies_v2_ptsz" 12030 |default| {
        update(stream, default, nodes, count, flags)
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) = "cuThreadExchangeStreamCaptureMode" 10010 |_| {
        ready()?;
        let mode = out(mode)?;
        if *mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        *mode = MODE.replace(*mode);
        Ok(())
    }
}
