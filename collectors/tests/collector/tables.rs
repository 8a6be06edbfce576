//! What stands in the rows.

use std::collections::HashMap;

use gputrace_abi::clock::counter;
use gputrace_abi::event::{Event, MemoryKind, memory_flags, pack_block, pack_grid, text_kind};
use gputrace_abi::layout::malloc_mode;
use gputrace_abi::stack;
use gputrace_collectors::names::{NameKind, id};

use crate::rows::{batches, count, flags, floats, numbers, texts, values};
use crate::support::{Folder, Memory, Target, hook};
use crate::{assert_exact, collect, finish};

const KERNEL: &str = "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_10NormTwoOpsIfffEEjfLi4EEEEEvT1_";

#[test]
fn every_class_becomes_a_row_of_its_table() {
    let folder = Folder::new("classes");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut thread = target.thread(41);
    thread.context(1, 2);
    thread.text(text_kind::FUNCTION, 0xf0, 0, KERNEL);
    thread.text(text_kind::THREAD, 41, 0, "worker");
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
    thread.call("cuLaunchKernel", [0xf0, 7, pack_grid(3, 2, 1), pack_block(128, 4, 1, 2048)]);
    thread.call("cuGraphLaunch", [0x99, 7, 0, 0]);
    thread.call("cuStreamSynchronize", [0, 7, 0, 0]);
    thread.call("cuModuleLoadData", [0x77, 0, 0, 0]);
    thread.call("cuStreamCreate", [0x66, 0, 0, 0]);
    let now = counter();
    thread.event(Event {
        hook: hook("cuLaunchKernel"),
        start: now,
        end: now,
        flags: gputrace_abi::event::FLAG_CAPTURED,
        result: 719,
        payload: [0xf1, 0, 0, 0],
        ..Event::default()
    });
    let pid = i64::from(target.pid);
    target.wait_until_read();
    running.root(target.pid as u32);
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);

    let trace = folder.trace();
    let launches = batches(&trace, "launches");
    let kernel = id(NameKind::Kernel, KERNEL);
    assert_eq!(numbers(&launches, "name_id"), [Some(kernel), None, None]);
    assert_eq!(numbers(&launches, "device"), [Some(2), Some(2), None]);
    assert_eq!(values(&launches, "context"), [1, 1, 0]);
    assert_eq!((values(&launches, "grid_x"), values(&launches, "grid_y")), (vec![3, 0, 0], vec![2, 0, 0]));
    assert_eq!((values(&launches, "block_x"), values(&launches, "block_y")), (vec![128, 0, 0], vec![4, 0, 0]));
    assert_eq!(values(&launches, "shared_bytes"), [2048, 0, 0]);
    assert_eq!(values(&launches, "stream"), [7, 7, 0]);
    assert_eq!(values(&launches, "result"), [0, 0, 719]);
    assert_eq!(flags(&launches, "captured"), [false, false, true]);
    assert_eq!((values(&launches, "pid"), values(&launches, "tid")), (vec![pid; 3], vec![41; 3]));
    let starts = values(&launches, "start_ns");
    assert!(starts.is_sorted() && (starts[0] - before).abs() < 20_000_000_000);
    let correlations = values(&launches, "correlation_id");
    assert_eq!((correlations[1] - correlations[0], correlations[2] - correlations[0]), (1, 5));

    assert_eq!(texts(&batches(&trace, "syncs"), "kind"), ["stream"]);
    let api = batches(&trace, "api");
    assert_eq!(texts(&api, "class"), ["module", "api"]);
    assert_eq!(values(&api, "handle"), [0x77, 0x66]);

    let names = batches(&trace, "names");
    let known: Vec<(i64, String)> = values(&names, "name_id").into_iter().zip(texts(&names, "name")).collect();
    assert!(known.contains(&(kernel, KERNEL.to_owned())));
    let api_ids = values(&api, "api_id");
    assert!(known.contains(&(api_ids[0], "cuModuleLoadData".to_owned())));

    let threads = batches(&trace, "threads");
    assert_eq!((texts(&threads, "name"), values(&threads, "events")), (vec!["worker".to_owned()], vec![6]));
    let processes = batches(&trace, "processes");
    assert_eq!(texts(&processes, "command"), ["train 'a b'"]);
    assert_eq!(texts(&processes, "exe"), ["/bin/train"]);
    assert_eq!(texts(&processes, "malloc_mode"), ["sample:524288"]);
    assert_eq!((numbers(&processes, "rank"), numbers(&processes, "local_rank")), (vec![Some(3)], vec![None]));
    assert_eq!((numbers(&processes, "exit_code"), values(&processes, "events")), (vec![Some(7)], vec![6]));
    assert!(floats(&processes, "event_cost_ns")[0] > 1.0);
    let root = manifest.root.unwrap();
    assert_eq!((root.process_id, root.exit_code), (Some(values(&processes, "process_id")[0]), Some(7)));
    assert_eq!(manifest.processes[0].coverage.hooks.len(), 5);
}

