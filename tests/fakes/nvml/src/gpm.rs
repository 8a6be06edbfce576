//! GPM: samples that hold the moment at which they were taken, and metrics whose values are known.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::time::Instant;

use super::{INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, function, known, put};
use crate::config::config;

/// Metric, and its value for a matrix product, a copy, a stream of tiny kernels: those of an H200.
const VALUES: [(u32, [f64; 3]); 7] = [
    (1, [99.0, 99.0, 30.0]),   // graphics
    (2, [81.0, 97.0, 13.0]),   // multiprocessors
    (3, [12.0, 74.0, 1.0]),    // occupancy
    (5, [79.0, 0.0, 0.0]),     // tensor
    (10, [15.0, 78.0, 0.5]),   // memory
    (12, [1.0, 0.0, 2.0]),     // 32-bit floating point
    (20, [64.0, 128.0, 32.0]), // PCIe, MiB/s
];

#[repr(C)]
struct Metric {
    id: u32,
    result: u32,
    value: f64,
    texts: [*mut c_char; 3],
}

/// Followed by the metrics.
#[repr(C)]
struct Request {
    version: u32,
    count: u32,
    samples: [*mut c_void; 2],
}

#[repr(C)]
struct Support {
    version: u32,
    supported: u32,
}

function!(nvmlGpmQueryDeviceSupport(device: *mut c_void, out: *mut Support) {
    known(device).map_or(INVALID_ARGUMENT, |_| put(out, Support { version: 1, supported: u32::from(!config().mig && !config().virtual_gpu) }))
});

function!(nvmlGpmSampleAlloc(out: *mut *mut c_void) {
    put(out, Box::into_raw(Box::<Option<Instant>>::default()).cast())
});

function!(nvmlGpmSampleFree(sample: *mut c_void) {
    // SAFETY: the caller gives back what nvmlGpmSampleAlloc gave it, once.
    drop(unsafe { Box::from_raw(sample.cast::<Option<Instant>>()) });
    SUCCESS
});

function!(nvmlGpmSampleGet(device: *mut c_void, sample: *mut c_void) {
    known(device).map_or(INVALID_ARGUMENT, |_| put(sample.cast::<Option<Instant>>(), Some(Instant::now())))
});

function!(nvmlGpmMetricsGet(request: *mut c_void) {
    // SAFETY: the caller's request, whose metrics follow it; samples are those of nvmlGpmSampleAlloc.
    let (metrics, times) = unsafe {
        let head = &*request.cast::<Request>();
        let metrics = request.cast::<Request>().add(1).cast::<Metric>();
        let times = head.samples.map(|sample| *sample.cast::<Option<Instant>>());
        (std::slice::from_raw_parts_mut(metrics, head.count as usize), times)
    };
    let [Some(first), Some(second)] = times else { return INVALID_ARGUMENT };
    if second <= first {
        return INVALID_ARGUMENT;
    }
    let work = ["matmul", "copy", "tiny"].iter().position(|work| *work == config().work);
    for metric in metrics {
        let found = VALUES.iter().find(|(id, _)| *id == metric.id);
        metric.result = if found.is_some() { SUCCESS } else { NOT_SUPPORTED };
        metric.value = found.zip(work).map_or(0.0, |((_, values), work)| values[work]);
        metric.texts = [null_mut(); 3];
    }
    SUCCESS
});
