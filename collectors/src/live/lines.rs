//! What ids stand for: kernels' names and stacks' frames, kept as they are announced, once each, so that who looks later finds them.
//!
//! Bounded: so many of each, of a stack the innermost frames. What comes beyond that has no name here; the trace has it.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::snapshot::Frame;
use crate::tables::{StackRow, Stacked};

/// Names that are kept.
const MOST: usize = 4096;
/// Frames of all stacks.
const MOST_STACKED: usize = 1 << 16;
/// Bytes of a name: of templates the begin tells which it is.
const MOST_BYTES: usize = 512;
/// Frames of a stack.
const MOST_FRAMES: usize = 16;

/// Each stack by its id.
type Frames = FxHashMap<i64, Stacked>;

/// Native stacks with their symbols, which a thread of its own finds.
#[derive(Clone, Default)]
pub(crate) struct Resolved(Arc<Mutex<Frames>>);

impl Resolved {
    /// Stacks, as they come.
    pub(crate) fn tell(&self, stacks: impl IntoIterator<Item = Stacked>) {
        let mut frames = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stacks.into_iter().for_each(|stack| keep(&mut frames, stack));
    }
}

/// Names and frames.
#[derive(Default)]
pub(super) struct Lines {
    names: FxHashMap<i64, Box<str>>,
    stacks: Frames,
    pub(super) resolved: Resolved,
}

impl Lines {
    pub(super) fn name(&mut self, id: i64, name: &str) {
        if self.names.len() < MOST || self.names.contains_key(&id) {
            let end = name.floor_char_boundary(MOST_BYTES);
            self.names.insert(id, name[..end].into());
        }
    }

    pub(super) fn stack(&mut self, stack: Stacked) {
        keep(&mut self.stacks, stack);
    }

    pub(super) fn name_of(&self, id: i64) -> Option<String> {
        self.names.get(&id).map(|name| name.to_string())
    }

    /// A stack's frames; empty where they are not known.
    pub(super) fn frames_of(&self, id: i64) -> Vec<Frame> {
        let all = |frames: &Frames| {
            let (mut next, mut outer) = (Some(id), None);
            let stacks = std::iter::from_fn(|| {
                let stack = frames.get(&next?)?;
                outer = stack.joined.map(|joined| joined.outer).or(outer);
                next = stack.caller.or_else(|| outer.take());
                Some(frame(&stack.frame))
            });
            stacks.take(MOST_FRAMES).collect()
        };
        match self.stacks.contains_key(&id) {
            true => all(&self.stacks),
            false => all(&self.resolved.0.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

fn keep(frames: &mut Frames, stack: Stacked) {
    if frames.len() < MOST_STACKED || frames.contains_key(&stack.id) {
        frames.insert(stack.id, stack);
    }
}

fn frame(row: &StackRow) -> Frame {
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    Frame {
        python: row.language == "python",
        function: row.function.to_string(),
        file: text(&row.file),
        line: row.line,
        module: text(&row.module),
        offset: row.offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_stacks_without_end_are_not_kept_and_long_ones_are_cut() {
        let mut lines = Lines::default();
        let frame = StackRow { language: "python", line: Some(7), ..StackRow::default() };
        let stacked = |id: i64, caller: Option<i64>| Stacked { id, caller, joined: None, frame: frame.clone() };
        lines.name(0, &"\u{e4}".repeat(1000));
        // Each calls the next one.
        for id in 1..2 * MOST_STACKED as i64 {
            lines.name(id, "k");
            lines.stack(stacked(id, Some(id - 1).filter(|caller| *caller > 0)));
            lines.resolved.tell([stacked(-id, None)]);
        }
        assert_eq!(lines.name_of(0).map(|name| name.len()), Some(MOST_BYTES));
        assert_eq!((lines.name_of(3).as_deref(), lines.name_of(MOST as i64)), (Some("k"), None));
        assert_eq!([300, 3, -3].map(|id| lines.frames_of(id).len()), [MOST_FRAMES, 3, 1]);
        assert_eq!((lines.stacks.len(), lines.frames_of(2 * MOST_STACKED as i64 - 1).len()), (MOST_STACKED, 0));
        // What calls itself, as only a hostile process tells, has an end.
        lines.stack(stacked(3, Some(3)));
        assert_eq!(lines.frames_of(3).len(), MOST_FRAMES);
    }
}
