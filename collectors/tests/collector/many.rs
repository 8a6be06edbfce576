//! Many processes that end, one after the other: the manifest stays small, and the accounts add up.

use gputrace_collectors::detail::Detail;
use gputrace_collectors::manifest::{self, Count};
use gputrace_collectors::recover::{Launcher, recover};
use gputrace_collectors::schema::TableId;
use gputrace_collectors::{Config, Manifest};

use crate::faults::{collector, start, young_rows};
use crate::rows::{count, values};
use crate::support::{Folder, Target, wait_until};
use crate::{assert_exact, config, finish};

/// Processes of a test, and how many of them the manifest names.
const PROCESSES: u64 = 40;
const NAMED: usize = 8;

/// A process that calls a few functions and ends.
fn short(folder: &Folder, calls: u64) {
    let mut target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    for n in 0..calls {
        thread.call("cuStreamCreate", [n, 0, 0, 0]);
        thread.call("malloc", [n << 6, 64, 0, 0]);
    }
    thread.exit();
    target.exit(0);
}

/// The counts of all processes.
fn sum(manifest: &Manifest) -> Count {
    let counts = manifest.accounts().flat_map(|process| process.accounting.values());
    counts.fold(Count::default(), |sum, one| Count {
        seen: sum.seen + one.seen,
        recorded: sum.recorded + one.recorded,
        left_out: sum.left_out + one.left_out,
        dropped: sum.dropped + one.dropped,
        ..sum
    })
}

/// Named and summed up, they are all that there were, and each has its row.
fn assert_all(folder: &Folder, manifest: &Manifest) {
    let summed = manifest.summed.as_ref().expect("some are");
    let ended = manifest.processes.iter().filter(|process| !process.running).count();
    assert!(ended <= NAMED, "{ended}");
    assert_eq!(summed.processes + manifest.processes.len() as u64, PROCESSES);
    let mut rows = values(&crate::rows::batches(&folder.trace(), "processes"), "process_id");
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len() as u64, PROCESSES);
    assert!(manifest.processes.iter().all(|process| rows.contains(&process.process_id)));
    assert!(summed.account.balanced && !rows.contains(&summed.account.process_id));
    assert_exact(folder, manifest);
}

#[test]
fn of_many_processes_that_end_the_manifest_names_some_and_accounts_for_all() {
    for detail in [Detail::Full, Detail::Rollup] {
        let folder = Folder::new("many");
        let running =
            gputrace_collectors::start(Config { detail, most_named: NAMED, ..config(&folder) }).expect("it starts");
        (0..PROCESSES).for_each(|n| short(&folder, n + 1));
        let manifest = finish(running);
        assert_all(&folder, &manifest);
        let (all, events) = (sum(&manifest), PROCESSES * (PROCESSES + 1));
        let left_out = if detail == Detail::Full { 0 } else { events };
        assert_eq!((all.seen, all.recorded, all.left_out, all.dropped), (events, events - left_out, left_out, 0));
        assert_eq!(count(&folder.trace(), "api") as u64, if left_out == 0 { events / 2 } else { 0 });
    }
}

#[test]
fn who_is_summed_up_is_known_again_after_a_collector_was_killed() {
    let folder = Folder::new("many-killed");
    let mut command = collector(&folder);
    command.env("COLLECT_MOST_NAMED", NAMED.to_string());
    let (mut child, _lines) = start(command);
    (0..PROCESSES - 1).for_each(|_| short(&folder, 5));
    // One runs on.
    let target = Target::new(&folder.session());
    let mut thread = target.thread(1);
    thread.call("cuStreamCreate", [0; 4]);
    let launcher = Launcher { host: "node7".to_owned(), id: 0xabc };
    let read = || Manifest::read(&manifest::path(&folder.trace(), &launcher.host, launcher.id)).expect("an account");
    wait_until("the account to have them", || sum(&read()).seen == 10 * (PROCESSES - 1) + 1);
    wait_until("the rows to be on disk", || young_rows(&folder, TableId::Api) as u64 == 5 * (PROCESSES - 1) + 1);
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
    let manifest = recover(&folder.trace(), &launcher).expect("it is whole").expect("it was killed");
    assert_all(&folder, &manifest);
    let (all, events) = (sum(&manifest), 10 * (PROCESSES - 1) + 1);
    assert_eq!((all.seen, all.recorded, all.dropped), (events, events, 0));
    assert_eq!(manifest.recovered.map(|recovered| recovered.lost), Some(0));
}
