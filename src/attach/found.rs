//! What of the process matters to attach: its libc, its driver, and the shim where an earlier attach left it.

use std::io;
use std::ops::Range;

use gputrace_abi::attach::SYMBOL;
use gputrace_abi::patches::{self, Patches};

use super::image::Image;
use super::maps::{self, Mapping};
use super::memory::Memory;
use super::patches::Slots;
use super::registers::SYSCALL;

/// The shim's name, as its file says it.
const SHIM: &str = "libgputrace.so";
const DRIVER: &str = "libcuda.so.1";

/// What of the process matters here.
pub(super) struct Found {
    pub(super) memory: Memory,
    pub(super) maps: Vec<Mapping>,
    libc: Image,
    /// An instruction that makes a system call.
    pub(super) syscall: u64,
    pub(super) driver: Image,
    /// From where to where that lies.
    pub(super) driver_at: Range<u64>,
}

/// A shim that is in the process.
pub(super) struct Shim {
    pub(super) image: Image,
    /// Which file it is of.
    pub(super) file: String,
    /// Where its [`gputrace_abi::attach::Attachment`] lies.
    pub(super) attachment: u64,
}

impl Found {
    /// Looks at the process. Err: why nothing can be done with it.
    pub(super) fn look(pid: i32) -> Result<Found, String> {
        let memory = Memory::open(pid).map_err(|error| format!("its memory cannot be read: {error}"))?;
        let maps = maps::read(pid).map_err(|error| format!("what it has mapped cannot be read: {error}"))?;
        let libc = maps::beginnings(&maps, |name| name == "libc.so.6" || name.starts_with("libc-2")).next();
        let libc = libc.ok_or("no glibc is mapped in it")?.clone();
        let (driver, driver_at) = driver(&memory, &maps).ok_or("the driver is not loaded in it")?;
        let code = maps.iter().filter(|one| one.executable && one.file == libc.file);
        let syscall = code.filter_map(|one| instruction(&memory, &one.range)).next();
        let syscall = syscall.ok_or("no system call was found in its libc")?;
        let libc = Image::read(&memory, libc.range.start).map_err(|error| error.to_string())?;
        Ok(Found { memory, maps, libc, syscall, driver, driver_at })
    }

    /// The shim, if it is there.
    pub(super) fn shim(&self, pid: i32) -> Option<Shim> {
        find_shim(&self.memory, &maps::read(pid).ok()?)
    }

    /// Where a function of libc is, in whatever library of it.
    pub(super) fn function(&self, name: &str) -> Option<u64> {
        let others = || maps::beginnings(&self.maps, |name| name.starts_with("libdl")).next();
        self.libc.function(name).or_else(|| Image::read(&self.memory, others()?.range.start).ok()?.function(name))
    }
}

/// The shim among these mappings.
pub(super) fn find_shim(memory: &Memory, maps: &[Mapping]) -> Option<Shim> {
    let named = |name: &str| name.contains("shim") || name.starts_with("libgputrace");
    maps::beginnings(maps, named).find_map(|one| {
        let image = Image::read(memory, one.range.start).ok().filter(|image| image.soname == SHIM)?;
        let attachment = image.variable(SYMBOL)?;
        Some(Shim { image, file: one.file.clone(), attachment })
    })
}

fn driver(memory: &Memory, maps: &[Mapping]) -> Option<(Image, Range<u64>)> {
    maps::beginnings(maps, |name| name.starts_with("libcuda.so") || name.contains("cuda")).find_map(|one| {
        let image = Image::read(memory, one.range.start).ok().filter(|image| image.soname == DRIVER)?;
        Some((image, maps::extent(maps, one)))
    })
}

/// Whether the driver is there.
pub(super) fn has_driver(memory: &Memory, maps: &[Mapping]) -> bool {
    driver(memory, maps).is_some()
}

fn instruction(memory: &Memory, code: &Range<u64>) -> Option<u64> {
    let bytes = memory.bytes(code.start, (code.end - code.start) as usize).ok()?;
    let mut windows = bytes.windows(SYSCALL.len()).enumerate();
    let step = if cfg!(target_arch = "aarch64") { 4 } else { 1 };
    windows.find(|(at, bytes)| at % step == 0 && *bytes == SYSCALL).map(|(at, _)| code.start + at as u64)
}

impl Shim {
    /// Whether gputrace attached it, and memory that is ours: for code, and for data.
    pub(super) fn attached(&self, memory: &Memory) -> io::Result<Option<[Range<u64>; 2]>> {
        let [head, code, code_bytes, data, data_bytes] = memory.words(self.attachment)?;
        let version = head as u32;
        if version != gputrace_abi::VERSION {
            return Err(io::Error::other("the shim that an earlier gputrace loaded into it is of another version"));
        }
        Ok((code != 0).then(|| [code..code + code_bytes, data..data + data_bytes]))
    }

    /// What the shim knows of the driver's functions.
    pub(super) fn slots(&self, memory: &Memory) -> io::Result<Slots> {
        let table = Patches::new();
        let bytes = memory.bytes(self.table()?, size_of::<Patches>())?;
        table.set_words(bytes.as_chunks().0.iter().map(|word| usize::from_le_bytes(*word)));
        Slots::read(memory, &table)
    }

    /// Where its table of the driver's functions lies.
    pub(super) fn table(&self) -> io::Result<u64> {
        self.image.variable(patches::SYMBOL).ok_or_else(|| io::Error::other("the shim in it has no table of functions"))
    }
}
