//! Streams, events and host functions of the simulated driver.

mod common;

use common::{Cuda, Gate, NON_BLOCKING, at};
use std::ffi::c_void;
use std::sync::Mutex;

const NOT_READY: u32 = 600;

/// Lets the device's time go on, longer than what a test expects not to happen would need.
fn pass_time(cuda: &Cuda, stream: u64) {
    assert_eq!(cuda.launch(cuda.kernel("spin_us_5000"), stream), 0);
    cuda.ok("cuStreamSynchronize", &[stream]);
}

#[test]
fn kernels_of_a_stream_run_one_after_the_other_and_take_exactly_the_time_in_their_name() {
    let cuda = Cuda::start(&[]);
    let (stream, start, end) = (cuda.stream(NON_BLOCKING), cuda.event(), cuda.event());
    let kernel = cuda.kernel("_Z12spin_us_2000Pf");
    cuda.ok("cuEventRecord", &[start, stream]);
    let gate = Gate::close(&cuda, stream);
    (0..3).for_each(|_| assert_eq!(cuda.launch(kernel, stream), 0));
    cuda.ok("cuEventRecord", &[end, stream]);
    assert_eq!(cuda.call("cuEventQuery", &[end]), NOT_READY);
    let mut ms = 0f32;
    assert_eq!(cuda.call("cuEventElapsedTime", &[at(&mut ms), start, end]), NOT_READY);
    gate.open();
    cuda.ok("cuStreamSynchronize", &[stream]);
    assert!(cuda.elapsed_ms(start, end) >= 6.0);
    cuda.ok("cuEventRecord", &[start, stream]);
    (0..3).for_each(|_| assert_eq!(cuda.launch(kernel, stream), 0));
    cuda.ok("cuEventRecord", &[end, stream]);
    cuda.ok("cuEventSynchronize", &[end]);
    assert!(cuda.elapsed_ms(start, end) >= 6.0);
    assert_eq!(cuda.call("cuEventQuery", &[end]), 0);
}

#[test]
fn a_call_that_waits_returns_only_when_the_time_has_passed() {
    let cuda = Cuda::start(&[]);
    let kernel = cuda.kernel("spin_us_20000");
    for wait in ["cuCtxSynchronize", "cuStreamSynchronize"] {
        let begin = std::time::Instant::now();
        assert_eq!(cuda.launch(kernel, 0), 0);
        assert_eq!(cuda.call("cuStreamQuery", &[0]), NOT_READY);
        cuda.ok(wait, &[0]);
        assert!(begin.elapsed().as_micros() >= 20_000, "{wait}");
        cuda.ok("cuStreamQuery", &[0]);
    }
}

#[test]
fn streams_run_beside_each_other_and_the_legacy_stream_waits_for_blocking_ones_only() {
    let cuda = Cuda::start(&[]);
    let kernel = cuda.kernel("spin_us_10");
    let (blocking, other, free) = (cuda.stream(0), cuda.stream(0), cuda.stream(NON_BLOCKING));
    let gate = Gate::close(&cuda, blocking);
    assert_eq!(cuda.launch(kernel, free), 0);
    cuda.ok("cuStreamSynchronize", &[free]);
    assert_eq!(cuda.launch(kernel, other), 0);
    cuda.ok("cuStreamSynchronize", &[other]);
    assert_eq!(cuda.launch(kernel, 0), 0);
    assert_eq!(cuda.launch(kernel, other), 0, "issued after work of the legacy stream, so it waits for that");
    pass_time(&cuda, free);
    assert_eq!(cuda.call("cuStreamQuery", &[1]), NOT_READY);
    assert_eq!(cuda.call("cuStreamQuery", &[other]), NOT_READY);
    gate.open();
    cuda.ok("cuStreamSynchronize", &[other]);
    cuda.ok("cuStreamQuery", &[0]);
}

