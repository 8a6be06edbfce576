//! Stacks: one number for each, and the frames behind it.

use std::io;

use gputrace_collectors::schema::TableId;

use super::Export;
use super::sheets::{CUDA_CALLCHAINS, OSRT_CALLCHAINS};
use crate::spilled::Numbers;
use crate::trace::{Filter, NO_STACK, Trace, Want, full_name, printable};

/// Whose stack it is: each has a table of its own.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Call,
    Wait,
}

/// The stacks so far.
#[derive(Default)]
pub(super) struct Chains([Numbers; 2]);

impl Chains {
    /// The number of a stack; none for none.
    pub(super) fn number(&mut self, of: Of, stack: i64) -> io::Result<Option<i64>> {
        if stack == NO_STACK { Ok(None) } else { Ok(Some(self.0[of as usize].of_key(stack)?.0)) }
    }
}

impl Export<'_> {
    /// Writes the frames of all stacks that were named, the innermost at depth 0.
    pub(super) fn chains(&mut self, trace: &Trace) -> io::Result<()> {
        let columns = &["stack_id", "depth", "language", "function", "file", "line", "module", "offset"];
        let mut done = Ok(());
        trace.scan(&[Want { table: TableId::Stacks, columns }], &Filter::default(), &mut |rows| {
            let (id, depth, line) = (rows.i64_or("stack_id", NO_STACK), rows.ints("depth"), rows.ints("line"));
            let (language, function, file) = (rows.texts("language"), rows.texts("function"), rows.texts("file"));
            let (module, offset) = (rows.texts("module"), rows.ints("offset"));
            for row in 0..rows.len {
                for (of, sheet) in [(Of::Call, &CUDA_CALLCHAINS), (Of::Wait, &OSRT_CALLCHAINS)] {
                    if done.is_err() {
                        return;
                    }
                    let number = match self.chains.0[of as usize].known(id[row]) {
                        Ok(Some(number)) => number,
                        Ok(None) => continue,
                        Err(error) => {
                            done = Err(error);
                            return;
                        }
                    };
                    let name = match (language.get(row), function.get(row)) {
                        (_, "") => format!("{:#x}", offset.known(row).unwrap_or(0)),
                        ("python", name) => printable(name),
                        (_, name) => full_name(name),
                    };
                    let line = line.known(row).map_or(String::new(), |line| format!(":{line}"));
                    let at = file.known(row).map_or(String::new(), |file| format!(" ({}{line})", printable(file)));
                    let unresolved = i64::from(function.get(row).is_empty());
                    done = (|| {
                        let symbol = self.strings.number(&mut self.to, &format!("{name}{at}"))?;
                        let module = self.strings.number(&mut self.to, module.known(row).unwrap_or("[python]"))?;
                        self.to.insert(
                            sheet,
                            &[
                                number.into(),
                                symbol.into(),
                                module.into(),
                                unresolved.into(),
                                offset.known(row).into(),
                                depth.known(row).into(),
                            ],
                        )
                    })();
                }
            }
        });
        done
    }
}
