//! The steps as the keeper takes them, in one process or, on the way back, in all that hold the shim of the session: children that were forked
//! hold the patches too.

use std::fs;
use std::time::{Duration, Instant};

use super::found::{Found, find_shim};
use super::load;
use super::maps;
use super::memory::Memory;
use super::patches::NotNow;
use super::threads::{NotStopped, Tracer};

/// How long it is tried to find all threads where they may be, and the pause between.
const PATIENCE: Duration = Duration::from_secs(60);
const LAST_PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// Where the word that switches recording stands in a segment.
const PAUSED_AT: u64 = std::mem::offset_of!(gputrace_abi::layout::Header, paused) as u64;

/// Loads and starts the shim.
pub(super) fn load(tracer: &mut Tracer, pid: i32, shim: &str, environment: &[String]) -> Result<(), String> {
    load::load(tracer, pid, shim, environment).map(|_| ())
}

/// Leads the driver's functions to the shim's. Returns how many.
pub(super) fn patch(tracer: &mut Tracer, pid: i32) -> Result<usize, String> {
    let found = Found::look(pid)?;
    let shim = found.shim(pid).ok_or("the shim is not in it any more")?;
    let slots = shim.slots(&found.memory).map_err(|error| error.to_string())?;
    let until = Instant::now() + PATIENCE;
    loop {
        let why = match tracer.stop_all(pid) {
            Err(why) => not_stopped(why)?,
            Ok(threads) => match slots.put(&found.memory, &threads) {
                Ok(left) => return Ok(slots.count() - left),
                Err(NotNow::Inside(tid)) => {
                    format!("its thread {tid} does not leave the first instructions of a driver's function")
                }
                Err(NotNow::Kernel(error)) => {
                    // Some may be in place.
                    let _ = slots.take_back(&found.memory);
                    return Err(format!("its code cannot be written: {error}"));
                }
            },
        };
        if Instant::now() >= until {
            return Err(format!("{why}; nothing was changed; try again"));
        }
        std::thread::sleep(PAUSE);
        tracer.settle();
    }
}

/// Why threads are not stopped; Err: they never will be.
fn not_stopped(why: NotStopped) -> Result<String, String> {
    match why {
        NotStopped::Ended => Err("it ended meanwhile".to_owned()),
        NotStopped::Refused(error) => Err(format!("the kernel does not let its threads be stopped: {error}")),
        NotStopped::Late(tid) => Ok(format!("its thread {tid} does not stop: the kernel keeps it in a call")),
        NotStopped::Growing => Ok("it makes threads faster than they are stopped".to_owned()),
    }
}

/// The way back, in the process and in those that hold the same shim: functions as they were, recording off. Returns what could not be done.
pub(super) fn take_back(tracer: &mut Tracer, pid: i32) -> Vec<String> {
    let mut trouble = Vec::new();
    let file = take_back_one(tracer, pid).unwrap_or_else(|why| {
        trouble.push(format!("process {pid}: {why}"));
        None
    });
    let Some(file) = file else { return trouble };
    for other in others_with(&file, pid) {
        if let Err(why) = take_back_one(tracer, other) {
            trouble.push(format!("process {other}: {why}"));
        }
    }
    trouble
}

/// Returns the file of its shim; none: there is nothing to be taken back.
fn take_back_one(tracer: &mut Tracer, pid: i32) -> Result<Option<String>, String> {
    // One that has ended, or become another program, holds nothing.
    let (Ok(memory), Ok(all)) = (Memory::open(pid), maps::read(pid)) else { return Ok(None) };
    let Some(shim) = find_shim(&memory, &all) else { return Ok(None) };
    let text = |error: std::io::Error| error.to_string();
    let slots = shim.slots(&memory).map_err(text)?;
    let until = Instant::now() + LAST_PATIENCE;
    let odd = loop {
        let why = match tracer.stop_all(pid) {
            Ok(_threads) => break slots.take_back(&memory).map_err(text)?,
            Err(NotStopped::Ended) => return Ok(None),
            Err(why) => not_stopped(why)?,
        };
        if Instant::now() >= until {
            return Err(format!("{why}: its driver's functions still lead to the shim"));
        }
        std::thread::sleep(PAUSE);
        tracer.settle();
    };
    // Whoever is still in a hook records nothing any more. A child that was forked has a segment of its own.
    for segment in all.iter().filter(|one| one.path.contains("/s/seg-")) {
        let _ = memory.write(segment.range.start + PAUSED_AT, &1u32.to_le_bytes());
    }
    match odd {
        0 => Ok(Some(shim.file)),
        odd => Err(format!("{odd} of the driver's functions were changed by somebody else meanwhile, and left so")),
    }
}

/// Other processes that have this file mapped.
fn others_with(file: &str, pid: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|other| *other != pid);
    pids.filter(|other| maps::read(*other).is_ok_and(|all| all.iter().any(|one| one.file == file))).collect()
}
