//! Stacks of foreign formats: each frame, and each stack that a row has, is kept once.

use std::num::NonZeroU32;

use gputrace_collectors::archive::StackRow;

use super::known::Known;

/// Frames of a stack that are kept, from the innermost on.
const DEEPEST: usize = 128;

/// The stacks that were found.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    frames: Known<StackRow>,
    /// Frames from the innermost on, and whether there were more.
    stacks: Known<(Box<[u32]>, bool)>,
}

impl Stacks {
    /// The number of a frame.
    pub(crate) fn frame(&mut self, frame: StackRow) -> u32 {
        self.frames.number(frame)
    }

    /// The number of a stack of such frames, the innermost first, from 1 on; none where there are none.
    pub(crate) fn stack(&mut self, frames: &[u32]) -> Option<NonZeroU32> {
        let kept: Box<[u32]> = frames.iter().take(DEEPEST).copied().collect();
        let cut = kept.len() < frames.len();
        if kept.is_empty() { None } else { NonZeroU32::new(self.stacks.number((kept, cut)) + 1) }
    }

    /// The rows of each stack, in the order of their numbers.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<StackRow>> {
        self.stacks.all().map(|(frames, cut)| {
            let mut rows: Vec<StackRow> = frames.iter().map(|at| self.frames.get(*at).clone()).collect();
            if let Some(outermost) = rows.last_mut() {
                outermost.cut = *cut;
            }
            rows
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(line: i32) -> StackRow {
        StackRow { language: "python", line: Some(line), ..StackRow::default() }
    }

    #[test]
    fn the_same_stack_is_kept_once_and_a_deep_one_loses_its_outermost_frames() {
        let mut stacks = Stacks::default();
        let [inner, outer] = [1, 2].map(|line| stacks.frame(frame(line)));
        assert_eq!(stacks.frame(frame(1)), inner);
        assert_eq!(stacks.stack(&[inner, outer]), stacks.stack(&[inner, outer]));
        assert_eq!(stacks.stack(&[]), None);
        let deep: Vec<u32> = (0..200).map(|line| stacks.frame(frame(line))).collect();
        stacks.stack(&deep);
        let rows: Vec<Vec<StackRow>> = stacks.rows().collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(
            rows[0].iter().map(|row| (row.line, row.cut)).collect::<Vec<_>>(),
            [(Some(1), false), (Some(2), false)]
        );
        assert_eq!((rows[1].len(), rows[1][127].line, rows[1][127].cut), (128, Some(127), true));
    }
}
