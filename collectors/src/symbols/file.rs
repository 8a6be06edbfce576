//! What one program or library says about the addresses in it: symbols, and lines where it has debugging information.
//!
//! Symbols are `.symtab` and `.dynsym`; an address between two symbols belongs to neither. Lines are DWARF's, in the file
//! itself or in the one that was installed apart (`debug_file.rs`), and not read when they are larger than
//! [`MOST_DEBUG_BYTES`] or compressed.

use std::borrow::Cow;

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{EndianRcSlice, RunTimeEndian};
use object::read::{ReadCache, elf::ElfFile64};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::debug_file;
use crate::bindings::ByHandle;

type Reader = EndianRcSlice<RunTimeEndian>;
pub(super) type Elf<'a> = ElfFile64<'a, Endianness, &'a ReadCache<fs::File>>;

/// More debugging information is not read: libraries with gigabytes of it exist.
const MOST_DEBUG_BYTES: u64 = 256 << 20;
/// More symbols are not read.
const MOST_SYMBOLS: usize = 4 << 20;

/// A function that stands at an address, and where in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    /// Mangled; empty when there is no symbol.
    pub(crate) function: Arc<str>,
    pub(crate) file: Option<Arc<str>>,
    pub(crate) line: Option<u32>,
}

struct Symbol {
    start: u64,
    end: u64,
    /// Where its name stands in [`File::names`].
    name: (u32, u32),
}

/// A program or library.
pub(super) struct File {
    symbols: Vec<Symbol>,
    names: Vec<u8>,
    lines: Option<addr2line::Context<Reader>>,
    known: ByHandle<Vec<Site>>,
}

impl File {
    /// Reads the file that a process sees at `path` below `root`, and its debugging information, which for a build id may be
    /// asked for elsewhere. None: it is no ELF file of 64 bits, or cannot be read.
    pub(super) fn read(root: &Path, path: &Path, ask: &mut impl FnMut(&[u8]) -> Option<std::fs::File>) -> Option<File> {
        let cache = ReadCache::new(debug_file::open(&debug_file::inside(root, path))?);
        let elf = Elf::parse(&cache).ok()?;
        let mut file = File { symbols: Vec::new(), names: Vec::new(), lines: None, known: ByHandle::default() };
        file.add_symbols(&elf);
        file.lines = debug_information(&elf);
        if file.lines.is_none()
            && let Some(apart) = debug_file::find(&elf, root, path).or_else(|| ask(elf.build_id().ok().flatten()?))
        {
            let cache = ReadCache::new(apart);
            if let Ok(elf) = Elf::parse(&cache) {
                file.add_symbols(&elf);
                file.lines = debug_information(&elf);
            }
        }
        file.symbols.sort_by_key(|symbol| (symbol.start, symbol.end));
        Some(file)
    }

    fn add_symbols(&mut self, elf: &Elf<'_>) {
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            let function = matches!(symbol.kind(), SymbolKind::Text) && symbol.is_definition();
            let Ok(name) = symbol.name_bytes() else { continue };
            // .symtab has versions in its names.
            let name = name.split(|byte| *byte == b'@').next().unwrap_or_default();
            if !function || name.is_empty() || self.symbols.len() >= MOST_SYMBOLS {
                continue;
            }
            let place = (self.names.len() as u32, name.len() as u32);
            self.names.extend_from_slice(name);
            let end = symbol.address().saturating_add(symbol.size().max(1));
            self.symbols.push(Symbol { start: symbol.address(), end, name: place });
        }
    }

    /// What stands at an address: several functions where some were inlined, innermost first.
    pub(super) fn find(&mut self, address: u64) -> &[Site] {
        if !self.known.contains_key(&address) {
            let sites = self.look_up(address);
            self.known.insert(address, sites);
        }
        self.known.get(&address).map_or(&[], Vec::as_slice)
    }

    fn look_up(&self, address: u64) -> Vec<Site> {
        let symbol = self.symbol(address);
        // No function stands at the very last address, and addr2line adds one to it.
        let lines = self.lines.as_ref().filter(|_| address < u64::MAX);
        let mut sites = lines.map_or_else(Vec::new, |lines| inlined(lines, address));
        if sites.is_empty() {
            sites.push(Site::default());
        }
        if let Some(outermost) = sites.last_mut()
            && let Some(symbol) = symbol
        {
            outermost.function = symbol.into();
        }
        sites
    }

    fn symbol(&self, address: u64) -> Option<String> {
        let until = self.symbols.partition_point(|symbol| symbol.start <= address);
        // Symbols may lie inside others: of those that hold the address, the last to begin.
        let holds = |symbol: &&Symbol| address < symbol.end;
        let symbol = self.symbols[..until].iter().rev().take(16).find(holds)?;
        let (at, bytes) = (symbol.name.0 as usize, symbol.name.1 as usize);
        self.names.get(at..at + bytes).map(|name| String::from_utf8_lossy(name).into_owned())
    }
}

