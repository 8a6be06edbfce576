//! How to get from a frame to the one that called it: the rule at one address, out of its function's description.
//!
//! The description is a program for a table: a row for each range of addresses, a column for each register. Only three
//! columns matter here: where the frame of the caller ends (the CFA), and where the caller's frame pointer and the return
//! address were saved. Rules that need more (DWARF expressions) are not followed.

use super::bytes::Bytes;
use super::table::Function;

/// Numbers that DWARF gives to registers.
#[cfg(target_arch = "x86_64")]
mod register {
    pub(super) const FRAME: u64 = 6;
    pub(super) const STACK: u64 = 7;
}
#[cfg(target_arch = "aarch64")]
mod register {
    pub(super) const FRAME: u64 = 29;
    pub(super) const STACK: u64 = 31;
}

/// The register that the CFA is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Stack,
    Frame,
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) base: Base,
    /// From there to the CFA, in bytes.
    pub(super) cfa: i32,
    /// From the CFA to where the caller's frame pointer is; none: it is still in its register.
    pub(super) frame: Option<i32>,
    /// From the CFA to the return address; none: nobody called this function.
    pub(super) caller: Option<i32>,
}

#[derive(Clone, Copy)]
struct Row {
    base: Option<Base>,
    cfa: i64,
    frame: Saved,
    caller: Saved,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Saved {
    Nowhere,
    At(i64),
    Undefined,
    /// In a way that is not followed.
    Otherwise,
}

const NESTED: usize = 8;

/// The rule at `pc` in this function.
pub(super) fn rule(function: &Function, pc: usize) -> Option<Rule> {
    let start = Row { base: None, cfa: 0, frame: Saved::Nowhere, caller: Saved::Nowhere };
    let mut machine =
        Machine { function, pc, at: function.start, row: start, first: start, kept: [start; NESTED], depth: 0 };
    let [common, own] = function.programs;
    machine.run(common)?;
    machine.first = machine.row;
    machine.run(own)?;
    let Row { base, cfa, frame, caller } = machine.row;
    let at = |saved: Saved| match saved {
        Saved::At(offset) => i32::try_from(offset).ok().map(Some),
        Saved::Otherwise => None,
        Saved::Nowhere | Saved::Undefined => Some(None),
    };
    let caller = match caller {
        // The return address is in a register of its own: the innermost function of a stack, which is never ours.
        Saved::Nowhere => return None,
        saved => at(saved)?,
    };
    Some(Rule { base: base?, cfa: i32::try_from(cfa).ok()?, frame: at(frame)?, caller })
}

struct Machine<'a> {
    function: &'a Function,
    pc: usize,
    /// Address from which on the row holds.
    at: usize,
    row: Row,
    /// The row that the function's own program began with.
    first: Row,
    kept: [Row; NESTED],
    depth: usize,
}

impl Machine<'_> {
    fn saved(&mut self, register: u64, saved: Saved) {
        if register == register::FRAME {
            self.row.frame = saved;
        }
        if register == self.function.return_register {
            self.row.caller = saved;
        }
    }

    fn restore(&mut self, register: u64) {
        let first = self.first;
        if register == register::FRAME {
            self.row.frame = first.frame;
        }
        if register == self.function.return_register {
            self.row.caller = first.caller;
        }
    }

    fn base(&mut self, register: u64) {
        self.row.base = match register {
            register::STACK => Some(Base::Stack),
            register::FRAME => Some(Base::Frame),
            _ => None,
        };
    }

    fn offset(&self, units: u64) -> i64 {
        (units as i64).wrapping_mul(self.function.data_unit)
    }

    /// Runs instructions until the row of `pc` is reached. None: one that is not known.
    fn run(&mut self, mut program: Bytes) -> Option<()> {
        while !program.is_empty() {
            let instruction = program.u8()?;
            let low = u64::from(instruction & 0x3f);
            let advance = match (instruction >> 6, instruction) {
                (1, _) => low,
                (_, 0x02) => program.u8()?.into(),
                (_, 0x03) => program.u16()?.into(),
                (_, 0x04) => program.u32()?.into(),
                _ => 0,
            };
            if advance > 0 {
                self.at = self.at.wrapping_add((advance * self.function.code_unit) as usize);
                if self.at > self.pc {
                    return Some(());
                }
                continue;
            }
            match instruction >> 6 {
                2 => {
                    let offset = self.offset(program.unsigned()?);
                    self.saved(low, Saved::At(offset));
                }
                3 => self.restore(low),
                _ => self.extended(instruction, &mut program)?,
            }
        }
        Some(())
    }

    fn extended(&mut self, instruction: u8, program: &mut Bytes) -> Option<()> {
        match instruction {
            // nop, no advance at all, and on ARM a switch of how return addresses are signed
            0x00 | 0x02 | 0x03 | 0x04 | 0x2d | 0x40 => {}
            // offset_extended, its signed form, and its old negative one
            0x05 | 0x11 | 0x2f => {
                let register = program.unsigned()?;
                let offset = match instruction {
                    0x05 => self.offset(program.unsigned()?),
                    0x11 => program.signed()?.wrapping_mul(self.function.data_unit),
                    _ => -self.offset(program.unsigned()?),
                };
                self.saved(register, Saved::At(offset));
            }
            0x06 => {
                let register = program.unsigned()?;
                self.restore(register);
            }
            0x07 => {
                let register = program.unsigned()?;
                self.saved(register, Saved::Undefined);
            }
            0x08 => {
                let register = program.unsigned()?;
                self.saved(register, Saved::Nowhere);
            }
            // register, val_offset, val_offset_sf
            0x09 | 0x14 | 0x15 => {
                let register = program.unsigned()?;
                program.unsigned()?;
                self.saved(register, Saved::Otherwise);
            }
            0x0a => {
                *self.kept.get_mut(self.depth)? = self.row;
                self.depth += 1;
            }
            0x0b => {
                self.depth = self.depth.checked_sub(1)?;
                self.row = *self.kept.get(self.depth)?;
            }
            // def_cfa and its signed form
            0x0c | 0x12 => {
                let register = program.unsigned()?;
                self.base(register);
                self.row.cfa = match instruction {
                    0x0c => program.unsigned()? as i64,
                    _ => program.signed()?.wrapping_mul(self.function.data_unit),
                };
            }
            0x0d => {
                let register = program.unsigned()?;
                self.base(register);
            }
            0x0e => self.row.cfa = program.unsigned()? as i64,
            0x13 => self.row.cfa = program.signed()?.wrapping_mul(self.function.data_unit),
            // def_cfa_expression
            0x0f => {
                let bytes = program.unsigned()? as usize;
                program.split(bytes)?;
                self.row.base = None;
            }
            // expression, val_expression
            0x10 | 0x16 => {
                let register = program.unsigned()?;
                let bytes = program.unsigned()? as usize;
                program.split(bytes)?;
                self.saved(register, Saved::Otherwise);
            }
            // GNU_args_size
            0x2e => _ = program.unsigned()?,
            _ => return None,
        }
        Some(())
    }
}
