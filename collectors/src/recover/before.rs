//! What a collector needs that goes on with the processes of another one, which was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::account::{File, OnDisk};
use super::{Dead, Launcher, TakeOverError};
use crate::accounting::ByClass;
use crate::heir::Inheritance;
use crate::manifest::{Manifest, Recovered};
use crate::writer;

/// Kills that an account tells of.
const MOST_KILLS: usize = 1000;

/// The trace as it was left, made whole, and what its collector left to its heir.
pub(crate) struct Before {
    /// Without the processes that are gone on with.
    pub(crate) manifest: Manifest,
    pub(crate) left: Inheritance,
    /// Of those processes.
    pub(crate) on_disk: OnDisk,
    /// What the writer goes on with.
    pub(crate) written: Option<Written>,
    /// What of their events was read and left out on purpose.
    pub(crate) left_out: BTreeMap<i64, ByClass>,
    /// Numbers of processes from here on are free.
    pub(crate) next: i64,
    /// None of the sums was removed to keep to a limit.
    pub(crate) sums_are_whole: bool,
    /// About when that collector was killed, or stopped, ns since the Unix epoch.
    pub(crate) ended_ns: i64,
    /// What could not be written, for the user.
    pub(crate) trouble: Option<String>,
}

/// What a writer goes on with.
pub(crate) struct Written {
    /// The whole files of the trace.
    pub(crate) files: Vec<File>,
    /// The reserve's file, with the lock that says that somebody is at work.
    pub(crate) lock: fs::File,
}

/// Makes whole what the collector left of its trace.
pub(crate) fn before(trace: &Path, launcher: &Launcher, left: Inheritance) -> Result<Before, TakeOverError> {
    let mut dead = Dead::find_patiently(trace, launcher)?.ok_or(TakeOverError::Ended)?;
    let taken: BTreeSet<i64> = left.processes.keys().copied().collect();
    let (mut on_disk, trouble) = dead.settle_anyhow(&taken)?;
    let mut files = std::mem::take(&mut on_disk.files);
    let mut manifest = std::mem::take(&mut dead.manifest);
    let ids =
        manifest.processes.iter().map(|process| process.process_id).chain(on_disk.ids()).chain(taken.iter().copied());
    let next = ids.map(|id| id & ((1 << crate::PROCESS_BITS) - 1)).max().map_or(0, |last| last + 1);
    let next = next.max(manifest.summed.as_ref().map_or(0, |summed| summed.below)) + manifest.untraced_count() as i64;
    let sums_are_whole = super::sums::are_whole(&manifest);
    let has_sums = on_disk.has_sums();
    let mine = on_disk.split_off(&taken);
    let (theirs, gone): (Vec<_>, Vec<_>) =
        std::mem::take(&mut manifest.processes).into_iter().partition(|process| taken.contains(&process.process_id));
    manifest.processes = gone;
    let only_sums = manifest.keeps_only_sums();
    let left_out = theirs.iter().map(|process| (process.process_id, mine.left_out(process, only_sums))).collect();
    let lost = on_disk.correct(&mut manifest, false);
    let summed = (has_sums && sums_are_whole)
        .then(|| super::sums::complete(trace, &manifest, &mut on_disk, dead.killed_ns))
        .and_then(Result::err);
    files.append(&mut on_disk.files);
    match manifest.stopped_ns.take() {
        // It had written all that it had read.
        Some(stopped_ns) if lost == 0 => {
            let gone_ns =
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i64 - stopped_ns);
            manifest.note(&format!(
                "gputrace was stopped for {:.1} s and went on: events wait in the rings meanwhile, and what finds no room is counted as dropped",
                gone_ns as f64 / 1e9
            ));
        }
        _ => {
            manifest.recovered = Some(Recovered { killed_ns: dead.killed_ns, lost, taken_over: true });
            if manifest.kills.len() >= MOST_KILLS {
                manifest.kills.remove(0);
            }
            manifest.kills.push(dead.killed_ns);
            manifest.note(
                "gputrace was killed, and another process of it went on: of about the last second before that events are lost, and with --cull \
                 those of malloc of about three, and of as long as was culled",
            );
        }
    }
    let trouble = trouble.or(summed).map(|error| writer::trouble(trace, "rows that a killed gputrace left", &error));
    trouble.iter().for_each(|text| manifest.note(text));
    let written = Some(Written { files, lock: dead.lock });
    Ok(Before {
        manifest,
        left,
        on_disk: mine,
        written,
        next,
        ended_ns: dead.killed_ns,
        trouble,
        left_out,
        sums_are_whole,
    })
}
