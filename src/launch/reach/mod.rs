//! Whether the shim can have reached a process, by what the kernel keeps about it.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[cfg(target_os = "linux")]
pub(super) use linux::{cut_off, has_shim, uses_cuda};
#[cfg(target_os = "macos")]
pub(super) use macos::{cut_off, has_shim, uses_cuda};

use super::environ::PRELOAD;
use super::links::preload;

/// What the environment of a process says of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Its loader was told of the shim.
    Preloaded,
    /// It is one of ours, but LD_PRELOAD is without the shim.
    Dropped,
    /// LD_PRELOAD has the shim of another session: that of a gputrace inside this one.
    Inner,
    /// The environment says nothing, or cannot be read.
    Unknown,
}

/// What this environment, `NAME=value` each followed by a nul byte, says of the session in this folder.
pub(super) fn reach(environment: Option<&[u8]>, session: &Path) -> Reach {
    let Some(environment) = environment else { return Reach::Unknown };
    let session = session.as_os_str().as_bytes();
    let names = |text: &[u8]| text.windows(session.len()).any(|window| window == session);
    let of_loader =
        |variable: &&[u8]| variable.strip_prefix(PRELOAD.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    let preloaded = || environment.split(|byte| *byte == 0).filter(of_loader);
    let shim = preload(Path::new(""));
    let has_shim = |variable: &[u8]| variable.windows(shim.len()).any(|window| window == shim.as_bytes());
    if preloaded().any(names) {
        Reach::Preloaded
    } else if preloaded().any(has_shim) {
        Reach::Inner
    } else if names(environment) {
        Reach::Dropped
    } else {
        Reach::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_must_stand_in_ld_preload_itself() {
        let session = Path::new("/tmp/gputrace-1-abc");
        let of = |text: &str| reach(Some(text.as_bytes()), session);
        assert_eq!(of("A=1\0LD_PRELOAD=/x.so:/tmp/gputrace-1-abc/$LIB/l.so\0"), Reach::Preloaded);
        assert_eq!(of("LD_PRELOAD=libm.so.6\0GPUTRACE_SESSION=/tmp/gputrace-1-abc\0"), Reach::Dropped);
        assert_eq!(of("OLD_LD_PRELOAD=/tmp/gputrace-1-abc/$LIB/l.so\0"), Reach::Dropped);
        let inner = preload(Path::new("/tmp/gputrace-2-def"));
        assert_eq!(of(&format!("LD_PRELOAD={}:libm.so.6\0", inner.display())), Reach::Inner);
        assert_eq!(of("HOME=/root\0"), Reach::Unknown);
        assert_eq!(reach(None, session), Reach::Unknown);
    }
}
