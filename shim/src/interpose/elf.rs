//! Looking symbols up in loaded libraries without the loader's own functions.
//!
//! `dlsym` is one of the things that we interpose; it takes locks, keeps an error text that the program may be about to
//! read, and cannot be called inside malloc. Walking `dl_iterate_phdr` and each library's DT_GNU_HASH does none of that.
//! Only functions of default version are found, in the order in which the loader keeps the libraries: the program,
//! preloaded libraries, then the rest.

use core::ffi::{CStr, c_char, c_int, c_void};

/// Entries of the dynamic section that a look-up needs.
struct Library {
    base: usize,
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
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const STT_FUNC: u8 = 2;
const HIDDEN_VERSION: u16 = 0x8000;

/// What is searched for, and what was found.
struct Search<'a> {
    name: &'a CStr,
    /// Only in the library with this soname.
    soname: Option<&'a [u8]>,
    /// Only in libraries after this one.
    after_us: bool,
    passed_us: bool,
    found: usize,
}

/// Address of the next definition of a function after ours in search order; 0 when there is none.
pub(crate) fn next_definition(name: &CStr) -> usize {
    search(Search { name, soname: None, after_us: true, passed_us: false, found: 0 })
}

/// Address of a function in the loaded library with this soname; 0 when there is none.
pub(crate) fn in_library(soname: &CStr, name: &CStr) -> usize {
    let soname = Some(soname.to_bytes());
    search(Search { name, soname, after_us: false, passed_us: false, found: 0 })
}

fn search(mut search: Search<'_>) -> usize {
    // SAFETY: the callback gets valid infos and our own search, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: `search` passed a pointer to a live Search; the loader passes a valid info.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    if is_us(info) {
        search.passed_us = true;
        return 0;
    }
    if search.after_us && !search.passed_us {
        return 0;
    }
    // SAFETY: the library is loaded while the loader visits it.
    let Some(library) = (unsafe { Library::of(info) }) else { return 0 };
    // SAFETY: as above.
    unsafe {
        if search.soname.is_some_and(|wanted| library.soname() != Some(wanted)) {
            return 0;
        }
        search.found = library.find(search.name);
    }
    (search.found != 0) as c_int
}

fn segments(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader gives the address and number of the program headers of a loaded library.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
}

/// Whether this library is the one that this code is in.
fn is_us(info: &libc::dl_phdr_info) -> bool {
    let here = visit as *const () as usize;
    segments(info).iter().filter(|s| s.p_type == libc::PT_LOAD).any(|s| {
        let start = (info.dlpi_addr as usize).wrapping_add(s.p_vaddr as usize);
        (start..start.saturating_add(s.p_memsz as usize)).contains(&here)
    })
}

impl Library {
    /// # Safety
    /// The library stays loaded.
    unsafe fn of(info: &libc::dl_phdr_info) -> Option<Library> {
        let base = info.dlpi_addr as usize;
        let dynamic = segments(info).iter().find(|s| s.p_type == libc::PT_DYNAMIC)?;
        let mut library = Library { base, strings: 0, symbols: 0, gnu_hash: 0, versions: 0, soname: None };
        let mut entry = base.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic;
        loop {
            // SAFETY: the dynamic section of a loaded library, ended by DT_NULL.
            let Dynamic { tag, value } = unsafe { entry.read() };
            // The loader relocates these addresses in place, but not those of the vDSO.
            let address = if value < base { base.wrapping_add(value) } else { value };
            match tag {
                DT_NULL => break,
                DT_STRTAB => library.strings = address,
                DT_SYMTAB => library.symbols = address,
                DT_GNU_HASH => library.gnu_hash = address,
                DT_VERSYM => library.versions = address,
                DT_SONAME => library.soname = Some(value),
                _ => {}
            }
            // SAFETY: the entry was not the last.
            entry = unsafe { entry.add(1) };
        }
        (library.strings != 0 && library.symbols != 0 && library.gnu_hash != 0).then_some(library)
    }

    /// # Safety
    /// The library is still loaded.
    unsafe fn soname(&self) -> Option<&[u8]> {
        let offset = self.soname?;
        // SAFETY: an offset into the library's string table.
        Some(unsafe { CStr::from_ptr((self.strings + offset) as *const c_char) }.to_bytes())
    }

    /// # Safety
    /// The library is still loaded.
    unsafe fn find(&self, name: &CStr) -> usize {
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
                if entry | 1 == hash | 1 && self.matches(number as usize, name) {
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
    unsafe fn matches(&self, number: usize, name: &CStr) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let symbol = &*(self.symbols as *const Symbol).add(number);
            let hidden = self.versions != 0 && *(self.versions as *const u16).add(number) & HIDDEN_VERSION != 0;
            symbol.section != 0
                && symbol.info & 15 == STT_FUNC
                && !hidden
                && CStr::from_ptr((self.strings + symbol.name as usize) as *const c_char) == name
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)))
}
