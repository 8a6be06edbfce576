//! gputrace is killed at any moment: the command goes on as it was, another process goes on recording, and what nobody saved while
//! it was time `gputrace recover` saves from what was written.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::faults::{child_of, reported_so_far};
use crate::limits::with_mounts;
use crate::util::{Scratch, Started, Trace, count, poll, program};

/// How long anything here may take at most.
const LONG: Duration = Duration::from_secs(60);

/// The number in a file that `victim` shares with us.
fn counted(file: &Path) -> u64 {
    let bytes = fs::read(file).unwrap_or_default();
    bytes.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The command line of a process, by one read: who ends between two has but a part of his words.
pub(crate) fn words(pid: i32) -> Vec<u8> {
    let mut words = vec![0; 1 << 16];
    let read = fs::File::open(format!("/proc/{pid}/cmdline")).and_then(|mut file| file.read(&mut words));
    words.truncate(read.unwrap_or(0));
    words
}

/// The processes with these words.
pub(crate) fn all_with(of: &[u8]) -> Vec<i32> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| words(*pid) == of).collect()
}

/// The processes that would go on for a gputrace with these words: they have its command line, and another name.
pub(crate) fn heirs(of: &[u8]) -> Vec<i32> {
    let is_heir =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "gputrace-heir\n");
    all_with(of).into_iter().filter(is_heir).collect()
}

/// The process that goes on for a gputrace.
pub(crate) fn heir_of(started: &Started) -> i32 {
    let of = words(started.pid());
    poll(LONG, || heirs(&of).first().copied()).expect("gputrace has an heir")
}

/// Kills a gputrace, and whoever would go on for it.
pub(crate) fn kill_with_heirs(started: &mut Started) {
    heir_of(started);
    let of = words(started.pid());
    stop(started.pid());
    heirs(&of).into_iter().for_each(kill);
    started.kill();
}

/// Stops a process that was started here: it does nothing any more.
pub(crate) fn stop(pid: i32) {
    // SAFETY: numbers only; the process is known to be ours.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    let is_stopped = || {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        text.rsplit_once(") ")?.1.starts_with('T').then_some(())
    };
    poll(LONG, is_stopped).expect("it stops");
}

/// Lets it go on.
pub(crate) fn go_on(pid: i32) {
    // SAFETY: as in `stop`.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
}

/// Waits until the heir holds so many segments: a process whose segment is on its way when gputrace is killed is not traced.
pub(crate) fn holds(heir: i32, segments: usize) {
    poll(LONG, || has(heir, segments).then_some(())).expect("the heir gets the segments");
}

fn has(heir: i32, segments: usize) -> bool {
    let links = || fs::read_dir(format!("/proc/{heir}/fd")).into_iter().flatten().flatten();
    let is_segment =
        |path: PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:gputrace "));
    links().filter(|link| is_segment(link.path())).count() >= segments
}

