//! What a process tells once, for a collector that comes later: slots as they stood in the rings, after a page with the account of
//! the threads that have ended, whose rows are used again.
//!
//! It is memory without a name that the heir has a descriptor of. What is written there is there, whatever happens to the
//! collector; nothing is flushed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::accounting::{ByClass, NotHere, Retired};

/// Bytes before the slots.
const PAGE: u64 = 4096;
/// Where in the page it stands what is of an earlier trace.
const ELSEWHERE: u64 = PAGE / 2;
const _: () = assert!(size_of::<Retired>() as u64 <= ELSEWHERE);
/// No process tells more names than fit in here; what comes later has none after a change of collectors.
const MOST: u64 = 64 << 20;

/// A slot as it stood in a ring.
pub(crate) type Slot = [u64; 8];

/// The collector's side.
#[derive(Debug)]
pub(crate) struct Told {
    file: File,
    length: u64,
}

impl Told {
    /// An empty one, and the descriptor for the heir.
    pub(crate) fn new() -> io::Result<(Told, OwnedFd)> {
        let file = super::paper()?;
        let heirs = file.try_clone()?.into();
        Ok((Told { file, length: 0 }, heirs))
    }

    /// An empty one in a file, for whoever finds it there.
    pub(crate) fn at(path: &Path) -> io::Result<Told> {
        let file = File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok(Told { file, length: 0 })
    }

    /// A descriptor for another heir.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        self.file.try_clone().ok().map(OwnedFd::from)
    }

    /// Goes on with one that an earlier collector wrote.
    pub(crate) fn resume(fd: OwnedFd) -> io::Result<Told> {
        let file = File::from(fd);
        let length = file.metadata()?.len().saturating_sub(PAGE);
        Ok(Told { file, length })
    }

    /// Adds slots.
    pub(crate) fn add(&mut self, slots: &[Slot]) {
        let bytes: Vec<u8> = slots.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        // Without memory for it names are missing after a change of collectors.
        if self.length + bytes.len() as u64 <= MOST && self.file.write_all_at(&bytes, PAGE + self.length).is_ok() {
            self.length += bytes.len() as u64;
        }
    }

    /// Sets the account of the threads that have ended.
    pub(crate) fn retired(&self, retired: &Retired) {
        self.set(0, retired);
    }

    /// Sets what its threads counted before this trace began, and what of that an earlier trace has.
    pub(crate) fn elsewhere(&self, elsewhere: &NotHere) {
        self.set(ELSEWHERE, elsewhere);
    }

    fn set(&self, at: u64, counts: &[ByClass]) {
        let bytes: Vec<u8> = counts.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        let _ = self.file.write_all_at(&bytes, at);
    }

    /// All that was written: the account of ended threads, what is of an earlier trace, the slots.
    pub(crate) fn read(&self) -> io::Result<(Retired, NotHere, Vec<Slot>)> {
        let mut bytes = vec![0; (PAGE + self.length) as usize];
        let whole = self.file.metadata()?.len().min(bytes.len() as u64) as usize;
        self.file.read_exact_at(&mut bytes[..whole], 0)?;
        let word = |at: usize| {
            bytes.get(at * 8..at * 8 + 8).map_or(0, |b| b.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
        };
        let fill = |counts: &mut [ByClass], at: u64| {
            counts.iter_mut().flatten().enumerate().for_each(|(n, place)| *place = word(at as usize / 8 + n));
        };
        let (mut retired, mut elsewhere) = (Retired::default(), NotHere::default());
        fill(&mut retired, 0);
        fill(&mut elsewhere, ELSEWHERE);
        let first = PAGE as usize / 8;
        let slots = (0..self.length as usize / 64).map(|n| std::array::from_fn(|i| word(first + n * 8 + i)));
        Ok((retired, elsewhere, slots.collect()))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_there_for_whoever_has_the_descriptor() {
        let (mut told, heirs) = Told::new().unwrap();
        told.add(&[[1; 8], [u64::MAX; 8]]);
        let mut retired = Retired::default();
        retired[3][1] = 77;
        told.retired(&retired);
        let mut elsewhere = NotHere::default();
        elsewhere[3][2] = 78;
        told.elsewhere(&elsewhere);
        told.add(&[[3; 8]]);
        drop(told);
        let mut later = Told::resume(heirs).unwrap();
        assert_eq!(later.read().unwrap(), (retired, elsewhere, vec![[1; 8], [u64::MAX; 8], [3; 8]]));
        later.add(&[[4; 8]]);
        assert_eq!(later.read().unwrap().2.len(), 4);
    }
}
