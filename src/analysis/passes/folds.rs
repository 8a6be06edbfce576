//! Names that differ in numbers only: `step 17` and `step 18` are one thing that a program counts, `step *`.
//!
//! A number that stands alone (between spaces, `_`, `-`, `#`, brackets and the like) is a star in a name's **pattern**; one
//! inside a word or beside a dot (`conv2`, `layer.3`) is part of the name. Names of one pattern are folded where each of
//! them occurs [`TIMES`] times or less on average, and there are [`FEWEST`]: they count something. Where each recurs, as
//! `layer_3` does in every step, they are different things. Where there are more than [`MANY`] nobody reads them one by
//! one, and they are folded whatever they are; then numbers inside words are stars too, where that leaves as many.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use crate::trace::{Filter, Trace, Want};

/// Fewer names are shown one by one.
pub(crate) const FEWEST: usize = 3;
/// Names that count something occur so often, on average.
pub(crate) const TIMES: u64 = 2;
/// More names are folded in any case.
pub(crate) const MANY: usize = 100;
/// Patterns, and names with numbers, that are known before the read.
const MOST_PATTERNS: usize = 100_000;
const MOST_NAMES: usize = 4_000_000;

/// The patterns of more than [`MANY`] names in a trace: known before the ranges are read, since so many names are not
/// counted one by one.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    by_name: FxHashMap<i64, u32>,
    patterns: Vec<(String, usize)>,
}

impl Folds {
    /// Reads the names of a trace's ranges.
    pub(crate) fn read(trace: &Trace) -> Folds {
        let mut kinds = [Patterns::default(), Patterns::default()];
        let mut names: Vec<(i64, [u32; 2])> = Vec::new();
        let want = [Want { table: TableId::Names, columns: &["name_id", "kind", "name"] }];
        trace.scan(&want, &Filter::default(), &mut |rows| {
            let (ids, kind, texts) = (rows.i64("name_id"), rows.texts("kind"), rows.texts("name"));
            for row in (0..rows.len).filter(|row| kind.get(*row) == "range") {
                let name = texts.get(row);
                if names.len() >= MOST_NAMES || !name.bytes().any(|byte| byte.is_ascii_digit()) {
                    continue;
                }
                let number = [pattern(name, false), pattern(name, true)];
                let mut numbers = kinds.iter_mut().zip(number).map(|(kind, pattern)| kind.number(pattern));
                if let (Some(Some(alone)), Some(Some(any))) = (numbers.next(), numbers.next()) {
                    names.push((ids[row], [alone, any]));
                }
            }
        });
        // Several launchers may have written one name.
        names.sort_unstable();
        names.dedup_by_key(|(id, _)| *id);
        for (_, numbers) in &names {
            kinds.iter_mut().zip(numbers).for_each(|(kind, number)| kind.all[*number as usize].1 += 1);
        }
        let mut folds = Folds::default();
        let [alone, any] = kinds;
        let offset = alone.all.len() as u32;
        for (id, [first, second]) in names {
            let many = |kind: &Patterns, number: u32| kind.all[number as usize].1 > MANY;
            if many(&alone, first) {
                folds.by_name.insert(id, first);
            } else if many(&any, second) {
                folds.by_name.insert(id, offset + second);
            }
        }
        folds.patterns = alone.all.into_iter().chain(any.all).collect();
        folds
    }

    /// The pattern of a name that is one of many.
    #[inline]
    pub(crate) fn of(&self, name_id: i64) -> Option<u32> {
        self.by_name.get(&name_id).copied()
    }

    /// A pattern, and how many names of the trace have it.
    pub(crate) fn pattern(&self, number: u32) -> (&str, usize) {
        self.patterns.get(number as usize).map_or(("", 0), |(text, count)| (text, *count))
    }
}

/// Patterns by number, with how many names have each.
#[derive(Debug, Default)]
struct Patterns {
    numbers: FxHashMap<String, u32>,
    all: Vec<(String, usize)>,
}

impl Patterns {
    fn number(&mut self, pattern: String) -> Option<u32> {
        if let Some(number) = self.numbers.get(&pattern) {
            return Some(*number);
        }
        if self.all.len() >= MOST_PATTERNS {
            return None;
        }
        let number = self.all.len() as u32;
        self.numbers.insert(pattern.clone(), number);
        self.all.push((pattern, 0));
        Some(number)
    }
}

/// A name with a star for each number that stands alone, or with `anywhere` for each number.
pub(crate) fn pattern(name: &str, anywhere: bool) -> String {
    let part_of_name = |c: char| !anywhere && (c.is_alphanumeric() || c == '.');
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(begin) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(begin);
        let length = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (number, after) = number.split_at(length);
        out.push_str(before);
        let stays = out.chars().next_back().is_some_and(part_of_name) || after.chars().next().is_some_and(part_of_name);
        out.push_str(if stays { number } else { "*" });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_stands_alone_is_a_star() {
        let alone = [
            ("step 17", "step *"),
            ("iter_0042", "iter_*"),
            ("forward #3", "forward #*"),
            ("ProfilerStep#12, op_id = 345", "ProfilerStep#*, op_id = *"),
            ("epoch 3/100 [7]", "epoch */* [*]"),
            ("17", "*"),
            ("layer1.conv2", "layer1.conv2"),
            ("model.layers.12.attn", "model.layers.12.attn"),
            ("lr=0.001", "lr=0.001"),
            ("conv2d", "conv2d"),
            ("schritt7größe8", "schritt7größe8"),
            ("none", "none"),
        ];
        for (name, expected) in alone {
            assert_eq!(pattern(name, false), expected);
        }
        assert_eq!(pattern("layer1.conv2 of step 5", true), "layer*.conv* of step *");
    }
}
