//! The rule about ranks that wait for each other.

use super::rule::{Effort, Rule, Title};

/// Its name.
pub(crate) const IMBALANCE: &str = "imbalance";

pub(super) const RANKS: Rule = Rule {
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
};