#[test]
fn a_thread_has_the_name_that_the_kernel_knows() {
    let folder = Folder::new("comm");
    let running = collect(&folder);
    // The child is born with the name of the thread that made it.
    let expected = std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim_end().to_owned();
    let mut target = Target::new(&folder.session());
    target.memory.view.header().pid.store(target.pid as u32, gputrace_abi::sync::Ordering::Relaxed);
    let mut thread = target.thread(target.pid as u32);
    thread.call("cuLaunchKernel", [0xf0, 7, pack_grid(3, 2, 1), pack_block(128, 4, 1, 2048)]);
    target.wait_until_read();
    target.exit(0);
    finish(running);
    assert_eq!(texts(&batches(&folder.trace(), "threads"), "name"), [expected]);
}

#[test]
fn copies_know_the_memory_at_both_ends() {
    let folder = Folder::new("copies");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let (mut one, mut two) = (target.thread(1), target.thread(2));
    one.call("cuMemAlloc_v2", [0x1000_0000, 0, 0, 4096]);
    two.call("cuMemHostAlloc", [0x2000_0000, 0, 0, 4096]);
    // The other thread copies what the first one allocated; its ring may be read first.
    two.call("cuMemcpyAsync", [0x1000_0010, 7, 0x2000_0010, 100]);
    two.call("cuMemcpyAsync", [0x5000, 7, 0x1000_0010, 101]);
    two.call("cuMemcpyPeerAsync", [0x1000_0010, 7, 0x1000_0010, 102]);
    one.call("cuMemsetD8_v2", [0x1000_0000, 0, 255, 103]);
    one.call("cuMemFree_v2", [0x1000_0000, 0, 0, 0]);
    // The address is not the driver's any more, and a name that says what it is wins over that.
    two.call("cuMemcpyAsync", [0x1000_0010, 7, 0x5000, 104]);
    let now = counter();
    let flags_of = memory_flags(MemoryKind::Host, MemoryKind::Array);
    two.event(Event {
        hook: hook("cuMemcpyAsync"),
        start: now,
        end: now,
        flags: flags_of,
        payload: [1, 7, 0x6000, 105],
        ..Event::default()
    });
    target.exit(0);
    assert_exact(&folder, &finish(running));

    let transfers = batches(&folder.trace(), "transfers");
    let bytes = values(&transfers, "bytes");
    let of = |column: &str, wanted: i64| {
        let at = bytes.iter().position(|b| *b == wanted).unwrap();
        texts(&transfers, column)[at].clone()
    };
    let row = |b: i64| [of("direction", b), of("src_kind", b), of("dst_kind", b)];
    assert_eq!(row(100), ["HtoD", "pinned", "device"]);
    assert_eq!(row(101), ["DtoH", "device", "pageable"]);
    assert_eq!(row(102), ["PtoP", "device", "device"]);
    assert_eq!(row(103), ["D", "-", "device"]);
    assert_eq!(row(104), ["HtoH", "pageable", "pageable"]);
    assert_eq!(row(105), ["HtoA", "pageable", "array"]);
    assert_eq!(flags(&transfers, "async").iter().filter(|a| !**a).count(), 1);

    let memory = batches(&folder.trace(), "device_memory");
    let rows: Vec<(String, String, i64)> = texts(&memory, "action")
        .into_iter()
        .zip(texts(&memory, "kind"))
        .zip(values(&memory, "bytes"))
        .map(|((a, k), b)| (a, k, b))
        .collect();
    assert!(rows.contains(&("free".into(), "device".into(), 4096)), "{rows:?}");
    assert!(rows.contains(&("alloc".into(), "pinned".into(), 4096)));
}

