//! Being loaded into a program that already runs: what `gputrace attach` calls and reads ([`gputrace_abi::attach`]).
//!
//! Nothing of this library stands before anything then: its exported functions come after everybody's, and what leads to the hooks are
//! patches of the driver's functions, which `gputrace` itself writes and takes back. So there is nothing here to end: without patches nobody
//! calls a hook, and the library and its segment stay as they are until somebody attaches again.

use core::ffi::c_char;
use core::sync::atomic::{AtomicU8, Ordering};

use gputrace_abi::attach::{Attachment, REASON_BYTES};
use gputrace_abi::layout::{THREADS_MAX, note, thread_state};

use crate::interpose::driver;
use crate::{capture, contexts, names, session, stack, sys, thread};

/// Written by `gputrace` as well, in [`gputrace_abi::attach::SYMBOL`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "an exported name")]
pub static gputrace_attachment: Attachment = Attachment::new();

/// Why nothing is recorded, ended by a zero byte.
static REASON: [AtomicU8; REASON_BYTES] = [const { AtomicU8::new(0) }; REASON_BYTES];

/// Whether this process was attached to.
pub(crate) fn is_attached() -> bool {
    gputrace_attachment.started.load(Ordering::Relaxed) != 0
}

/// Keeps what would be said on stderr. False: the process was started with us, and it is said there.
pub(crate) fn takes(why: &[u8]) -> bool {
    if !is_attached() {
        return false;
    }
    let text = why.iter().copied().take(REASON_BYTES - 1).chain([0]);
    REASON.iter().zip(text).for_each(|(place, byte)| place.store(byte, Ordering::Relaxed));
    true
}

/// Starts recording, or begins a new account: see [`gputrace_abi::attach::ENTRY`].
///
/// # Safety
/// `environment` is an array of C strings, ended by a null pointer, that stays as it is. The thread that is made to call it is in
/// none of the driver's, the loader's or the allocator's functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_attach(environment: *const *const c_char, stack_end: usize, block: usize) -> usize {
    if is_attached() && session::present().is_some() {
        begin_anew();
        return 0;
    }
    gputrace_attachment.started.store(1, Ordering::SeqCst);
    // SAFETY: the caller's promise.
    unsafe { sys::give(environment) };
    stack::told_main_stack(stack_end, block);
    takes(b"its segment could not be made");
    let Some(folder) = sys::variable(b"GPUTRACE_SESSION") else { return REASON.as_ptr() as usize };
    session::start(folder);
    if session::present().is_none() {
        return REASON.as_ptr() as usize;
    }
    session::say(note::ATTACHED);
    // The originals are found now, and the driver stays loaded: what leads back into it does.
    driver::bind_patched();
    capture::forget();
    0
}

/// Begins a new account in the segment: what was counted for an earlier trace is in that one. Nobody is in a hook, but for threads that
/// have been in one since they were let go; theirs are among the first calls of the new account.
fn begin_anew() {
    let Some(view) = session::present() else { return };
    let header = view.header();
    for row in (0..THREADS_MAX).filter_map(|number| view.thread(number)) {
        if row.state.load(Ordering::Acquire) == thread_state::LIVE {
            row.seen.iter().chain(&row.chosen).for_each(|count| count.store(0, Ordering::Relaxed));
            row.dropped.iter().chain(&row.abandoned).for_each(|count| count.store(0, Ordering::Relaxed));
        }
    }
    for block in (0..header.counter_blocks.load(Ordering::Relaxed)).filter_map(|block| view.counters(block)) {
        block.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
    view.shared_counters().into_iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
    header.rowless.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    header.nested.store(0, Ordering::Relaxed);
    header.stacks.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    [&header.stack_ticks, &header.stacks_shed, &header.graph_ticks, &header.waited_ticks]
        .into_iter()
        .for_each(|count| count.store(0, Ordering::Relaxed));
    // Contexts, captures and handles have come and gone unseen.
    contexts::forget_all();
    names::unloaded();
    names::report_again();
    capture::forget();
    thread::forget_contexts();
    session::begin_anew(&view);
}
