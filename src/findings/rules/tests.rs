//! The list of rules keeps its own.

use super::*;

#[test]
fn rules_are_sorted_and_complete() {
    assert!(ALL.windows(2).all(|w| w[0].name < w[1].name));
    for rule in ALL {
        let texts = [rule.title.of_step, rule.title.of_run, rule.about, rule.condition, rule.advice];
        for text in texts.into_iter().chain(rule.on_metal) {
            assert!(!text.is_empty(), "{}", rule.name);
        }
        // Who uses Metal is not told of the others' functions.
        let foreign = ["cu", "CUDA", "torch", "NCCL", "nvidia"];
        assert!(
            rule.on_metal.is_none_or(|text| {
                text.split(' ').all(|word| foreign.iter().all(|start| !word.starts_with(start)))
            })
        );
    }
}
