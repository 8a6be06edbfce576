//! Memory that the ranks of a communicator share: a file that the last one to join removes.
//!
//! Each rank has a slot for what it contributes to an operation, and a mailbox for each other rank. Two counters say
//! which operation it has contributed to, and which one it has finished reading.

use std::ffi::CString;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most ranks of a communicator.
pub(crate) const RANKS: usize = 16;
/// Bytes that a rank may contribute.
pub(crate) const SLOT_BYTES: usize = 1 << 18;
const MAIL_BYTES: usize = 1 << 14;
/// A rank that never comes ends the wait: tests are not to hang.
const PATIENCE: Duration = Duration::from_secs(60);

#[repr(C)]
pub(crate) struct Region {
    joined: AtomicU32,
    posted: [AtomicU64; RANKS],
    finished: [AtomicU64; RANKS],
    /// Bytes + 1 of the letter from one rank to another.
    mail: [[AtomicU64; RANKS]; RANKS],
    letters: [[[u8; MAIL_BYTES]; RANKS]; RANKS],
    slots: [[u8; SLOT_BYTES]; RANKS],
}

impl Region {
    /// The region of the communicator with this id.
    pub(crate) fn join(id: u64, ranks: usize) -> Option<&'static Region> {
        let path = std::env::temp_dir().join(format!("fake-nccl-{id:016x}"));
        let path = CString::new(path.into_os_string().into_encoded_bytes()).ok()?;
        // SAFETY: plain system calls on a path and a descriptor of our own; the mapping is checked.
        let region = unsafe {
            let file = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC, 0o600);
            if file < 0 || libc::ftruncate(file, size_of::<Region>() as libc::off_t) != 0 {
                return None;
            }
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), size_of::<Region>(), access, libc::MAP_SHARED, file, 0);
            libc::close(file);
            if at == libc::MAP_FAILED {
                return None;
            }
            // SAFETY: a mapping of this size, zeros at first, which all its types allow.
            &*at.cast::<Region>()
        };
        if region.joined.fetch_add(1, Ordering::AcqRel) as usize + 1 == ranks {
            // SAFETY: a C string.
            unsafe { libc::unlink(path.as_ptr()) };
        }
        Some(region)
    }

    /// Contributes to the operation number `number`, when everybody has read what was there before.
    pub(crate) fn post(&self, rank: usize, ranks: usize, number: u64, bytes: &[u8]) -> bool {
        if !wait(|| self.finished[..ranks].iter().all(|n| n.load(Ordering::Acquire) + 1 >= number)) {
            return false;
        }
        copy(bytes, self.slots[rank].as_ptr());
        self.posted[rank].store(number, Ordering::Release);
        true
    }

    /// Waits for everybody's contribution.
    pub(crate) fn wait_for_all(&self, ranks: usize, number: u64) -> bool {
        wait(|| self.posted[..ranks].iter().all(|n| n.load(Ordering::Acquire) >= number))
    }

    /// What a rank contributed.
    pub(crate) fn slot(&self, rank: usize) -> &[u8] {
        &self.slots[rank]
    }

    /// The rank has read what it needs.
    pub(crate) fn finish(&self, rank: usize, number: u64) {
        self.finished[rank].store(number, Ordering::Release);
    }

    /// Sends a letter.
    pub(crate) fn send(&self, from: usize, to: usize, bytes: &[u8]) -> bool {
        let flag = &self.mail[from][to];
        if bytes.len() > MAIL_BYTES || !wait(|| flag.load(Ordering::Acquire) == 0) {
            return false;
        }
        copy(bytes, self.letters[from][to].as_ptr());
        flag.store(bytes.len() as u64 + 1, Ordering::Release);
        true
    }

    /// Takes a letter out.
    pub(crate) fn receive(&self, from: usize, to: usize, bytes: usize) -> Option<Vec<u8>> {
        let flag = &self.mail[from][to];
        if bytes > MAIL_BYTES || !wait(|| flag.load(Ordering::Acquire) == bytes as u64 + 1) {
            return None;
        }
        let letter = self.letters[from][to][..bytes].to_vec();
        flag.store(0, Ordering::Release);
        Some(letter)
    }
}

fn copy(bytes: &[u8], to: *const u8) {
    // SAFETY: a slot or letter of the caller's own in shared memory, which nobody reads until a flag is set.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast_mut(), bytes.len()) };
}

fn wait(ready: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !ready() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
