//! Whether this program is one that died while it was traced, and is left alone since: its collector left a sign in the session's folder.

use gputrace_abi::brake;

use super::path::Path;
use crate::sys;

/// Whether there is such a sign. Only sessions that outlive their collectors have any.
pub(super) fn is_on(folder: &[u8]) -> bool {
    if sys::variable(b"GPUTRACE_SEGMENT") != Some(b"file") {
        return false;
    }
    // As large as what the segment tells of both.
    let (mut exe, mut arguments) = ([0u8; 6144], [0u8; 6144]);
    let (length, words) = (sys::executable(&mut exe), sys::arguments(&mut arguments));
    let (Some(exe), Some(arguments)) = (exe.get(..length), arguments.get(..words)) else { return false };
    let key = brake::key(exe, brake::first_word(arguments), env!("CARGO_PKG_VERSION").as_bytes());
    let mut path = Path::empty();
    path.push(folder);
    path.push(b"/");
    path.push(brake::SIGN.as_bytes());
    path.push_hex(key);
    sys::exists(path.c_str())
}
