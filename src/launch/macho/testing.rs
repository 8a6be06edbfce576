//! Mach-O programs built in memory, as small as their readers let them be.

use super::Cpu;

pub(crate) const ALLOW_DYLD: &str = "com.apple.security.cs.allow-dyld-environment-variables";
pub(crate) const DISABLE_VALIDATION: &str = "com.apple.security.cs.disable-library-validation";

const HEADER_BYTES: usize = 32;
const SEGMENT_COMMAND_BYTES: usize = 72 + 80;
const SIGNATURE_COMMAND_BYTES: usize = 16;

/// A program for one processor.
#[derive(Clone)]
pub(crate) struct Built {
    cpu: Cpu,
    flags: Option<u32>,
    entitlements: Vec<&'static str>,
    restricted: bool,
}

impl Built {
    pub(crate) fn new(cpu: Cpu) -> Built {
        Built { cpu, flags: None, entitlements: Vec::new(), restricted: false }
    }

    /// With a signature whose code directory has these flags.
    pub(crate) fn flags(mut self, flags: u32) -> Built {
        self.flags = Some(flags);
        self
    }

    /// Its signature grants these.
    pub(crate) fn entitled(mut self, names: &[&'static str]) -> Built {
        self.entitlements = names.to_vec();
        self
    }

    /// With a segment __RESTRICT.
    pub(crate) fn restricted(mut self) -> Built {
        self.restricted = true;
        self
    }

    /// Bytes of its header and load commands.
    pub(crate) fn bytes_of_commands(&self) -> usize {
        HEADER_BYTES
            + usize::from(self.restricted) * SEGMENT_COMMAND_BYTES
            + usize::from(self.flags.is_some()) * SIGNATURE_COMMAND_BYTES
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (kind, subtype) = numbers(self.cpu);
        let commands = u32::from(self.restricted) + u32::from(self.flags.is_some());
        let size = (self.bytes_of_commands() - HEADER_BYTES) as u32;
        let mut bytes = little(&[0xfeed_facf, kind, subtype, 2, commands, size, 0, 0]);
        if self.restricted {
            bytes.extend(little(&[0x19, SEGMENT_COMMAND_BYTES as u32]));
            bytes.extend(name("__RESTRICT"));
            bytes.extend(little(&[0, 0, 0, 0, 0, 0, 0, 0, 7, 5, 1, 0]));
            bytes.extend(name("__restrict"));
            bytes.extend(name("__RESTRICT"));
            bytes.extend(little(&[0; 12]));
        }
        if let Some(flags) = self.flags {
            let signature = self.signature(flags);
            bytes.extend(little(&[0x1d, SIGNATURE_COMMAND_BYTES as u32]));
            bytes.extend(little(&[self.bytes_of_commands() as u32, signature.len() as u32]));
            bytes.extend(signature);
        }
        bytes
    }

    fn signature(&self, flags: u32) -> Vec<u8> {
        let directory = big(&[0xfade_0c02, 44, 0x2_0400, flags, 0, 0, 0, 0, 0, 0, 0]);
        let granted = self.entitlements.iter().map(|name| format!("\t<key>{name}</key>\n\t<true/>\n"));
        let list = format!("<plist version=\"1.0\">\n<dict>\n{}</dict>\n</plist>\n", granted.collect::<String>());
        let entitlements = [big(&[0xfade_7171, 8 + list.len() as u32]), list.into_bytes()].concat();
        let (first, second) = (28, 28 + directory.len() as u32);
        let length = second + entitlements.len() as u32;
        [big(&[0xfade_0cc0, length, 2, 0, first, 5, second]), directory, entitlements].concat()
    }
}

/// A universal file of these, in its 32-bit or 64-bit form.
pub(crate) fn fat(slices: &[(Cpu, &[u8])], wide: bool) -> Vec<u8> {
    let row = if wide { 32 } else { 20 };
    let mut at = (8 + row * slices.len()).next_multiple_of(64);
    let mut bytes = big(&[if wide { 0xcafe_babf } else { 0xcafe_babe }, slices.len() as u32]);
    let mut contents = Vec::new();
    for (cpu, slice) in slices {
        let (kind, subtype) = numbers(*cpu);
        let (offset, length) = (at as u32, slice.len() as u32);
        bytes.extend(if wide {
            big(&[kind, subtype, 0, offset, 0, length, 6, 0])
        } else {
            big(&[kind, subtype, offset, length, 6])
        });
        contents.push((at, *slice));
        at = (at + slice.len()).next_multiple_of(64);
    }
    for (at, slice) in contents {
        bytes.resize(at, 0);
        bytes.extend(slice);
    }
    bytes
}

/// The begin of a class of Java 8, whose first word is that of a universal file.
pub(crate) fn java_class() -> Vec<u8> {
    [big(&[0xcafe_babe, 52]), vec![0; 64]].concat()
}

fn numbers(cpu: Cpu) -> (u32, u32) {
    match cpu {
        Cpu::Arm64 => (0x0100_000c, 0),
        Cpu::Arm64e => (0x0100_000c, 0x8000_0002),
        Cpu::X86_64 => (0x0100_0007, 3),
        Cpu::Other(kind) => (kind, 0),
    }
}

fn little(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn big(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A name as segments have it.
fn name(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}
