//! Labels: what the program calls its queues, command buffers, encoders and memory, and what a command buffer is called.

use super::{Around, Metal};
use crate::facts::Labelled;

impl Metal {
    /// An object has this label from now on; none: it has it no more.
    pub(super) fn label(
        &mut self,
        kind: Labelled,
        object: u64,
        label: Option<i64>,
        at_ns: i64,
        around: &mut Around<'_>,
    ) {
        match kind {
            Labelled::Queue => self.queue(object).label = label,
            Labelled::CommandBuffer => {
                // One that nobody saw made: not one that was committed and is only now called something.
                if self.open.get(object).is_none() && self.committed.get(object).is_none() {
                    self.begin(object, 0, at_ns, around);
                }
                self.open.get_mut(object).into_iter().for_each(|open| open.label = label);
            }
            Labelled::Encoder => {
                let Some(known) = self.encoders.get_mut(object) else { return };
                known.label = label;
                let open = self.open.get_mut(known.buffer);
                open.into_iter().zip(label).for_each(|(open, label)| open.content.label(label));
            }
            Labelled::Memory => self.memory.label(object, label),
        }
    }

    /// The name of a command buffer by names of what it holds: of several the first and how many more.
    pub(super) fn name_of(&mut self, names: &[i64], around: &mut Around<'_>) -> Option<i64> {
        let (first, more) = names.split_first()?;
        if more.is_empty() {
            return Some(*first);
        }
        if let Some(known) = self.several.get(&(*first, more.len())) {
            return Some(*known);
        }
        let name = format!("{} +{}", self.texts.get(first)?, more.len());
        let id = around.name(&name);
        if self.several.len() < super::MOST_NAMES {
            self.several.insert((*first, more.len()), id);
        }
        Some(id)
    }
}
