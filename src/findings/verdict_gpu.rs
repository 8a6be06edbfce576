//! The verdict where the trace has GPU times: what most of the GPU's time is lost to.

use super::verdict::{BOUND, long_text};
use super::{Each, Finding, Findings, IMBALANCE, OnGpu, Subject, Verdict, WORTH};
use crate::analysis::Cause;
use crate::render::share;

/// A GPU that is idle for a larger part of the unit is not healthy, whether or not it is known why.
const IDLE: f64 = 0.2;

/// `GPU 1 busy 1.2 % of a step while GPU 0 is busy 93 %`
fn beside(most: &Each, idle: &[&Each], unit_ns: f64, unit: &str) -> String {
    let of = |each: &Each| share(each.busy_ns / unit_ns);
    let more = if idle.len() > 1 { format!(" ({} GPUs idle so)", idle.len()) } else { String::new() };
    let first = idle.first().map(|each| format!("GPU {} busy {}", each.name, of(each))).unwrap_or_default();
    format!("{first} of a {unit} while GPU {} is busy {}{more}", most.name, of(most))
}

/// What was measured on the GPU that the finding is about.
pub(super) fn measured(s: &Subject<'_>, gpu: &OnGpu, first: &Finding) -> Option<String> {
    let (unit, unit_ns) = (s.unit(), s.unit_ns.max(1.0));
    let of = |ns: f64| share(ns / unit_ns);
    let idle = format!("GPU idle {} of a {unit}", of(gpu.all_idle_ns()));
    let busy = format!("GPU busy {} of a {unit}", of(gpu.busy_ns()));
    // Without its work a replayed run may be shorter by more than the GPU idled for it.
    let gain = of(first.gain_ns.min(gpu.all_idle_ns()));
    Some(match first.rule.name {
        "launch-bound" => format!("{idle}, host too slow to feed it"),
        "host-work" => format!("{idle}, {gain} for the host's own work"),
        "malloc-time" => format!("{idle}, {gain} in malloc"),
        "wait-every-step" => format!("{idle}, {gain} after waits of the host"),
        "system-waits" => {
            let waiting = of(first.gain_ns.min(s.system_idle_ns(gpu)));
            format!("{idle}, {waiting} while the host waits for data, locks or threads")
        }
        "allocation-in-loop" | "hidden-waits" => format!("{idle}, {gain} for allocations and frees"),
        "exposed-copies" | "pageable-copies" | "small-transfers" | "sync-copies" => {
            let copies = gpu.idle_ns(&[Cause::Transfer]) + gpu.copy_ns;
            format!("copies cost {} of a {unit} of the GPU's time", of(copies.max(first.gain_ns)))
        }
        "exposed-communication" => format!("NCCL runs alone {} of a {unit}", of(s.transferring_ns(gpu))),
        IMBALANCE => {
            let latest = s.facts.label(first.process_id);
            format!("ranks wait {} of a {unit} for the latest one, mostly {latest}", of(first.gain_ns))
        }
        "idle-gpu" => {
            let (most, idle) = gpu.idle_beside(unit_ns)?;
            beside(most, &idle, unit_ns, unit)
        }
        "layout-kernels" => format!("{busy}, {} for kernels that change layouts", of(first.gain_ns)),
        "serialised-streams" => format!("{busy}, streams one after the other"),
        "outlier-steps" => long_text(s),
        "warm-up" if first.per_step => format!("{idle}, {gain} while code is loaded"),
        _ => return None,
    })
}

