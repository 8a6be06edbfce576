//! A process for whoever watches it live: what it says of itself at this moment, beside the sums of its events.

use gputrace_abi::Class;
use gputrace_abi::shed::Shed;
use gputrace_abi::sync::Ordering;

use super::Process;
use crate::clock::{self, Clocks};
use crate::live;
use crate::tables::GpuWindow;

impl Process {
    /// Its account as sums: calls that it began, those that were lost or left out, and what tracing cost.
    fn account(&self, clocks: &Clocks) -> live::Sums {
        let accounting = self.accounting();
        live::sums_of(&accounting, self.cost(clocks, &accounting).total_ns)
    }

    /// Windows of GPU times that have no row yet.
    pub(crate) fn open_windows(&self) -> impl Iterator<Item = GpuWindow> {
        self.gpu.open_windows()
    }

    /// Its account, the calls that run at this moment, and what else is known of it. What GPUs did is in the sums as far as before
    /// `known_ns`.
    pub(crate) fn live(&self, clocks: &Clocks, known_ns: i64) -> live::Process {
        let mut account = self.account(clocks);
        let header = self.segment.view().header();
        let now = clock::now(self.clock);
        let hooks = &self.intake.hooks;
        let mut threads = 0;
        for busy in self.busy() {
            threads += 1;
            // Of a call of a library and one of the driver inside it either counts for its own class.
            for call in [busy.driver, busy.library, busy.wait].into_iter().flatten() {
                let Some(hook) = hooks.get(call.hook) else { continue };
                let kind = account.kinds.entry(hook.class.name().into()).or_default();
                kind.running += 1;
                kind.running_ns += clocks.span_ns(self.clock, call.start, now).max(0);
            }
        }
        // A command buffer of Metal's tells of its time by itself.
        let commits = account.kinds.get(Class::Commit.name()).is_some_and(|commits| commits.seen > 0);
        let observed_ns = match commits {
            true => Some(clocks.now_ns() - self.start_ns(clocks)),
            false => self.gpu.observed_ns(known_ns),
        };
        let shed = Shed::of(header.shed.load(Ordering::Relaxed));
        let asked = header.shed_ppm.load(Ordering::Relaxed) != 0;
        live::Process {
            process_id: self.id,
            pid: self.pid,
            rank: self.rank(),
            exe: self.facts.exe.clone(),
            command: self.facts.command.clone(),
            start_ns: self.start_ns(clocks),
            recording: self.is_recording(),
            threads,
            sums: account,
            gpu: observed_ns.map(|observed_ns| live::Gpu { observed_ns, devices: Vec::new() }),
            shed: asked.then(|| live::Shed {
                stacks: shed.stacks,
                malloc_one_in: 1 << shed.malloc,
                launches_one_in: 1 << shed.launches,
            }),
            counters: Vec::new(),
        }
    }
}
