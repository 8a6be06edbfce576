//! What the records say, by version, and of which calls there are any.

mod common;

use std::collections::{BTreeSet, HashMap};

use common::{Cuda, Cupti, Gate, KERNEL, MEMCPY, MEMCPY2, MEMSET, NON_BLOCKING, Record, alone, at, first};

const ALL: &[u64] = &[KERNEL, MEMCPY, MEMSET];

fn captured(cuda: &Cuda, stream: u64, work: impl FnOnce()) -> u64 {
    let mut graph = 0u64;
    cuda.ok("cuStreamBeginCapture_v2", &[stream, 2]);
    work();
    cuda.ok("cuStreamEndCapture", &[stream, at(&mut graph)]);
    graph
}

fn synchronized(cuda: &Cuda, cupti: &Cupti) -> Vec<Record> {
    cuda.ok("cuCtxSynchronize", &[]);
    cupti.flushed(&first())
}

#[test]
fn kernels_copies_and_sets_have_records_that_say_what_they_were() {
    alone(&[], |cuda, cupti| {
        let stream = cuda.stream(NON_BLOCKING);
        let (kernel, memory) = (cuda.kernel("spin_us_20"), cuda.make("cuMemAlloc_v2", &[4096]));
        let pinned = cuda.make("cuMemAllocHost_v2", &[4096]);
        let mut pageable = [0u8; 100];
        assert_eq!(cuda.launch(kernel, stream), 0);
        cupti.register(&first());
        cupti.enable(ALL);
        cuda.ok("cuLaunchKernel", &[kernel, 2, 3, 4, 32, 2, 1, 64, stream, 0, 0]);
        assert_eq!(cuda.launch(kernel, 0), 0);
        cuda.ok("cuMemcpyHtoDAsync_v2", &[memory, pinned, 1000, stream]);
        cuda.ok("cuMemcpyDtoH_v2", &[at(&mut pageable), memory, 100]);
        cuda.ok("cuMemcpyDtoDAsync_v2", &[memory, memory + 2048, 512, stream]);
        cuda.ok("cuMemsetD32Async", &[memory, 7, 100, stream]);
        let mut records = synchronized(cuda, cupti);
        records.sort_by_key(Record::origin);
        let ids: Vec<u32> = records.iter().map(|record| record.origin().0).collect();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6], "the launch before the first enable is not counted");
        let mine = records[0].origin().2;
        assert!(mine > 7);
        let streams: Vec<u32> = records.iter().map(|record| record.origin().2).collect();
        assert_eq!(streams, [mine, 7, mine, 7, mine, mine]);
        assert!(records.iter().all(|record| record.origin().1 == 1 && record.graph() == (0, 0)));
        let k = &records[0];
        assert_eq!([52, 56, 60, 64, 68, 72, 80].map(|field| k.u32(field)), [2, 3, 4, 32, 2, 1, 64]);
        assert_eq!((k.u8(6), k.kernel_name().as_str(), k.times().1 - k.times().0), (32, "spin_us_20", 20_000));
        let copies: Vec<_> = records[2..5].iter().map(|c| (c.u64(8), c.u8(4), c.u8(5), c.u8(6))).collect();
        assert_eq!(copies, [(1000, 1, 2, 3), (100, 2, 3, 1), (512, 8, 3, 3)]);
        assert_eq!((records[5].u64(8), records[5].u32(4)), (400, 7));
    });
}

