//! One loaded library: its dynamic section and what DT_GNU_HASH says about a name.

use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicUsize;

/// Entries of the dynamic section that a look-up needs.
pub(crate) struct Library {
    /// Where it is loaded.
    pub(in crate::interpose) base: usize,
    dynamic: *const Dynamic,
    strings: usize,
    symbols: usize,
    gnu_hash: usize,
    versions: usize,
    soname: Option<usize>,
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

const DT_NULL: i64 = 0;
const DT_NEEDED: i64 = 1;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_SONAME: i64 = 14;
const DT_SYMBOLIC: i64 = 16;
const DT_JMPREL: i64 = 23;
const DT_FLAGS: i64 = 30;
const DF_SYMBOLIC: usize = 2;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const HIDDEN_VERSION: u16 = 0x8000;
/// `R_*_GLOB_DAT` and `R_*_JUMP_SLOT`.
#[cfg(target_arch = "x86_64")]
const SLOTS: [u32; 2] = [6, 7];
#[cfg(target_arch = "aarch64")]
const SLOTS: [u32; 2] = [1025, 1026];

impl Library {
    /// The library that is loaded at `base` and whose dynamic section is at `dynamic`.
    ///
    /// # Safety
    /// Such a library is there and stays loaded.
    pub(in crate::interpose) unsafe fn at(base: usize, dynamic: usize) -> Option<Library> {
        let dynamic = dynamic as *const Dynamic;
        if dynamic.is_null() {
            return None;
        }
        let mut library = Library { base, dynamic, strings: 0, symbols: 0, gnu_hash: 0, versions: 0, soname: None };
        // SAFETY: the caller's promise.
        for (tag, value) in unsafe { library.entries() } {
            let address = library.address(value);
            match tag {
                DT_STRTAB => library.strings = address,
                DT_SYMTAB => library.symbols = address,
                DT_GNU_HASH => library.gnu_hash = address,
                DT_VERSYM => library.versions = address,
                DT_SONAME => library.soname = Some(value),
                _ => {}
            }
        }
        (library.strings != 0 && library.symbols != 0 && library.gnu_hash != 0).then_some(library)
    }

    /// The loader relocates the addresses of a dynamic section in place, but not those of the vDSO.
    fn address(&self, value: usize) -> usize {
        if value < self.base { self.base.wrapping_add(value) } else { value }
    }

    /// The dynamic section, as pairs of a tag and a value.
    ///
    /// # Safety
    /// The library stays loaded as long as the answer is used.
    unsafe fn entries(&self) -> impl Iterator<Item = (i64, usize)> + use<> {
        let mut entry = self.dynamic;
        core::iter::from_fn(move || {
            // SAFETY: the dynamic section of a loaded library, ended by DT_NULL.
            let Dynamic { tag, value } = unsafe { entry.read() };
            if tag == DT_NULL {
                return None;
            }
            // SAFETY: the entry was not the last.
            entry = unsafe { entry.add(1) };
            Some((tag, value))
        })
    }

