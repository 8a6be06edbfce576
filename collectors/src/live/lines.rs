//! What ids stand for: kernels' names and stacks' frames, kept as they are announced, once each, so that who looks later finds them.
//!
//! Bounded: so many of each, of a stack its innermost frames. What comes beyond that has no name here; the trace has it.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::snapshot::Frame;
use crate::tables::StackRow;

/// Names, and stacks, that are kept.
const MOST: usize = 4096;
/// Bytes of a name: of templates the begin tells which it is.
const MOST_BYTES: usize = 512;
/// Frames of a stack.
const MOST_FRAMES: usize = 16;

type Frames = FxHashMap<i64, Box<[StackRow]>>;

/// Native stacks with their symbols, which a thread of its own finds.
#[derive(Clone, Default)]
pub(crate) struct Resolved(Arc<Mutex<Frames>>);

impl Resolved {
    /// A stack's frames, innermost first.
    pub(crate) fn tell(&self, id: i64, rows: &[StackRow]) {
        keep(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), id, rows);
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

    pub(super) fn stack(&mut self, id: i64, rows: &[StackRow]) {
        keep(&mut self.stacks, id, rows);
    }

    pub(super) fn name_of(&self, id: i64) -> Option<String> {
        self.names.get(&id).map(|name| name.to_string())
    }

    /// A stack's frames; empty where they are not known.
    pub(super) fn frames_of(&self, id: i64) -> Vec<Frame> {
        let frames = |rows: &[StackRow]| rows.iter().map(frame).collect();
        match self.stacks.get(&id) {
            Some(rows) => frames(rows),
            None => {
                let resolved = self.resolved.0.lock().unwrap_or_else(PoisonError::into_inner);
                resolved.get(&id).map(|rows| frames(rows)).unwrap_or_default()
            }
        }
    }
}

fn keep(frames: &mut Frames, id: i64, rows: &[StackRow]) {
    if frames.len() < MOST || frames.contains_key(&id) {
        frames.insert(id, rows.get(..MOST_FRAMES).unwrap_or(rows).into());
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
        let rows = vec![StackRow { language: "python", line: Some(7), ..StackRow::default() }; 100];
        lines.name(0, &"\u{e4}".repeat(1000));
        for id in 1..2 * MOST as i64 {
            lines.name(id, "k");
            lines.stack(id, &rows);
            lines.resolved.tell(-id, &rows[..1]);
        }
        assert_eq!(lines.name_of(0).map(|name| name.len()), Some(MOST_BYTES));
        assert_eq!((lines.name_of(3).as_deref(), lines.name_of(MOST as i64)), (Some("k"), None));
        assert_eq!((lines.frames_of(3).len(), lines.frames_of(-3).len()), (MOST_FRAMES, 1));
        assert_eq!((lines.stacks.len(), lines.frames_of(2 * MOST as i64 - 1).len()), (MOST, 0));
    }
}
