//! What tells stacks of one line apart: the frames at which their ways to it part.
//!
//! Stacks of the same process and line are laid beside each other from the innermost frame on. Where they are not the same in a
//! frame, each has that frame in its text, and those that still are the same go on; so a text has few frames, and no two
//! stacks the same text. Commas stand between them: what stands behind a `<` goes first where a name is shortened.

use rustc_hash::FxHashMap;

use super::Facts;
use super::by_stack::OfStack;
use crate::trace::{Frame, Site};

/// Stands for the frame of a stack that ends where others go on.
const ENDS: &str = "(no further frame)";

/// The number of a row, and its frames from the innermost on.
type Stack = (usize, Vec<Frame>);

/// Of each row the frames at which it parts from other rows of its process and line; none where it is the only one.
pub(super) fn ways(facts: &Facts<'_>, rows: &[OfStack<'_>]) -> Vec<Option<String>> {
    let mut lines: FxHashMap<(i64, Option<String>), Vec<usize>> = FxHashMap::default();
    for (row, of) in rows.iter().enumerate() {
        lines.entry((of.process_id, of.site(facts).map(Site::short))).or_default().push(row);
    }
    let mut ways = vec![Vec::new(); rows.len()];
    for same in lines.into_values().filter(|same| same.len() > 1) {
        let stacks = same.iter().map(|row| (*row, facts.stacks.frames(rows[*row].stack_id).collect())).collect();
        part(stacks, &mut ways);
    }
    ways.into_iter().map(|way| (!way.is_empty()).then(|| way.join(", "))).collect()
}

/// Adds to the way of each stack the frames at which it parts from the others.
fn part(stacks: Vec<Stack>, ways: &mut [Vec<String>]) {
    let mut together = vec![(0, stacks)];
    while let Some((depth, stacks)) = together.pop() {
        let mut by_frame: Vec<(Option<Frame>, Vec<Stack>)> = Vec::new();
        for (row, frames) in stacks {
            let frame = frames.get(depth).cloned();
            match by_frame.iter_mut().find(|(known, _)| *known == frame) {
                Some((_, others)) => others.push((row, frames)),
                None => by_frame.push((frame, vec![(row, frames)])),
            }
        }
        let parts = by_frame.len() > 1;
        for (frame, stacks) in by_frame {
            if parts {
                let text = frame.as_ref().map_or_else(|| ENDS.to_owned(), Frame::short);
                stacks.iter().for_each(|(row, _)| ways[*row].push(text.clone()));
            }
            if frame.is_some() && stacks.len() > 1 {
                together.push((depth + 1, stacks));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_told_apart_by_the_frames_at_which_they_part() {
        let frame =
            |line: i32| Frame { function: "f".into(), file: "/u/a.py".into(), line: Some(line), ..Frame::default() };
        let all: Vec<Frame> = (0..9).map(frame).collect();
        let stacks: [&[usize]; 5] = [&[0, 1, 2, 5], &[0, 1, 2, 6], &[0, 3, 2, 5], &[0, 1, 2], &[0, 1, 2]];
        let mut ways = vec![Vec::new(); stacks.len()];
        let of = |(row, lines): (usize, &&[usize])| (row, lines.iter().map(|line| all[*line].clone()).collect());
        part(stacks.iter().enumerate().map(of).collect(), &mut ways);
        let ways: Vec<String> = ways.iter().map(|way| way.join(", ")).collect();
        assert_eq!(ways[..3], ["a.py:1 f, a.py:5 f", "a.py:1 f, a.py:6 f", "a.py:3 f"]);
        // Two that are the same in all of their frames are told apart by their ids alone.
        assert_eq!(ways[3..], ["a.py:1 f, (no further frame)", "a.py:1 f, (no further frame)"]);
    }
}
