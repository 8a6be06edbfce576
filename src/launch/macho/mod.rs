//! Reads as much of a Mach-O file as decides whether macOS's loader will load the shim into it.
//!
//! Pure: bytes in (a slice, or a file that is read where it is looked at), processors and signatures out. Used on every
//! system, so that it is tested on Linux and `doctor` knows a program for macOS when it sees one. Everything in a file is
//! its author's word: a file that lies gives `None`, never a panic, and no length of it is believed beyond a bound. Whether
//! such a file begins as one of macOS does is a question of its own ([`claims_to_be`]).

mod signature;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;
use std::fs::File;
use std::path::Path;

use object::macho::{self, FatArch32, FatArch64, MachHeader32, MachHeader64};
use object::read::macho::{FatArch, LoadCommandVariant, MachHeader, MachOFatFile, Segment};
use object::read::{ReadCache, ReadRef};
use object::{BigEndian, LittleEndian, U32};

pub(crate) use signature::Signature;

/// Slices beyond which a file is taken for something else: Java's classes have the same first word, and their oldest
/// version is 45 where the number of slices stands.
const MOST_SLICES: usize = 30;
/// Major versions of Java's classes.
#[cfg(any(target_os = "linux", test))]
const JAVA_VERSIONS: std::ops::Range<u32> = 45..256;
/// Bytes of load commands beyond which a file is taken for a liar.
const MOST_COMMAND_BYTES: u32 = 4 << 20;

/// What a slice is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cpu {
    Arm64,
    /// Pointers are signed: another ABI, in which Apple's own programs are built.
    Arm64e,
    X86_64,
    Other(u32),
}

impl Cpu {
    fn of(kind: u32, subtype: u32) -> Cpu {
        match kind {
            macho::CPU_TYPE_ARM64 if subtype & !macho::CPU_SUBTYPE_MASK == macho::CPU_SUBTYPE_ARM64E => Cpu::Arm64e,
            macho::CPU_TYPE_ARM64 => Cpu::Arm64,
            macho::CPU_TYPE_X86_64 => Cpu::X86_64,
            other => Cpu::Other(other),
        }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cpu::Arm64 => f.write_str("arm64"),
            Cpu::Arm64e => f.write_str("arm64e"),
            Cpu::X86_64 => f.write_str("x86_64"),
            Cpu::Other(macho::CPU_TYPE_X86) => f.write_str("i386"),
            Cpu::Other(macho::CPU_TYPE_POWERPC) => f.write_str("PowerPC"),
            Cpu::Other(macho::CPU_TYPE_POWERPC64) => f.write_str("PowerPC, 64 bit"),
            Cpu::Other(number) => write!(f, "processor {number}"),
        }
    }
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Program,
    Library,
    /// A plug-in, which a program loads.
    Bundle,
    Object,
    Other,
}

impl Kind {
    fn of(filetype: u32) -> Kind {
        match filetype {
            macho::MH_EXECUTE => Kind::Program,
            macho::MH_DYLIB | macho::MH_DYLIB_STUB | macho::MH_FVMLIB => Kind::Library,
            macho::MH_BUNDLE => Kind::Bundle,
            macho::MH_OBJECT => Kind::Object,
            _ => Kind::Other,
        }
    }

    /// The word for it.
    #[cfg(target_os = "linux")]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Program => "a program",
            Kind::Library => "a library",
            Kind::Bundle => "a plug-in",
            Kind::Object => "an object file",
            Kind::Other => "a file",
        }
    }
}

/// The part of a file for one processor; most files have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) cpu: Cpu,
    pub(crate) kind: Kind,
    /// It has a segment __RESTRICT with a section __restrict, by which its linker asked the loader to be cautious.
    pub(crate) restricted: bool,
    /// What its signature says; that of an unsigned one says nothing.
    pub(crate) signature: Signature,
}

/// The slices of the file at `path`. None: it is no Mach-O file, or cannot be read.
pub(crate) fn read_file(path: &Path) -> Option<Vec<Slice>> {
    // Only a regular file is opened: a fifo would block.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    read(&ReadCache::new(File::open(path).ok()?))
}

