//! Leaving a session that goes on: what was read is brought to disk, and the rest is the next collector's.

use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::Drain;
use crate::detail;
use crate::writer::Message;

impl Drain {
    /// Answers how many processes run on, once all is on the disk; none: it could not all be brought there. Then nothing is done any more:
    /// this process is about to end, as if it were killed.
    pub(super) fn leave(&mut self, deadline: Instant, answer: &Sender<Option<usize>>) -> ! {
        self.look_last(deadline);
        let mut running = std::mem::take(&mut self.processes);
        for process in running.values_mut() {
            process.give_out(&mut self.clocks, &mut self.tables, &mut self.written);
            if let Some(told) = process.leave() {
                self.will.told(process.id, told);
            }
            detail::hand_on(&mut self.stage, self.tables.take_full(), &mut self.unsent);
            self.make_room(deadline);
        }
        self.processes = running;
        self.write_worked();
        self.take_readings(true);
        self.send_batches(true);
        self.clocks.tick();
        self.describe_now();
        let mut done = self.send_rest(deadline) && self.is_written(Message::Seal, deadline);
        if done {
            // Only now is it true.
            self.manifest.stopped_ns = Some(self.clocks.now_ns());
            self.describe_now();
            done = self.send_rest(deadline) && self.is_written(Message::Flush, deadline);
        }
        if done {
            self.let_all_go();
        }
        let _ = answer.send(done.then_some(self.processes.len()));
        // Whatever came now would be read and not written.
        loop {
            std::thread::park_timeout(Duration::from_secs(60));
        }
    }
}
