//! Memory, copies and fills of the simulated driver.

mod common;

use common::{Cuda, Gate, NON_BLOCKING, at};

const LIMIT: u64 = 64 << 20;

fn start() -> Cuda {
    Cuda::start(&[("FAKE_CUDA_MEM", "67108864"), ("FAKE_CUDA_DEVICES", "2")])
}

#[test]
fn bytes_come_back_as_they_went_by_every_kind_of_copy() {
    let cuda = start();
    let (a, b) = (cuda.make("cuMemAlloc_v2", &[1 << 20]), cuda.make("cuMemAlloc_v2", &[1 << 20]));
    let mut source: Vec<u8> = (0..1 << 20).map(|i| ((i * 31) >> 3) as u8).collect();
    let mut target = vec![0u8; 1 << 20];
    let (from, to) = (source.as_mut_ptr() as u64, target.as_mut_ptr() as u64);
    cuda.ok("cuMemcpyHtoD_v2", &[a, from, 1 << 20]);
    cuda.ok("cuMemcpyDtoD_v2", &[b, a, 1 << 20]);
    cuda.ok("cuMemcpyDtoH_v2", &[to, b, 1 << 20]);
    assert_eq!(source, target);

    target.fill(0);
    cuda.ok("cuMemcpyAsync", &[a, from, 1000, 0]);
    cuda.ok("cuMemcpyPeer", &[b, 0, a, 0, 1000]);
    cuda.ok("cuMemcpy", &[to, b, 1000]);
    assert_eq!(source[..1000], target[..1000]);

    // Ten rows of 100 bytes from a host pitch of 128 to a device pitch of 512, and back.
    target.fill(0);
    cuda.ok("cuMemcpy2D_v2", &[[0, 0, 1, from, 0, 0, 128, 0, 0, 2, 0, a, 0, 512, 100, 10].as_ptr() as u64]);
    cuda.ok("cuMemcpy2D_v2", &[[0, 0, 2, 0, a, 0, 512, 0, 0, 1, to, 0, 0, 128, 100, 10].as_ptr() as u64]);
    assert!((0..10).all(|row| source[row * 128..row * 128 + 100] == target[row * 128..row * 128 + 100]));
    assert_eq!(target[100], 0);
}

#[test]
fn a_fill_writes_its_pattern_and_no_more() {
    let cuda = start();
    let memory = cuda.make("cuMemAlloc_v2", &[4096]);
    let mut seen = [0u32; 8];
    cuda.ok("cuMemsetD8_v2", &[memory, 0, 4096]);
    cuda.ok("cuMemsetD32_v2", &[memory + 4, 0xdead_beef, 2]);
    cuda.ok("cuMemsetD2D16_v2", &[memory + 16, 8, 0x1234, 2, 2]);
    cuda.ok("cuMemcpyDtoH_v2", &[at(&mut seen), memory, 32]);
    assert_eq!(seen, [0, 0xdead_beef, 0xdead_beef, 0, 0x1234_1234, 0, 0x1234_1234, 0]);
    assert_eq!(cuda.call("cuMemsetD8_v2", &[memory + 4000, 0, 97]), 1, "past the end");
    assert_eq!(cuda.call("cuMemsetD32_v2", &[memory + 2, 0, 1]), 1, "not aligned");
}

#[test]
fn a_device_has_the_memory_that_was_set_and_gets_back_what_is_freed() {
    let cuda = start();
    let (mut free, mut total) = (0u64, 0u64);
    let mut info = || {
        cuda.ok("cuMemGetInfo_v2", &[at(&mut free), at(&mut total)]);
        (free, total)
    };
    let (before, total) = info();
    assert_eq!(total, LIMIT);
    let half = cuda.make("cuMemAlloc_v2", &[LIMIT / 2]);
    assert_eq!(info().0, before - LIMIT / 2);
    let mut more = 0u64;
    assert_eq!(cuda.call("cuMemAlloc_v2", &[at(&mut more), LIMIT]), 2);
    assert_eq!(cuda.call("cuMemAllocAsync", &[at(&mut more), LIMIT, 0]), 2);
    cuda.ok("cuMemFree_v2", &[half]);
    assert_eq!(info().0, before);
    assert_eq!(cuda.call("cuMemFree_v2", &[half]), 1, "freed twice");
    assert_eq!(cuda.call("cuMemAlloc_v2", &[at(&mut more), 0]), 1);
}

