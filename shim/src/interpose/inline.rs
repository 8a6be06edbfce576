//! What the inline engine did in this process, where `--hook inline` asked for it.
//!
//! The engine ([`gputrace_abi::patches`]) has patched the driver before anybody could call it. A patched function jumps
//! to its hook, whose original is the way back into the function; so a call is seen once, whether it came by a symbol
//! of ours or to the function itself. Where the engine did not come or left a function as it was, the symbols do what
//! they do without it.

use core::ffi::c_char;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use gputrace_abi::layout::{HOOKS_MAX, HookRow};
use gputrace_abi::patches::{Outcome, Patches, why};

use super::elf::Library;
use super::lookup;
use crate::sys;

/// Written by the engine, in [`gputrace_abi::patches::SYMBOL`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "an exported name")]
pub static gputrace_patches: Patches = Patches::new();

/// What came of each hook's function: 0 where the engine did not look at it, else one of [`why`].
static OUTCOMES: [AtomicU8; HOOKS_MAX] = [const { AtomicU8::new(0) }; HOOKS_MAX];

static WANTED: AtomicBool = AtomicBool::new(false);

/// Reads from the environment whether inline hooks are asked for. For the constructor.
pub(crate) fn configure() {
    WANTED.store(sys::variable(b"GPUTRACE_HOOK") == Some(b"inline"), Ordering::Relaxed);
}

/// Whether the engine was to patch the driver and did not.
pub(super) fn is_missing() -> bool {
    WANTED.load(Ordering::Relaxed) && gputrace_patches.driver().is_none()
}

/// The driver that was patched.
pub(super) fn driver() -> Option<Library> {
    let driver = gputrace_patches.driver()?;
    // SAFETY: the engine forgets a driver before it is unmapped, and who looks here is calling into it or holds it.
    unsafe { Library::at(driver.base, driver.dynamic) }
}

/// Where the driver's function at `real` is to be called: in a patched one, after the patch.
pub(super) fn original(real: usize) -> usize {
    match gputrace_patches.outcome(real) {
        Some(Outcome::Patched(original)) => original,
        _ => real,
    }
}

/// Whether the driver's function at `real` was patched.
pub(super) fn is_patched(real: usize) -> bool {
    matches!(gputrace_patches.outcome(real), Some(Outcome::Patched(_)))
}

/// Remembers what came of the function of a hook, for [`tell`].
pub(super) fn remember(number: u16, real: usize) {
    let outcome = match gputrace_patches.outcome(real) {
        Some(Outcome::Patched(_)) => why::PATCHED,
        Some(Outcome::Left(why)) => why,
        None => 0,
    };
    if let Some(place) = OUTCOMES.get(usize::from(number)) {
        place.store(outcome, Ordering::Relaxed);
    }
}

/// Writes what came of a hook's function into its row.
pub(crate) fn tell(row: &HookRow, number: u16) {
    let outcome = OUTCOMES.get(usize::from(number)).map_or(0, |outcome| outcome.load(Ordering::Relaxed));
    if outcome != 0 {
        row.set_inline(outcome);
    }
}

/// Takes a reference on the patched driver, in whatever namespace it is: the ways back lead into it.
pub(super) fn pin() {
    match gputrace_patches.driver() {
        Some(driver) if driver.namespace != 0 => lookup::pin_in(driver.namespace, driver.path as *const c_char),
        _ => lookup::pin(super::driver::DRIVER),
    }
}
