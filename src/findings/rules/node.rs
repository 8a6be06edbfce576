//! Rules about what no usual step shows: nodes that hold their GPUs back, and calls that hang.

use super::rule::{Effort, Rule, Title};
use crate::analysis::{hung, node_faults as faults, node_is_known};
use crate::findings::{Evidence, Subject};

pub(super) const NODE_FAULTS: Rule = Rule {
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
};

fn node_faults(s: &Subject<'_>) -> Option<Evidence> {
    let lines = faults(s.facts, s.process_id);
    (!lines.is_empty()).then_some(Evidence { gain_ns: 0.0, of_run: false, lines })
}

pub(super) const HANG: Rule = Rule {
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
};

fn hangs(s: &Subject<'_>) -> Option<Evidence> {
    let (gain_ns, lines) = hung(s.facts, s.process_id)?;
    Some(Evidence { gain_ns, of_run: true, lines })
}
