//! Reads as much of an ELF file as decides whether the loader will load the shim into it.
//!
//! A parser of our own, because a handful of fields is wanted from files that may be hundreds of megabytes: the
//! program headers, the interpreter, the libraries it needs. Every offset comes from the file and is checked; a file
//! that lies gives `None`, never a panic. Only little-endian files are understood, as both supported machines are.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// `e_machine` of the processor that this program is built for.
#[cfg(target_arch = "x86_64")]
pub(crate) const OUR_MACHINE: u16 = 62;
/// `e_machine` of the processor that this program is built for.
#[cfg(target_arch = "aarch64")]
pub(crate) const OUR_MACHINE: u16 = 183;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

/// Sizes beyond which a file is taken for a liar.
const MOST_HEADERS: usize = 512;
const MOST_DYNAMIC_BYTES: u64 = 1 << 20;
const MOST_STRING_BYTES: u64 = 256 << 20;
/// Names of exported symbols are searched for marks of a sanitizer only in tables up to this size.
const SEARCHED_STRING_BYTES: u64 = 8 << 20;

/// What the loader goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// 64-bit file.
    pub(crate) wide: bool,
    /// `e_machine`.
    pub(crate) machine: u16,
    /// The loader, from PT_INTERP; none in a static program and in a library.
    pub(crate) interpreter: Option<PathBuf>,
    /// Whether it has a dynamic section.
    pub(crate) dynamic: bool,
    /// Names of the libraries it needs.
    pub(crate) needed: Vec<String>,
    /// The sanitizer whose runtime it needs or holds.
    pub(crate) sanitizer: Option<Sanitizer>,
}

/// Sanitizers that replace malloc and look closely at who else is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sanitizer {
    /// Its runtime ends the program unless it is the first library.
    Address,
    /// Clang only.
    Memory,
    /// Data races.
    Thread,
}

/// How a sanitizer shows: its runtime's name with gcc and with Clang, and the symbol where that is linked statically.
const SANITIZERS: [(Sanitizer, &str, &str, &[u8]); 3] = [
    (Sanitizer::Address, "libasan.so", "libclang_rt.asan", b"__asan_init"),
    (Sanitizer::Memory, "libmsan.so", "libclang_rt.msan", b"__msan_init"),
    (Sanitizer::Thread, "libtsan.so", "libclang_rt.tsan", b"__tsan_init"),
];

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
}

impl Elf {
    /// Reads `path`. `Ok(None)`: the file is no (sound, little-endian) ELF file.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Elf>> {
        let file = File::open(path)?;
        Ok(parse(&file))
    }
}

fn parse(file: &File) -> Option<Elf> {
    let head = bytes_at(file, 0, 64).or_else(|| bytes_at(file, 0, 52))?;
    if head.get(..4)? != b"\x7fELF" || head[5] != 1 {
        return None;
    }
    let wide = match head[4] {
        1 => false,
        2 => true,
        _ => return None,
    };
    let mut elf = Elf { wide, machine: u16_at(&head, 18)?, ..Elf::default() };
    let segments = segments(file, &head, wide)?;
    if let Some(interpreter) = segments.iter().find(|s| s.kind == PT_INTERP) {
        let text = bytes_at(file, interpreter.offset, interpreter.file_bytes.min(4096))?;
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        elf.interpreter = Some(PathBuf::from(String::from_utf8_lossy(&text[..end]).into_owned()));
    }
    if let Some(section) = segments.iter().find(|s| s.kind == PT_DYNAMIC) {
        elf.dynamic = true;
        let _ = read_dynamic(file, section, &segments, &mut elf);
    }
    Some(elf)
}

