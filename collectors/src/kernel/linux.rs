//! By /proc.

/// Name of a thread.
pub(crate) fn thread_name(pid: i32, tid: i32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(text.trim_end().to_owned())
}

/// The fields of /proc/PID/stat from the state on, which is field 3. The name before it may hold anything, and ends with the last
/// bracket.
pub(crate) fn stat_fields(text: &str) -> Option<Vec<&str>> {
    Some(text.rsplit_once(')')?.1.split_whitespace().collect())
}

/// Path of a process's executable; empty where it is not known.
pub(crate) fn executable(pid: i32) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/exe"));
    link.map_or_else(|_| String::new(), |path| path.to_string_lossy().into_owned())
}

/// Names of files that a process has mapped and that begin so. None: nobody may know.
pub(crate) fn mapped(pid: i32, prefix: &str) -> Option<Vec<String>> {
    match std::fs::read(format!("/proc/{pid}/maps")) {
        Ok(text) => Some(names(&text, prefix.as_bytes())),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        Err(_) => Some(Vec::new()),
    }
}

/// Names of files in whatever folder, there or removed, that begin so.
fn names(maps: &[u8], prefix: &[u8]) -> Vec<String> {
    let lines = maps.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b" (deleted)").unwrap_or(line));
    let names = lines.filter(|line| line.contains(&b'/')).filter_map(|line| line.rsplit(|byte| *byte == b'/').next());
    names.filter(|name| name.starts_with(prefix)).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// The pids of all processes in sight.
pub fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_mapped_a_file_is_known_by_its_name() {
        let maps = b"7f00-7f01 rw-s 00000000 00:1a 77                         /run/user/0/s/seg-12-345\n\
            7f02-7f03 rw-s 00000000 00:1a 78                         /dev/shm/seg-12-9 (deleted)\n\
            7f04-7f05 rw-p 00000000 00:00 0 \n7f06-7f07 rw-p 00000000 00:00 0                          [heap]\n";
        assert_eq!(names(maps, b"seg-"), ["seg-12-345", "seg-12-9"]);
        let own = std::env::current_exe().unwrap();
        let (pid, name) = (std::process::id() as i32, own.file_name().unwrap().to_str().unwrap());
        assert!(mapped(pid, name).is_some_and(|names| !names.is_empty() && names.iter().all(|found| found == name)));
        assert_eq!(mapped(pid, "seg-1-2"), Some(Vec::new()));
        assert!(processes().contains(&std::process::id()));
    }
}
