//! Which allocations are recorded.
//!
//! Allocations are points on a line of bytes; samples fall on that line as a Poisson process with a mean distance of
//! 1 MiB, or what was asked for. An allocation of `s` bytes is recorded if at least one sample falls into it, with probability
//! 1 - exp(-s/mean), so sums over recorded blocks of s / (1 - exp(-s/mean)) are unbiased. The distance to the next
//! sample is drawn anew each time (the process has no memory), so a thread keeps one number, its countdown.
//!
//! To keep to a budget the collector may want samples further apart ([`gputrace_abi::shed`]). A distance that is drawn keeps
//! its mean, and the event that ends it says which that was: so sums stay unbiased whenever it changes.
//!
//! Frees of recorded blocks are found by [`crate::tracked`].

use core::hint::cold_path;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_abi::layout::malloc_mode;
use gputrace_abi::local;
use gputrace_abi::shed::Shed;

use crate::thread::State;
use crate::{session, tracked};

const DEFAULT_MEAN_BYTES: u64 = 1 << 20;

static MODE: AtomicU32 = AtomicU32::new(malloc_mode::OFF);
static MEAN_BYTES: AtomicU64 = AtomicU64::new(0);

/// `GPUTRACE_MALLOC`: sample, sample:BYTES or full; none: off.
pub(crate) fn configure(wanted: Option<&[u8]>) {
    let (mode, mean) = match wanted {
        None => (malloc_mode::OFF, 0),
        Some(b"full") => (malloc_mode::FULL, 0),
        Some(other) => {
            let bytes = other.strip_prefix(b"sample:").and_then(session::number);
            (malloc_mode::SAMPLE, bytes.filter(|b| *b > 0).unwrap_or(DEFAULT_MEAN_BYTES))
        }
    };
    // Where blocks are remembered stands before the first one is recorded.
    MEAN_BYTES.store(mean, Ordering::Relaxed);
    if mode == malloc_mode::SAMPLE {
        tracked::prepare(mean);
    }
    MODE.store(mode, Ordering::Release);
}

/// Whether allocations are not looked at at all.
pub(crate) fn is_off() -> bool {
    mode() == malloc_mode::OFF
}

/// Whether a sample of allocations is recorded. Where it is, [`tracked`] is prepared.
pub(crate) fn is_sampling() -> bool {
    // With the Release in `configure`.
    MODE.load(Ordering::Acquire) == malloc_mode::SAMPLE
}

/// One of [`malloc_mode`].
#[inline(always)]
pub(crate) fn mode() -> u32 {
    MODE.load(Ordering::Relaxed)
}

/// Mean distance of samples; 0 unless sampling.
pub(crate) fn mean_bytes() -> u64 {
    MEAN_BYTES.load(Ordering::Relaxed)
}

/// Sets a thread's countdown for its first time. Its segment is known.
pub(crate) fn reset(state: &State) {
    if !is_sampling() {
        return;
    }
    let rarer = Shed::of(state.header().shed.load(Ordering::Relaxed)).malloc;
    state.rarer.set(rarer);
    let distance = distance(state, mean_bytes() as f64 * (1u64 << rarer) as f64);
    state.countdown.store(distance as u64, Ordering::Relaxed);
}

/// Takes an allocation off the distance to the next sample. False, and nothing is taken off: [`chooses`] decides.
///
/// One instruction takes it off, as in [`crate::hooks::alloc`]'s quick way: a signal handler that samples in the middle has drawn
/// a distance that nothing overwrites.
#[inline(always)]
pub(crate) fn passes(state: &State, bytes: usize) -> bool {
    let before = local::fetch_add(&state.countdown, (bytes as u64).wrapping_neg());
    // What half of all memory and more would be is no number of bytes; the distance is 0 where a fork wiped the state.
    let passes = (bytes as u64) < before && before <= i64::MAX as u64;
    if !passes {
        cold_path();
        local::fetch_add(&state.countdown, bytes as u64);
    }
    passes
}

/// Whether this allocation is recorded, and by how many powers of two samples lay further apart than was asked for. Then the
/// next distance is drawn.
pub(crate) fn chooses(state: &State, bytes: usize) -> Option<u8> {
    // What no allocator has comes to nothing, and says nothing about the distance.
    let bytes = i64::try_from(bytes).ok().filter(|_| is_sampling())?;
    let left = (state.countdown.load(Ordering::Relaxed) as i64).saturating_sub(bytes);
    if left > 0 {
        state.countdown.store(left as u64, Ordering::Relaxed);
        return None;
    }
    let rarer = state.rarer.get();
    reset(state);
    Some(rarer)
}

/// An exponentially distributed number of bytes, at least 1.
fn distance(state: &State, mean: f64) -> i64 {
    ((-natural_logarithm(uniform(state)) * mean) as i64).saturating_add(1)
}

/// Trials up to and with the first success, where one in `mean` succeeds: geometrically distributed, at least 1.
pub(crate) fn geometric(state: &State, mean: u64) -> i64 {
    if mean <= 1 {
        return 1;
    }
    // A logarithm near 1 by its series: `natural_logarithm(1 - 1e-9)` has no digits left.
    let p = 1.0 / mean as f64;
    let per_trial = if p < 1e-4 { p + p * p / 2.0 } else { -natural_logarithm(1.0 - p) };
    (-natural_logarithm(uniform(state)) / per_trial) as i64 + 1
}

/// Whether this one is drawn, of two to the power of `power`.
pub(crate) fn one_in(state: &State, power: u8) -> bool {
    random(state).leading_zeros() >= power.into()
}

/// A number above 0, at most 1.
fn uniform(state: &State) -> f64 {
    ((random(state) >> 11) + 1) as f64 / (1u64 << 53) as f64
}

fn random(state: &State) -> u64 {
    // xorshift64*: good enough for distances, and a few cycles.
    let mut x = state.random.get() | 1;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state.random.set(x);
    x.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// ln x for 0 < x <= 1, to 1e-9: exponent and a series in z = (m-1)/(m+1). libm would be another library to load.
fn natural_logarithm(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 1023 << 52);
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let z2 = z * z;
    let series = 1.0
        + z2 * (1.0 / 3.0
            + z2 * (1.0 / 5.0
                + z2 * (1.0 / 7.0 + z2 * (1.0 / 9.0 + z2 * (1.0 / 11.0 + z2 * (1.0 / 13.0 + z2 * (1.0 / 15.0)))))));
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * z * series
}
