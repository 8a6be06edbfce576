//! Reads what the victim says of itself: the file of `victim/truth.h`, which survives whatever happens to the victim.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Classes in the order of the file, as gputrace calls them.
pub(crate) const CLASSES: [&str; 7] = ["launch", "sync", "transfer", "alloc", "free", "host_alloc", "host_free"];
/// How many of them are the driver's, each call of which is counted.
pub(crate) const OF_DRIVER: usize = 5;
/// Numbers by class in a slot.
const WIDTH: usize = 8;
const SLOTS: usize = 4000;
const SLOT_BYTES: usize = 256;
const HEAD_BYTES: usize = 4096;

/// Makes an empty one.
pub(crate) fn create(file: &Path) -> io::Result<()> {
    File::create(file)?.set_len((HEAD_BYTES + SLOTS * SLOT_BYTES) as u64)
}

/// What one process did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Did {
    /// Calls that began.
    pub(crate) begun: [u64; CLASSES.len()],
    /// Calls that came back.
    pub(crate) done: [u64; CLASSES.len()],
    /// Calls of signal handlers.
    pub(crate) extra: [u64; CLASSES.len()],
    /// Its threads went on until they said that they end.
    pub(crate) over: bool,
    /// The images that it had, one after the other.
    pub(crate) images: u64,
}

/// What all of them did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// By pid.
    pub(crate) processes: BTreeMap<i32, Did>,
    /// Pid of the first one; 0 before it began.
    pub(crate) root: i32,
    /// Results that were not as they should be, and the first of them.
    pub(crate) wrong: (u64, String),
}

impl Truth {
    /// Reads the file, at any moment.
    pub(crate) fn read(file: &Path) -> io::Result<Truth> {
        let bytes = fs::read(file)?;
        let word = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let half = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let text = bytes.get(56..256).unwrap_or_default();
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let wrong = (word(24), String::from_utf8_lossy(text).into_owned());
        let mut truth = Truth { processes: BTreeMap::new(), root: word(48) as i32, wrong };
        let mut images: BTreeMap<i32, std::collections::BTreeSet<u32>> = BTreeMap::new();
        for slot in 0..(word(0) as usize).min(SLOTS) {
            let at = HEAD_BYTES + slot * SLOT_BYTES;
            let pid = half(at) as i32;
            if pid == 0 {
                continue;
            }
            images.entry(pid).or_default().insert(half(at + 8));
            let did = truth.processes.entry(pid).or_insert_with(|| Did { over: true, ..Did::default() });
            did.over &= half(at + 12) == 1;
            for class in 0..CLASSES.len() {
                did.begun[class] += word(at + 16 + 8 * class);
                did.done[class] += word(at + 16 + 8 * (WIDTH + class));
                did.extra[class] += word(at + 16 + 8 * (2 * WIDTH + class));
            }
        }
        for (pid, images) in images {
            truth.processes.entry(pid).or_default().images = images.len() as u64;
        }
        Ok(truth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_one_process_are_added_up() {
        let file = std::env::temp_dir().join(format!("chaos-truth-{}", std::process::id()));
        create(&file).unwrap();
        let mut bytes = fs::read(&file).unwrap();
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(0, 3);
        put(24, 2);
        put(48, 77);
        for (slot, pid) in [(0, 77_u64), (1, 77), (2, 78)] {
            let at = HEAD_BYTES + slot * SLOT_BYTES;
            put(at, pid);
            put(at + 8, if slot == 1 { 0 } else { 1 << 32 });
            put(at + 16, 10);
            put(at + 16 + 64, 9);
            put(at + 16 + 128, 1);
        }
        bytes[56..59].copy_from_slice(b"bad");
        fs::write(&file, bytes).unwrap();
        let truth = Truth::read(&file).unwrap();
        fs::remove_file(file).unwrap();
        assert_eq!((truth.root, truth.wrong, truth.processes.len()), (77, (2, "bad".to_owned()), 2));
        let (both, one) = (&truth.processes[&77], &truth.processes[&78]);
        assert_eq!((both.begun[0], both.done[0], both.extra[0], both.over, both.images), (20, 18, 2, false, 1));
        assert_eq!((one.begun[0], one.over), (10, true));
    }
}
