//! Collectors of one session that take turns with other options: the trace says of each time what was kept of it.

use gputrace_collectors::manifest::KeptDetail;

use crate::standing::Session;
use crate::switching::grids;
use crate::util::{Scratch, Trace};

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
