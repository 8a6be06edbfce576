//! The drain's part of the hang watch: looks at the threads of all processes now and then, and follows what was reported.

use std::time::{Duration, Instant};

use gputrace_abi::Class;
use gputrace_abi::event::detail;

use super::Drain;
use crate::Config;
use crate::clock::Clocks;
use crate::hangs::{Case, Hang, OneThread, Peer, Reporter, missing};
use crate::process::Process;
use crate::process::in_flight::{Busy, Over, Running, Stuck};
use crate::writer::Shared;

/// How often it is looked, unless less time is a hang.
const EVERY: Duration = Duration::from_secs(1);
const OFTEN: Duration = Duration::from_millis(50);
/// Hangs that are remembered; reports that go to stderr.
const MOST: usize = 1000;
const MOST_SAID: usize = 16;
/// Ranks of processes that have ended.
const MOST_GONE: usize = 4096;
/// Streams that a report tells of.
const MOST_STREAMS: usize = 64;

/// The hang watch.
pub(super) struct Hangs {
    /// None: it is off.
    after: Option<Duration>,
    looked: Instant,
    /// Passes that read everything since then. What a pass reads the next one makes sense of.
    passes: u32,
    all: Vec<Hang>,
    /// Hangs beyond those.
    more: u64,
    said: usize,
    gone: Vec<Peer>,
    reporter: Reporter,
}

impl Hangs {
    pub(super) fn new(config: &Config, shared: Shared) -> Hangs {
        Hangs {
            after: config.hang_after,
            looked: Instant::now(),
            passes: 0,
            all: Vec::new(),
            more: 0,
            said: 0,
            gone: Vec::new(),
            reporter: Reporter::new(config.trace.clone(), config.host.clone(), shared),
        }
    }

    /// From when on a call hangs.
    pub(super) fn after(&self) -> Option<Duration> {
        self.after
    }

    /// From now on a call hangs that stands still for so long.
    pub(super) fn watch_from(&mut self, after: Option<Duration>) {
        self.after = after;
    }

    /// Those that were reported.
    pub(super) fn all(&self) -> Vec<Hang> {
        self.all.clone()
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.all.len() as u64 + self.more
    }

    /// What the manifest has to say of those that were not.
    pub(super) fn note(&self) -> Option<String> {
        (self.more > 0).then(|| format!("{} more calls hung than are listed", self.more))
    }

    fn end(&mut self, over: &[Over], returned: bool) {
        for over in over {
            if let Some(hang) = self.all.get_mut(over.number) {
                (hang.ended_ns, hang.returned) = (Some(over.ended_ns), returned);
            }
        }
    }

    fn take_found(&mut self, last: bool) -> bool {
        let found = if last { self.reporter.finish() } else { self.reporter.found() };
        let any = !found.is_empty();
        for found in found {
            if let Some(hang) = self.all.get_mut(found.number) {
                (hang.line, hang.stack, hang.earlier) = (found.line, found.stack, found.earlier);
                hang.report = found.report;
            }
        }
        any
    }
}

impl Drain {
    /// A pass has read everything: looks whether a call stands still, when it is time.
    pub(super) fn look_for_hangs(&mut self) {
        let Some(after) = self.hangs.after else { return };
        self.hangs.passes += 1;
        let every = EVERY.min(after / 4).max(OFTEN);
        if self.hangs.looked.elapsed() < every || self.hangs.passes < 2 {
            return;
        }
        // Whoever was kept from running knows nothing of what went on meanwhile.
        let late = self.hangs.looked.elapsed() > every + EVERY;
        (self.hangs.looked, self.hangs.passes) = (Instant::now(), 0);
        self.changed |= self.hangs.take_found(false);
        for process in self.processes.values_mut() {
            let over = process.returned(&self.clocks);
            self.changed |= !over.is_empty();
            self.hangs.end(&over, true);
        }
        if late {
            return;
        }
        let now_ns = self.clocks.now_ns();
        let stuck = self.processes.iter().map(|(token, process)| (*token, process.stuck(now_ns, &self.clocks, after)));
        let stuck: Vec<(u64, Vec<Stuck>)> = stuck.filter(|(_, stuck)| !stuck.is_empty()).collect();
        if stuck.is_empty() {
            return;
        }
        let peers: Vec<Peer> =
            self.processes.values().flat_map(peers_of).chain(self.hangs.gone.iter().cloned()).collect();
        for (token, mut stuck) in stuck {
            let room = MOST.saturating_sub(self.hangs.all.len());
            self.hangs.more += stuck.len().saturating_sub(room) as u64;
            stuck.truncate(room);
            if let Some(process) = self.processes.get_mut(&token).filter(|_| room > 0) {
                let first = self.hangs.all.len();
                process.report(&stuck, first);
                let mut case = case(process, &stuck, &self.clocks, now_ns, &peers);
                self.hangs.said += 1;
                (case.is_said, case.is_last_said) = (self.hangs.said <= MOST_SAID, self.hangs.said == MOST_SAID);
                case.first = first;
                let why = case.hangs.first().map(|hang| format!("process {} hangs in {}", hang.pid, hang.call));
                self.hangs.all.extend(case.hangs.iter().cloned());
                self.hangs.reporter.report(case);
                self.changed = true;
                if let (Some(stage), Some(why)) = (&mut self.stage, why) {
                    let _ = stage.trigger(now_ns, &why);
                }
            }
        }
    }