#[test]
fn a_launch_has_the_name_that_its_handle_had_then() {
    let folder = Folder::new("names");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let (mut one, mut two) = (target.thread(1), target.thread(2));
    one.text(text_kind::FUNCTION, 0xf0, 0, "first");
    two.call("cuLaunchKernel", [0xf0, 0, 0, 0]);
    one.text(text_kind::FUNCTION, 0xf0, 0, "second");
    two.call("cuLaunchKernel", [0xf0, 0, 0, 0]);
    one.text(text_kind::ALIAS, 0xe0, 0xf0, "");
    two.call("cuLaunchKernel", [0xe0, 0, 0, 0]);
    // A name that is learned in the launch itself is written before the launch, but later than its start.
    let start = counter();
    two.text(text_kind::FUNCTION, 0xf0, 0, "third");
    two.event(Event {
        hook: hook("cuLaunchKernel"),
        start,
        end: counter(),
        payload: [0xf0, 0, 0, 0],
        ..Event::default()
    });
    target.exit(0);
    assert_exact(&folder, &finish(running));
    let wanted = ["first", "second", "second", "third"].map(|n| Some(id(NameKind::Kernel, n)));
    assert_eq!(numbers(&batches(&folder.trace(), "launches"), "name_id"), wanted);
}

#[test]
fn chains_of_many_chunks_are_read_in_order() {
    let folder = Folder::new("chunks");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    for n in 0..50_000 {
        while !thread.reserve(1) {
            std::thread::yield_now();
        }
        thread.call("cuLaunchKernel", [n, 0, 0, 0]);
    }
    thread.exit();
    target.exit(0);
    assert_exact(&folder, &finish(running));
    let launches = batches(&folder.trace(), "launches");
    assert_eq!(values(&launches, "function"), (0..50_000).collect::<Vec<i64>>());
    assert!(values(&launches, "start_ns").is_sorted());
}

#[test]
fn sampled_allocations_carry_their_weight_and_frees_their_size() {
    let folder = Folder::new("malloc");
    let running = collect(&folder);
    let mut target = Target::with(&folder.session(), Memory::new(16 << 20, malloc_mode::SAMPLE));
    let (mut one, mut two) = (target.thread(1), target.thread(2));
    one.call("malloc", [0x1000, 0, 0, 1 << 20]);
    two.call("free", [0x1000, 0, 0, 0]);
    two.call("free", [0x2000, 0, 0, 0]);
    let now = counter();
    one.event(Event { hook: hook("malloc"), start: now, end: now, payload: [0x3000, 0, 0, 0], ..Event::default() });
    target.exit(0);
    assert_exact(&folder, &finish(running));
    let host = batches(&folder.trace(), "host_memory");
    let mut rows: Vec<_> = values(&host, "address")
        .into_iter()
        .zip(texts(&host, "action"))
        .zip(values(&host, "bytes"))
        .zip(floats(&host, "weight_bytes"))
        .map(|(((address, action), bytes), weight)| (address, action, bytes, weight as i64))
        .collect();
    rows.sort();
    let weight = ((1 << 20) as f64 / (1.0 - (-2.0f64).exp())) as i64;
    let row = |address, action: &str, bytes, weight| (address, action.to_owned(), bytes, weight);
    let wanted = [
        row(0x1000, "alloc", 1 << 20, weight),
        row(0x1000, "free", 1 << 20, weight),
        row(0x2000, "free", 0, 0),
        row(0x3000, "alloc", 0, 0),
    ];
    assert_eq!(rows, wanted);
    assert_eq!(numbers(&host, "api_ns").iter().filter(|n| n.is_none()).count(), 1);
}

#[test]
fn an_allocation_says_its_stack_and_a_free_that_of_its_block_and_how_long_it_lived() {
    let folder = Folder::new("blocks");
    let running = collect(&folder);
    let mut target = Target::with(&folder.session(), Memory::new(16 << 20, malloc_mode::FULL));
    let (mut one, mut two) = (target.thread(1), target.thread(2));
    // The stack was told of by another thread.
    let frame = stack::Frame { number: 5, key: 1, offset: 1 };
    assert!(two.bytes(text_kind::STACK, 77, 0, &[&[0; 16][..], &frame.to_bytes()].concat()));
    one.call("malloc", [0x1000, 0, 77, 16]);
    two.call("free", [0x1000, 0, 0, 0]);
    one.call("malloc", [0x1000, 0, 0, 32]);
    one.call("malloc", [0x2000, 0, 78, 48]);
    two.call("free", [0x1000, 0, 0, 0]);
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let host = batches(&folder.trace(), "host_memory");
    let (starts, ages) = (values(&host, "start_ns"), numbers(&host, "age_ns"));
    let stacks = numbers(&host, "stack_id");
    let of = |bytes: i64, action: &str| {
        let mut rows = values(&host, "bytes").into_iter().zip(texts(&host, "action"));
        let row = rows.position(|row| row == (bytes, action.to_owned())).unwrap();
        (starts[row], ages[row], stacks[row])
    };
    let stack = of(16, "alloc").2;
    assert!(stack.is_some() && values(&batches(&folder.trace(), "stacks"), "stack_id").contains(&stack.unwrap()));
    for (bytes, stack) in [(16, stack), (32, None)] {
        let (alloc, free) = (of(bytes, "alloc"), of(bytes, "free"));
        assert_eq!(alloc, (alloc.0, None, stack));
        assert_eq!(free, (free.0, Some(free.0 - alloc.0), stack));
    }
    // Its stack was never described.
    assert_eq!((of(48, "alloc").2, manifest.processes[0].stacks.lost), (None, 1));
    assert_eq!(values(&host, "calls"), [1; 5]);
}

