//! What the process has mapped, by /proc/PID/maps.

use std::fs;
use std::io;
use std::ops::Range;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    /// From which byte of its file on.
    offset: u64,
    pub(super) executable: bool,
    /// Its file; or what the kernel calls it; or nothing.
    pub(super) path: String,
    /// Device and number of the file.
    pub(super) file: String,
}

/// All mappings, in the order of their addresses.
pub(super) fn read(pid: i32) -> io::Result<Vec<Mapping>> {
    Ok(fs::read_to_string(format!("/proc/{pid}/maps"))?.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let offset = number(words.next()?)?;
    let file = format!("{} {}", words.next()?, words.next()?);
    let path = words.next().unwrap_or_default().trim_start().to_owned();
    let executable = rights.as_bytes().get(2) == Some(&b'x');
    Some(Mapping { range: number(start)?..number(end)?, offset, executable, path, file })
}

/// The last part of a mapping's path, without what the kernel says of a file that is gone.
pub(super) fn name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// Beginnings of files that are mapped as libraries are, whose name is of this kind.
pub(super) fn beginnings<'a>(
    all: &'a [Mapping],
    wanted: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = &'a Mapping> {
    all.iter().filter(move |one| one.offset == 0 && one.path.starts_with('/') && wanted(name(&one.path)))
}

/// From where to where a file lies, by the mapping of its beginning: up to the last mapping of it that follows.
pub(super) fn extent(all: &[Mapping], first: &Mapping) -> Range<u64> {
    let same = all.iter().filter(|one| one.file == first.file && one.range.start >= first.range.start);
    first.range.start..same.map(|one| one.range.end).max().unwrap_or(first.range.end)
}

/// A free place of so many bytes that is no further from any byte of `around` than `reach`; the nearest one.
pub(super) fn gap(all: &[Mapping], around: &Range<u64>, bytes: u64, reach: u64) -> Option<u64> {
    // Room beside it for what grows: stacks, the heap.
    const MARGIN: u64 = 1 << 20;
    const LOWEST: u64 = 1 << 20;
    const HIGHEST: u64 = (1 << 47) - (1 << 20);
    let ends = [LOWEST].into_iter().chain(all.iter().map(|one| one.range.end));
    let starts = all.iter().map(|one| one.range.start).chain([HIGHEST]);
    let fits = |from: u64, to: u64| to.saturating_sub(from) >= bytes + 2 * MARGIN;
    let places = ends
        .zip(starts)
        .filter(|(from, to)| fits(*from, *to))
        .flat_map(|(from, to)| [(from + MARGIN).next_multiple_of(4096), (to - MARGIN - bytes) / 4096 * 4096]);
    let distance = |at: &u64| {
        (at + bytes)
            .abs_diff(around.start)
            .max(at.abs_diff(around.end))
            .max(at.abs_diff(around.start))
            .max((at + bytes).abs_diff(around.end))
    };
    places.filter(|at| distance(at) <= reach).min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(line: &str) -> Mapping {
        parse(line).unwrap()
    }

    #[test]
    fn a_line_says_what_is_mapped_where() {
        let one =
            mapping("7f10000-7f20000 r-xp 00001000 08:01 42                    /usr/lib/lib with space.so (deleted)");
        assert_eq!((one.range.clone(), one.offset, one.executable), (0x7f1_0000..0x7f2_0000, 0x1000, true));
        assert_eq!((name(&one.path), one.file.as_str()), ("lib with space.so", "08:01 42"));
        assert_eq!(mapping("7f10000-7f20000 rw-p 00000000 00:00 0 ").path, "");
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn a_library_reaches_to_its_last_mapping_and_a_place_near_it_is_free() {
        let all = [
            mapping("10000000-10001000 r--p 00000000 08:01 42 /l/libcuda.so.1"),
            mapping("10001000-10005000 r-xp 00001000 08:01 42 /l/libcuda.so.1"),
            mapping("10005000-20000000 rw-p 00000000 00:00 0"),
        ];
        let first = beginnings(&all, |name| name.starts_with("libcuda")).next().unwrap();
        let around = extent(&all, first);
        assert_eq!(around, 0x1000_0000..0x1000_5000);
        let at = gap(&all, &around, 0x10000, 1 << 30).unwrap();
        assert!(at + 0x10000 <= 0x1000_0000 && at > 0x0f00_0000, "{at:x}");
        assert_eq!(gap(&all, &around, 0x10000, 1 << 16), None);
    }
}