    /// The value of the entry with this tag; 0 when there is none.
    ///
    /// # Safety
    /// The library is still loaded.
    unsafe fn entry(&self, wanted: i64) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.entries() }.find(|(tag, _)| *tag == wanted).map_or(0, |(_, value)| value)
    }

    /// Whether it finds its own definitions before those of others.
    ///
    /// # Safety
    /// The library is still loaded.
    pub(in crate::interpose) unsafe fn is_symbolic(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.entries() }.any(|(tag, value)| tag == DT_SYMBOLIC || tag == DT_FLAGS && value & DF_SYMBOLIC != 0)
    }

    /// Shows the words in which the loader puts, or put, where functions and variables are that the library asks for by name.
    ///
    /// # Safety
    /// The library is still loaded.
    pub(in crate::interpose) unsafe fn each_slot(&self, mut see: impl FnMut(&CStr, &AtomicUsize)) {
        for (table, bytes) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
            // SAFETY: the tables of a loaded library are where it says, this long; they name its own symbols and words. Both processors
            // have relocations with an addend alone.
            unsafe {
                let (at, bytes) = (self.entry(table), self.entry(bytes));
                if at == 0 {
                    continue;
                }
                let count = bytes / size_of::<Relocation>();
                for relocation in core::slice::from_raw_parts(self.address(at) as *const Relocation, count) {
                    let (kind, number) = (relocation.info as u32, (relocation.info >> 32) as usize);
                    let slot = self.base.wrapping_add(relocation.offset);
                    if SLOTS.contains(&kind) && slot % align_of::<AtomicUsize>() == 0 {
                        let symbol = &*(self.symbols as *const Symbol).add(number);
                        let name = CStr::from_ptr((self.strings + symbol.name as usize) as *const c_char);
                        see(name, &*(slot as *const AtomicUsize));
                    }
                }
            }
        }
    }

    /// Whether the library names this one as needed.
    ///
    /// # Safety
    /// Both libraries are still loaded.
    pub(in crate::interpose) unsafe fn needs(&self, other: &Library) -> bool {
        // SAFETY: the caller's promise.
        let Some(wanted) = (unsafe { other.soname() }) else { return false };
        // SAFETY: names are offsets into the library's strings.
        let named =
            |value: usize| unsafe { CStr::from_ptr((self.strings + value) as *const c_char) }.to_bytes() == wanted;
        // SAFETY: the caller's promise.
        unsafe { self.entries() }.any(|(tag, value)| tag == DT_NEEDED && named(value))
    }

    /// # Safety
    /// The library is still loaded.
    pub(super) unsafe fn soname(&self) -> Option<&[u8]> {
        let offset = self.soname?;
        // SAFETY: an offset into the library's string table.
        Some(unsafe { CStr::from_ptr((self.strings + offset) as *const c_char) }.to_bytes())
    }

    /// Address of the function, or where asked for the variable, of this name and of default version; 0 when it is not
    /// there.
    ///
    /// # Safety
    /// The library is still loaded.
    pub(crate) unsafe fn find(&self, name: &CStr, variables: bool) -> usize {
        let hash = gnu_hash(name.to_bytes());
        let table = self.gnu_hash as *const u32;
        // SAFETY: the layout of DT_GNU_HASH: four words, a bloom filter of 64-bit words, buckets, chains. Chains end
        // with a set lowest bit; symbol numbers in them lie inside the symbol and version tables.
        unsafe {
            let [buckets, first, bloom_words] = [0, 1, 2].map(|i| *table.add(i));
            if buckets == 0 || bloom_words == 0 {
                return 0;
            }
            let shift = *table.add(3);
            let bloom = table.add(4).cast::<u64>();
            let word = *bloom.add((hash as usize / 64) % bloom_words as usize);
            let bits = 1u64 << (hash % 64) | 1u64 << ((hash >> shift) % 64);
            if word & bits != bits {
                return 0;
            }
            let bucket = bloom.add(bloom_words as usize).cast::<u32>();
            let chain = bucket.add(buckets as usize);
            let mut number = *bucket.add((hash % buckets) as usize);
            if number < first {
                return 0;
            }
            loop {
                let entry = *chain.add((number - first) as usize);
                if entry | 1 == hash | 1 && self.matches(number as usize, name, variables) {
                    let symbol = &*(self.symbols as *const Symbol).add(number as usize);
                    return self.base.wrapping_add(symbol.value);
                }
                if entry & 1 != 0 {
                    return 0;
                }
                number += 1;
            }
        }
    }

    /// # Safety
    /// `number` is a symbol of the library, which is still loaded.
    unsafe fn matches(&self, number: usize, name: &CStr, variables: bool) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let symbol = &*(self.symbols as *const Symbol).add(number);
            let hidden = self.versions != 0 && *(self.versions as *const u16).add(number) & HIDDEN_VERSION != 0;
            symbol.section != 0
                && (symbol.info & 15 == STT_FUNC || (variables && symbol.info & 15 == STT_OBJECT))
                && !hidden
                && CStr::from_ptr((self.strings + symbol.name as usize) as *const c_char) == name
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)))
}