#[test]
fn a_free_waits_for_the_device_and_a_free_in_a_stream_for_that_stream() {
    let cuda = start();
    let stream = cuda.stream(NON_BLOCKING);
    let memory = cuda.make("cuMemAllocAsync", &[1 << 16, stream]);
    let (mut free, mut total) = (0u64, 0u64);
    cuda.ok("cuMemGetInfo_v2", &[at(&mut free), at(&mut total)]);
    let held = free;
    let gate = Gate::close(&cuda, stream);
    cuda.ok("cuMemFreeAsync", &[memory, stream]);
    assert_eq!(cuda.call("cuMemFreeAsync", &[memory, stream]), 1, "freed twice");
    cuda.ok("cuMemGetInfo_v2", &[at(&mut free), at(&mut total)]);
    assert_eq!(free, held);
    gate.open();
    cuda.ok("cuStreamSynchronize", &[stream]);
    cuda.ok("cuMemGetInfo_v2", &[at(&mut free), at(&mut total)]);
    assert_eq!(free, held + (1 << 16));

    let memory = cuda.make("cuMemAlloc_v2", &[4096]);
    let kernel = cuda.kernel("spin_us_10000");
    let begin = std::time::Instant::now();
    assert_eq!(cuda.launch(kernel, stream), 0);
    cuda.ok("cuMemFree_v2", &[memory]);
    assert!(begin.elapsed().as_micros() >= 10_000);
}

#[test]
fn copies_take_the_time_of_their_bandwidth_and_pinned_ones_do_not_block() {
    let cuda = start();
    let (stream, start, end) = (cuda.stream(NON_BLOCKING), cuda.event(), cuda.event());
    let bytes = 10_000_000;
    let (memory, pinned) = (cuda.make("cuMemAlloc_v2", &[bytes]), cuda.make("cuMemAllocHost_v2", &[bytes]));
    let gate = Gate::close(&cuda, stream);
    cuda.ok("cuEventRecord", &[start, stream]);
    cuda.ok("cuMemcpyHtoDAsync_v2", &[memory, pinned, bytes, stream]);
    cuda.ok("cuEventRecord", &[end, stream]);
    assert_eq!(cuda.call("cuStreamQuery", &[stream]), 600, "the call has returned before the copy");
    gate.open();
    cuda.ok("cuStreamSynchronize", &[stream]);
    assert_eq!(cuda.elapsed_ms(start, end), 1.0, "10 MB at 10 GB/s");

    // From pageable memory: a small copy is staged, so what is changed after the call does not arrive.
    let mut small = [7u8; 64];
    let gate = Gate::close(&cuda, stream);
    cuda.ok("cuMemcpyHtoDAsync_v2", &[memory, at(&mut small), 64, stream]);
    small.fill(0);
    gate.open();
    // To pageable memory the call itself waits.
    cuda.ok("cuMemcpyDtoHAsync_v2", &[at(&mut small), memory, 64, stream]);
    assert_eq!(small, [7; 64]);
}

