//! What the shim noted, in words for whoever reads the trace.

use gputrace_abi::layout::note;

use crate::manifest;

const SANITIZER: &str = "malloc is not recorded: a sanitizer, built in or preloaded, replaces it";
const OWN_MALLOC: &str = "malloc is not recorded: the program brings its own, as with a jemalloc that it holds, or \
    another library with a malloc is preloaded before gputrace's (put it behind)";

/// What of a traced process is not traced, if something that was wanted is not.
pub(crate) fn not_in_full(bits: u32) -> Option<String> {
    let why = [(note::SANITIZER, SANITIZER), (note::OWN_MALLOC, OWN_MALLOC)];
    why.iter().find(|(bit, _)| bits & bit != 0).map(|(_, text)| (*text).to_owned())
}

/// The drivers that the lists of hooks were made for: from this CUDA version to before that one, as drivers number them.
const DRIVERS: std::ops::Range<u32> = 11_000..14_000;

/// What a driver of this version means for the trace; none for those that the lists are of, and where none was asked.
pub(crate) fn driver_note(version: u32) -> Option<String> {
    let misses = match version {
        0 => return None,
        older if older < DRIVERS.start => {
            "older than this gputrace knows: contexts and names of kernels may be missing"
        }
        newer if newer >= DRIVERS.end => {
            "newer than this gputrace knows: functions that it adds are not recorded, and named as uncovered when fetched"
        }
        _ => return None,
    };
    Some(format!("the driver is of CUDA {}.{}, {misses}", version / 1000, version % 1000 / 10))
}

/// What the shim noticed, in sentences; `patched` says whether the driver's functions themselves lead to the hooks.
pub(crate) fn notes(bits: u32, past: &[manifest::Past], patched: bool) -> Vec<String> {
    // Whose malloc calls would be passed to does not matter where they do not come to us.
    let bits = match bits & (note::SANITIZER | note::OWN_MALLOC) {
        0 => bits,
        _ => bits & !(note::OTHER_MALLOC | note::OTHER_NEW),
    };
    // What a library calls of itself without our symbols, and only an inline hook sees.
    let past_us = |how: &str, why: &str| {
        let which = libraries(past, how);
        match patched {
            true => format!("{which} was opened {why}: its own calls of malloc and NCCL may be missing"),
            false => format!(
                "{which} was opened {why}: calls that it makes itself may be missing; --hook inline sees those of the driver"
            ),
        }
    };
    let ways = [
        (note::DEEPBIND, "RTLD_DEEPBIND", "RTLD_DEEPBIND"),
        (note::NAMESPACE, "dlmopen", "in a namespace of its own (dlmopen)"),
    ];
    let ways = ways.into_iter().filter(|(bit, ..)| bits & bit != 0).map(|(_, how, why)| past_us(how, why));

    const ALL: &[(u32, &str)] = &[
        (
            note::SMALL_SEGMENT,
            "a limit (RLIMIT_AS, RLIMIT_FSIZE or free space) made the segment smaller than asked for",
        ),
        (note::SECOND_DRIVER, "a second copy of the driver library was reached: its calls are not covered"),
        (
            note::OTHER_MALLOC,
            "malloc is not libc's: calls are passed to another allocator, which was preloaded or linked",
        ),
        (note::NO_ARENAS, "--malloc-arenas has nothing to ask here: malloc is not glibc's, or older than glibc 2.33"),
        (
            note::OTHER_NEW,
            "that allocator has an operator new of its own, and slots that lead to it could not be written to: what C++ allocates by them is missing",
        ),
        (note::CONTEXTS_FULL, "too many CUDA contexts: some events have no context"),
        (note::SANITIZER, SANITIZER),
        (note::OWN_MALLOC, OWN_MALLOC),
        (note::METAL_HOOKS_LATE, "hooks of a Metal class took long: first messages to its objects may be missing"),
        (note::METAL_CLASSES_FULL, "Metal objects of a fifth class of one kind: messages to these are missing"),
        (
            note::METAL_CLASS_UNKNOWN,
            "a Metal object lacks what its kind has (a wrapper, or a newer macOS): messages to it are missing",
        ),
        (note::METAL_SIGNATURE, "a method of Metal's has another signature than known: calls of it are missing"),
        (note::METAL_TIMES_LOST, "times of the GPU found no room: some command buffers have none"),
        (note::RANGE_NAMES_LOST, "names of ranges found no room in a ring: some ranges have no name"),
        (note::COMMUNICATORS_FULL, "too many NCCL communicators at once: some calls name none"),
        (note::UNKNOWN_NCCL, "functions of NCCL were looked up in a copy too many: their calls are missing"),
        (
            note::DRIVER_HERE,
            "the driver was loaded and no hook was reached: calls that went past the symbols, if there were any, are \
             missing; --hook inline sees them",
        ),
        (
            note::GAVE_UP,
            "threads that waited for room (--on-full block) gave up, as gputrace had ended or stood still: events were \
             dropped",
        ),
        (
            note::GPU_TIME_CUT,
            "the program ended before CUPTI had told of all that its GPU did: the last kernels may be missing",
        ),
        (
            note::THREADS_FULL,
            "more than 4,096 threads lived at a time: calls of the others are missing, and are not in the account",
        ),
        (note::NOT_INLINE, "inline hooks were asked for, but the loader did not take the engine: symbols were used"),
        (
            note::ATTACHED,
            "attached to while it ran: calls of the driver are recorded from then on; malloc, waits for the operating system, NVTX and NCCL are \
             not, and what was made before is known as far as the driver tells it when it is asked",
        ),
    ];
    ways.chain(ALL.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, text)| (*text).to_owned())).collect()
}

