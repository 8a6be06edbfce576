//! Live aggregates: what a session does, added up while it does it, for whoever asks.
//!
//! Every row passes here on its way into its table, where it is added to the rollups as well (`tables::folding`): an addition to the
//! sums of its process and kind, and while somebody looks to those of its kernel and line. Nothing is kept of single events.
//! Who asks gets a [`Snapshot`], at the control socket (`live`) or by [`Source`]; the drain makes it between two passes, at most
//! `OFTEN_NS` apart, and no lock stands in the way of an event.
//!
//! **Bounded.** Processes that run have sums of their own, [`MOST_PROCESSES`] at most; those of others are one sum, to which a
//! process's are added when it ends. So no sum of the session ever runs back. Who has them is decided in `places`.

mod account;
mod answers;
mod busy;
mod hot;
mod lines;
mod places;
mod snapshot;
mod sums;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use gputrace_abi::Class;
use rustc_hash::FxHashMap;

pub(crate) use account::sums_of;
pub(crate) use answers::Answers;
use busy::Busy;
use hot::Hot as Seconds;
use lines::Lines;
pub(crate) use lines::Resolved;
use places::Place;
pub(crate) use places::{calls, is_of_gpu};
pub use snapshot::{
    Device, Frame, Gpu, Hot, HotKernel, HotSite, Kind, Process, Reading, Shed, Snapshot, Sums, VERSION,
};
use sums::ByKind;

use crate::counters::{Id, Reading as Read};
use crate::drain::{Bell, Command};
use crate::rollups::{Folded, Kind as RowKind};
use crate::tables::GpuSample;
use crate::waiting::{Memory, Needs};

/// Processes with sums of their own.
pub const MOST_PROCESSES: usize = 256;
/// A snapshot that is younger than this is given again.
pub(crate) const OFTEN_NS: i64 = 100_000_000;
/// Devices of all processes; what is beyond them has no busy time of its own.
const MOST_DEVICES: usize = 64;
/// Counters of devices and control groups whose last reading is kept; those of a process are as many as there are counters.
const MOST_READINGS: usize = 4096;
/// How long [`Source`] waits for the drain.
const PATIENCE: Duration = Duration::from_secs(2);

/// Place of the sums of all processes that have none of their own.
const OTHERS: usize = 0;

type Readings<Of> = BTreeMap<(Of, Id), (i64, f64, f64)>;

/// A process, or all others.
#[derive(Default)]
struct Slot {
    kinds: ByKind,
    needs: Needs,
    busy: Busy<Option<i32>>,
    /// For how long it is known what the GPU did, as it was told last.
    observed_ns: i64,
    readings: Readings<()>,
    /// The account of the process as it was told last; of the others, of those that have ended.
    account: Sums,
}

/// All sums of a session.
pub(crate) struct Live {
    slots: Vec<Slot>,
    /// Processes by their id; what has no place counts for the others.
    places: FxHashMap<i64, Place>,
    vacant: Vec<usize>,
    /// The process of the last event, and its place.
    last: (i64, usize),
    /// UUIDs of all devices, and their busy time by place.
    uuids: Vec<Arc<str>>,
    devices: Busy<usize>,
    readings: Readings<Option<Arc<str>>>,
    hot: Seconds,
    lines: Lines,
    ended: u64,
    /// Accounts of processes that run and have no sums of their own, as of the last look at them.
    beyond: Sums,
    /// Of these, those that have ended since.
    late: Sums,
}

impl Default for Live {
    fn default() -> Live {
        Live {
            slots: vec![Slot::default()],
            places: FxHashMap::default(),
            vacant: Vec::new(),
            last: (i64::MIN, OTHERS),
            uuids: Vec::new(),
            devices: Busy::default(),
            readings: Readings::default(),
            hot: Seconds::default(),
            lines: Lines::default(),
            ended: 0,
            beyond: Sums::default(),
            late: Sums::default(),
        }
    }
}

impl Live {
    #[inline]
    fn slot(&mut self, process_id: i64) -> Option<&mut Slot> {
        if self.last.0 != process_id {
            self.last = (process_id, self.place(process_id));
        }
        self.slots.get_mut(self.last.1)
    }

    /// The place of a process that has sums of its own.
    fn own(&mut self, process_id: i64) -> Option<&mut Slot> {
        let place = self.place(process_id);
        self.slots.get_mut(place).filter(|_| place != OTHERS)
    }

    /// Adds one event, or several of one row.
    #[inline]
    pub(crate) fn fold(&mut self, folded: &Folded) {
        let key = &folded.key;
        if let Some(slot) = self.slot(key.process_id) {
            slot.kinds.add(folded);
        }
        if matches!(key.kind, RowKind::KERNEL | RowKind::DEVICE_COPY) {
            self.worked(folded);
        }
        if self.hot.is_wanted {
            self.hot.fold(folded);
        }
    }

    /// The GPU worked.
    fn worked(&mut self, folded: &Folded) {
        let (device, took_ns) = (folded.key.device, folded.took_ns.unwrap_or(0));
        let Some(slot) = self.slot(folded.key.process_id) else { return };
        slot.busy.add(&device, folded.start_ns, took_ns);
        let devices = self.places.get(&folded.key.process_id).map_or(&[][..], |place| &place.devices);
        if let Some(place) = device.and_then(|ordinal| *devices.get(usize::try_from(ordinal).ok()?)?) {
            self.devices.add(&place, folded.start_ns, took_ns);
        }
    }

