//! macOS: the clock.

use super::super::Check;

pub(super) fn checks() -> Vec<Check> {
    let found = if cfg!(target_arch = "aarch64") { "the processor's counter" } else { "mach_absolute_time" };
    vec![Check::fine("clock", found)]
}

pub(super) fn restrictions() -> Vec<Check> {
    Vec::new()
}