#[test]
fn the_per_thread_stream_is_a_threads_own() {
    let cuda = Cuda::start(&[]);
    let mine = {
        let mut id = 0u64;
        cuda.ok("cuStreamGetId", &[2, at(&mut id)]);
        id
    };
    let mut variant = 0u64;
    cuda.ok("cuStreamGetId_ptsz", &[0, at(&mut variant)]);
    assert_eq!(variant, mine, "0 means the per-thread stream to the variant");
    let context = cuda.make("cuCtxGetCurrent", &[]);
    let others = std::thread::scope(|scope| {
        let cuda = &cuda;
        let thread = scope.spawn(move || {
            let mut id = 0u64;
            cuda.ok("cuCtxSetCurrent", &[context]);
            cuda.ok("cuStreamGetId", &[2, at(&mut id)]);
            id
        });
        thread.join().expect("no panic")
    });
    assert_ne!(mine, others);
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let cuda = Cuda::start(&[]);
    let (first, second, event) = (cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING), cuda.event());
    let gate = Gate::close(&cuda, first);
    cuda.ok("cuEventRecord", &[event, first]);
    cuda.ok("cuStreamWaitEvent", &[second, event, 0]);
    assert_eq!(cuda.launch(cuda.kernel("spin_us_1"), second), 0);
    pass_time(&cuda, cuda.stream(NON_BLOCKING));
    assert_eq!(cuda.call("cuStreamQuery", &[second]), NOT_READY);
    gate.open();
    cuda.ok("cuStreamSynchronize", &[second]);
    cuda.ok("cuEventQuery", &[event]);
}

#[test]
fn host_functions_and_callbacks_run_in_order_on_a_thread_of_the_driver() {
    static SEEN: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    static THREADS: Mutex<Vec<std::thread::ThreadId>> = Mutex::new(Vec::new());
    extern "C" fn function(number: *mut c_void) {
        SEEN.lock().expect("no panic holds it").push(number as u64);
        THREADS.lock().expect("no panic holds it").push(std::thread::current().id());
    }
    extern "C" fn callback(stream: u64, status: u32, number: *mut c_void) {
        SEEN.lock().expect("no panic holds it").extend([stream, u64::from(status), number as u64]);
    }
    let cuda = Cuda::start(&[]);
    let stream = cuda.stream(0);
    let kernel = cuda.kernel("spin_us_50");
    for number in 1..=3 {
        assert_eq!(cuda.launch(kernel, stream), 0);
        cuda.ok("cuLaunchHostFunc", &[stream, function as *const () as u64, number]);
    }
    cuda.ok("cuStreamAddCallback", &[stream, callback as *const () as u64, 4, 0]);
    cuda.ok("cuStreamSynchronize", &[stream]);
    assert_eq!(*SEEN.lock().expect("no panic holds it"), [1, 2, 3, stream, 0, 4]);
    let threads = THREADS.lock().expect("no panic holds it");
    assert!(threads.iter().all(|thread| *thread == threads[0] && *thread != std::thread::current().id()));
}

#[test]
fn a_destroyed_stream_finishes_its_work_and_its_handle_is_refused() {
    let cuda = Cuda::start(&[]);
    let (stream, event) = (cuda.stream(NON_BLOCKING), cuda.event());
    let gate = Gate::close(&cuda, stream);
    cuda.ok("cuEventRecord", &[event, stream]);
    cuda.ok("cuStreamDestroy_v2", &[stream]);
    assert_eq!(cuda.launch(cuda.kernel("spin_us_1"), stream), 400);
    assert_eq!(cuda.call("cuEventQuery", &[event]), NOT_READY);
    gate.open();
    cuda.ok("cuEventSynchronize", &[event]);
    assert_eq!(cuda.call("cuStreamDestroy_v2", &[stream]), 400);
}

#[test]
fn a_thousand_streams_need_no_thousand_threads() {
    let cuda = Cuda::start(&[]);
    let kernel = cuda.kernel("spin_us_5");
    let streams: Vec<u64> = (0..1000).map(|_| cuda.stream(NON_BLOCKING)).collect();
    streams.iter().for_each(|stream| assert_eq!(cuda.launch(kernel, *stream), 0));
    cuda.ok("cuCtxSynchronize", &[]);
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux").count();
    assert!(threads < 100, "{threads} threads");
    streams.iter().for_each(|stream| cuda.ok("cuStreamDestroy_v2", &[*stream]));
}
