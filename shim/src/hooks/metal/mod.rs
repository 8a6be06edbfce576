//! Metal: the lists of hooked messages, a file for each kind of object, and the functions that give out devices.
//!
//! A line is a message: its class of events, its detail, a name for it here, its selector, its signature as the runtime
//! encodes it, its arguments and result, and what goes into the event's payload ([`gputrace_abi::metal`]). Objects that a
//! message returns are met, so that the messages of their class are hooked: devices lead to queues, queues to command
//! buffers, these to encoders.

mod added;
mod blit;
mod command_buffer;
mod commits;
mod completed;
mod compute;
mod copies;
mod device;
pub(crate) mod devices;
mod entry;
mod event;
mod feedback;
mod gpu_clock;
pub(crate) mod late;
mod metal4;
mod names;
mod queue;
mod resources;
mod textures;

use gputrace_abi::layout::{NAME_BYTES, View, hook_flag};

use super::Hook;
use crate::interpose::objc::{Id, Role};
use crate::record::Said;
use crate::thread::State;

/// Number of the first message.
pub(crate) const FIRST: u16 = super::alloc::FIRST + super::alloc::COUNT;
/// Number after the last one.
pub(crate) const END: u16 = feedback::END;

/// The lists, in the order of their numbers.
static LISTS: [&[Hook]; 15] = [
    &device::HOOKS,
    &queue::HOOKS,
    &command_buffer::HOOKS,
    &compute::HOOKS,
    &blit::HOOKS,
    &copies::HOOKS,
    &resources::buffer::HOOKS,
    &resources::heap::HOOKS,
    &resources::texture::HOOKS,
    &resources::pipeline::HOOKS,
    &event::HOOKS,
    &metal4::queue::HOOKS,
    &metal4::buffer::HOOKS,
    &entry::HOOKS,
    &feedback::HOOKS,
];

/// What objects are to Metal.
static ROLES: [&Role; 14] = [
    &device::DEVICE,
    &queue::QUEUE,
    &command_buffer::COMMAND_BUFFER,
    &compute::COMPUTE,
    &blit::BLIT,
    &copies::COPIES,
    &resources::buffer::BUFFER,
    &resources::heap::HEAP,
    &resources::texture::TEXTURE,
    &resources::pipeline::PIPELINE,
    &event::SHARED_EVENT,
    &metal4::queue::QUEUE,
    &metal4::buffer::BUFFER,
    &late::BELOW,
];

/// Every message with its number.
fn all() -> impl Iterator<Item = (u16, &'static Hook)> {
    (FIRST..).zip(LISTS.iter().flat_map(|list| list.iter()))
}

/// The message with this number.
pub(crate) fn by_number(number: u16) -> Option<&'static Hook> {
    all().find(|(n, _)| *n == number).map(|(_, hook)| hook)
}

/// Writes the rows of the segment's hook table.
pub(crate) fn describe(view: &View) {
    for (number, hook) in all() {
        if let Some(row) = view.hook(usize::from(number)) {
            let flags = if hook.counted { hook_flag::COUNTED } else { 0 };
            row.write(hook.name.to_bytes(), hook.class, hook.detail, flags);
        }
    }
    let parts = all().flat_map(|(number, hook)| {
        let longer = hook.name.to_bytes().get(NAME_BYTES..).unwrap_or(&[]);
        longer.chunks(NAME_BYTES).map(move |part| (number, part))
    });
    for (place, (number, part)) in (usize::from(END)..).zip(parts) {
        view.hook(place).into_iter().for_each(|row| row.write_more(number, part));
    }
}

/// A message that began then was left.
pub(crate) fn left(state: &State, number: u16, start: u64) {
    if number == command_buffer::COMMIT {
        commits::left(state.about.get() as Id, start);
    }
}

