//! Native frames of a thread that sleeps in the kernel, by the unwinding tables of what its process has mapped.
//!
//! The kernel tells stack pointer and program counter of a thread that sleeps, and no other register. A function whose frame
//! hangs on another one is passed where an inner function has saved that; else the stack ends there and is marked as cut. Nothing is
//! guessed: a frame is shown only where the tables say where it is.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use gimli::{BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Register, RegisterRule, UnwindContext};
use gimli::{Pointer, UnwindSection, Vendor};
use gputrace_abi::stack::ADDRESS;
use object::read::{ReadCache, elf::ElfFile64};
use object::{Endianness, Object, ObjectSection};

use super::libraries::first_byte;
use super::linux::Memory;
use crate::symbols::open;
use crate::tables::StackRow;

/// Frames of a stack at most, and registers that tables may name.
const MOST_FRAMES: usize = 64;
const REGISTERS: usize = 32;
/// Larger tables are not read.
const MOST_BYTES: u64 = 256 << 20;
/// DWARF's numbers of the stack pointer, and of the return address.
#[cfg(target_arch = "x86_64")]
const NUMBERS: (Register, Register) = (gimli::X86_64::RSP, gimli::X86_64::RA);
#[cfg(target_arch = "aarch64")]
const NUMBERS: (Register, Register) = (gimli::AArch64::SP, gimli::AArch64::X30);

/// Whose extensions of DWARF the tables have: ARM's say where a return address is signed.
const VENDOR: Vendor = if cfg!(target_arch = "aarch64") { Vendor::AArch64 } else { Vendor::Default };

/// Values of registers, by DWARF's numbers; none: not known.
type Registers = [Option<u64>; REGISTERS];

/// The code that a process has mapped.
pub(super) struct Native {
    pid: i32,
    code: Vec<Code>,
    files: Vec<(Arc<str>, Option<Tables>)>,
}

/// A piece of it.
struct Code {
    start: u64,
    end: u64,
    path: Arc<str>,
}

/// The unwinding tables of a file.
pub(super) struct Tables {
    /// What is added to the file's addresses.
    bias: u64,
    bases: BaseAddresses,
    header: Vec<u8>,
    frames: Vec<u8>,
}

impl Native {
    /// That of a process.
    pub(super) fn of(pid: i32) -> Native {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Native { pid, code: maps.lines().filter_map(code).collect(), files: Vec::new() }
    }

    /// The frames of a thread, innermost first.
    pub(super) fn walk(&mut self, memory: &Memory, stack: u64, counter: u64) -> Vec<StackRow> {
        let mut known = [None; REGISTERS];
        known[usize::from(NUMBERS.0.0)] = Some(stack);
        let mut rows = Vec::new();
        let whole = self.follow(memory, known, counter, MOST_FRAMES, |inside, path, bias| {
            // Who looks symbols up takes the address for a return address.
            let offset = inside.wrapping_add(1).wrapping_sub(bias) as i64;
            rows.push(StackRow {
                language: "native",
                module: Some(path.clone()),
                offset: Some(offset),
                ..StackRow::default()
            });
        });
        if let Some(last) = rows.last_mut() {
            last.cut = !whole;
        }
        rows
    }

    /// Tells the frames, innermost first: an address inside of the call that each is in, the file of its code, and what is added to that
    /// file's addresses. True: the last one was called by nobody.
    fn follow(
        &mut self,
        memory: &Memory,
        mut known: Registers,
        counter: u64,
        most: usize,
        mut each: impl FnMut(u64, &Arc<str>, u64),
    ) -> bool {
        let (stack_pointer, return_address) = NUMBERS;
        let mut at = counter;
        for number in 0..most {
            // A return address stands behind its call.
            let inside = if number == 0 { at } else { at.wrapping_sub(1) };
            let Some(tables) = self.tables(inside) else { return false };
            each(inside, tables.0, tables.1.bias);
            let Some((next, registers)) = tables.1.caller(memory, inside, &known, return_address) else { return false };
            if next == 0 {
                return true;
            }
            // Stacks grow down: the caller's frame lies above. One without a frame of its own has its caller's.
            let sp = |of: &Registers| of[usize::from(stack_pointer.0)];
            if sp(&registers) < sp(&known) || (number > 0 && sp(&registers) == sp(&known)) {
                return false;
            }
            (at, known) = (next, registers);
        }
        false
    }

    /// The tables of the file whose code stands at an address.
    fn tables(&mut self, address: u64) -> Option<(&Arc<str>, &Tables)> {
        let code = self.code.iter().find(|code| (code.start..code.end).contains(&address))?;
        let at = match self.files.iter().position(|(path, _)| *path == code.path) {
            Some(at) => at,
            None => {
                self.files.push((code.path.clone(), Tables::read(self.pid, &code.path)));
                self.files.len() - 1
            }
        };
        let (path, tables) = self.files.get(at)?;
        Some((path, tables.as_ref()?))
    }
}

/// The frames of threads that somebody has stopped, and of which all registers are known.
pub struct Unwinder {
    native: Native,
    memory: Memory,
}

impl Unwinder {
    /// Those of this process, with the code that it has mapped now.
    pub fn of(pid: i32) -> Unwinder {
        Unwinder { native: Native::of(pid), memory: Memory::of(pid) }
    }

    /// An address inside of each call that the thread is in, innermost first, and the file of its code. None: that is not all of them.
    pub fn frames(&mut self, registers: &[(u16, u64)], counter: u64) -> Option<Vec<(u64, Arc<str>)>> {
        const MOST: usize = 4096;
        let mut known = [None; REGISTERS];
        for (number, value) in registers {
            *known.get_mut(usize::from(*number))? = Some(*value);
        }
        let mut frames = Vec::new();
        let each = |inside, path: &Arc<str>, _| frames.push((inside, path.clone()));
        self.native.follow(&self.memory, known, counter, MOST, each).then_some(frames)
    }
}

