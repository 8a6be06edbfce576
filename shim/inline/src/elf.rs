//! A mapped library: its name and what it defines, read from its dynamic section.

use std::ffi::{CStr, c_char};

/// A library that the loader has mapped, and perhaps not yet relocated.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    base: usize,
    dynamic: usize,
    strings: usize,
    symbols: usize,
    soname: Option<usize>,
    count: usize,
}

/// A function that a library defines.
pub(crate) struct Function {
    pub(crate) name: &'static [u8],
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;

impl Library {
    /// # Safety
    /// A library is mapped at `base`, with its dynamic section at `dynamic`; it stays as long as this is used.
    pub(crate) unsafe fn at(base: usize, dynamic: usize) -> Option<Library> {
        let mut entry = dynamic as *const [i64; 2];
        let (mut strings, mut symbols, mut hash, mut gnu_hash, mut soname) = (0, 0, 0, 0, None);
        if entry.is_null() {
            return None;
        }
        loop {
            // SAFETY: a dynamic section, ended by a null tag.
            let [tag, value] = unsafe { entry.read() };
            let value = value as usize;
            // The loader relocates these addresses in place, but not those of the vDSO, and not on every processor.
            let address = if value < base { base.wrapping_add(value) } else { value };
            match tag {
                0 => break,
                DT_STRTAB => strings = address,
                DT_SYMTAB => symbols = address,
                DT_HASH => hash = address,
                DT_GNU_HASH => gnu_hash = address,
                DT_SONAME => soname = Some(value),
                _ => {}
            }
            // SAFETY: the entry was not the last.
            entry = unsafe { entry.add(1) };
        }
        if strings == 0 || symbols == 0 {
            return None;
        }
        // SAFETY: tables of this library.
        let count = unsafe {
            match (hash, gnu_hash) {
                (0, 0) => 0,
                (0, gnu) => count_by_gnu_hash(gnu as *const u32),
                (hash, _) => (hash as *const u32).add(1).read() as usize,
            }
        };
        Some(Library { base, dynamic, strings, symbols, soname, count })
    }

    pub(crate) fn base(&self) -> usize {
        self.base
    }

    pub(crate) fn dynamic(&self) -> usize {
        self.dynamic
    }

    /// Its name; empty where it has none.
    ///
    /// # Safety
    /// The library is still mapped.
    pub(crate) unsafe fn soname(&self) -> &'static [u8] {
        // SAFETY: an offset into the string table.
        self.soname.map_or(b"", |offset| unsafe { self.text(offset) })
    }

    /// The functions that it defines.
    ///
    /// # Safety
    /// The library is still mapped.
    pub(crate) unsafe fn functions(&self) -> impl Iterator<Item = Function> {
        // SAFETY: the caller's promise.
        unsafe { self.definitions(STT_FUNC) }
    }

    /// Address of a variable that it defines.
    ///
    /// # Safety
    /// The library is still mapped.
    pub(crate) unsafe fn variable(&self, name: &str) -> Option<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.definitions(STT_OBJECT) }.find(|found| found.name == name.as_bytes()).map(|found| found.address)
    }

    /// # Safety
    /// The library is still mapped.
    unsafe fn definitions(&self, kind: u8) -> impl Iterator<Item = Function> {
        let library = *self;
        (0..library.count).filter_map(move |number| {
            // SAFETY: a symbol of the table: name, kind, other, section, value, size.
            let (name, info, section, value, bytes) = unsafe {
                let symbol = (library.symbols + 24 * number) as *const u8;
                (
                    symbol.cast::<u32>().read_unaligned() as usize,
                    symbol.add(4).read(),
                    symbol.add(6).cast::<u16>().read_unaligned(),
                    symbol.add(8).cast::<usize>().read_unaligned(),
                    symbol.add(16).cast::<usize>().read_unaligned(),
                )
            };
            (section != 0 && info & 15 == kind).then(|| Function {
                // SAFETY: an offset into the string table.
                name: unsafe { library.text(name) },
                address: library.base.wrapping_add(value),
                bytes,
            })
        })
    }

    /// # Safety
    /// The offset lies in the string table of the library, which is still mapped.
    unsafe fn text(&self, offset: usize) -> &'static [u8] {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr((self.strings + offset) as *const c_char) }.to_bytes()
    }
}

/// Symbols of a library that has no table with their number: one more than the last of all chains.
///
/// # Safety
/// A DT_GNU_HASH table.
unsafe fn count_by_gnu_hash(table: *const u32) -> usize {
    // SAFETY: the layout of the table: four words, a bloom filter of 64-bit words, buckets, chains; chains end with a
    // set lowest bit.
    unsafe {
        let [buckets, first, bloom] = [0, 1, 2].map(|i| *table.add(i) as usize);
        let bucket = table.add(4 + 2 * bloom);
        let chain = bucket.add(buckets);
        let last = (0..buckets).map(|i| *bucket.add(i) as usize).max().unwrap_or(0);
        if last < first {
            return first;
        }
        let mut number = last;
        while *chain.add(number - first) & 1 == 0 {
            number += 1;
        }
        number + 1
    }
}
