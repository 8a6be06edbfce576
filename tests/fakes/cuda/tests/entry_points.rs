//! How the simulated driver is reached, counted and made to fail.

mod common;

use common::{Cuda, at};

fn start() -> Cuda {
    Cuda::start(&[("FAKE_CUDA_FAIL", "cuMemGetInfo_v2:2:2,cuMemGetInfo_v2:3:700,cuStreamCreate:1:999")])
}

/// The exported symbol that cuGetProcAddress_v2 gives, or its status.
fn look_up(cuda: &Cuda, name: &str, version: u64, flags: u64) -> Result<&'static str, u32> {
    const SYMBOLS: &[&str] = &[
        "cuMemAlloc_v2",
        "cuLaunchKernel",
        "cuLaunchKernel_ptsz",
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoD_v2_ptds",
        "cuMemPrefetchAsync",
        "cuMemPrefetchAsync_v2",
        "cuCtxCreate_v2",
        "cuCtxCreate_v4",
        "cuGetProcAddress",
        "cuGetProcAddress_v2",
        "cuStreamBeginCapture_v2_ptsz",
    ];
    let name = std::ffi::CString::new(name).expect("no zero byte");
    let (mut found, mut status) = (0u64, 9u32);
    cuda.ok("cuGetProcAddress_v2", &[name.as_ptr() as u64, at(&mut found), version, flags, at(&mut status)]);
    match SYMBOLS.iter().find(|symbol| cuda.address(symbol) as u64 == found) {
        Some(symbol) if status == 0 => Ok(symbol),
        _ => Err(status),
    }
}

#[test]
fn cu_get_proc_address_gives_the_newest_variant_that_is_old_enough() {
    let cuda = start();
    assert_eq!(look_up(&cuda, "cuMemAlloc", 12000, 0), Ok("cuMemAlloc_v2"));
    assert_eq!(look_up(&cuda, "cuCtxCreate", 11000, 0), Ok("cuCtxCreate_v2"));
    assert_eq!(look_up(&cuda, "cuCtxCreate", 13000, 0), Ok("cuCtxCreate_v4"));
    assert_eq!(look_up(&cuda, "cuMemPrefetchAsync", 12000, 0), Ok("cuMemPrefetchAsync"));
    assert_eq!(look_up(&cuda, "cuMemPrefetchAsync", 13000, 0), Ok("cuMemPrefetchAsync_v2"));
    assert_eq!(look_up(&cuda, "cuGetProcAddress", 11030, 0), Ok("cuGetProcAddress"));
    assert_eq!(look_up(&cuda, "cuGetProcAddress", 12000, 0), Ok("cuGetProcAddress_v2"));
    assert_eq!(look_up(&cuda, "cuLaunchKernel", 4000, 1), Ok("cuLaunchKernel"));
    assert_eq!(look_up(&cuda, "cuLaunchKernel", 7000, 2), Ok("cuLaunchKernel_ptsz"));
    assert_eq!(look_up(&cuda, "cuMemcpyHtoD", 7000, 2), Ok("cuMemcpyHtoD_v2_ptds"));
    assert_eq!(look_up(&cuda, "cuMemAlloc", 12000, 2), Ok("cuMemAlloc_v2"), "it has no such variant");
    assert_eq!(look_up(&cuda, "cuStreamBeginCapture", 12000, 2), Ok("cuStreamBeginCapture_v2_ptsz"));
}

#[test]
fn cu_get_proc_address_says_why_it_gives_nothing() {
    let cuda = start();
    let (no_symbol, too_old) = (1, 2);
    assert_eq!(look_up(&cuda, "cuNothing", 12000, 0), Err(no_symbol));
    assert_eq!(look_up(&cuda, "", 0, 0), Err(no_symbol));
    assert_eq!(look_up(&cuda, "cuMemAlloc_v2", 12000, 0), Err(no_symbol), "a suffix is no name");
    assert_eq!(look_up(&cuda, "cuLaunchKernel", 2000, 0), Err(too_old));
    assert_eq!(look_up(&cuda, "cuLaunchKernel", 4000, 2), Err(too_old));
    let mut found = 0u64;
    assert_eq!(cuda.call("cuGetProcAddress", &[c"cuNothing".as_ptr() as u64, at(&mut found), 12000, 0]), 500);
    assert_eq!(cuda.call("cuGetProcAddress_v2", &[c"cuInit".as_ptr() as u64, at(&mut found), 12000, 4, 0]), 1);
}

