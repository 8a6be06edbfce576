//! Names of ranges that mean a step: those of frameworks, and what programs call it.
//!
//! The target looks at them where recording is switched by steps, the collector and reports where they count steps.

/// Names of steps without their numbers; the first of these that a process has is taken.
const NAMES: [&[u8]; 7] = [b"profilerstep", b"step", b"train step", b"training step", b"iteration", b"iter", b"batch"];

/// The place of a range's name among those that mean a step; none: it means none. Numbers at its end, capitals and what stands between
/// words do not matter, nor does what follows a comma: PyTorch's emit_nvtx appends `, op_id = 12`.
pub fn rank(name: &[u8]) -> Option<usize> {
    let name = name.split(|byte| *byte == b',').next().unwrap_or_default();
    let is_end = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_whitespace() || b"#:_-=.[]()".contains(byte);
    let length = name.iter().rposition(|byte| !is_end(byte)).map_or(0, |last| last + 1);
    let name = name.get(..length).unwrap_or_default();
    NAMES.iter().position(|known| same(name, known))
}

/// Whether a name is a known one, but for capitals and for what stands between its words.
fn same(name: &[u8], known: &[u8]) -> bool {
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || b"_-".contains(byte);
    let words = |text| <[u8]>::split(text, is_between).filter(|word| !word.is_empty());
    let mut known = words(known);
    words(name).all(|word| known.next().is_some_and(|known| word.eq_ignore_ascii_case(known))) && known.next().is_none()
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
        assert_eq!(
            all.map(|name| rank(name.as_bytes())),
            [Some(0), Some(1), Some(1), Some(2), Some(3), Some(4), Some(6)]
        );
        let others = ["Optimizer.step#SGD.step", "stepper", "12", "", "train", "train step forward", ", step"];
        assert_eq!(others.map(|name| rank(name.as_bytes())), [None; 7]);
    }
}
