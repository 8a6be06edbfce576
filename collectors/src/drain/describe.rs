//! The drain's manifest while it works, what several processes tell together, and the last look at everything.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use gputrace_abi::clock::COUNTER;
use gputrace_abi::sync::Ordering;

use super::{BUSY, Drain};
use crate::arrivals::LOOK_FOR_FILES;
use crate::counters::Sampler;
use crate::detail;
use crate::manifest::{ExitStatusInfo, KeptDetail, Manifest, Root};
use crate::tables::CounterRow;
use crate::writer::Message;

/// The manifest is written this often, and less often when it is large.
const MANIFEST_AGE: Duration = Duration::from_secs(1);

impl Drain {
    pub(super) fn describe_in_time(&mut self) {
        self.let_written_go();
        let age = MANIFEST_AGE.max(self.describing_takes * 100);
        if self.described.elapsed() < age {
            return;
        }
        self.changed |= self.shared.lock().unwrap_or_else(PoisonError::into_inner).take_news();
        if self.changed {
            self.describe_now();
        }
    }

    /// Has the manifest and the rows of what runs written.
    pub(super) fn describe_now(&mut self) {
        let start = Instant::now();
        self.changed = false;
        self.send_live();
        let manifest_ns = self.clocks.now_ns();
        let manifest = self.describe();
        let running = || manifest.processes.iter().filter(|process| process.running);
        self.tables.live.looked(running());
        running().for_each(|process| self.counted.looked(process, manifest_ns, &mut self.tables));
        self.unsent.push(Message::Manifest(Box::new(manifest)));
        self.described = Instant::now();
        self.describing_takes = start.elapsed();
    }

    pub(super) fn describe(&self) -> Manifest {
        let mut manifest = self.manifest.clone();
        manifest.processes.extend(self.processes.values().map(|p| p.describe(&self.clocks)));
        self.processes.values().for_each(|process| manifest.add_devices(process.devices.all()));
        manifest.counters = self.sampler.as_ref().map(Sampler::describe);
        manifest.hangs.extend(self.hangs.all());
        manifest.clock = self.clocks.describe(self.clock.unwrap_or(COUNTER));
        manifest.root = self.describe_root(&manifest, None);
        let before = manifest.detail.take();
        manifest.detail = self.describe_switches();
        if let Some(stage) = &self.stage {
            stage.left_out().enter(&mut manifest);
            // Of a run that never recorded nothing could be kept, whatever was to be. Who collected before this one may have.
            let is_nothing = manifest
                .accounts()
                .flat_map(|process| process.accounting.values())
                .all(|count| count.left_out == 0 && count.kept() == 0);
            let switched = manifest.detail.take();
            let recorded = switched.as_ref().and_then(KeptDetail::switches);
            let never = switched.filter(|switched| is_nothing && switched.intervals.is_empty());
            let never = never.map(|off| off.never.unwrap_or_else(|| "recording was off all the time".to_owned()));
            manifest.detail = Some(KeptDetail { never, recorded, ..stage.describe() });
        }
        // Those of a collector before this one; with nothing of its own it keeps all.
        if let Some(before) = before {
            let own = manifest.detail.take();
            manifest.detail = Some(match own {
                Some(own) => own.after(before),
                None => before,
            });
        }
        manifest
    }

    fn describe_root(&self, manifest: &Manifest, status: Option<ExitStatusInfo>) -> Option<Root> {
        let pid = self.root?;
        let image = manifest.processes.iter().rev().find(|p| p.pid as u32 == pid);
        let status = status.or(self.root_ended).unwrap_or_default();
        Some(Root {
            process_id: image.map(|p| p.process_id),
            exit_code: status.code,
            exit_signal: status.signal,
            wall_ns: status.wall_ns,
        })
    }

