//! Events: a point in a stream, with the time at which the device passed it.

use crate::codes::*;
use crate::launch::see_loading_out;
use crate::observe;
use crate::state::{Driver, driver, out};
use crate::stream::Issued;
use crate::table::{Default, R, driver as functions};
use crate::timeline::{now, wait};
use crate::work::Work;

pub(crate) struct Event {
    pub(crate) context: u64,
    flags: u32,
    at: Point,
    /// Counts the records, so that only the last one sets the time.
    ticket: u64,
    end_ns: u64,
}

#[derive(Clone)]
enum Point {
    Never,
    Recorded { stream: u64, seq: u64 },
    Captured { capture: u64, tips: Vec<usize> },
}

const BLOCKING_SYNC_AND_MORE: u32 = 7;
const DISABLE_TIMING: u32 = 2;

/// The device has passed the event.
pub(crate) fn completed(driver: &mut Driver, event: u64, ticket: u64, end: u64) {
    if let Some(event) = driver.events.get_mut(event).filter(|event| event.ticket == ticket) {
        event.end_ns = end;
    }
}

impl Driver {
    fn passed(&self, event: u64) -> bool {
        match self.events.get(event).map(|event| &event.at) {
            Some(Point::Recorded { stream, seq }) => self.reached(&[(*stream, *seq)]),
            _ => true,
        }
    }

    /// Ends the process, as the vendor's driver may, where an event is used whose context is gone.
    fn must_live(&self, event: u64) {
        if self.events.get(event).is_some_and(|event| self.contexts.get(event.context).is_none()) {
            eprintln!("fake-cuda: an event was used after the end of its context");
            std::process::abort();
        }
    }

    /// An event that may be asked or waited for by the host.
    fn plain_event(&self, event: u64) -> R<&Event> {
        self.must_live(event);
        let event = self.events.get(event).ok_or(INVALID_HANDLE)?;
        if let Point::Captured { capture, .. } = &event.at
            && self.captures.get(*capture).is_some()
        {
            return Err(CAPTURED_EVENT);
        }
        Ok(event)
    }
}

/// Makes later work of a stream wait for an event; joins the stream to the event's capture.
pub(crate) fn wait_in_stream(d: &mut Driver, stream: u64, event: u64) -> R {
    let point = d.events.get(event).ok_or(INVALID_HANDLE)?.at.clone();
    let capturing = d.streams.get(stream).ok_or(INVALID_HANDLE)?.capture;
    match point {
        Point::Captured { capture, tips } if d.captures.get(capture).is_some() => d.join(stream, capture, &tips),
        Point::Recorded { .. } if capturing.is_some() => {
            if let Some(capture) = capturing {
                d.invalidate(capture);
            }
            Err(CAPTURE_ISOLATION)
        }
        Point::Recorded { stream: other, seq } if other != stream => {
            d.submit_after(stream, Work::Nothing, vec![(other, seq)]).map(|_| ())
        }
        _ => Ok(()),
    }
}

fn record(stream: u64, event: u64, default: Default) -> R {
    see_loading_out();
    let _counted = observe::waits(observe::wait::RECORD);
    let mut d = driver()?;
    let stream = d.stream(stream, default)?;
    record_in_stream(&mut d, stream, event)
}

/// Makes an event stand for what a stream was given so far.
pub(crate) fn record_in_stream(d: &mut Driver, stream: u64, event: u64) -> R {
    let context = d.streams.get(stream).ok_or(INVALID_HANDLE)?.context;
    d.must_live(event);
    let e = d.events.get_mut(event).ok_or(INVALID_HANDLE)?;
    if e.context != context {
        return Err(INVALID_HANDLE);
    }
    e.ticket += 1;
    let ticket = e.ticket;
    let s = d.streams.get(stream).ok_or(INVALID_HANDLE)?;
    let at = match s.capture {
        Some(capture) => {
            d.valid_capture(capture)?;
            Point::Captured { capture, tips: d.streams.get(stream).map_or(Vec::new(), |s| s.tips.clone()) }
        }
        None => match d.submit(stream, Work::Event(event, ticket))? {
            Issued::At(stream, seq) => Point::Recorded { stream, seq },
            Issued::Captured => Point::Never,
        },
    };
    if let Some(e) = d.events.get_mut(event) {
        e.at = at;
    }
    Ok(())
}

