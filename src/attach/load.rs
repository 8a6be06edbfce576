//! Brings the shim into the process, and starts it: the calls that one of the process's own threads makes for that.

use std::ffi::CString;
use std::io;
use std::ops::Range;

use gputrace_abi::attach::{Attachment, ENTRY};

use super::calls::{Borrowed, CallError};
use super::found::{Found, Shim};
use super::maps;
use super::patches::{prepare, room, stub};
use super::registers::Registers;
use super::safe::Search;
use super::threads::Tracer;

/// How far code may lie from the driver: jumps, and what moved instructions refer to, reach so far.
const REACH: u64 = if cfg!(target_arch = "x86_64") { 1 << 31 } else { 1 << 27 } - (1 << 20);
/// Memory for texts, below memory for a stack.
const TEXTS: u64 = 64 << 10;
const DATA: u64 = TEXTS + (512 << 10);
/// Linux 4.17; before that the kernel takes the address for a hint.
const FIXED_NOREPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;

/// Brings the shim into the process where it is not yet, and starts it, with what its environment is to be.
pub(super) fn load(tracer: &mut Tracer, pid: i32, path: &str, environment: &[String]) -> Result<Found, String> {
    let found = Found::look(pid)?;
    let main_block = tracer.stop(pid).ok().and_then(|main| Registers::of(main.tid).ok()?.block(main.tid).ok());
    let thread = Search::new(pid, &found.memory, &found.maps).run(tracer)?;
    let mut thread = Borrowed::new(thread).map_err(said)?;
    let work = Work { pid, path, environment, main_block: main_block.unwrap_or(0), found: &found };
    let done = work.run(&mut thread);
    let back = thread.give_back();
    done?;
    back.map_err(said)?;
    Ok(found)
}

fn said(error: CallError) -> String {
    match error {
        CallError::Late => {
            "its threads hold the loader's locks, or wait for each other: nothing was changed; try again".to_owned()
        }
        error => error.to_string(),
    }
}

struct Work<'a> {
    pid: i32,
    path: &'a str,
    environment: &'a [String],
    main_block: u64,
    found: &'a Found,
}

