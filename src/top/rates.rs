//! What happened between two snapshots of a session: rates and shares by process.

use std::collections::{HashMap, VecDeque};

use gputrace_collectors::live::{Process, Snapshot, Sums};

/// GPU times are told in bursts, or in windows: shares of busy time are of so long a time, or of the last window before it.
const BUSY_NS: i64 = 2_000_000_000;
/// What is older is forgotten.
const KEPT: usize = 256;

/// What a process did between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) launches: f64,
    pub(crate) kernels: f64,
    pub(crate) copied_bytes: f64,
    pub(crate) allocs: f64,
    pub(crate) mallocs: f64,
    /// Time in waits, launches, copies and allocations: shares of the time of one thread; of several they are added up.
    pub(crate) waits: f64,
    pub(crate) in_launches: f64,
    pub(crate) in_copies: f64,
    /// What tracing cost, the same; none: not measured.
    pub(crate) cost: Option<f64>,
    pub(crate) dropped: u64,
}

/// How long GPUs were observed and busy, by when.
#[derive(Debug)]
struct Busy {
    at_ns: i64,
    /// Those of each process: observed, and busy.
    processes: HashMap<i64, (i64, i64)>,
    /// Each of the session, by UUID: busy.
    devices: HashMap<String, i64>,
}

/// The snapshots so far, as far as they are needed.
#[derive(Debug, Default)]
pub(crate) struct History {
    last: Option<Snapshot>,
    before: Option<Snapshot>,
    busy: VecDeque<Busy>,
}

impl History {
    /// The next snapshot; one that was given twice is one.
    pub(crate) fn add(&mut self, snapshot: Snapshot) {
        if self.last.as_ref().is_some_and(|last| last.at_ns >= snapshot.at_ns) {
            return;
        }
        let busy = snapshot.processes.iter().filter_map(|process| Some((process.process_id, busy_of(process)?)));
        let devices = snapshot.devices.iter().filter_map(|device| Some((device.uuid.clone()?, device.busy_ns)));
        self.busy.push_back(Busy { at_ns: snapshot.at_ns, processes: busy.collect(), devices: devices.collect() });
        while self.busy.len() > KEPT {
            self.busy.pop_front();
        }
        self.before = self.last.replace(snapshot);
    }

    /// The last one.
    pub(crate) fn last(&self) -> Option<&Snapshot> {
        self.last.as_ref()
    }

    /// How long it is from the one before to the last, s; none: there is no such time yet.
    pub(crate) fn seconds(&self) -> Option<f64> {
        let (last, before) = (self.last.as_ref()?, self.before.as_ref()?);
        Some((last.at_ns - before.at_ns) as f64 / 1e9).filter(|seconds| *seconds > 0.0)
    }

    /// What a process did since the snapshot before; one that was not there then did all of it since.
    pub(crate) fn rates(&self, process: &Process) -> Option<Rates> {
        let seconds = self.seconds()?;
        let before = self.before.iter().flat_map(|before| &before.processes);
        let mut before = before.filter(|before| before.process_id == process.process_id).map(|before| &before.sums);
        Some(rates(&process.sums, before.next().unwrap_or(&Sums::default()), seconds))
    }

    /// The share of time in which the GPUs that a process uses were busy, mean of them; none: it is not known.
    pub(crate) fn gpu_busy(&self, process: &Process) -> Option<f64> {
        let devices = process.gpu.as_ref().map_or(0, |gpu| gpu.devices.len()).max(1) as f64;
        let (now, (observed, busy)) = (self.last.as_ref()?.at_ns, busy_of(process)?);
        let mut found = None;
        for Busy { at_ns, processes, .. } in self.busy.iter().rev().skip(1) {
            let Some((before, was_busy)) = processes.get(&process.process_id) else { break };
            if observed > *before {
                found = Some((busy - was_busy) as f64 / (observed - before) as f64 / devices);
                if now - at_ns >= BUSY_NS {
                    break;
                }
            }
        }
        found.map(|share| share.clamp(0.0, 1.0))
    }
}

