//! What our thread tells: records, names, and what became of asking, into its own ring.

use core::cell::Cell;

use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::{WORK_BYTES, WORK_WORDS, WORKS, Work, kind};

use super::names;
use crate::thread::State;
use crate::{session, sys};

/// A ring is waited for so long; then what does not fit is counted.
const ROOM_LOOKS: u32 = 2000;

/// Writes records and what became of asking into our thread's ring.
pub(super) struct Teller {
    state: &'static State,
    /// Records that are not written yet.
    records: [u64; WORKS * WORK_WORDS],
    count: usize,
    /// Records for which there was no room.
    pub(super) lost: u64,
    /// Nobody reads: do not wait for each text.
    patient: Cell<bool>,
}

impl Teller {
    pub(super) fn new(state: &'static State) -> Teller {
        Teller { state, records: [0; WORKS * WORK_WORDS], count: 0, lost: 0, patient: Cell::new(true) }
    }

    pub(super) fn add(&mut self, mut work: Work, name: &[u8]) {
        if work.kind == kind::KERNEL && !name.is_empty() {
            work.amount = names::key(name, |key, name| self.tell(text_kind::KERNEL_NAME, key, 0, name));
        }
        if let Some(place) = self.records.get_mut(self.count * WORK_WORDS..).and_then(|rest| rest.first_chunk_mut()) {
            *place = work.to_words();
            self.count += 1;
        }
        if self.count == WORKS {
            self.write();
        }
    }

    pub(super) fn write(&mut self) {
        if self.count == 0 {
            return;
        }
        let bytes = self.count * WORK_BYTES;
        // SAFETY: words seen as the bytes that they are; both processors that we know are little-endian.
        let text = unsafe { core::slice::from_raw_parts(self.records.as_ptr().cast::<u8>(), bytes) };
        if !self.tell_at(text_kind::GPU_WORK, 0, self.count as u64, text, session::now()) {
            self.lost += self.count as u64;
        }
        self.count = 0;
    }

    pub(super) fn tell(&self, kind: u64, key: u64, number: u64, text: &[u8]) -> bool {
        self.tell_at(kind, key, number, text, session::now())
    }

    /// Waits for room, which the collector makes every few milliseconds, unless the last text waited in vain.
    pub(super) fn tell_at(&self, kind: u64, key: u64, number: u64, text: &[u8], at: u64) -> bool {
        let looks = if self.patient.get() { ROOM_LOOKS } else { 1 };
        let told = (0..looks).any(|look| {
            if look > 0 {
                sys::nap(1_000_000);
            }
            self.state.write_text(kind, key, number, text, at)
        });
        self.patient.set(told);
        told
    }
}
