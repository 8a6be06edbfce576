//! Memory in use of a part of a trace is what it is at the same times of the whole.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::trace::Spans;
use crate::trace::testing::{START, TestTrace};

/// What was in use from when on, by name.
#[derive(Default)]
struct Seen {
    samples: Vec<(&'static str, i64, f64)>,
    bars: usize,
    reached: i64,
}

impl Sink for Seen {
    fn reached(&mut self, start_ns: i64) -> io::Result<()> {
        self.reached = start_ns;
        Ok(())
    }

    fn slice(&mut self, _: &Slice<'_>) -> io::Result<()> {
        self.bars += 1;
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        let name = ["device memory in use", "malloc in use"].into_iter().find(|name| *name == sample.name);
        assert!(sample.start_ns >= self.reached, "{} at {}", sample.name, sample.start_ns - START);
        self.samples.extend(name.map(|name| (name, sample.start_ns - START, sample.value)));
        Ok(())
    }
}

fn seen(trace: &Trace, filter: &Filter) -> Seen {
    let mut seen = Seen::default();
    write(trace, filter, None, &mut seen).unwrap();
    seen.samples.sort_by_key(|of| (of.1, of.0));
    seen
}

/// A device block of 100 bytes and one of malloc's that stands for 50 that stay, and from then on one of each that comes and goes.
fn trace() -> TestTrace {
    let mut made = TestTrace::new();
    made.process(1, 100, None, START + 1_000_000);
    made.process(2, 200, None, START + 200);
    made.thread(2, 21).alloc("cuMemAlloc_v2", "device", 0x10, 7, 10);
    let mut thread = made.thread(1, 11);
    thread.alloc("cuMemAlloc_v2", "device", 0x1000, 100, 90);
    thread.malloc("alloc", 10, 50.0);
    for step in 0..20 {
        thread.now = START + 1_000 * (step + 1);
        thread.alloc("cuMemAlloc_v2", "device", 0x2000, 30, 50);
        thread.malloc("alloc", 5, 5.0);
        thread.launch("k", 50);
        thread.malloc("free", 5, 5.0);
    }
    for step in 0..20 {
        let start_ns = START + 1_000 * (step + 1) + 120;
        made.row(
            TableId::DeviceMemory,
            json!({ "start_ns": start_ns, "process_id": 1, "tid": 11, "action": "free", "kind": "device", "bytes": 30 }),
        );
    }
    made.in_time();
    made
}

#[test]
fn a_part_begins_with_what_was_taken_before_it() {
    let made = trace();
    let trace = made.open();
    let whole = seen(&trace, &Filter::default());
    let (from, to) = (START + 5_500, START + 8_500);
    let filter = Filter { from_ns: Some(from), to_ns: Some(to), ..Filter::default() };
    let part = seen(&trace, &filter);
    // The begin, and what the whole has: of a process that has ended nothing.
    assert_eq!(part.samples[..2], [("device memory in use", 5_500, 100.0), ("malloc in use", 5_500, 50.0)]);
    let own: Vec<_> = whole.samples.iter().filter(|of| (5_500..8_500).contains(&of.1)).copied().collect();
    assert_eq!((part.samples[2..].to_vec(), own.len(), part.bars), (own, 12, 9));
    // Where nothing happens in a part, memory is in use all the same.
    // A value with which a part begins is none of the events: what is kept and what lies outside are the whole.
    let (kept, all) = (count(&trace, &filter), count(&trace, &Filter::default()));
    let outside = super::super::outside::of_timeline(&trace, &filter).unwrap();
    assert_eq!((kept, outside.as_str()), (21, "124 of 145 events lie outside of the chosen span and are left out"));
    assert_eq!(all, 145);
    let quiet = seen(&trace, &Filter { from_ns: Some(START + 500_000), ..Filter::default() });
    assert_eq!(quiet.samples, [("device memory in use", 500_000, 100.0), ("malloc in use", 500_000, 50.0)]);
}

#[test]
fn ranges_have_what_is_in_use_whatever_came_between_them_and_on_whichever_thread() {
    let made = trace();
    let mut spans = Spans::default();
    for step in [3, 9] {
        spans.add(1, Some(12), (START + 1_000 * step + 55, START + 1_000 * step + 500));
    }
    let filter = Filter { within: vec![Arc::new(spans.ordered())], ..Filter::default() };
    let part = seen(&made.open(), &filter);
    let device: Vec<_> =
        part.samples.iter().filter(|of| of.0 == "device memory in use").map(|of| (of.1, of.2)).collect();
    // The thread of the ranges did nothing itself.
    assert_eq!((device, part.bars), (vec![(3_055, 130.0), (3_120, 100.0), (9_055, 130.0), (9_120, 100.0)], 0));
}
