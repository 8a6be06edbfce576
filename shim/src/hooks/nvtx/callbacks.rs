//! The list: a line for each function of NVTX that we take part in.
//!
//! A line names the function's slot, the function, its arguments, and what it returns where no previous injection
//! does; then what is done: `after` the previous injection's callback, so that a range does not hold its time, or
//! `before` it, and `gives` what the program gets instead. What a program gets is what it gets without any injection,
//! but for handles and numbers of ranges, which it can only give back.

use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_abi::event::{detail, text_kind};
use gputrace_abi::layout::ThreadRow;
use gputrace_abi::{Class, Event, local};

use super::attributes::{Attributes, Said};
use super::{BASE, CORE, CORE2, Callback, Slot, previous, texts};
use crate::thread::State;
use crate::{ranges, record};

/// `NVTX_NO_PUSH_POP_TRACKING`: what a push or a pop returns where nobody counts levels.
const UNTRACKED: c_int = -2;
/// The default domain.
const DEFAULT: usize = 0;

macro_rules! callbacks {
    (
        $list:ident, $hook:ident;
        $( $module:ident $number:literal $detail:ident $name:ident $arguments:tt -> $result:ty = $default:expr;
           $when:ident |$given:pat_param| $work:expr; )*
    ) => {
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        #[derive(Clone, Copy)]
        enum $hook { $($name,)* }

        /// Callbacks of this list, in its order.
        pub(crate) const $list: [Callback; [$(stringify!($name)),*].len()] = [
            $(Callback {
                name: stringify!($name),
                detail: detail::$detail,
                slot: Slot { module: $module, number: $number },
                function: $name as *const (),
            },)*
        ];

        $(callbacks!(@one $hook $module $number $name $arguments -> $result, $default, $when, $given, $work);)*
    };
    (@one $hook:ident $module:ident $number:literal $name:ident ($($argument:ident : $type:ty),*) -> $result:ty,
        $default:expr, $when:ident, $given:pat_param, $work:expr) => {
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let previous = || match previous::callback(Slot { module: $module, number: $number }) {
                0 => $default,
                address => {
                    // SAFETY: what another injection put into the slot of this function, whose signature this is.
                    let f: unsafe extern "C" fn($($type),*) -> $result = unsafe { core::mem::transmute(address) };
                    // SAFETY: the program's own arguments, passed on.
                    unsafe { f($($argument),*) }
                }
            };
            let hook = BASE + $hook::$name as u16;
            callbacks!(@$when hook, previous, $given, $work)
        }
    };
    (@after $hook:ident, $previous:ident, $given:pat_param, $work:expr) => {{
        let result = $previous();
        let $given = ($hook, result);
        $work;
        result
    }};
    (@before $hook:ident, $previous:ident, $given:pat_param, $work:expr) => {{
        let $given = $hook;
        $work;
        $previous()
    }};
    (@gives $hook:ident, $previous:ident, $given:pat_param, $work:expr) => {{
        let _ = $hook;
        let $given = $previous();
        $work
    }};
}

callbacks! {
    EVENTS, Range;

    CORE 1 MARK nvtxMarkEx(said: *const Attributes) -> () = ();
        after |(hook, _)| event(hook, 0, DEFAULT, Said::read(said));
    CORE 2 MARK nvtxMarkA(name: *const c_char) -> () = ();
        after |(hook, _)| event(hook, 0, DEFAULT, Said::named(name));
    CORE 3 MARK nvtxMarkW(name: *const u32) -> () = ();
        after |(hook, _)| event(hook, 0, DEFAULT, Said::named(name));
    CORE 4 START nvtxRangeStartEx(said: *const Attributes) -> u64 = next_number();
        after |(hook, number)| event(hook, number, DEFAULT, Said::read(said));
    CORE 5 START nvtxRangeStartA(name: *const c_char) -> u64 = next_number();
        after |(hook, number)| event(hook, number, DEFAULT, Said::named(name));
    CORE 6 START nvtxRangeStartW(name: *const u32) -> u64 = next_number();
        after |(hook, number)| event(hook, number, DEFAULT, Said::named(name));
    CORE 7 END nvtxRangeEnd(number: u64) -> () = ();
        before |hook| event(hook, number, DEFAULT, Said::default());
    CORE 8 PUSH nvtxRangePushEx(said: *const Attributes) -> c_int = UNTRACKED;
        after |(hook, _)| event(hook, 0, DEFAULT, Said::read(said));
    CORE 9 PUSH nvtxRangePushA(name: *const c_char) -> c_int = UNTRACKED;
        after |(hook, _)| event(hook, 0, DEFAULT, Said::named(name));
    CORE 10 PUSH nvtxRangePushW(name: *const u32) -> c_int = UNTRACKED;
        after |(hook, _)| event(hook, 0, DEFAULT, Said::named(name));
    CORE 11 POP nvtxRangePop() -> c_int = UNTRACKED;
        before |hook| event(hook, 0, DEFAULT, Said::default());
    CORE2 1 MARK nvtxDomainMarkEx(domain: usize, said: *const Attributes) -> () = ();
        after |(hook, _)| event(hook, 0, domain, Said::read(said));
    CORE2 2 START nvtxDomainRangeStartEx(domain: usize, said: *const Attributes) -> u64 = next_number();
        after |(hook, number)| event(hook, number, domain, Said::read(said));
    CORE2 3 END nvtxDomainRangeEnd(domain: usize, number: u64) -> () = ();
        before |hook| event(hook, number, domain, Said::default());
    CORE2 4 PUSH nvtxDomainRangePushEx(domain: usize, said: *const Attributes) -> c_int = UNTRACKED;
        after |(hook, _)| event(hook, 0, domain, Said::read(said));
    CORE2 5 POP nvtxDomainRangePop(domain: usize) -> c_int = UNTRACKED;
        before |hook| event(hook, 0, domain, Said::default());
}