/// Whether the file at `path` begins as a Mach-O or a universal file does, whatever follows: where it has no slices it is damaged.
#[cfg(target_os = "linux")]
pub(crate) fn claims_to_be(path: &Path) -> bool {
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    is_file && File::open(path).is_ok_and(|file| has_magic(&ReadCache::new(file)))
}

#[cfg(any(target_os = "linux", test))]
fn has_magic<'data, R: ReadRef<'data>>(data: R) -> bool {
    let word = |at| data.read_at::<U32<BigEndian>>(at).map(|word| word.get(BigEndian));
    match word(0) {
        Ok(macho::MH_MAGIC | macho::MH_CIGAM | macho::MH_MAGIC_64 | macho::MH_CIGAM_64 | macho::FAT_MAGIC_64) => true,
        // One of Java's classes has its version there: a minor one, then the major one.
        Ok(macho::FAT_MAGIC) => !word(4).is_ok_and(|count| JAVA_VERSIONS.contains(&(count & 0xffff))),
        _ => false,
    }
}

/// The slices of these bytes. None: they are no Mach-O file.
pub(crate) fn read<'data, R: ReadRef<'data>>(data: R) -> Option<Vec<Slice>> {
    match data.read_at::<U32<BigEndian>>(0).ok()?.get(BigEndian) {
        macho::FAT_MAGIC => read_fat::<FatArch32, R>(data),
        macho::FAT_MAGIC_64 => read_fat::<FatArch64, R>(data),
        _ => Some(vec![read_slice(data, 0)?]),
    }
}

fn read_fat<'data, Fat: FatArch, R: ReadRef<'data>>(data: R) -> Option<Vec<Slice>> {
    let count = data.read_at::<U32<BigEndian>>(4).ok()?.get(BigEndian) as usize;
    if count == 0 || count > MOST_SLICES {
        return None;
    }
    let arches = MachOFatFile::<Fat>::parse(data).ok()?.arches();
    // One that cannot be read says nothing of the others.
    let slices = arches.iter().filter_map(|arch| read_slice(data, arch.offset().into()).or_else(|| unknown(arch)));
    Some(slices.collect::<Vec<_>>()).filter(|slices| !slices.is_empty())
}

/// A slice of a processor that is not ours, of which nothing more is read.
fn unknown<Fat: FatArch>(arch: &Fat) -> Option<Slice> {
    let cpu = Cpu::of(arch.cputype(), arch.cpusubtype());
    matches!(cpu, Cpu::Other(_)).then_some(Slice::bare(cpu, Kind::Program))
}

impl Slice {
    /// One of which nothing more is read.
    fn bare(cpu: Cpu, kind: Kind) -> Slice {
        Slice { cpu, kind, restricted: false, signature: Signature::default() }
    }
}

/// The slice whose header stands at `offset`; offsets in it count from there.
fn read_slice<'data, R: ReadRef<'data>>(data: R, offset: u64) -> Option<Slice> {
    const ENDIAN: LittleEndian = LittleEndian;
    // The 32-bit processors that macOS had.
    if let Ok(header) = MachHeader32::<LittleEndian>::parse(data, offset)
        && header.is_little_endian()
    {
        let cpu = Cpu::of(header.cputype(ENDIAN), header.cpusubtype(ENDIAN));
        return Some(Slice::bare(cpu, Kind::of(header.filetype(ENDIAN))));
    }
    // PowerPC's, whose words begin with the high byte: both sizes have the same first fields.
    if let [Some(macho::MH_MAGIC | macho::MH_MAGIC_64), Some(cpu), Some(subtype), Some(filetype)] =
        [0, 4, 8, 12].map(|at| Some(data.read_at::<U32<BigEndian>>(offset.checked_add(at)?).ok()?.get(BigEndian)))
    {
        return Some(Slice::bare(Cpu::of(cpu, subtype), Kind::of(filetype)));
    }
    let header: &MachHeader64<LittleEndian> = MachHeader64::parse(data, offset).ok()?;
    if !header.is_little_endian() || header.sizeofcmds(ENDIAN) > MOST_COMMAND_BYTES {
        return None;
    }
    let cpu = Cpu::of(header.cputype(ENDIAN), header.cpusubtype(ENDIAN));
    let mut slice = Slice::bare(cpu, Kind::of(header.filetype(ENDIAN)));
    let mut commands = header.load_commands(ENDIAN, data, offset).ok()?;
    while let Some(command) = commands.next().ok()? {
        match command.variant() {
            Ok(LoadCommandVariant::Segment64(segment, sections)) if segment.name() == b"__RESTRICT" => {
                let sections = segment.sections(ENDIAN, sections).unwrap_or_default();
                slice.restricted |= sections.iter().any(|section| section.sectname.starts_with(b"__restrict\0"));
            }
            Ok(LoadCommandVariant::LinkeditData(link)) if command.cmd() == macho::LC_CODE_SIGNATURE => {
                let at = offset.checked_add(link.dataoff.get(ENDIAN).into())?;
                slice.signature = Signature::read(data, at, link.datasize.get(ENDIAN).into());
            }
            _ => {}
        }
    }
    Some(slice)
}

