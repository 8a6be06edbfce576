//! What a linker writes where it knows everything, written when it is known.
//!
//! A library knows neither where libc's functions will lie nor how far a thread's storage is from the thread register: so each entry reads a
//! word for the one and the other, and jumps where the word says. Once a process has begun both stay as they are, and the constructor writes
//! them into the entries, an instruction in place of one of the same length: a jump to where the word says, and a number in place of the load
//! of it, as a linker that makes a program of it all does (calls without a procedure linkage table, initial-exec storage made local-exec).
//! A program of small objects calls these every 30 ns: a third of what a call costs goes. What entries lead to where short lives are summed up
//! ([`super::short`]) is treated alike.
//!
//! Only while the process has one thread, which is here, with signals blocked: nobody runs what is half written. Where pages may not be
//! written and run (SELinux, MDWE, a filter of system calls), or a function lies further away than a jump reaches, entries stay as they are and
//! do the same.

use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::interpose::elf;
use crate::{sampling, sys, tls, tracked};

/// Bytes of an entry, and of what one leads to where short lives are summed up: each begins at a multiple of them, and so lies in one page.
pub(super) const BYTES: usize = 64;
pub(super) const SHORT_BYTES: usize = 256;
const PAGE: usize = 4 << 10;

/// `jmp qword ptr [rip + ...]`, `call qword ptr [rip + ...]`
const BY_WORD: [u8; 2] = [0xff, 0x25];
const CALL_BY_WORD: [u8; 2] = [0xff, 0x15];
const BY_WORD_BYTES: usize = 6;
/// `jmp ...`, and `nop`, which makes it as long; `call ...`, behind a prefix that does.
const JUMP: [u8; 1] = [0xe9];
const NOTHING: [u8; 1] = [0x90];
const CALL: [u8; 2] = [0x67, 0xe8];
/// `mov ..., qword ptr [rip + ...]`, where the registers are 64 bits wide.
const WIDE: u8 = 0x48;
const LOAD: u8 = 0x8b;
const LOAD_BYTES: usize = 7;
/// Into `rcx`, and what follows where that may be null: `test rcx, rcx`, `je ...`.
const INTO_RCX: u8 = 0x0d;
const TEST_RCX: [u8; 4] = [WIDE, 0x85, 0xc9, 0x74];
/// `mov rcx, ...`, a number of 64 bits.
const NUMBER: u8 = 0xb9;
/// The prefix of what reads a thread's storage, and the bytes that say that a number of 32 bits and no register is its place.
const THREAD: u8 = 0x64;
const PLACE: [u8; 2] = [0o004, 0x25];
/// Prefixes that say what is so anyway, and make an instruction longer: as linkers use them.
const DATA: u8 = 0x66;
const CODE: u8 = 0x2e;

/// An entry whose next definition is known.
pub(super) struct Entry {
    /// Where it begins, and how long it is.
    pub(super) code: usize,
    pub(super) bytes: usize,
    /// The word of where it passes calls on to.
    pub(super) next: &'static AtomicPtr<()>,
    /// That of where those of a program go that are not passed on at once: where no sample is recorded, all.
    pub(super) target: Option<&'static AtomicPtr<()>>,
}

/// Writes into these entries what they read.
pub(super) fn write(entries: impl Iterator<Item = Entry>) {
    // Where a name is the program's own, that is what stands for it here, too.
    let (from, to) = elf::range_of(put as *const () as usize);
    let ours = entries.filter(|entry| (from..to).contains(&entry.code) && entry.code.is_multiple_of(entry.bytes));
    if sys::threads() != 1 {
        return;
    }
    sys::without_signals(|| {
        let mut writable = 0;
        let protect = |page: usize, protection| {
            // SAFETY: code of ours, which can be run all the while, and which nobody runs.
            page != 0 && unsafe { sys::protect(page, libc::PROT_READ | libc::PROT_EXEC | protection) }
        };
        for entry in ours {
            let page = entry.code & !(PAGE - 1);
            if page != writable {
                protect(writable, 0);
                writable = if protect(page, libc::PROT_WRITE) { page } else { 0 };
            }
            if page == writable {
                // SAFETY: a whole entry of ours, on a page that was made writable; the one thread that there is does not run it.
                let code = unsafe { slice::from_raw_parts_mut(entry.code as *mut u8, entry.bytes) };
                entry.straighten(code);
            }
        }
        protect(writable, 0);
    });
}

impl Entry {
    fn straighten(&self, code: &mut [u8]) {
        let mut all = false;
        for at in 0..=code.len() - LOAD_BYTES {
            match code.get(at..) {
                Some([a, b, ..]) if [*a, *b] == BY_WORD || [*a, *b] == CALL_BY_WORD => {
                    let how: [&[u8]; 2] = if [*a, *b] == BY_WORD { [&JUMP, &NOTHING] } else { [&CALL, &[]] };
                    let word = self.behind(code, at, BY_WORD_BYTES);
                    let own = [Some(self.next), self.target].into_iter().flatten();
                    if let Some(found) = own.into_iter().find(|own| own.as_ptr() as usize == word) {
                        self.lead(code, at, how, found);
                    }
                }
                Some([WIDE, LOAD, register, _, _, _, _, THREAD, WIDE, LOAD, ..]) if register & 0o307 == 0o005 => {
                    all = !sampling::is_sampling();
                    let into = *register & 0o070;
                    // SAFETY: the entry itself reads the word: nothing else stands before what reads a thread's storage.
                    let offset = unsafe { *(self.behind(code, at, LOAD_BYTES) as *const isize) };
                    if tls::offsets().contains(&offset)
                        && let Ok(number) = i32::try_from(offset)
                    {
                        put(code, at, &[DATA, DATA, THREAD, WIDE, LOAD, into | PLACE[0], PLACE[1]]);
                        put(code, at + 7, &number.to_le_bytes());
                    }
                }
                Some([WIDE, LOAD, INTO_RCX, _, _, _, _, test @ ..]) if test.starts_with(&TEST_RCX) => {
                    all = !sampling::is_sampling();
                    let filter = tracked::FILTER.load(Ordering::Relaxed);
                    if self.behind(code, at, LOAD_BYTES) == tracked::FILTER.as_ptr() as usize && !filter.is_null() {
                        put(code, at, &[CODE, CODE, WIDE, NUMBER]);
                        put(code, at + 4, &(filter as usize).to_le_bytes());
                    }
                }
                _ => {}
            }
        }
        if let Some(target) = self.target.filter(|_| all) {
            self.lead(code, 0, [&JUMP, &NOTHING], target);
        }
    }

    /// Which address an instruction of so many bytes means, the last four of which say how far behind it that is.
    fn behind(&self, code: &[u8], at: usize, bytes: usize) -> usize {
        let end = at + bytes;
        let away = code.get(end - 4..end).and_then(|away| away.try_into().ok()).map_or(0, i32::from_le_bytes);
        (self.code + end).wrapping_add_signed(away as isize)
    }

    /// Leads where a word says, by an instruction that begins with these bytes, and these after it.
    fn lead(&self, code: &mut [u8], at: usize, [how, after]: [&[u8]; 2], word: &AtomicPtr<()>) {
        let (to, end) = (word.load(Ordering::Relaxed) as isize, at + how.len() + size_of::<i32>());
        if let Ok(away) = i32::try_from(to.wrapping_sub_unsigned(self.code + end)) {
            put(code, at, how);
            put(code, at + how.len(), &away.to_le_bytes());
            put(code, end, after);
        }
    }
}

fn put(code: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in code.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}
