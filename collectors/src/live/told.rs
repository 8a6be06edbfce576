//! What is told of the sums: of each process that runs, and of all else.

use std::cmp::Reverse;

use gputrace_abi::Class;

use super::snapshot::{Device, Hot, HotKernel, HotSite, Process, Reading, Snapshot};
use super::{Live, OTHERS, RowKind, hot};
use crate::counters::Id;

/// Kernels and lines that are told.
const MOST_HOT: usize = 50;

impl Live {
    /// Adds the sums of a process to what it says of itself.
    pub(crate) fn complete(&mut self, process: &mut Process) {
        let Some(place) = self.places.get(&process.process_id).filter(|place| place.slot != OTHERS) else { return };
        let Some(slot) = self.slots.get_mut(place.slot) else { return };
        process.sums.at_least(&slot.account);
        slot.account = process.sums.clone();
        slot.kinds.describe(&mut process.sums);
        process.sums.device_memory_bytes = place.device_memory_bytes.max(0);
        if let Some(gpu) = &mut process.gpu {
            let all = &self.uuids;
            let uuid = |at: Option<i32>| Some(all.get((*place.devices.get(usize::try_from(at?).ok()?)?)?)?.to_string());
            // What is known ends where the slowest process of the session has told all: one that begins just now, with work that
            // is not told yet, sets that back for all of them.
            slot.observed_ns = slot.observed_ns.max(gpu.observed_ns);
            gpu.observed_ns = slot.observed_ns;
            let busy = slot.busy.all();
            gpu.devices = busy.map(|(at, busy_ns)| Device { ordinal: *at, uuid: uuid(*at), busy_ns }).collect();
        }
        process.counters = slot.readings.iter().map(|(((), id), last)| reading(*id, None, last)).collect();
    }

    /// All that is of no process that has its own sums: the others' sums, devices, counters, and what is hot.
    pub(crate) fn describe(&self, now_ns: i64, into: &mut Snapshot) {
        if let Some(others) = self.slots.get(OTHERS) {
            others.kinds.describe(&mut into.others);
            into.others.add(&others.account);
            into.others.add(&self.beyond);
        }
        into.ended = self.ended;
        let device = |(place, busy_ns): (&usize, i64)| Device {
            ordinal: None,
            uuid: self.uuids.get(*place).map(|uuid| uuid.to_string()),
            busy_ns,
        };
        into.devices = self.devices.all().map(device).collect();
        into.counters =
            self.readings.iter().map(|((device, id), last)| reading(*id, device.as_deref(), last)).collect();
        into.hot = self.hot.tell(now_ns).map(|told| self.name_hot(told));
    }

    fn name_hot(&self, told: hot::Told) -> Hot {
        let mut kernels: Vec<_> = told.kernels.into_iter().collect();
        kernels.sort_by_key(|(name, k)| (Reverse((heat(k), k.launches)), *name));
        let mut sites: Vec<_> = told.sites.into_iter().collect();
        // Threads that have nothing to do wait as well: waits for the system must not hide what is done.
        let waits = |kind: &RowKind| *kind == RowKind::of(Class::OsWait);
        let heat = |site: &hot::Site| Reverse((site.total_ns, site.calls));
        sites.sort_by_key(|((stack, kind), site)| (waits(kind), heat(site), *stack, kind.0));
        let kernel = |(name, k): (Option<i64>, hot::Kernel)| HotKernel {
            name: name.and_then(|name| self.lines.name_of(name)),
            launches: k.launches,
            launch_ns: k.launch_ns,
            timed: k.timed,
            gpu_ns: k.gpu_ns,
        };
        let site = |((stack, kind), site): ((i64, RowKind), hot::Site)| HotSite {
            kind: kind.text().into(),
            frames: self.lines.frames_of(stack),
            calls: site.calls,
            drawn: site.drawn,
            total_ns: site.total_ns,
            bytes: site.bytes,
        };
        Hot {
            span_ns: told.span_ns,
            kernels: kernels.into_iter().take(MOST_HOT).map(kernel).collect(),
            sites: sites.into_iter().take(MOST_HOT).map(site).collect(),
            cut: told.cut,
        }
    }
}

/// A kernel's time on the GPU: where a part of its runs was timed, as much as all of them took if they are alike.
fn heat(kernel: &hot::Kernel) -> i64 {
    let scale = kernel.launches.max(kernel.timed) as f64 / kernel.timed.max(1) as f64;
    (kernel.gpu_ns as f64 * scale) as i64
}

fn reading(id: Id, device: Option<&str>, (at_ns, value, sum): &(i64, f64, f64)) -> Reading {
    let counter = id.counter();
    Reading {
        source: counter.source.into(),
        name: counter.name.into(),
        device: device.map(str::to_owned),
        at_ns: *at_ns,
        value: *value,
        sum: *sum,
    }
}