/// Kills a process that was started here.
pub(crate) fn kill(pid: i32) {
    // SAFETY: numbers only; the process is known to be ours.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

pub(crate) fn is_complete(trace: &Path) -> bool {
    let manifests = fs::read_dir(trace.join("manifest")).into_iter().flatten().flatten().map(|entry| entry.path());
    // Not one that is being written.
    let manifests = manifests.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let read = |path: PathBuf| gputrace_collectors::Manifest::read(&path).ok();
    manifests.filter_map(read).any(|manifest| manifest.complete)
}

fn recover(scratch: &Scratch, trace: &Path, code: i32) -> String {
    let run = scratch.gputrace(&["recover", trace.to_str().expect("a plain path")]).expect(code);
    run.text() + &run.stderr
}

/// A victim in a shell, which says how it ended.
struct Victim {
    started: Started,
    count: PathBuf,
    output: PathBuf,
}

impl Victim {
    fn start(scratch: &Scratch, name: &str, launches: u64, pause_us: u64) -> Victim {
        let (count, output) =
            (scratch.path().join(format!("count{name}")), scratch.path().join(format!("output{name}")));
        let script = format!(
            "{} {} {launches} {pause_us} >{out}.new; echo $? >>{out}.new; mv {out}.new {out}",
            program("victim").display(),
            count.display(),
            out = output.display()
        );
        let started = scratch.shell(&script).with_instant_driver().start_to_be_killed();
        Victim { started, count, output }
    }

    fn wait_for(&self, launches: u64) {
        poll(LONG, || (counted(&self.count) >= launches).then_some(())).expect("the victim works");
    }

    /// Waits for the end of the victim, which went well.
    fn ends_well(&self, launches: u64) {
        let text = poll(LONG, || fs::read_to_string(&self.output).ok()).expect("the victim runs to its end");
        assert_eq!(text, format!("launched {launches}\n0\n"));
    }
}

/// The numbers of the launches in a trace, in order. Each is there once, with its kernel's name.
fn launches(trace: &Trace) -> Vec<u64> {
    let names = trace.names();
    let table = trace.table("launches");
    let mut found: Vec<u64> = table
        .rows()
        .map(|row| {
            assert_eq!(row.maybe_int("name_id").map(|id| names[&id].as_str()), Some("spin_ns_0"));
            row.int("grid_x") as u64
        })
        .collect();
    found.sort_unstable();
    let all = found.len();
    found.dedup();
    assert_eq!(found.len(), all, "each launch is there once");
    let mut ids: Vec<i64> = table.rows().map(|row| row.int("correlation_id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "and has a number of its own");
    found
}

/// The numbers that are missing before the last one, from where to where.
fn gaps(found: &[u64]) -> Vec<(u64, u64)> {
    let before = [0].into_iter().chain(found.iter().copied());
    before.zip(found).filter(|(a, b)| a + 1 < **b).map(|(a, b)| (a + 1, b - 1)).collect()
}

#[test]
fn when_gputrace_is_killed_its_heir_goes_on_and_the_command_notices_nothing() {
    let scratch = Scratch::new();
    let mut victim = Victim::start(&scratch, "", 6000, 1000);
    victim.wait_for(400);
    let early = counted(&victim.count);
    // What a reader finds now is on the disk, and is not lost.
    let folder = victim.started.trace.clone();
    poll(LONG, || reported_so_far(&scratch, &folder).filter(|found| *found >= early)).expect("it is written");
    victim.started.kill();
    let at_kill = counted(&victim.count);
    victim.ends_well(6000);
    poll(LONG, || is_complete(&folder).then_some(())).expect("the heir seals the trace");
    poll(LONG, || scratch.sessions().is_empty().then_some(())).expect("the heir removes the session");
    let trace = Trace::open(&folder);
    trace.assert_balanced();
    let found = launches(&trace);
    let gaps = gaps(&found);
    assert!(gaps.len() <= 1, "{gaps:?}");
    assert!(gaps.iter().all(|(from, to)| *from > early && *to <= at_kill + 1), "{gaps:?}, {early} .. {at_kill}");
    assert_eq!(found.last(), Some(&6000));
    let process = trace.manifest().processes.into_iter().find(|process| process.exe.ends_with("victim")).expect("it");
    let account = count(&process, "launch");
    assert_eq!((account.seen, account.recorded, process.running), (6000, found.len() as u64, false), "{account:?}");
    let recovered = trace.manifest().recovered.expect("it was taken over");
    assert!(recovered.taken_over && recovered.lost >= account.dropped, "{recovered:?}, {account:?}");
    // One image of it in `processes`, with its end.
    let rows = trace.table("processes");
    let ends: Vec<_> =
        rows.rows().filter(|row| row.text("exe").ends_with("victim")).map(|row| row.maybe_int("end_ns")).collect();
    assert!(matches!(ends.as_slice(), [Some(_)]), "{ends:?}");
    assert!(recover(&scratch, &folder, 0).contains("nothing to recover"));
    let report =
        scratch.gputrace(&["report", folder.to_str().expect("a plain path"), "--width", "1000"]).expect(0).text();
    assert!(report.contains("another process of it went on"), "{report}");
    assert!(fs::read_to_string(folder.join("summary.txt")).is_ok_and(|text| text.contains("launches")));
}

#[test]
fn an_heir_on_a_full_disk_keeps_what_was_written_and_counts_the_rest() {
    const LAUNCHES: u64 = 12_000;
    let scratch = Scratch::new();
    let (disk, copy) = (scratch.path().join("disk"), scratch.path().join("copy"));
    fs::create_dir(&disk).expect("a folder");
    crate::util::shim();
    let script = format!(
        "mount -t tmpfs -o size=400k none {disk} && {gputrace} -o {disk}/t -- {victim} {count} {LAUNCHES} 300 &
        own=$!
        until test -e {count} && test $(od -An -tu8 -N8 {count}) -gt 4000; do sleep 0.05; done
        head -c 1M /dev/zero >{disk}/full
        kill -9 $own
        until grep -q '\"complete\": *true' {disk}/t/manifest/*.json; do sleep 0.05; done
        cp -r {disk}/t {copy}",
        disk = disk.display(),
        copy = copy.display(),
        count = scratch.path().join("count").display(),
        gputrace = crate::util::gputrace().display(),
        victim = program("victim").display(),
    );
    let Some(target) = with_mounts(&scratch, &script) else { return };
    let run = target.with_instant_driver().plain().expect(0);
    assert_eq!(run.text(), format!("launched {LAUNCHES}\n"), "{}", run.stderr);
    let trace = Trace::open(&copy);
    trace.assert_balanced();
    let account = count(&trace.root(), "launch");
    assert_eq!((account.seen, account.recorded), (LAUNCHES, launches(&trace).len() as u64), "{account:?}");
    assert!(account.recorded > 1000 && account.dropped > 1000, "{account:?}");
    let manifest = trace.manifest();
    assert!(manifest.recovered.is_some_and(|recovered| recovered.taken_over), "{:?}", manifest.recovered);
    assert!(manifest.notes.iter().any(|note| note.contains("could not be written")), "{:?}", manifest.notes);
}

/// Numbers that are as good as drawn.
fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*seed >> 33) % below
}

#[test]
fn random_kills_lose_only_what_was_read_last_and_each_event_is_there_once() {
    // More of them: GPUTRACE_KILLS=100.
    let rounds = std::env::var("GPUTRACE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(9);
    let scratch = Scratch::new();
    for seed in 1..=rounds {
        one_kill(&scratch, seed);
    }
}

fn one_kill(scratch: &Scratch, seed: u64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (alone, fast) = (seed.is_multiple_of(3), seed % 3 == 1);
    let (total, pause_us) = if fast { (20_000, 1) } else { (1500, 300) };
    let mut victim = Victim::start(scratch, &seed.to_string(), total, pause_us);
    let heir = heir_of(&victim.started);
    victim.wait_for(1);
    // Where the victim is fast, and this is slow, it may be over before anybody looks.
    let is_over = || is_complete(&victim.started.trace);
    poll(LONG, || (has(heir, 2) || is_over()).then_some(())).expect("the heir gets the segments");
    let until = Instant::now() + Duration::from_millis(draw(&mut random, 900));
    poll(LONG, || (Instant::now() >= until).then_some(())).expect("time");
    if alone {
        let own = victim.started.pid();
        // SAFETY: numbers only; it is our child, which nobody has waited for. Stopped it makes no other heir.
        unsafe { libc::kill(own, libc::SIGSTOP) };
        heirs(&words(own)).into_iter().for_each(kill);
    }
    victim.started.kill_anyhow();
    victim.ends_well(total);
    let folder = victim.started.trace.clone();
    if alone {
        // A report works all the same, and says what is the matter.
        let text = |what: &str| scratch.gputrace(&[what, folder.to_str().expect("a plain path")]).expect(0).text();
        assert!(is_complete(&folder) || text("report").contains("was killed"), "seed {seed}");
        recover(scratch, &folder, 0);
        assert!(recover(scratch, &folder, 0).contains("nothing to recover"), "seed {seed}");
    } else {
        poll(LONG, || is_complete(&folder).then_some(()))
            .unwrap_or_else(|| panic!("seed {seed}: the heir seals the trace"));
    }
    let trace = Trace::open(&folder);
    trace.assert_balanced();
    let found = launches(&trace);
    let gaps = gaps(&found);
    let account = trace.manifest().processes.iter().find_map(|process| process.accounting.get("launch").copied());
    let account = account.unwrap_or_default();
    assert_eq!(account.recorded, found.len() as u64, "seed {seed}: {account:?}");
    // By what the manifest has of each table a report notices files that somebody removed, whoever sealed them.
    let stored = trace.manifest().stored;
    for table in gputrace_collectors::schema::TABLES.iter().map(|table| table.name) {
        let of = stored.get(table).copied().unwrap_or_default();
        let there = (trace.files(table).len() as u64, trace.table(table).len() as u64);
        assert_eq!((of.files, of.rows), there, "seed {seed}: {table}");
    }
    if alone {
        assert!(gaps.is_empty(), "seed {seed}: all that came before the last is there: {gaps:?}");
        return;
    }
    assert!(gaps.len() <= 1, "seed {seed}: {gaps:?}");
    assert_eq!((account.seen, found.last()), (total, Some(&total)), "seed {seed}: {account:?}");
    let missing: u64 = gaps.iter().map(|(from, to)| to - from + 1).sum();
    assert_eq!(account.dropped, missing, "seed {seed}: {account:?}");
}

#[test]
fn a_command_that_is_killed_after_gputrace_loses_nothing_that_the_rings_held() {
    let scratch = Scratch::new();
    let file = scratch.path().join("count");
    let target = scratch.target(program("victim")).arg(&file).arg("1000000").arg("20").with_instant_driver();
    let mut started = target.start_to_be_killed();
    poll(LONG, || (counted(&file) >= 1).then_some(())).expect("the victim works");
    holds(heir_of(&started), 1);
    let victim = child_of(started.pid());
    started.kill();
    let at_kill = counted(&file);
    poll(LONG, || (counted(&file) > at_kill + 5000).then_some(())).expect("it goes on");
    kill(victim);
    poll(LONG, || is_complete(&started.trace).then_some(())).expect("the heir seals the trace");
    let came_back = counted(&file);
    let trace = Trace::open(&started.trace);
    trace.assert_balanced();
    let (found, account) = (launches(&trace), count(&trace.process(victim), "launch"));
    assert!(account.seen == came_back || account.seen == came_back + 1, "{came_back} came back: {account:?}");
    assert_eq!(found.len() as u64, account.recorded);
    assert!(
        found.last().is_some_and(|last| *last == came_back || *last == came_back + 1),
        "{came_back}: {:?}",
        found.last()
    );
    let left = fs::read_dir(started.trace.join("journal")).expect("a folder").count();
    assert_eq!(left, 0, "what is whole needs no journal");
    let row = trace
        .table("processes")
        .rows()
        .find(|row| row.text("exe").ends_with("victim"))
        .map(|row| row.maybe_int("end_ns"));
    assert!(matches!(row, Some(Some(_))), "its end is known: {row:?}");
}

#[test]
fn while_gputrace_or_its_heir_is_at_work_recover_refuses_in_one_line() {
    let scratch = Scratch::new();
    let mut victim = Victim::start(&scratch, "", 1_000_000, 100);
    victim.wait_for(10);
    let folder = victim.started.trace.clone();
    let said = recover(&scratch, &folder, 1);
    assert!(said.lines().count() == 1 && said.contains("still at work"), "{said}");
    let (heir, of) = (heir_of(&victim.started), words(victim.started.pid()));
    victim.started.kill();
    let taken = || Trace::open(&folder).manifest().recovered.filter(|recovered| recovered.taken_over);
    poll(LONG, taken).expect("the heir goes on");
    let said = recover(&scratch, &folder, 1);
    assert!(said.lines().count() == 1 && said.contains("still at work"), "{said}");
    poll(LONG, || heirs(&of).iter().any(|pid| *pid != heir).then_some(())).expect("the heir has one itself");
    stop(heir);
    heirs(&of).into_iter().filter(|pid| *pid != heir).for_each(kill);
    kill(heir);
    let said = poll(LONG, || {
        let said = scratch.gputrace(&["recover", folder.to_str().expect("a plain path")]).text();
        said.contains("recover").then_some(said)
    });
    assert!(said.expect("it recovers").contains("still run"));
    assert!(is_complete(&folder));
    // The victim runs on alone.
    let before = counted(&victim.count);
    victim.wait_for(before + 100);
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let file = victim.count.to_string_lossy().into_owned();
    let mine = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| String::from_utf8_lossy(&words).contains(&file))
    };
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(mine)
        .collect::<Vec<i32>>()
        .into_iter()
        .for_each(kill);
}

#[test]
fn a_file_that_was_cut_afterwards_is_named() {
    let scratch = Scratch::new();
    scratch.gputrace(&["-o", "t", "--", "true"]).expect(0);
    let folder = scratch.path().join("t");
    assert!(recover(&scratch, &folder, 0).contains("nothing to recover"));
    let host = fs::read_dir(folder.join("processes")).expect("a table").flatten().next().expect("a host").path();
    let file = fs::read_dir(host).expect("a folder").flatten().next().expect("a file").path();
    let bytes = fs::read(&file).expect("it is read");
    fs::write(&file, &bytes[..bytes.len() / 2]).expect("it is cut");
    let said = recover(&scratch, &folder, 1);
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(said.contains("nothing that can be recovered") && said.contains("the trace is not whole"), "{said}");
    assert!(said.contains(&name) && said.contains("cut short or damaged"), "{said}");
}

#[test]
fn an_account_that_cannot_be_read_and_a_table_that_is_a_file_are_named() {
    let scratch = Scratch::new();
    scratch.gputrace(&["-o", "t", "--", "true"]).expect(0);
    let folder = scratch.path().join("t");
    let file = fs::read_dir(folder.join("manifest")).expect("it is there").flatten().next().expect("one").path();
    let said = recover(&scratch, &file, 2);
    assert!(said.contains("is not a trace: a trace is a folder"), "{said}");
    // What a machine that lost its power may leave of it.
    fs::write(&file, "").expect("it is emptied");
    let said = recover(&scratch, &folder, 0);
    assert!(said.contains("what was known of losses went with the manifest, which could not be read"), "{said}");
    fs::write(folder.join("launches"), "").expect("a file");
    let said = recover(&scratch, &folder, 1);
    assert!(said.contains("launches: is a file, where a trace has a folder"), "{said}");
    let report = scratch.gputrace(&["report", folder.to_str().expect("a plain path")]).expect(1);
    assert!(report.stderr.contains("launches: is a file, where a trace has a folder"), "{}", report.stderr);
}
