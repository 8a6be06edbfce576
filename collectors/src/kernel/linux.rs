//! By /proc.

/// Name of a thread.
pub(crate) fn thread_name(pid: i32, tid: i32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(text.trim_end().to_owned())
}

/// Path of a process's executable; empty where it is not known.
pub(crate) fn executable(pid: i32) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/exe"));
    link.map_or_else(|_| String::new(), |path| path.to_string_lossy().into_owned())
}
