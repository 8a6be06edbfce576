//! What our thread tells: records, names, and what became of asking, into its own ring.

use core::cell::Cell;

use gputrace_abi::activity::{ACTIVITIES, ACTIVITY_WORDS, Activity};
use gputrace_abi::event::text_kind;
use gputrace_abi::gpu::{WORK_WORDS, WORKS, Work, kind};

use super::batch::Batch;
use super::names;
use crate::thread::State;
use crate::{session, sys};

/// Room is waited for so long, in a ring or for CUPTI; then what does not fit is counted.
pub(super) const ROOM_LOOKS: u32 = 2000;
pub(super) const LOOK_NS: u64 = 1_000_000;
/// Of so many chunks our thread leaves one to the program's threads: CUPTI's records can wait in its buffers, calls can not.
const LEFT_OF: u32 = 4;

/// Writes records and what became of asking into our thread's ring.
pub(super) struct Teller {
    state: &'static State,
    /// Records that are not written yet.
    records: Batch<{ WORKS * WORK_WORDS }>,
    activities: Batch<{ ACTIVITIES * ACTIVITY_WORDS }>,
    /// Records for which there was no room.
    pub(super) lost: u64,
    /// Nobody reads: do not wait for each text.
    patient: Cell<bool>,
}

impl Teller {
    pub(super) fn new(state: &'static State) -> Teller {
        Teller { state, records: Batch::new(), activities: Batch::new(), lost: 0, patient: Cell::new(true) }
    }

    pub(super) fn add(&mut self, mut work: Work, name: &[u8]) {
        if work.kind == kind::KERNEL && !name.is_empty() {
            work.amount = names::key(name, |key, name| self.tell(text_kind::KERNEL_NAME, key, 0, name));
        }
        if self.records.push(work.to_words()) {
            self.write_records();
        }
    }

    pub(super) fn add_activity(&mut self, activity: &Activity) {
        if self.activities.push(activity.to_words()) {
            self.write_activities();
        }
    }

    /// Writes what is not written yet.
    pub(super) fn write(&mut self) {
        self.write_records();
        self.write_activities();
    }

    fn write_activities(&mut self) {
        let count = self.activities.count(ACTIVITY_WORDS);
        if count > 0 {
            if !self.tell(text_kind::GPU_ACTIVITY, 0, count, self.activities.text()) {
                self.lost += count;
            }
            self.activities.clear();
        }
    }

    fn write_records(&mut self) {
        let count = self.records.count(WORK_WORDS);
        if count == 0 {
            return;
        }
        if !self.tell(text_kind::GPU_WORK, 0, count, self.records.text()) {
            self.lost += count;
        }
        self.records.clear();
    }

    pub(super) fn tell(&self, kind: u64, key: u64, number: u64, text: &[u8]) -> bool {
        self.tell_at(kind, key, number, text, session::now())
    }

    /// Waits for room, which the collector makes every few milliseconds, unless the last text waited in vain. A burst of records
    /// leaves a part of the rings to the program's threads.
    pub(super) fn tell_at(&self, kind: u64, key: u64, number: u64, text: &[u8], at: u64) -> bool {
        let looks = if self.patient.get() { ROOM_LOOKS } else { 1 };
        let told = (0..looks).any(|look| {
            if look > 0 {
                sys::nap(LOOK_NS);
            }
            let is_last = look + 1 == looks;
            (is_last || self.state.free_chunks().is_none_or(|(free, all)| free > all / LEFT_OF))
                && self.state.write_text(kind, key, number, text, at)
        });
        self.patient.set(told);
        told
    }
}
