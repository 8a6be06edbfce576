//! Shared objects that hold nothing, as bytes.
//!
//! LD_PRELOAD reaches every descendant of the target. A 32-bit one cannot load the shim, and its loader would say so
//! on stderr; where it looks it therefore finds an empty library of its own kind. When processes outlive the launcher
//! the links to the shim are replaced by an empty 64-bit library for the same reason.
//!
//! The loader insists on a PT_LOAD, a PT_DYNAMIC with string table, symbol table and hash, and on PT_GNU_STACK, without
//! which it would make the process's stack executable. The one PT_LOAD is writable because loaders before glibc 2.35
//! relocate the dynamic section in place, and not executable so that a `noexec` mount does not refuse it.
//!
//! | part | 32-bit offset | 64-bit offset |
//! |---|---|---|
//! | ELF header | 0 | 0 |
//! | 3 program headers | 52 | 64 |
//! | symbol table, one null entry | 160 | 240 |
//! | string table | 176 | 264 |
//! | hash table | 192 | 280 |
//! | dynamic section | 208 | 296 |

const SONAME: &[u8] = b"\0libgputrace.so\0";
/// `e_machine` of 32-bit x86.
pub(crate) const I386: u16 = 3;

/// Collects little-endian fields; an address-sized one is 4 or 8 bytes.
struct Writer {
    bytes: Vec<u8>,
    wide: bool,
}

impl Writer {
    fn half(&mut self, value: u16) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn address(&mut self, value: usize) {
        let bytes = (value as u64).to_le_bytes();
        self.bytes.extend(&bytes[..if self.wide { 8 } else { 4 }]);
    }

    fn pad_to(&mut self, offset: usize) {
        assert!(self.bytes.len() <= offset, "the parts overlap");
        self.bytes.resize(offset, 0);
    }

    fn program_header(&mut self, kind: u32, flags: u32, at: usize, length: usize, align: usize) {
        self.word(kind);
        if self.wide {
            self.word(flags);
        }
        for value in [at, at, at, length, length] {
            self.address(value);
        }
        if !self.wide {
            self.word(flags);
        }
        self.address(align);
    }
}

/// An empty shared object for the machine, 64-bit if `wide`.
pub(crate) fn empty_library(wide: bool, machine: u16) -> Vec<u8> {
    let (header, program, symbol, word): (usize, usize, usize, usize) =
        if wide { (64, 56, 24, 8) } else { (52, 32, 16, 4) };
    let symbols = (header + 3 * program).next_multiple_of(16);
    let strings = symbols + symbol;
    let hash = (strings + SONAME.len()).next_multiple_of(word);
    let dynamic = (hash + 4 * 4).next_multiple_of(word);
    let entries: [(usize, usize); 7] = [
        (14, 1),            // DT_SONAME
        (4, hash),          // DT_HASH
        (5, strings),       // DT_STRTAB
        (6, symbols),       // DT_SYMTAB
        (10, SONAME.len()), // DT_STRSZ
        (11, symbol),       // DT_SYMENT
        (0, 0),             // DT_NULL
    ];
    let end = dynamic + entries.len() * 2 * word;

    let mut out = Writer { bytes: Vec::with_capacity(end), wide };
    out.bytes.extend(b"\x7fELF");
    out.bytes.extend([if wide { 2 } else { 1 }, 1, 1, 0]);
    out.pad_to(16);
    out.half(3); // ET_DYN
    out.half(machine);
    out.word(1);
    out.address(0); // no entry point
    out.address(header);
    out.address(0); // no section headers
    out.word(0);
    for value in [header, program, 3, 0, 0, 0] {
        out.half(value as u16);
    }
    let read_write = 6;
    // 64 KiB: the largest page of the machines in question.
    out.program_header(1, read_write, 0, end, 0x10000);
    out.program_header(2, read_write, dynamic, end - dynamic, word);
    out.program_header(0x6474_e551, read_write, 0, 0, 16); // PT_GNU_STACK: not executable
    out.pad_to(strings);
    out.bytes.extend(SONAME);
    out.pad_to(hash);
    // One bucket, one (null) symbol, both chains empty.
    for value in [1, 1, 0, 0] {
        out.word(value);
    }
    out.pad_to(dynamic);
    for (tag, value) in entries {
        out.address(tag);
        out.address(value);
    }
    out.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::elf::Elf;
    use crate::launch::testing::Folder;
    use std::process::Command;

    #[test]
    fn both_kinds_are_sound_libraries_that_need_nothing() {
        let folder = Folder::new("empty-elf");
        for (wide, machine) in [(false, I386), (true, 62), (true, 183)] {
            let file = folder.file("empty.so", &empty_library(wide, machine), 0o600);
            let expected = Elf { wide, machine, dynamic: true, ..Elf::default() };
            assert_eq!(Elf::read(&file).unwrap(), Some(expected));
        }
    }

    #[test]
    fn the_loader_of_this_machine_takes_the_64_bit_one_without_a_word() {
        let folder = Folder::new("empty-elf64");
        let file = folder.file("empty.so", &empty_library(true, crate::launch::elf::OUR_MACHINE), 0o600);
        let out = Command::new("/bin/true").env("LD_PRELOAD", &file).env("LD_BIND_NOW", "1").output().unwrap();
        assert!(out.status.success());
        assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    }

    /// Needs gcc's 32-bit libraries (Debian: gcc-multilib); `.ci/run` installs them. Without them a 32-bit process
    /// cannot be made at all and the sound-file test above is what remains.
    #[test]
    fn a_32_bit_loader_takes_the_32_bit_one_without_a_word() {
        let folder = Folder::new("empty-elf32");
        let source = folder.file("main.c", b"int main(void) { return 7; }", 0o600);
        let program = folder.path().join("main");
        let built = Command::new("gcc").arg("-m32").arg("-o").arg(&program).arg(&source).output();
        if !built.is_ok_and(|out| out.status.success()) {
            return;
        }
        let file = folder.file("empty.so", &empty_library(false, I386), 0o600);
        let out = Command::new(&program).env("LD_PRELOAD", &file).output().unwrap();
        assert_eq!(out.status.code(), Some(7));
        assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    }
}
