//! Ranges: pairing by thread, domain and number, names by key, and what is lost.

use gputrace_abi::clock::counter;
use gputrace_abi::event::{Event, range, text_kind};
use gputrace_abi::text::key;
use gputrace_collectors::names::{NameKind, id};

use crate::rows::{batches, numbers, texts, values};
use crate::support::{Folder, Target, Thread, hook};
use crate::{assert_exact, collect, finish};

/// A thread that names ranges: it counts its range events as the shim does.
struct Namer<'a> {
    thread: Thread<'a>,
    count: u16,
}

impl Namer<'_> {
    fn event(&mut self, name: &str, number: u64, payload: [u64; 4], flags: u16) {
        let event = Event {
            hook: hook(name),
            start: counter(),
            end: number,
            flags,
            result: self.count,
            payload,
            ..Event::default()
        };
        self.count = self.count.wrapping_add(1);
        assert!(self.thread.event(event));
    }

    fn push(&mut self, name: &str, domain: u64) {
        self.event("nvtxRangePushA", 0, [key(text_kind::RANGE, name.as_bytes()), domain, 0, 0], 0);
    }

    fn pop(&mut self, domain: u64) {
        self.event("nvtxRangePop", 0, [0, domain, 0, 0], 0);
    }

    fn say(&mut self, kind: u64, text: &str) -> u64 {
        let key = key(kind, text.as_bytes());
        self.thread.text(kind, key, 0, text);
        key
    }
}

fn namer<'a>(target: &'a Target, tid: u32) -> Namer<'a> {
    Namer { thread: target.thread(tid), count: u16::MAX - 2 }
}

fn name(text: &str) -> Option<i64> {
    Some(id(NameKind::Range, text))
}

#[test]
fn a_pop_ends_what_its_thread_pushed_last_in_that_domain() {
    let folder = Folder::new("ranges");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut one = namer(&target, 1);
    let domain = one.say(text_kind::DOMAIN, "loader");
    for text in ["step", "forward", "batch", "other thread"] {
        one.say(text_kind::RANGE, text);
    }
    one.push("step", 0);
    one.push("forward", 0);
    one.push("batch", domain);
    one.pop(0); // forward
    one.pop(domain); // batch
    one.push("forward", 0);
    let mut two = namer(&target, 2);
    two.push("other thread", 0);
    two.pop(0);
    one.pop(0); // forward
    one.pop(0); // step
    one.push("forward", 0); // never ends
    target.exit(0);
    assert_exact(&folder, &finish(running));

    let rows = batches(&folder.trace(), "ranges");
    let mut all: Vec<_> = numbers(&rows, "name_id")
        .into_iter()
        .zip(numbers(&rows, "level"))
        .zip(values(&rows, "tid"))
        .zip(numbers(&rows, "domain_id"))
        .zip(numbers(&rows, "end_ns").iter().map(Option::is_some))
        .map(|((((name, level), tid), domain), ended)| (tid, name, level, domain, ended))
        .collect();
    all.sort();
    let domain = Some(id(NameKind::Domain, "loader"));
    let mut wanted = vec![
        (1, name("forward"), Some(1), None, true),
        (1, name("batch"), Some(0), domain, true),
        (1, name("forward"), Some(1), None, true),
        (1, name("step"), Some(0), None, true),
        (1, name("forward"), Some(0), None, false),
        (2, name("other thread"), Some(0), None, true),
    ];
    wanted.sort();
    assert_eq!(all, wanted);
    assert!(texts(&rows, "kind").iter().all(|kind| kind == "push_pop"));
    let starts = values(&rows, "start_ns");
    assert!(numbers(&rows, "end_ns").iter().zip(starts).all(|(end, start)| end.is_none_or(|end| end >= start)));
    let names = batches(&folder.trace(), "names");
    assert!(texts(&names, "kind").contains(&"domain".to_owned()));
}

