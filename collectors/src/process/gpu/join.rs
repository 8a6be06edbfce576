//! Records find the calls that gave the work: by CUPTI's numbers, else in the order of their stream, and what waits is looked
//! at again.

use gputrace_abi::gpu::Work;

use super::given::Given;
use super::{Gpu, Told, worked};
use crate::clock::LONGEST_NS;
use crate::names::Written;
use crate::tables::OnGpu;

/// A record without its call waits so long for one that is still running.
const PATIENCE_NS: i64 = 2_000_000_000;
/// After so long its number is not trusted any more.
const UNSURE_NS: i64 = 300_000_000;
/// A graph that was launched in a window runs no longer after it.
const GRAPH_NS: i64 = 1_000_000_000;
/// Records that wait for their call at most: all are looked at again and again.
const MOST_WAITING: usize = 1 << 17;
/// Streams of CUPTI whose own handle is remembered.
const MOST_STREAMS: usize = 1 << 14;
/// Records out of which it is learned where numbers lie.
const SAMPLE: usize = 4096;
/// Records of one pass whose place is looked for again.
const TRIES: usize = 16;
/// Records that are enough to say that numbers have gaps.
const ENOUGH: usize = 16;
/// How often work of a stream must have found calls of the same one until only such calls are looked at; and how far it counts.
const SURE: u8 = 4;
const MOST_SURE: u8 = 32;

impl Gpu {
    pub(super) fn join(&mut self, mut records: Vec<Told>, all: bool, now_ns: i64, written: &Written) {
        let Some(first) = records.first().map(|told| told.work.correlation) else { return };
        // In the order of their numbers, which wrap.
        records.sort_by_key(|told| told.work.correlation.wrapping_sub(first) as i32);
        let sample = |from: usize| -> Vec<(Work, i64)> {
            records.iter().skip(from).take(SAMPLE).map(|told| (told.work, told.begin_ns)).collect()
        };
        if !self.calls.is_aligned() {
            let first = sample(0);
            if self.calls.align(&first, self.on_since_ns) {
                self.learn_streams(&first);
            }
        }
        let in_order = !self.calls.is_aligned();
        let (count, mut tries) = (records.len(), TRIES);
        let mut missed = Vec::new();
        // A launch of a graph has thousands of records: those of one whose call is not known are not looked at one by one.
        let mut unknown = None;
        let graph = |told: &Told| (told.work.graph != 0).then_some(told.work.correlation);
        for (nth, told) in records.iter().enumerate() {
            if unknown.is_some() && unknown == graph(told) {
                missed.push(*told);
                continue;
            }
            let mut call = self.look(told, in_order, false);
            // The place was lost: CUPTI left calls out, or counted others.
            if call.is_none() && !in_order && tries > 0 {
                tries -= 1;
                if self.calls.align(&sample(nth), self.on_since_ns) {
                    call = self.look(told, false, false);
                }
            }
            match call {
                Some(call) => self.found(told, Some(&call), written),
                None => {
                    unknown = graph(told);
                    missed.push(*told);
                }
            }
        }
        unknown = None;
        if missed.len() * 2 > count && count >= ENOUGH {
            // There are gaps between the numbers now.
            self.calls.lose_place();
        }
        for told in missed {
            // What waits for long, or is the last, takes what there is.
            let unsure = all || now_ns - told.told_ns > UNSURE_NS;
            let known_to_be = unknown.is_some() && unknown == graph(&told);
            let call = if unsure && !known_to_be { self.look(&told, !self.calls.is_aligned(), true) } else { None };
            unknown = graph(&told).filter(|_| unsure && call.is_none());
            if call.is_some() || all || now_ns - told.told_ns > PATIENCE_NS || self.waiting.len() >= MOST_WAITING {
                self.found(&told, call.as_ref(), written);
            } else {
                self.waiting.push(told);
            }
        }
    }

    /// Looks for the call of a record: by its number or, `in_order`, by its place in its stream.
    fn look(&mut self, told: &Told, in_order: bool, anywhere: bool) -> Option<Given> {
        let (work, begin_ns) = (&told.work, told.begin_ns);
        let stream = self.stream_of(work);
        if in_order {
            return self.calls.next(work, begin_ns, stream);
        }
        let found = self.calls.find(work, begin_ns, stream, anywhere);
        found.or_else(|| if anywhere { self.calls.find(work, begin_ns, None, true) } else { None })
    }