#[test]
fn a_free_whose_clock_was_read_behind_that_of_who_got_the_block_next_is_of_the_block_before() {
    let folder = Folder::new("displaced");
    let running = collect(&folder);
    let mut target = Target::with(&folder.session(), Memory::new(16 << 20, malloc_mode::FULL));
    let (mut one, mut two) = (target.thread(1), target.thread(2));
    let begin = counter();
    let event = |name: &str, at: u64, payload: [u64; 4]| {
        let at = begin + at;
        Event { hook: hook(name), start: at, end: at, payload, ..Event::default() }
    };
    one.event(event("malloc", 0, [0x1000, 0, 0, 16]));
    two.event(event("malloc", 1_000, [0x1000, 0, 0, 32]));
    one.event(event("free", 1_010, [0x1000, 0, 0, 0]));
    two.event(event("free", 1_020, [0x1000, 0, 0, 0]));
    // Nobody saw who freed this one, and long after that it is not another one's free.
    one.event(event("malloc", 2_000, [0x2000, 0, 0, 48]));
    two.event(event("malloc", 2_010, [0x2000, 0, 0, 64]));
    one.event(event("free", 1_000_000_000, [0x2000, 0, 0, 0]));
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let host = batches(&folder.trace(), "host_memory");
    let rows = texts(&host, "action").into_iter().zip(numbers(&host, "tid")).zip(values(&host, "bytes"));
    let frees: Vec<(Option<i64>, i64)> =
        rows.filter(|((action, _), _)| action == "free").map(|((_, tid), bytes)| (tid, bytes)).collect();
    assert_eq!(frees, [(Some(1), 16), (Some(2), 32), (Some(1), 64)]);
    assert!(numbers(&host, "age_ns").iter().filter(|age| age.is_some()).count() == 3);
}

