//! macOS has no folders that a process sees and others do not, and does not say who uses the GPU.

use std::path::Path;

/// Nothing is.
pub(in crate::launch) fn cut_off(_: u32, _: &Path) -> Option<&'static str> {
    None
}

/// Not known: what keeps the shim out of a process is found in its file.
pub(in crate::launch) fn uses_cuda(_: u32) -> bool {
    false
}

/// Not known: nobody is named for want of it.
pub(in crate::launch) fn has_shim(_: u32) -> bool {
    true
}