fn segments(file: &File, head: &[u8], wide: bool) -> Option<Vec<Segment>> {
    let (table, entry_bytes, count) = if wide {
        (u64_at(head, 32)?, u16_at(head, 54)?, u16_at(head, 56)?)
    } else {
        (u32_at(head, 28)?.into(), u16_at(head, 42)?, u16_at(head, 44)?)
    };
    let (entry_bytes, count) = (usize::from(entry_bytes), usize::from(count));
    if count > MOST_HEADERS || entry_bytes < if wide { 56 } else { 32 } {
        return None;
    }
    let table = bytes_at(file, table, (entry_bytes * count) as u64)?;
    let read = |entry: &[u8]| {
        Some(if wide {
            Segment {
                kind: u32_at(entry, 0)?,
                offset: u64_at(entry, 8)?,
                address: u64_at(entry, 16)?,
                file_bytes: u64_at(entry, 32)?,
            }
        } else {
            Segment {
                kind: u32_at(entry, 0)?,
                offset: u32_at(entry, 4)?.into(),
                address: u32_at(entry, 8)?.into(),
                file_bytes: u32_at(entry, 16)?.into(),
            }
        })
    };
    table.chunks_exact(entry_bytes).map(read).collect()
}

fn read_dynamic(file: &File, section: &Segment, segments: &[Segment], elf: &mut Elf) -> Option<()> {
    let bytes = bytes_at(file, section.offset, section.file_bytes.min(MOST_DYNAMIC_BYTES))?;
    let word = if elf.wide { 8 } else { 4 };
    let value = |at: usize| if elf.wide { u64_at(&bytes, at) } else { u32_at(&bytes, at).map(u64::from) };
    let entries: Vec<(u64, u64)> = (0..bytes.len() / (2 * word))
        .filter_map(|i| Some((value(2 * word * i)?, value(2 * word * i + word)?)))
        .take_while(|entry| entry.0 != 0)
        .collect();
    let of = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
    let (strings, length) = (of(DT_STRTAB)?, of(DT_STRSZ)?.min(MOST_STRING_BYTES));
    let home =
        segments.iter().find(|s| s.kind == PT_LOAD && strings >= s.address && strings - s.address < s.file_bytes)?;
    let strings = home.offset.checked_add(strings - home.address)?;
    for (_, at) in entries.iter().filter(|entry| entry.0 == DT_NEEDED && entry.1 < length) {
        let name = bytes_at(file, strings.checked_add(*at)?, (length - at).min(256))?;
        let end = name.iter().position(|b| *b == 0)?;
        elf.needed.push(String::from_utf8_lossy(&name[..end]).into_owned());
    }
    let names = if length <= SEARCHED_STRING_BYTES { bytes_at(file, strings, length) } else { None };
    let names = names.unwrap_or_default();
    let shows = |(_, gcc, clang, symbol): &&(Sanitizer, &str, &str, &[u8])| {
        elf.needed.iter().any(|name| name.starts_with(gcc) || name.starts_with(clang))
            || names.split(|b| *b == 0).any(|name| name == *symbol)
    };
    elf.sanitizer = SANITIZERS.iter().find(shows).map(|sanitizer| sanitizer.0);
    Some(())
}

/// Bytes of the file; fewer are no answer.
fn bytes_at(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_names_its_loader_and_its_libraries() {
        let elf = Elf::read(Path::new("/bin/true")).unwrap().expect("/bin/true is an ELF file");
        assert!(elf.wide && elf.dynamic && elf.sanitizer.is_none());
        assert_eq!(elf.machine, OUR_MACHINE);
        assert!(elf.interpreter.unwrap().to_string_lossy().contains("ld-"));
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", elf.needed);
    }

    #[test]
    fn a_text_and_every_truncation_of_a_program_are_survived() {
        let folder = crate::launch::testing::Folder::new("elf");
        let text = folder.file("script", b"#!/bin/sh\n", 0o755);
        assert_eq!(Elf::read(&text).unwrap(), None);
        let whole = std::fs::read("/bin/true").unwrap();
        for length in (0..whole.len().min(4096)).step_by(7) {
            let part = folder.file("part", &whole[..length], 0o755);
            let _ = Elf::read(&part).unwrap();
        }
    }

    #[test]
    fn flipped_bytes_never_make_it_fail_loudly() {
        let folder = crate::launch::testing::Folder::new("elf-flip");
        let whole = std::fs::read("/bin/true").unwrap();
        for at in 0..64 {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            let _ = Elf::read(&folder.file("flipped", &bytes, 0o755)).unwrap();
        }
    }
}
