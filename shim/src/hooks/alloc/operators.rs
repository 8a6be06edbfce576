//! C++'s operator new and delete of an allocator that stands before libc's malloc, and does not come to its own malloc by name: tcmalloc,
//! mimalloc.
//!
//! Not by symbols of ours: they would be found before the C++ library of every plugin that brings its own, and which of these to call then,
//! and for how long it stays loaded, nobody could say. An allocator that was preloaded or linked is found first anyway, and by everybody. So
//! where libraries call its operators by a slot, the slot leads here ([`slots`]), and what the allocator calls of itself leads to
//! itself: a call is recorded once, wherever it goes from there.
//!
//! What a library that is opened later calls is led here at the first object with a destructor that its constructors made
//! (`__cxa_atexit`), or at the program's next look-up of a symbol or a library: what was allocated until then is not seen.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gputrace_abi::layout::{malloc_mode, note};
use gputrace_abi::pending::MALLOC;

use super::number::{OPERATOR_DELETE, OPERATOR_NEW};
#[cfg(target_arch = "x86_64")]
use super::quick;
use super::{calls, culled};
use crate::interpose::elf;
use crate::interpose::slots::{self, Slot};
#[cfg(target_arch = "x86_64")]
use crate::tracked;
use crate::{culling, sampling, session};

/// What follows the size or the block, an alignment, a size, `std::nothrow`, is passed on as it came. What a delete leaves in the result's
/// register nobody reads.
type Call = unsafe extern "C" fn(usize, usize, usize) -> usize;

/// One of the operators that a C++ library may replace.
struct Operator {
    name: &'static CStr,
    sampled: Call,
    full: Call,
    culled: Call,
}

impl Operator {
    fn ours(&self) -> Call {
        match sampling::mode() {
            malloc_mode::FULL if culling::is_wanted() => self.culled,
            malloc_mode::FULL => self.full,
            _ => self.sampled,
        }
    }
}

const fn new<const N: usize>(name: &'static CStr) -> Operator {
    #[cfg(target_arch = "x86_64")]
    let sampled = quick_allocate::<N>;
    #[cfg(target_arch = "aarch64")]
    let sampled = allocate::<N, false>;
    Operator { name, sampled, full: allocate::<N, true>, culled: allocate_culled::<N> }
}

const fn delete<const N: usize>(name: &'static CStr) -> Operator {
    #[cfg(target_arch = "x86_64")]
    let sampled = quick_free::<N>;
    #[cfg(target_arch = "aarch64")]
    let sampled = free::<N, false>;
    Operator { name, sampled, full: free::<N, true>, culled: free_culled::<N> }
}

/// By their names in the Itanium C++ ABI: of arrays as well, with an alignment, with a size, that throw nothing.
static OPERATORS: [Operator; 20] = [
    new::<0>(c"_Znwm"),
    new::<1>(c"_Znam"),
    new::<2>(c"_ZnwmRKSt9nothrow_t"),
    new::<3>(c"_ZnamRKSt9nothrow_t"),
    new::<4>(c"_ZnwmSt11align_val_t"),
    new::<5>(c"_ZnamSt11align_val_t"),
    new::<6>(c"_ZnwmSt11align_val_tRKSt9nothrow_t"),
    new::<7>(c"_ZnamSt11align_val_tRKSt9nothrow_t"),
    delete::<8>(c"_ZdlPv"),
    delete::<9>(c"_ZdaPv"),
    delete::<10>(c"_ZdlPvm"),
    delete::<11>(c"_ZdaPvm"),
    delete::<12>(c"_ZdlPvRKSt9nothrow_t"),
    delete::<13>(c"_ZdaPvRKSt9nothrow_t"),
    delete::<14>(c"_ZdlPvSt11align_val_t"),
    delete::<15>(c"_ZdaPvSt11align_val_t"),
    delete::<16>(c"_ZdlPvmSt11align_val_t"),
    delete::<17>(c"_ZdaPvmSt11align_val_t"),
    delete::<18>(c"_ZdlPvSt11align_val_tRKSt9nothrow_t"),
    delete::<19>(c"_ZdaPvSt11align_val_tRKSt9nothrow_t"),
];

/// The allocator's own, in the same order; 0: it has none, and nobody is led here.
static NEXT: [AtomicUsize; OPERATORS.len()] = [const { AtomicUsize::new(0) }; OPERATORS.len()];

/// Where the allocator lies; 0: there is none whose operators are led here.
static FROM: AtomicUsize = AtomicUsize::new(0);
static TO: AtomicUsize = AtomicUsize::new(0);
/// [`elf::changes`] as of the last look that missed nothing.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Looks in a row at which a library was being opened, and how many there may be: each takes a ms in a large program.
static AGAIN: AtomicUsize = AtomicUsize::new(0);
const MOST_LOOKS: usize = 100;

