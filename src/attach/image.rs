//! A library as it lies in the process's memory: what it defines, by its dynamic section. No file is asked, which may be another one by now.

use std::io;

use super::memory::Memory;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// What is larger is not believed.
const MOST_SYMBOLS: u64 = 1 << 20;
const MOST_TEXT: u64 = 64 << 20;

/// What a symbol names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Variable,
}

/// Something that it defines.
#[derive(Clone, Debug)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) bytes: u64,
    kind: Kind,
}

/// A library.
#[derive(Clone, Debug)]
pub(super) struct Image {
    /// What is added to its file's addresses.
    pub(super) base: u64,
    /// Where its dynamic section lies.
    pub(super) dynamic: u64,
    /// Its name, where it says one.
    pub(super) soname: String,
    symbols: Vec<Symbol>,
}

fn odd(what: &str) -> io::Error {
    io::Error::other(format!("a library in its memory is not as it should be: {what}"))
}

fn word(bytes: &[u8], at: usize, count: usize) -> u64 {
    bytes.get(at..at + count).unwrap_or_default().iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

impl Image {
    /// The library whose file's beginning is mapped there.
    pub(super) fn read(memory: &Memory, start: u64) -> io::Result<Image> {
        let head = memory.bytes(start, 64)?;
        if head.get(..6) != Some(b"\x7fELF\x02\x01") {
            return Err(odd("no ELF header"));
        }
        let (table, size, count) = (word(&head, 32, 8), word(&head, 54, 2) as usize, word(&head, 56, 2) as usize);
        if size < 56 || count > 512 {
            return Err(odd("no program headers"));
        }
        let table = memory.bytes(start + table, size * count)?;
        let headers =
            || table.chunks_exact(size).map(|entry| (word(entry, 0, 4), word(entry, 16, 8), word(entry, 8, 8)));
        let first = headers().find(|(kind, ..)| *kind == PT_LOAD).map(|(_, address, offset)| address - offset);
        let base = start.wrapping_sub(first.ok_or_else(|| odd("nothing is loaded"))?);
        let dynamic = headers().find(|(kind, ..)| *kind == PT_DYNAMIC).ok_or_else(|| odd("no dynamic section"))?.1;
        let dynamic = base.wrapping_add(dynamic);
        let entries = entries(memory, dynamic)?;
        let value = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
        // The loader relocates these addresses in place, but not on every processor.
        let address = |tag| value(tag).map(|value| if value < base { base.wrapping_add(value) } else { value });
        let strings = address(DT_STRTAB).ok_or_else(|| odd("no names"))?;
        let bytes = value(DT_STRSZ).filter(|bytes| *bytes < MOST_TEXT).ok_or_else(|| odd("too many names"))?;
        let strings = memory.bytes(strings, bytes as usize)?;
        let count = match (address(DT_HASH), address(DT_GNU_HASH)) {
            (_, Some(table)) => count_by_hash(memory, table)?,
            (Some(table), None) => word(&memory.bytes(table, 8)?, 4, 4),
            (None, None) => 0,
        };
        if count > MOST_SYMBOLS {
            return Err(odd("too many symbols"));
        }
        let text = |at: u64| {
            let rest = strings.get(at as usize..).unwrap_or_default();
            String::from_utf8_lossy(rest.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
        };
        let table = memory.bytes(address(DT_SYMTAB).ok_or_else(|| odd("no symbols"))?, 24 * count as usize)?;
        let symbol = |entry: &[u8]| {
            let kind = match entry[4] & 15 {
                1 => Kind::Variable,
                2 => Kind::Function,
                _ => return None,
            };
            let is_here = word(entry, 6, 2) != 0;
            let (address, bytes) = (base.wrapping_add(word(entry, 8, 8)), word(entry, 16, 8));
            is_here.then(|| Symbol { name: text(word(entry, 0, 4)), address, bytes, kind })
        };
        let symbols = table.chunks_exact(24).filter_map(symbol).collect();
        Ok(Image { base, dynamic, soname: value(DT_SONAME).map(text).unwrap_or_default(), symbols })
    }

    /// The functions that it defines.
    pub(super) fn functions(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.kind == Kind::Function)
    }

    /// Where a function of it begins.
    pub(super) fn function(&self, name: &str) -> Option<u64> {
        self.functions().find(|symbol| symbol.name == name).map(|symbol| symbol.address)
    }

    /// Where a variable of it lies.
    pub(super) fn variable(&self, name: &str) -> Option<u64> {
        let is = |symbol: &&Symbol| symbol.kind == Kind::Variable && symbol.name == name;
        self.symbols.iter().find(is).map(|symbol| symbol.address)
    }

    /// Names of the exported function that this address lies in.
    pub(super) fn names_at(&self, address: u64) -> impl Iterator<Item = &str> {
        let holds = move |symbol: &&Symbol| (symbol.address..symbol.address + symbol.bytes).contains(&address);
        self.functions().filter(holds).map(|symbol| symbol.name.as_str())
    }
}

/// The dynamic section's entries.
fn entries(memory: &Memory, mut at: u64) -> io::Result<Vec<(u64, u64)>> {
    const MOST: usize = 1024;
    let mut all = Vec::new();
    while all.len() < MOST {
        let [tag, value] = memory.words(at)?;
        if tag == 0 {
            return Ok(all);
        }
        all.push((tag, value));
        at += 16;
    }
    Err(odd("its dynamic section does not end"))
}

/// Symbols of a library, by its table DT_GNU_HASH: one more than the last of all chains.
fn count_by_hash(memory: &Memory, table: u64) -> io::Result<u64> {
    let head = memory.bytes(table, 16)?;
    let (buckets, first, bloom) = (word(&head, 0, 4), word(&head, 4, 4), word(&head, 8, 4));
    if buckets > MOST_SYMBOLS || bloom > MOST_SYMBOLS {
        return Err(odd("its table of symbols is too large"));
    }
    let bucket = table + 16 + 8 * bloom;
    let heads = memory.bytes(bucket, 4 * buckets as usize)?;
    let last = heads.chunks_exact(4).map(|entry| word(entry, 0, 4)).max().unwrap_or(0);
    if last < first {
        return Ok(first);
    }
    let chain = bucket + 4 * buckets;
    for number in last..last + MOST_SYMBOLS {
        if word(&memory.bytes(chain + 4 * (number - first), 4)?, 0, 4) & 1 != 0 {
            return Ok(number + 1);
        }
    }
    Err(odd("its table of symbols does not end"))
}

#[cfg(test)]
mod tests {
    use super::super::maps;
    use super::*;

    #[test]
    fn a_library_of_this_process_says_what_the_loader_says() {
        let pid = std::process::id() as i32;
        let all = maps::read(pid).unwrap();
        let libc = maps::beginnings(&all, |name| name == "libc.so.6").next().expect("this program has a libc");
        let image = Image::read(&Memory::open(pid).unwrap(), libc.range.start).unwrap();
        assert_eq!(image.soname, "libc.so.6");
        let found = image.function("getppid").unwrap();
        assert!(image.names_at(found + 1).any(|name| name == "getppid"));
        assert!(maps::extent(&all, libc).contains(&found));
        assert!(image.variable("environ").is_some() && image.function("environ").is_none());
    }

    #[test]
    fn what_is_no_library_is_an_error() {
        let text = vec![7u8; 4096];
        let memory = Memory::open(std::process::id() as i32).unwrap();
        assert!(Image::read(&memory, text.as_ptr() as u64).is_err());
        assert!(Image::read(&memory, 8).is_err());
    }
}
