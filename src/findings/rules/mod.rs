//! The rules, a row each: what is looked at, when it is a finding, what to do.
//!
//! Where the trace has GPU times no gain is larger than what the run replayed without the rule's class of work would gain.

mod copies;
mod gpu;
mod host;
mod launching;
mod lines;
mod memory;
mod node;
mod outliers;
mod rule;
mod streams;
#[cfg(test)]
mod tests;
mod waits;

use super::Subject;
use crate::analysis::{Class, node_is_known};
use copies::{exposed_copies, pageable_copies, small_transfers, sync_copies};
use gpu::{gpu_errors, has_layout_kernels, idle_gpu, layout_kernels};
use host::{host_memory_growth, malloc_is_known, malloc_is_timed, malloc_time};
use launching::{exposed_communication, host_work, launch_bound};
pub(crate) use lines::worst_site;
use memory::{allocation_in_loop, warm_up};
use node::{hangs, node_faults};
use outliers::outlier_steps;
pub(crate) use rule::{Effort, Rule, Title};
use streams::serialised_streams;
use waits::{hidden_waits, system_waits, wait_every_step};

/// The rule about ranks that wait for each other.
pub(crate) const IMBALANCE: &str = "imbalance";

/// Every rule, by name.
pub(crate) const ALL: &[Rule] = &[
    Rule {
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
    },
    Rule {
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
        recorded: |s| {
            s.on_gpu.is_some() && s.facts.gpu.as_ref().is_some_and(|gpu| gpu.communication().next().is_some())
        },
        evaluate: exposed_communication,
    },
    Rule {
        name: "exposed-copies",
        verdict: Some("TRANSFER BOUND"),
        title: Title::new("copies of pinned memory that nothing runs beside"),
        about: "exposed copies",
        condition: "Asynchronous copies between the GPU and pinned memory of the host, which could run beside kernels, are all \
            that the GPU does for 5 % of a step or more: its time with copies alone, by the part that these are of the \
            copies' time and of the bytes between host and GPU. Gain: at most that time, and what the run replayed without \
            copies gains (--explain critical-path). Needs GPU times.",
        advice: "copy the next batch in a stream of its own while this one computes: torch.cuda.Stream, non_blocking=True, a \
            prefetcher, two buffers; keep on the GPU what is used again",
        on_metal: None,
        without: &[Class::Copy],
        all_of_it: false,
        gain_known: true,
        effort: Effort::Medium,
        recorded: |s| s.on_gpu.is_some(),
        evaluate: exposed_copies,
    },
    Rule {
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
    },
    Rule {
        name: "hang",
        verdict: Some("HANG"),
        title: Title::new("a call that hung"),
        about: "hangs",
        condition: "A driver or NCCL call stood still for longer than --hang-after, while nothing that it waits for was seen to go \
            on. Gain: at most the time of the longest such call.",
        advice: "read the report in the trace: all threads, streams, communicators; NCCL: which rank did not come, and where it is",
        on_metal: Some("read the report in the trace: all threads and what they wait for"),
        without: &[],
        all_of_it: false,
        gain_known: true,
        effort: Effort::Medium,
        // That no call took minutes is not worth a word.
        recorded: |_| false,
        evaluate: hangs,
    },
    Rule {
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
    },
    Rule {
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
    },
    Rule {
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
    },
    Rule {
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
    },
    Rule {
        name: IMBALANCE,
        verdict: Some("IMBALANCE"),
        title: Title::new("ranks wait for the latest one"),
        about: "imbalance",
        condition: "At collectives that several ranks have in common, in usual steps, half of the other ranks or more had begun \
            and the last one had not (clocks aligned: --explain ranks), for 2 % of a step or more. Named is the rank that kept the \
            others waiting longest, with what it does longer than the others do in the median. Gain: at most that waiting of all \
            collectives, each ns once, and what the rank that it costs most gains when replayed without NCCL's kernels; without \
            GPU times what its host waits longer for the GPU than the latest rank's.",
        advice: "even out the ranks' work (batches of equal length, files of equal size), or look at that rank's node: report \
            --only node-health, nvidia-smi -q -d PERFORMANCE",
        on_metal: None,
        without: &[],
        all_of_it: false,
        gain_known: true,
        effort: Effort::Medium,
        recorded: |s| s.facts.ranks.spread.count > 0 && s.facts.has_all_ranks(),
        evaluate: |s| s.imbalance.clone(),
    },
    Rule {
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
    },
    Rule {
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
    },
    Rule {
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
    },
    Rule {
        name: "node-faults",
        verdict: None,
        title: Title::new("the node holds its GPUs back"),
        about: "the node",
        condition: "A GPU's PCIe link has fewer lanes than it could have; the launcher may run only on processors of other NUMA nodes \
            than a GPU's; its quota of processors is below the number of the host's processes that give GPUs work, or was used up; or \
            counters say that clocks were throttled by hardware or heat, that memory or the GPU failed (ECC, Xid), that the link was slow \
            under load (--explain node-health). What it costs is not in the trace: gain not known.",
        advice: "compare with another node; lspci -vv, numactl --cpunodebind, the container's cpus; nvidia-smi -q -d PERFORMANCE,ECC \
            and dmesg tell more",
        on_metal: None,
        without: &[],
        all_of_it: false,
        gain_known: false,
        effort: Effort::Medium,
        recorded: |s| node_is_known(s.facts, s.process_id),
        evaluate: node_faults,
    },
    Rule {
        name: "outlier-steps",
        verdict: Some("OUTLIER STEPS"),
        title: Title::new("a few steps take far longer than the others"),
        about: "outlier steps",
        condition: "Steady steps of more than four times the median, or of more than twice where they come at even distances and are no \
            usual steps all the same (--explain steps), have 20 % or more of all steady steps' time beyond it, those at even distances 10 %, without the loading of code (warm-up). Other findings are about the usual step, and do not see \
            these. Causes are those of the table of outliers (--explain steps). Gain: at most that time, of the run.",
        advice: "see what they do more (report --only steps lists each, --steps N shows one): checkpoints, logs, validation, batches of \
            another size; do it less often, or beside the GPU's work",
        on_metal: Some(
            "see what they do more (report --only steps lists each, --steps N shows one); do it less often, or beside the GPU's work",
        ),
        without: &[],
        all_of_it: false,
        gain_known: true,
        effort: Effort::Medium,
        // That all steps are alike is said by their times.
        recorded: |_| false,
        evaluate: outlier_steps,
    },
    Rule {
        name: "pageable-copies",
        verdict: Some("TRANSFER BOUND"),
        title: Title::new("asynchronous copies of pageable memory"),
        about: "pageable copies",
        condition: "Asynchronous copies that touch pageable memory (rule cuda_memcpy_async) take 2 % or more, without what \
            they waited for earlier work. Gain: at most the time in the calls.",
        advice: "pin the host memory: DataLoader(pin_memory=True), cuMemHostAlloc, cuMemHostRegister",
        on_metal: None,
        without: &[Class::Copy],
        all_of_it: false,
        gain_known: true,
        effort: Effort::Low,
        recorded: always,
        evaluate: pageable_copies,
    },
    Rule {
        name: "serialised-streams",
        verdict: Some("GPU BOUND"),
        title: Title::new("streams that the default stream serialises"),
        about: "serialised streams",
        condition: "Work is queued behind another stream's in (nearly) every step, because one of the two is the legacy default stream \
            and the other is not CU_STREAM_NON_BLOCKING, and less than half of what the shorter streams do runs beside other work \
            (--explain streams). Gain: at most the time of all streams but the longest that nothing runs beside, as a share of the run, and \
            what the run replayed without that order gains (--explain critical-path); work that fills the GPU by itself gains less. Needs GPU times, and a recorded trace: imports do not tell of that rule.",
        advice: "give no work to the default stream: torch.cuda.Stream for all of it, cuStreamCreate(CU_STREAM_NON_BLOCKING), \
            nvcc --default-stream per-thread",
        on_metal: None,
        without: &[Class::Streams],
        all_of_it: false,
        gain_known: true,
        effort: Effort::Low,
        recorded: |s| s.on_gpu.is_some() && streams::rule_is_known(s),
        evaluate: serialised_streams,
    },
    Rule {
        name: "small-transfers",
        verdict: Some("TRANSFER BOUND"),
        title: Title::new("many small transfers"),
        about: "small transfers",
        condition: "At least 8 transfers a step (100 in a run) of less than 64 KiB, that no other rule names, take 2 % or \
            more. Gain: at most the time in all of them but one.",
        advice: "pack them into one buffer and copy once; keep small values on the GPU",
        on_metal: Some(
            "GPU and host have one memory: let kernels read shared buffers (storageModeShared) in place of small blits, pass small \
            values by setBytes, and pack the others into one buffer",
        ),
        without: &[Class::Copy],
        all_of_it: false,
        gain_known: true,
        effort: Effort::Medium,
        recorded: |s| s.facts.transfers.is_sized(Some(s.process_id)),
        evaluate: small_transfers,
    },
    Rule {
        name: "sync-copies",
        verdict: Some("TRANSFER BOUND"),
        title: Title::new("copies that block the host"),
        about: "synchronous copies",
        condition: "Synchronous copies and sets (rules cuda_memcpy_sync, cuda_memset_sync) take 2 % or more, without what \
            they waited for earlier work. Gain: at most the time in the calls, or the rest of the step, whichever is less: the copy itself remains.",
        advice: "copy asynchronously from pinned memory: tensor.to(device, non_blocking=True), cuMemcpyAsync",
        on_metal: None,
        without: &[Class::Copy],
        all_of_it: false,
        gain_known: true,
        effort: Effort::Low,
        recorded: always,
        evaluate: sync_copies,
    },
    Rule {
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
    },
    Rule {
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
            flight; read the loss every 100 steps",
        ),
        without: &[Class::Wait],
        all_of_it: true,
        gain_known: true,
        effort: Effort::Low,
        recorded: always,
        evaluate: wait_every_step,
    },
    Rule {
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
    },
];

fn always(_: &Subject<'_>) -> bool {
    true
}
