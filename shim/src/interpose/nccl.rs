//! What dlsym and dlvsym answer for functions of NCCL: the entry of the copy that the program would have found.

use core::ffi::CStr;

use gputrace_abi::layout::note;

use super::lookup::{RTLD_DEFAULT, RTLD_NEXT};
use super::{copies, driver, scope};
use crate::hooks::nccl::{self, Function};
use crate::{names, session};

/// What to answer to `caller`, who looks `name` up in `handle`; `look` asks the real function. None: let it answer.
pub(super) fn answer(
    name: &CStr,
    handle: usize,
    caller: usize,
    route: u32,
    look: impl Fn(usize) -> usize,
) -> Option<usize> {
    let Some((function, at)) = nccl::find(name) else {
        if handle != RTLD_NEXT && nccl::is_uncovered(name) && look(handle) != 0 {
            names::uncovered(name, 0, 0);
        }
        return None;
    };
    let entry = |real| entry_of(function, at, real, route);
    match handle {
        // RTLD_NEXT searches after the caller, always. Where only our export would answer there is nothing.
        RTLD_NEXT => scope::definition(name, caller).is_none().then(|| look(RTLD_NEXT)),
        RTLD_DEFAULT => match look(RTLD_NEXT) {
            // In nobody's sight but the caller's: a copy in its own library, or in one that it needs.
            0 => Some(scope::local_definition(name, caller).map_or(0, |found| entry(found.address))),
            real => Some(entry(real)),
        },
        handle => Some(match look(handle) {
            0 => 0,
            // The global scope, in which we come first.
            ours if ours == function.hook.wrapper as usize => match look(RTLD_NEXT) {
                0 => 0,
                real => entry(real),
            },
            real => entry(real),
        }),
    }
}

/// The entry of the copy that this function stands in.
fn entry_of(function: &Function, at: usize, real: usize, route: u32) -> usize {
    let copy = scope::definition_at(real).and_then(|found| copies::copy_of(&found, at));
    match copy.and_then(|copy| function.entries.get(usize::from(copy))) {
        Some(entry) => {
            driver::note_route(nccl::FIRST + at as u16, route);
            *entry as usize
        }
        None => {
            session::say(note::UNKNOWN_NCCL);
            real
        }
    }
}