#[test]
fn chosen_calls_fail_with_the_chosen_result() {
    let cuda = start();
    let (mut free, mut total) = (0u64, 0u64);
    let results = (0..4).map(|_| cuda.call("cuMemGetInfo_v2", &[at(&mut free), at(&mut total)]));
    assert_eq!(results.collect::<Vec<_>>(), [0, 2, 700, 0]);
    let mut stream = 0u64;
    assert_eq!(cuda.call("cuStreamCreate", &[at(&mut stream), 0]), 999);
    assert_eq!(cuda.call("cuStreamCreate", &[at(&mut stream), 0]), 0);
}

#[test]
fn only_outermost_calls_are_counted() {
    let cuda = start();
    let before = (cuda.count("cuMemAlloc_v2"), cuda.count("cuMemAllocPitch_v2"));
    let mut pitch = 0u64;
    cuda.make("cuMemAllocPitch_v2", &[at(&mut pitch), 100, 10, 4]);
    assert_eq!(pitch, 512);
    assert_eq!((cuda.count("cuMemAlloc_v2"), cuda.count("cuMemAllocPitch_v2")), (before.0, before.1 + 1));
    cuda.make("cuMemAlloc_v2", &[100]);
    assert_eq!(cuda.count("cuMemAlloc_v2"), before.0 + 1);
}

#[test]
fn a_forked_child_cannot_use_the_context_of_its_parent() {
    let cuda = start();
    let memory = cuda.make("cuMemAlloc_v2", &[100]);
    let (synchronize, free) = (cuda.address("cuCtxSynchronize"), cuda.address("cuMemFree_v2"));
    // SAFETY: the child calls the driver and _exit only; the functions take at most one integer.
    let child = unsafe {
        match libc::fork() {
            0 => {
                let synchronize: extern "C" fn() -> u32 = std::mem::transmute(synchronize);
                let free: extern "C" fn(u64) -> u32 = std::mem::transmute(free);
                libc::_exit(if synchronize() == 3 && free(memory) == 3 { 0 } else { 1 });
            }
            child => child,
        }
    };
    let mut status = -1;
    // SAFETY: the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    cuda.ok("cuMemFree_v2", &[memory]);
}

#[test]
fn handles_that_are_not_of_the_right_kind_are_refused() {
    let cuda = start();
    let (kernel, event) = (cuda.kernel("spin_us_1"), cuda.event());
    assert_eq!(cuda.launch(0, 0), 400);
    assert_eq!(cuda.launch(event, 0), 400);
    assert_eq!(cuda.launch(kernel, event), 400);
    assert_eq!(cuda.launch(kernel, 0xdead_beef), 400);
    assert_eq!(cuda.call("cuEventRecord", &[kernel, 0]), 400);
    assert_eq!(cuda.call("cuLaunchKernel", &[kernel, 1, 1, 1, 2048, 1, 1, 0, 0, 0, 0]), 1);
    let module = cuda.make("cuModuleLoadData", &[c"fakecuda:one, two".as_ptr() as u64]);
    let (mut function, mut count) = (0u64, 0u32);
    let mut get =
        |name: &std::ffi::CStr| cuda.call("cuModuleGetFunction", &[at(&mut function), module, name.as_ptr() as u64]);
    assert_eq!((get(c"one"), get(c"three"), get(c"missing_one")), (0, 500, 500));
    cuda.ok("cuModuleGetFunctionCount", &[at(&mut count), module]);
    assert_eq!(count, 2);
    cuda.ok("cuModuleUnload", &[module]);
    assert_eq!(cuda.launch(function, 0), 400, "its module is gone");
}
