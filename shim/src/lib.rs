//! The library that the dynamic loader puts into a traced process: a guest in somebody's house.
//!
//! Rules for everything in this crate after the constructor has run: no allocation, no lock, no formatting, no I/O, no
//! read of the environment, no panic; errno stays as it was (system calls are made without libc's wrappers). In doubt,
//! call the original and record nothing. Nothing links this crate: its `malloc` would replace libc's in the linker's
//! own product.
//!
//! Where things are: [`hooks`] the lists of hooked functions; [`interpose`] how a line of a list becomes a hook;
//! [`record`] what a hook does ([`count`] where that is little, [`wait`] where it may wait for the operating system);
//! [`stack`] whose line a call came from; [`graphs`] what a graph holds; [`gpu_time`] when the GPU ran what it was given, or how long; [`thread`] a thread's state and its ring;
//! [`session`] how the segment is made; files `linux.rs` and `macos.rs` what differs there.
#![no_std]
// What only the hooks of Linux use of the parts that both systems share.
#![cfg_attr(target_os = "macos", allow(dead_code))]

#[cfg(target_os = "linux")]
mod arenas;
#[cfg(target_os = "linux")]
mod attach;
mod calibrate;
#[cfg(target_os = "linux")]
mod capture;
#[cfg(target_os = "linux")]
mod contexts;
mod control;
mod count;
mod culling;
#[cfg(target_os = "linux")]
mod devices;
mod ending;
mod frame;
#[cfg(target_os = "linux")]
mod gpu_time;
#[cfg(target_os = "linux")]
mod graphs;
#[cfg(target_os = "linux")]
mod heap;
#[cfg(target_os = "linux")]
mod helper;
mod hooks;
mod interpose;
#[cfg(target_os = "linux")]
mod names;
#[cfg(target_os = "linux")]
mod nccl;
mod ranges;
mod record;
mod sampling;
mod session;
mod shed;
#[cfg(target_os = "linux")]
mod stack;
#[cfg(target_os = "macos")]
#[path = "stack/macos.rs"]
mod stack;
mod sys;
mod thread;
mod tls;
mod tracked;
#[cfg(target_os = "linux")]
mod wait;

/// Runs when the loader has loaded the process's libraries, before its `main`.
#[cfg(target_os = "linux")]
#[ctor::ctor(unsafe)]
fn constructor() {
    ending::prepare();
    hooks::os::find_all();
    hooks::alloc::find_all();
    session::start_in_constructor();
}

/// Runs when the loader has loaded the process's libraries, before its `main`.
#[cfg(target_os = "macos")]
#[ctor::ctor(unsafe)]
fn constructor() {
    session::start_in_constructor();
    hooks::metal::late::watch_metals_own();
}

/// Stands where std's exception personality is referred to (see build.rs): nothing of ours has landing pads, and a
/// forced unwinding passes through.
#[cfg(target_os = "linux")]
#[unsafe(no_mangle)]
extern "C" fn __wrap_rust_eh_personality() -> i32 {
    const CONTINUE_UNWIND: i32 = 8;
    CONTINUE_UNWIND
}

/// Without std, which cudarc brings on Linux. Nothing of ours panics.
#[cfg(target_os = "macos")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}
