//! Going on with the processes of a collector that was killed, as its heir, or that left a session that goes on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use gputrace_abi::Class;
use gputrace_abi::layout::CLASSES;

use super::Drain;
use crate::accounting::ByClass;
use crate::heir::{Will, standing};
use crate::manifest::{KeptDetail, Manifest};
use crate::process::Process;
use crate::recover::{Before, OnDisk};
use crate::segment::Segment;

impl Drain {
    /// Takes its place: the account so far, and the processes that ran.
    pub(crate) fn go_on(&mut self, before: Before) {
        let Before { manifest, mut left, ref on_disk, next, trouble, left_out, sums_are_whole, .. } = before;
        let killed_ns = before.ended_ns;
        let mut report = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        report.go_on(&manifest);
        report.warnings.extend(trouble);
        drop(report);
        self.sequence = next;
        self.root = left.root;
        let own = std::mem::take(&mut self.manifest);
        // When recording was on goes on here; what was kept around moments stands for itself.
        let switched = manifest.detail.clone().filter(|detail| detail.switches().is_some());
        let detail = KeptDetail::gone_on(manifest.detail.as_ref(), manifest.started_ns, killed_ns, own.detail.as_ref());
        let detail = detail.and_then(KeptDetail::beside_switches);
        self.manifest = Manifest { clock: own.clock, detail, standing: own.standing, ..manifest };
        self.switch.resume(switched.as_ref());
        let wanted = self.will.is_wanted();
        for (id, kept) in std::mem::take(&mut left.processes) {
            let segment = match Segment::map(kept.segment.as_fd()) {
                Ok(segment) => segment,
                Err(refused) => {
                    self.manifest.note(&format!("process {} could not be gone on with: {refused}", kept.pid));
                    continue;
                }
            };
            let mut process = Process::new(id, kept.pid, segment, &self.config.redact);
            (process.foreign, process.gone) = (kept.foreign, kept.gone);
            if let Some(within_ns) = self.config.host_memory.cull_ns {
                process.cull(within_ns);
            }
            let keeps = kept.file.is_some();
            (process.memory, process.has_heir) = (Some(kept.segment).filter(|_| wanted), wanted || keeps);
            if let Some(file) = kept.file {
                self.arrivals.adopted(&file);
                process.kept = Some(standing::path(&file, id));
                process.file = Some(file);
            }
            let left_out = left_out.get(&id).copied().unwrap_or_default();
            process.go_on(kept.told, on_disk.of(id), &left_out);
            if sums_are_whole {
                self.go_on_counting(id, &process, on_disk, &left_out);
            } else {
                self.counted.go_on_anew(id);
            }
            let token = self.expect_end(&mut process, kept.pidfd);
            if let Some(sampler) = self.sampler.as_ref().filter(|_| !process.foreign) {
                sampler.began(id, process.pid);
            }
            process.resume_recording(switched.as_ref(), killed_ns, &self.clocks);
            if switched.is_some() {
                self.switch.ask(process.is_told_to_record());
            }
            self.switch.found(&process, process.start_ns(&self.clocks));
            self.tables.live.began(id);
            self.processes.insert(token, process);
        }
        self.changed = true;
    }

    /// There is another heir: it is told of all that there is.
    pub(super) fn leave_to(&mut self, heir: Arc<OwnedFd>) {
        self.will = Will::new(Some(heir));
        self.leave_door();
        self.root.into_iter().for_each(|root| self.will.root(root));
        self.processes.values().for_each(|process| process.leave_to(&mut self.will));
    }

    /// The heir gets the door to which processes come.
    pub(super) fn leave_door(&mut self) {
        let Some(socket) = self.arrivals.descriptor() else { return };
        // SAFETY: the door's own, which is open as long as the drain lives.
        let door = unsafe { BorrowedFd::borrow_raw(socket) };
        if let Ok(door) = door.try_clone_to_owned() {
            self.will.door(door);
        }
    }

    /// Sums and rows on the disk are of slightly different moments, and so are the sums of short periods and of long ones. Of each
    /// class as many events are made known as any of them has; what the sums have beyond the rows, and beyond what was left out, is events
    /// without rows.
    fn go_on_counting(&mut self, id: i64, process: &Process, on_disk: &OnDisk, left_out: &ByClass) {
        let mut rows = *left_out;
        on_disk.of(id).for_each(|(class, events, culled)| rows[class as usize] += events + culled);
        let mut told = [0; CLASSES];
        for class in Class::ALL {
            let (summed, rows) = (on_disk.summed(id, class), rows[class as usize]);
            let most = rows.max(summed[0]).max(summed[1]);
            told[class as usize] = most - rows;
            let missing = summed.map(|events| most - events);
            self.tables.make_known(id, process.pid, class, self.clocks.now_ns(), missing);
        }
        self.counted.go_on(id, told);
    }
}