fn destroy(event: u64) -> R {
    driver()?.events.remove(event).map(|_| ()).ok_or(INVALID_HANDLE)
}

unsafe fn elapsed(result: *mut f32, first: u64, second: u64) -> R {
    let result = unsafe { out(result)? };
    let mut d = driver()?;
    d.advance(now());
    let (a, b) = (d.plain_event(first)?, d.plain_event(second)?);
    let timed = |event: &Event| event.flags & DISABLE_TIMING == 0 && !matches!(event.at, Point::Never);
    if !timed(a) || !timed(b) || a.context != b.context {
        return Err(INVALID_HANDLE);
    }
    if !d.passed(first) || !d.passed(second) {
        return Err(NOT_READY);
    }
    *result = (b.end_ns as f64 / 1e6 - a.end_ns as f64 / 1e6) as f32;
    Ok(())
}

functions! {
    fn cuEventCreate(result: *mut u64, flags: u32) = "cuEventCreate" 2000 |_| {
        let result = out(result)?;
        let mut d = driver()?;
        let context = d.current()?;
        if flags > BLOCKING_SYNC_AND_MORE {
            return Err(INVALID_VALUE);
        }
        *result = d.events.insert(Event { context, flags, at: Point::Never, ticket: 0, end_ns: 0 });
        Ok(())
    }
    fn cuEventRecord(event: u64, stream: u64) = "cuEventRecord" 2000 + "cuEventRecord_ptsz" 7000 |default| {
        record(stream, event, default)
    }
    fn cuEventRecordWithFlags(event: u64, stream: u64, flags: u32)
        = "cuEventRecordWithFlags" 11010 + "cuEventRecordWithFlags_ptsz" 11010 |default| {
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        record(stream, event, default)
    }
    fn cuEventQuery(event: u64) = "cuEventQuery" 2000 |_| {
        let mut d = driver()?;
        d.plain_event(event)?;
        d.refuse_in_capture()?;
        d.advance(now());
        let context = d.plain_event(event)?.context;
        match d.sticky(context) {
            0 if d.passed(event) => Ok(()),
            0 => Err(NOT_READY),
            code => Err(code),
        }
    }
    fn cuEventSynchronize(event: u64) = "cuEventSynchronize" 2000 |_| {
        let mut waiting = observe::waits(observe::wait::EVENT);
        let mut d = driver()?;
        d.plain_event(event)?;
        d.refuse_in_capture()?;
        let e = d.plain_event(event)?;
        waiting.within(&d, e.context, None);
        let (context, at) = (e.context, e.at.clone());
        // A later record by another thread is not waited for.
        let d = wait(d, |d| match at {
            Point::Recorded { stream, seq } => d.reached(&[(stream, seq)]),
            _ => true,
        });
        match d.sticky(context) {
            0 => Ok(()),
            code => Err(code),
        }
    }
    fn cuEventElapsedTime(result: *mut f32, first: u64, second: u64) = "cuEventElapsedTime" 2000 |_| {
        elapsed(result, first, second)
    }
    fn cuEventElapsedTime_v2(result: *mut f32, first: u64, second: u64) = "cuEventElapsedTime" 12080 |_| {
        elapsed(result, first, second)
    }
    fn cuEventDestroy(event: u64) = "cuEventDestroy" 2000 |_| { destroy(event) }
    fn cuEventDestroy_v2(event: u64) = "cuEventDestroy" 4000 |_| { destroy(event) }
}
