//! A process that is killed in the middle of writing loses nothing that it had written.
//!
//! A forked child writes numbered events into a memfd segment; before each it notes the number as begun, after it as
//! done, in memory that outlives it. A hundred times it is killed at a random moment. What the parent reads must be
//! exactly the events that were done, and at most the one that was begun and not done.
#![cfg(not(any(loom, miri)))]

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gputrace_abi::event::Event;
use gputrace_abi::layout::{CHUNKS_AT, View};
use gputrace_abi::ring::{CHUNK_BYTES, CHUNK_SLOTS, Chunks, Cursor, Step, Tail};

const CHUNKS: u32 = 12;
const BYTES: usize = CHUNKS_AT + CHUNKS as usize * CHUNK_BYTES;

/// What the child says about itself.
struct Progress {
    begun: AtomicU64,
    done: AtomicU64,
}

fn segment() -> View {
    // SAFETY: plain system calls; the descriptor is closed once and the mapping stays until the test process ends.
    unsafe {
        let fd = libc::memfd_create(c"segment".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0 && libc::ftruncate(fd, BYTES as libc::off_t) == 0);
        let at = libc::mmap(ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        libc::close(fd);
        let view = View::new(at.cast(), BYTES).expect("large enough");
        view.header().chunk_count.store(CHUNKS, Ordering::Relaxed);
        (0..CHUNKS).for_each(|chunk| view.give_chunk(chunk));
        view
    }
}

fn progress() -> &'static Progress {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: fresh zeroed memory, shared with the child and never unmapped, is a valid `Progress`.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    }
}

/// The child: writes until it is killed. No allocation and no lock, as after any fork of a process with threads.
fn write_for_ever(view: View, progress: &Progress) -> ! {
    let tail = Tail::none();
    for n in 0.. {
        progress.begun.store(n + 1, Ordering::Relaxed);
        loop {
            let place = tail.reserve(1);
            if place.index < CHUNK_SLOTS as u32 {
                let event = Event { commit: place.commit, start: n, end: n, payload: [n; 4], ..Event::default() };
                if let Some(slot) = view.chunk(place.chunk).and_then(|chunk| chunk.slot(place.index)) {
                    slot.write(&event);
                }
                break;
            }
            let had_chunk = tail.has_chunk();
            let Some(taken) = view.take_chunk(CHUNKS) else {
                tail.park(CHUNK_SLOTS as u32);
                continue; // the parent reads while we live
            };
            let Some(new) = view.chunk(taken) else { continue };
            let generation = new.open(0);
            match view.chunk(place.chunk).filter(|_| had_chunk) {
                Some(old) => {
                    old.close(CHUNK_SLOTS as u32);
                    old.link(taken);
                }
                None => view.header().shared_first.store(taken + 1, Ordering::Release),
            }
            tail.set(taken, generation);
        }
        progress.done.store(n + 1, Ordering::Relaxed);
    }
    unreachable!()
}

/// Reads what is there; every event must be the next one, whole.
fn read(view: &View, cursor: &mut Option<Cursor>, next: &mut u64, dead: bool) {
    loop {
        if cursor.is_none() {
            let Some(first) = view.header().shared_first.load(Ordering::Acquire).checked_sub(1) else { return };
            *cursor = Cursor::new(view, first);
        }
        match cursor.as_mut().expect("a chain").step(view, dead) {
            Step::Words(words) => {
                let event = Event::from_words(words);
                assert_eq!((event.start, event.end, event.payload), (*next, *next, [*next; 4]), "lost or torn");
                *next += 1;
            }
            Step::Finished(chunk) => view.give_chunk(chunk),
            Step::Empty => return,
            other => panic!("one thread without signals leaves no hole: {other:?}"),
        }
    }
}

#[test]
fn a_killed_process_loses_no_event_that_it_wrote() {
    let mut written = 0;
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..100 {
        let (view, progress) = (segment(), progress());
        // SAFETY: the child only writes to the shared memory until it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: plain system call. Should the test itself die, the child dies with it.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            write_for_ever(view, progress);
        }
        assert!(child > 0);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
        let moment = Duration::from_nanos(seed >> 33 & 0x3f_ffff); // up to 4 ms, from when the child runs
        let (mut cursor, mut next) = (None, 0);
        while progress.begun.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let begin = Instant::now();
        while begin.elapsed() < moment {
            read(&view, &mut cursor, &mut next, false);
        }
        let mut status = 0;
        // SAFETY: our own child, not yet waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
        }
        assert!(libc::WIFSIGNALED(status));
        read(&view, &mut cursor, &mut next, true);
        let (begun, done) = (progress.begun.load(Ordering::Relaxed), progress.done.load(Ordering::Relaxed));
        assert!((done..=begun).contains(&next) && begun - done <= 1, "{begun} begun, {done} done, {next} read");
        written += next;
    }
    assert!(written > 10_000, "the children did write: {written}");
}
