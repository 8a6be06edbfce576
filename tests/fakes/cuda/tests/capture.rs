//! Graphs, and the strictness of stream capture.

mod common;

use common::{Cuda, NON_BLOCKING, at};

const GLOBAL: u64 = 0;
const THREAD_LOCAL: u64 = 1;
const RELAXED: u64 = 2;
const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;

fn begin(cuda: &Cuda, flags: u64, mode: u64) -> u64 {
    let stream = cuda.stream(flags);
    cuda.ok("cuStreamBeginCapture_v2", &[stream, mode]);
    stream
}

fn end(cuda: &Cuda, stream: u64) -> (u32, u64) {
    let mut graph = 0u64;
    (cuda.call("cuStreamEndCapture", &[stream, at(&mut graph)]), graph)
}

fn nodes(cuda: &Cuda, graph: u64) -> usize {
    let mut count = 0usize;
    cuda.ok("cuGraphGetNodes", &[graph, 0, at(&mut count)]);
    count
}

#[test]
fn captured_work_runs_when_the_graph_is_launched_and_not_before() {
    let cuda = Cuda::start(&[]);
    let (memory, pinned) = (cuda.make("cuMemAlloc_v2", &[256]), cuda.make("cuMemAllocHost_v2", &[256]));
    cuda.ok("cuMemsetD8_v2", &[memory, 1, 256]);
    let kernel = cuda.kernel("spin_us_3000");
    let stream = begin(&cuda, NON_BLOCKING, GLOBAL);
    cuda.ok("cuMemsetD8Async", &[memory, 5, 256, stream]);
    assert_eq!(cuda.launch(kernel, stream), 0);
    cuda.ok("cuMemcpyDtoHAsync_v2", &[pinned, memory, 256, stream]);
    let (code, graph) = end(&cuda, stream);
    assert_eq!((code, nodes(&cuda, graph)), (0, 3));
    let mut byte = 0u8;
    cuda.ok("cuMemcpyDtoH_v2", &[at(&mut byte), memory, 1]);
    assert_eq!(byte, 1, "nothing was executed");
    let exec = cuda.make("cuGraphInstantiateWithFlags", &[graph, 0]);
    let (start, done) = (cuda.event(), cuda.event());
    for _ in 0..2 {
        cuda.ok("cuEventRecord", &[start, stream]);
        cuda.ok("cuGraphLaunch", &[exec, stream]);
        cuda.ok("cuEventRecord", &[done, stream]);
        cuda.ok("cuStreamSynchronize", &[stream]);
        assert!(cuda.elapsed_ms(start, done) >= 3.0);
    }
    // SAFETY: 256 bytes of pinned memory stand there, and the device has finished.
    assert_eq!(unsafe { *(pinned as *const [u8; 256]) }, [5; 256]);
    cuda.ok("cuGraphExecDestroy", &[exec]);
    cuda.ok("cuGraphDestroy", &[graph]);
    assert_eq!(cuda.call("cuGraphLaunch", &[exec, stream]), 1);
}

#[test]
fn events_fork_and_join_captured_streams_and_the_branches_run_beside_each_other() {
    let cuda = Cuda::start(&[]);
    let kernel = cuda.kernel("spin_us_4000");
    let (fork, join, side) = (cuda.event(), cuda.event(), cuda.stream(NON_BLOCKING));
    let stream = begin(&cuda, NON_BLOCKING, GLOBAL);
    cuda.ok("cuEventRecord", &[fork, stream]);
    cuda.ok("cuStreamWaitEvent", &[side, fork, 0]);
    assert_eq!((cuda.launch(kernel, side), cuda.launch(kernel, stream)), (0, 0));
    cuda.ok("cuEventRecord", &[join, side]);
    let mut status = 0u32;
    cuda.ok("cuStreamIsCapturing", &[side, at(&mut status)]);
    assert_eq!(status, 1);
    assert_eq!(cuda.call("cuEventQuery", &[join]), 907, "a captured event has no time to pass");
    cuda.ok("cuStreamWaitEvent", &[stream, join, 0]);
    assert_eq!(cuda.launch(kernel, stream), 0);
    let (code, graph) = end(&cuda, stream);
    assert_eq!((code, nodes(&cuda, graph)), (0, 3));
    cuda.ok("cuStreamIsCapturing", &[side, at(&mut status)]);
    assert_eq!(status, 0);
    let exec = cuda.make("cuGraphInstantiateWithFlags", &[graph, 0]);
    cuda.ok("cuEventRecord", &[fork, stream]);
    cuda.ok("cuGraphLaunch", &[exec, stream]);
    cuda.ok("cuEventRecord", &[join, stream]);
    cuda.ok("cuStreamSynchronize", &[stream]);
    let ms = cuda.elapsed_ms(fork, join);
    assert!(ms >= 8.0, "two after each other: {ms}");
}

