//! Stacks: one number for each, and the frames behind it.

use std::io;

use super::Export;
use super::sheets::{CUDA_CALLCHAINS, OSRT_CALLCHAINS, Sheet};
use crate::spilled::Numbers;
use crate::trace::{Frame, NO_STACK, Trace, printable};

/// Whose stack it is: each has a table of its own.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Call,
    Wait,
}

/// The stacks so far, of calls and of waits.
#[derive(Default)]
pub(super) struct Chains([Named; 2]);

/// Stacks with their numbers.
#[derive(Default)]
struct Named {
    numbers: Numbers,
    /// The ids of all, in the order of their numbers, which begin with 1.
    ids: Vec<i64>,
}

impl Chains {
    /// The number of a stack; none for none.
    pub(super) fn number(&mut self, of: Of, stack: i64) -> io::Result<Option<i64>> {
        if stack == NO_STACK {
            return Ok(None);
        }
        let Named { numbers, ids } = &mut self.0[of as usize];
        let (number, is_new) = numbers.of_key(stack)?;
        if is_new {
            ids.push(stack);
        }
        Ok(Some(number))
    }
}

impl Export<'_> {
    /// Writes the frames of all stacks that were named, the innermost at depth 0.
    pub(super) fn chains(&mut self, trace: &Trace) -> io::Result<()> {
        let stacks = trace.every_stack()?;
        for (of, sheet) in [(Of::Call, &CUDA_CALLCHAINS), (Of::Wait, &OSRT_CALLCHAINS)] {
            for (number, id) in (1..).zip(std::mem::take(&mut self.chains.0[of as usize]).ids) {
                self.chain(number, sheet, stacks.frames_at(id)?)?;
            }
        }
        Ok(())
    }

    fn chain(&mut self, number: i64, sheet: &Sheet, frames: Vec<(Frame, Option<i64>)>) -> io::Result<()> {
        for (depth, (frame, address)) in (0i64..).zip(frames) {
            let unresolved = frame.function.is_empty();
            let name = if unresolved { format!("{:#x}", address.unwrap_or(0)) } else { frame.function };
            let line = frame.line.map_or(String::new(), |line| format!(":{line}"));
            let at = match frame.file.as_str() {
                "" => String::new(),
                file => format!(" ({}{line})", printable(file)),
            };
            let symbol = self.strings.number(&mut self.to, &format!("{name}{at}"))?;
            let module = if frame.module.is_empty() { "[python]" } else { &frame.module };
            let module = self.strings.number(&mut self.to, module)?;
            let unresolved = i64::from(unresolved);
            let row = [number.into(), symbol.into(), module.into(), unresolved.into(), address.into(), depth.into()];
            self.to.insert(sheet, &row)?;
        }
        Ok(())
    }
}