    /// A call waited for work before it, of which its class does not tell.
    pub(crate) fn waited(&mut self, process_id: i64, class: Class, ns: i64) {
        if ns > 0
            && let Some(slot) = self.slot(process_id)
        {
            slot.kinds.waited(RowKind::of(class), ns);
        }
    }

    /// A call took memory or gave it back, and may have waited meanwhile.
    pub(crate) fn managed(&mut self, process_id: i64, memory: &Memory) {
        // What a call needs is a process's own: of the others together it would be a mixture.
        let waited_ns = self.own(process_id).map_or(0, |slot| slot.needs.waited_ns(memory));
        self.waited(process_id, memory.class, waited_ns);
    }

    /// Device memory was taken, or given back.
    pub(crate) fn memory(&mut self, process_id: i64, bytes: i64) {
        // Blocks of processes that have ended are nobody's.
        if let Some(place) = self.places.get_mut(&process_id) {
            place.device_memory_bytes = place.device_memory_bytes.saturating_add(bytes);
        }
    }

    /// A launch has a stack: it was drawn, for so many.
    #[inline]
    pub(crate) fn launched(&mut self, stack: Option<i64>, launches: Option<i64>, took_ns: i64) {
        if !self.hot.is_wanted {
            return;
        }
        if let (Some(stack), Some(launches)) = (stack, launches.filter(|launches| *launches > 0)) {
            let total_ns = took_ns.saturating_mul(launches);
            let site = hot::Site { calls: launches.unsigned_abs(), drawn: 1, total_ns, bytes: 0 };
            self.hot.site(stack, RowKind::of(Class::Launch), site);
        }
    }

    /// The GPU's time for a launch was measured.
    pub(crate) fn sampled(&mut self, sample: &GpuSample) {
        if self.hot.is_wanted && sample.kind == gputrace_abi::sample::kind::KERNEL {
            let gpu_ns = sample.gpu_ns;
            self.hot.kernel(sample.name_id, hot::Kernel { timed: 1, gpu_ns, ..hot::Kernel::default() });
        }
    }

    /// A name was announced.
    pub(crate) fn name(&mut self, id: i64, name: &str) {
        self.lines.name(id, name);
    }

    /// A stack was announced.
    pub(crate) fn stack(&mut self, stack: crate::tables::Stacked) {
        self.lines.stack(stack);
    }

    /// Where the thread that finds symbols tells of stacks.
    pub(crate) fn resolved(&self) -> Resolved {
        self.lines.resolved.clone()
    }

    /// The devices of a process, by ordinal.
    pub(crate) fn sees<'a>(&mut self, process_id: i64, uuids: impl Iterator<Item = &'a str>) {
        let all = &mut self.uuids;
        let place = |uuid: &str| {
            let known = all.iter().position(|known| **known == *uuid);
            known.or_else(|| {
                (all.len() < MOST_DEVICES).then(|| {
                    all.push(uuid.into());
                    all.len() - 1
                })
            })
        };
        let devices: Vec<Option<usize>> = uuids.map(place).collect();
        if let Some(place) = self.places.get_mut(&process_id) {
            place.devices = devices;
        }
    }

    /// A counter was read.
    pub(crate) fn read(&mut self, reading: &Read, at_ns: i64) {
        match reading.process {
            Some((process_id, _)) => {
                if let Some(slot) = self.own(process_id) {
                    note(&mut slot.readings, (), reading, at_ns);
                }
            }
            None => note(&mut self.readings, reading.device.clone(), reading, at_ns),
        }
    }

    /// Time passes: once a pass.
    pub(crate) fn tick(&mut self, now_ns: i64) {
        self.hot.tick(now_ns);
    }

    /// Somebody wants to know what is hot.
    pub(crate) fn want_hot(&mut self, now_ns: i64) {
        self.hot.want(now_ns);
    }
}

fn note<Of: Ord>(readings: &mut Readings<Of>, of: Of, reading: &Read, at_ns: i64) {
    let key = (of, reading.id);
    if reading.value.is_finite() && (readings.len() < MOST_READINGS || readings.contains_key(&key)) {
        let last = readings.entry(key).or_insert((at_ns, 0.0, 0.0));
        *last = (at_ns, reading.value, last.2 + reading.value);
    }
}

/// Where a thread of the collector's process asks for snapshots.
#[derive(Clone)]
pub struct Source {
    pub(crate) commands: Sender<Command>,
    pub(crate) bell: Arc<Bell>,
}

impl Source {
    /// The session as it is now; at most a tenth of a second old. `hot`: with what is hot, which the collector counts from the
    /// first time on that somebody asks for it, and for ten seconds after the last. None: the collector has ended, or is ending.
    pub fn snapshot(&self, hot: bool) -> Option<Arc<Snapshot>> {
        let (answer, answered) = bounded(1);
        self.commands.send(Command::Live { hot, answer }).ok()?;
        self.bell.ring();
        answered.recv_timeout(PATIENCE).ok()
    }
}
