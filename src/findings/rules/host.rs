//! Rules about memory of the host: malloc.

use super::lines::ms;
use super::rule::{Effort, Rule, Title};
use crate::analysis::{Class, Growing, MallocSum, growing, slowest_in_malloc};
use crate::findings::{Evidence, Subject};
use crate::render::{bytes, number};
use crate::trace::Site;

/// Less growth in a run is no finding, nor is a smaller part of the peak.
const GROWTH_BYTES: f64 = 1048576.0;
const GROWTH_SHARE: f64 = 0.01;
/// A smaller part of a step in malloc is no finding.
const MALLOC_SHARE: f64 = 0.05;
/// Fewer timed calls do not tell how long the others take.
const TIMED: u64 = 50;

/// Whether calls of malloc in the process are in the trace.
fn malloc_is_known(s: &Subject<'_>) -> bool {
    s.facts.allocations.processes.get(&s.process_id).is_some()
}

pub(super) const HOST_MEMORY_GROWTH: Rule = Rule {
    name: "host-memory-growth",
    verdict: None,
    title: Title::new("host memory that grows with every step"),
    about: "host memory",
    condition: "Live memory of malloc grows from step to step, all the time and by more than chance would have it (--explain host-leaks), \
        in stacks that together grow by 1 MiB and more in the run, and by 1 % of the process's peak. It costs no time until memory is short: gain not known.",
    advice: "let go of what is kept from step to step: losses and outputs in a list (keep loss.item(), not loss), caches \
        without a bound, logs; report --only host-leaks has all stacks",
    on_metal: Some(
        "let go of what is kept from step to step: command buffers and textures in a list, caches without a bound, logs, missing \
        autorelease pools; report --only host-leaks has all stacks",
    ),
    without: &[],
    all_of_it: false,
    gain_known: false,
    effort: Effort::Medium,
    recorded: |s| s.per_step && malloc_is_known(s),
    evaluate: host_memory_growth,
};

fn host_memory_growth(s: &Subject<'_>) -> Option<Evidence> {
    let (steps, process) = (s.steps?, s.facts.allocations.processes.get(&s.process_id)?);
    let grows: Vec<Growing<'_>> =
        growing(s.facts).into_iter().filter(|grows| grows.of.process_id == s.process_id).collect();
    let per_step: f64 = grows.iter().filter_map(Growing::per_step).sum();
    let in_run = per_step * steps.sorted_ns.len() as f64;
    if in_run < GROWTH_BYTES || in_run < GROWTH_SHARE * process.peak.bytes {
        return None;
    }
    let line = |grows: &Growing<'_>| {
        let site = grows.of.site(s.facts).map_or_else(|| "(no stack)".to_owned(), Site::short);
        let live = bytes(grows.of.stack.grown().bytes.max(0.0));
        Some(format!("{site}  {} a step, {live} live after the last", bytes(grows.per_step()?)))
    };
    Some(Evidence { gain_ns: 0.0, of_run: false, lines: grows.iter().take(3).filter_map(line).collect() })
}

/// What the thread that makes the steps spends in malloc, where enough calls were timed.
fn in_loop(s: &Subject<'_>) -> Option<MallocSum> {
    let thread = s.facts.allocations.threads.get(&(s.process_id, s.steps?.tid))?;
    Some(MallocSum::of(&thread.middle)).filter(|sum| sum.timed >= TIMED)
}

/// Whether it is known how long malloc takes in the loop.
fn malloc_is_timed(s: &Subject<'_>) -> bool {
    in_loop(s).is_some()
}

pub(super) const MALLOC_TIME: Rule = Rule {
    name: "malloc-time",
    verdict: Some("HOST BOUND"),
    title: Title::new("time in malloc"),
    about: "malloc",
    condition: "The thread that makes the steps spends 5 % of a step or more in malloc, as timed calls tell it (--explain \
        malloc-time; at least 50 in such steps). Gain: at most that time; with GPU times, the part of it in which the GPU may be idle for the host's own \
        work, which host-work names as well.",
    advice: "allocate before the loop and use buffers again; fewer small objects; another allocator (LD_PRELOAD of jemalloc or \
        tcmalloc), or MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_ where slow calls are page faults",
    on_metal: Some("allocate before the loop and use buffers again; fewer small objects"),
    without: &[Class::Host],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Medium,
    recorded: malloc_is_timed,
    evaluate: malloc_time,
};

fn malloc_time(s: &Subject<'_>) -> Option<Evidence> {
    let sum = in_loop(s)?;
    let ns = sum.ns / s.units;
    if ns < MALLOC_SHARE * s.unit_ns {
        return None;
    }
    let gain_ns = s.gain_ns(ns, |gpu| s.host_idle_ns(gpu).min(ns));
    let lines = [
        Some(format!("{} a step in {} calls of malloc, about", ms(ns), number(sum.calls / s.units))),
        slowest_in_malloc(s.facts, s.process_id).map(|site| format!("most from {}", site.short())),
    ];
    Some(Evidence { gain_ns, of_run: false, lines: lines.into_iter().flatten().collect() })
}

#[cfg(test)]
mod tests {
    use crate::analysis::ALL;
    use crate::findings::tests::{expect, found};
    use crate::trace::testing::{TestTrace, Thread};

    #[test]
    fn host_memory_that_grows_with_the_steps_is_found_with_its_line_and_what_does_not_is_fine() {
        let section = |grows: bool| {
            let mut trace = TestTrace::new();
            let line = trace.stack("keep", "/home/u/train.py", 44);
            let mut thread = trace.thread(1, 11);
            for _ in 0..40 {
                let block = thread.malloc_at(line, 1 << 16, f64::from(1 << 16));
                (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
                thread.host(900_000);
                if !grows {
                    thread.free_block(&block);
                }
                thread.sync("cuStreamSynchronize", "stream", 1_000);
            }
            trace.section(ALL[0])
        };
        let (leak, fine) = (section(true), section(false));
        assert_eq!(found(&leak), [("host-memory-growth".to_owned(), 0)], "{:?}", leak.literal);
        let text = leak.literal.unwrap();
        assert!(
            text.contains("train.py:44 keep  64.0 KiB a step") || text.contains("train.py:44 keep  64 KiB a step"),
            "{text}"
        );
        assert_eq!(found(&fine), []);
        assert!(fine.literal.unwrap().contains("host memory"));
    }

    #[test]
    fn malloc_in_the_loop_costs_at_most_its_time() {
        let step = |t: &mut Thread<'_>| {
            for n in 0..64 {
                let timed = (n % 16 == 0).then_some(5_000);
                t.host_memory("alloc", 100, 100.0, serde_json::json!({ "api_ns": timed }));
                t.host(4_990);
            }
            t.host(680_000);
        };
        // Four of 64 were timed: 320 us of a millisecond.
        expect(step, "HOST BOUND", ("malloc-time", 320));
    }
}