callbacks! {
    NAMES, Naming;

    CORE 12 NONE nvtxNameCategoryA(category: u32, name: *const c_char) -> () = ();
        after |_| name_category(DEFAULT, category, name);
    CORE 13 NONE nvtxNameCategoryW(category: u32, name: *const u32) -> () = ();
        after |_| name_category(DEFAULT, category, name);
    CORE 14 NONE nvtxNameOsThreadA(tid: u32, name: *const c_char) -> () = ();
        after |_| texts::say(text_kind::THREAD, u64::from(tid), 0, name);
    CORE 15 NONE nvtxNameOsThreadW(tid: u32, name: *const u32) -> () = ();
        after |_| texts::say(text_kind::THREAD, u64::from(tid), 0, name);
    CORE2 8 NONE nvtxDomainNameCategoryA(domain: usize, category: u32, name: *const c_char) -> () = ();
        after |_| name_category(domain, category, name);
    CORE2 9 NONE nvtxDomainNameCategoryW(domain: usize, category: u32, name: *const u32) -> () = ();
        after |_| name_category(domain, category, name);
    CORE2 10 NONE nvtxDomainRegisterStringA(_domain: usize, text: *const c_char) -> usize = 0;
        gives |handle| previous::handle_for(texts::register(text), handle);
    CORE2 11 NONE nvtxDomainRegisterStringW(_domain: usize, text: *const u32) -> usize = 0;
        gives |handle| previous::handle_for(texts::register(text), handle);
    CORE2 12 NONE nvtxDomainCreateA(name: *const c_char) -> usize = 0;
        gives |handle| previous::handle_for(texts::key(text_kind::DOMAIN, name), handle);
    CORE2 13 NONE nvtxDomainCreateW(name: *const u32) -> usize = 0;
        gives |handle| previous::handle_for(texts::key(text_kind::DOMAIN, name), handle);
}

/// Every callback; those that make events come first.
pub(super) fn all() -> impl Iterator<Item = &'static Callback> {
    static ALL: ([Callback; EVENTS.len()], [Callback; NAMES.len()]) = (EVENTS, NAMES);
    ALL.0.iter().chain(&ALL.1)
}

/// A number for a range that may end in another thread.
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

fn name_category(domain: usize, category: u32, name: impl texts::Text) {
    texts::say(text_kind::CATEGORY, previous::key_of(domain), u64::from(category), name);
}

/// Records one end of a range, or a mark.
#[inline(always)]
fn event(hook: u16, number: u64, domain: usize, said: Said) {
    let Some((state, row)) = record::state() else { return crate::session::count_unrecorded(Class::Range) };
    let domain = previous::key_of(domain);
    let what = EVENTS.get(usize::from(hook - BASE)).filter(|_| ranges::is_on()).map(|callback| callback.detail);
    let who = ranges::Who { thread: state.number(), domain, number };
    if let Some(detail) = what {
        ranges::begins(who, detail, said.switches);
    }
    // Counted where it is not recorded too: the reader sees the gap, and pairs nothing across it.
    let nth = state.count_range();
    if !state.is_paused() {
        write(state, row, hook, number, domain, said, nth);
    }
    if let Some(detail) = what {
        ranges::ends(who, detail);
    }
}

#[inline(always)]
fn write(state: &State, row: &ThreadRow, hook: u16, number: u64, domain: u64, said: Said, nth: u16) {
    if let Some(seen) = row.seen.get(Class::Range as usize) {
        local::increment(seen);
    }
    let event = Event {
        hook,
        start: state.now(),
        end: number,
        flags: said.flags,
        result: nth,
        payload: [said.name, domain, said.number, said.category],
        ..Event::default()
    };
    state.write(event, Class::Range);
}