    fn learn_streams(&mut self, sample: &[(Work, i64)]) {
        let handles = self.calls.handles(sample);
        for (work, _) in sample {
            let own = (work.device, work.context, work.stream);
            if let Some(handle) = handles.get(&work.stream).filter(|_| self.streams.len() < MOST_STREAMS) {
                self.streams.entry(own).or_insert((*handle, 0, SURE));
            }
        }
    }

    /// The driver's handle of the stream that work ran in, once enough of it has found its calls.
    fn stream_of(&self, work: &Work) -> Option<i64> {
        let known = self.streams.get(&(work.device, work.context, work.stream))?;
        (known.2 >= SURE).then_some(known.0)
    }

    fn found(&mut self, told: &Told, call: Option<&Given>, written: &Written) {
        let (work, (process_id, pid)) = (&told.work, self.ids);
        let own = (work.device, work.context, work.stream);
        // Graphs go on to make records, of the last launch that was counted.
        let after_ns = if work.graph == 0 { i64::MAX } else { GRAPH_NS };
        let is_outside = self.is_between_windows(told.begin_ns, if call.is_none() { 0 } else { after_ns });
        let about = self.about.get_or_insert_default();
        if is_outside {
            about.outside += 1;
            return;
        }
        if let Some(call) = call {
            about.joined += 1;
            about.early += u64::from(told.begin_ns < call.start_ns);
            let earlier_ns = call.start_ns - told.begin_ns;
            about.earliest_ns = about.earliest_ns.max(earlier_ns);
            about.violations += u64::from(earlier_ns > about.alignment_error_ns.map_or(0, u64::cast_signed));
        }
        // Nodes of a graph run in streams of the driver's own choice too.
        if let Some(call) = call.filter(|_| work.graph == 0)
            && (self.streams.len() < MOST_STREAMS || self.streams.contains_key(&own))
        {
            let known = self.streams.entry(own).or_insert((call.stream, call.context, 0));
            match (known.0 == call.stream, known.2) {
                (true, sure) => *known = (call.stream, call.context, sure.saturating_add(1).min(MOST_SURE)),
                (false, 0) => *known = (call.stream, call.context, 0),
                (false, sure) => known.2 = sure - 1,
            }
        }
        let known = self.streams.get(&own).map(|(stream, context, _)| (*stream, *context));
        let known = call.filter(|_| work.graph == 0).map(|call| (call.stream, call.context)).or(known);
        let (stream, context) = known.unwrap_or((i64::from(work.stream), call.map_or(0, |call| call.context)));
        let row = OnGpu {
            start_ns: told.begin_ns,
            gpu_ns: (work.end - work.start).min(LONGEST_NS as u64) as i64,
            process_id,
            pid,
            device: call.and_then(|call| call.device).or(i32::try_from(work.device).ok()),
            context,
            stream,
            correlation_id: call.map(|call| call.correlation_id),
            graph_node: (work.graph != 0).then_some(work.node as i64),
        };
        if self.done_ns.len() < MOST_STREAMS {
            // The legacy stream has two handles.
            let done_ns = self.done_ns.entry((stream as u64).max(1)).or_default();
            *done_ns = (*done_ns).max(row.start_ns + row.gpu_ns);
        }
        let queue_ns = call.map(|call| told.begin_ns - call.end_ns).filter(|ns| *ns >= 0);
        let limits = row.device.and_then(|device| self.limits.get(&u64::try_from(device).ok()?)).copied();
        self.ready.push((row, worked::worked(work, queue_ns, limits, written)));
    }

    /// Whether a moment lies so long after the last window that was closed, and before the one that is open.
    fn is_between_windows(&self, ns: i64, after_ns: i64) -> bool {
        self.closed.back().is_some_and(|(_, off)| ns > off.saturating_add(after_ns))
            && self.open.is_none_or(|(on, _)| ns < on)
    }
}
