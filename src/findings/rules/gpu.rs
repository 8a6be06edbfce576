//! Rules about what a GPU is given: next to nothing, kernels that compute nothing, or what it gives up.

use super::rule::{Effort, Rule, Title};
use crate::analysis::layout_ns;
use crate::findings::{Evidence, Subject};
use crate::render::{counted, number, share};
use crate::trace::shortened;

/// Of the time of all kernels; users' guides say so.
const LAYOUTS: f64 = 0.05;
/// Lines of evidence.
const LINES: usize = 3;

pub(super) const GPU_ERRORS: Rule = Rule {
    name: "gpu-errors",
    verdict: Some("GPU ERRORS"),
    title: Title::new("work that the GPU gave up"),
    about: "GPU errors",
    condition: "Metal command buffers ended in an error: what they were to compute is missing. Gain not known.",
    advice: "ask command buffers for their status and error",
    on_metal: Some("ask each for its error; try MTL_SHADER_VALIDATION=1; did the device go away?"),
    without: &[],
    all_of_it: false,
    gain_known: false,
    effort: Effort::Medium,
    // That nothing failed is not worth a word.
    recorded: |_| false,
    evaluate: gpu_errors,
};

fn gpu_errors(s: &Subject<'_>) -> Option<Evidence> {
    let own = s.facts.metal.processes.get(&s.process_id).filter(|own| own.errors > 0)?;
    let all = counted(own.count as f64, "command buffer", "command buffers");
    let line = format!("{} of {all} ended in an error", number(own.errors as f64));
    Some(Evidence { gain_ns: 0.0, of_run: true, lines: vec![line] })
}

pub(super) const IDLE_GPU: Rule = Rule {
    name: "idle-gpu",
    verdict: Some("IDLE GPU"),
    title: Title::new("a GPU that has next to nothing to do"),
    about: "idle GPUs",
    condition: "Of the GPUs that a process gives work, one is busy for less than 10 % of a step, where another one is for 20 % and more, \
        and five times as long. What sharing the work out would gain is not in the trace: gain not known. Needs GPU times.",
    advice: "give each GPU its part (one process a GPU: torchrun, DistributedDataParallel), or leave it to others: \
        CUDA_VISIBLE_DEVICES; look for tensors on the wrong device",
    on_metal: None,
    without: &[],
    all_of_it: false,
    gain_known: false,
    effort: Effort::Medium,
    recorded: |s| s.on_gpu.as_ref().is_some_and(|gpu| gpu.each.len() > 1),
    evaluate: idle_gpu,
};

fn idle_gpu(s: &Subject<'_>) -> Option<Evidence> {
    let (most, idle) = s.on_gpu.as_ref()?.idle_beside(s.unit_ns)?;
    let busy = |ns: f64| share(ns / s.unit_ns.max(1.0));
    let line = |name: &str, ns: f64| {
        format!("GPU {name} busy {} of a {}, GPU {} {}", busy(ns), s.unit(), most.name, busy(most.busy_ns))
    };
    let lines = idle.iter().take(LINES).map(|each| line(&each.name, each.busy_ns)).collect();
    Some(Evidence { gain_ns: 0.0, of_run: false, lines })
}

/// Whether there is any such kernel, of which nobody need be told that it is fine.
fn has_layout_kernels(s: &Subject<'_>) -> bool {
    s.on_gpu.is_some() && layout_ns(s.facts).is_some_and(|(kernels, _)| !kernels.is_empty())
}

pub(super) const LAYOUT_KERNELS: Rule = Rule {
    name: "layout-kernels",
    verdict: Some("GPU BOUND"),
    title: Title::new("kernels that only copy or change layouts"),
    about: "layouts",
    condition: "Kernels whose names say that they only copy elements or turn one layout of tensors into another (direct_copy, nchwToNhwc, \
        nhwcToNchw) take 5 % of the time of all kernels or more. Gain: at most that share of the GPU's computing in a step. Needs GPU \
        times.",
    advice: "keep one layout from input to output: memory_format=torch.channels_last for model and inputs, no contiguous(), permute or \
        cast between layers; torch.compile fuses what remains",
    on_metal: None,
    without: &[],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Medium,
    recorded: has_layout_kernels,
    evaluate: layout_kernels,
};

fn layout_kernels(s: &Subject<'_>) -> Option<Evidence> {
    let gpu = s.on_gpu.as_ref()?;
    let (kernels, all_ns) = layout_ns(s.facts)?;
    let of_all = |ns: i64| ns as f64 / all_ns as f64;
    let layouts = of_all(kernels.iter().map(|(_, ns)| ns).sum());
    if layouts < LAYOUTS {
        return None;
    }
    let line =
        |(name, ns): &(String, i64)| format!("{} of the kernels' time  {}", share(of_all(*ns)), shortened(name, 60));
    let lines = kernels.iter().take(LINES).map(line).collect();
    Some(Evidence { gain_ns: layouts * gpu.compute_ns, of_run: false, lines })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::analysis::{ALL, Value};
    use crate::findings::tests::found;
    use crate::trace::testing::{START, TestTrace};
    use gputrace_collectors::schema::TableId;

    #[test]
    fn work_that_the_gpu_gave_up_is_the_verdict_whatever_else_there_is() {
        for busy_ns in [20_000, 2_000_000] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000_000);
            let mut thread = trace.thread(1, 11);
            for _ in 0..40 {
                let begin = thread.now + 15_000;
                thread.commit(&[("gemm", 100_000)], 1_000, 5_000, (begin, busy_ns));
                thread.sync("[MTLCommandBuffer waitUntilCompleted]", "stream", begin + busy_ns + 300_000 - thread.now);
            }
            trace.set(TableId::CommandBuffers, "status", &json!("error"));
            let section = trace.section(ALL[0]);
            let text = section.literal.clone().unwrap_or_default();
            assert_eq!(section.get("verdict"), &Value::from("GPU ERRORS"), "{text}");
            assert!(text.contains("GPU ERRORS: 40 of 40 command buffers ended in an error\n"), "{text}");
            assert_eq!(found(&section)[0].0, "gpu-errors", "{text}");
        }
    }
}
