//! Exports with a symbol version, for functions of which libraries have two that differ.
//!
//! On x86-64, `pthread_cond_wait` of GLIBC_2.2.5 takes a condition variable of another layout than that of GLIBC_2.3.2;
//! libaio's first `io_getevents` has another argument list than its second. An export without a version would answer
//! both. With the newer one's version the loader gives it to those who ask for that, and everybody else goes on to the
//! library that has the other.
//!
//! Linkers differ in whether a version of ours goes together with the list of exports that rustc hands them: lld takes
//! both, GNU ld refuses. `build.rs` tries. Where it does not go, these functions are not hooked, but for those that the
//! machine has in one version only.

#[cfg(any(versioned_exports, target_arch = "aarch64"))]
use crate::hooks::os::entry;

#[cfg(versioned_exports)]
macro_rules! versioned {
    ($name:ident, $symbol:ident, $version:literal) => {
        entry!(
            #[unsafe(no_mangle)]
            $symbol = $name,
            concat!(".symver ", stringify!($symbol), ", ", stringify!($name), "@@", $version)
        );
    };
}

#[cfg(versioned_exports)]
versioned!(io_getevents, gputrace_io_getevents, "LIBAIO_0.4");
#[cfg(all(versioned_exports, target_arch = "x86_64"))]
versioned!(pthread_cond_timedwait, gputrace_cond_timedwait, "GLIBC_2.3.2");
#[cfg(all(versioned_exports, target_arch = "x86_64"))]
versioned!(pthread_cond_wait, gputrace_cond_wait, "GLIBC_2.3.2");

// aarch64 has had one condition variable only.
#[cfg(target_arch = "aarch64")]
entry!(
    #[unsafe(no_mangle)]
    pthread_cond_timedwait = pthread_cond_timedwait,
    ""
);
#[cfg(target_arch = "aarch64")]
entry!(
    #[unsafe(no_mangle)]
    pthread_cond_wait = pthread_cond_wait,
    ""
);
