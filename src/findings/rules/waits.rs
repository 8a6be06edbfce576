//! Rules about waiting: for the GPU, said or unsaid, and for the operating system.

use std::collections::BTreeMap;

use super::lines::{count, ms, per_unit};
use super::rule::{Effort, Rule, Title, always};
use crate::analysis::{AtSite, Cause, Class, Did, ImplicitKey, ImplicitKind, Part, What, costs_by_site, idle_by_site};
use crate::findings::{Evidence, Subject, WORTH};

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
fn waits_of(
    s: &Subject<'_>,
    what: What,
    mut waits: Vec<Wait>,
    (calls, ns): (f64, f64),
    after: &[Did],
) -> Option<Evidence> {
    // A wait after which the GPU is not idle costs nothing.
    let gain_ns = s.gain_ns(s.overlap_bound(ns), |gpu| gpu.after_ns(after).min(ns));
    if s.on_gpu.is_some() && gain_ns < WORTH * s.unit_ns {
        return None;
    }
    if s.on_gpu.is_none() && ns < WORTH * s.unit_ns {
        return None;
    }
    if calls < if s.per_step { 0.9 } else { 10.0 } {
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
    Some(Evidence { gain_ns, of_run: false, lines })
}

/// The two lines after whose waits the GPU idles longest, else that wait longest; with `named` only such as are known.
fn waiting_lines(s: &Subject<'_>, what: What, named: bool) -> Vec<String> {
    let mut sites = costs_by_site(s.facts, &[what]);
    sites.retain(|at| at.process_id == s.process_id && !(named && at.site.is_none()) && per_unit(s, at).0 > 0.0);
    let mut idle = s.facts.gpu.as_ref().map(|gpu| idle_by_site(s.facts, gpu)).unwrap_or_default();
    idle.retain(|gaps| gaps.process_id == s.process_id && gaps.cause == Cause::AfterWait);
    let idle_ns = |at: &AtSite| -> i64 {
        let own = idle.iter().filter(|gaps| gaps.site.is_some_and(|site| at.site.as_ref() == Some(site)));
        own.map(|gaps| gaps.middle_ns).sum()
    };
    sites.sort_by(|a, b| {
        let (a_ns, b_ns) = (per_unit(s, a).1, per_unit(s, b).1);
        idle_ns(b).cmp(&idle_ns(a)).then(b_ns.total_cmp(&a_ns))
    });
    let all = if s.lacks_stacks() { costs_by_site(s.facts, &[what]) } else { Vec::new() };
    if !all.is_empty() && sites.iter().any(|at| at.site.is_some()) {
        // What has no stack is told where those are that have one.
        sites.retain(|at| at.site.is_some());
    }
    let line = |at: &AtSite| {
        let (mut number, mut ns) = per_unit(s, at);
        let mut about = "";
        if !all.is_empty() && at.site.is_some() {
            let times = missing(s, &all, at);
            (number, ns, about) = (number * times.0, ns * times.1, "about ");
        }
        let site = at.site.as_ref().map(|site| format!("{}  ", site.short())).unwrap_or_default();
        let called = at.called(s.facts);
        format!("{site}{called} {about}{}, {} each", count(s, number), ms(ns / number.max(1e-9)))
    };
    sites.iter().take(2).map(line).collect()
}

/// Where calls lack their stack to keep to a budget: calls of the unit, and their time, that all of the line's function have for
/// each of it that has a stack.
fn missing(s: &Subject<'_>, all: &[AtSite], at: &AtSite) -> (f64, f64) {
    let same = |other: &&AtSite| {
        other.process_id == at.process_id && other.api_id == at.api_id && other.direction == at.direction
    };
    let sum = |with: &dyn Fn(&AtSite) -> bool| {
        let calls = all.iter().filter(same).filter(|at| with(at)).map(|at| per_unit(s, at));
        calls.fold((0.0, 0.0), |sum, (number, ns)| (sum.0 + number, sum.1 + ns))
    };
    let (whole, known) = (sum(&|_| true), sum(&|at| at.site.is_some()));
    let times = |whole: f64, known: f64| if known > 0.0 { whole / known } else { 1.0 };
    (times(whole.0, known.0), times(whole.1, known.1))
}

/// So much of a step is a finding: PyTorch's own limit for a DataLoader.
const SYSTEM_WORTH: f64 = 0.05;

pub(super) const SYSTEM_WAITS: Rule = Rule {
    name: "system-waits",
    verdict: Some("HOST BOUND"),
    title: Title::new("the loop waits for data, locks or threads"),
    about: "system waits",
    condition: "In steady steps the thread that makes them waits for the operating system (a DataLoader's queue, files, \
        Python's and other locks, threads, sleeps) for 5 % of a step or more, outside of driver calls and while no other \
        thread launches; with GPU times, the GPU is idle so long meanwhile, in the time after a wait for it too. Gain: at \
        most that time; with GPU times, what the run replayed without such waits gains.",
    advice: "prepare data ahead: DataLoader(num_workers=N, prefetch_factor=4, persistent_workers=True); no contended locks, \
        joins or sleeps in the loop",
    on_metal: Some("prepare data ahead, in threads of their own; no contended locks, joins or sleeps in the loop"),
    without: &[Class::System],
    all_of_it: true,
    gain_known: true,
    effort: Effort::Low,
    recorded: |s| s.system_ns.is_some(),
    evaluate: system_waits,
};

fn system_waits(s: &Subject<'_>) -> Option<Evidence> {
    let gain_ns = match &s.on_gpu {
        Some(gpu) => s.system_idle_ns(gpu),
        None => s.system_ns?,
    };
    if gain_ns < SYSTEM_WORTH * s.unit_ns {
        return None;
    }
    Some(Evidence { gain_ns, of_run: false, lines: waiting_lines(s, What::System, false) })
}

const HIDDEN: &[ImplicitKind] = &[ImplicitKind::Free, ImplicitKind::Alloc, ImplicitKind::Set];

pub(super) const HIDDEN_WAITS: Rule = Rule {
    name: "hidden-waits",
    verdict: Some("ALLOCATION BOUND"),
    title: Title::new("frees, allocations or sets that wait"),
    about: "hidden waits",
    condition: "Frees, allocations and synchronous sets wait for the GPU in (nearly) every step, for 2 % of it or more; \
        or, without steps, at least 10 times (--explain syncs says how that is known). Gain: at most the waiting, or the \
        rest of the step, whichever is less: what the GPU did meanwhile remains; with GPU times, what the run \
        replayed without allocations and frees gains (--explain critical-path).",
    advice: "free and allocate outside the loop, or in stream order: cuMemFreeAsync, a caching allocator; cuMemsetD8Async",
    on_metal: None,
    without: &[Class::Memory],
    all_of_it: true,
    gain_known: true,
    effort: Effort::Medium,
    recorded: always,
    evaluate: hidden_waits,
};

pub(super) fn hidden_waits(s: &Subject<'_>) -> Option<Evidence> {
    let waits = implicit_waits(s, HIDDEN);
    let sum = sum_of(&waits);
    waits_of(s, What::Hidden, waits, sum, &[Did::Memory])
}

pub(super) const WAIT_EVERY_STEP: Rule = Rule {
    name: "wait-every-step",
    verdict: Some("SYNC BOUND"),
    title: Title { of_step: "wait every step", of_run: "many waits" },
    about: "waits",
    condition: "The host waits in (nearly) every step, for 2 % of it or more; or, without steps, at least 10 times. \
        Copies that took longer than their bytes can explain wait too (--explain transfers). Gain: at most the time in \
        the waits, or the rest of the step, whichever is less: what the GPU did meanwhile remains; with GPU times, what \
        the run replayed without waits gains (--explain critical-path), where the GPU idles after waits for 2 % of the step \
        or more: a wait after which it is not idle is no finding.",
    advice: "wait less often: read the loss every 100 steps, not with .item() each time; events in place of full waits",
    on_metal: Some(
        "waitUntilCompleted only where a result is read: completion handlers, shared events, two or three command buffers in \
        flight; read the loss every 100 steps. Where commandBuffer waits for room: fewer of them in flight, with more work in \
        each, or a queue with a larger newCommandQueueWithMaxCommandBufferCount:",
    ),
    without: &[Class::Wait],
    all_of_it: true,
    gain_known: true,
    effort: Effort::Low,
    recorded: always,
    evaluate: wait_every_step,
};

fn wait_every_step(s: &Subject<'_>) -> Option<Evidence> {
    let hidden = sum_of(&implicit_waits(s, HIDDEN));
    let explicit = s.facts.syncs.calls.iter().filter(|(k, _)| k.process_id == s.process_id && k.kind.blocks());
    // Of several streams or queues together: nobody is helped by the same function twice.
    let mut by_function: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for (key, c) in explicit {
        let sum = by_function.entry(key.api_id).or_default();
        sum.0 += s.per_unit(c.all.count as f64, c.middle.0 as f64);
        sum.1 += s.per_unit(c.all.sum as f64, c.middle.1 as f64);
    }
    let wait = |(api_id, (number, ns))| Wait { what: s.facts.names.full(api_id), verb: "", number, ns };
    let mut waits: Vec<Wait> = by_function.into_iter().map(wait).collect();
    let transfers = &s.facts.transfers;
    let copies = transfers.sums.iter().filter(|(key, _)| key.process_id == s.process_id && !key.set);
    waits.extend(copies.map(|(key, sum)| {
        let size = crate::render::bytes(sum.bytes as f64 / sum.api.count.max(1) as f64);
        let what = format!("{} {} of {size}", s.facts.names.full(key.api_id), transfers.text(key.direction));
        let number = s.per_unit(sum.waited.count as f64, sum.waited_middle.0 as f64);
        Wait { what, verb: "waits ", number, ns: s.per_unit(sum.waited.sum as f64, sum.waited_middle.1 as f64) }
    }));
    let sum = (s.waits() - hidden.0, s.ns(Part::Wait) - hidden.1);
    waits_of(s, What::Wait, waits, sum, &[Did::Wait, Did::Transfer])
}