/// Leads the operators of the allocator with this malloc here, if it has any, and C++ finds them first.
pub(super) fn lead(malloc: usize) {
    let (from, to) = elf::range_of(malloc);
    if sampling::is_off() {
        return;
    }
    let mut any = false;
    for (operator, next) in OPERATORS.iter().zip(&NEXT) {
        let found = elf::next_definition(operator.name);
        // A program may bring some of them, which everybody finds before those of the allocator.
        let is_found = (from..to).contains(&found) && elf::earlier_definition(operator.name) == 0;
        next.store(if is_found { found } else { 0 }, Ordering::Relaxed);
        any |= is_found;
    }
    if !any {
        return;
    }
    TO.store(to, Ordering::Relaxed);
    FROM.store(from, Ordering::Relaxed);
    look_again();
}

/// Leads what libraries call that came since the last look.
pub(crate) fn look_again() {
    let (from, to) = (FROM.load(Ordering::Relaxed), TO.load(Ordering::Relaxed));
    if from == 0 {
        return;
    }
    let changes = elf::changes();
    if SEEN.load(Ordering::Relaxed) == changes {
        return;
    }
    let outcome = slots::lead(|slot| match slot.is_of_library(from, to) {
        true => of_the_allocator(slot),
        false => of_others(slot),
    });
    // A library is opened in a moment. What is to be protected and never is (pages larger than the linker thought) stays as it is.
    let gives_up = outcome.unfinished && AGAIN.fetch_add(1, Ordering::Relaxed) >= MOST_LOOKS;
    if !outcome.unfinished || gives_up {
        SEEN.store(changes, Ordering::Relaxed);
        AGAIN.store(0, Ordering::Relaxed);
    }
    if outcome.failed || gives_up {
        session::say(note::OTHER_NEW);
    }
}

/// What it has itself it calls itself, as it would without us.
fn of_the_allocator(slot: &Slot<'_>) -> Option<usize> {
    Some(slot.own()).filter(|own| *own != 0 && slot.leads_to_us())
}

fn of_others(slot: &Slot<'_>) -> Option<usize> {
    let bytes = slot.name.to_bytes();
    if !bytes.starts_with(b"_Zn") && !bytes.starts_with(b"_Zd") {
        return None;
    }
    let (operator, next) = OPERATORS.iter().zip(&NEXT).find(|(operator, _)| operator.name == slot.name)?;
    let next = next.load(Ordering::Relaxed);
    (next != 0 && slot.leads_to(next)).then(|| operator.ours() as usize)
}

#[inline(always)]
fn next<const N: usize>() -> Call {
    const { assert!(N < OPERATORS.len()) };
    let address = NEXT.get(N).map_or(0, |next| next.load(Ordering::Relaxed));
    // SAFETY: nobody is led here before the allocator's operator of this number was found, which stays where it is.
    unsafe { core::mem::transmute::<usize, Call>(address) }
}

/// `void *operator new(std::size_t, ...)`. One that throws, or calls a handler that does, leaves through here.
unsafe extern "C" fn allocate<const N: usize, const FULL: bool>(bytes: usize, second: usize, third: usize) -> usize {
    // SAFETY: the program's own arguments.
    let call = || unsafe { next::<N>()(bytes, second, third) } as *mut c_void;
    calls::allocation::<FULL>(OPERATOR_NEW, bytes, call) as usize
}

/// The quick way before that.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn quick_allocate<const N: usize>(_: usize, _: usize, _: usize) -> usize {
    quick::allocation!(
        "rdi", [], "qword ptr [rip + {next} + {at}]", "{long}",
        next = sym NEXT, at = const 8 * N, long = sym allocate::<N, false>,
    )
}

/// The same where short lives are summed up: of those that are told late nobody knows that it was not malloc.
unsafe extern "C" fn allocate_culled<const N: usize>(bytes: usize, second: usize, third: usize) -> usize {
    // SAFETY: the program's own arguments.
    let call = || unsafe { next::<N>()(bytes, second, third) } as *mut c_void;
    culled::allocation(MALLOC, bytes, call, || calls::allocation::<true>(OPERATOR_NEW, bytes, call)) as usize
}

/// `void operator delete(void *, ...) noexcept`
unsafe extern "C" fn free<const N: usize, const FULL: bool>(block: usize, second: usize, third: usize) -> usize {
    // SAFETY: the program's own arguments.
    calls::freed::<FULL>(OPERATOR_DELETE, block, || _ = unsafe { next::<N>()(block, second, third) });
    0
}

/// The quick way before that.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn quick_free<const N: usize>(_: usize, _: usize, _: usize) -> usize {
    quick::free!(
        "qword ptr [rip + {next} + {at}]", "{long}",
        next = sym NEXT, at = const 8 * N, long = sym free::<N, false>,
    )
}

/// The same where short lives are summed up.
unsafe extern "C" fn free_culled<const N: usize>(block: usize, second: usize, third: usize) -> usize {
    // SAFETY: the program's own arguments.
    let call = || _ = unsafe { next::<N>()(block, second, third) };
    culled::freed(block, call, || calls::freed::<true>(OPERATOR_DELETE, block, call));
    0
}
