//! Where symbols of a running process's program and libraries lie, by the files that it has mapped.

use std::fs;
use std::path::Path;

use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, Object, ObjectSymbol};

use crate::symbols::open;

/// More mappings are not looked at.
const MOST_MAPPINGS: usize = 1 << 16;

/// A file that a process has mapped.
struct Mapped {
    path: String,
    /// Where its first byte lies.
    start: usize,
}

/// Addresses of symbols in a process: each in the first file that defines it, 0 for one that none does. `wanted` chooses among
/// the files by their name.
pub(super) fn find<const N: usize>(pid: i32, wanted: impl Fn(&str) -> bool, names: [&str; N]) -> [usize; N] {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let mut files: Vec<Mapped> = Vec::new();
    for mapped in maps.lines().take(MOST_MAPPINGS).filter_map(beginning) {
        let is_program = program.as_deref() == Some(Path::new(&mapped.path));
        let name = mapped.path.rsplit('/').next().unwrap_or_default();
        if (is_program || wanted(name)) && files.iter().all(|known| known.path != mapped.path) {
            // The loader looks into the program first.
            let at = if is_program { 0 } else { files.len() };
            files.insert(at, mapped);
        }
    }
    let mut found = [0; N];
    for file in files {
        if found.contains(&0) {
            look(pid, &file, names, &mut found);
        }
    }
    found
}

/// A line of /proc/PID/maps that maps the beginning of a file.
fn beginning(line: &str) -> Option<Mapped> {
    let (range, rest) = line.split_once(' ')?;
    let start = usize::from_str_radix(range.split_once('-')?.0, 16).ok()?;
    let mut words = rest.splitn(5, ' ');
    let offset = words.nth(1)?;
    let path = words.nth(2)?.trim_start();
    (offset.bytes().all(|digit| digit == b'0') && path.starts_with('/'))
        .then(|| Mapped { path: path.to_owned(), start })
}

fn look<const N: usize>(pid: i32, mapped: &Mapped, names: [&str; N], found: &mut [usize; N]) -> Option<()> {
    // The process may see another file of this name than we do.
    let cache = ReadCache::new(open(Path::new(&format!("/proc/{pid}/root{}", mapped.path)))?);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let bias = bias(&elf, mapped.start)?;
    for symbol in elf.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
        let Ok(name) = symbol.name_bytes() else { continue };
        if let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name).filter(|at| found[*at] == 0) {
            found[at] = bias.wrapping_add(symbol.address()) as usize;
        }
    }
    Some(())
}

/// Where the first byte of a file lies in a process.
pub(super) fn first_byte(pid: i32, path: &str) -> Option<usize> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().filter_map(beginning).find(|mapped| mapped.path == path).map(|mapped| mapped.start)
}

/// What is to be added to a file's addresses, where its first byte, which lies in its first segment, is mapped at `start`.
pub(super) fn bias<'a, R: ReadRef<'a>>(elf: &ElfFile64<'a, Endianness, R>, start: usize) -> Option<u64> {
    let endian = elf.endian();
    let mut headers = elf.elf_program_headers().iter();
    let first = headers.find(|header| header.p_type(endian) == PT_LOAD && header.p_offset(endian) == 0)?;
    Some((start as u64).wrapping_sub(first.p_vaddr(endian)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_lie_where_the_loader_says() {
        let pid = std::process::id() as i32;
        let libc = |name: &str| name.starts_with("libc.so") || name.starts_with("libc-");
        let [environ, none] = find(pid, libc, ["gnu_get_libc_version", "no_such_symbol"]);
        // SAFETY: a name that ends with a zero.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr()) } as usize;
        assert_eq!((environ, none), (expected, 0));
        assert_eq!(find(0, libc, ["environ"]), [0]);
    }

    #[test]
    fn only_the_beginning_of_a_file_says_where_it_lies() {
        let line = "7f00-7f10 r--p 00000000 08:01 42                         /usr/lib/lib with space.so";
        let mapped = beginning(line).unwrap();
        assert_eq!((mapped.start, mapped.path.as_str()), (0x7f00, "/usr/lib/lib with space.so"));
        assert!(beginning("7f10-7f20 r-xp 00001000 08:01 42 /usr/lib/x.so").is_none());
        assert!(beginning("7f10-7f20 rw-p 00000000 00:00 0 ").is_none());
        assert!(beginning("7f10-7f20 rw-p 00000000 00:00 0 [heap]").is_none());
        assert!(beginning("nonsense").is_none());
    }
}
