//! Moments worth keeping that show in rows and readings, and which of them were asked for.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::devices::Devices;
use super::failures::{Failures, Noted};
use super::new_kernels::NewKernels;
use super::slow::Slow;
use super::split::Part;
use super::steps::SlowSteps;
use crate::counters::Id;
use crate::summed::Among;
use crate::writer::Message;

/// What is a moment worth keeping only where somebody asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Triggers {
    /// A wait that takes so many times what is usual.
    pub slow: Option<u32>,
    /// A step that takes so many times the median of its process.
    pub slow_step: Option<u32>,
    /// A device that was busy has run nothing for so long.
    pub gpu_idle: Option<Duration>,
    /// A kernel is launched for the first time by a process that has launched nothing new for so long.
    #[serde(default)]
    pub new_kernel: Option<Duration>,
}

/// Who looks for them.
pub(super) struct Watchers {
    failures: Failures,
    asked: Triggers,
    slow: Option<Slow>,
    steps: SlowSteps,
    devices: Devices,
    kernels: NewKernels,
}

impl Watchers {
    pub(super) fn new(asked: Triggers) -> Watchers {
        Watchers {
            failures: Failures::default(),
            slow: asked.slow.map(Slow::new),
            steps: SlowSteps::new(asked.slow_step),
            devices: Devices::new(asked.gpu_idle),
            kernels: NewKernels::new(asked.new_kernel),
            asked,
        }
    }

    /// What was asked for.
    pub(super) fn asked(&self) -> Triggers {
        self.asked
    }

    /// Looks for this from now on. What is usual is learnt from then on, where nobody asked for it before.
    pub(super) fn ask(&mut self, asked: Triggers) {
        if asked.slow != self.asked.slow {
            self.slow = asked.slow.map(Slow::new);
        }
        self.steps.ask(asked.slow_step);
        self.devices.ask(asked.gpu_idle);
        self.kernels.ask(asked.new_kernel);
        self.asked = asked;
    }

    /// Learns names.
    pub(super) fn learn(&mut self, message: &Message) {
        self.failures.learn(message);
        self.steps.learn(message);
        self.kernels.learn(message);
    }

    /// Makes room of what is known of processes that have ended long ago.
    pub(super) fn forget(&mut self, among: &Among) {
        self.failures.forget(among);
        self.slow.iter_mut().for_each(|slow| slow.forget(among));
        self.steps.forget(among);
        self.kernels.forget(among);
    }

    /// What a batch of single events tells.
    pub(super) fn look(&mut self, part: &Part) -> impl Iterator<Item = Noted> + use<> {
        let failed = self.failures.first_of(part);
        let name = |function| self.failures.name(function);
        let slowest = self.slow.as_mut().and_then(|slow| slow.slowest_of(part, name));
        let step = self.steps.slowest_of(part);
        failed.into_iter().chain(slowest).chain(step).chain(self.kernels.first_of(part))
    }

    /// What a reading of a device tells.
    pub(super) fn see(&mut self, device: &Arc<str>, id: Id, value: f64, at_ns: i64) -> Option<Noted> {
        self.devices.see(device, id, value, at_ns)
    }
}
