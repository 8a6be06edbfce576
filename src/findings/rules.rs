//! The rules, a row each: what is looked at, when it is a finding, what to do.

use super::{Evidence, Subject, WORTH};
use crate::analysis::{AtSite, ImplicitKey, ImplicitKind, Part, TransferRule, What, costs_by_site, launches_by_site};
use crate::trace::shortened;

/// Work that a fix takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// An option or a line.
    Low,
    /// Some lines in several places.
    Medium,
}

impl Effort {
    /// The word.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Effort::Low => "low",
            Effort::Medium => "medium",
        }
    }
}

/// What is wrong, in a few words: of a program with steps, and of one without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Title {
    /// Per step.
    pub(crate) of_step: &'static str,
    /// In the run.
    pub(crate) of_run: &'static str,
}

impl Title {
    const fn new(both: &'static str) -> Title {
        Title { of_step: both, of_run: both }
    }
}

/// A rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Name in JSON and for `--explain`.
    pub(crate) name: &'static str,
    /// What is wrong, in a few words.
    pub(crate) title: Title,
    /// What was looked at, for "checked, fine".
    pub(crate) about: &'static str,
    /// The condition and how the bound of the gain is computed.
    pub(crate) condition: &'static str,
    /// What to do.
    pub(crate) advice: &'static str,
    /// Work that it takes.
    pub(crate) effort: Effort,
    /// Whether what it looks at was recorded: else nothing was checked.
    pub(crate) recorded: fn(&Subject<'_>) -> bool,
    /// Looks at a process.
    pub(crate) evaluate: fn(&Subject<'_>) -> Option<Evidence>,
}

/// Every rule, by name.
pub(crate) const ALL: &[Rule] = &[
    Rule {
        name: "allocation-in-loop",
        title: Title { of_step: "allocation in the loop", of_run: "many allocations" },
        about: "allocations",
        condition: "Allocation and free calls of the driver in steady steps (in the run, when there are no steps and at \
            least 100 calls) take 2 % or more, without what they waited for the GPU. Gain: at most that time.",
        advice: "allocate once before the loop and reuse; or a pool: cuMemAllocAsync, a caching allocator",
        effort: Effort::Medium,
        recorded: always,
        evaluate: allocation_in_loop,
    },
    Rule {
        name: "hidden-waits",
        title: Title::new("frees, allocations or sets that wait"),
        about: "hidden waits",
        condition: "Frees, allocations and synchronous sets wait for the GPU in (nearly) every step, for 2 % of it or more; \
            or, without steps, at least 10 times (--explain syncs says how that is known). Gain: at most the waiting, or the \
            rest of the step, whichever is less: what the GPU did meanwhile remains.",
        advice: "free and allocate outside the loop, or in stream order: cuMemFreeAsync, a caching allocator; cuMemsetD8Async",
        effort: Effort::Medium,
        recorded: always,
        evaluate: hidden_waits,
    },
    Rule {
        name: "launch-bound",
        title: Title::new("many small launches"),
        about: "launches",
        condition: "At least 50 launches a step, in calls of less than 50 us on average, take 10 % of it or more, and the \
            host waits for less than half of it. Gain: at most the time in the calls; host time between them that goes \
            away with them is not known.",
        advice: "CUDA graphs: torch.compile(mode=\"reduce-overhead\"), cuStreamBeginCapture; AdamW(fused=True); larger batches",
        effort: Effort::Low,
        recorded: always,
        evaluate: launch_bound,
    },
    Rule {
        name: "pageable-copies",
        title: Title::new("asynchronous copies of pageable memory"),
        about: "pageable copies",
        condition: "Asynchronous copies that touch pageable memory (rule cuda_memcpy_async) take 2 % or more, without what \
            they waited for earlier work. Gain: at most the time in the calls.",
        advice: "pin the host memory: DataLoader(pin_memory=True), cuMemHostAlloc, cuMemHostRegister",
        effort: Effort::Low,
        recorded: always,
        evaluate: pageable_copies,
    },
    Rule {
        name: "small-transfers",
        title: Title::new("many small transfers"),
        about: "small transfers",
        condition: "At least 8 transfers a step (100 in a run) of less than 64 KiB, that no other rule names, take 2 % or \
            more. Gain: at most the time in all of them but one.",
        advice: "pack them into one buffer and copy once; keep small values on the GPU",
        effort: Effort::Medium,
        recorded: always,
        evaluate: small_transfers,
    },
    Rule {
        name: "sync-copies",
        title: Title::new("copies that block the host"),
        about: "synchronous copies",
        condition: "Synchronous copies and sets (rules cuda_memcpy_sync, cuda_memset_sync) take 2 % or more, without what \
            they waited for earlier work. Gain: at most the time in the calls, or the rest of the step, whichever is less: the copy itself remains.",
        advice: "copy asynchronously from pinned memory: tensor.to(device, non_blocking=True), cuMemcpyAsync",
        effort: Effort::Low,
        recorded: always,
        evaluate: sync_copies,
    },
    Rule {
        name: "system-waits",
        title: Title::new("the loop waits for data, locks or threads"),
        about: "system waits",
        condition: "In steady steps the thread that makes them waits for the operating system (a DataLoader's queue, files, \
            Python's and other locks, threads, sleeps) for 5 % of a step or more, outside of driver calls and while no other \
            thread launches. Gain: at most that time, less where the GPU has work queued meanwhile.",
        advice: "prepare data ahead: DataLoader(num_workers=N, prefetch_factor=4, persistent_workers=True); no contended locks, \
            joins or sleeps in the loop",
        effort: Effort::Low,
        recorded: |s| s.system_ns.is_some(),
        evaluate: system_waits,
    },
    Rule {
        name: "wait-every-step",
        title: Title { of_step: "wait every step", of_run: "many waits" },
        about: "waits",
        condition: "The host waits in (nearly) every step, for 2 % of it or more; or, without steps, at least 10 times. \
            Copies that took longer than their bytes can explain wait too (--explain transfers). Gain: at most the time in \
            the waits, or the rest of the step, whichever is less: what the GPU did meanwhile remains.",
        advice: "wait less often: read the loss every 100 steps, not with .item() each time; events in place of full waits",
        effort: Effort::Low,
        recorded: always,
        evaluate: wait_every_step,
    },
    Rule {
        name: "warm-up",
        title: Title::new("loading and compiling code"),
        about: "module loading",
        condition: "Loading modules, libraries and kernels takes 5 % of the run or more, or 2 % of the steady steps. Gain: at \
            most the time in the calls.",
        advice: "load before the loop, keep a compilation cache (TORCHINDUCTOR_CACHE_DIR, CUDA_CACHE_PATH), build for this GPU",
        effort: Effort::Medium,
        recorded: always,
        evaluate: warm_up,
    },
];

fn always(_: &Subject<'_>) -> bool {
    true
}

fn ms(ns: f64) -> String {
    crate::render::time(ns)
}

/// `955 a step`, `1.0 a step`, `12,000 in the run`.
fn count(subject: &Subject<'_>, number: f64) -> String {
    let shown = crate::render::number(number);
    if subject.per_step { format!("{shown} a step") } else { format!("{shown} in the run") }
}

fn allocation_in_loop(s: &Subject<'_>) -> Option<Evidence> {
    let mut calls: Vec<_> = s.facts.device_memory.calls.iter().filter(|((p, ..), _)| *p == s.process_id).collect();
    let per_unit = |((_, is_alloc, _, api), c): &(&(i64, bool, usize, i64), &crate::analysis::AllocationCalls)| {
        let number = s.per_unit(c.api.count as f64, c.middle.0 as f64);
        let kind = if *is_alloc { ImplicitKind::Alloc } else { ImplicitKind::Free };
        let waited = s.facts.implicit.calls.get(&ImplicitKey { process_id: s.process_id, kind, api_id: *api });
        let waited = waited.map_or(0.0, |w| s.per_unit(w.waited.sum as f64, w.waited_middle.1 as f64));
        (number, (s.per_unit(c.api.sum as f64, c.middle.1 as f64) - waited).max(0.0))
    };
    let (number, gain_ns) = calls.iter().map(per_unit).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    if !s.per_step && number < 100.0 || gain_ns < WORTH * s.unit_ns {
        return None;
    }
    calls.sort_by(|a, b| per_unit(b).1.total_cmp(&per_unit(a).1));
    let line = |call: &(&(i64, bool, usize, i64), &crate::analysis::AllocationCalls)| {
        let (number, ns) = per_unit(call);
        format!("{} {}, {} each", s.facts.names.full(call.0.3), count(s, number), ms(ns / number.max(1e-9)))
    };
    let lines = calls.iter().filter(|call| per_unit(call).0 > 0.0).take(2).map(line);
    Some(Evidence { gain_ns, of_run: false, lines: lines.chain(worst_line(s, What::Memory)).collect() })
}

fn launch_bound(s: &Subject<'_>) -> Option<Evidence> {
    let (calls, gain_ns) = (s.calls(Part::Launch), s.ns(Part::Launch));
    let small = calls > 0.0 && gain_ns / calls < 50_000.0;
    if calls < 50.0 || !small || gain_ns < 0.1 * s.unit_ns || s.share(Part::Wait) >= 0.5 {
        return None;
    }
    // Kernels are counted over all processes: of several alike ones each did its share.
    let launches = &s.facts.launches;
    let all: u64 = launches.kernels.iter().map(|(_, stats)| stats.count).sum();
    let mut kernels: Vec<_> = launches.kernels.iter().collect();
    kernels.sort_by_key(|(key, stats)| (std::cmp::Reverse(stats.count), **key));
    let line = |((api, name), stats): &(&(i64, i64), &crate::analysis::Stats)| {
        let number = stats.count as f64 / all.max(1) as f64 * calls;
        let kernel = if *name < 0 { String::new() } else { shortened(&s.facts.names.full(*name), 48) };
        format!("{} launches {kernel} {}", crate::render::number(number), s.facts.names.full(*api)).replace("  ", " ")
    };
    let lines: Vec<String> = launching_lines(s, calls).into_iter().chain(kernels.iter().map(line)).take(3).collect();
    Some(Evidence { gain_ns, of_run: false, lines })
}

/// Drawn launches of which a line's share is told: fewer are an accident.
const DRAWN: u64 = 20;

/// The two lines that launch most, as far as drawn launches tell; `calls`: launches of the unit.
fn launching_lines(s: &Subject<'_>, calls: f64) -> Vec<String> {
    let sites = launches_by_site(s.facts);
    let own = || sites.iter().filter(|(process_id, ..)| *process_id == s.process_id);
    let drawn: u64 = own().map(|(.., drawn)| drawn.samples).sum();
    if drawn < DRAWN {
        return Vec::new();
    }
    let line = |(_, site, of): &(i64, &crate::trace::Site, crate::analysis::Drawn)| {
        let number = of.samples as f64 / drawn as f64 * calls;
        format!("about {} launches {}", crate::render::number(number.round()), site.named())
    };
    own().filter(|(.., of)| of.samples > 0).take(2).map(line).collect()
}

/// `from train.py:44 x = torch.empty(n)`: the line where most of such a cost came from, when that is known.
fn worst_line(s: &Subject<'_>, what: What) -> Option<String> {
    Some(format!("from {}", worst_site(s, what)?.site?.short()))
}

/// Where most of such a cost of the unit came from.
pub(crate) fn worst_site(s: &Subject<'_>, what: What) -> Option<AtSite> {
    worst_of(s, what, |_| true)
}

/// The same among the calls that a finding is about.
fn worst_of(s: &Subject<'_>, what: What, about: impl Fn(&AtSite) -> bool) -> Option<AtSite> {
    let sites = costs_by_site(s.facts, &[what]).into_iter();
    let own = sites.filter(|at| at.process_id == s.process_id && per_unit(s, at).0 > 0.0 && about(at));
    own.max_by(|a, b| per_unit(s, a).1.total_cmp(&per_unit(s, b).1))
}

/// The same of all of the run.
fn worst_line_of_run(s: &Subject<'_>, what: What) -> Option<String> {
    let sites = costs_by_site(s.facts, &[what]);
    let worst = sites.iter().find(|at| at.process_id == s.process_id)?;
    Some(format!("from {}", worst.site.as_ref()?.short()))
}

/// Calls of the unit, and their time.
fn per_unit(s: &Subject<'_>, at: &AtSite) -> (f64, f64) {
    (s.per_unit(at.all.count as f64, at.middle.0 as f64), s.per_unit(at.all.sum as f64, at.middle.1 as f64))
}

/// Calls that one of these rules of Nsight Systems names: their time, what they are, and the line of most of it.
fn named_copies(s: &Subject<'_>, rules: &[TransferRule]) -> (f64, Vec<String>) {
    let transfers = &s.facts.transfers;
    let of = |sum: &crate::analysis::TransferSum| {
        let number = s.per_unit(sum.rule.own.0 as f64, sum.rule.middle.0 as f64);
        (number, s.per_unit(sum.rule.own.1 as f64, sum.rule.middle.1 as f64))
    };
    let named = transfers.sums.iter().filter(|(key, _)| key.process_id == s.process_id);
    let named = named.filter(|(key, _)| transfers.rule(key).is_some_and(|rule| rules.contains(&rule)));
    let mut named: Vec<_> = named.filter(|(_, sum)| of(sum).0 > 0.0).collect();
    named.sort_by(|(_, a), (_, b)| of(b).1.total_cmp(&of(a).1));
    let line = |(key, sum): &(&crate::analysis::TransferKey, &crate::analysis::TransferSum)| {
        let (number, ns) = of(sum);
        let size = crate::render::bytes(sum.rule.bytes as f64 / sum.rule.count.max(1) as f64);
        let (api, direction) = (s.facts.names.full(key.api_id), transfers.text(key.direction));
        format!("{api} {direction} {}, {size} and {} each", count(s, number), ms(ns / number.max(1e-9)))
    };
    let gain_ns = named.iter().map(|(_, sum)| of(sum).1).sum();
    let mut lines: Vec<String> = named.iter().take(2).map(line).collect();
    let is_named = |at: &AtSite, key: &crate::analysis::TransferKey| {
        at.api_id == key.api_id && at.direction == transfers.text(key.direction)
    };
    let worst = worst_of(s, What::Copy, |at| named.iter().any(|(key, _)| is_named(at, key)));
    lines.extend(worst.and_then(|at| at.site).map(|site| format!("from {}", site.short())));
    (gain_ns, lines)
}

fn pageable_copies(s: &Subject<'_>) -> Option<Evidence> {
    let (gain_ns, lines) = named_copies(s, &[TransferRule::MemcpyAsync]);
    (gain_ns > 0.0).then_some(Evidence { gain_ns, of_run: false, lines })
}

fn sync_copies(s: &Subject<'_>) -> Option<Evidence> {
    let (ns, lines) = named_copies(s, &[TransferRule::MemcpySync, TransferRule::MemsetSync]);
    (ns > 0.0).then(|| Evidence { gain_ns: s.overlap_bound(ns), of_run: false, lines })
}

fn small_transfers(s: &Subject<'_>) -> Option<Evidence> {
    let sums = s.facts.transfers.sums.iter().filter(|(key, _)| key.process_id == s.process_id);
    let (number, ns) = sums.fold((0.0, 0.0), |(number, ns), (_, sum)| {
        (
            number + s.per_unit(sum.unruled_small.0 as f64, sum.unruled_small_middle.0 as f64),
            ns + s.per_unit(sum.unruled_small.1 as f64, sum.unruled_small_middle.1 as f64),
        )
    });
    if number < if s.per_step { 8.0 } else { 100.0 } {
        return None;
    }
    let lines = vec![format!("{}, {} each", count(s, number), ms(ns / number))];
    Some(Evidence { gain_ns: ns * (1.0 - 1.0 / number), of_run: false, lines })
}

/// Calls that wait.
struct Wait {
    what: String,
    /// Said before the time of those that also do something else.
    verb: &'static str,
    /// Per unit.
    number: f64,
    ns: f64,
}

/// Calls of these kinds that wait without saying so.
fn implicit_waits(s: &Subject<'_>, kinds: &[ImplicitKind]) -> Vec<Wait> {
    let waits = s.facts.implicit.waits().filter(|(key, _)| key.process_id == s.process_id && kinds.contains(&key.kind));
    let wait = |(key, calls): (&ImplicitKey, &crate::analysis::ImplicitCalls)| {
        let number = s.per_unit(calls.waited.count as f64, calls.waited_middle.0 as f64);
        let what = format!("{} ({})", s.facts.names.full(key.api_id), key.kind.text());
        Wait { what, verb: "waits ", number, ns: s.per_unit(calls.waited.sum as f64, calls.waited_middle.1 as f64) }
    };
    waits.map(wait).collect()
}

fn sum_of(waits: &[Wait]) -> (f64, f64) {
    waits.iter().fold((0.0, 0.0), |sum, wait| (sum.0 + wait.number, sum.1 + wait.ns))
}

/// The finding that the host waits so often and so long, if it is one.
fn waits_of(s: &Subject<'_>, what: What, mut waits: Vec<Wait>, (calls, ns): (f64, f64)) -> Option<Evidence> {
    if calls < if s.per_step { 0.9 } else { 10.0 } || ns < WORTH * s.unit_ns {
        return None;
    }
    waits.retain(|wait| wait.number > 0.0);
    waits.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    let line = |wait: &Wait| {
        let each = ms(wait.ns / wait.number.max(1e-9));
        format!("{} {}, {}{each} each", wait.what, count(s, wait.number), wait.verb)
    };
    let mut lines = waiting_lines(s, what, true);
    if lines.is_empty() {
        lines = waits.iter().take(2).map(line).collect();
    }
    Some(Evidence { gain_ns: s.overlap_bound(ns), of_run: false, lines })
}

/// The two lines that wait longest; with `named` only such as are known.
fn waiting_lines(s: &Subject<'_>, what: What, named: bool) -> Vec<String> {
    let mut sites = costs_by_site(s.facts, &[what]);
    sites.retain(|at| at.process_id == s.process_id && !(named && at.site.is_none()) && per_unit(s, at).0 > 0.0);
    sites.sort_by(|a, b| per_unit(s, b).1.total_cmp(&per_unit(s, a).1));
    let line = |at: &AtSite| {
        let (number, ns) = per_unit(s, at);
        let site = at.site.as_ref().map(|site| format!("{}  ", site.short())).unwrap_or_default();
        let called = at.called(s.facts);
        format!("{site}{called} {}, {} each", count(s, number), ms(ns / number.max(1e-9)))
    };
    sites.iter().take(2).map(line).collect()
}

/// So much of a step is a finding: PyTorch's own limit for a DataLoader.
const SYSTEM_WORTH: f64 = 0.05;

fn system_waits(s: &Subject<'_>) -> Option<Evidence> {
    let gain_ns = s.system_ns.filter(|ns| *ns >= SYSTEM_WORTH * s.unit_ns)?;
    Some(Evidence { gain_ns, of_run: false, lines: waiting_lines(s, What::System, false) })
}

const HIDDEN: &[ImplicitKind] = &[ImplicitKind::Free, ImplicitKind::Alloc, ImplicitKind::Set];

fn hidden_waits(s: &Subject<'_>) -> Option<Evidence> {
    let waits = implicit_waits(s, HIDDEN);
    let sum = sum_of(&waits);
    waits_of(s, What::Hidden, waits, sum)
}

fn wait_every_step(s: &Subject<'_>) -> Option<Evidence> {
    let hidden = sum_of(&implicit_waits(s, HIDDEN));
    let explicit = s.facts.syncs.calls.iter().filter(|(k, _)| k.process_id == s.process_id && k.kind.blocks());
    let mut waits: Vec<Wait> = explicit
        .map(|(key, c)| {
            let number = s.per_unit(c.all.count as f64, c.middle.0 as f64);
            let ns = s.per_unit(c.all.sum as f64, c.middle.1 as f64);
            Wait { what: s.facts.names.full(key.api_id), verb: "", number, ns }
        })
        .collect();
    let transfers = &s.facts.transfers;
    let copies = transfers.sums.iter().filter(|(key, _)| key.process_id == s.process_id && !key.set);
    waits.extend(copies.map(|(key, sum)| {
        let size = crate::render::bytes(sum.bytes as f64 / sum.api.count.max(1) as f64);
        let what = format!("{} {} of {size}", s.facts.names.full(key.api_id), transfers.text(key.direction));
        let number = s.per_unit(sum.waited.count as f64, sum.waited_middle.0 as f64);
        Wait { what, verb: "waits ", number, ns: s.per_unit(sum.waited.sum as f64, sum.waited_middle.1 as f64) }
    }));
    waits_of(s, What::Wait, waits, (s.waits() - hidden.0, s.ns(Part::Wait) - hidden.1))
}

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
        format!("{} {} times, {} in all", s.facts.names.full(*api), c.api.count, ms(c.api.sum as f64))
    };
    let gain_ns = if of_run { all_ns } else { steady_ns };
    let from = if of_run { worst_line_of_run(s, What::Load) } else { worst_line(s, What::Load) };
    Some(Evidence { gain_ns, of_run, lines: calls.iter().take(2).map(line).chain(from).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_sorted_and_complete() {
        assert!(ALL.windows(2).all(|w| w[0].name < w[1].name));
        for rule in ALL {
            for text in [rule.title.of_step, rule.title.of_run, rule.about, rule.condition, rule.advice] {
                assert!(!text.is_empty(), "{}", rule.name);
            }
        }
    }
}