#[test]
fn a_stream_that_was_not_joined_spoils_the_capture() {
    let cuda = Cuda::start(&[]);
    let (kernel, fork, side) = (cuda.kernel("spin_us_1"), cuda.event(), cuda.stream(NON_BLOCKING));
    let stream = begin(&cuda, NON_BLOCKING, GLOBAL);
    cuda.ok("cuEventRecord", &[fork, stream]);
    cuda.ok("cuStreamWaitEvent", &[side, fork, 0]);
    assert_eq!(cuda.launch(kernel, side), 0);
    assert_eq!(end(&cuda, stream), (904, 0));
    assert_eq!(cuda.launch(kernel, side), 0, "and is free again");
    cuda.ok("cuStreamSynchronize", &[side]);
}

#[test]
fn calls_that_could_disturb_a_global_capture_fail_and_spoil_it() {
    let cuda = Cuda::start(&[]);
    let (memory, event, other) = (cuda.make("cuMemAlloc_v2", &[256]), cuda.event(), cuda.stream(NON_BLOCKING));
    cuda.ok("cuEventRecord", &[event, other]);
    let mut result = 0u64;
    let unsafe_calls: [(&str, &[u64]); 7] = [
        ("cuMemAlloc_v2", &[at(&mut result), 16]),
        ("cuMemFree_v2", &[memory]),
        ("cuMemAllocHost_v2", &[at(&mut result), 16]),
        ("cuEventQuery", &[event]),
        ("cuEventSynchronize", &[event]),
        ("cuStreamQuery", &[other]),
        ("cuCtxSynchronize", &[]),
    ];
    for (name, arguments) in unsafe_calls {
        let stream = begin(&cuda, NON_BLOCKING, GLOBAL);
        let code = std::thread::scope(|scope| {
            let context = cuda.make("cuCtxGetCurrent", &[]);
            let cuda = &cuda;
            let call = move || {
                cuda.ok("cuCtxSetCurrent", &[context]);
                cuda.call(name, arguments)
            };
            scope.spawn(call).join().expect("no panic")
        });
        assert_eq!(code, UNSUPPORTED, "{name} from another thread");
        assert_eq!(cuda.call("cuMemsetD8Async", &[memory, 0, 1, stream]), INVALIDATED, "{name}");
        assert_eq!(end(&cuda, stream), (INVALIDATED, 0), "{name}");
        assert_eq!(end(&cuda, stream).0, 401, "it is over");
    }
    cuda.ok("cuMemFree_v2", &[memory]);
}

#[test]
fn a_relaxed_thread_may_make_such_calls_and_a_thread_local_capture_binds_its_own_thread_only() {
    let cuda = Cuda::start(&[]);
    let event = cuda.event();
    let stream = begin(&cuda, NON_BLOCKING, GLOBAL);
    let mut mode = RELAXED;
    cuda.ok("cuThreadExchangeStreamCaptureMode", &[at(&mut mode)]);
    assert_eq!(mode, GLOBAL);
    cuda.ok("cuEventQuery", &[event]);
    cuda.make("cuMemAlloc_v2", &[16]);
    cuda.ok("cuThreadExchangeStreamCaptureMode", &[at(&mut mode)]);
    assert_eq!(mode, RELAXED);
    assert_eq!(end(&cuda, stream).0, 0);

    let stream = begin(&cuda, NON_BLOCKING, THREAD_LOCAL);
    let context = cuda.make("cuCtxGetCurrent", &[]);
    std::thread::scope(|scope| {
        let cuda = &cuda;
        scope.spawn(move || {
            cuda.ok("cuCtxSetCurrent", &[context]);
            cuda.make("cuMemAlloc_v2", &[16]);
        });
    });
    assert_eq!(cuda.call("cuEventQuery", &[event]), UNSUPPORTED);
    assert_eq!(end(&cuda, stream), (INVALIDATED, 0));

    let stream = begin(&cuda, NON_BLOCKING, RELAXED);
    cuda.ok("cuEventQuery", &[event]);
    assert_eq!(cuda.call("cuStreamSynchronize", &[stream]), UNSUPPORTED, "its own stream cannot be waited for");
    assert_eq!(end(&cuda, stream), (INVALIDATED, 0));
}

