//! Which kernel of one trace is which of another: by name, and of those renamed by their launch pattern.
//!
//! A compiler or a library may name a kernel anew though it does the same. One kernel of each trace that only that trace has
//! are taken for one when they have the same grid and block and are launched equally often in a step, and either no other
//! kernels have that shape and number, or what is launched before or after them is the same. What is left then is matched in
//! the order of its first launches, if all of it fits.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::samples::Kernel;
use crate::analysis::{Section, Value};

/// A kernel of both traces, or of one.
pub(super) struct Pair<'a> {
    /// Before.
    pub(super) before: Option<&'a Kernel>,
    /// After.
    pub(super) after: Option<&'a Kernel>,
}

/// What renamed kernels are called after, by their name before, for tables that know them by name only.
pub(super) fn renamed_names(before: &[Kernel], after: &[Kernel]) -> FxHashMap<String, String> {
    let both = pairs(before, after).into_iter().filter_map(|pair| Some((&pair.before?.name, &pair.after?.name)));
    both.filter(|(old, new)| old != new).map(|(old, new)| (old.clone(), new.clone())).collect()
}

/// Gives the kernels of a section these names.
pub(super) fn rename(section: &mut Section, names: &FxHashMap<String, String>) {
    for table in &mut section.tables {
        let Some(at) = table.columns.iter().position(|column| column.key == COLUMN) else { continue };
        for row in &mut table.rows {
            let Value::Text(text) = &row[at] else { continue };
            if let Some(name) = names.get(text.as_str()) {
                row[at] = Value::from(name.clone());
            }
        }
    }
}

/// The column that names a kernel.
const COLUMN: &str = "kernel";

/// Each match may tell more neighbours apart; so often it is tried.
const ROUNDS: usize = 10;

/// All kernels of two traces, in the order of the first and then of the second.
pub(super) fn pairs<'a>(before: &'a [Kernel], after: &'a [Kernel]) -> Vec<Pair<'a>> {
    let new: FxHashMap<&str, usize> = after.iter().enumerate().map(|(i, kernel)| (kernel.name.as_str(), i)).collect();
    let mut other: Vec<Option<usize>> = before.iter().map(|kernel| new.get(kernel.name.as_str()).copied()).collect();
    for _ in 0..ROUNDS {
        if !renamed(before, after, &mut other) {
            break;
        }
    }
    in_order(before, after, &mut other);
    let mut taken = vec![false; after.len()];
    let mut pairs = Vec::new();
    for (kernel, other) in before.iter().zip(&other) {
        other.iter().for_each(|index| taken[*index] = true);
        pairs.push(Pair { before: Some(kernel), after: other.map(|index| &after[index]) });
    }
    let new = after.iter().zip(taken).filter(|(_, taken)| !taken);
    pairs.extend(new.map(|(kernel, _)| Pair { before: None, after: Some(kernel) }));
    pairs
}

/// Kernels of one pattern that have no counterpart yet: those of before, those of after.
type Alike = (Vec<usize>, Vec<usize>);

/// Matches what is certain now; whether anything was.
fn renamed(before: &[Kernel], after: &[Kernel], other: &mut [Option<usize>]) -> bool {
    let mut patterns: BTreeMap<Pattern, Alike> = BTreeMap::new();
    for (old, _) in other.iter().enumerate().filter(|(_, other)| other.is_none()) {
        patterns.entry(pattern(&before[old])).or_default().0.push(old);
    }
    let taken: FxHashSet<usize> = other.iter().flatten().copied().collect();
    for new in (0..after.len()).filter(|new| !taken.contains(new)) {
        patterns.entry(pattern(&after[new])).or_default().1.push(new);
    }
    let index: FxHashMap<&str, usize> =
        before.iter().enumerate().map(|(i, kernel)| (kernel.name.as_str(), i)).collect();
    let mut found = Vec::new();
    for (old, new) in patterns.values() {
        if let ([old], [new]) = (old.as_slice(), new.as_slice()) {
            found.push((*old, *new));
            continue;
        }
        let same = |own: &str, theirs: &str| {
            let now = index.get(own).and_then(|own| other[*own]);
            now.is_some_and(|now| after[now].name == theirs)
        };
        let near = |old: usize, new: usize| {
            let (own, theirs) = (&before[old].neighbours, &after[new].neighbours);
            same(&own.0, &theirs.0) || same(&own.1, &theirs.1)
        };
        for old in old {
            let mut candidates = new.iter().filter(|new| near(*old, **new));
            if let (Some(only), None) = (candidates.next(), candidates.next()) {
                found.push((*old, *only));
            }
        }
    }
    // Two that claim one are both uncertain.
    let claims = |new: usize| found.iter().filter(|(_, claimed)| *claimed == new).count();
    let certain: Vec<(usize, usize)> = found.iter().copied().filter(|(_, new)| claims(*new) == 1).collect();
    certain.iter().for_each(|(old, new)| other[*old] = Some(*new));
    !certain.is_empty()
}