#[test]
fn copies_say_whose_memory_they_touch_and_those_between_devices_are_of_their_own_kind() {
    alone(&[("FAKE_CUDA_DEVICES", "2")], |cuda, cupti| {
        let memory = cuda.make("cuMemAlloc_v2", &[4096]);
        let managed = cuda.make("cuMemAllocManaged", &[4096, 1]);
        let mut descriptor = [64usize, 0, 0x1_0000_0001]; // a row of 64 bytes
        let array = cuda.make("cuArrayCreate_v2", &[at(&mut descriptor)]);
        let mut first_context = 0u64;
        cuda.ok("cuCtxGetCurrent", &[at(&mut first_context)]);
        let second_context = cuda.make("cuDevicePrimaryCtxRetain", &[1]);
        cuda.ok("cuCtxSetCurrent", &[second_context]);
        let (other, kernel) = (cuda.make("cuMemAlloc_v2", &[4096]), cuda.kernel("spin_us_1"));
        cupti.register(&first());
        cupti.enable(&[KERNEL, MEMCPY, MEMCPY2]);
        assert_eq!(cuda.launch(kernel, 0), 0);
        cuda.ok("cuCtxSynchronize", &[]);
        cuda.ok("cuCtxSetCurrent", &[first_context]);
        cuda.ok("cuMemcpyPeer", &[other, second_context, memory, first_context, 640]);
        cuda.ok("cuMemcpyPeer", &[memory, first_context, memory + 64, first_context, 64]);
        cuda.ok("cuMemcpyDtoD_v2", &[managed, memory, 32]);
        cuda.ok("cuMemcpyDtoA_v2", &[array, 0, memory, 16]);
        let records = synchronized(cuda, cupti);
        let [kernel, peer, within, managed, array] = &records[..] else { panic!("{records:?}") };
        assert_eq!((kernel.u32(40), kernel.origin().1), (1, 2), "the second device and context");
        assert_ne!(kernel.origin().2, 7);
        assert_eq!((peer.kind(), peer.u64(8), peer.u8(4), peer.u32(60)), (MEMCPY2, 640, 10, 2));
        assert_eq!((peer.u32(44), peer.u32(52)), (0, 1), "from the first device to the second");
        let copied = |copy: &Record| (copy.kind(), copy.u64(8), copy.u8(4), copy.u8(5), copy.u8(6));
        assert_eq!(copied(within), (MEMCPY, 64, 8, 3, 3));
        assert_eq!(copied(managed), (MEMCPY, 32, 8, 3, 5));
        assert_eq!(copied(array), (MEMCPY, 16, 7, 3, 4));
    });
}

#[test]
fn threads_share_one_count_and_lose_no_record_while_another_flushes() {
    const THREADS: usize = 4;
    const LAUNCHES: usize = 500;
    alone(&[], |cuda, cupti| {
        let mut context = 0u64;
        cuda.ok("cuCtxGetCurrent", &[at(&mut context)]);
        let kernel = cuda.kernel("spin_ns_100");
        cupti.register(&first());
        cupti.enable(&[KERNEL]);
        std::thread::scope(|scope| {
            let launcher = || {
                cuda.ok("cuCtxSetCurrent", &[context]);
                let stream = cuda.stream(NON_BLOCKING);
                (0..LAUNCHES).for_each(|_| assert_eq!(cuda.launch(kernel, stream), 0));
                cuda.ok("cuStreamSynchronize", &[stream]);
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(launcher)).collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                cupti.ok("cuptiActivityFlushAll", &[0]);
            }
        });
        let records = synchronized(cuda, cupti);
        let ids: BTreeSet<u32> = records.iter().map(|record| record.origin().0).collect();
        assert_eq!((records.len(), ids.len()), (THREADS * LAUNCHES, THREADS * LAUNCHES));
        assert_eq!(ids.last(), Some(&((THREADS * LAUNCHES) as u32)));
        let mut last = HashMap::new();
        for record in &records {
            let (id, _, stream) = record.origin();
            assert!(last.insert(stream, id).is_none_or(|before| before < id), "a stream's records are in order");
        }
    });
}

#[test]
fn calls_that_are_captured_or_move_nothing_count_and_have_no_record() {
    alone(&[], |cuda, cupti| {
        let (stream, kernel) = (cuda.stream(NON_BLOCKING), cuda.kernel("spin_us_1"));
        let memory = cuda.make("cuMemAlloc_v2", &[4096]);
        cupti.register(&first());
        cupti.enable(&[KERNEL]);
        captured(cuda, stream, || (0..3).for_each(|_| assert_eq!(cuda.launch(kernel, stream), 0)));
        cuda.ok("cuMemsetD8Async", &[memory, 1, 0, stream]);
        cuda.ok("cuMemsetD8Async", &[memory, 1, 8, stream]);
        let event = cuda.event();
        cuda.ok("cuEventRecord", &[event, stream]);
        assert_eq!(cuda.launch(kernel, stream), 0);
        let records = synchronized(cuda, cupti);
        let ids: Vec<u32> = records.iter().map(|record| record.origin().0).collect();
        assert_eq!(
            ids,
            [6],
            "three captured launches, a set of nothing and a set whose kind is not enabled come before"
        );
    });
}