#[test]
fn a_range_with_a_number_ends_in_any_thread_and_keeps_what_was_said() {
    let folder = Folder::new("numbered");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    // The rings are read in the order of the rows: the end comes before its beginning.
    let (mut ends, mut starts) = (namer(&target, 1), namer(&target, 2));
    let domain = starts.say(text_kind::DOMAIN, "io");
    let read = starts.say(text_kind::RANGE, "read");
    starts.thread.text(text_kind::CATEGORY, domain, 7, "disk");
    let said = 7 | 0xff00_ff00 << 32;
    starts.event("nvtxRangeStartEx", 41, [read, domain, 5u64.wrapping_neg(), said], range::INTEGER | range::COLOR);
    starts.event("nvtxRangeStartEx", 42, [read, 0, 2.5f64.to_bits(), 7], range::FLOAT);
    ends.event("nvtxRangeEnd", 41, [0, domain, 0, 0], 0);
    ends.event("nvtxRangeEnd", 77, [0; 4], 0);
    starts.event("nvtxMarkA", 0, [0xdead, 0, 0, 0], 0);
    target.exit(0);
    let manifest = finish(running);
    let orphan = "1 ends of ranges without their beginnings".to_owned();
    assert!(manifest.processes[0].notes.contains(&orphan), "{:?}", manifest.processes[0].notes);
    assert_eq!(manifest.processes[0].accounting["range"].recorded, 5);

    let rows = batches(&folder.trace(), "ranges");
    let kinds = texts(&rows, "kind");
    let at = |kind: &str, nth: usize| (0..kinds.len()).filter(|i| kinds[*i] == kind).nth(nth).unwrap();
    let (first, second, mark) = (at("start_end", 0), at("start_end", 1), at("mark", 0));
    let of = |column: &str, row: usize| numbers(&rows, column)[row];
    assert_eq!((of("name_id", first), of("tid", first)), (name("read"), Some(2)));
    assert_eq!(of("domain_id", first), Some(id(NameKind::Domain, "io")));
    assert_eq!((of("payload_int", first), of("color", first)), (Some(-5), Some(0xff00_ff00)));
    assert_eq!((of("category", first), of("category_id", first)), (Some(7), Some(id(NameKind::Category, "disk"))));
    assert!(of("end_ns", first) >= of("start_ns", first) && of("level", first).is_none());
    // Another domain's category 7 has no name; the payload is no integer; it never ended.
    assert_eq!((of("category", second), of("category_id", second)), (Some(7), None));
    assert_eq!((of("payload_int", second), of("end_ns", second)), (None, None));
    // A key whose text never came is no name.
    assert_eq!((of("name_id", mark), of("end_ns", mark)), (None, of("start_ns", mark)));
}

#[test]
fn nothing_is_paired_across_lost_events() {
    let folder = Folder::new("gap");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut one = namer(&target, 1);
    for text in ["a", "b", "c"] {
        one.say(text_kind::RANGE, text);
    }
    one.push("a", 0);
    one.push("b", 0);
    one.count = one.count.wrapping_add(2); // the pops of b and a, or anything else
    one.push("c", 0);
    one.pop(0);
    one.pop(0);
    target.exit(0);
    let manifest = finish(running);
    assert_eq!(manifest.processes[0].accounting["range"].recorded, 5);
    let rows = batches(&folder.trace(), "ranges");
    let ended: Vec<_> =
        numbers(&rows, "name_id").into_iter().zip(numbers(&rows, "end_ns")).map(|(n, e)| (n, e.is_some())).collect();
    assert_eq!(ended, [(name("a"), false), (name("b"), false), (name("c"), true)]);
}

#[test]
fn a_forked_child_need_not_send_its_parents_names_again() {
    let folder = Folder::new("names-fork");
    let running = collect(&folder);
    let mut parent = Target::new(&folder.session());
    let mut one = namer(&parent, 1);
    one.say(text_kind::RANGE, "load");
    parent.wait_until_read();
    let mut child = Target::new(&folder.session());
    let mut two = namer(&child, 2);
    two.push("load", 0);
    two.pop(0);
    child.exit(0);
    parent.exit(0);
    assert_exact(&folder, &finish(running));
    assert_eq!(numbers(&batches(&folder.trace(), "ranges"), "name_id"), [name("load")]);
}
