//! Rules about giving the GPU its work: too slowly, too late, or work that nothing runs beside.

use super::lines::ms;
use super::outliers::outlier_steps;
use super::rule::{Effort, Rule, Title, always};
use crate::analysis::{Cause, Class, Part, idle_by_site, launches_by_site, polls};
use crate::findings::{Evidence, SLOW_HOST, Subject, WORTH};
use crate::render::counted;
use crate::trace::{shortened, shortened_apart};

pub(super) const LAUNCH_BOUND: Rule = Rule {
    name: "launch-bound",
    verdict: Some("LAUNCH BOUND"),
    title: Title::new("many small launches"),
    about: "launches",
    condition: "Launches, in calls of less than 50 us on average, take 10 % of a step or more, and the \
        host waits for less than half of it. Gain: at most the time in the calls; host time between them that goes \
        away with them is not known. With GPU times: the GPU is idle for 10 % of a step or more because nothing was launched in \
        time, of each gap at most the first 50 us; the rest is host-work's. Gain: at most that idle time.",
    advice: "CUDA graphs: torch.compile(mode=\"reduce-overhead\"), cuStreamBeginCapture; AdamW(fused=True); larger batches",
    on_metal: Some(
        "encode more dispatches into one command buffer and commit less often; kernels that do more; indirect command \
        buffers for what is encoded alike again and again",
    ),
    without: &[Class::Host],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Low,
    recorded: always,
    evaluate: launch_bound,
};

fn launch_bound(s: &Subject<'_>) -> Option<Evidence> {
    let (calls, host_ns) = (s.calls(Part::Launch), s.ns(Part::Launch));
    // Whoever knows the GPU's times need not guess from the host's calls and waits whether the GPU was the limit.
    let (gain_ns, host_limits) = match &s.on_gpu {
        Some(gpu) => (gpu.launch_idle_ns.min(host_ns + s.unknown_ns()), true),
        // What an estimate leaves idle is a limit, to which all gains are held.
        None => match &s.busy {
            Some(_) => (host_ns, true),
            None => (host_ns, host_ns < SHORT_NS * calls && s.share(Part::Wait) < 0.5),
        },
    };
    if gain_ns < LAUNCH_WORTH * s.unit_ns || calls < 1.0 || !host_limits {
        return None;
    }
    // Kernels are counted over all processes: of several alike ones each did its share.
    let launches = &s.facts.launches;
    let all: u64 = launches.kernels.iter().map(|(_, stats)| stats.count).sum();
    let mut kernels: Vec<_> = launches.kernels.iter().collect();
    kernels.sort_by_key(|(key, stats)| (std::cmp::Reverse(stats.count), **key));
    // One in more than a hundred launches is no evidence of many.
    kernels.retain(|(_, stats)| stats.count.saturating_mul(100) >= all);
    kernels.truncate(LINES);
    let full = |name: i64| if name < 0 { String::new() } else { s.facts.names.full(name) };
    let names: Vec<String> = kernels.iter().map(|((_, name), _)| full(*name)).collect();
    let names = shortened_apart(&names, 48);
    let line = |(((api, _), stats), kernel): (&(&(i64, i64), &crate::analysis::Stats), &String)| {
        let number = stats.count as f64 / all.max(1) as f64 * calls;
        let launches = counted(number, "launch", "launches");
        format!("{launches} {kernel} {}", s.facts.names.full(*api)).replace("  ", " ")
    };
    let lines =
        launching_lines(s, calls).into_iter().chain(lone_dispatches(s)).chain(kernels.iter().zip(&names).map(line));
    let lines: Vec<String> = lines.take(LINES).collect();
    Some(Evidence { gain_ns, of_run: false, lines })
}

/// Command buffers with a dispatch each, where half of them are.
fn lone_dispatches(s: &Subject<'_>) -> Option<String> {
    let own = s.facts.metal.processes.get(&s.process_id).filter(|own| 2 * own.single >= own.count)?;
    let [single, count] = [own.single, own.count].map(|number| crate::render::number(number as f64));
    Some(format!("{single} of {count} command buffers hold one dispatch"))
}

/// Lines of evidence.
const LINES: usize = 3;

/// Idle time because of launching, or time in launches, that is a finding.
const LAUNCH_WORTH: f64 = 0.1;

/// A launch call that takes longer waits for room in a full queue.
const SHORT_NS: f64 = 50_000.0;

pub(super) const HOST_WORK: Rule = Rule {
    name: "host-work",
    verdict: Some("HOST BOUND"),
    title: Title::new("the GPU waits for the host's own work"),
    about: "host work",
    condition: "The GPU is idle for 5 % of a step or more because the host is at other work than launching: what gaps have \
        beyond the 50 us that launching alone can take (launch-bound); idle time after waits counts here as far as it is longer \
        than the waits, for waiting less would not make the host faster. Gain: at most that time, and the host's time \
        outside the driver. Needs GPU times.",
    advice: "prepare the next step while the GPU works: move preprocessing to workers or to the GPU, log and save less often",
    on_metal: Some(
        "prepare the next step while the GPU works: two or three command buffers in flight; log and save less often",
    ),
    without: &[Class::Host],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Medium,
    // What the host does in long steps that are a finding is not told by the usual one.
    recorded: |s| s.on_gpu.is_some() && outlier_steps(s).is_none(),
    evaluate: host_work,
};

