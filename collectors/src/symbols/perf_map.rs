//! Names of code that was made at run time, out of the files that compilers of such code write for perf: `/tmp/perf-PID.map`,
//! a line `START BYTES NAME` for each function, both numbers hexadecimal.
//!
//! The file is the process's own, by its root and its number in its innermost pid namespace. It is read where an address has no
//! name yet and as far as it grew since; a later line counts more than the earlier ones that it overlaps. Anybody may write
//! into /tmp: a file of another user, a link, or one that was written before the trace began is not taken.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// More of a file is not read.
const MOST_BYTES: u64 = 64 << 20;
/// More functions of a process are not kept.
const MOST_FUNCTIONS: usize = 1 << 20;
/// A longer line is none of a function.
const MOST_LINE_BYTES: usize = 4096;
/// Processes whose maps are kept.
const MOST_PROCESSES: usize = 64;
/// Times of files may lie so far behind the clock.
const COARSE: Duration = Duration::from_secs(1);

/// The maps of all processes.
pub(super) struct PerfMaps {
    /// /proc, but for tests.
    proc: PathBuf,
    /// When the trace began.
    since: SystemTime,
    processes: HashMap<i32, Map>,
}

#[derive(Default)]
struct Map {
    /// Device and inode of the file that was read.
    file: (u64, u64),
    /// How far it was read.
    read: u64,
    /// By start: end and name.
    functions: BTreeMap<u64, (u64, Box<str>)>,
}

impl PerfMaps {
    /// Of a trace that begins now.
    pub(super) fn new(proc: &Path) -> PerfMaps {
        let since = SystemTime::now().checked_sub(COARSE).unwrap_or(SystemTime::UNIX_EPOCH);
        PerfMaps { proc: proc.to_owned(), since, processes: HashMap::new() }
    }

    /// The function at an address of a process. Files are looked at only where `may_read`.
    pub(super) fn find(&mut self, pid: i32, address: u64, may_read: bool) -> Option<&str> {
        if may_read && self.processes.get(&pid).is_none_or(|map| map.find(address).is_none()) {
            if self.processes.len() >= MOST_PROCESSES && !self.processes.contains_key(&pid) {
                self.processes.clear();
            }
            let file = self.open(pid);
            let map = self.processes.entry(pid).or_default();
            if let Some(file) = file {
                map.read_on(file);
            }
        }
        self.processes.get(&pid)?.find(address)
    }

    fn open(&self, pid: i32) -> Option<fs::File> {
        let process = self.proc.join(pid.to_string());
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(path(&process, pid))
            .ok()?;
        let about = file.metadata().ok()?;
        // SAFETY: has no conditions.
        let us = unsafe { libc::geteuid() };
        let owner = fs::metadata(&process).map_or(us, |process| process.uid());
        let fresh = about.modified().is_ok_and(|modified| modified >= self.since);
        (about.is_file() && fresh && [0, us, owner].contains(&about.uid())).then_some(file)
    }
}

/// Where a process's map lies. Of one that is over only its number is known.
fn path(process: &Path, pid: i32) -> PathBuf {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = numbers.and_then(|numbers| numbers.split_whitespace().last()?.parse::<i32>().ok());
    match own {
        Some(own) => process.join(format!("root/tmp/perf-{own}.map")),
        None => PathBuf::from(format!("/tmp/perf-{pid}.map")),
    }
}

