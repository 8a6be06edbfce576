//! Calls that stood still for longer than `--hang-after`, as the manifests have them: which, where, for how long, how it ended.

use gputrace_collectors::manifest::Hang;

use super::Facts;
use crate::render::duration;

/// Hangs that are told one by one.
const TOLD: usize = 3;
/// Ranks that did not come, of one hang.
const MISSING: usize = 2;

/// The hangs of a process: the time of the longest, ns, and a line each. None: there was none.
pub(crate) fn of_process(facts: &Facts<'_>, process_id: i64) -> Option<(f64, Vec<String>)> {
    let own: Vec<(&Hang, i64)> = all(facts).filter(|(hang, _)| hang.process_id == process_id).collect();
    let longest = own.iter().map(|(hang, until_ns)| hang.took_ns(*until_ns)).max()?;
    let mut lines: Vec<String> = own.iter().take(TOLD).flat_map(|(hang, until_ns)| told(hang, *until_ns)).collect();
    lines.extend((own.len() > TOLD).then(|| format!("and {} more calls", own.len() - TOLD)));
    Some((longest as f64, lines))
}

/// A line for each process whose calls hung.
pub(crate) fn lines(facts: &Facts<'_>) -> Vec<(i64, String)> {
    let mut lines: Vec<(i64, String)> = Vec::new();
    for (hang, until_ns) in all(facts) {
        if lines.iter().all(|(known, _)| *known != hang.process_id) {
            let told = told(hang, until_ns).remove(0);
            lines.push((hang.process_id, format!("hung: {}  {told}", facts.label(hang.process_id))));
        }
    }
    lines
}

/// All hangs of the processes that are looked at, with the end of their trace.
fn all<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = (&'a Hang, i64)> {
    let kept = |hang: &&Hang| facts.processes().any(|process| process.process_id == hang.process_id);
    facts.trace.manifests().flat_map(move |manifest| {
        let until_ns = |hang: &Hang| manifest.ended_ns.unwrap_or(hang.noticed_ns);
        manifest.hangs.iter().filter(kept).map(move |hang| (hang, until_ns(hang)))
    })
}

/// The call, its line and its time; then who did not come to it, and where to read on.
fn told(hang: &Hang, until_ns: i64) -> Vec<String> {
    let seen = |line: &str| if hang.earlier { format!("last seen at {}", short(line)) } else { short(line) };
    let place = hang.line.as_deref().map(seen).or_else(|| hang.thread.clone());
    let place = place.map_or_else(String::new, |place| format!("{place}  "));
    let ended = match (hang.ended_ns, hang.returned) {
        (Some(_), true) => "then returned",
        (Some(_), false) => "until its process ended",
        (None, _) => "and had not returned at the trace's end",
    };
    let took = duration(hang.took_ns(until_ns) as f64);
    let mut lines = vec![format!("{place}{} hung for {took}, {ended}", hang.call)];
    lines.extend(hang.missing.iter().take(MISSING).cloned());
    lines.extend(hang.report.as_ref().map(|report| format!("all threads: {report}")));
    lines
}

/// A frame without the folders of its file.
fn short(frame: &str) -> String {
    frame.rsplit_once('/').map_or(frame, |(_, name)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::ALL;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn a_hang_is_a_finding_where_the_process_is_judged_and_a_line_of_the_summary_where_it_is_not() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, Some(0), START + 60_000_000_000);
        trace.process(2, 200, Some(1), START + 60_000_000_000);
        for _ in 0..40 {
            trace.thread(1, 11).launch("k", 2_000);
        }
        let hang = |process_id: i64, seconds: i64| Hang {
            process_id,
            thread: Some("python".to_owned()),
            call: "ncclAllReduce".to_owned(),
            start_ns: START,
            ended_ns: Some(START + seconds * 1_000_000_000),
            returned: true,
            ..Hang::default()
        };
        trace.manifest.as_mut().expect("a manifest").hangs = vec![hang(1, 20), hang(1, 30), hang(2, 40)];
        let text = trace.section(ALL[0]).literal.unwrap_or_default();
        assert!(text.contains(" a call that hung  <= 30.00 s ("), "{text}");
        assert!(text.contains("\n   python  ncclAllReduce hung for 20.0 s, then returned\n"), "{text}");
        assert_eq!(text.matches("\nhung: ").count(), 1, "{text}");
        assert!(text.contains("\nhung: rank 1  python  ncclAllReduce hung for 40.0 s, then returned\n"), "{text}");
    }

    #[test]
    fn a_hang_says_where_what_how_long_and_how_it_ended() {
        let hang = Hang {
            line: Some("/home/me/train.py:12 step".to_owned()),
            call: "cuStreamSynchronize".to_owned(),
            start_ns: 1_000_000_000,
            missing: vec!["rank 1 has not come".to_owned()],
            report: Some("hangs/x.txt".to_owned()),
            ..Hang::default()
        };
        let until = 301_000_000_000;
        let at_end = told(&hang, until);
        assert_eq!(
            at_end[0],
            "train.py:12 step  cuStreamSynchronize hung for 5 min 00 s, and had not returned at the trace's end"
        );
        assert_eq!(at_end[1..], ["rank 1 has not come", "all threads: hangs/x.txt"]);
        let earlier = Hang { earlier: true, ..hang.clone() };
        assert!(told(&earlier, until)[0].starts_with("last seen at train.py:12 step  cuStream"));
        let returned = Hang { ended_ns: Some(3_000_000_000), returned: true, ..hang.clone() };
        assert!(told(&returned, until)[0].ends_with("hung for 2.00 s, then returned"), "{:?}", told(&returned, until));
        let killed = Hang { returned: false, line: None, thread: Some("python".to_owned()), ..returned };
        assert!(told(&killed, until)[0].starts_with("python  cuStreamSynchronize hung for 2.00 s, until its process"));
    }
}