/// Matches what is left by the order of the first launches, if all of it fits: where everything was renamed and has one
/// shape, nothing else tells. As many kernels in both, each with the pattern of its counterpart, and between the same two.
fn in_order(before: &[Kernel], after: &[Kernel], other: &mut [Option<usize>]) {
    let taken: FxHashSet<usize> = other.iter().flatten().copied().collect();
    let old: Vec<usize> = (0..before.len()).filter(|old| other[*old].is_none()).collect();
    let new: Vec<usize> = (0..after.len()).filter(|new| !taken.contains(new)).collect();
    if old.len() != new.len() {
        return;
    }
    let mut all = other.to_vec();
    old.iter().zip(&new).for_each(|(old, new)| all[*old] = Some(*new));
    let index: FxHashMap<&str, usize> =
        before.iter().enumerate().map(|(i, kernel)| (kernel.name.as_str(), i)).collect();
    let same = |own: &str, theirs: &str| match index.get(own).and_then(|own| all[*own]) {
        Some(now) => after[now].name == theirs,
        None => own == theirs,
    };
    let fits = |(old, new): (&usize, &usize)| {
        let (old, new) = (&before[*old], &after[*new]);
        let (own, theirs) = (&old.neighbours, &new.neighbours);
        let known = !own.0.is_empty() || !own.1.is_empty();
        known && pattern(old) == pattern(new) && same(&own.0, &theirs.0) && same(&own.1, &theirs.1)
    };
    if old.iter().zip(&new).all(fits) {
        other.copy_from_slice(&all);
    }
}

/// Grid and block, and how often in ten steps.
type Pattern = ([i32; 6], i64);

fn pattern(kernel: &Kernel) -> Pattern {
    let steps = kernel.count.len().max(1) as f64;
    (kernel.shape, (kernel.count.iter().sum::<f64>() / steps * 10.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, grid: i32, count: f64, neighbours: (&str, &str)) -> Kernel {
        Kernel {
            name: name.to_owned(),
            shape: [grid, 1, 1, 128, 1, 1],
            neighbours: (neighbours.0.to_owned(), neighbours.1.to_owned()),
            count: vec![count; 10],
            ..Kernel::default()
        }
    }

    fn matched(before: &[Kernel], after: &[Kernel]) -> Vec<(String, String)> {
        let name = |kernel: Option<&Kernel>| kernel.map_or("-".to_owned(), |kernel| kernel.name.clone());
        pairs(before, after).into_iter().map(|pair| (name(pair.before), name(pair.after))).collect()
    }

    fn names(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn a_renamed_kernel_is_found_by_its_shape() {
        let before = [kernel("gemm", 8, 2.0, ("", "relu")), kernel("relu", 4, 2.0, ("gemm", "gemm"))];
        let after = [kernel("gemm_v2", 8, 2.0, ("", "relu")), kernel("relu", 4, 2.0, ("gemm_v2", "gemm_v2"))];
        assert_eq!(matched(&before, &after), names(&[("gemm", "gemm_v2"), ("relu", "relu")]));
        let other = [kernel("gemm_v2", 8, 3.0, ("", "relu")), after[1].clone()];
        assert_eq!(matched(&before, &other), names(&[("gemm", "-"), ("relu", "relu"), ("-", "gemm_v2")]));
    }

    #[test]
    fn of_several_of_one_shape_the_neighbours_tell_which() {
        let before = [kernel("a", 4, 1.0, ("", "x")), kernel("x", 8, 1.0, ("a", "b")), kernel("b", 4, 1.0, ("x", ""))];
        let after = [kernel("q", 4, 1.0, ("x", "")), kernel("x", 8, 1.0, ("p", "q")), kernel("p", 4, 1.0, ("", "x"))];
        assert_eq!(matched(&before, &after), names(&[("a", "p"), ("x", "x"), ("b", "q")]));
    }

    #[test]
    fn kernels_that_were_all_renamed_are_matched_in_their_order_if_all_fit() {
        let chain = |names: [&str; 3], shapes: [i32; 3]| -> Vec<Kernel> {
            let near = |i: usize| (names[(i + 2) % 3], names[(i + 1) % 3]);
            (0..3).map(|i| kernel(names[i], shapes[i], 1.0, near(i))).collect()
        };
        let before = chain(["a", "b", "c"], [4, 4, 4]);
        let after = chain(["p", "q", "r"], [4, 4, 4]);
        assert_eq!(matched(&before, &after), names(&[("a", "p"), ("b", "q"), ("c", "r")]));
        let other = chain(["p", "q", "r"], [4, 4, 9]);
        assert!(matched(&before, &other).iter().all(|(old, new)| old == "-" || new == "-"));
        assert!(matched(&before, &after[..2]).iter().all(|(old, new)| old == "-" || new == "-"));
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_matched() {
        let before = [kernel("a", 4, 1.0, ("", "")), kernel("b", 4, 1.0, ("", ""))];
        let after = [kernel("p", 4, 1.0, ("", "")), kernel("q", 4, 1.0, ("", ""))];
        assert_eq!(matched(&before, &after), names(&[("a", "-"), ("b", "-"), ("-", "p"), ("-", "q")]));
    }
}
