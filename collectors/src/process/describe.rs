//! A process as others see it: its row in `processes`, its part of the manifest.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gputrace_abi::Class;
use gputrace_abi::layout::{malloc_mode, note, stacks};
use gputrace_abi::shed::Shed;
use gputrace_abi::sync::{AtomicU64, Ordering};

use super::Process;
use super::shed::{Prices, Work};
use crate::accounting::{Ending, MOST};
use crate::clock::Clocks;
use crate::facts;
use crate::manifest::{self, Cost, Count, Coverage};
use crate::tables::ProcessRow;

impl Process {
    /// The process's row, as far as it is known.
    pub(crate) fn row(&self, clocks: &Clocks, host: &str) -> ProcessRow {
        let header = self.segment.view().header();
        ProcessRow {
            process_id: self.id,
            pid: self.pid,
            parent_pid: self.facts.parent_pid,
            host: host.to_owned(),
            rank: self.rank(),
            local_rank: self.facts.local_rank,
            world_size: match self.facts.rank {
                Some(_) => self.facts.world_size,
                None => self.communicators.rank().map(|(_, ranks)| ranks),
            },
            visible_devices: self.facts.visible_devices.clone(),
            exe: self.facts.exe.clone(),
            command: self.facts.command.clone(),
            origin: if self.facts.forked { "fork" } else { "exec" },
            start_ns: self.start_ns(clocks),
            end_ns: self.ended_ns,
            exit_code: self.ending.code,
            exit_signal: self.ending.signal,
            traced: true,
            driver_version: Some(header.driver_version.load(Ordering::Relaxed) as i32).filter(|v| *v > 0),
            runtime_version: Some(header.asked_version.load(Ordering::Relaxed) as i32).filter(|v| *v > 0),
            routes: facts::routes(self.segment.view()),
            uncovered: self.fetched.uncovered(),
            past_symbols: self.fetched.past(),
            reason: facts::not_in_full(header.notes.load(Ordering::Relaxed)),
            events: self.events as i64,
            malloc_mode: self.facts.malloc_mode.clone(),
            event_cost_ns: clocks.cost_ns(self.clock, header.event_cost.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn rank(&self) -> Option<i32> {
        self.facts.rank.or(self.communicators.rank().map(|(rank, _)| rank))
    }

    /// What was done to its segment, where no number of it is to be relied on.
    pub(crate) fn damage(&self) -> Option<String> {
        let what = match () {
            () if self.segment.is_cut() => "its segment's file was cut: what it recorded since is lost, and",
            () if self.segment.is_damaged() => "something wrote over the head of its segment:",
            () => return None,
        };
        Some(format!("{what} its counts, costs and times are not to be relied on"))
    }

    /// The process's part of the manifest: final after `finish`, before it as of now.
    pub(crate) fn describe(&self, clocks: &Clocks) -> manifest::Process {
        let header = self.segment.view().header();
        let hooks = &self.intake.hooks;
        let accounting = self.accounting();
        let unread = header.stacks[stacks::UNREAD].load(Ordering::Relaxed);
        let inline = facts::inline(self.segment.view());
        let mut notes = facts::notes(
            header.notes.load(Ordering::Relaxed) & !self.intake.metal.known_notes(),
            &self.fetched.past_symbols,
            inline.is_some(),
        );
        notes.extend(facts::driver_note(header.driver_version.load(Ordering::Relaxed)));
        let damage = self.damage();
        let damaged = damage.is_some();
        notes.extend(damage);
        if self.broken {
            notes.push("a ring led out of its segment and was not read on".to_owned());
        }
        if unread > 0 {
            notes.push(format!(
                "Python frames could not be read for {unread} stacks: a version or a build that this gputrace does not know"
            ));
        }
        if self.intake.unknown > 0 {
            notes.push(format!("{} events of hooks that its table does not have", self.intake.unknown));
        }
        notes.extend(self.host.notes());
        let unfollowed = header.unfollowed.load(Ordering::Relaxed);
        if unfollowed > 0 {
            notes.push(format!(
                "more sampled blocks were live at once than are followed: the frees of {unfollowed} are not recorded, and what \
                 is live is less than it seems"
            ));
        }
        notes.extend(self.intake.metal.notes());
        notes.extend(self.gpu.notes());
        if self.ranges.orphans > 0 {
            notes.push(format!("{} ends of ranges without their beginnings", self.ranges.orphans));
        }
        manifest::Process {
            process_id: self.id,
            pid: self.pid,
            rank: self.rank(),
            exe: self.facts.exe.clone(),
            traced: true,
            reason: facts::not_in_full(header.notes.load(Ordering::Relaxed)),
            running: self.ended_ns.is_none(),
            metal: facts::is_of_metal(self.segment.view(), hooks),
            python_pools: header.notes.load(Ordering::Relaxed) & note::PYTHON_POOLS != 0,
            balanced: !damaged && accounting.values().all(manifest::Count::is_balanced),
            gpu_time: self.gpu.describe(self.segment.view().header()),
            gpu_clocks: self.intake.metal.gpu_clocks(),
            cost: self.cost(clocks, &accounting),
            budget: self.shedding.describe(header),
            accounting,
            stacks: self.stacks(),
            devices: self.devices.all().map(|device| device.uuid.clone()).collect(),
            nested: header.nested.load(Ordering::Relaxed),
            coverage: Coverage {
                hooks: facts::coverage(self.segment.view(), hooks, &self.counted_calls()),
                uncovered: self.fetched.symbols.clone(),
                export_tables: self.fetched.export_tables.clone(),
                past_symbols: self.fetched.past_symbols.clone(),
                inline,
            },
            notes,
        }
    }

    fn stacks(&self) -> manifest::Stacks {
        let counts = self.stack_counts();
        manifest::Stacks {
            python: counts[stacks::PYTHON],
            native: counts[stacks::NATIVE],
            none: counts[stacks::NONE],
            unread: counts[stacks::UNREAD],
            lost: self.intake.stacks.lost(),
        }
    }

    /// The account of its calls, as of now.
    pub(super) fn accounting(&self) -> BTreeMap<String, Count> {
        let mut books = self.books.clone();
        let class_of = |hook| facts::class_of(self.segment.view(), hook);
        for thread in self.threads.iter().skip(1).filter(|t| t.is_live()) {
            if let Some(row) = self.segment.view().thread(thread.row) {
                books.enter(&thread.counters(row), &thread.recorded, 0, Ending::Cut, class_of);
            }
        }
        let (table, counted) = self.counted();
        // Some are only counted always, launches where they are left out.
        for (hook, calls) in table.iter().zip(&counted) {
            books.enter_counted(hook.class as usize, *calls);
        }
        let mut accounting = books.close();
        for class in [Class::HostAlloc, Class::HostFree] {
            if let Some(count) = accounting.get_mut(class.name()) {
                count.cull(self.host.culled() + self.culled_before);
            }
        }
        self.elsewhere.take_off(&mut accounting);
        accounting
    }

    /// The hook table, and the calls of each hook that were counted only.
    fn counted(&self) -> (Cow<'_, [facts::Hook]>, Vec<u64>) {
        let counted = facts::counted(self.segment.view());
        let hooks = &self.intake.hooks;
        let read = if hooks.is_empty() && !counted.is_empty() { facts::hooks(self.segment.view()) } else { Vec::new() };
        (if hooks.is_empty() { read.into() } else { hooks.into() }, counted)
    }

    /// Looks once a second at what the GPU's times may cost.
    pub(super) fn govern(&mut self, clocks: &Clocks) {
        let (view, now_ns) = (*self.segment.view(), clocks.now_ns());
        if self.gpu.is_governed(view.header(), now_ns) {
            let hooks_ns = self.work(clocks, &self.accounting()).cost_ns(&self.prices(clocks));
            self.gpu.govern(view.header(), now_ns, hooks_ns);
        }
    }

    /// Decides once a second what is left out for the budget.
    pub(super) fn shed(&mut self, clocks: &Clocks) {
        let mut shedding = std::mem::take(&mut self.shedding);
        let work = || self.work(clocks, &self.accounting());
        shedding.look(self.segment.view().header(), clocks.now_ns(), self.prices(clocks), work);
        self.shedding = shedding;
    }

    /// What the process did that costs.
    pub(super) fn work(&self, clocks: &Clocks, accounting: &BTreeMap<String, Count>) -> Work {
        let header = self.segment.view().header();
        let stacks = self.stacks();
        let mut work = Work {
            stacks: [stacks.python, stacks.native, stacks.none].iter().map(|count| *count.min(&MOST)).sum(),
            // Costs are given in 1/256 ticks.
            stacks_ns: clocks.cost_ns(self.clock, self.stack_ticks().saturating_mul(256)).unwrap_or(0.0),
            left_out: [header.stacks_shed.load(Ordering::Relaxed).min(MOST), 0, 0],
            rarer: Shed::of(header.shed.load(Ordering::Relaxed)).malloc,
            ..Work::default()
        };
        let sampled = header.malloc_mode.load(Ordering::Relaxed) == malloc_mode::SAMPLE;
        for (class, count) in accounting {
            // A wait that was too short for an event had the clock read twice all the same.
            *(match class.as_str() {
                of if of == Class::OsWait.name() => &mut work.events,
                of if of == Class::Launch.name() => &mut work.left_out[2],
                _ => &mut work.passed,
            }) += count.sampled_out;
            let is_malloc = [Class::HostAlloc, Class::HostFree].iter().any(|of| class == of.name());
            let counted = if is_malloc { self.pairs().min(count.kept()) } else { 0 };
            work.passed += counted;
            work.events += count.kept() - counted + count.left_out + count.dropped;
            if sampled && is_malloc {
                work.malloc += count.recorded + count.dropped;
            }
            if class == Class::Launch.name() {
                work.launches = count.recorded + count.left_out + count.dropped;
            }
            if class == Class::HostAlloc.name() {
                work.left_out[1] = count.sampled_out;
            }
        }
        work
    }

    pub(super) fn prices(&self, clocks: &Clocks) -> Prices {
        let header = self.segment.view().header();
        let price = |word: &AtomicU64| clocks.cost_ns(self.clock, word.load(Ordering::Relaxed));
        Prices {
            event_ns: price(&header.event_cost),
            passed_ns: price(&header.malloc_cost),
            counted_ns: price(&header.counted_cost),
        }
    }

    pub(super) fn cost(&self, clocks: &Clocks, accounting: &BTreeMap<String, Count>) -> Cost {
        let (work, prices) = (self.work(clocks, accounting), self.prices(clocks));
        let Prices { event_ns, passed_ns: malloc_ns, counted_ns } = prices;
        // Costs are given in 1/256 ticks.
        let graphs = self.segment.view().header().graph_ticks.load(Ordering::Relaxed).saturating_mul(256);
        let graphs_ns = clocks.cost_ns(self.clock, graphs);
        let waited = self.segment.view().header().waited_ticks.load(Ordering::Relaxed).saturating_mul(256);
        let waited_ns = clocks.cost_ns(self.clock, waited).filter(|ns| *ns > 0.0);
        let stacks_ns = (work.stacks_ns > 0.0).then_some(work.stacks_ns);
        let measured = event_ns.is_some() || malloc_ns.is_some();
        let total_ns = measured.then(|| work.cost_ns(&prices) + graphs_ns.unwrap_or(0.0) + waited_ns.unwrap_or(0.0));
        Cost {
            event_ns,
            malloc_ns,
            counted_ns: counted_ns.filter(|_| work.left_out[2] > 0),
            events: work.events,
            graphs_ns,
            stacks_ns,
            waited_ns,
            total_ns,
        }
    }
}
