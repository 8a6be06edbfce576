//! Collectors of one session that take turns with other options: the trace says of each time what was kept of it.

use std::time::Duration;

use gputrace_collectors::manifest::{Counters, KeptDetail};

use crate::faults::one_line;
use crate::standing::Session;
use crate::switching::grids;
use crate::util::{Scratch, Trace, nvml_folder, poll};

const PATIENCE: Duration = Duration::from_secs(60);

/// Has a collector with these options at work while a program launches.
fn of_one(session: &mut Session<'_>, options: &'static [&'static str], name: &str) {
    session.options = options;
    session.collect();
    let file = session.file(name);
    let running = session.start(&file);
    session.until_made(&file, 500);
    session.stop(running, &file);
    session.settle();
    session.end(libc::SIGTERM);
}

fn kept(session: &Session<'_>) -> Option<KeptDetail> {
    Trace::open(&session.trace).manifest().detail
}

/// Launches that have a row.
fn rows(session: &Session<'_>) -> usize {
    grids(&Trace::open(&session.trace)).iter().map(|(_, count)| count).sum()
}

#[test]
fn what_an_earlier_collector_recorded_is_not_said_to_have_never_been() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &[]);
    of_one(&mut session, &[], "recorded");
    of_one(&mut session, &["--start-paused"], "paused");
    let detail = kept(&session).expect("only sums were kept");
    assert_eq!((detail.mode.as_str(), detail.never), ("rollup", None));
}

#[test]
fn single_events_of_one_turn_are_not_denied_by_the_next() {
    let scratch = Scratch::new();
    let mut session = Session::new(&scratch, &[]);
    of_one(&mut session, &["--detail", "full"], "first");
    assert_eq!(kept(&session), None);
    of_one(&mut session, &["--detail", "rollup"], "second");
    let all = rows(&session);
    assert!(all >= 500, "{all} launches of the first collector");
    let said = scratch.gputrace(&["report", "trace"]).expect(0).text();
    assert!(said.contains("single events kept: 1 interval, by collectors that went on"), "{said}");
    assert!(said.contains("all events, until a collector went on that keeps fewer"), "{said}");

    of_one(&mut session, &["--detail", "full"], "third");
    let detail = kept(&session).expect("not all were kept");
    assert!(detail.is_full() && detail.intervals.len() == 1, "{detail:?}");
    assert!(detail.intervals[0].to_ns < detail.since_ns.expect("it went on"), "{detail:?}");
    let now = rows(&session);
    assert!(now >= all + 500, "{now} of the first and the third collector, {all} of the first");
    let said = scratch.gputrace(&["report", "trace"]).expect(0).text();
    assert!(said.contains("all events, since a collector went on that keeps them"), "{said}");
}

/// Two sessions, of which the first one's collector has both.
fn two<'a>(scratch: &'a Scratch, [option, value]: [&'static str; 2]) -> (Session<'a>, Session<'a>) {
    let (mut first, mut second) = (Session::new(scratch, &[]), Session::new(scratch, &[]));
    second.root = scratch.path().join("second");
    let root: &str = Box::leak(second.root.display().to_string().into_boxed_str());
    first.options = Box::leak(Box::new([root, option, value]));
    (first, second)
}

#[test]
fn one_collector_has_several_sessions_and_a_program_of_each_is_in_their_trace() {
    let scratch = Scratch::new();
    let (mut first, second) = two(&scratch, ["--detail", "full"]);
    first.collect();
    second.until_answered_by(first.collector());
    let files = ["one", "two"].map(|name| first.file(name));
    let running = [first.start(&files[0]), second.start(&files[1])];
    files.iter().for_each(|file| first.until_made(file, 300));
    let (code, said) = first.end(libc::SIGTERM);
    assert_eq!((code, said.matches("stopped; 1 processes record on into their rings").count()), (Some(0), 2), "{said}");
    // Both go on, with the trace that they had.
    first.collect();
    second.until_answered_by(first.collector());
    files.iter().for_each(|file| first.until_made(file, 300));
    let [one, two] = running;
    let made = [first.stop(one, &files[0]), second.stop(two, &files[1])];
    first.settle();
    second.settle();
    assert_eq!(first.end(libc::SIGTERM).0, Some(0));
    let trace = Trace::open(&first.trace);
    trace.assert_balanced();
    let manifests = trace.manifests();
    let launches = |session: &Session<'_>| {
        let root = session.root.display().to_string();
        let own = manifests.iter().find(|manifest| manifest.standing.as_deref() == Some(&root)).expect("its account");
        own.processes
            .iter()
            .filter_map(|process| process.accounting.get("launch"))
            .map(|count| count.recorded)
            .sum::<u64>()
    };
    assert_eq!((manifests.len(), [launches(&first), launches(&second)]), (2, made));
    assert_eq!(grids(&trace).iter().map(|(_, count)| *count as u64).sum::<u64>(), made[0] + made[1]);
    // Of which none can be begun, none is.
    let file = scratch.file("no-folder", "");
    let roots = [scratch.path().join("third"), file].map(|path| path.display().to_string());
    scratch.gputrace(&["collect", &roots[0], &roots[1]]).expect(1);
    assert!(!scratch.path().join("third").exists());
    let metrics = scratch.gputrace(&["collect", &roots[0], first.options[0], "--metrics", "0"]).expect(2);
    one_line(&metrics.stderr, "metrics are of one session");
}

#[test]
fn sessions_of_one_collector_take_turns_in_nvml() {
    let scratch = Scratch::new();
    let (mut first, second) = two(&scratch, ["--counters", "10"]);
    first.variables =
        vec![("LD_LIBRARY_PATH", nvml_folder().display().to_string()), ("FAKE_NVML_ALONE", "1".to_owned())];
    first.collect();
    second.until_answered_by(first.collector());
    let files = ["one", "two"].map(|name| first.file(name));
    let [one, two] = [first.start(&files[0]), second.start(&files[1])];
    let readings = || {
        let manifests = Trace::open(&first.trace).manifests();
        let of = manifests.iter().map(|manifest| manifest.counters.as_ref().map_or(0, |counters| counters.readings));
        of.collect::<Vec<u64>>()
    };
    poll(PATIENCE, || readings().iter().all(|readings| *readings >= 5).then_some(())).expect("both are read");
    first.stop(one, &files[0]);
    second.stop(two, &files[1]);
    let (code, said) = first.end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{said}");
    let rows = |source: &str| {
        let manifests = Trace::open(&first.trace).manifests();
        let of = |counters: &Counters| counters.sources.iter().find(|known| known.name == source).map_or(0, |s| s.rows);
        manifests.iter().filter_map(|manifest| manifest.counters.as_ref()).map(of).collect::<Vec<u64>>()
    };
    assert!(rows("nvml").iter().all(|rows| *rows > 0), "{:?}", rows("nvml"));
}