#[test]
fn the_legacy_stream_is_taboo_while_a_blocking_stream_is_captured() {
    let cuda = Cuda::start(&[]);
    let (kernel, memory) = (cuda.kernel("spin_us_1"), cuda.make("cuMemAlloc_v2", &[16]));
    let mut byte = 0u8;
    let stream = begin(&cuda, 0, RELAXED);
    assert_eq!(cuda.launch(kernel, 0), 906);
    assert_eq!(end(&cuda, stream), (INVALIDATED, 0));
    let stream = begin(&cuda, 0, RELAXED);
    assert_eq!(cuda.call("cuMemcpyDtoH_v2", &[at(&mut byte), memory, 1]), 906);
    assert_eq!(end(&cuda, stream), (INVALIDATED, 0));
    let stream = begin(&cuda, NON_BLOCKING, RELAXED);
    assert_eq!(cuda.launch(kernel, 0), 0);
    assert_eq!(end(&cuda, stream).0, 0);
    assert_eq!(cuda.call("cuStreamBeginCapture_v2", &[0, RELAXED]), UNSUPPORTED);
}

#[test]
fn a_capture_is_not_entered_by_uncaptured_events_nor_ended_elsewhere() {
    let cuda = Cuda::start(&[]);
    let (event, other) = (cuda.event(), cuda.stream(NON_BLOCKING));
    cuda.ok("cuEventRecord", &[event, other]);
    let stream = begin(&cuda, NON_BLOCKING, GLOBAL);
    assert_eq!(cuda.call("cuStreamWaitEvent", &[stream, event, 0]), 905);
    assert_eq!(end(&cuda, stream), (INVALIDATED, 0));

    let stream = begin(&cuda, NON_BLOCKING, GLOBAL);
    cuda.ok("cuEventRecord", &[event, stream]);
    cuda.ok("cuStreamWaitEvent", &[other, event, 0]);
    assert_eq!(end(&cuda, other).0, 903);
    assert_eq!(end(&cuda, stream), (INVALIDATED, 0));

    let stream = begin(&cuda, NON_BLOCKING, GLOBAL);
    let second = begin(&cuda, NON_BLOCKING, GLOBAL);
    cuda.ok("cuEventRecord", &[event, stream]);
    assert_eq!(cuda.call("cuStreamWaitEvent", &[second, event, 0]), 902);
    assert_eq!((end(&cuda, stream).0, end(&cuda, second).0), (INVALIDATED, INVALIDATED));
}

#[test]
fn a_conditions_default_value_says_which_body_runs_how_often() {
    let cuda = Cuda::start(&[]);
    let (stream, start, done) = (cuda.stream(NON_BLOCKING), cuda.event(), cuda.event());
    let (spin, memory) = (cuda.kernel("spin_us_1000"), cuda.make("cuMemAlloc_v2", &[1]));
    // An `if`, a `while`; the value; how many milliseconds the bodies take at least.
    for (kind, value, ms) in [(0u64, 1u64, 1.0), (0, 0, 0.0), (1, 3, 3.0)] {
        cuda.ok("cuMemsetD8_v2", &[memory, 1, 1]);
        let graph = cuda.make("cuGraphCreate", &[0]);
        let condition = cuda.make("cuGraphConditionalHandleCreate", &[graph, 0, value, 1]);
        let mut params = [0u64; 32];
        (params[0], params[2], params[3]) = (13, condition, kind | 1 << 32);
        cuda.make("cuGraphAddNode", &[graph, 0, 0, at(&mut params)]);
        // SAFETY: the driver's array of one body.
        let body = unsafe { *(params[4] as *const u64) };
        cuda.ok("cuStreamBeginCaptureToGraph", &[stream, body, 0, 0, 0, GLOBAL]);
        assert_eq!(cuda.launch(spin, stream), 0);
        cuda.ok("cuMemsetD8Async", &[memory, 5, 1, stream]);
        assert_eq!(end(&cuda, stream), (0, body));
        let exec = cuda.make("cuGraphInstantiateWithFlags", &[graph, 0]);
        cuda.ok("cuEventRecord", &[start, stream]);
        cuda.ok("cuGraphLaunch", &[exec, stream]);
        cuda.ok("cuEventRecord", &[done, stream]);
        cuda.ok("cuStreamSynchronize", &[stream]);
        let mut byte = 0u8;
        cuda.ok("cuMemcpyDtoH_v2", &[at(&mut byte), memory, 1]);
        assert_eq!(byte, if ms > 0.0 { 5 } else { 1 });
        assert!(cuda.elapsed_ms(start, done) >= ms);
        cuda.ok("cuGraphDestroy", &[graph]);
        assert_eq!(cuda.call("cuGraphDestroy", &[body]), 1, "it went with the graph around it");
    }
}

