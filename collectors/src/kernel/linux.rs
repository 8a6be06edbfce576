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