impl Tables {
    fn read(pid: i32, path: &str) -> Option<Tables> {
        let start = first_byte(pid, path)?;
        let cache = ReadCache::new(open(Path::new(&format!("/proc/{pid}/root{path}")))?);
        let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let bias = super::libraries::bias(&elf, start)?;
        let section = |name: &str| {
            let section = elf.section_by_name(name).filter(|section| section.size() <= MOST_BYTES)?;
            Some((section.address(), section.data().ok()?.to_vec()))
        };
        let ((header_at, header), (frames_at, frames)) = (section(".eh_frame_hdr")?, section(".eh_frame")?);
        let bases = BaseAddresses::default().set_eh_frame_hdr(header_at).set_eh_frame(frames_at);
        Some(Tables { bias, bases, header, frames })
    }

    /// Of sections of any bytes, at these addresses.
    #[cfg(any(test, fuzzing))]
    pub(super) fn of_bytes(header: &[u8], frames: &[u8], [header_at, frames_at, bias]: [u64; 3]) -> Tables {
        let bases = BaseAddresses::default().set_eh_frame_hdr(header_at).set_eh_frame(frames_at);
        Tables { bias, bases, header: header.to_vec(), frames: frames.to_vec() }
    }

    /// The frames of a thread whose registers all have this value, and where it goes on.
    #[cfg(any(test, fuzzing))]
    pub(super) fn calls(&self, memory: &Memory, mut inside: u64, register: u64) {
        let mut known = [Some(register); REGISTERS];
        for _ in 0..MOST_FRAMES {
            let Some((next, registers)) = self.caller(memory, inside, &known, NUMBERS.1) else { break };
            (inside, known) = (next, registers);
        }
    }

    /// Where the caller goes on, 0 where nobody called, and with which registers; none where the tables do not say, or it hangs on a
    /// register that is not known.
    fn caller(
        &self,
        memory: &Memory,
        inside: u64,
        known: &Registers,
        return_address: Register,
    ) -> Option<(u64, Registers)> {
        let mut frames = EhFrame::new(&self.frames, LittleEndian);
        frames.set_vendor(VENDOR);
        // Linkers count a table's entries in four bytes. Of a number of eight gimli would make sizes that are none.
        if self.header.get(2) != Some(&gimli::DW_EH_PE_udata4.0) {
            return None;
        }
        let header = EhFrameHdr::new(&self.header, LittleEndian).parse(&self.bases, 8).ok()?;
        let address = inside.wrapping_sub(self.bias);
        let Pointer::Direct(place) = header.table()?.lookup(address, &self.bases).ok()? else { return None };
        let offset = usize::try_from(place.checked_sub(self.bases_frames()?)?).ok()?;
        let entry = frames.fde_from_offset(&self.bases, offset.into(), EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(&frames, &self.bases, &mut context, address).ok()?;
        let value = |register: Register| known.get(usize::from(register.0)).copied().flatten();
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
        let frame = value(*register)?.wrapping_add_signed(*offset);
        let read = |at: u64| memory.word(at as usize).map(|word| word as u64);
        let restored = |register: Register| match row.register(register) {
            Some(RegisterRule::Undefined) => Some(None),
            None | Some(RegisterRule::SameValue) => Some(value(register)),
            Some(RegisterRule::Offset(at)) => Some(read(frame.wrapping_add_signed(at))),
            Some(RegisterRule::ValOffset(at)) => Some(Some(frame.wrapping_add_signed(at))),
            Some(RegisterRule::Register(other)) => Some(value(other)),
            _ => None,
        };
        if matches!(row.register(return_address), Some(RegisterRule::Undefined)) {
            return Some((0, *known));
        }
        let next = restored(return_address)?? & ADDRESS;
        let mut registers = [None; REGISTERS];
        for (number, register) in registers.iter_mut().enumerate() {
            *register = restored(Register(number as u16)).flatten();
        }
        let stack_pointer = NUMBERS.0;
        *registers.get_mut(usize::from(stack_pointer.0))? = Some(frame);
        Some((next, registers))
    }

    fn bases_frames(&self) -> Option<u64> {
        self.bases.eh_frame.section
    }
}

/// A line of /proc/PID/maps about a file's code.
fn code(line: &str) -> Option<Code> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let mut words = rest.splitn(5, ' ');
    let executable = words.next()?.as_bytes().get(2) == Some(&b'x');
    let path = words.nth(3)?.trim_start();
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    (executable && path.starts_with('/')).then_some(Code {
        start: number(start)?,
        end: number(end)?,
        path: path.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_looked_at() {
        let piece = code("7f10-7f20 r-xp 00001000 08:01 42   /usr/lib/lib with space.so").unwrap();
        assert_eq!((piece.start, piece.end, &*piece.path), (0x7f10, 0x7f20, "/usr/lib/lib with space.so"));
        let others = ["7f10-7f20 r--p 00001000 08:01 42 /usr/lib/x.so", "7f10-7f20 r-xp 00000000 00:00 0 [vdso]", "x"];
        assert!(others.into_iter().all(|line| code(line).is_none()));
    }

    #[test]
    fn an_address_in_no_code_has_no_frames() {
        let memory = Memory::of(std::process::id() as i32);
        assert!(Native::of(std::process::id() as i32).walk(&memory, 0, 8).is_empty());
    }
}