/// The libraries that were opened in this way, by name.
fn libraries(past: &[manifest::Past], how: &str) -> String {
    const NAMED: usize = 3;
    let names: Vec<&str> = past.iter().filter(|past| past.how == how).map(|past| past.library.as_str()).collect();
    match names.as_slice() {
        [] => "a library".to_owned(),
        [only] => format!("the library {only}"),
        more => {
            let rest = if more.len() > NAMED { ", ..." } else { "" };
            format!("each of {} libraries ({}{rest})", more.len(), more[..more.len().min(NAMED)].join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_symbols_do_not_reach_are_named_and_of_many_the_first() {
        let past = |n: usize| -> Vec<manifest::Past> {
            (0..n).map(|n| manifest::Past { library: format!("lib{n}.so"), how: "dlmopen".to_owned() }).collect()
        };
        assert_eq!(libraries(&past(0), "dlmopen"), "a library");
        assert_eq!(libraries(&past(1), "dlmopen"), "the library lib0.so");
        assert_eq!(libraries(&past(1), "RTLD_DEEPBIND"), "a library");
        assert_eq!(libraries(&past(4), "dlmopen"), "each of 4 libraries (lib0.so, lib1.so, lib2.so, ...)");
    }

    #[test]
    fn where_malloc_does_not_come_to_us_nothing_is_said_of_whom_it_is_passed_to() {
        let told = notes(note::SANITIZER | note::OTHER_MALLOC | note::OTHER_NEW, &[], false);
        assert_eq!(told, [SANITIZER]);
        assert_eq!(notes(note::OTHER_MALLOC | note::OTHER_NEW, &[], false).len(), 2);
    }

    #[test]
    fn only_drivers_that_the_lists_are_not_of_are_noted() {
        assert!([0, 11_000, 12_080, 13_020].into_iter().all(|version| driver_note(version).is_none()));
        assert!(driver_note(10_020).is_some_and(|note| note.starts_with("the driver is of CUDA 10.2, older")));
        assert!(driver_note(14_000).is_some_and(|note| note.starts_with("the driver is of CUDA 14.0, newer")));
    }
}