/// One word for a process whose GPU times are known, and that has no finding that is worth it.
pub(super) fn verdict(s: &Subject<'_>, gpu: &OnGpu, findings: &Findings) -> Verdict {
    let (unit, unit_ns) = (s.unit(), s.unit_ns.max(1.0));
    let of = |ns: f64| share(ns / unit_ns);
    let idle = of(gpu.all_idle_ns());
    // Of these causes of gaps no finding speaks.
    let [collective, load] = [Cause::Collective, Cause::Load].map(|cause| gpu.idle_ns(&[cause]));
    let gaps: [(f64, &'static str, String); 2] = [
        (
            collective,
            "COMMUNICATION BOUND",
            format!("GPU idle {idle} of a {unit}, {} in calls of NCCL", of(collective)),
        ),
        (load, "LOADING", format!("GPU idle {idle} of a {unit}, {} while code is loaded", of(load))),
    ];
    let worst = gaps.into_iter().max_by(|(a, ..), (b, ..)| a.total_cmp(b));
    // Of a single step the wait may lie before it: nothing that is in the step would make it shorter.
    let after_wait = gpu.idle_ns(&[Cause::AfterWait]);
    let is_single = s.steps.is_some_and(|steps| steps.sorted_ns.len() == 1) && findings.found.is_empty();
    match worst {
        _ if is_single && after_wait >= BOUND * unit_ns => Verdict {
            word: "SYNC BOUND",
            text: format!("GPU idle {idle} of a {unit}, {} after waits of the host", of(after_wait)),
        },
        Some((ns, word, text)) if ns >= BOUND * unit_ns => Verdict { word, text },
        _ if findings.found.is_empty() && gpu.all_idle_ns() > IDLE * unit_ns => {
            let text = format!("GPU idle {idle} of a {unit}, and no rule finds why: see gpu-gaps, critical-path");
            Verdict { word: "UNKNOWN", text }
        }
        // Before the first and after the last of its work nothing says why it had none.
        _ if findings.found.is_empty() && !s.per_step && gpu.busy_ns() < (1.0 - IDLE) * unit_ns - gpu.all_idle_ns() => {
            let text = format!(
                "GPU busy {} of a {unit} without steps, and what it did not do the rest for is not known",
                of(gpu.busy_ns())
            );
            Verdict { word: "UNKNOWN", text }
        }
        _ if findings.found.is_empty() => {
            let text = format!("no finding above {} of a {unit}; GPU busy {}", share(WORTH), of(gpu.busy_ns()));
            Verdict { word: "HEALTHY", text }
        }
        _ if gpu.all_idle_ns() > gpu.busy_ns() => {
            let less = share(BOUND);
            let text = format!(
                "GPU idle {idle} of a {unit}, for reasons of less than {less} each: see gpu-gaps, critical-path"
            );
            Verdict { word: "UNKNOWN", text }
        }
        // Nothing to be bound by: command buffers without work, or without their times.
        _ if gpu.busy_ns() < WORTH * unit_ns => {
            let text = format!("GPU busy {} of a {unit}, and idle {idle} between its work", of(gpu.busy_ns()));
            Verdict { word: "UNKNOWN", text }
        }
        _ => Verdict { word: "GPU BOUND", text: format!("GPU busy {} of a {unit}", of(gpu.busy_ns())) },
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evidence, found};
    use crate::analysis::{ALL, Section, Value};
    use crate::trace::testing::{START, TestTrace, Thread};

    /// Steps of a kernel, a wait for it, and something else of the host; the GPU's times are known.
    fn after_waits(kernel_ns: i64, then: &dyn Fn(&mut Thread<'_>)) -> Section {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..40 {
            let step = thread.range_begin();
            let end = thread.launch_running("k", 5_000, 7, (thread.now + 6_000, kernel_ns));
            thread.sync("cuStreamSynchronize", "stream", end + 3_000 - thread.now);
            then(&mut thread);
            thread.range_end(None, "step", step, true);
        }
        trace.section(ALL[0])
    }

    #[test]
    fn a_program_that_sleeps_or_reads_after_its_wait_is_not_bound_by_the_gpu() {
        let asleep = after_waits(400_000, &|t| t.system_wait("clock_nanosleep", "sleep", 9_600_000));
        let text = asleep.literal.as_deref().unwrap_or_default();
        assert_eq!(asleep.get("verdict"), &Value::from("HOST BOUND"), "{text}");
        assert!(
            text.contains("GPU idle 94 % of a step, 90 % while the host waits for data, locks or threads"),
            "{text}"
        );
        assert_eq!(found(&asleep)[0], ("system-waits".to_owned(), 9_600), "{text}");
        assert!(text.contains("\n 1 GPU operation, median kernel 400 us; 1 wait\n"), "{text}");
        assert!(evidence(&asleep).contains("clock_nanosleep 1 a step, 9.60 ms each"), "{}", evidence(&asleep));

        // The same time at work of its own, and most of it so.
        let works = after_waits(400_000, &|t| t.host(9_600_000));
        assert_eq!(found(&works)[0].0, "host-work", "{:?}", works.literal);
        let both = after_waits(400_000, &|t| {
            t.system_wait("read", "file", 3_000_000);
            t.host(6_600_000);
        });
        let names: Vec<_> = found(&both).into_iter().take(2).collect();
        assert_eq!(names, [("host-work".to_owned(), 6_040), ("system-waits".to_owned(), 3_000)], "{:?}", both.literal);

        // A GPU that works nearly all the time is the limit, whatever the host does in the rest.
        let busy = after_waits(9_000_000, &|t| t.system_wait("clock_nanosleep", "sleep", 600_000));
        assert_eq!(busy.get("verdict"), &Value::from("GPU BOUND"), "{:?}", busy.literal);
    }

    #[test]
    fn a_run_without_steps_whose_gpu_came_late_is_not_called_healthy() {
        let after = |begin_ns: i64| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000_000);
            let mut thread = trace.thread(1, 11);
            thread.other("cuDeviceGet", "api", 1_000);
            thread.host(begin_ns);
            let mut end = thread.now + 50_000;
            for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"] {
                end = thread.launch_running(name, 1_000, 7, (end, 200_000));
            }
            thread.sync("cuStreamSynchronize", "stream", end + 4_000 - thread.now);
            trace.section(ALL[0])
        };
        let late = after(8_000_000);
        let text = late.literal.clone().unwrap_or_default();
        assert_eq!(late.get("verdict"), &Value::from("UNKNOWN"), "{text}");
        assert!(text.contains("UNKNOWN: GPU busy 23 % of a run without steps"), "{text}");
        assert_eq!(after(100_000).get("verdict"), &Value::from("HEALTHY"));
    }

    #[test]
    fn a_wait_in_each_step_is_the_verdict_as_it_is_the_finding() {
        // The host is told late of the end, and the GPU of its work: 25 us of each step.
        let of = |kernel_ns: i64| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000_000);
            let mut thread = trace.thread(1, 11);
            for _ in 0..40 {
                let step = thread.range_begin();
                let end = thread.launch_running("k", 5_000, 7, (thread.now + 15_000, kernel_ns));
                thread.sync("cuStreamSynchronize", "stream", end + 10_000 - thread.now);
                thread.range_end(None, "step", step, true);
            }
            let section = trace.section(ALL[0]);
            let (names, text) = (found(&section), section.literal.clone().unwrap_or_default());
            assert_eq!(names.len(), 1, "{text}");
            assert_eq!(names[0].0, "wait-every-step", "{text}");
            assert!((20..=26).contains(&names[0].1), "{text}");
            section.get("verdict").clone()
        };
        assert_eq!([20_000, 100_000].map(of), ["SYNC BOUND"; 2].map(Value::from));
        assert_eq!([300_000, 1_000_000].map(of), ["GPU BOUND"; 2].map(Value::from));
    }

    #[test]
    fn allocations_after_a_wait_are_found_too() {
        let churn = |allocate_ns: i64, free_ns: i64| {
            after_waits(400_000, &move |t| {
                t.free("cuMemFree_v2", "device", 64, free_ns);
                t.alloc("cuMemAlloc_v2", "device", 64, 1 << 20, allocate_ns);
            })
        };
        let section = churn(90_000, 60_000);
        let (_, gain) = found(&section).into_iter().find(|(name, _)| name == "allocation-in-loop").unwrap_or_default();
        // As far as the replayed run is shorter without them.
        assert!((145..=150).contains(&gain), "{:?}", section.literal);
        // Less than 2 % of a step.
        let section = churn(5_000, 2_000);
        assert!(found(&section).iter().all(|(name, _)| name != "allocation-in-loop"), "{:?}", section.literal);
    }

    #[test]
    fn a_gpu_that_mostly_idles_for_many_reasons_is_not_the_limit() {
        type Do = fn(&mut Thread<'_>);
        let reasons: [Do; 6] = [
            |t| t.host(80_000),
            |t| t.alloc("cuMemAlloc_v2", "device", 1, 1 << 20, 80_000),
            |t| t.other("cuModuleLoadData", "module", 80_000),
            |t| t.collective("ncclAllReduce", "all_reduce", 1, 8, false, 80_000),
            |t| t.system_wait("read", "file", 80_000),
            |t| t.copy("HtoD", ("pinned", "device"), true, 8, 80_000),
        ];
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..40 {
            let step = thread.range_begin();
            for reason in reasons {
                let end = thread.launch_running("k", 5_000, 7, (thread.now + 6_000, 80_000));
                thread.host(end - thread.now);
                reason(&mut thread);
            }
            thread.range_end(None, "step", step, true);
        }
        let section = trace.section(ALL[0]);
        let text = section.literal.as_deref().unwrap_or_default();
        assert!(!found(&section).is_empty(), "{text}");
        let verdict =
            "UNKNOWN: GPU idle 52 % of a step, for reasons of less than 10 % each: see gpu-gaps, critical-path";
        assert!(text.contains(verdict), "{text}");
    }
}
