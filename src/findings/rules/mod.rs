//! The rules: what is looked at, when it is a finding, what to do.
//!
//! Each stands in the file of its theme, beside the function that looks. Where the trace has GPU times no gain is larger than what the
//! run replayed without the rule's class of work would gain.

mod copies;
mod gpu;
mod host;
mod launching;
mod lines;
mod memory;
mod node;
mod outliers;
mod ranks;
mod rule;
mod streams;
#[cfg(test)]
mod tests;
mod waits;

pub(crate) use lines::worst_site;
pub(crate) use ranks::IMBALANCE;
pub(crate) use rule::Rule;

/// Every rule, by name.
pub(crate) const ALL: &[Rule] = &[
    memory::ALLOCATION_IN_LOOP,
    launching::EXPOSED_COMMUNICATION,
    copies::EXPOSED_COPIES,
    gpu::GPU_ERRORS,
    node::HANG,
    waits::HIDDEN_WAITS,
    host::HOST_MEMORY_GROWTH,
    launching::HOST_WORK,
    gpu::IDLE_GPU,
    ranks::RANKS,
    launching::LAUNCH_BOUND,
    gpu::LAYOUT_KERNELS,
    host::MALLOC_TIME,
    node::NODE_FAULTS,
    outliers::OUTLIER_STEPS,
    copies::PAGEABLE_COPIES,
    streams::SERIALISED_STREAMS,
    copies::SMALL_TRANSFERS,
    copies::SYNC_COPIES,
    waits::SYSTEM_WAITS,
    waits::WAIT_EVERY_STEP,
    memory::WARM_UP,
];
