//! How a line of a list of driver functions becomes hooks.
//!
//!     KIND [DETAIL]: [NAME, ...](ARGUMENTS) [on STREAM] [, first WORK] [=> |result| PAYLOAD];
//!
//! KIND is a class of events ([`gputrace_abi::Class`]), or `Count` for functions whose own time is too short for two
//! reads of the clock: they are counted ([`crate::count`]) and leave no event. DETAIL is one of
//! [`gputrace_abi::event::detail`]. ARGUMENTS are the driver's types, with names where the payload needs them. PAYLOAD
//! runs after the original; without it the event's payload is empty. STREAM is where a launch gives the GPU work, so that it
//! can be timed ([`crate::gpu_time::events`]); WORK is done before the original, whatever becomes of the call.

/// A list of hooked driver functions; `base` is the number of the first.
macro_rules! hooks {
    (
        base: $base:expr;
        $( $kind:ident $($detail:ident)? : [$($name:ident),+ $(,)?] $arguments:tt
            $(on $stream:expr)? $(, first $first:expr)? $(=> $payload:expr)?; )*
    ) => {
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        #[derive(Clone, Copy)]
        enum Index { $($($name,)+)* }

        /// The hooks of this file.
        pub(crate) const LIST: [$crate::hooks::Hook; COUNT as usize] = [$($($name::HOOK,)+)*];

        /// How many there are.
        pub(crate) const COUNT: u16 = [$($(stringify!($name),)+)*].len() as u16;

        $($crate::hooks::hooks!(@line $base, $kind, ($($detail)?), ($($name),+), $arguments,
            (($($payload)?) ($($stream)?) ($($first)?)));)*
    };

    (@line $base:expr, $kind:ident, $detail:tt, ($($name:ident),+), $arguments:tt, $around:tt) => {
        $($crate::hooks::hooks!(@one $base, $kind, $detail, $name, $arguments, $around);)+
    };

    (
        @one $base:expr, $kind:ident, $detail:tt, $name:ident, ($($argument:ident : $type:ty),* $(,)?),
        ($payload:tt $stream:tt ($($first:expr)?))
    ) => {
        /// Holds the hook of the function of this name.
        #[allow(non_camel_case_types)]
        enum $name {}

        impl $name {
            const HOOK: $crate::hooks::Hook = $crate::hooks::Hook::new(
                match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                },
                $crate::hooks::hooks!(@class $kind),
                $crate::hooks::hooks!(@detail $detail),
                $crate::hooks::hooks!(@counted $kind),
                $name as *const (),
            );
        }

        /// The hook of the driver's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            const NUMBER: u16 = $base + Index::$name as u16;
            $($first;)?
            let original = |address| {
                // SAFETY: the address is that of the driver's function of this name, whose signature this is.
                let f: unsafe extern "C" fn($($type),*) -> u32 = unsafe { core::mem::transmute(address) };
                // SAFETY: the program's own arguments, passed on.
                unsafe { f($($argument),*) }
            };
            $crate::hooks::hooks!(@call $kind, $name, NUMBER, original, $payload $stream)
        }
    };
    // Types alone: they get names of one letter.
    (@one $base:expr, $kind:ident, $detail:tt, $name:ident, ($($type:ty),* $(,)?), $around:tt) => {
        $crate::hooks::hooks!(@pair $base, $kind, $detail, $name, $around, [], ($($type),*), (a b c d e f g h i j k l m n o p));
    };
    (@pair $base:expr, $kind:ident, $detail:tt, $name:ident, $around:tt, [$($done:tt)*], (), $letters:tt) => {
        $crate::hooks::hooks!(@one $base, $kind, $detail, $name, ($($done)*), $around);
    };
    (
        @pair $base:expr, $kind:ident, $detail:tt, $name:ident, $around:tt, [$($done:tt)*],
        ($type:ty $(, $types:ty)*), ($letter:ident $($letters:ident)*)
    ) => {
        $crate::hooks::hooks!(
            @pair $base, $kind, $detail, $name, $around, [$($done)* $letter: $type,], ($($types),*), ($($letters)*)
        );
    };

    (@call Count, $name:ident, $number:expr, $original:expr, () ()) => {
        $crate::count::call($number, $original, |_| ())
    };
    (@call Count, $name:ident, $number:expr, $original:expr, ($effect:expr) ()) => {
        $crate::count::call($number, $original, $effect)
    };
    (@call $kind:ident, $name:ident, $number:expr, $original:expr, () ()) => {
        $crate::record::call($name::HOOK, $number, $original, |_| [0; 4])
    };
    (@call $kind:ident, $name:ident, $number:expr, $original:expr, ($payload:expr) ()) => {
        $crate::record::call($name::HOOK, $number, $original, $payload)
    };
    (@call $kind:ident, $name:ident, $number:expr, $original:expr, ($payload:expr) ($stream:expr)) => {
        $crate::record::launch($name::HOOK, $number, Some(|| $stream), $original, $payload)
    };

    (@class Count) => { gputrace_abi::Class::Api };
    (@class $class:ident) => { gputrace_abi::Class::$class };
    (@detail ()) => { gputrace_abi::event::detail::NONE };
    (@detail ($detail:ident)) => { gputrace_abi::event::detail::$detail };
    (@counted Count) => { true };
    (@counted $class:ident) => { false };
}
pub(crate) use hooks;