impl Work<'_> {
    fn run(&self, thread: &mut Borrowed) -> Result<(), String> {
        let memory = &self.found.memory;
        let kernel = |error: io::Error| error.to_string();
        let there = self.found.shim(self.pid);
        let ours = there.as_ref().map(|shim| shim.attached(memory)).transpose().map_err(kernel)?.flatten();
        let (code, data) = match &ours {
            Some([code, data]) => (code.clone(), data.clone()),
            None => self.make_room(thread)?,
        };
        let mut calls = Calls { thread, stub: code.start, stack: data.end };
        // What a function of libc says of its failure is the thread's own.
        let errno = self.errno(&mut calls).map_err(said)?;
        let before = memory.bytes(errno, 4).map_err(kernel)?;
        let done = self.start(&mut calls, there.filter(|_| ours.is_some()), &code, &data);
        memory.write(errno, &before).map_err(kernel)?;
        if done.is_err() && ours.is_none() && self.found.shim(self.pid).is_none() {
            self.take_room_back(calls.thread, [code, data]);
        }
        done
    }

    fn errno(&self, calls: &mut Calls<'_>) -> Result<u64, CallError> {
        let function = self.found.function("__errno_location");
        calls.make(function.ok_or_else(|| io::Error::other("its libc has no errno"))?, [0; 4])
    }

    /// Memory near the driver, for code, and some anywhere.
    fn make_room(&self, thread: &mut Borrowed) -> Result<(Range<u64>, Range<u64>), String> {
        let found = self.found;
        let bytes = room(&found.driver);
        let near = maps::gap(&found.maps, &found.driver_at, bytes, REACH)
            .ok_or("there is no free memory near the driver in it")?;
        let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let execute = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let code = self.map(thread, [near, bytes, execute, anonymous | FIXED_NOREPLACE, u64::MAX, 0])?;
        if code != near {
            self.take_room_back(thread, [code..code + bytes, 0..0]);
            return Err("there is no free memory near the driver in it; try again".to_owned());
        }
        let write = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let data = self.map(thread, [0, DATA, write, anonymous | libc::MAP_NORESERVE as u64, u64::MAX, 0]);
        let data = data.inspect_err(|_| self.take_room_back(thread, [code..code + bytes, 0..0]))?;
        let written = found.memory.write(code, stub());
        written.map_err(|error| {
            self.take_room_back(thread, [code..code + bytes, data..data + DATA]);
            format!("the kernel lets nobody write code into it: {error}")
        })?;
        Ok((code..code + bytes, data..data + DATA))
    }

    fn map(&self, thread: &mut Borrowed, arguments: [u64; 6]) -> Result<u64, String> {
        thread.system_call(self.found.syscall, libc::SYS_mmap, arguments).map_err(|error| {
            format!("it may not map memory (a limit of memory, or SELinux where the memory is for code): {error}")
        })
    }

    fn take_room_back(&self, thread: &mut Borrowed, ranges: [Range<u64>; 2]) {
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            let arguments = [range.start, range.end - range.start, 0, 0, 0, 0];
            let _ = thread.system_call(self.found.syscall, libc::SYS_munmap, arguments);
        }
    }

    fn start(
        &self,
        calls: &mut Calls<'_>,
        there: Option<Shim>,
        code: &Range<u64>,
        data: &Range<u64>,
    ) -> Result<(), String> {
        let memory = &self.found.memory;
        let kernel = |error: io::Error| error.to_string();
        let shim = match there {
            Some(shim) => shim,
            None => {
                let shim = self.open(calls, data)?;
                let table = prepare(memory, &self.found.driver, &shim.image, code.clone()).map_err(kernel)?;
                let words: Vec<u8> = table.words().flat_map(usize::to_le_bytes).collect();
                memory.write(shim.table().map_err(kernel)?, &words).map_err(kernel)?;
                let ours = [code.start, code.end - code.start, data.start, data.end - data.start];
                let bytes: Vec<u8> = ours.into_iter().flat_map(u64::to_le_bytes).collect();
                let at = shim.attachment + std::mem::offset_of!(Attachment, code) as u64;
                memory.write(at, &bytes).map_err(kernel)?;
                shim
            }
        };
        let entry = shim.image.function(ENTRY).ok_or("the shim in it knows nothing of attaching")?;
        let block = block(self.environment, data.start);
        if block.len() as u64 > TEXTS {
            return Err("what it would be told is too long".to_owned());
        }
        memory.write(data.start, &block).map_err(kernel)?;
        let refused = calls.make(entry, [data.start, main_stack(self.pid), self.main_block, 0]).map_err(said)?;
        if refused == 0 { Ok(()) } else { Err(memory.text(refused)) }
    }

    /// Has the loader open the shim.
    fn open(&self, calls: &mut Calls<'_>, data: &Range<u64>) -> Result<Shim, String> {
        /// In glibc's own calls: the program's dlopen, not one of the loader's.
        const OWN: u64 = 0x8000_0000;
        let (memory, now) = (&self.found.memory, (libc::RTLD_NOW | libc::RTLD_LOCAL) as u64);
        let (open, mode) = match self.found.function("dlopen") {
            Some(open) => (open, now),
            None => (self.found.function("__libc_dlopen_mode").ok_or("its libc has no dlopen")?, now | OWN),
        };
        let path = CString::new(self.path).map_err(|_| "a path with a zero byte".to_owned())?;
        memory.write(data.start, path.as_bytes_with_nul()).map_err(|error| error.to_string())?;
        if calls.make(open, [data.start, mode, 0, 0]).map_err(said)? == 0 {
            let why =
                self.found.function("dlerror").and_then(|ask| calls.make(ask, [0; 4]).ok()).filter(|text| *text != 0);
            return Err(format!(
                "its loader does not load the shim: {}",
                why.map_or("it does not say why".to_owned(), |text| memory.text(text))
            ));
        }
        self.found.shim(self.pid).ok_or_else(|| "the shim was loaded and is not to be found".to_owned())
    }
}

/// Calls that the thread makes.
struct Calls<'a> {
    thread: &'a mut Borrowed,
    stub: u64,
    stack: u64,
}

impl Calls<'_> {
    fn make(&mut self, function: u64, arguments: [u64; 4]) -> Result<u64, CallError> {
        self.thread.call(self.stub, self.stack, function, arguments)
    }
}

/// An environment as it lies in memory at `at`: addresses of texts, ended by null, and the texts.
fn block(environment: &[String], at: u64) -> Vec<u8> {
    let mut texts = Vec::new();
    let mut words = Vec::new();
    let first = at + 8 * (environment.len() as u64 + 1);
    for entry in environment {
        words.push(first + texts.len() as u64);
        texts.extend(entry.bytes().filter(|byte| *byte != 0).chain([0]));
    }
    words.push(0);
    words.into_iter().flat_map(u64::to_le_bytes).chain(texts).collect()
}

/// Where the main thread's stack ends: below the environment that the kernel put there. 0 where it does not say.
fn main_stack(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // The fiftieth field; the third one is the first behind the name.
    fields.split_whitespace().nth(50 - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_an_array_of_texts() {
        let bytes = block(&["A=1".to_owned(), "B=".to_owned()], 0x1000);
        let words: Vec<u64> = bytes[..24].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        assert_eq!(words, [0x1018, 0x101c, 0]);
        assert_eq!(&bytes[24..], b"A=1\0B=\0");
    }

    #[test]
    fn this_process_s_stack_ends_above_this_frame() {
        let here = 0u8;
        let pid = std::process::id() as i32;
        let end = main_stack(pid);
        let stack = maps::read(pid).unwrap().into_iter().find(|one| one.path == "[stack]").unwrap();
        assert!(stack.range.contains(&end), "{end:x} {:p}", &here);
    }
}
