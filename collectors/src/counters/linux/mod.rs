//! The thread that reads counters.
//!
//! It sleeps until the next reading is due. What a reading costs bounds how often it is made: a thousandth of a processor for each
//! reading per second that is asked for. So a node with hundreds of processes is looked at more seldom, rather than at a price.

mod cgroup;
mod gpm;
mod nvml;
mod perf;
mod proc;
mod questions;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::{Asked, Counters, Id, Reading, Told};
use crate::clock;
use cgroup::Groups;
use nvml::Gpus;
use perf::Events;
use proc::Looks;

/// A processor's time over that of the readings, at one reading per second.
const COST: f64 = 1000.0;
/// The first reading comes so soon after the first process: many commands are short.
const FIRST: Duration = Duration::from_millis(100);

/// A process that is looked at.
struct Process {
    pid: i32,
    looks: Looks,
    events: Option<Events>,
}

/// What is written down of a reading.
struct Page<'a> {
    at_ns: u64,
    rows: Vec<Reading>,
    about: &'a Mutex<Counters>,
}

impl Page<'_> {
    /// Says of a source what it lacks, once.
    fn missing(&self, source: &str, what: String) {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = about.source(source)
            && !source.missing.contains(&what)
        {
            source.missing.push(what);
        }
    }

    /// Says of a source which counter of somebody's it lacks, and why: all of one reason in a sentence.
    fn lacks(&self, source: &str, whose: &str, name: &str, why: &str) {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(source) = about.source(source) else { return };
        let (head, tail) = (format!("{whose}: "), format!(": {why}"));
        fn names<'a>(text: &'a str, head: &str, tail: &str) -> Option<&'a str> {
            text.strip_prefix(head)?.strip_suffix(tail)
        }
        match source.missing.iter_mut().find(|text| names(text, &head, &tail).is_some()) {
            Some(text) => {
                let known = names(text, &head, &tail).is_some_and(|names| names.split(", ").any(|known| known == name));
                if !known {
                    text.insert_str(text.len() - tail.len(), &format!(", {name}"));
                }
            }
            None => source.missing.push(format!("{head}{name}{tail}")),
        }
    }

    /// A device does not answer any more, and will not.
    fn lost(&self, uuid: &str) {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        if !about.lost.iter().any(|known| known == uuid) {
            about.lost.push(uuid.to_owned());
        }
    }

    /// A value of this moment.
    fn now(&mut self, process: Option<(i64, i32)>, device: Option<&Arc<str>>, id: Id, value: f64) {
        let (monotonic_ns, device) = (self.at_ns, device.cloned());
        self.rows.push(Reading { monotonic_ns, interval_ns: None, process, device, id, value });
    }

    /// A value over the time since then.
    fn since(&mut self, then_ns: u64, process: Option<(i64, i32)>, device: Option<&Arc<str>>, id: Id, value: f64) {
        let interval_ns = Some(self.at_ns.saturating_sub(then_ns));
        self.rows.push(Reading { monotonic_ns: then_ns, interval_ns, process, device: device.cloned(), id, value });
    }
}

struct Reader<'a> {
    asked: Asked,
    out: &'a Sender<Vec<Reading>>,
    about: &'a Mutex<Counters>,
    processes: BTreeMap<i64, Process>,
    groups: Groups,
    gpus: Gpus,
}

/// What can be read of devices here.
pub(super) fn probe() -> Result<String, String> {
    nvml::probe()
}

/// Reads until the drain has no more to tell.
pub(super) fn run(asked: Asked, heard: &Receiver<Told>, out: &Sender<Vec<Reading>>, about: &Mutex<Counters>) {
    let mut reader =
        Reader { asked, out, about, processes: BTreeMap::new(), groups: Groups::default(), gpus: Gpus::default() };
    if !asked.cpu {
        reader.page().missing("perf", "not asked for: --cpu-counters on".to_owned());
    }
    let period = Duration::from_secs_f64(1.0 / asked.hz);
    let mut next = Instant::now();
    loop {
        let told = match reader.processes.is_empty() {
            true => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => heard.recv_deadline(next),
        };
        match told {
            Ok(told) => {
                if reader.processes.is_empty() {
                    next = next.max(Instant::now() + period.min(FIRST));
                }
                reader.heed(told);
            }
            Err(RecvTimeoutError::Timeout) => {
                let rest = reader.read().mul_f64(COST / asked.hz);
                if rest > period {
                    about.lock().unwrap_or_else(PoisonError::into_inner).put_off += 1;
                }
                next = Instant::now() + period.max(rest);
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    reader.gpus.note_unused(&reader.page());
}

impl<'a> Reader<'a> {
    fn page(&self) -> Page<'a> {
        Page { at_ns: clock::monotonic_ns(), rows: Vec::new(), about: self.about }
    }

    fn heed(&mut self, told: Told) {
        let mut page = self.page();
        match told {
            Told::Began { process_id, pid } => {
                self.groups.add(Path::new("/"), (process_id, pid));
                let events = self.asked.cpu.then(|| Events::open(pid, &page));
                self.processes.insert(process_id, Process { pid, looks: Looks::default(), events });
            }
            Told::Sees { process_id, devices } => self.gpus.see(process_id, &devices, &page),
            Told::Ended { process_id } => {
                self.gpus.forget(process_id);
                self.groups.forget(process_id);
                if let Some(mut process) = self.processes.remove(&process_id)
                    && let Some(events) = &mut process.events
                {
                    // What it did after the last reading is known of these, even now.
                    events.read((process_id, process.pid), &mut page);
                }
            }
        }
        self.hand_over(page);
    }

    /// Reads everything once; returns the processor time that it took.
    fn read(&mut self) -> Duration {
        let before_ns = clock::thread_ns();
        let mut page = self.page();
        for (process_id, process) in &mut self.processes {
            let whose = (*process_id, process.pid);
            process.looks.read(Path::new("/"), whose, &mut page);
            if let Some(events) = &mut process.events {
                events.read(whose, &mut page);
            }
        }
        self.groups.read(Path::new("/"), &mut page);
        let pids: Vec<(i64, i32)> = self.processes.iter().map(|(id, process)| (*id, process.pid)).collect();
        self.gpus.read(&pids, &mut page);
        self.hand_over(page);
        let took_ns = clock::thread_ns().saturating_sub(before_ns);
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        about.readings += 1;
        about.cpu_ns += took_ns;
        Duration::from_nanos(took_ns)
    }

    fn hand_over(&self, page: Page<'_>) {
        if page.rows.is_empty() {
            return;
        }
        {
            let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
            for row in &page.rows {
                if let Some(source) = about.source(row.id.counter().source) {
                    source.rows += 1;
                }
            }
        }
        // The drain is gone: nobody wants more.
        let _ = self.out.send(page.rows);
    }
}
