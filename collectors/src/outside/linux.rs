//! By /proc and process_vm_readv.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::native::Native;
use super::python::Python;
use super::{Outside, Seen, syscalls};
use crate::kernel;
use crate::tables::StackRow;

/// More threads are not looked at, and of more no native stack is read.
const MOST_THREADS: usize = 4096;
const MOST_NATIVE: usize = 256;
/// How often a native stack is read of a thread that wakes up meanwhile.
const TRIES: usize = 3;

/// Looks at a process.
pub(crate) fn look(pid: i32) -> Outside {
    let mut outside = Outside::default();
    // The process may call its threads by numbers of its own namespace; Python knows those.
    let mut numbers = BTreeMap::new();
    for tid in threads(pid) {
        let own = own_number(pid, tid).unwrap_or(tid);
        numbers.insert(own, tid);
        outside.threads.insert(own, Seen { name: name(pid, tid), kernel: state(pid, tid), frames: Vec::new() });
    }
    let memory = Memory::of(pid);
    outside.limit = limit(pid, &memory);
    if outside.limit.is_some() {
        return outside;
    }
    match Python::find(pid, &memory) {
        Ok(None) => {}
        Ok(Some(python)) => {
            for (tid, state) in python.threads(&memory, |tid| outside.threads.contains_key(&tid)) {
                if let Some(seen) = outside.threads.get_mut(&tid) {
                    seen.frames = python.frames(&memory, state);
                }
            }
        }
        Err(error) => outside.limit = Some(error),
    }
    let mut native = Native::of(pid);
    let without = outside.threads.values_mut().zip(numbers.values()).filter(|(seen, _)| seen.frames.is_empty());
    for (seen, tid) in without.take(MOST_NATIVE) {
        seen.frames = sleeping(&mut native, &memory, &format!("/proc/{pid}/task/{tid}/syscall"));
    }
    outside
}

/// Why nothing of a process can be read; none: it can, or there is nothing.
fn limit(pid: i32, memory: &Memory) -> Option<String> {
    let maps = match fs::read_to_string(format!("/proc/{pid}/maps")) {
        Ok(maps) => maps,
        Err(error) => return Some(format!("its memory map cannot be read ({error})")),
    };
    let first = maps.split('-').next().and_then(|start| usize::from_str_radix(start, 16).ok())?;
    memory.read(first, &mut [0]).err().map(|error| format!("its memory cannot be read ({error})"))
}

/// The native frames of a thread that slept while they were read; `registers`: the file that tells where.
fn sleeping(native: &mut Native, memory: &Memory, registers: &str) -> Vec<StackRow> {
    for _ in 0..TRIES {
        let before = fs::read_to_string(registers).unwrap_or_default();
        let Some((stack, counter)) = syscalls::registers(&before) else { continue };
        let frames = native.walk(memory, stack, counter);
        if fs::read_to_string(registers).is_ok_and(|after| after == before) {
            return frames;
        }
    }
    Vec::new()
}

/// Whether somebody has stopped the process: it does nothing, and does not hang.
pub(crate) fn is_stopped(pid: i32) -> bool {
    matches!(letter(&format!("/proc/{pid}/stat")).as_deref(), Some("T" | "t"))
}

/// Whether the thread computes.
pub(crate) fn is_on_processor(pid: i32, tid: i32) -> bool {
    letter(&format!("/proc/{pid}/task/{tid}/stat")).as_deref() == Some("R")
}

fn letter(stat: &str) -> Option<String> {
    let text = fs::read_to_string(stat).ok()?;
    Some((*kernel::stat_fields(&text)?.first()?).to_owned())
}

fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MOST_THREADS).collect()
}

/// The number that the thread has in its own namespace: the last of the list.
fn own_number(pid: i32, tid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().next_back()?.parse().ok()
}

fn name(pid: i32, tid: i32) -> String {
    kernel::thread_name(pid, tid).unwrap_or_default()
}

