//! What processes, threads and devices are called, with numbers that are no other's.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Track;
use crate::render::identifier;
use crate::trace::{Process, Trace};

/// Pids that are given to processes whose own is another's too: on another host, or of an image before an exec.
const SUBSTITUTES: i32 = 1 << 30;

/// Names of places.
pub(crate) struct Places {
    processes: FxHashMap<i64, (i32, String)>,
    threads: FxHashMap<(i64, i32), String>,
    devices: FxHashMap<(i64, i32), String>,
    queues: FxHashMap<(i64, i64), String>,
}

impl Places {
    /// Those of a trace.
    pub(crate) fn of(trace: &Trace) -> Places {
        let (mut taken, mut processes, mut devices) =
            (FxHashSet::default(), FxHashMap::default(), FxHashMap::default());
        let several =
            trace.launchers.iter().filter_map(|of| Some(&of.manifest.as_ref()?.host)).collect::<FxHashSet<_>>();
        for (number, process) in trace.processes.iter().enumerate() {
            let free = process.pid > 0 && taken.insert(process.pid);
            let pid = if free { process.pid } else { SUBSTITUTES.saturating_add(number as i32) };
            processes.insert(process.process_id, (pid, name(process, several.len() > 1)));
            let seen = process.manifest.iter().flat_map(|known| &known.devices).enumerate();
            devices.extend(seen.filter_map(|(ordinal, uuid)| {
                Some(((process.process_id, ordinal as i32), trace.device(uuid)?.name.clone()))
            }));
        }
        Places { processes, threads: trace.thread_names(), devices, queues: trace.queue_names() }
    }

    /// Number and name of a process.
    pub(crate) fn process(&self, process: i64) -> (i32, &str) {
        self.processes.get(&process).map_or((0, "(a process that is not known)"), |(pid, name)| (*pid, name.as_str()))
    }

    /// What a track is called inside of its process.
    pub(crate) fn track(&self, track: Track, domain: Option<&str>) -> String {
        let thread = |process, tid| self.thread(process, tid);
        match track {
            Track::Thread(process, tid) => thread(process, tid),
            Track::Ranges(process, tid, _) => {
                format!("{} ranges of {}", domain.unwrap_or("NVTX"), thread(process, tid))
            }
            Track::Waits(process, tid) => format!("OS waits of {}", thread(process, tid)),
            Track::Spans(_) => "NVTX start-end ranges".to_owned(),
            Track::Stream(process, device, stream) => {
                let gpu = self.devices.get(&(process, device)).map_or(String::new(), |name| format!(" ({name})"));
                match self.queues.get(&(process, stream)) {
                    Some(label) => format!("GPU {device}{gpu} {label} ({})", identifier(stream as f64)),
                    None => format!("GPU {device}{gpu} stream {}", identifier(stream as f64)),
                }
            }
            Track::Recording(_) => "recording of GPU times".to_owned(),
        }
    }

    /// What a thread is called.
    pub(crate) fn thread(&self, process: i64, tid: i32) -> String {
        self.threads.get(&(process, tid)).map_or_else(|| format!("thread {tid}"), |name| format!("{name} ({tid})"))
    }
}

impl Track {
    /// The process that it belongs to.
    pub(crate) fn process(self) -> i64 {
        match self {
            Track::Thread(process, _)
            | Track::Ranges(process, ..)
            | Track::Waits(process, _)
            | Track::Spans(process)
            | Track::Stream(process, ..)
            | Track::Recording(process) => process,
        }
    }
}

fn name(process: &Process, with_host: bool) -> String {
    let program = process.exe.rsplit('/').next().unwrap_or_default();
    let rank = process.rank.map_or(String::new(), |rank| format!(" rank {rank}"));
    let host = if with_host { format!(" on {}", process.host) } else { String::new() };
    format!("{program}{rank}{host}")
}
