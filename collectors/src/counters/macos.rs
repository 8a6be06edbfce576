//! Counters of processes by libproc. macOS gives those of the GPU to no other process without a privilege.
//!
//! A reading per period; what it costs bounds how often it is made, as on Linux.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::task::Looks;
use super::{Asked, Counters, Reading, Told};
use crate::{clock, kernel};

/// A processor's time over that of the readings, at one reading per second.
const COST: f64 = 1000.0;
/// The first reading comes so soon after the first process: many commands are short.
const FIRST: Duration = Duration::from_millis(100);

/// Reads until the drain has no more to tell.
pub(super) fn run(asked: Asked, heard: &Receiver<Told>, out: &Sender<Vec<Reading>>, about: &Mutex<Counters>) {
    say_what_is_missing(&mut about.lock().unwrap_or_else(PoisonError::into_inner));
    let mut processes: BTreeMap<i64, (i32, Looks)> = BTreeMap::new();
    let period = Duration::from_secs_f64(1.0 / asked.hz);
    let mut next = Instant::now();
    loop {
        let told = match processes.is_empty() {
            true => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => heard.recv_deadline(next),
        };
        match told {
            Ok(Told::Began { process_id, pid }) => {
                if processes.is_empty() {
                    next = next.max(Instant::now() + period.min(FIRST));
                }
                processes.insert(process_id, (pid, Looks::default()));
            }
            Ok(Told::Ended { process_id }) => {
                processes.remove(&process_id);
            }
            Ok(Told::Sees { .. }) => {}
            Err(RecvTimeoutError::Timeout) => {
                let took_ns = read(&mut processes, out, about);
                let rest = Duration::from_nanos(took_ns).mul_f64(COST / asked.hz);
                if rest > period {
                    about.lock().unwrap_or_else(PoisonError::into_inner).put_off += 1;
                }
                next = Instant::now() + period.max(rest);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Looks at every process; returns the processor time that it took, ns.
fn read(processes: &mut BTreeMap<i64, (i32, Looks)>, out: &Sender<Vec<Reading>>, about: &Mutex<Counters>) -> u64 {
    let before_ns = clock::thread_ns();
    let at_ns = clock::monotonic_ns();
    let mut rows = Vec::new();
    for (process_id, (pid, looks)) in processes {
        if let Some(task) = kernel::task(*pid) {
            rows.extend(looks.rows(at_ns, (*process_id, *pid), task));
        }
    }
    let took_ns = clock::thread_ns().saturating_sub(before_ns);
    let mut about = about.lock().unwrap_or_else(PoisonError::into_inner);
    about.readings += 1;
    about.cpu_ns += took_ns;
    if let Some(source) = about.source("proc") {
        source.rows += rows.len() as u64;
    }
    drop(about);
    // The drain may have ended.
    let _ = out.send(rows);
    took_ns
}

fn say_what_is_missing(about: &mut Counters) {
    for source in &mut about.sources {
        let what = match source.name.as_str() {
            "proc" => "voluntary_switches, involuntary_switches: not told apart on macOS",
            _ => "not there on macOS",
        };
        source.missing.push(what.to_owned());
    }
}

/// Nothing can be read of devices.
pub(super) fn probe() -> Result<String, String> {
    Err("not there on macOS".to_owned())
}
