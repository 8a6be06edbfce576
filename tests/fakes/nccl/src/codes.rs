//! Result codes (ncclResult_t).

/// Success.
pub(crate) const SUCCESS: i32 = 0;
/// Something that should not be.
pub(crate) const INTERNAL_ERROR: i32 = 3;
/// A wrong argument.
pub(crate) const INVALID_ARGUMENT: i32 = 4;
