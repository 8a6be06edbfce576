//! The machine, the container and the limits of this process.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

use std::ffi::CString;

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(target_os = "macos")]
use macos as platform;

use super::Check;
use crate::launch::environ;

/// The shim takes at most an eighth of RLIMIT_AS, and needs this much to start.
const SEGMENT_BYTES: u64 = 16 << 20;
const LEAST_SEGMENT_BYTES: u64 = 4 << 20;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = platform::checks();
    checks.push(folder());
    checks.extend(preload());
    checks.extend(platform::restrictions());
    checks.push(limit("RLIMIT_AS", libc::RLIMIT_AS, 8));
    checks.push(limit("RLIMIT_FSIZE", libc::RLIMIT_FSIZE, 1));
    checks.push(open_files());
    checks
}

fn folder() -> Check {
    let here = std::env::current_dir().unwrap_or_default();
    let shown = here.display().to_string();
    // SAFETY: the name ends in a nul byte.
    if unsafe { libc::access(c".".as_ptr(), libc::W_OK) } != 0 {
        return Check::note("trace", format!("{shown} is not writable"), "say where the trace shall be with -o");
    }
    let free = free_bytes(&shown).map_or(0, |(_, free)| free);
    let found = format!("{shown}: {:.1} GiB free", free as f64 / f64::from(1 << 30));
    if free < 2 << 30 {
        return Check::note("trace", found, "a trace takes up to 2 GiB: set --max-size, or -o on another disk");
    }
    Check::fine("trace", found)
}

fn preload() -> Option<Check> {
    let preload = std::env::var(environ::PRELOAD).ok().filter(|value| !value.is_empty())?;
    Some(Check::note(environ::PRELOAD, format!("{preload}: stays, after the shim"), ""))
}

/// What names a limit: another type on each system.
#[cfg(target_os = "linux")]
type Limit = libc::__rlimit_resource_t;
#[cfg(target_os = "macos")]
type Limit = libc::c_int;

/// A limit that bounds the segment; the shim may use the limit divided by `share`.
fn limit(name: &'static str, which: Limit, share: u64) -> Check {
    let (soft, _) = limits(which);
    let room = soft / share;
    if soft == libc::RLIM_INFINITY {
        Check::fine(name, "unlimited")
    } else if room < LEAST_SEGMENT_BYTES {
        let least = (LEAST_SEGMENT_BYTES * share) >> 20;
        Check::fail(name, format!("{} MiB leaves no room for events", soft >> 20), format!("raise it to {least} MiB"))
    } else if room < SEGMENT_BYTES {
        Check::note(name, format!("{} MiB", soft >> 20), "the memory for events is smaller than usual")
    } else {
        Check::fine(name, format!("{} MiB", soft >> 20))
    }
}

fn open_files() -> Check {
    let (soft, hard) = limits(libc::RLIMIT_NOFILE);
    let found = format!("{soft}, at most {hard}");
    if hard < 64 {
        Check::note("RLIMIT_NOFILE", found, "with many processes some may not be traced")
    } else {
        Check::fine("RLIMIT_NOFILE", found)
    }
}

fn limits(which: Limit) -> (u64, u64) {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call.
    unsafe { libc::getrlimit(which, &mut limits) };
    (limits.rlim_cur, limits.rlim_max)
}

/// Size and free bytes of the file system at `path`.
fn free_bytes(path: &str) -> Option<(u64, u64)> {
    let path = CString::new(path).ok()?;
    // SAFETY: plain data, for which zeros are valid; the path ends in a nul byte.
    let meta = unsafe {
        let mut meta: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut meta) == 0).then_some(meta)?
    };
    Some((meta.f_blocks as u64 * meta.f_frsize, meta.f_bavail as u64 * meta.f_frsize))
}