#[test]
fn a_child_graph_is_a_copy_that_outlives_its_original() {
    let cuda = Cuda::start(&[]);
    let (inner, outer) = (cuda.make("cuGraphCreate", &[0]), cuda.make("cuGraphCreate", &[0]));
    cuda.make("cuGraphAddEmptyNode", &[inner, 0, 0]);
    let node = cuda.make("cuGraphAddChildGraphNode", &[outer, 0, 0, inner]);
    cuda.make("cuGraphAddEmptyNode", &[inner, 0, 0]);
    cuda.ok("cuGraphDestroy", &[inner]);
    let mut copy = 0u64;
    cuda.ok("cuGraphChildGraphNodeGetGraph", &[node, at(&mut copy)]);
    assert_eq!(nodes(&cuda, copy), 1);
    cuda.ok("cuGraphDestroyNode", &[node]);
    assert_eq!(cuda.call("cuGraphDestroy", &[copy]), 1);
}

#[test]
fn a_graph_built_by_hand_runs_its_nodes_in_the_order_of_its_edges() {
    let cuda = Cuda::start(&[]);
    let (memory, pinned) = (cuda.make("cuMemAlloc_v2", &[64]), cuda.make("cuMemAllocHost_v2", &[64]));
    let graph = cuda.make("cuGraphCreate", &[0]);
    // Target, pitch, value and element size in one word, width, height.
    let set = [memory, 0, 3 | 1 << 32, 64, 1];
    let first = cuda.make("cuGraphAddMemsetNode", &[graph, 0, 0, set.as_ptr() as u64, 0]);
    extern "C" fn double(bytes: *mut std::ffi::c_void) {
        // SAFETY: the node below passes 64 bytes of pinned memory.
        unsafe { *bytes.cast::<[u8; 64]>() = (*bytes.cast::<[u8; 64]>()).map(|byte| byte * 2) };
    }
    let copy = |src: u64, dst: u64| -> [u64; 25] {
        [0, 0, 0, 0, 2, 0, src, 0, 0, 64, 1, 0, 0, 0, 0, 2, 0, dst, 0, 0, 64, 1, 64, 1, 1]
    };
    let (out, back) = (copy(memory, pinned), copy(pinned, memory));
    let second = cuda.make("cuGraphAddMemcpyNode", &[graph, at(&mut first.clone()), 1, out.as_ptr() as u64, 0]);
    let host = [double as *const () as u64, pinned];
    let third = cuda.make("cuGraphAddHostNode", &[graph, at(&mut second.clone()), 1, host.as_ptr() as u64]);
    cuda.make("cuGraphAddMemcpyNode", &[graph, at(&mut third.clone()), 1, back.as_ptr() as u64, 0]);
    let (mut edges, mut kind) = (0usize, 0u32);
    cuda.ok("cuGraphGetEdges", &[graph, 0, 0, at(&mut edges)]);
    cuda.ok("cuGraphNodeGetType", &[third, at(&mut kind)]);
    assert_eq!((edges, kind), (3, 3));
    let exec = cuda.make("cuGraphInstantiateWithFlags", &[graph, 0]);
    let stream = cuda.stream(NON_BLOCKING);
    cuda.ok("cuGraphLaunch", &[exec, stream]);
    let mut seen = [0u8; 64];
    cuda.ok("cuMemcpyDtoHAsync_v2", &[at(&mut seen), memory, 64, stream]);
    assert_eq!(seen, [6; 64]);
}
