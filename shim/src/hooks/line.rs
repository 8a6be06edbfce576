//! How a line of a list of driver functions becomes hooks.
//!
//!     KIND [DETAIL]: [NAME, ...](ARGUMENTS) [on STREAM] [, first WORK] [ARROW |result| PAYLOAD];
//!
//! KIND is a class of events ([`gputrace_abi::Class`]), or `Count` for functions whose own time is too short for two
//! reads of the clock: they are counted ([`crate::count`]) and leave no event. DETAIL is one of
//! [`gputrace_abi::event::detail`]. ARGUMENTS are the driver's types, with names where the payload needs them. STREAM is where a
//! launch gives the GPU work, so that it can be timed ([`crate::gpu_time::events`]), or what a wait waits for. WORK is done before
//! the original, whatever becomes of the call.
//!
//! PAYLOAD runs after the original; without it the event's payload is empty. ARROW is `=>` where it only says what the event says.
//! It is `, after` where it keeps something up to date as well (names, contexts), which must be right when recording goes on: it
//! runs after calls that are not recorded too. It is `, captured` where it does that only while a stream is captured. While recording
//! is off, a call that needs none of this goes straight to its original ([`crate::record::off`]).

/// A list of hooked driver functions; `base` is the number of the first.
macro_rules! hooks {
    (
        base: $base:expr;
        $( $kind:ident $($detail:ident)? : [$($name:ident),+ $(,)?] $arguments:tt
            $(on $stream:expr)? $(, first $first:expr)? $(, after $after:expr)?
            $(, captured $captured:expr)? $(=> $payload:expr)?; )*
    ) => {
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        #[derive(Clone, Copy)]
        enum Index { $($($name,)+)* }

        /// The hooks of this file.
        pub(crate) const LIST: [$crate::hooks::Hook; COUNT as usize] = [$($($name::HOOK,)+)*];

        /// How many there are.
        pub(crate) const COUNT: u16 = [$($(stringify!($name),)+)*].len() as u16;

        $($crate::hooks::hooks!(@line $base, $kind, ($($detail)?), ($($name),+), $arguments,
            (($($payload)? $($after)? $($captured)?) ($($stream)?) ($($first)?) ($($after)?) ($($captured)?)));)*
    };

    (@line $base:expr, $kind:ident, $detail:tt, ($($name:ident),+), $arguments:tt, $around:tt) => {
        $($crate::hooks::hooks!(@one $base, $kind, $detail, $name, $arguments, $around);)+
    };

    // Nothing is to be kept up to date: the exported function looks whether recording is off. It stands before the hook itself in one
    // section: a program's calls are cold as a rule, and another page for each costs more than what is looked at.
    (
        @one $base:expr, $kind:ident, $detail:tt, $name:ident, ($($argument:ident : $type:ty),* $(,)?),
        ($payload:tt $stream:tt () () ($($captured:expr)?))
    ) => {
        $crate::hooks::hooks!(@hook $kind, $detail, $name);

        /// The hook of the driver's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[unsafe(link_section = concat!(".text.hook.", stringify!($name)))]
        pub unsafe extern "C" fn $name($(_: $type),*) -> u32 {
            #[unsafe(link_section = concat!(".text.hook.", stringify!($name)))]
            unsafe extern "C" fn entered($($argument: $type),*) -> u32 {
                $crate::hooks::hooks!(@body $base, $kind, $name, ($($argument: $type),*), $payload, $stream)
            }
            $crate::hooks::hooks!(@off entered, $base + Index::$name as u16, $($captured)?)
        }
    };
    (
        @one $base:expr, $kind:ident, $detail:tt, $name:ident, ($($argument:ident : $type:ty),* $(,)?),
        ($payload:tt $stream:tt ($($first:expr)?) $after:tt $captured:tt)
    ) => {
        $crate::hooks::hooks!(@hook $kind, $detail, $name);

        /// The hook of the driver's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            $($first;)?
            $crate::hooks::hooks!(@body $base, $kind, $name, ($($argument: $type),*), $payload, $stream)
        }
    };
    (@hook $kind:ident, $detail:tt, $name:ident) => {
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
    };
    (
        @body $base:expr, $kind:ident, $name:ident, ($($argument:ident : $type:ty),*), $payload:tt, $stream:tt
    ) => {{
        const NUMBER: u16 = $base + Index::$name as u16;
        let original = |address| {
            // SAFETY: the address is that of the driver's function of this name, whose signature this is.
            let f: unsafe extern "C" fn($($type),*) -> u32 = unsafe { core::mem::transmute(address) };
            // SAFETY: the program's own arguments, passed on.
            unsafe { f($($argument),*) }
        };
        $crate::hooks::hooks!(@call $kind, $name, NUMBER, original, $payload $stream)
    }};
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
    (@call Sync, $name:ident, $number:expr, $original:expr, ($payload:expr) ($awaited:expr)) => {
        $crate::record::wait($name::HOOK, $number, || $awaited, $original, $payload)
    };
    (@call $kind:ident, $name:ident, $number:expr, $original:expr, () ()) => {
        $crate::record::call($name::HOOK, $number, $original, |_| [0; 4])
    };
    (@call $kind:ident, $name:ident, $number:expr, $original:expr, ($payload:expr) ()) => {
        $crate::record::call($name::HOOK, $number, $original, $payload)
    };
    (@call $kind:ident, $name:ident, $number:expr, $original:expr, ($payload:expr) ($stream:expr)) => {
        $crate::record::launch($name::HOOK, $number, || $stream, $original, $payload)
    };

    (@off $hook:ident, $number:expr,) => { $crate::record::off!($hook, $number) };
    (@off $hook:ident, $number:expr, $captured:expr) => { $crate::record::off!($hook, $number, captured) };

    (@class Count) => { gputrace_abi::Class::Api };
    (@class $class:ident) => { gputrace_abi::Class::$class };
    (@detail ()) => { gputrace_abi::event::detail::NONE };
    (@detail ($detail:ident)) => { gputrace_abi::event::detail::$detail };
    (@counted Count) => { true };
    (@counted $class:ident) => { false };
}
pub(crate) use hooks;