impl History {
    /// The share of time in which a device that these processes share was busy; none: it is not known.
    pub(crate) fn device_busy(&self, uuid: &str, users: &[(&Process, f64)]) -> Option<f64> {
        let now = self.busy.back()?;
        let busy = now.devices.get(uuid)?;
        let mut found = None;
        for before in self.busy.iter().rev().skip(1) {
            let Some(was_busy) = before.devices.get(uuid) else { break };
            let observed = users.iter().filter_map(|(process, _)| {
                let (now, _) = now.processes.get(&process.process_id)?;
                Some(now - before.processes.get(&process.process_id).map_or(0, |(observed, _)| *observed))
            });
            if let Some(observed) = observed.max().filter(|observed| *observed > 0) {
                found = Some((busy - was_busy) as f64 / observed as f64);
                if now.at_ns - before.at_ns >= BUSY_NS {
                    break;
                }
            }
        }
        found
    }
}

fn busy_of(process: &Process) -> Option<(i64, i64)> {
    let gpu = process.gpu.as_ref()?;
    Some((gpu.observed_ns, gpu.devices.iter().map(|device| device.busy_ns).sum()))
}

/// What lies between two states of the same sums.
pub(crate) fn rates(now: &Sums, before: &Sums, seconds: f64) -> Rates {
    let of = |sums: &Sums, kinds: &[&str], value: fn(&gputrace_collectors::live::Kind) -> f64| -> f64 {
        kinds.iter().filter_map(|kind| sums.kinds.get(*kind)).map(value).sum()
    };
    let change = |kinds: &[&str], value: fn(&gputrace_collectors::live::Kind) -> f64| {
        ((of(now, kinds, value) - of(before, kinds, value)) / seconds).max(0.0)
    };
    // Metal's copies are work of the GPU only.
    let copies: &[&str] = if now.kinds.contains_key("transfer") { &["transfer"] } else { &["device_copy"] };
    let time = |kinds: &[&str]| change(kinds, |kind| (kind.total_ns + kind.running_ns) as f64) / 1e9;
    // As the report has it: a copy that waited for the work before it waited, and copied for the rest of its time only.
    let waited = |kinds: &[&str]| change(kinds, |kind| kind.waited_ns as f64) / 1e9;
    let dropped = |sums: &Sums| sums.kinds.values().map(|kind| kind.dropped).sum::<u64>();
    Rates {
        launches: change(&["launch", "commit"], |kind| kind.seen as f64),
        kernels: change(&["kernel"], |kind| kind.events as f64),
        copied_bytes: change(copies, |kind| kind.bytes as f64),
        allocs: change(&["alloc"], |kind| kind.seen as f64),
        mallocs: change(&["host_alloc"], |kind| kind.seen as f64),
        waits: time(&["sync"]) + waited(&["transfer", "alloc", "free"]),
        in_launches: time(&["launch", "commit", "encode"]),
        in_copies: (time(&["transfer"]) - waited(&["transfer"])).max(0.0),
        cost: now.cost_ns.map(|cost| ((cost - before.cost_ns.unwrap_or(0.0)) / seconds / 1e9).max(0.0)),
        dropped: dropped(now).saturating_sub(dropped(before)),
    }
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::live::{Device, Gpu, Kind};

    use super::*;

    fn at(seconds: f64, launches: u64, gpu: Option<(f64, f64)>) -> Snapshot {
        let ns = |seconds: f64| (seconds * 1e9) as i64;
        let launch = Kind { seen: launches, total_ns: launches as i64 * 1000, ..Kind::default() };
        let wait = Kind { total_ns: 0, running_ns: ns(seconds), ..Kind::default() };
        let sums = Sums {
            kinds: [("launch".into(), launch), ("sync".into(), wait)].into(),
            cost_ns: Some(launches as f64 * 30.0),
            ..Sums::default()
        };
        let gpu = gpu.map(|(observed, busy)| Gpu {
            observed_ns: ns(observed),
            devices: vec![Device { busy_ns: ns(busy), ..Device::default() }],
        });
        let process = Process { process_id: 1, sums, gpu, ..Process::default() };
        Snapshot { at_ns: ns(seconds), processes: vec![process], ..Snapshot::default() }
    }

    fn seen(snapshots: Vec<Snapshot>) -> (History, Process) {
        let process = snapshots.last().unwrap().processes[0].clone();
        let mut history = History::default();
        snapshots.into_iter().for_each(|snapshot| history.add(snapshot));
        (history, process)
    }

    #[test]
    fn rates_are_of_the_time_between_the_last_two_and_one_alone_has_none() {
        let (history, process) = seen(vec![at(10.0, 100, None)]);
        assert_eq!((history.rates(&process), history.gpu_busy(&process)), (None, None));
        let (history, process) = seen(vec![at(0.0, 7, None), at(10.0, 100, None), at(12.0, 1100, None)]);
        let rates = history.rates(&process).unwrap();
        assert_eq!((rates.launches, rates.waits), (500.0, 1.0));
        assert!((rates.in_launches - 0.0005).abs() < 1e-9 && (rates.cost.unwrap() - 15e-6).abs() < 1e-9);
        // The same once more is no time without events.
        let (history, process) = seen(vec![at(10.0, 100, None), at(12.0, 1100, None), at(12.0, 1100, None)]);
        assert_eq!(history.rates(&process).unwrap().launches, 500.0);
    }

    #[test]
    fn what_a_copy_or_a_free_waited_for_is_waiting_and_no_copying() {
        let kind = |total_ns: i64, waited_ns: i64| Kind { total_ns, waited_ns, ..Kind::default() };
        let kinds = [
            ("sync".into(), kind(100_000_000, 0)),
            ("transfer".into(), kind(600_000_000, 500_000_000)),
            ("free".into(), kind(200_000_000, 200_000_000)),
        ];
        let rates = rates(&Sums { kinds: kinds.into(), ..Sums::default() }, &Sums::default(), 1.0);
        assert!((rates.waits - 0.8).abs() < 1e-9 && (rates.in_copies - 0.1).abs() < 1e-9, "{rates:?}");
    }

    #[test]
    fn a_process_that_was_not_there_did_all_of_it_since_and_sums_that_run_back_are_no_rate() {
        let empty = Snapshot { processes: Vec::new(), ..at(10.0, 0, None) };
        let (history, process) = seen(vec![empty, at(12.0, 1000, None)]);
        assert_eq!(history.rates(&process).unwrap().launches, 500.0);
        let (history, process) = seen(vec![at(10.0, 100, None), at(12.0, 50, None)]);
        assert_eq!(history.rates(&process).unwrap().launches, 0.0);
    }

    #[test]
    fn busy_time_is_of_the_time_that_was_observed_and_stays_between_windows() {
        let of = |gpus: &[(f64, f64)]| {
            let snapshots = gpus.iter().zip(0..).map(|(gpu, n)| at(f64::from(n), 0, Some(*gpu))).collect();
            let (history, process) = seen(snapshots);
            history.gpu_busy(&process).map(|share| (share * 1000.0).round() / 1000.0)
        };
        assert_eq!(of(&[(0.0, 0.0), (1.0, 0.25)]), Some(0.25));
        // Two seconds, in bursts.
        assert_eq!(of(&[(0.0, 0.0), (1.0, 0.9), (2.0, 1.0), (3.0, 1.9)]), Some(0.5));
        // A window of 0.1 s some time ago.
        assert_eq!(of(&[(0.0, 0.0), (0.1, 0.08), (0.1, 0.08), (0.1, 0.08), (0.1, 0.08)]), Some(0.8));
        assert_eq!(of(&[(0.5, 0.1), (0.5, 0.1)]), None);
    }
}
