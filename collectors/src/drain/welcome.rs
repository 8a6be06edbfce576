//! Processes that come: segments that are taken over, and those that cannot be traced.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::Drain;
use crate::accounting::ByClass;
use crate::arrivals::Arrival;
use crate::heir::standing;
use crate::kernel;
use crate::manifest::Untraced;
use crate::process::Process;
use crate::segment::Segment;
use crate::tables::ProcessRow;

impl Drain {
    fn next_process_id(&mut self) -> i64 {
        let id = crate::process_id(self.config.launcher_id, self.sequence);
        self.sequence += 1;
        id
    }

    pub(super) fn note_untraced(&mut self, process: Untraced) {
        let row = ProcessRow {
            process_id: self.next_process_id(),
            pid: process.pid,
            host: self.config.host.clone(),
            exe: process.exe.clone(),
            origin: "exec",
            start_ns: self.clocks.now_ns(),
            reason: Some(process.reason.clone()),
            malloc_mode: "off".to_owned(),
            ..ProcessRow::default()
        };
        self.rows.push(row);
        self.manifest.add_untraced(process);
        self.changed = true;
    }

    /// Notes a process whose segment did not come. The user is told of the first one; the summary has them all.
    fn refuse(&mut self, process: Untraced) {
        if self.manifest.untraced.iter().all(|known| known.reason != process.reason) {
            let Untraced { pid, exe, reason } = &process;
            let line = format!("process {pid} ({exe}) is not traced: {reason}; the summary tells which others are not");
            self.shared.lock().unwrap_or_else(PoisonError::into_inner).warnings.push_back(line);
        }
        self.note_untraced(process);
    }

    /// Takes over the segments that have come.
    pub(super) fn welcome(&mut self) {
        let mut came = Vec::new();
        self.arrivals.accept(|arrival| came.push(arrival));
        if self.looked_for_files.elapsed() >= self.arrivals.look_every() {
            self.looked_for_files = Instant::now();
            let last = self.deadline.get().is_some();
            let others = came.len();
            self.arrivals.adopt_files(last, |arrival| came.push(arrival));
            // Of several images of a pid each ends where the next one begins.
            let began = |arrival: &Arrival| arrival.segment.as_ref().map_or(0, Segment::began);
            came[others..].sort_by_key(began);
        }
        for arrival in came {
            self.take_over(arrival);
        }
        self.tell_found();
    }

    /// Has itself woken up when the process ends. Returns its token.
    pub(super) fn expect_end(&mut self, process: &mut Process, pidfd: Option<OwnedFd>) -> u64 {
        self.clock = self.clock.or(Some(process.clock));
        let token = self.next;
        self.next += 1;
        match pidfd {
            Some(pidfd) if self.watch(pidfd.as_raw_fd(), token).is_ok() => process.pidfd = Some(pidfd),
            _ if process.is_gone() => self.ended.push(token),
            _ => {}
        }
        token
    }

    /// Leaves what the next collector needs beside the segment's file. Where an earlier one did, for a trace that is another or was ended
    /// since, it is gone on where that one was.
    fn keep(&self, process: &mut Process) {
        let Some(file) = process.file.clone() else { return };
        let kept = standing::path(&file, process.id);
        if let Some(earlier) = standing::earlier(&file)
            && std::fs::rename(&earlier, &kept).is_ok()
        {
            let told = File::options().read(true).write(true).open(&kept).ok().map(OwnedFd::from);
            (process.kept, process.has_heir) = (Some(kept), true);
            process.go_on(told, std::iter::empty(), &ByClass::default());
            let id = standing::id_of(&earlier);
            return process.begin_here(id.and_then(|id| self.config.accounts_before.get(&id).cloned()));
        }
        process.keep_in(kept);
    }

    /// Of the images of a pid that came as files only the one that began last runs: the others were replaced by an exec, and files are
    /// found in any order. Ends the earlier one where the later one began; of one that is the earlier one itself, says when that was.
    fn succeed(&mut self, process: &mut Process) -> Option<i64> {
        let runs = |p: &Process| !p.gone && !p.foreign;
        if process.file.is_none() || !runs(process) {
            return None;
        }
        let (token, other) = self.processes.iter().find(|(_, p)| p.pid == process.pid && runs(p))?;
        if process.segment.began() < other.segment.began() {
            process.gone = true;
            return Some(other.start_ns(&self.clocks));
        }
        let token = *token;
        self.end_at(token, process.start_ns(&self.clocks));
        None
    }

    fn take_over(&mut self, arrival: Arrival) {
        self.changed = true;
        // An exec: the image that had the pid is no more. A file may belong to any of a pid's images (`succeed`).
        let same = |p: &&Process| p.pid == arrival.pid && arrival.file.is_none() && !p.foreign && !arrival.foreign;
        if let Some(token) = self.processes.iter().find(|(_, p)| same(p)).map(|(token, _)| *token) {
            self.end(token);
        }
        let id = self.next_process_id();
        let segment = match arrival.segment {
            Ok(segment) => segment,
            Err(refused) => {
                self.sequence -= 1;
                self.refuse(Untraced {
                    pid: arrival.pid,
                    exe: arrival.exe.unwrap_or_else(|| kernel::executable(arrival.pid)),
                    reason: refused.to_string(),
                });
                return;
            }
        };
        let mut process = Process::new(id, arrival.pid, segment, &self.config.redact);
        (process.file, process.foreign, process.gone) = (arrival.file, arrival.foreign, arrival.gone);
        if let Some(within_ns) = self.config.host_memory.cull_ns {
            process.cull(within_ns);
        }
        (process.memory, process.has_heir) = (arrival.memory.filter(|_| self.will.is_wanted()), self.will.is_wanted());
        if self.config.standing {
            self.keep(&mut process);
        }
        let superseded = self.succeed(&mut process);
        let token = self.expect_end(&mut process, arrival.pidfd.filter(|_| superseded.is_none()));
        process.leave_to(&mut self.will);
        if let Some(sampler) = self.sampler.as_ref().filter(|_| !process.foreign) {
            sampler.began(id, process.pid);
        }
        process.begin_recording(&self.clocks);
        if let Some(ended_ns) = self.config.ended_before_ns {
            process.recorded_elsewhere(ended_ns);
        }
        self.tables.live.began(id);
        self.switch.apply(&mut process, self.clocks.now_ns());
        self.switch.found(&process, process.start_ns(&self.clocks));
        self.processes.insert(token, process);
        if let Some(end_ns) = superseded {
            self.end_at(token, end_ns);
        }
        // It is busy starting: what it does next is worth seeing soon.
        self.interval = self.interval.min(Duration::from_millis(10));
    }
}
