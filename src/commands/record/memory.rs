//! Whether the machine has the memory that the options ask for: the kernel's own word for it names neither.

use crate::render::bytes;

/// Refuses rings that are larger than all of the machine's memory; says what is wrong.
pub(in crate::commands) fn check(wanted: u64) -> Result<(), String> {
    match of_machine() {
        Some(there) if wanted > there => Err(refused(wanted, there)),
        _ => Ok(()),
    }
}

fn refused(wanted: u64, there: u64) -> String {
    let (wanted, there) = (bytes(wanted as f64), bytes(there as f64));
    format!("--segment-memory asks for {wanted} for each process, and this machine has {there} of memory; ask for less")
}

/// Bytes of memory of this machine, where the kernel says it.
#[cfg(target_os = "macos")]
fn of_machine() -> Option<u64> {
    let (mut names, mut memory, mut bytes) = ([libc::CTL_HW, libc::HW_MEMSIZE], 0u64, size_of::<u64>());
    let into = (&raw mut memory).cast();
    // SAFETY: two names; the call fills at most the bytes that it is told.
    let done = unsafe { libc::sysctl(names.as_mut_ptr(), 2, into, &mut bytes, std::ptr::null_mut(), 0) } == 0;
    (done && bytes == size_of::<u64>()).then_some(memory)
}

/// Bytes of memory of this machine, where the kernel says it.
#[cfg(target_os = "linux")]
fn of_machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_and_what_is_there_are_both_named() {
        let there = of_machine().expect("the kernel says it");
        assert!(check(there).is_ok());
        let text = check(there + 1).expect_err("one byte too many");
        assert!(text.starts_with("--segment-memory asks for "), "{text}");
        assert_eq!(
            refused(100 << 40, 24 << 30),
            "--segment-memory asks for 100 TiB for each process, and this machine has 24.0 GiB of memory; ask for less"
        );
    }
}