/// The messages of a role: hooks, trampolines, and the role itself.
///
/// A message of the class `Count` is counted only ([`crate::count`]): it asks for what is known already.
///
/// `[BEFORE]` runs before a message that is recorded, and its result goes to the payload: what an object is asked that the
/// original may end. `@at` gives the payload the message's thread and moment too. `{ALWAYS}` runs before every original, inside of another message too. With `[BEFORE; INSTEAD]` it goes to INSTEAD too, which takes the original's place where it is not 0.
macro_rules! messages {
    (
        $(#[$doc:meta])*
        $role:ident: $name:literal, from $first:expr, needs [$($need:literal),* $(,)?];
        $(
            $class:ident $detail:ident $message:ident $selector:literal $encoding:literal
            ($($argument:ident : $type:ty),*) -> $result:ty $([$before:expr $(; $instead:expr)?])? $({ $always:expr })? => $(@ $at:ident)? $payload:expr;
        )*
    ) => {
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Index { $($message,)* }

        const FIRST: u16 = $first;
        const COUNT: usize = [$(stringify!($message)),*].len();
        /// Number after the last one.
        pub(crate) const END: u16 = FIRST + COUNT as u16;
        /// The hooks of this file.
        pub(crate) static HOOKS: [$crate::hooks::Hook; COUNT] = [$($message::HOOK),*];

        static NEEDS: [&core::ffi::CStr; [$($need),*].len()] = [$($crate::hooks::metal::text!($need)),*];
        static MESSAGES: [$crate::interpose::objc::Message; COUNT] = [$($crate::interpose::objc::Message {
            selector: $crate::hooks::metal::text!($selector),
            encoding: $encoding,
            trampolines: [
                $message::<0> as *const (),
                $message::<1> as *const (),
                $message::<2> as *const (),
                $message::<3> as *const (),
            ],
            originals: &$message::ORIGINALS,
        }),*];

        $(#[$doc])*
        pub(crate) static $role: $crate::interpose::objc::Role =
            $crate::interpose::objc::Role::new($crate::hooks::metal::text!($name), &NEEDS, &MESSAGES);

        $(
            mod $message {
                use super::*;

                pub(super) static ORIGINALS: $crate::interpose::objc::Originals =
                    $crate::interpose::objc::Originals::new();
                pub(super) const HOOK: $crate::hooks::Hook = $crate::hooks::Hook::new(
                    $crate::hooks::metal::text!("[", $name, " ", $selector, "]"),
                    $crate::hooks::metal::messages!(@class $class),
                    gputrace_abi::event::detail::$detail,
                    $crate::hooks::metal::messages!(@counted $class),
                    core::ptr::null(),
                );
                pub(super) const NUMBER: u16 = FIRST + Index::$message as u16;
            }

            unsafe extern "C" fn $message<const SLOT: usize>(
                this: $crate::interpose::objc::Id,
                selector: $crate::interpose::objc::Sel
                $(, $argument: $type)*
            ) -> $result {
                type Code = unsafe extern "C" fn(
                    $crate::interpose::objc::Id,
                    $crate::interpose::objc::Sel
                    $(, $type)*
                ) -> $result;
                $($always(this);)?
                // Looked up first of all: in the midst of the rest it costs twice as much.
                // SAFETY: the method of this selector that was there before, whose signature was compared.
                let code: Code = unsafe { core::mem::transmute($message::ORIGINALS.at::<SLOT>()) };
                let original = |prepared| {
                    $crate::hooks::metal::messages!(@instead this, prepared, $($($instead)?)?);
                    // SAFETY: the program's own arguments, passed on.
                    unsafe { code(this, selector $(, $argument)*) }
                };
                $crate::hooks::metal::messages!(
                    @record $class, ($message::HOOK, $message::NUMBER), this, original, ($($at)? ($result, $payload) $($before)?), ($($before)?)
                )
            }
        )*
    };

    (@class Count) => { gputrace_abi::Class::Api };
    (@class $class:ident) => { gputrace_abi::Class::$class };
    (@counted Count) => { true };
    (@counted $class:ident) => { false };
    (@record Count, ($hook:expr, $number:expr), $this:ident, $original:ident, $payload:tt, $before:tt) => {{
        $crate::count::one($number);
        $original(())
    }};
    (@record $class:ident, ($hook:expr, $number:expr), $this:ident, $original:ident, ($($payload:tt)*), ($($before:tt)*)) => {{
        let before = $crate::hooks::metal::messages!(@before $($before)*);
        let payload = $crate::hooks::metal::messages!(@payload $($payload)*);
        $crate::record::message($hook, $number, $this, before, $original, payload)
    }};

    // Types first: a closure that is not an argument knows those of its own only if it is told.
    (@payload ($result:ty, $payload:expr)) => {
        |this, result, _, _| $crate::hooks::metal::said::<$result, _>($payload, this, result)
    };
    (@payload ($result:ty, $payload:expr) $before:expr) => {
        |this, result, prepared, _| $crate::hooks::metal::said_after::<$result, _, _>($payload, this, result, prepared)
    };
    (@payload at ($result:ty, $payload:expr)) => {
        |this, result, _, at| $crate::hooks::metal::said_after::<$result, _, _>($payload, this, result, at)
    };
    (@payload at ($result:ty, $payload:expr) $before:expr) => { $payload };
    (@before) => { |_, _| () };
    (@before $before:expr) => { $before };
    (@instead $this:ident, $prepared:ident,) => { _ = $prepared; };
    (@instead $this:ident, $prepared:ident, $instead:expr) => {
        if $prepared != 0 {
            return ($instead)($this, $prepared);
        }
    };
}
use messages;

/// What a payload says.
#[inline(always)]
fn said<R, S: Said>(payload: impl FnOnce(Id, R) -> S, this: Id, result: R) -> S {
    payload(this, result)
}

/// The same of what was prepared, or of the moment.
#[inline(always)]
fn said_after<R, P, S: Said>(payload: impl FnOnce(Id, R, P) -> S, this: Id, result: R, with: P) -> S {
    payload(this, result, with)
}

/// A C string of parts.
macro_rules! text {
    ($($part:literal),*) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!($($part,)* "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"",
        }
    };
}
use text;

/// Three dimensions, as Metal passes them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Size {
    width: usize,
    height: usize,
    depth: usize,
}

impl Size {
    /// In a payload word, each saturated.
    #[inline(always)]
    fn grid(self) -> u64 {
        let [x, y, z] = [self.width, self.height, self.depth].map(|n| n as u64);
        gputrace_abi::event::pack_grid(x.min(u64::from(u32::MAX)) as u32, y.min(0xffff) as u32, z.min(0xffff) as u32)
    }

    /// The same for the threads of a group, of which there are at most 1,024.
    #[inline(always)]
    fn group(self) -> u64 {
        let [x, y, z] = [self.width.min(0x7ff), self.height.min(0x7ff), self.depth.min(0x3ff)].map(|n| n as u32);
        gputrace_abi::event::pack_block(x, y, z, 0)
    }
}

/// A place and how many there are from it on.
#[repr(C)]
#[derive(Clone, Copy)]
struct Range {
    location: usize,
    length: usize,
}