impl Map {
    fn find(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    /// Reads whole lines from where it stopped; all anew when the file is another one, or was cut.
    fn read_on(&mut self, mut file: fs::File) {
        let Ok(about) = file.metadata() else { return };
        let which = (about.dev(), about.ino());
        if which != self.file || about.len() < self.read {
            *self = Map { file: which, ..Map::default() };
        }
        let mut text = Vec::new();
        let room = MOST_BYTES.saturating_sub(self.read).min(about.len() - self.read);
        if room == 0
            || file.seek(SeekFrom::Start(self.read)).is_err()
            || file.take(room).read_to_end(&mut text).is_err()
        {
            return;
        }
        // The last line may still be written.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        text[..whole].split(|byte| *byte == b'\n').for_each(|line| self.add(line));
    }

    fn add(&mut self, line: &[u8]) {
        let Some((start, bytes, name)) = function(line) else { return };
        let end = start.saturating_add(bytes);
        let before = self.functions.range(..start).next_back().map(|(start, (end, _))| (*start, *end));
        let over = before.filter(|(_, end)| *end > start).map(|(start, _)| start);
        let covered: Vec<u64> = over.into_iter().chain(self.functions.range(start..end).map(|f| *f.0)).collect();
        for start in covered {
            self.functions.remove(&start);
        }
        if self.functions.len() < MOST_FUNCTIONS {
            self.functions.insert(start, (end, name.into()));
        }
    }
}

/// Start, bytes and name.
fn function(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = String::from_utf8_lossy(line.get(..line.len()).filter(|line| line.len() <= MOST_LINE_BYTES)?);
    let (start, rest) = line.trim_start().split_once(' ')?;
    let (bytes, name) = rest.trim_start().split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let name = name.trim();
    let (start, bytes) = (number(start)?, number(bytes)?);
    (bytes > 0 && start < u64::MAX && !name.is_empty()).then(|| (start, bytes, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A /proc with one process, 7, which calls itself 3.
    struct Proc(PathBuf);

    impl Proc {
        fn new(name: &str) -> Proc {
            let root = std::env::temp_dir().join(format!("gputrace-maps-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(root.join("7/root/tmp")).unwrap();
            fs::write(root.join("7/status"), "Name:\tx\nNSpid:\t7\t12\t3\n").unwrap();
            Proc(root)
        }

        fn map(&self) -> PathBuf {
            self.0.join("7/root/tmp/perf-3.map")
        }

        fn append(&self, text: &str) {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(self.map()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }
    }

    impl Drop for Proc {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_map_is_found_by_the_process_own_root_and_number_and_read_on_as_it_grows() {
        let proc = Proc::new("grows");
        let mut maps = PerfMaps::new(&proc.0);
        assert_eq!(maps.find(7, 0x1010, true), None);
        proc.append("1000 20 py::first:/a b.py\n0x2000 0x10 LazyCompile:*second");
        assert_eq!(maps.find(7, 0x1010, false), None, "it may not be read any more");
        assert_eq!(maps.find(7, 0x1010, true), Some("py::first:/a b.py"));
        assert_eq!(maps.find(7, 0x1020, true), None);
        assert_eq!(maps.find(7, 0x2000, true), None, "the line has no end yet");
        proc.append("\n");
        assert_eq!(maps.find(7, 0x200f, true), Some("LazyCompile:*second"));
        assert_eq!(maps.find(8, 0x200f, true), None);
    }

    #[test]
    fn a_later_function_takes_the_place_of_those_that_it_overlaps() {
        let proc = Proc::new("overlaps");
        proc.append("1000 100 a\n1100 100 b\n1200 100 c\n10f0 120 d\n");
        let mut maps = PerfMaps::new(&proc.0);
        let mut name = |address| maps.find(7, address, true).map(str::to_owned);
        assert_eq!(name(0x10f0).as_deref(), Some("d"));
        assert_eq!(name(0x120f).as_deref(), Some("d"));
        assert_eq!([name(0x1000), name(0x1280)], [None, None]);
    }

    #[test]
    fn a_file_that_was_cut_or_made_anew_is_read_from_its_begin() {
        let proc = Proc::new("cut");
        proc.append("1000 10 long_name_of_a_function\n");
        let mut maps = PerfMaps::new(&proc.0);
        assert_eq!(maps.find(7, 0x1000, true), Some("long_name_of_a_function"));
        fs::write(proc.map(), "3000 10 x\n").unwrap();
        assert_eq!(maps.find(7, 0x3000, true), Some("x"));
        assert_eq!(maps.find(7, 0x1000, true), None);
    }

    #[test]
    fn old_files_links_and_pipes_are_not_taken() {
        let proc = Proc::new("others");
        let plain = proc.0.join("plain");
        fs::write(&plain, "1000 10 x\n").unwrap();
        let mut maps = PerfMaps::new(&proc.0);
        std::os::unix::fs::symlink(&plain, proc.map()).unwrap();
        assert_eq!(maps.find(7, 0x1000, true), None, "a link");
        fs::remove_file(proc.map()).unwrap();
        let path = std::ffi::CString::new(proc.map().to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        assert_eq!(maps.find(7, 0x1000, true), None, "a pipe");
        fs::remove_file(proc.map()).unwrap();
        fs::rename(&plain, proc.map()).unwrap();
        let hour = Duration::from_secs(3600);
        fs::File::options().write(true).open(proc.map()).unwrap().set_modified(SystemTime::now() - hour).unwrap();
        assert_eq!(maps.find(7, 0x1000, true), None, "of an earlier process of this number");
        proc.append("2000 10 y\n");
        assert_eq!(maps.find(7, 0x1000, true), Some("x"));
    }

    #[test]
    fn any_bytes_are_a_map() {
        for line in ["", " ", "1 2", "1 2 ", "x 2 n", "1 x n", "1 0 n", "-1 2 n", "11112222333344445 1 n"] {
            assert_eq!(function(line.as_bytes()), None, "{line}");
        }
        assert_eq!(function(&[b"1 2 ", &[b'n'; MOST_LINE_BYTES][..]].concat()), None);
        assert_eq!(function(b"1 2 \xff"), Some((1, 2, "\u{fffd}".to_owned())));
        let mut map = Map::default();
        for line in ["ffffffffffffffff ffffffffffffffff end", "0 ffffffffffffffff all", "5 1 five"] {
            map.add(line.as_bytes());
        }
        assert_eq!((map.find(5), map.find(u64::MAX)), (Some("five"), None));
        let noise: Vec<u8> = (0..40_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        noise.split(|byte| *byte == b'\n').for_each(|line| map.add(line));
    }
}