#[cfg(test)]
mod tests {
    use super::testing::{ALLOW_DYLD, Built, DISABLE_VALIDATION, fat, java_class};
    use super::*;
    use proptest::prelude::*;

    fn one(bytes: &[u8]) -> Slice {
        let slices = read(bytes).expect("a Mach-O file");
        assert_eq!(slices.len(), 1);
        slices[0]
    }

    #[test]
    fn each_processor_is_told_from_the_others() {
        for cpu in [Cpu::Arm64, Cpu::Arm64e, Cpu::X86_64, Cpu::Other(18)] {
            assert_eq!(one(&Built::new(cpu).bytes()).cpu, cpu);
        }
        let names = [Cpu::Arm64, Cpu::Arm64e, Cpu::X86_64].map(|cpu| cpu.to_string());
        assert_eq!(names, ["arm64", "arm64e", "x86_64"]);
    }

    #[test]
    fn what_is_no_program_is_called_what_it_is_and_the_first_macs_had_powerpc() {
        let whole = Built::new(Cpu::Arm64).bytes();
        for (filetype, kind) in
            [(1u8, Kind::Object), (2, Kind::Program), (6, Kind::Library), (8, Kind::Bundle), (10, Kind::Other)]
        {
            let mut bytes = whole.clone();
            bytes[12] = filetype;
            assert_eq!(one(&bytes).kind, kind);
        }
        for (magic, cpu, name) in [(0xce_u8, 18_u32, "PowerPC"), (0xcf, 0x0100_0012, "PowerPC, 64 bit")] {
            let words = [0xfeed_fa00 | u32::from(magic), cpu, 0, 2, 0, 0, 0, 0];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let slice = one(&bytes);
            assert_eq!((slice.cpu, slice.kind), (Cpu::Other(cpu), Kind::Program));
            assert_eq!(slice.cpu.to_string(), name);
        }
    }

    #[test]
    fn flags_and_entitlements_are_read_out_of_the_signature() {
        let plain = one(&Built::new(Cpu::Arm64).bytes());
        assert_eq!((plain.signature, plain.restricted), (Signature::default(), false));
        let hardened = one(&Built::new(Cpu::Arm64).flags(0x1_0002).bytes()).signature;
        assert!(hardened.is_hardened() && hardened.validates_libraries() && !hardened.allows_dyld);
        let allowed = Built::new(Cpu::X86_64).flags(0x1_0000).entitled(&[ALLOW_DYLD, DISABLE_VALIDATION]).bytes();
        let allowed = one(&allowed).signature;
        assert!(allowed.is_hardened() && allowed.allows_dyld && !allowed.validates_libraries());
        assert!(one(&Built::new(Cpu::Arm64).flags(0x800).bytes()).signature.is_restricted());
        assert!(one(&Built::new(Cpu::Arm64).flags(0x2000).bytes()).signature.validates_libraries());
        assert!(one(&Built::new(Cpu::Arm64).restricted().bytes()).restricted);
    }

