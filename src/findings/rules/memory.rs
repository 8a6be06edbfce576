//! Rules about taking memory and loading code.

use std::collections::BTreeMap;

use super::lines::{count, ms, worst_line, worst_line_of_run};
use super::rule::{Effort, Rule, Title, always};
use super::waits::hidden_waits;
use crate::analysis::{Cause, Class, ImplicitKey, ImplicitKind, What};
use crate::findings::{Evidence, Subject, WORTH};
use crate::render::counted;

pub(super) const ALLOCATION_IN_LOOP: Rule = Rule {
    name: "allocation-in-loop",
    verdict: Some("ALLOCATION BOUND"),
    title: Title { of_step: "allocation in the loop", of_run: "many allocations" },
    about: "allocations",
    condition: "Allocation and free calls of the driver in steady steps (in the run, when there are no steps and at \
        least 100 calls) take 2 % or more, without what they waited for the GPU. Gain: at most that time; with GPU times, the \
        part of it in which the GPU was idle, after a wait too.",
    advice: "allocate once before the loop and reuse; or a pool: cuMemAllocAsync, a caching allocator",
    on_metal: Some("make buffers once and use them again, or take them from an MTLHeap"),
    without: &[Class::Memory],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Medium,
    recorded: always,
    evaluate: allocation_in_loop,
};

fn allocation_in_loop(s: &Subject<'_>) -> Option<Evidence> {
    let calls: Vec<_> = s.facts.device_memory.calls.iter().filter(|((p, ..), _)| *p == s.process_id).collect();
    let per_unit = |((_, is_alloc, _, api), c): &(&(i64, bool, usize, i64), &crate::analysis::AllocationCalls)| {
        let number = s.per_unit(c.api.count as f64, c.middle.0 as f64);
        let kind = if *is_alloc { ImplicitKind::Alloc } else { ImplicitKind::Free };
        let waited = s.facts.implicit.calls.get(&ImplicitKey { process_id: s.process_id, kind, api_id: *api });
        let waited = waited.map_or(0.0, |w| s.per_unit(w.waited.sum as f64, w.waited_middle.1 as f64));
        (number, (s.per_unit(c.api.sum as f64, c.middle.1 as f64) - waited).max(0.0))
    };
    let (number, host_ns) = calls.iter().map(per_unit).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    let gain_ns = s.gain_ns(host_ns, |gpu| gpu.memory_idle_ns().min(host_ns));
    // Where the calls cost more by waiting than by themselves, that finding names them.
    if s.on_gpu.is_some() && hidden_waits(s).is_some_and(|waits| waits.gain_ns >= gain_ns) {
        return None;
    }
    if !s.per_step && number < 100.0 || gain_ns < WORTH * s.unit_ns {
        return None;
    }
    // Whatever kind of memory they take: the same function is told once.
    let mut by_function: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for call in &calls {
        let ((number, ns), sum) = (per_unit(call), by_function.entry(call.0.3).or_default());
        *sum = (sum.0 + number, sum.1 + ns);
    }
    let mut functions: Vec<(i64, (f64, f64))> = by_function.into_iter().filter(|(_, sum)| sum.0 > 0.0).collect();
    functions.sort_by(|(_, a), (_, b)| b.1.total_cmp(&a.1));
    let line = |(api_id, (number, ns)): (i64, (f64, f64))| {
        format!("{} {}, {} each", s.facts.names.full(api_id), count(s, number), ms(ns / number.max(1e-9)))
    };
    let lines = functions.into_iter().take(2).map(line);
    Some(Evidence { gain_ns, of_run: false, lines: lines.chain(worst_line(s, What::Memory)).collect() })
}

pub(super) const WARM_UP: Rule = Rule {
    name: "warm-up",
    verdict: Some("LOADING"),
    title: Title::new("loading and compiling code"),
    about: "module loading",
    condition: "Loading modules, libraries and kernels takes 5 % of the run or more, or 2 % of the steady steps. Gain: at \
        most the time in the calls.",
    advice: "load before the loop, keep a compilation cache (TORCHINDUCTOR_CACHE_DIR, CUDA_CACHE_PATH), build for this GPU",
    on_metal: Some("make pipelines before the loop and keep them; MTLBinaryArchive keeps them from run to run"),
    without: &[],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Medium,
    recorded: always,
    evaluate: warm_up,
};

fn warm_up(s: &Subject<'_>) -> Option<Evidence> {
    let calls = s.facts.loading.calls.iter().filter(|((p, _), c)| *p == s.process_id && c.module);
    let mut calls: Vec<_> = calls.collect();
    let steady_ns = calls.iter().map(|(_, c)| c.middle.1 as f64).sum::<f64>() / s.units;
    let all_ns = calls.iter().map(|(_, c)| c.api.sum as f64).sum::<f64>();
    let of_run = !(s.per_step && steady_ns >= WORTH * s.unit_ns);
    if of_run && all_ns < 0.05 * s.run_ns {
        return None;
    }
    calls.sort_by_key(|(key, c)| (std::cmp::Reverse(c.api.sum), **key));
    let line = |((_, api), c): &(&(i64, i64), &crate::analysis::LoadingCalls)| {
        let times = counted(c.api.count as f64, "time", "times");
        format!("{} {times}, {} in all", s.facts.names.full(*api), ms(c.api.sum as f64))
    };
    let gain_ns = if of_run { all_ns } else { s.gain_ns(steady_ns, |gpu| gpu.idle_ns(&[Cause::Load])) };
    let from = if of_run { worst_line_of_run(s, What::Load) } else { worst_line(s, What::Load) };
    Some(Evidence { gain_ns, of_run, lines: calls.iter().take(2).map(line).chain(from).collect() })
}