#[test]
fn what_a_pointer_is_can_be_asked() {
    let cuda = start();
    let attribute = |number, address| {
        let mut value = 0u64;
        (cuda.call("cuPointerGetAttribute", &[at(&mut value), number, address]), value)
    };
    let memory = cuda.make("cuMemAlloc_v2", &[4096]);
    let managed = cuda.make("cuMemAllocManaged", &[4096, 1]);
    let pinned = cuda.make("cuMemAllocHost_v2", &[4096]);
    let (memory_type, is_managed, start, bytes) = (2, 8, 11, 12);
    assert_eq!(attribute(memory_type, memory + 100), (0, 2));
    assert_eq!(attribute(memory_type, pinned), (0, 1));
    assert_eq!(attribute(is_managed, managed), (0, 1));
    assert_eq!(attribute(start, memory + 100), (0, memory));
    assert_eq!(attribute(bytes, memory + 100), (0, 4096));
    let mut local = 0u8;
    assert_eq!(attribute(memory_type, at(&mut local)).0, 1);

    let mut page = vec![0u8; 8192];
    let host = page.as_mut_ptr() as u64;
    cuda.ok("cuMemHostRegister_v2", &[host, 8192, 0]);
    assert_eq!(attribute(memory_type, host + 1), (0, 1));
    assert_eq!(cuda.call("cuMemHostRegister_v2", &[host + 4096, 4096, 0]), 712);
    cuda.ok("cuMemHostUnregister", &[host]);
    assert_eq!(cuda.call("cuMemHostUnregister", &[host]), 713);
}

#[test]
fn one_physical_allocation_can_be_seen_at_two_addresses() {
    let cuda = start();
    let chunk = 2 << 20;
    let range = cuda.make("cuMemAddressReserve", &[2 * chunk, 0, 0, 0]);
    let physical = cuda.make("cuMemCreate", &[chunk, [1u32, 0, 1, 0, 0, 0, 0, 0].as_ptr() as u64, 0]);
    let access = [1u32, 0, 3];
    for address in [range, range + chunk] {
        cuda.ok("cuMemMap", &[address, chunk, 0, physical, 0]);
        cuda.ok("cuMemSetAccess", &[address, chunk, access.as_ptr() as u64, 1]);
    }
    cuda.ok("cuMemRelease", &[physical]);
    cuda.ok("cuMemsetD8_v2", &[range, 9, chunk]);
    let mut seen = [0u8; 16];
    cuda.ok("cuMemcpyDtoH_v2", &[at(&mut seen), range + chunk + 100, 16]);
    assert_eq!(seen, [9; 16]);
    assert_eq!(cuda.call("cuMemAddressFree", &[range, 2 * chunk]), 1, "still mapped");
    cuda.ok("cuMemUnmap", &[range, chunk]);
    cuda.ok("cuMemUnmap", &[range + chunk, chunk]);
    cuda.ok("cuMemAddressFree", &[range, 2 * chunk]);
}

#[test]
fn a_kernel_that_computes_gives_the_right_numbers_and_one_with_a_wrong_address_ends_its_context() {
    let cuda = start();
    let context = cuda.make("cuCtxCreate_v2", &[0, 1]);
    let (x, y) = (cuda.make("cuMemAlloc_v2", &[400]), cuda.make("cuMemAlloc_v2", &[400]));
    let mut host: Vec<f32> = (0..100).map(|i| i as f32).collect();
    cuda.ok("cuMemcpyHtoD_v2", &[x, host.as_mut_ptr() as u64, 400]);
    cuda.ok("cuMemcpyHtoD_v2", &[y, host.as_mut_ptr() as u64, 400]);
    let saxpy = cuda.kernel("_Z5saxpyifPfS_");
    let (n, a) = (100i32, 3f32);
    let arguments = [&raw const n as u64, &raw const a as u64, &raw const x as u64, &raw const y as u64];
    cuda.ok("cuLaunchKernel", &[saxpy, 1, 1, 1, 128, 1, 1, 0, 0, arguments.as_ptr() as u64, 0]);
    cuda.ok("cuMemcpyDtoH_v2", &[host.as_mut_ptr() as u64, y, 400]);
    assert!(host.iter().enumerate().all(|(i, y)| *y == 4.0 * i as f32));

    assert_eq!(cuda.launch(cuda.kernel("illegal_address"), 0), 0);
    assert_eq!(cuda.call("cuCtxSynchronize", &[]), 700);
    let mut more = 0u64;
    assert_eq!(cuda.call("cuMemAlloc_v2", &[at(&mut more), 4]), 700, "it stays so");
    cuda.ok("cuCtxDestroy_v2", &[context]);
    cuda.ok("cuCtxSynchronize", &[]);
}
