//! Segments that are files may be cut by whoever owns them, and a read beyond a file's end is a SIGBUS: of the collector, and so of all
//! that it collects. The signal's handler puts empty memory in the place of a segment that was cut, and who reads it finds that out.
//!
//! Memory of its own cannot be cut, where it is sealed; files cannot be sealed.

use std::mem::MaybeUninit;
use std::ptr::{self, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Where a segment is mapped; 0: nowhere, and free to be taken. Places are never given back: the handler may be looking at them.
struct Place {
    base: AtomicUsize,
    bytes: AtomicUsize,
    cut: AtomicBool,
    next: AtomicPtr<Place>,
}

/// Taken, and not mapped yet.
const TAKEN: usize = 1;

static FIRST: AtomicPtr<Place> = AtomicPtr::new(null_mut());
/// What was called before us.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// While it lives a mapping may be cut without harm.
pub(super) struct Guard(&'static Place);

impl Guard {
    /// Of memory that is mapped there, as long as this lives.
    pub(super) fn of(base: usize, bytes: usize) -> Guard {
        BEFORE.get_or_init(listen);
        let free = |place: &&Place| place.base.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let place = places().find(free).unwrap_or_else(add);
        place.bytes.store(bytes, Ordering::Relaxed);
        place.cut.store(false, Ordering::Relaxed);
        place.base.store(base, Ordering::Release);
        Guard(place)
    }

    /// Whether it was cut: what stands there is nothing.
    pub(super) fn is_cut(&self) -> bool {
        self.0.cut.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.base.store(0, Ordering::Release);
    }
}

fn places() -> impl Iterator<Item = &'static Place> {
    // SAFETY: null, or a place that was leaked in `add`.
    let at = |place: &AtomicPtr<Place>| unsafe { place.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&FIRST), move |place| at(&place.next))
}

fn add() -> &'static Place {
    let place: &'static Place = Box::leak(Box::new(Place {
        base: AtomicUsize::new(TAKEN),
        bytes: AtomicUsize::new(0),
        cut: AtomicBool::new(false),
        next: AtomicPtr::new(FIRST.load(Ordering::Acquire)),
    }));
    let own = ptr::from_ref(place).cast_mut();
    while let Err(first) =
        FIRST.compare_exchange(place.next.load(Ordering::Relaxed), own, Ordering::AcqRel, Ordering::Acquire)
    {
        place.next.store(first, Ordering::Relaxed);
    }
    place
}

/// Has the handler called from now on. What was called before.
fn listen() -> libc::sigaction {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an all-zero sigaction is a valid value of this plain struct; the kernel reads one and fills the other.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = handler as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const ours, before.as_mut_ptr());
        before.assume_init()
    }
}

/// Only what may be called in a handler: reads of atomics, and mmap.
extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, of a signal that has an address.
    let at = unsafe { (*info).si_addr() } as usize;
    for place in places() {
        let (base, bytes) = (place.base.load(Ordering::Acquire), place.bytes.load(Ordering::Relaxed));
        if base <= TAKEN || !(base..base.saturating_add(bytes)).contains(&at) {
            continue;
        }
        let (read_write, instead) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED);
        // SAFETY: in the place of a mapping that its owner keeps as long as the guard lives, and of the same size: its pages are zeros
        // from now on, which is a valid value of all that is read there.
        let done = unsafe { libc::mmap(base as *mut c_void, bytes, read_write, instead, -1, 0) } != libc::MAP_FAILED;
        if done {
            return place.cut.store(true, Ordering::Relaxed);
        }
    }
    hand_on(signal, info, context);
}

/// It is not ours.
fn hand_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel had noted for this signal: a function of the kind that its flags say, or none. Without one the
    // instruction that failed comes again, and ends the process.
    unsafe {
        match BEFORE.get() {
            Some(before) if before.sa_sigaction > libc::SIG_IGN && before.sa_flags & libc::SA_SIGINFO != 0 => {
                let call: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(before.sa_sigaction);
                call(signal, info, context);
            }
            _ => {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_is_cut_reads_as_nothing_and_the_others_as_they_were() {
        const BYTES: usize = 1 << 16;
        let mapped: Vec<(File, *mut u8, Guard)> = (0..3)
            .map(|n| {
                let path = std::env::temp_dir().join(format!("gputrace-cut-{}-{n}", std::process::id()));
                let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
                std::fs::remove_file(path).unwrap();
                file.set_len(BYTES as u64).unwrap();
                let both = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: a new mapping at an address that the kernel chooses.
                let base = unsafe { libc::mmap(null_mut(), BYTES, both, libc::MAP_SHARED, file.as_raw_fd(), 0) };
                assert_ne!(base, libc::MAP_FAILED);
                // SAFETY: just mapped, this large.
                unsafe { base.cast::<u8>().add(BYTES - 1).write_volatile(7) };
                let guard = Guard::of(base as usize, BYTES);
                (file, base.cast(), guard)
            })
            .collect();
        // SAFETY: mapped above, this large.
        let last = |n: usize| unsafe { mapped[n].1.add(BYTES - 1).read_volatile() };
        assert_eq!([last(0), last(1), last(2)], [7; 3]);
        mapped[1].0.set_len(0).unwrap();
        assert_eq!([last(0), last(1), last(2)], [7, 0, 7]);
        assert_eq!([0, 1, 2].map(|n: usize| mapped[n].2.is_cut()), [false, true, false]);
        for (_, base, guard) in mapped {
            drop(guard);
            // SAFETY: mapped above, and not used any more.
            unsafe { libc::munmap(base.cast(), BYTES) };
        }
    }
}
