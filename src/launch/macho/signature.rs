//! What a code signature says that matters to macOS's loader: flags of its code directory, and two entitlements.
//!
//! A signature is a blob of blobs, big-endian as Apple's <kern/cs_blobs.h> has it. Whether it is valid is the kernel's
//! business; here it is only asked what it claims.

use object::read::ReadRef;
use quick_xml::Reader;
use quick_xml::events::Event;

const SUPER_BLOB: u32 = 0xfade_0cc0;
const CODE_DIRECTORY: u32 = 0xfade_0c02;
const ENTITLEMENTS: u32 = 0xfade_7171;
/// Slots of code directories with other hashes; the kernel takes one of them.
const DIRECTORY_SLOTS: [std::ops::Range<u32>; 2] = [0..1, 0x1000..0x1005];
const ENTITLEMENTS_SLOT: u32 = 5;

/// Flags of a code directory.
const CS_RESTRICT: u32 = 0x800;
const CS_REQUIRE_LV: u32 = 0x2000;
const CS_RUNTIME: u32 = 0x1_0000;

const ALLOW_DYLD: &[u8] = b"com.apple.security.cs.allow-dyld-environment-variables";
const DISABLE_VALIDATION: &[u8] = b"com.apple.security.cs.disable-library-validation";

/// Sizes beyond which a signature is taken for a liar. An application's own has up to a dozen blobs.
const MOST_BLOBS: u32 = 64;
const MOST_ENTITLEMENT_BYTES: u64 = 1 << 20;

/// What is signed to be so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signature {
    flags: u32,
    /// It is entitled to DYLD variables despite its hardened runtime.
    pub(crate) allows_dyld: bool,
    /// It is entitled to libraries that others have signed.
    pub(crate) disables_validation: bool,
}

impl Signature {
    /// Reads the blobs in `bytes` bytes at `at`; what cannot be read says nothing.
    pub(super) fn read<'data, R: ReadRef<'data>>(data: R, at: u64, bytes: u64) -> Signature {
        let mut signature = Signature::default();
        let end = at.saturating_add(bytes);
        let word = |at: u64| be32(data, at, end);
        if word(at) != Some(SUPER_BLOB) {
            return signature;
        }
        let count = word(at + 8).unwrap_or(0).min(MOST_BLOBS);
        for row in 0..u64::from(count) {
            let (Some(slot), Some(offset)) = (word(at + 12 + row * 8), word(at + 16 + row * 8)) else { break };
            let blob = at + u64::from(offset);
            match word(blob) {
                Some(CODE_DIRECTORY) if DIRECTORY_SLOTS.iter().any(|slots| slots.contains(&slot)) => {
                    signature.flags |= word(blob + 12).unwrap_or(0);
                }
                Some(ENTITLEMENTS) if slot == ENTITLEMENTS_SLOT => {
                    let length = u64::from(word(blob + 4).unwrap_or(0)).min(end - blob).min(MOST_ENTITLEMENT_BYTES);
                    let text = data.read_bytes_at(blob + 8, length.saturating_sub(8)).unwrap_or_default();
                    signature.allows_dyld = is_granted(text, ALLOW_DYLD);
                    signature.disables_validation = is_granted(text, DISABLE_VALIDATION);
                }
                _ => {}
            }
        }
        signature
    }

    /// It asked for the hardened runtime, in which the loader takes no DYLD variables unless entitled to.
    pub(crate) fn is_hardened(self) -> bool {
        self.flags & CS_RUNTIME != 0
    }

    /// It asked the loader to be cautious.
    pub(crate) fn is_restricted(self) -> bool {
        self.flags & CS_RESTRICT != 0
    }

    /// Only libraries of Apple and of its own team are mapped into it.
    pub(crate) fn validates_libraries(self) -> bool {
        self.flags & CS_REQUIRE_LV != 0 || self.is_hardened() && !self.disables_validation
    }
}

/// The big-endian word at `at`, which lies before `end`.
fn be32<'data, R: ReadRef<'data>>(data: R, at: u64, end: u64) -> Option<u32> {
    let bytes = data.read_bytes_at(at, 4).ok().filter(|_| at.checked_add(4).is_some_and(|after| after <= end))?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Whether this property list's outermost dictionary says `<key>NAME</key> <true/>`.
fn is_granted(text: &[u8], name: &[u8]) -> bool {
    let mut reader = Reader::from_reader(text);
    let (mut open, mut named) = (Vec::new(), false);
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag) | Event::Empty(tag)) if named => return tag.name().as_ref() == b"true",
            Ok(Event::Start(tag)) => open.push(tag.name().as_ref().to_owned()),
            Ok(Event::End(_)) => _ = open.pop(),
            Ok(Event::Text(text)) => {
                let path: Vec<&[u8]> = open.iter().map(Vec::as_slice).collect();
                let is_key = matches!(path.as_slice(), [b"plist", b"dict", b"key"] | [b"dict", b"key"]);
                named |= is_key && text.trim_ascii() == name;
            }
            Ok(Event::Eof) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entitlement_counts_only_where_it_is_true() {
        let name = b"com.apple.security.cs.allow-dyld-environment-variables";
        let text = |value: &str| format!("<dict><key>{}</key>\n\t{value}</dict>", String::from_utf8_lossy(name));
        assert!(is_granted(text("<true/>").as_bytes(), name));
        assert!(!is_granted(text("<false/>").as_bytes(), name));
        assert!(!is_granted(text("").as_bytes(), name));
        assert!(!is_granted(b"", name));
        assert!(is_granted(text("<!-- as Apple's example has it --> <true></true>").as_bytes(), name));
        assert!(!is_granted(text("<trueish/>").as_bytes(), name));
        let whole = text("<true/>");
        let inside = |before: &str, after: &str| format!("<plist><dict>{before}{whole}{after}</dict></plist>");
        assert!(is_granted(format!("<?xml version=\"1.0\"?><plist>{whole}</plist>").as_bytes(), name));
        for (before, after) in [("<!--", "-->"), ("<key>a</key><string>", "</string>"), ("<key>a</key>", "")] {
            assert!(!is_granted(inside(before, after).as_bytes(), name), "{before}");
        }
    }

    #[test]
    fn a_blob_that_leads_out_of_the_signature_says_nothing() {
        let word = |n: u32| n.to_be_bytes();
        let blob = |offset: u32| [SUPER_BLOB, 20, 1, 0, offset].map(word).concat();
        let directory = [CODE_DIRECTORY, 44, 0x20400, CS_RUNTIME].map(word).concat();
        let inside = [blob(20), directory.clone()].concat();
        let read = |bytes: &[u8], length| Signature::read(bytes, 0, length);
        assert!(read(&inside, inside.len() as u64).is_hardened());
        assert_eq!(read(&inside, 20), Signature::default());
        for offset in [21, 40, u32::MAX] {
            let outside = [blob(offset), directory.clone()].concat();
            assert_eq!(read(&outside, u64::MAX), Signature::default(), "{offset}");
        }
    }
}