    /// Rows of what was read from outside since the last call; at the end of all that will be.
    pub(super) fn take_readings(&mut self, last: bool) {
        let Some(sampler) = &mut self.sampler else { return };
        let kind = self.clock.unwrap_or(COUNTER);
        let mut readings: Vec<_> = sampler.take().collect();
        if last {
            readings.extend(sampler.finish());
        }
        for reading in readings {
            let start_ns = self.clocks.ns_of_monotonic(kind, reading.monotonic_ns);
            if let (Some(stage), Some(device)) = (&mut self.stage, &reading.device) {
                stage.see_device(device, reading.id, reading.value, start_ns);
            }
            self.tables.live.read(&reading, start_ns);
            self.tables.counter(&CounterRow {
                start_ns,
                interval_ns: reading.interval_ns.map(|ns| ns as i64),
                process: reading.process,
                device: reading.device.as_deref(),
                id: reading.id,
                value: reading.value,
            });
        }
    }

    /// Writes what GPUs did as far as that is known of all processes.
    pub(super) fn write_worked(&mut self) {
        let clocks = &self.clocks;
        let unwritten = self.processes.values_mut().filter_map(|process| process.unwritten_work_ns(clocks)).min();
        self.unwritten_ns = unwritten.unwrap_or(i64::MAX);
        self.tables.write_worked(self.unwritten_ns);
        detail::hand_on(&mut self.stage, self.tables.take_full(), &mut self.unsent);
    }

    /// Keeps the list of those that have ended within its bound, and with it what else is known of each.
    pub(super) fn sum_up(&mut self) {
        if !self.manifest.sum_up(self.config.most_named, self.root) {
            return;
        }
        if let (Some(stage), Some(among)) = (&mut self.stage, self.manifest.among()) {
            stage.sum_up(&among.but(self.processes.values().map(|process| process.id)));
        }
    }

    /// Takes whoever has come, and ends whoever has ended: nobody looks again.
    pub(super) fn look_last(&mut self, deadline: Instant) {
        let _ = self.deadline.set(deadline);
        self.looked_for_files = self.looked_for_files.checked_sub(LOOK_FOR_FILES).unwrap_or(self.looked_for_files);
        self.welcome();
        if self.arrivals.is_waiting() {
            self.arrivals.wait(deadline);
            self.welcome();
        }
        let ended = std::mem::take(&mut self.ended);
        let gone = self.processes.iter().filter(|(_, p)| p.is_gone()).map(|(token, _)| *token);
        let gone: Vec<u64> = gone.chain(ended).collect();
        for token in gone {
            self.end(token);
            self.make_room(deadline);
        }
    }

    /// The last look at everything.
    pub(super) fn finish(mut self, status: Option<ExitStatusInfo>, deadline: Instant) -> Manifest {
        self.look_last(deadline);
        // Whoever runs on does so unrecorded: nobody would read its rings.
        for process in self.processes.values() {
            process.segment.view().header().paused.store(1, Ordering::Relaxed);
        }
        let running = std::mem::take(&mut self.processes);
        if !running.is_empty() {
            // Calls that had passed the flag reach the ring within a moment.
            std::thread::sleep(Duration::from_millis(1));
        }
        for (_, mut process) in running {
            process.finish(&mut self.clocks, &mut self.tables, &mut self.written, None);
            self.close_hangs(&mut process, None);
            self.close(process);
            self.make_room(deadline);
        }
        self.write_worked();
        self.make_room(deadline);
        if let (Some(root), Some(status)) = (self.root, status)
            && let Some(row) = self.rows.iter_mut().rev().find(|r| r.pid as u32 == root)
        {
            (row.exit_code, row.exit_signal) = (status.code, status.signal);
        }
        self.note_end(status);
        self.take_readings(true);
        self.send_batches(true);
        if !self.send_rest(deadline) {
            self.manifest.note("the writer could not keep up at the end: the last rows are missing");
        }
        self.finish_hangs();
        self.finish_dumps(deadline);
        self.clocks.tick();
        let mut manifest = self.describe();
        manifest.root = self.describe_root(&manifest, status);
        manifest.ended_ns = Some(self.clocks.now_ns());
        manifest
    }

    /// Waits until the writer has taken the batches, so that the end of a large run needs no more memory than its
    /// middle.
    pub(super) fn make_room(&mut self, deadline: Instant) {
        while !self.flush_unsent() && Instant::now() < deadline {
            std::thread::sleep(BUSY);
        }
    }
}
