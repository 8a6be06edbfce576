//! Names of ranges that mean a step, and names without their numbers.

/// The place of a range's name among those that mean a step; none: it means none.
pub fn rank(name: &str) -> Option<usize> {
    gputrace_abi::steps::rank(name.as_bytes())
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
        assert_eq!(
            ["Optimizer.step#SGD.step", "stepper", "12", "", "ProfilerStep#12, op_id = 345", "Training-Step: 17"]
                .map(base),
            ["optimizer.step#sgd.step", "stepper", "", "", "profilerstep", "training step"]
        );
        assert_eq!((rank("ProfilerStep#12"), rank("stepper")), (Some(0), None));
    }
}