/// State, system call and wait channel, as far as they can be read.
fn state(pid: i32, tid: i32) -> String {
    let at = |file: &str| format!("/proc/{pid}/task/{tid}/{file}");
    let mut parts = Vec::new();
    parts.extend(letter(&at("stat")).map(|letter| match letter.as_str() {
        "R" => "running".to_owned(),
        "S" => "sleeping".to_owned(),
        "D" => "sleeping, not to be woken by signals".to_owned(),
        "T" => "stopped".to_owned(),
        "t" => "stopped by a debugger".to_owned(),
        "Z" | "X" => "ended".to_owned(),
        other => format!("state {other}"),
    }));
    let call = fs::read_to_string(at("syscall")).ok();
    parts.extend(call.and_then(|text| syscalls::describe(&text)));
    let channel = fs::read_to_string(at("wchan")).ok().filter(|channel| !matches!(channel.trim(), "" | "0"));
    parts.extend(channel.map(|channel| format!("waits in {}", channel.trim())));
    parts.join(", ")
}

/// The memory of a process.
pub(super) struct Memory {
    pid: i32,
}

impl Memory {
    /// That of a process.
    pub(super) fn of(pid: i32) -> Memory {
        Memory { pid }
    }

    /// Reads so many bytes at an address; all or none.
    pub(super) fn read(&self, address: usize, bytes: &mut [u8]) -> io::Result<()> {
        let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let there = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: the kernel writes at most as many bytes as the slice has, and checks the other process's address itself.
        let read = unsafe { libc::process_vm_readv(self.pid, &here, 1, &there, 1, 0) };
        match read {
            -1 => Err(io::Error::last_os_error()),
            n if n as usize == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// A word.
    pub(super) fn word(&self, address: usize) -> Option<usize> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).ok()?;
        Some(usize::from_le_bytes(bytes))
    }

    /// A number of 32 bits.
    pub(super) fn number(&self, address: usize) -> Option<i32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes).ok()?;
        Some(i32::from_le_bytes(bytes))
    }

    /// A byte.
    pub(super) fn byte(&self, address: usize) -> Option<u8> {
        let mut bytes = [0];
        self.read(address, &mut bytes).ok()?;
        Some(bytes[0])
    }

    /// So many bytes.
    pub(super) fn bytes(&self, address: usize, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.read(address, &mut bytes).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_it_is_or_not_at_all() {
        let memory = Memory::of(std::process::id() as i32);
        let value = Box::new(0x0123_4567_89ab_cdef_usize);
        let at = std::ptr::from_ref::<usize>(&value) as usize;
        assert_eq!(memory.word(at), Some(*value));
        assert_eq!((memory.number(at), memory.byte(at + 7)), (Some(0x89ab_cdef_u32 as i32), Some(1)));
        assert_eq!(memory.word(8), None);
        assert_eq!(memory.bytes(at, 2), Some(vec![0xef, 0xcd]));
    }

    #[test]
    fn each_thread_of_a_process_is_found_with_what_the_kernel_says() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let waiting = std::thread::Builder::new().name("outside-waits".to_owned()).spawn(move || {
            // SAFETY: gettid has no preconditions.
            tell.send(unsafe { libc::gettid() }).unwrap();
            let _ = stopped.recv();
        });
        let tid = told.recv().unwrap();
        let pid = std::process::id() as i32;
        // It goes to sleep a moment after it has spoken.
        while is_on_processor(pid, tid) {
            std::thread::yield_now();
        }
        let seen = look(pid).threads[&tid].clone();
        assert_eq!(seen.name, "outside-waits");
        assert!(seen.kernel.contains("sleeping"), "{}", seen.kernel);
        assert!(seen.frames.iter().all(|row| row.language == "native" && row.module.is_some()), "{:?}", seen.frames);
        assert!(seen.frames.len() > 1, "{:?}", seen.frames);
        assert!(!is_stopped(pid));
        drop(stop);
        waiting.unwrap().join().unwrap();
        let nobody = look(0);
        assert!(nobody.threads.is_empty() && nobody.limit.is_some_and(|limit| limit.contains("map cannot be read")));
    }
}