    /// A process was read to its end: whether it ended, or only the trace.
    pub(super) fn close_hangs(&mut self, process: &mut Process, ended_ns: Option<i64>) {
        let (over, cut) = process.last_returned(&self.clocks);
        self.hangs.end(&over, true);
        if let Some(ended_ns) = ended_ns {
            let cut: Vec<Over> = cut.into_iter().map(|number| Over { number, ended_ns }).collect();
            self.hangs.end(&cut, false);
            let room = MOST_GONE.saturating_sub(self.hangs.gone.len());
            self.hangs.gone.extend(peers_of(process).map(|peer| Peer { ended: true, inside: None, ..peer }).take(room));
        }
    }

    /// The last word of those that look at processes.
    pub(super) fn finish_hangs(&mut self) {
        self.hangs.take_found(true);
        let note = self.hangs.note();
        note.iter().for_each(|note| self.manifest.note(note));
    }
}

/// The process's ranks.
fn peers_of(process: &Process) -> impl Iterator<Item = Peer> + '_ {
    let busy = process.busy();
    process.communicators.parties().map(move |(number, party)| {
        let collective = |call: &Running| {
            let hook = process.hook(call.hook)?;
            let is_it =
                hook.class == Class::Collective && hook.detail == detail::COLLECTIVE && call.about == u64::from(number);
            is_it.then(|| hook.name.clone())
        };
        let inside = busy.iter().filter_map(|busy| busy.library).find_map(|call| collective(&call));
        let last = process.hook_name(party.last.into()).to_owned();
        Peer { pid: process.pid, number, party, inside, last, ended: false }
    })
}

fn case(process: &Process, stuck: &[Stuck], clocks: &Clocks, now_ns: i64, peers: &[Peer]) -> Case {
    let ns = |ticks: u64| clocks.ns(process.clock, ticks);
    let missing = missing(process.pid, peers);
    let hang = |stuck: &Stuck| {
        let (tid, thread) = process.thread_name(stuck.busy.place);
        let inside = stuck.busy.driver.filter(|call| *call != stuck.call);
        Hang {
            process_id: process.id,
            pid: process.pid,
            rank: process.rank(),
            tid,
            thread,
            call: process.hook_name(stuck.call.hook).to_owned(),
            inside: inside.map(|call| process.hook_name(call.hook).to_owned()),
            stream: stuck.stream.map(|handle| handle as i64),
            start_ns: ns(stuck.call.start),
            noticed_ns: now_ns,
            missing: missing.clone(),
            ..Hang::default()
        }
    };
    let thread = |busy: &Busy| {
        let (tid, name) = process.thread_name(busy.place);
        let calls = [busy.library, busy.driver, busy.wait];
        let calls = calls.iter().flatten().map(|call| {
            let seconds = now_ns.saturating_sub(ns(call.start)).max(0) as f64 / 1e9;
            format!("in {} for {seconds:.1} s", process.hook_name(call.hook))
        });
        OneThread {
            tid,
            name: name.unwrap_or_default(),
            calls: calls.collect(),
            last_stack: process.last_stack(busy.place),
        }
    };
    Case {
        hangs: stuck.iter().map(hang).collect(),
        exe: process.facts.exe.clone(),
        command: process.facts.command.clone(),
        foreign: process.foreign,
        now_ns,
        threads: process.busy().iter().map(thread).collect(),
        streams: streams(process, clocks, now_ns),
        communicators: peers.iter().filter(|peer| peer.pid == process.pid && !peer.ended).map(Peer::describe).collect(),
        ..Case::default()
    }
}

/// What the process's streams were given and what was waited for, a line each; those with something outstanding first.
fn streams(process: &Process, clocks: &Clocks, now_ns: i64) -> Vec<String> {
    let mut streams: Vec<_> = process.pending.given().filter(|(.., given, _)| given.operations > 0).collect();
    streams.sort_by_key(|(context, id, given, _)| (given.operations == given.done, *context, *id));
    let line = |(context, id, given, since): &(u16, _, crate::process::pending::Given, Option<u64>)| {
        let id: &crate::process::pending::StreamId = id;
        let name = match id.handle() {
            1 => "the legacy stream".to_owned(),
            2 => "a per-thread stream".to_owned(),
            handle => format!("stream {handle:#x}"),
        };
        let outstanding = match given.operations - given.done {
            0 => "nothing outstanding".to_owned(),
            n => {
                let since = since.map_or(0, |ticks| now_ns.saturating_sub(clocks.ns(process.clock, ticks)).max(0));
                let last = process.hook_name(given.last.into());
                format!("{n} operations outstanding, the oldest for {:.1} s, the last {last}", since as f64 / 1e9)
            }
        };
        let done = match given.done {
            0 => "none was waited for yet".to_owned(),
            n => format!("{n} known to be complete, the last {}", process.hook_name(given.last_done.into())),
        };
        format!("{name} of context {context}: {outstanding}; {done}")
    };
    let mut lines: Vec<String> = streams.iter().take(MOST_STREAMS).map(line).collect();
    if streams.len() > MOST_STREAMS {
        lines.push(format!("and {} more", streams.len() - MOST_STREAMS));
    }
    lines
}
