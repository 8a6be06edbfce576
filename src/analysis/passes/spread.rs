//! Several passes over one read, spread over threads.
//!
//! Each thread has some of the passes and takes the batches that they want in the order of the read. Passes share nothing, so
//! what they find does not depend on the thread that each is on.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};

use super::Pass;
use super::steps::Steps;
use crate::trace::{Filter, Rows, Trace, Want};

/// Batches that wait for a thread at most; all threads share them.
const WAITING: usize = 16;

/// A pass, and what it costs beside the others.
pub(crate) type Costing<'p> = (u32, &'p mut dyn Pass);

/// Passes of one thread.
#[derive(Default)]
struct Group<'p>(Vec<&'p mut dyn Pass>);

/// Another thread: it is given its passes once, and then rows.
struct Helper<'p> {
    group: SyncSender<Group<'p>>,
    rows: SyncSender<Arc<Rows>>,
}

/// Reads once what the passes want, with so many threads, or fewer where there are none to be had.
pub(crate) fn read(trace: &Trace, filter: &Filter, steps: &Steps, passes: &mut [Costing<'_>], threads: usize) {
    let wants: Vec<Want> = passes.iter().flat_map(|(_, pass)| pass.wants()).copied().collect();
    let beside: Vec<Want> = passes.iter().flat_map(|(_, pass)| pass.beside()).copied().collect();
    let threads = threads.min(passes.len());
    std::thread::scope(|scope| {
        let helpers: Vec<Helper<'_>> = (1..threads).map_while(|_| Helper::start(scope, steps)).collect();
        let mut groups = balanced(passes, helpers.len() + 1);
        let mut own = groups.pop().unwrap_or_default();
        let helpers: Vec<_> = helpers.into_iter().zip(groups).map(|(helper, group)| helper.with(group)).collect();
        trace.scan_shared(&wants, &beside, filter, &mut |rows| {
            for (wants, to) in &helpers {
                if wants.iter().any(|(want, beside)| want.table == rows.table && *beside == rows.beside) {
                    // A thread that is gone has ended the process with its panic.
                    let _ = to.send(rows.clone());
                }
            }
            own.rows(&rows, steps);
        });
        drop(helpers);
        own.end(steps);
    });
}

/// The dearest pass first, each to the group that costs least so far.
fn balanced<'p>(passes: &'p mut [Costing<'_>], groups: usize) -> Vec<Group<'p>> {
    passes.sort_by_key(|(cost, _)| Reverse(*cost));
    let mut all: Vec<(u32, Group<'_>)> = (0..groups).map(|_| (0, Group::default())).collect();
    for (cost, pass) in passes {
        if let Some((sum, group)) = all.iter_mut().min_by_key(|(sum, _)| *sum) {
            *sum += *cost;
            group.0.push(&mut **pass);
        }
    }
    all.into_iter().map(|(_, group)| group).collect()
}

impl<'p> Helper<'p> {
    fn start<'s>(scope: &'s Scope<'s, '_>, steps: &'s Steps) -> Option<Helper<'p>>
    where
        'p: 's,
    {
        let (group, groups) = sync_channel::<Group<'p>>(1);
        let (rows, batches): (_, Receiver<Arc<Rows>>) = sync_channel(WAITING);
        let work = move || {
            for mut group in groups {
                batches.iter().for_each(|rows| group.rows(&rows, steps));
                group.end(steps);
            }
        };
        Builder::new().name("passes".to_owned()).spawn_scoped(scope, work).ok()?;
        Some(Helper { group, rows })
    }

    /// Hands the passes over; what they want, and where to.
    fn with(self, group: Group<'p>) -> (Vec<(Want, bool)>, SyncSender<Arc<Rows>>) {
        let of = |pass: &&mut dyn Pass| {
            let (wants, beside) = (pass.wants().iter(), pass.beside().iter());
            wants.map(|want| (*want, false)).chain(beside.map(|want| (*want, true))).collect::<Vec<_>>()
        };
        let wants = group.0.iter().flat_map(of).collect();
        let _ = self.group.send(group);
        (wants, self.rows)
    }
}

impl Group<'_> {
    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        for pass in &mut self.0 {
            let wants = if rows.beside { pass.beside() } else { pass.wants() };
            if wants.iter().any(|want| want.table == rows.table) {
                pass.rows(rows, steps);
            }
        }
    }

    fn end(&mut self, steps: &Steps) {
        self.0.iter_mut().for_each(|pass| pass.end(steps));
    }
}