fn inlined(lines: &addr2line::Context<Reader>, address: u64) -> Vec<Site> {
    let mut sites = Vec::new();
    let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else { return sites };
    while let Ok(Some(frame)) = frames.next() {
        let name = frame.function.as_ref().and_then(|f| f.raw_name().ok()).map(Cow::into_owned);
        let location = frame.location;
        sites.push(Site {
            function: name.unwrap_or_default().into(),
            file: location.as_ref().and_then(|l| l.file).map(Arc::from),
            line: location.and_then(|l| l.line),
        });
        if sites.len() >= 64 {
            break;
        }
    }
    sites
}

fn debug_information(elf: &Elf<'_>) -> Option<addr2line::Context<Reader>> {
    let sections = elf.sections().filter(|s| s.name().is_ok_and(|name| name.starts_with(".debug_")));
    let bytes: u64 = sections.map(|s| s.size()).sum();
    if elf.section_by_name(".debug_info").is_none() || bytes > MOST_DEBUG_BYTES {
        return None;
    }
    let load = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
        let section = elf.section_by_name(id.name());
        let plain = section
            .filter(|s| s.compressed_file_range().is_ok_and(|range| range.format == object::CompressionFormat::None));
        let data = plain.and_then(|s| s.data().ok()).unwrap_or(&[]);
        Ok(EndianRcSlice::new(Rc::from(data), RunTimeEndian::Little))
    };
    addr2line::Context::from_dwarf(gimli::Dwarf::load(load).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    const SOURCE: &str = "static __attribute__((noinline)) int hidden(int n) {\n    return n * 3;\n}\n\
        int seen(int n) { return hidden(n) + 1; }\n";

    /// A library whose symbols and lines were put into `libx.debug`, as distributions do, in a folder that is a process's root.
    struct Stripped {
        root: PathBuf,
        /// Address of `hidden`.
        hidden: u64,
    }

    impl Stripped {
        fn new(name: &str) -> Stripped {
            let root = std::env::temp_dir().join(format!("gputrace-debuglink-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(root.join("opt/lib")).unwrap();
            fs::write(root.join("opt/lib/x.c"), SOURCE).unwrap();
            let run = |line: &str| {
                let mut words = line.split(' ');
                let mut command = Command::new(words.next().unwrap());
                assert!(command.args(words).current_dir(root.join("opt/lib")).status().expect("binutils").success());
            };
            run("cc -g -O1 -shared -fPIC -Wl,--build-id=none x.c -o libx.so");
            let cache = ReadCache::new(fs::File::open(root.join("opt/lib/libx.so")).unwrap());
            let elf = Elf::parse(&cache).unwrap();
            let hidden = elf.symbols().find(|symbol| symbol.name() == Ok("hidden")).unwrap().address();
            run("objcopy --only-keep-debug libx.so libx.debug");
            run("objcopy --strip-all --add-gnu-debuglink=libx.debug libx.so");
            Stripped { root, hidden }
        }

        fn find(&self) -> Site {
            let mut file = File::read(&self.root, Path::new("/opt/lib/libx.so"), &mut |_| None).unwrap();
            file.find(self.hidden)[0].clone()
        }

        fn move_to(&self, folder: &str) {
            fs::create_dir_all(self.root.join(folder)).unwrap();
            fs::rename(self.root.join("opt/lib/libx.debug"), self.root.join(folder).join("libx.debug")).unwrap();
        }
    }

    impl Drop for Stripped {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn a_stripped_library_is_read_by_the_file_that_its_debuglink_names() {
        for folder in ["opt/lib", "opt/lib/.debug", "usr/lib/debug/opt/lib"] {
            let library = Stripped::new(&folder.replace('/', "-"));
            if folder != "opt/lib" {
                library.move_to(folder);
            }
            let site = library.find();
            assert_eq!(&*site.function, "hidden", "{folder}");
            assert!(site.line.is_some_and(|line| (1..=3).contains(&line)), "{site:?}");
            assert!(site.file.unwrap().ends_with("x.c"));
        }
    }

    #[test]
    fn a_file_of_another_sum_is_of_another_build() {
        let library = Stripped::new("sum");
        let path = library.root.join("opt/lib/libx.debug");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(library.find(), Site::default());
    }
}
