//! The clock that stamps events: raw ticks here, nanoseconds only in the collector.
//!
//! A read of the TSC costs 8.5 ns, of CLOCK_MONOTONIC 19. Which one a segment uses stands in its header; the
//! launcher decides it once per session (an invariant TSC that the kernel itself uses), since asking costs each
//! process a file read.

/// Which clock stamped the events of a segment.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// CLOCK_MONOTONIC in nanoseconds.
    Monotonic = 0,
    /// x86-64 time stamp counter.
    Tsc = 1,
    /// aarch64 virtual counter.
    Cntvct = 2,
}

impl ClockKind {
    /// The kind with this number, if there is one.
    pub fn from_u32(n: u32) -> Option<ClockKind> {
        match n {
            0 => Some(ClockKind::Monotonic),
            1 => Some(ClockKind::Tsc),
            2 => Some(ClockKind::Cntvct),
            _ => None,
        }
    }

    /// The name used in the environment and the manifest.
    pub fn name(self) -> &'static str {
        match self {
            ClockKind::Monotonic => "monotonic",
            ClockKind::Tsc => "tsc",
            ClockKind::Cntvct => "cntvct",
        }
    }
}

/// One moment on three clocks. 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockPair {
    /// Ticks of the segment's clock.
    pub ticks: u64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, ns since the Unix epoch.
    pub realtime_ns: u64,
}

const _: () = assert!(size_of::<ClockPair>() == 24);

/// The processor's own counter: the TSC.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; user space may run it where the launcher chose this clock.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The processor's own counter: the virtual count register.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
pub fn counter() -> u64 {
    let value: u64;
    // SAFETY: reading the virtual counter is allowed in user space on Linux and macOS and has no side effect.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack)) };
    value
}

/// What was read of the counter before was read before what comes now is done.
#[inline(always)]
pub fn in_order() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction, which changes nothing.
    unsafe {
        core::arch::x86_64::_mm_lfence()
    };
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the instruction changes nothing.
    unsafe {
        core::arch::asm!("isb", options(nostack))
    };
}

/// Miri has no counter; its tests never look at times.
#[cfg(miri)]
pub fn counter() -> u64 {
    0
}

/// The counter's kind on this architecture.
pub const COUNTER: ClockKind = if cfg!(target_arch = "aarch64") { ClockKind::Cntvct } else { ClockKind::Tsc };
