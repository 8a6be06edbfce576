//! Names of ranges that mean a step: those of frameworks, and what programs call it.

/// Names of steps without their numbers; the first of these that a process has is taken.
const NAMES: [&str; 7] = ["profilerstep", "step", "train step", "training step", "iteration", "iter", "batch"];

/// The place of a range's name among those that mean a step; none: it means none.
pub fn rank(name: &str) -> Option<usize> {
    let base = base(name);
    NAMES.iter().position(|known| *known == base)
}

/// A name without the number at its end, in small letters, with single spaces between words. PyTorch's emit_nvtx appends
/// `, op_id = 12`, so what follows a comma does not count.
pub fn base(name: &str) -> String {
    let name = name.split(',').next().unwrap_or(name);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c.is_whitespace() || "#:_-=.[](),".contains(c));
    let words = name.split(|c: char| c.is_whitespace() || "_-".contains(c)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_spelling_do_not_matter() {
        let all = [
            "ProfilerStep#12, op_id = 345",
            "step",
            "Step 3",
            "train_step",
            "Training-Step: 17",
            "iteration=5",
            "batch[4]",
        ];
        let found = all.map(rank);
        assert_eq!(found, [Some(0), Some(1), Some(1), Some(2), Some(3), Some(4), Some(6)]);
        assert_eq!(
            ["Optimizer.step#SGD.step", "stepper", "12", ""].map(base),
            ["optimizer.step#sgd.step", "stepper", "", ""]
        );
    }
}