#[test]
fn a_frame_is_one_row_with_all_that_called_it_and_what_has_no_end_is_no_stack() {
    let folder = Folder::new("callers");
    let running = collect(&folder);
    let mut target = Target::with(&folder.session(), Memory::new(16 << 20, malloc_mode::FULL));
    let mut one = target.thread(1);
    let mut tell_both = |key: u64, number: u64, callers: stack::Callers, frames: &[u64]| {
        let frames = frames.iter().map(|number| stack::Frame { number: *number, key: 0, offset: 0x1000 * number });
        let text: Vec<u8> = callers.to_bytes().into_iter().chain(frames.flat_map(|frame| frame.to_bytes())).collect();
        assert!(one.bytes(text_kind::STACK, key, number, &text));
    };
    // What is called in two places, as if nobody had, before them and in between.
    tell_both(0, 0, stack::Callers::default(), &[11, 10]);
    tell_both(78, 0, stack::Callers { outer: 72, inner: 11 }, &[12]);
    tell_both(79, 0, stack::Callers { outer: 90, inner: 12 }, &[]);
    tell_both(80, 0, stack::Callers { outer: 90, inner: 10 }, &[]);
    tell_both(90, 0, stack::Callers { outer: 0, inner: 1 }, &[]);
    // Called by what was not told of, and by what was called itself.
    tell_both(81, 0, stack::Callers { outer: 99, inner: 10 }, &[]);
    tell_both(82, 0, stack::Callers { outer: 80, inner: 10 }, &[]);
    let mut tell = |key: u64, number: u64, inner: u64, frames: &[u64]| {
        tell_both(key, number, stack::Callers { outer: 0, inner }, frames);
    };
    tell(70, stack::CUT, 0, &[3, 2, 1]);
    tell(71, 0, 2, &[4]);
    tell(72, 0, 2, &[]);
    // Told of by two threads at once, and read in this order.
    tell(77, 0, 6, &[]);
    tell(77, 0, 0, &[6]);
    // What was told stands, whoever tells it otherwise.
    tell(73, 0, 1, &[4]);
    // A frame that calls itself, one that nobody told of, and a text that is none.
    tell(74, 0, 9, &[9]);
    tell(75, 0, 88, &[5]);
    assert!(one.bytes(text_kind::STACK, 76, 0, &[1; 7]));
    for (key, bytes) in (70..83).zip(1..) {
        one.call("malloc", [0x1000 * key, 0, key, bytes]);
    }
    target.exit(0);
    let manifest = finish(running);
    assert_exact(&folder, &manifest);
    let host = batches(&folder.trace(), "host_memory");
    let of: HashMap<i64, Option<i64>> = values(&host, "bytes").into_iter().zip(numbers(&host, "stack_id")).collect();
    let stacks = batches(&folder.trace(), "stacks");
    let callers: HashMap<i64, Option<i64>> =
        values(&stacks, "stack_id").into_iter().zip(numbers(&stacks, "caller_id")).collect();
    assert_eq!((callers.len(), values(&stacks, "stack_id").len()), (11, 11));
    assert_eq!(callers.get(&of[&8].expect("a stack")), Some(&None));
    let [inner, other, middle] = [1, 2, 3].map(|bytes| of[&bytes].expect("a stack"));
    assert_eq!([inner, other].map(|stack| callers[&stack]), [Some(middle); 2]);
    let root = callers[&middle].expect("a caller");
    assert_eq!((callers[&root], of[&4]), (None, Some(other)));
    let cut: Vec<i64> = values(&stacks, "stack_id")
        .into_iter()
        .zip(flags(&stacks, "cut"))
        .filter(|(_, cut)| *cut)
        .map(|(id, _)| id)
        .collect();
    assert_eq!(cut, [root]);
    assert_eq!([5, 6, 7].map(|bytes| of[&bytes]), [None; 3]);
    let outer: HashMap<i64, Option<i64>> =
        values(&stacks, "stack_id").into_iter().zip(numbers(&stacks, "outer_id")).collect();
    let joined = [9, 10, 11].map(|bytes| of[&bytes].expect("a stack"));
    assert_eq!(joined.map(|id| outer[&id]), [Some(middle), Some(root), Some(root)]);
    let called = callers[&joined[0]].expect("what called the innermost");
    assert_eq!((callers[&joined[1]], callers[&joined[2]]), (Some(called), None));
    assert!(outer[&called].is_none() && callers[&callers[&called].expect("the outermost")].is_none());
    assert_eq!([12, 13].map(|bytes| of[&bytes]), [None; 2]);
    assert_eq!(manifest.processes[0].stacks.lost, 5);
}

#[test]
fn mapped_memory_is_given_back_piece_by_piece() {
    let folder = Folder::new("mapped");
    let running = collect(&folder);
    let mut target = Target::with(&folder.session(), Memory::new(16 << 20, malloc_mode::SAMPLE));
    let mut one = target.thread(1);
    one.call("mmap", [0x10000, 3, 0, 0x4000]);
    one.call("mmap", [0x20000, 0, 0, 0x1000]);
    // Of a block of malloc's the address says nothing about regions.
    one.call("malloc", [0x10000, 0, 0, 1 << 30]);
    one.call("munmap", [0x11000, 0, 0, 0x1000]);
    target.exit(0);
    assert_exact(&folder, &finish(running));
    let host = batches(&folder.trace(), "host_memory");
    let sizes = values(&host, "bytes").into_iter().zip(floats(&host, "weight_bytes").into_iter().map(|w| w as i64));
    let rows: Vec<_> = texts(&host, "action").into_iter().zip(values(&host, "address")).zip(sizes).collect();
    let row = |action: &str, address, bytes, weight| ((action.to_owned(), address), (bytes, weight));
    let wanted = [
        row("map", 0x10000, 0x4000, 0x4000),
        row("reserve", 0x20000, 0x1000, 0),
        row("alloc", 0x10000, 1 << 30, 1 << 30),
        row("unmap", 0x11000, 0x1000, 0x1000),
    ];
    assert_eq!(rows, wanted);
}

#[test]
fn a_process_without_events_has_its_row_and_no_other_file() {
    let folder = Folder::new("quiet");
    let running = collect(&folder);
    let mut target = Target::new(&folder.session());
    target.thread(1);
    target.exit(0);
    let manifest = finish(running);
    assert_eq!((manifest.processes.len(), manifest.complete), (1, true));
    let mut entries: Vec<_> = std::fs::read_dir(folder.trace()).unwrap().map(|e| e.unwrap().file_name()).collect();
    entries.sort();
    assert_eq!(entries, ["manifest", "processes"]);
    assert_eq!(count(&folder.trace(), "processes"), 1);
}
