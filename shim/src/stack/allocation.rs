//! The stack of an allocation: native frames, and in the place of each of the interpreter's own the Python functions that it
//! runs.
//!
//! malloc is called where no other hook is: under any lock, the loader's too, on stacks of a few KiB, in signal handlers, and by
//! an interpreter that is just making a frame. So nothing here takes a lock or looks anything up that may: libraries are found
//! without one or not at all, Python was found when libraries were opened. A stack whose key is known costs no memory of the
//! thread's; what is needed to describe a new one is borrowed.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_abi::layout::note;
use gputrace_abi::stack::DEPTH_MAX;

use super::frames::{Frames, Language, Sink};
use super::known::Known;
use super::{frames, known, native, python, spared};
use crate::thread::State;
use crate::{session, sys};

static WANTED: AtomicBool = AtomicBool::new(false);
/// A Python would keep small objects in pools of its own (PYTHONMALLOC does not say otherwise), and it was not said yet.
static POOLS: AtomicBool = AtomicBool::new(false);

/// Stacks that were described: as many as a large program has that allocates everywhere. Pages that nobody needs stay the kernel's.
static DESCRIBED: Known<65_536> = Known::new();

/// Reads what the launcher asked for. For the constructor, after libraries can be found.
pub(super) fn configure(wanted: bool) {
    WANTED.store(wanted && native::is_lock_free(), Ordering::Relaxed);
    POOLS.store(!sys::variable(b"PYTHONMALLOC").is_some_and(|name| name.starts_with(b"malloc")), Ordering::Relaxed);
}

/// It was looked for Python: what it keeps to itself is said once.
pub(super) fn looked_for_python() {
    if is_wanted() && python::is_known() && POOLS.swap(false, Ordering::Relaxed) {
        session::say(note::PYTHON_POOLS);
    }
}

/// Whether allocations get stacks in this process.
#[inline(always)]
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// The key of the calling thread's stack; 0: none was taken. `timed`: what it takes is measured, and stands for so many; what a new
/// stack takes, always.
#[inline(never)]
pub(crate) fn key(state: &State, timed: Option<u64>) -> u64 {
    if spared::is_left_out(state) {
        return 0;
    }
    if !native::is_on_own_stack() {
        return 0;
    }
    let begun = if timed.is_some() { state.now() } else { 0 };
    let Some(native) = native::remembered::hash(state) else { return 0 };
    let python = python::hash();
    let key = python.map_or(native, |python| known::mix(native, python));
    if let Some(stands_for) = timed {
        let ticks = state.now().wrapping_sub(begun);
        state.header().stack_ticks.fetch_add(ticks.wrapping_mul(stands_for), Ordering::Relaxed);
    }
    if !DESCRIBED.has(key, known::last_since()) {
        describe(state, key, python);
    }
    key
}

/// Walks again, and tells the collector. A stack that finds no room is told with its next use.
#[cold]
#[inline(never)]
fn describe(state: &State, key: u64, python: Option<u64>) {
    let (begun, since) = (state.now(), known::since(state));
    SPARE.borrow(|frames| {
        frames.begin(Language::Native);
        // Who called Python is looked at again only where no stack had the same callers.
        let outer = python.and_then(|python| {
            let native = native::remembered::hash_from(state, walk_called(frames)?)?;
            Some(known::mix(native, python))
        });
        let mut called = frames.key.count as usize;
        if called == 0 || !outer.is_some_and(|outer| frames::is_calling(outer, since)) {
            frames.begin(Language::Native);
            called = walk(frames);
        }
        let described = match called {
            _ if frames.key.count == 0 => false,
            0 => frames.describe(state, key, since),
            called => frames.describe_called(state, key, called, outer, since),
        };
        if described {
            DESCRIBED.insert(key, since);
        }
    });
    state.header().stack_ticks.fetch_add(state.now().wrapping_sub(begun), Ordering::Relaxed);
}

/// The thread ends.
pub(crate) fn forget(state: &State) {
    native::remembered::forget(state.number());
}

/// Tells the frames that Python called. Where the frame lies that runs Python; none where none does, or they are too many.
fn walk_called(sink: &mut impl Sink) -> Option<usize> {
    let python = python::Activations::of_this_thread()?;
    let mut found = None;
    native::walk(|pc, extent| {
        if python.runs(pc, &extent) {
            found = Some(extent.start);
        }
        found.is_none() && sink.native(pc)
    });
    found
}

/// Tells all frames, but for the interpreter's own between two functions of Python: they say that one called the other, and there are three or
/// four of them for each. How many frames Python called; 0 where it does not run, or they are all that there is room for.
fn walk(frames: &mut Frames<DEPTH_MAX>) -> usize {
    let sink = frames;
    let mut python = python::Activations::of_this_thread();
    let (mut room, mut called) = (true, None);
    native::walk(|pc, extent| {
        room = match python.as_mut() {
            Some(python) if python.runs(pc, &extent) => {
                called = called.or(Some(sink.key.count as usize));
                python.next(sink)
            }
            Some(python) if called.is_some() && python.is_between(pc) => true,
            _ => sink.native(pc),
        };
        room
    });
    // Where the way through native code ends early, what Python knows of lies further out.
    while room && let Some(python) = python.as_mut().filter(|python| !python.is_over()) {
        room = python.next(sink);
    }
    called.filter(|called| *called < sink.key.count as usize).unwrap_or(0)
}

static SPARE: Spare =
    Spare([const { Place { taken: AtomicBool::new(false), frames: UnsafeCell::new(Frames::unused()) } }; 8]);

/// Memory for stacks that are being described. A place that a thread left by siglongjmp or its end stays taken.
struct Spare([Place; 8]);

struct Place {
    taken: AtomicBool,
    frames: UnsafeCell<Frames<DEPTH_MAX>>,
}

// SAFETY: a place's frames are touched only by who has set `taken`.
unsafe impl Sync for Spare {}

impl Spare {
    fn borrow(&self, work: impl FnOnce(&mut Frames<DEPTH_MAX>)) {
        let free = |place: &&Place| !place.taken.swap(true, Ordering::Acquire);
        if let Some(place) = self.0.iter().find(free) {
            // SAFETY: this thread took the place, and nobody else does before it is given back.
            work(unsafe { &mut *place.frames.get() });
            place.taken.store(false, Ordering::Release);
        }
    }
}