/// The GPU idle while the host is at something else than launching.
fn host_work(s: &Subject<'_>) -> Option<Evidence> {
    let gpu = s.on_gpu.as_ref()?;
    let gain_ns = s.host_idle_ns(gpu);
    if gain_ns < HOST_WORTH * s.unit_ns {
        return None;
    }
    let outside = format!("the host is outside the driver {} of a {}", ms(s.unknown_ns()), s.unit());
    let lines = idle_lines(s, &|cause| SLOW_HOST.contains(&cause));
    let asked = polls(s.facts, Some(s.process_id));
    let asked = (asked > 0).then(|| {
        format!(
            "part of it may be waiting: shared events and command buffers were asked how far they are {}",
            counted(asked as f64, "time", "times")
        )
    });
    Some(Evidence { gain_ns, of_run: false, lines: lines.into_iter().chain([outside]).chain(asked).collect() })
}

/// Idle time because of other work of the host that is a finding.
const HOST_WORTH: f64 = 0.05;

/// The two lines that most idle time of these causes is blamed on, without what launching takes.
fn idle_lines(s: &Subject<'_>, causes: &dyn Fn(Cause) -> bool) -> Vec<String> {
    let Some(gpu) = s.facts.gpu.as_ref() else { return Vec::new() };
    let mut sites = idle_by_site(s.facts, gpu);
    sites.retain(|at| at.process_id == s.process_id && causes(at.cause) && at.site.is_some());
    // A line that little of the idle time is blamed on is no evidence.
    sites.retain(|at| (at.middle_ns - at.launch_ns) as f64 >= WORTH * s.unit_ns * s.units);
    sites.sort_by_key(|at| std::cmp::Reverse(at.middle_ns - at.launch_ns));
    let line = |at: &crate::analysis::IdleAt<'_>| {
        let name = at.site.map(crate::trace::Site::short).unwrap_or_default();
        format!("GPU idle {} before {name}", ms((at.middle_ns - at.launch_ns) as f64 / s.units))
    };
    sites.iter().take(2).map(line).collect()
}

/// NCCL with no computing beside it: PyTorch's own limit.
const COMMUNICATION_WORTH: f64 = 0.1;

pub(super) const EXPOSED_COMMUNICATION: Rule = Rule {
    name: "exposed-communication",
    verdict: Some("COMMUNICATION BOUND"),
    title: Title::new("communication that nothing runs beside"),
    about: "communication",
    condition: "NCCL's kernels run for 10 % of a step or more with no computing beside them, without what they wait for other \
        ranks (that is imbalance; it is known where the traces of the other ranks are here). Gain: at most that time, and \
        what the run replayed without NCCL's kernels gains (--explain critical-path).",
    advice: "overlap it: DDP buckets (bucket_cap_mb), FSDP prefetching, gradient accumulation; fewer bytes: bf16 gradients",
    on_metal: None,
    without: &[Class::Communication],
    all_of_it: false,
    gain_known: true,
    effort: Effort::High,
    recorded: |s| s.on_gpu.is_some() && s.facts.gpu.as_ref().is_some_and(|gpu| gpu.communication().next().is_some()),
    evaluate: exposed_communication,
};

fn exposed_communication(s: &Subject<'_>) -> Option<Evidence> {
    let gpu = s.on_gpu.as_ref()?;
    let gain_ns = s.transferring_ns(gpu);
    if gain_ns < COMMUNICATION_WORTH * s.unit_ns {
        return None;
    }
    let mut kernels: Vec<_> = s.facts.gpu.iter().flat_map(|gpu| gpu.communication()).collect();
    kernels.sort_by_key(|(_, stats)| std::cmp::Reverse(stats.sum));
    let line = |(id, stats): &(i64, &crate::analysis::Stats)| {
        let times = counted(stats.count as f64, "time", "times");
        format!("{} {times}, {} each", shortened(&s.facts.names.full(*id), 48), ms(stats.mean()))
    };
    let waiting_ns = gpu.communication_ns - gain_ns;
    let (alone, waiting) = (ms(gpu.communication_ns), ms(waiting_ns));
    let waits =
        format!("{alone} of a {} alone, {waiting} of it waiting for other ranks, which is not counted", s.unit());
    let waits = (waiting_ns >= 0.005 * s.unit_ns).then_some(waits);
    Some(Evidence { gain_ns, of_run: false, lines: kernels.iter().take(2).map(line).chain(waits).collect() })
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
        format!("about {} {}", counted(number.round(), "launch", "launches"), site.named())
    };
    own().filter(|(.., of)| of.samples > 0).take(2).map(line).collect()
}
