//! Tuples of `__DATA,__interpose`: for each the loader puts our function where other libraries refer to the system's.
//!
//! Not where our own library does so, nor for calls inside of the shared cache, but for what it patches there.

/// One line of what the loader reads.
#[repr(C)]
pub(crate) struct Tuple {
    /// What is called instead.
    pub(crate) ours: *const (),
    /// What is replaced.
    pub(crate) system: *const (),
}

// SAFETY: the pointers are addresses of functions.
unsafe impl Sync for Tuple {}

/// The body of a naked function that jumps to where a pointer leads: arguments and return address stay as they are.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($target:path) => {
        core::arch::naked_asm!("jmp qword ptr [rip + {target}]", target = sym $target)
    };
}

/// The same for arm64.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($target:path) => {
        core::arch::naked_asm!(
            "adrp x16, {target}@PAGE",
            "ldr x16, [x16, {target}@PAGEOFF]",
            "br x16",
            target = sym $target,
        )
    };
}
pub(crate) use jump;

/// Functions in place of the system's of the same name.
macro_rules! interpose {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident : $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            $(#[$doc])*
            unsafe extern "C" fn $name($($argument: $type),*) -> $result $body

            const _: () = {
                mod system {
                    use super::*;

                    unsafe extern "C" {
                        pub(super) fn $name($($argument: $type),*) -> $result;
                    }
                }

                #[used]
                #[unsafe(link_section = "__DATA,__interpose,interposing")]
                static TUPLE: crate::interpose::macho::Tuple =
                    crate::interpose::macho::Tuple { ours: $name as *const (), system: system::$name as *const () };
            };
        )*
    };
}
pub(crate) use interpose;
