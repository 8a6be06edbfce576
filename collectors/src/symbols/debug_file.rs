//! Debugging information that was installed apart from its library: by build id, or by the name and sum of `.gnu_debuglink`.
//!
//! Each folder is looked at as the process sees it first, then as we do. [`super::debuginfod`] asks others.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use object::Object;

use super::file::Elf;

/// Larger files are not summed up: their debugging information would be too large to be read anyway.
const MOST_LINKED_BYTES: u64 = 1 << 30;
const FOLDER: &str = "/usr/lib/debug";

/// Opens a file if it is a plain one. To open a pipe or a device, whose path a traced process may have made up, could take for ever.
pub(crate) fn open(path: &Path) -> Option<fs::File> {
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// A path of the process as we reach it.
pub(super) fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The file of debugging information of the library at `path`, which the process sees below `root`.
pub(super) fn find(elf: &Elf<'_>, root: &Path, path: &Path) -> Option<fs::File> {
    let roots = [root, Path::new("/")];
    let by_id = by_build_id(elf).and_then(|path| roots.iter().find_map(|root| open(&inside(root, &path))));
    by_id.or_else(|| {
        let (name, sum) = elf.gnu_debuglink().ok()??;
        let paths = linked(path, name)?;
        let all = roots.iter().flat_map(|root| paths.iter().map(move |path| inside(root, path)));
        all.filter_map(|path| Some((open(&path)?, path)))
            .find_map(|(file, path)| (crc(file)? == sum).then(|| open(&path))?)
    })
}

fn by_build_id(elf: &Elf<'_>) -> Option<PathBuf> {
    let (first, rest) = elf.build_id().ok()??.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(PathBuf::from(format!("{FOLDER}/.build-id/{first:02x}/{rest}.debug")))
}

/// Where a linked file may lie. None: its name is more than a name.
fn linked(path: &Path, name: &[u8]) -> Option<[PathBuf; 3]> {
    let name = Path::new(OsStr::from_bytes(name));
    let mut parts = name.components();
    let plain =
        matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name.as_os_str());
    let folder = path.parent().filter(|_| plain)?;
    Some([folder.join(name), folder.join(".debug").join(name), inside(Path::new(FOLDER), folder).join(name)])
}

/// The sum that `.gnu_debuglink` has: CRC-32 as zlib computes it.
fn crc(mut file: fs::File) -> Option<u32> {
    if file.metadata().ok()?.len() > MOST_LINKED_BYTES {
        return None;
    }
    let (mut sum, mut buffer) = (!0u32, vec![0; 1 << 16]);
    loop {
        let bytes = file.read(&mut buffer).ok()?;
        if bytes == 0 {
            return Some(!sum);
        }
        sum = buffer[..bytes].iter().fold(sum, |sum, byte| sum >> 8 ^ CRC[(sum as u8 ^ byte) as usize]);
    }
}

/// The sums of single bytes.
const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < table.len() {
        let (mut sum, mut bit) = (n as u32, 0);
        while bit < 8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
            bit += 1;
        }
        table[n] = sum;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_elsewhere_is_not_followed() {
        let paths = linked(Path::new("/opt/lib/libx.so"), b"libx.debug").unwrap();
        let expected = ["/opt/lib/libx.debug", "/opt/lib/.debug/libx.debug", "/usr/lib/debug/opt/lib/libx.debug"];
        assert_eq!(paths, expected.map(PathBuf::from));
        for name in [&b"../shadow"[..], b"/etc/shadow", b"..", b".", b"", b"a/b", b"a/"] {
            assert_eq!(linked(Path::new("/opt/lib/libx.so"), name), None, "{}", String::from_utf8_lossy(name));
        }
    }
}
