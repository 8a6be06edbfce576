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
use crate::trace::{Filter, Reach, Rows, Trace, Want};

/// Batches that wait for a thread at most; all threads share them.
const WAITING: usize = 16;

/// A pass, and what it costs beside the others.
pub(crate) type Costing<'p> = (u32, &'p mut dyn Pass);

/// Passes of one thread.
#[derive(Default)]
struct Group<'p> {
    passes: Vec<&'p mut dyn Pass>,
    /// Whether what is read throughout is another read than of what is kept.
    apart: bool,
}

/// Another thread: it is given its passes once, and then rows.
struct Helper<'p> {
    group: SyncSender<Group<'p>>,
    rows: SyncSender<Arc<Rows>>,
}

/// Reads once what the passes want, with so many threads, or fewer where there are none to be had.
pub(crate) fn read(trace: &Trace, filter: &Filter, steps: &Steps, passes: &mut [Costing<'_>], threads: usize) {
    let apart = filter.looks_back();
    let [kept, beside, throughout] = REACHES
        .map(|reach| passes.iter().flat_map(|(_, pass)| wanted(&**pass, reach, apart)).copied().collect::<Vec<Want>>());
    let threads = threads.min(passes.len());
    std::thread::scope(|scope| {
        let helpers: Vec<Helper<'_>> = (1..threads).map_while(|_| Helper::start(scope, steps)).collect();
        let mut groups = balanced(passes, helpers.len() + 1, apart);
        let mut own = groups.pop().unwrap_or_default();
        let helpers: Vec<_> = helpers.into_iter().zip(groups).map(|(helper, group)| helper.with(group)).collect();
        let wants = [(&kept[..], Reach::Kept), (&beside, Reach::Beside), (&throughout, Reach::Throughout)];
        trace.scan_shared(&wants, filter, &mut |rows| {
            for (wants, to) in &helpers {
                if wants.iter().any(|(want, reach)| want.table == rows.table && *reach == rows.reach) {
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

const REACHES: [Reach; 3] = [Reach::Kept, Reach::Beside, Reach::Throughout];

/// What a pass wants of these rows. Where all is kept from its begin on, a table that is read throughout is read once with all others.
fn wanted(pass: &dyn Pass, reach: Reach, apart: bool) -> impl Iterator<Item = &'static Want> {
    let (first, second): (&[Want], &[Want]) = match reach {
        Reach::Kept if apart => (pass.wants(), &[]),
        Reach::Kept => (pass.wants(), pass.throughout()),
        Reach::Beside => (pass.beside(), &[]),
        Reach::Throughout if apart => (pass.throughout(), &[]),
        Reach::Throughout => (&[], &[]),
    };
    first.iter().chain(second)
}

/// The dearest pass first, each to the group that costs least so far.
fn balanced<'p>(passes: &'p mut [Costing<'_>], groups: usize, apart: bool) -> Vec<Group<'p>> {
    passes.sort_by_key(|(cost, _)| Reverse(*cost));
    let mut all: Vec<(u32, Group<'_>)> = (0..groups).map(|_| (0, Group { apart, ..Group::default() })).collect();
    for (cost, pass) in passes {
        if let Some((sum, group)) = all.iter_mut().min_by_key(|(sum, _)| *sum) {
            *sum += *cost;
            group.passes.push(&mut **pass);
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
    fn with(self, group: Group<'p>) -> (Vec<(Want, Reach)>, SyncSender<Arc<Rows>>) {
        let of = |pass: &&mut dyn Pass| {
            let of = |reach| wanted(&**pass, reach, group.apart).map(move |want| (*want, reach));
            REACHES.into_iter().flat_map(of).collect::<Vec<_>>()
        };
        let wants = group.passes.iter().flat_map(of).collect();
        let _ = self.group.send(group);
        (wants, self.rows)
    }
}

impl Group<'_> {
    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        for pass in &mut self.passes {
            if wanted(&**pass, rows.reach, self.apart).any(|want| want.table == rows.table) {
                pass.rows(rows, steps);
            }
        }
    }

    fn end(&mut self, steps: &Steps) {
        self.passes.iter_mut().for_each(|pass| pass.end(steps));
    }
}