#[test]
fn the_nodes_of_a_graph_launch_share_its_number_and_have_their_own() {
    alone(&[], |cuda, cupti| {
        let (stream, kernel) = (cuda.stream(NON_BLOCKING), cuda.kernel("spin_us_10"));
        let memory = cuda.make("cuMemAlloc_v2", &[4096]);
        let inner = captured(cuda, stream, || (0..2).for_each(|_| assert_eq!(cuda.launch(kernel, stream), 0)));
        let graph = captured(cuda, stream, || {
            assert_eq!(cuda.launch(kernel, stream), 0);
            cuda.ok("cuMemsetD8Async", &[memory, 1, 8, stream]);
        });
        let mut child = 0u64;
        cuda.ok("cuGraphAddChildGraphNode", &[at(&mut child), graph, 0, 0, inner]);
        let exec = cuda.make("cuGraphInstantiateWithFlags", &[graph, 0]);
        cupti.register(&first());
        cupti.enable(ALL);
        (0..2).for_each(|_| cuda.ok("cuGraphLaunch", &[exec, stream]));
        let mut records = synchronized(cuda, cupti);
        records.sort_by_key(|record| (record.origin().0, record.graph()));
        let number = records[0].graph().0;
        assert_ne!(number, 0);
        let told: Vec<_> = records.iter().map(|r| (r.origin().0, r.kind(), r.graph().0, r.graph().1)).collect();
        let node = |index: u64| u64::from(number) << 32 | index;
        let launch =
            |id| [(0, KERNEL), (1, MEMSET), (3, KERNEL), (4, KERNEL)].map(|(i, kind)| (id, kind, number, node(i)));
        assert_eq!(told, [launch(1), launch(2)].concat(), "the graph inside is a node too, without a record");
    });
}

#[test]
fn operations_that_have_not_ended_are_delivered_later() {
    alone(&[], |cuda, cupti| {
        let (stream, kernel) = (cuda.stream(NON_BLOCKING), cuda.kernel("spin_us_1"));
        cupti.register(&first());
        cupti.enable(&[KERNEL]);
        assert_eq!(cuda.launch(kernel, stream), 0);
        cuda.ok("cuStreamSynchronize", &[stream]);
        let gate = Gate::close(cuda, stream);
        assert_eq!(cuda.launch(kernel, stream), 0);
        assert_eq!(cupti.flushed(&first()).len(), 1);
        cupti.disable(&[KERNEL]);
        assert_eq!(cuda.launch(kernel, stream), 0);
        gate.open();
        let later = synchronized(cuda, cupti);
        assert_eq!(later.len(), 1, "its launch was made while kernels were enabled, the last one's was not");
        assert_eq!(later[0].origin().0, 2);
    });
}

#[test]
fn records_have_the_size_of_their_version() {
    let sizes = [
        ("11.8", 18, 200, 88, 88),
        ("12.1", 18, 208, 88, 88),
        ("12.4", 22, 208, 88, 88),
        ("12.6", 24, 208, 88, 88),
        ("12.8", 26, 208, 96, 88),
        ("13.0", 130_001, 216, 96, 88),
        ("13.5", 130_500, 248, 112, 104),
    ];
    for (version, api, kernel, memcpy, memset) in sizes {
        alone(&[("FAKE_CUPTI_VERSION", version)], |cuda, cupti| {
            if std::env::var("FAKE_CUPTI_VERSION").as_deref() != Ok(version) {
                return;
            }
            let mut answer = 0u32;
            cupti.ok("cuptiGetVersion", &[at(&mut answer)]);
            assert_eq!(answer, api);
            let memory = cuda.make("cuMemAlloc_v2", &[64]);
            cupti.register(&first());
            cupti.enable(ALL);
            assert_eq!(cuda.launch(cuda.kernel("spin_us_1"), 0), 0);
            cuda.ok("cuMemcpyDtoD_v2", &[memory, memory + 32, 32]);
            cuda.ok("cuMemsetD8_v2", &[memory, 1, 32]);
            let told: Vec<_> = synchronized(cuda, cupti).iter().map(|r| (r.kind(), r.bytes.len())).collect();
            assert_eq!(told, [(KERNEL, kernel), (MEMCPY, memcpy), (MEMSET, memset)]);
        });
    }
}