    #[test]
    fn the_slices_of_a_universal_file_come_in_its_order() {
        let intel = Built::new(Cpu::X86_64).bytes();
        let apple = Built::new(Cpu::Arm64).flags(0x1_0000).bytes();
        for wide in [false, true] {
            let slices = read(&fat(&[(Cpu::X86_64, &intel), (Cpu::Arm64, &apple)], wide)[..]).expect("two slices");
            assert_eq!(slices.iter().map(|slice| slice.cpu).collect::<Vec<_>>(), [Cpu::X86_64, Cpu::Arm64]);
            assert_eq!(slices.map_hardened(), [false, true]);
        }
        let powerpc = fat(&[(Cpu::Other(18), b"no header of ours"), (Cpu::Arm64, &apple)], false);
        assert_eq!(read(&powerpc[..]).expect("two slices")[0].cpu, Cpu::Other(18));
        // One that is damaged hides none.
        let damaged = fat(&[(Cpu::X86_64, b"no header of ours"), (Cpu::Arm64, &apple)], false);
        assert_eq!(read(&damaged[..]).map(|slices| slices.map_hardened()), Some(vec![true]));
    }

    trait Hardened {
        fn map_hardened(&self) -> Vec<bool>;
    }

    impl Hardened for Vec<Slice> {
        fn map_hardened(&self) -> Vec<bool> {
            self.iter().map(|slice| slice.signature.is_hardened()).collect()
        }
    }

    #[test]
    fn a_file_is_read_as_its_bytes_are() {
        let folder = crate::launch::testing::Folder::new("macho");
        let bytes = Built::new(Cpu::Arm64).flags(0x1_0000).entitled(&[ALLOW_DYLD]).bytes();
        let file = folder.file("program", &bytes, 0o755);
        assert_eq!(read_file(&file), read(&bytes[..]));
        assert_eq!(read_file(folder.path()), None);
        assert_eq!(read_file(Path::new("/bin/sh")), None);
    }

    #[test]
    fn other_files_and_cut_ones_are_no_mach_o_files() {
        assert_eq!(read(&b""[..]), None);
        assert_eq!(read(&b"#!/bin/sh\n"[..]), None);
        assert_eq!(read(&java_class()[..]), None);
        let whole = Built::new(Cpu::Arm64).flags(0x1_0000).entitled(&[ALLOW_DYLD]).restricted().bytes();
        let header_and_commands = Built::new(Cpu::Arm64).restricted().flags(0).bytes_of_commands();
        for end in 0..header_and_commands {
            assert_eq!(read(&whole[..end]), None, "cut at {end}");
        }
        for end in header_and_commands..whole.len() {
            // What is left of the signature is read; the slice is what it is.
            assert_eq!(one(&whole[..end]).cpu, Cpu::Arm64, "cut at {end}");
        }
        let universal = fat(&[(Cpu::Arm64, &whole)], false);
        assert_eq!(read(&universal[..100]), None);
    }

    #[test]
    fn what_begins_as_one_and_cannot_be_read_is_damaged_and_no_class_of_javas() {
        let whole = Built::new(Cpu::Arm64).restricted().bytes();
        let universal = fat(&[(Cpu::Arm64, &whole)], false);
        let mut absurd = whole.clone();
        absurd[16..24].fill(0xff);
        let mut countless = universal.clone();
        countless[4..8].fill(0xff);
        for damaged in [&whole[..4], &whole[..40], &absurd, &universal[..4], &universal[..12], &countless] {
            assert!(has_magic(damaged) && read(damaged).is_none(), "{damaged:x?}");
        }
        let mut preview = java_class();
        preview[4..8].copy_from_slice(&[0xff, 0xff, 0, 65]);
        for other in [&java_class()[..], &preview, b"#!/bin/sh\n", b"\x7fELF\x02", b"", b"\xcf\xfa"] {
            assert!(!has_magic(other), "{other:x?}");
        }
        let old: Vec<u8> = [0xfeed_face_u32, 7, 3, 2, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(one(&old).cpu.to_string(), "i386");
    }

    proptest! {
        #[test]
        fn a_file_with_any_word_changed_is_read_to_an_end(at in 0usize..400, word in any::<u32>(), wide in any::<bool>()) {
            let slice = Built::new(Cpu::Arm64).flags(0x1_0000).entitled(&[ALLOW_DYLD]).restricted().bytes();
            for mut bytes in [slice.clone(), fat(&[(Cpu::Arm64, &slice)], wide)] {
                let at = at % (bytes.len() - 4);
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                let _ = read(&bytes[..]);
                bytes[at..at + 4].copy_from_slice(&(word & 0xffff).to_be_bytes());
                let _ = read(&bytes[..]);
            }
        }
    }
}
