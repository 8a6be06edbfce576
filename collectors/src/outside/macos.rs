//! On macOS: nothing. Reading another process takes an entitlement that a tracer has not.

use super::Outside;

/// Nothing is known of its threads.
pub(crate) fn look(_: i32) -> Outside {
    Outside { limit: Some("macOS lets nobody read another process".to_owned()), ..Outside::default() }
}

/// Whether somebody has stopped the process; nobody can tell.
pub(crate) fn is_stopped(_: i32) -> bool {
    false
}

/// Whether the thread computes; nobody can tell.
pub(crate) fn is_on_processor(_: i32, _: i32) -> bool {
    false
}
