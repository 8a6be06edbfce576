//! Processes, threads and devices as nsys numbers them.
//!
//! A thread is one number: 8 bits of hardware, 8 of the machine, 24 of the process, 24 of the thread. Queries often look at the
//! process's alone; so where two images had one pid, after an exec or on two hosts, or a number does not fit its bits, one is
//! given that no process or thread of Linux has.

use rustc_hash::{FxHashMap, FxHashSet};

use gputrace_collectors::manifest::Device;

use crate::trace::Trace;

/// Numbers that are given begin here: Linux counts to 4,194,304.
const SUBSTITUTES: i64 = 1 << 23;
/// 24 bits.
const MOST: i64 = 0xff_ffff;

/// Numbers of places.
pub(super) struct Places<'a> {
    /// `globalPid` by process.
    processes: FxHashMap<i64, i64>,
    /// Numbers of threads whose own do not fit.
    threads: FxHashMap<(i64, i32), i64>,
    /// Each device once: its place is its `deviceId`.
    pub(super) devices: Vec<&'a Device>,
    /// That of a process's ordinal.
    by_ordinal: FxHashMap<(i64, i64), i64>,
    /// Each host once, with its `globalVid`.
    pub(super) hosts: Vec<(&'a str, i64)>,
}

impl<'a> Places<'a> {
    /// Those of a trace.
    pub(super) fn of(trace: &'a Trace) -> Places<'a> {
        let mut places = Places {
            processes: FxHashMap::default(),
            threads: FxHashMap::default(),
            devices: Vec::new(),
            by_ordinal: FxHashMap::default(),
            hosts: Vec::new(),
        };
        for device in trace.manifests().flat_map(|manifest| &manifest.devices) {
            let known = |known: &&Device| !device.uuid.is_empty() && known.uuid == device.uuid;
            if !places.devices.iter().any(known) {
                places.devices.push(device);
            }
        }
        let mut taken = FxHashSet::default();
        for (number, process) in (0..).zip(&trace.processes) {
            let vid = places.host(&process.host);
            let pid = i64::from(process.pid);
            let free = (1..SUBSTITUTES).contains(&pid) && taken.insert(pid);
            let pid = if free { pid } else { SUBSTITUTES + number % SUBSTITUTES };
            places.processes.insert(process.process_id, vid | pid << 24);
            let seen = process.manifest.iter().flat_map(|known| &known.devices);
            for (ordinal, uuid) in (0..).zip(seen) {
                let place = places.devices.iter().position(|device| device.uuid == *uuid);
                let place = place.map(|place| ((process.process_id, ordinal), place as i64));
                places.by_ordinal.extend(place);
            }
        }
        places
    }

    /// The `globalVid` of a host.
    fn host(&mut self, host: &'a str) -> i64 {
        if let Some((_, vid)) = self.hosts.iter().find(|(known, _)| *known == host) {
            return *vid;
        }
        // Of more than 255 hosts the next bits tell them apart; the highest one stays 0, that numbers are not negative.
        let number = self.hosts.len() as i64;
        let vid = (number / 255 % 128) << 56 | (number % 255 + 1) << 48;
        self.hosts.push((host, vid));
        vid
    }

    /// `globalPid` of a process.
    pub(super) fn pid(&self, process: i64) -> i64 {
        self.processes.get(&process).copied().unwrap_or(0)
    }

    /// `globalTid` of a thread.
    pub(super) fn tid(&mut self, process: i64, tid: i32) -> i64 {
        let pid = self.pid(process);
        if (0..SUBSTITUTES).contains(&tid.into()) {
            return pid | i64::from(tid);
        }
        let given = SUBSTITUTES + self.threads.len() as i64;
        pid | *self.threads.entry((process, tid)).or_insert(given) & MOST
    }

    /// `deviceId` of a process's ordinal.
    pub(super) fn device(&self, process: i64, ordinal: Option<i64>) -> Option<i64> {
        let ordinal = ordinal?;
        Some(self.by_ordinal.get(&(process, ordinal)).copied().unwrap_or(ordinal))
    }

    /// Process, ordinal and `deviceId` of all devices that processes could see.
    pub(super) fn seen(&self) -> impl Iterator<Item = (i64, i64, i64)> {
        self.by_ordinal.iter().map(|((process, ordinal), device)| (*process, *ordinal, *device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn each_image_and_each_thread_has_a_number_of_its_own() {
        let mut made = TestTrace::new();
        // 100 called exec, and the pid of the third does not fit.
        for (process, pid) in [(1, 100), (2, 100), (3, i32::MAX)] {
            made.process(process, pid, None, START + 1_000_000);
            made.thread(process, pid).launch("k", 1_000);
        }
        let trace = made.open();
        let mut places = Places::of(&trace);
        assert_eq!(places.pid(1), 1 << 48 | 100 << 24);
        let pids = [1, 2, 3].map(|process| places.pid(process));
        assert!(pids[1] != pids[0] && pids[2] != pids[1] && pids.iter().all(|pid| pid >> 48 == 1 && pid & MOST == 0));
        assert_eq!(places.tid(1, 101), pids[0] | 101);
        let odd = [i32::MAX, -5, i32::MAX].map(|tid| places.tid(1, tid));
        assert!(odd[0] == odd[2] && odd[0] != odd[1] && odd.iter().all(|tid| tid & !MOST == pids[0]), "{odd:x?}");
    }
}
