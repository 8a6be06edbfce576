//! Counters of the processor for a process, by perf_event_open: those of the hardware where the kernel has them and allows them, the
//! kernel's own otherwise.
//!
//! They are opened when the process has just begun, for each thread that it has by then, and inherited by those that come. A thread
//! that is counted costs the kernel something at each switch and each new thread, so nobody is counted who was not asked for. Only user
//! mode is counted: more is forbidden on most systems.

use std::fs::{self, File};
use std::io::{Error, Read};
use std::os::fd::FromRawFd;

use super::{Id, Page};

const HARDWARE: u64 = 0;
const SOFTWARE: u64 = 1;

/// Counter, type and number of the event (perf_event_open(2)).
const EVENTS: [(Id, u64, u64); 4] = [
    (Id::Cycles, HARDWARE, 0),
    (Id::Instructions, HARDWARE, 1),
    (Id::CacheMisses, HARDWARE, 3),
    (Id::BranchMisses, HARDWARE, 5),
];

/// The same of the kernel's own.
const OWN: [(Id, u64, u64); 3] =
    [(Id::TaskClock, SOFTWARE, 1), (Id::PageFaults, SOFTWARE, 2), (Id::ContextSwitches, SOFTWARE, 3)];

/// Bits of the attributes: inherited by children; without the kernel; without a hypervisor; by threads only (Linux 5.13).
const INHERIT: u64 = 1 << 1;
const NO_KERNEL: u64 = 1 << 5;
const NO_HYPERVISOR: u64 = 1 << 6;
const THREADS_ONLY: u64 = 1 << 35;

/// A count, and how long it was enabled and on the processor: the hardware has few counters, and takes turns.
type Count = [u64; 3];

struct Event {
    id: Id,
    /// For each thread that was there.
    files: Vec<File>,
    last: Option<Count>,
}

/// Threads that are opened; a process has few when it begins.
const THREADS: usize = 64;

/// What is counted of a process.
pub(super) struct Events {
    events: Vec<Event>,
    then_ns: u64,
}

impl Events {
    /// Opens what the kernel gives; says what it does not.
    pub(super) fn open(pid: i32, page: &Page<'_>) -> Events {
        let mut events = Vec::new();
        let mut refused = None;
        for (id, kind, number) in EVENTS {
            match open_all(pid, kind, number) {
                Ok(files) => events.push(Event { id, files, last: None }),
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = &refused {
            page.missing("perf", format!("counters of the hardware: {}", why(error)));
        }
        if events.is_empty() {
            for (id, kind, number) in OWN {
                match open_all(pid, kind, number) {
                    Ok(files) => events.push(Event { id, files, last: None }),
                    Err(error) => page.lacks("perf", "counters of the kernel", id.counter().name, &why(&error)),
                }
            }
        }
        Events { events, then_ns: page.at_ns }
    }

    /// What was counted since the last reading.
    pub(super) fn read(&mut self, whose: (i64, i32), page: &mut Page<'_>) {
        for event in &mut self.events {
            let Some(now) = event.files.iter_mut().map(count).reduce(|a, b| add(a?, b?)).flatten() else { continue };
            let before = event.last.replace(now).unwrap_or_default();
            page.since(self.then_ns, Some(whose), None, event.id, added(now, before));
        }
        self.then_ns = page.at_ns;
    }
}

/// What was added, for the whole time: as much again for the time in which another event had the counter.
fn added(now: Count, before: Count) -> f64 {
    let [value, enabled, running] = [0, 1, 2].map(|n| now[n].saturating_sub(before[n]) as f64);
    if running > 0.0 && running < enabled { value * enabled / running } else { value }
}

fn add(one: Count, other: Count) -> Option<Count> {
    Some([0, 1, 2].map(|n| one[n] + other[n]))
}

fn count(file: &mut File) -> Option<Count> {
    let mut bytes = [0u8; 24];
    file.read_exact(&mut bytes).ok()?;
    let word = |n: usize| bytes[n * 8..][..8].try_into().map_or(0, u64::from_ne_bytes);
    Some([0, 1, 2].map(word))
}

/// Opens a counter of each of a process's threads; an error where not one can be.
fn open_all(pid: i32, kind: u64, number: u64) -> Result<Vec<File>, Error> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse::<i32>().ok());
    let others: Vec<i32> = threads.filter(|tid| *tid != pid).take(THREADS - 1).collect();
    let mut files = vec![open(pid, kind, number)?];
    // A thread that has ended meanwhile is none.
    files.extend(others.into_iter().filter_map(|tid| open(tid, kind, number).ok()));
    Ok(files)
}

/// Opens a counter of a thread and of those that it will start.
fn open(tid: i32, kind: u64, number: u64) -> Result<File, Error> {
    let flags = INHERIT | NO_KERNEL | NO_HYPERVISOR;
    match open_with(tid, kind, number, flags | THREADS_ONLY) {
        // An older kernel: processes that it forks without exec are counted with it too.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open_with(tid, kind, number, flags),
        other => other,
    }
}

fn open_with(tid: i32, kind: u64, number: u64, flags: u64) -> Result<File, Error> {
    const BYTES: u64 = 64;
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    /// Counts come with the time enabled and the time on the processor.
    const TIMES: u64 = 0b11;
    // PERF_ATTR_SIZE_VER0: type and size, configuration, period, sample type, read format, flags, two words for breakpoints.
    let low = if cfg!(target_endian = "little") { kind | BYTES << 32 } else { kind << 32 | BYTES };
    let attributes: [u64; 8] = [low, number, 0, 0, TIMES, flags, 0, 0];
    // SAFETY: the kernel reads the 64 bytes that the structure says it has; the other arguments are numbers.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), tid, -1, -1, CLOSE_ON_EXEC) };
    match i32::try_from(fd) {
        // SAFETY: the call returned a new descriptor, which nobody else has.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(Error::last_os_error()),
    }
}

fn why(error: &Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!(
                "not allowed: kernel.perf_event_paranoid is {}, 2 or less is needed, or the container forbids it",
                level.trim()
            )
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this machine (a virtual one, mostly) has none".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_took_turns_stands_for_the_whole_time() {
        assert_eq!(added([500, 2_000, 1_000], [100, 1_000, 600]), 1_000.0);
        assert_eq!(added([500, 2_000, 2_000], [100, 1_000, 1_000]), 400.0);
        assert_eq!(added([0, 2_000, 0], [0, 1_000, 0]), 0.0);
    }

    #[test]
    fn refusals_are_told_with_what_to_do() {
        assert!(why(&Error::from_raw_os_error(libc::EACCES)).contains("perf_event_paranoid"));
        assert!(why(&Error::from_raw_os_error(libc::ENOENT)).contains("virtual"));
    }
}
