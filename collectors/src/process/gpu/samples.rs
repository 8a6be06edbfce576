//! How long the GPU took for launches that were timed: the shim's samples, joined with their launches' rows.
//!
//! A launch that was timed says so in its event; a sample names the thread's row and the start of the call. Either may be read
//! first.

use std::collections::{HashMap, VecDeque};

use gputrace_abi::clock::ClockKind;
use gputrace_abi::event::{Event, FLAG_TIMED, text_kind};
use gputrace_abi::sample::{Account, Sample, USUAL_NS};

use crate::chain::Text;
use crate::clock::Clocks;
use crate::manifest::TimedLaunches;
use crate::tables::{Call, GpuSample, Launch, Tables};

/// Launches whose samples may still come: those of which the shim lost the events never do.
const MOST_CALLS: usize = 1 << 16;
/// Samples whose launches were not read yet.
const MOST_WAITING: usize = 1 << 16;
/// Passes that a sample waits for its launch: it was written later, and its ring may only be read in the next pass.
const PATIENCE: u8 = 200;

/// A launch that was timed: row of the thread, and the call's start in ticks.
type Place = (u16, u64);

/// The timed launches of a process.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// What the manifest says; none: nothing was timed.
    about: Option<TimedLaunches>,
    /// What their rows have of the launch.
    calls: HashMap<Place, GpuSample>,
    order: VecDeque<Place>,
    waiting: Vec<(Sample, i64, u8)>,
}

impl Samples {
    /// A launch that may have been timed has its row.
    #[inline]
    pub(in crate::process) fn launched(&mut self, event: &Event, call: &Call, launch: &Launch) {
        if event.flags & FLAG_TIMED != 0 {
            self.remember((event.thread, event.start), call, launch);
        }
    }

    #[cold]
    fn remember(&mut self, place: Place, call: &Call, launch: &Launch) {
        let row = GpuSample {
            process_id: call.process_id,
            pid: call.pid,
            device: call.device,
            context: call.context,
            stream: call.stream,
            correlation_id: call.correlation_id,
            name_id: launch.name_id,
            grid: launch.grid,
            block: launch.block,
            ..GpuSample::default()
        };
        self.calls.insert(place, row);
        self.order.push_back(place);
        if self.order.len() > MOST_CALLS
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
    }

    /// What the shim told of its samples.
    pub(in crate::process) fn take(&mut self, text: &Text, clocks: &Clocks, kind: ClockKind) {
        let about = self.about.get_or_insert_default();
        if text.kind == text_kind::GPU_SAMPLING {
            let Some(account) = Account::read(text.bytes()) else { return };
            about.timed = account.timed;
            about.without_room = account.without_room;
            about.lost = account.lost.saturating_add(account.dropped);
            about.late = account.late;
            about.pair_ns = account.pair_ns;
            about.contexts = account.contexts;
            about.error_ns = account.error_ns;
            about.assumed = account.assumed;
            return;
        }
        for sample in Sample::all(text.bytes()) {
            if self.waiting.len() < MOST_WAITING {
                // The shim's times are ns of the clock that the collector's pairs are made with.
                self.waiting.push((sample, clocks.ns_of_monotonic(kind, sample.start), 0));
            }
        }
    }

    /// Writes the samples whose launches are known. `all`: no other launch comes.
    pub(super) fn settle(&mut self, all: bool, tables: &mut Tables) {
        let Some(about) = &mut self.about else { return };
        let calls = &mut self.calls;
        self.waiting.retain_mut(|(sample, start_ns, passes)| {
            let Some(call) = calls.remove(&(sample.thread, sample.call)) else {
                *passes += 1;
                let waits = !all && *passes < PATIENCE;
                about.without_call += u64::from(!waits);
                return waits;
            };
            let ns = |ns: u64| ns.min(i64::MAX as u64) as i64;
            tables.gpu_sample(&GpuSample {
                start_ns: *start_ns,
                gpu_ns: ns(sample.gpu),
                kind: sample.kind,
                weight: sample.weight,
                pair_ns: ns(sample.pair),
                ..call
            });
            false
        });
    }

    /// Launches that were timed so far.
    pub(super) fn timed(&self) -> u64 {
        self.about.as_ref().map_or(0, |about| about.timed)
    }

    /// What the manifest says.
    pub(super) fn describe(&self) -> Option<TimedLaunches> {
        self.about.clone()
    }

    /// What is missing, a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let Some(about) = &self.about else { return Vec::new() };
        let count = |count: u64, what: &str| {
            (count > 0).then(|| format!("{count} launches that were drawn to be timed {what}"))
        };
        let counts = [
            count(about.without_room, "had no room: all pairs of events were under way"),
            count(about.lost, "have no time: their context ended, or the driver refused"),
            count(about.without_call, "have no call in the trace"),
        ];
        let assumed = (about.assumed > 0).then(|| {
            format!(
                "what a pair of events takes by itself could not be measured ({}): {USUAL_NS} ns beside the events' own were taken, as on an H200; each timed launch may be off by as much, which counts as error",
                "the program or another tool used CUPTI, or the GPU had no time for it"
            )
        });
        counts.into_iter().flatten().chain(assumed).collect()
    }
}
