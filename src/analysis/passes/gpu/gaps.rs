//! Why a device did nothing: the cause of a gap between two operations.
//!
//! The operation after the gap was caused by a call. Where that call began after the device had run dry, the host gave no
//! work in time, and the cause is what the launching thread did from then on: it still stood in a wait for the work that had
//! just ended; or one kind of call took at least half of the gap; or it was outside of the driver. Where the call began
//! before, the work was there and the device did not begin it.

use super::calls::{Call, Calls, Did};

/// Why a device did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub(crate) enum Cause {
    /// The host was outside of the driver: Python or other work.
    NotLaunched,
    /// The launching thread waited for the work before the gap.
    AfterWait,
    /// The host was in calls that copy or set.
    Transfer,
    /// The host was in calls that take or give back memory.
    Memory,
    /// The host loaded or compiled code.
    Load,
    /// The host was in calls of NCCL.
    Collective,
    /// The host waited for the operating system: locks, files, other threads, sleeps.
    System,
    /// The host was in calls that launch: those before, or a slow one that gave no work yet.
    LaunchCalls,
    /// The host was in other calls of the driver.
    Driver,
    /// The call that launched the next operation was under way, or it had returned within the last few microseconds.
    Launching,
    /// The next operation was queued, and began within 30 ns (HTA's kernel wait).
    KernelWait,
    /// The next operation was queued and waited for something else: an event, a copy, its place in the hardware's queue.
    Queued,
    /// The call is not in the trace.
    Unknown,
}

/// All causes, as they are shown: name in JSON, and what it is.
pub(crate) const CAUSES: [(Cause, &str, &str); 13] = [
    (Cause::NotLaunched, "not_launched", "host outside the driver"),
    (Cause::AfterWait, "after_wait", "after a wait of the host"),
    (Cause::Transfer, "transfer", "host in copies or sets"),
    (Cause::Memory, "memory", "host in allocations or frees"),
    (Cause::Load, "loading", "host loads or compiles code"),
    (Cause::Collective, "collective", "host in calls of NCCL"),
    (Cause::System, "system", "host waits for the system"),
    (Cause::LaunchCalls, "launch_calls", "host in launch calls"),
    (Cause::Driver, "driver", "host in other driver calls"),
    (Cause::Launching, "launching", "launch under way"),
    (Cause::KernelWait, "kernel_wait", "queued, begins within 30 ns"),
    (Cause::Queued, "queued", "queued, waits on the device"),
    (Cause::Unknown, "unknown", "its call is not in the trace"),
];

impl Cause {
    /// Whether the device had nothing to do because the host had given it nothing.
    pub(crate) fn is_host(self) -> bool {
        (self as usize) < Cause::Launching as usize
    }
}

/// HTA's limit for the delay between consecutive kernels.
const KERNEL_WAIT_NS: i64 = 30;
/// What a launch takes from the end of its call to the begin of its kernel on an idle device, at most.
const LAUNCH_LATENCY_NS: i64 = 10_000;

/// A gap's cause, and the call that it is blamed on: the wait, the call that took most of it, else the launch after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caused<C> {
    pub(crate) cause: Cause,
    pub(crate) call: Option<C>,
    /// After a wait: time of the gap in which the launching thread then waited for the operating system.
    pub(crate) system_ns: i64,
    /// Whatever the cause: time of the gap in which the launching thread took or gave back memory.
    pub(crate) memory_ns: i64,
}

impl<C> Caused<C> {
    fn by(cause: Cause, call: Option<C>) -> Caused<C> {
        Caused { cause, call, system_ns: 0, memory_ns: 0 }
    }
}

/// Which gaps are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GapKey {
    pub(crate) process_id: i64,
    pub(crate) cause: Cause,
    /// What the call did that it is blamed on, and its function.
    pub(crate) did: Option<Did>,
    pub(crate) api_id: i64,
    /// Its stack, where one was taken.
    pub(crate) stack_id: i64,
}

/// A single gap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Longest {
    pub(crate) start: i64,
    pub(crate) ns: i64,
    pub(crate) caused: Caused<Call>,
    /// Kernel that ended it.
    pub(crate) next_name_id: i64,
}

/// Looks for the cause of the gap from `from` to `to`; `call` caused the operation after it.
pub(super) fn cause_of<'c>(
    from: i64,
    to: i64,
    process_id: i64,
    call: Option<&'c Call>,
    calls: &'c Calls,
) -> Caused<&'c Call> {
    let Some(launch) = call else { return Caused::by(Cause::Unknown, None) };
    if launch.start < from {
        let cause = match () {
            () if to - from < KERNEL_WAIT_NS => Cause::KernelWait,
            () if launch.end.saturating_add(LAUNCH_LATENCY_NS) > from => Cause::Launching,
            () => Cause::Queued,
        };
        return Caused::by(cause, Some(launch));
    }
    // What the thread did from the moment when the device ran dry until it gave work again.
    let idle_ns = launch.start - from;
    let mut longest: Option<(i64, &Call)> = None;
    let mut waited: Option<(Cause, &Call)> = None;
    let mut sums = [0i64; 9];
    let mut memory_ns = 0;
    for other in calls.between(process_id, launch.tid, from, launch.start) {
        if other.start < from && other.end >= from {
            // A copy, free or allocation that goes on for most of the gap has work of its own; else it waited.
            let own = (other.end.min(launch.start) - from) * 2 >= idle_ns;
            let cause = match other.did {
                Did::Wait => Some(Cause::AfterWait),
                Did::Transfer => Some(if own { Cause::Transfer } else { Cause::AfterWait }),
                Did::Memory => Some(if own { Cause::Memory } else { Cause::AfterWait }),
                _ => None,
            };
            waited = waited.or(cause.map(|cause| (cause, other)));
        }
        let ns = other.end.min(launch.start) - other.start.max(from);
        sums[other.did as usize] += ns.max(0);
        if other.did == Did::Memory && other.start >= from {
            memory_ns += ns.max(0);
        }
        if longest.is_none_or(|(most, _)| ns > most) {
            longest = Some((ns, other));
        }
    }
    if let Some((cause, call)) = waited {
        let system_ns = match cause {
            Cause::AfterWait => system_ns(calls, (process_id, launch.tid), (call.end, launch.start)),
            _ => 0,
        };
        return Caused { cause, call: Some(call), system_ns, memory_ns };
    }
    let in_calls: i64 = sums.iter().sum();
    let caused = match longest {
        Some((_, other)) if in_calls * 2 >= idle_ns && in_calls > 0 => {
            let most = |did: Did| sums[did as usize];
            let kinds = [
                (Did::Launch, Cause::LaunchCalls),
                (Did::Transfer, Cause::Transfer),
                (Did::Memory, Cause::Memory),
                (Did::Load, Cause::Load),
                (Did::Collective, Cause::Collective),
                (Did::System, Cause::System),
            ];
            let kind = kinds.into_iter().max_by_key(|(did, _)| most(*did));
            let cause = kind.filter(|(did, _)| most(*did) * 2 >= in_calls).map_or(Cause::Driver, |(_, cause)| cause);
            Caused::by(cause, Some(other))
        }
        _ => Caused::by(Cause::NotLaunched, Some(launch)),
    };
    Caused { memory_ns, ..caused }
}

/// How long a thread waited for the operating system from then to then.
fn system_ns(calls: &Calls, (process_id, tid): (i64, i32), (from, to): (i64, i64)) -> i64 {
    let waits = calls.between(process_id, tid, from, to).filter(|call| call.did == Did::System);
    waits.map(|call| (call.end.min(to) - call.start.max(from)).max(0)).sum()
}
