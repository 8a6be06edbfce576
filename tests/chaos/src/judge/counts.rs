//! Nothing is lost in silence: each process's account adds up, and has what the program itself counted.

use super::{Case, Found, found, unless};
use crate::misfortune::Misfortune;
use crate::truth::{CLASSES, Did, OF_DRIVER};

/// seen = recorded + culled + left out + dropped + sampled out + in flight + abandoned.
pub(super) fn books_add_up(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let mut wrong: Vec<String> = case.books.unreadable.clone();
    let mut any = !wrong.is_empty();
    for image in case.books.images.iter().filter(|image| !image.running) {
        any = true;
        wrong.extend(unless(image.balanced, || format!("process {} says that its books are not balanced", image.pid)));
        for (class, count) in &image.classes {
            let is_so = count.seen == count.all;
            wrong.extend(unless(is_so, || {
                format!("process {}, {class}: {} seen, {} accounted for", image.pid, count.seen, count.all)
            }));
        }
    }
    Ok(any.then_some(wrong))
}

/// What gputrace saw of each process lies between what came back and what began.
pub(super) fn equal_the_truth(case: &mut Case<'_, '_>) -> Result<Found, String> {
    if case.refused() || case.books.manifests == 0 {
        return Ok(None);
    }
    let round = case.round;
    let exact = case.was_watched() && !round.options.pauses;
    // Who begins when gputrace has ended is in no trace.
    let outlives = round.options.grace_ms < 1000 && (round.program.leaves_daemon || case.target_was_ended());
    let mut wrong = Vec::new();
    for (pid, did) in &case.played.truth.processes {
        let images = case.books.images_of(*pid);
        let told = images.iter().any(|image| !image.traced) || case.books.untraced.iter().any(|(of, _)| of == pid);
        let is_there = (images.len() as u64) >= did.images || told || !has_called(did);
        if !outlives
            && !round.misfortune.may_leave_untraced()
            && !round.options.pauses
            && !case.round.misfortune.takes_disk()
        {
            wrong.extend(unless(is_there, || {
                format!("process {pid} has {} images, the trace {}", did.images, images.len())
            }));
        }
        // Of one that ran on nobody knows the end.
        let ran_on = images.iter().any(|image| image.running);
        let whole = exact && !ran_on && images.len() as u64 >= did.images && !told;
        for (class, name) in CLASSES.iter().enumerate() {
            let seen: u64 = images.iter().filter_map(|image| image.classes.get(*name)).map(|count| count.seen).sum();
            let nested: u64 = images.iter().map(|image| image.nested).sum();
            let (begun, done, extra) = (did.begun[class], did.done[class], did.extra[class]);
            if class < OF_DRIVER {
                let most = begun + extra;
                wrong.extend(unless(seen <= most, || format!("process {pid}, {name}: {seen} seen, {most} began")));
                let least = if whole { done } else { 0 };
                wrong
                    .extend(unless(seen >= least, || format!("process {pid}, {name}: {seen} seen, {least} came back")));
                let least = if whole { done + extra } else { 0 };
                let all = seen + nested;
                wrong.extend(unless(all >= least, || {
                    format!("process {pid}, {name}: {seen} seen and {nested} nested of {least}")
                }));
            } else if round.options.full_malloc && whole {
                wrong.extend(unless(seen >= done, || format!("process {pid}, {name}: {seen} seen, {done} came back")));
            }
        }
    }
    found(wrong)
}

fn has_called(did: &Did) -> bool {
    did.done[..OF_DRIVER].iter().any(|calls| *calls > 0)
}

/// With `--on-full block` no event is dropped, as long as gputrace lives and has a disk.
pub(super) fn blocked_lose_nothing(case: &mut Case<'_, '_>) -> Result<Found, String> {
    // What a thread was just writing when it was thrown out of the call is torn; and a handler that interrupts its thread's search for
    // room cannot wait for that.
    if !case.round.options.blocks || case.round.program.interrupts || !case.was_watched() || case.books.manifests == 0 {
        return Ok(None);
    }
    let mut wrong = Vec::new();
    for image in case.books.images.iter().filter(|image| !image.running) {
        for (class, count) in &image.classes {
            // A writer that is killed may leave a slot that is taken and not written.
            let torn = u64::from(case.round.misfortune != Misfortune::None) * 64;
            let is_so = count.dropped <= if case.target_was_ended() { torn } else { 0 };
            wrong.extend(unless(is_so, || {
                format!("process {}, {class}: {} dropped of {}", image.pid, count.dropped, count.seen)
            }));
        }
    }
    found(wrong)
}
