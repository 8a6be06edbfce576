//! The run after the target's start: waiting, watching, the end of the trace, the summary.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use gputrace_collectors::{CollectError, Manifest, Untraced, Warnings};

use super::{Recorded, Run};
use crate::analysis::summary;
use crate::cli::CaptureRange;
use crate::cli::RecordArgs;
use crate::import::device_times;
use crate::launch::brake::{Brake, CURE};
use crate::launch::inspect::Inspection;
use crate::launch::signals::{self, Signals};
use crate::launch::supervise::{HURRIED, Supervisor};
use crate::launch::watch::{self, Watch};
use crate::launch::{processes, session, trace_folder};
use crate::{note, render, say};

/// The collector's time for its last files when nobody is in a hurry.
pub(super) const SEAL: Duration = Duration::from_secs(60);
/// Recording is switched by this signal to gputrace, where that is asked for.
const SWITCH_SIGNAL: i32 = libc::SIGUSR2;
/// Survivors that are named one by one.
const NAMED_SURVIVORS: usize = 3;

/// Stays with the target to its end and after it.
pub(super) fn stay(
    args: &RecordArgs,
    run: Run,
    signals: &Signals,
    inspection: &Inspection,
    brake: Option<&Brake>,
) -> Recorded {
    let Run { target, running, session, mut heir, metrics, trace, started } = run;
    if let Some(obstacle) = &inspection.obstacle {
        let exe = inspection.program().display().to_string();
        note(&format!("{exe} is not traced: {obstacle}; {}", obstacle.cure()));
        running.untraced(Untraced { pid: target as i32, exe, reason: obstacle.to_string() });
    }
    session::sweep(&session::bases());
    let dumps = args.detail.is_triggered().then(signals::dump_signal);
    let switches = (args.capture.range() == Ok(CaptureRange::Signal)).then_some(SWITCH_SIGNAL);
    let mut supervisor = Supervisor::new(signals, target, dumps.into_iter().chain(switches).collect());
    let named = inspection.obstacle.is_some().then(|| inspection.program());
    let mut watch = Watch::new(session.root().to_owned(), target, named, args.malloc.is_recorded());
    let warnings = running.warnings();
    let mut said = Vec::new();
    let ending = supervisor.until_end(watch::EAGER, |asked| {
        for signal in asked {
            match Some(*signal) == switches {
                true => running.switch(),
                false => running.dump("a signal to gputrace"),
            }
        }
        heir.iter_mut().for_each(|heir| heir.watch(&running));
        let (found, next) = watch.look();
        found.into_iter().for_each(|process| running.untraced(process));
        warn(&warnings, &mut said);
        next
    });
    let ended = Instant::now();
    let wall = ended - started;
    let brake = brake.filter(|_| inspection.obstacle.is_none());
    match brake.map(|brake| (brake, brake.note(ending, SystemTime::now() - wall, wall))) {
        Some((_, Ok(true))) => say(&format!(
            "that was the second time that it died soon after its start: it runs untraced from now on; {CURE}"
        )),
        Some((brake, Err(error))) => say(&brake.not_noted(&error)),
        Some((_, Ok(false))) | None => {}
    }
    watch.last_look().into_iter().for_each(|process| running.untraced(process));
    let grace = if supervisor.is_interrupted() { args.grace.min(HURRIED) } else { args.grace };
    let survivors = supervisor.wait_for_descendants(session.root(), grace);
    let survivors_text = survivors_text(&survivors);

    let hurried = supervisor.is_interrupted();
    let deadline = if hurried { ended + HURRIED } else { Instant::now() + SEAL };
    warn(&warnings, &mut said);
    let (manifest, trouble) = match running.finish(Some(ending.info(ended - started)), deadline) {
        Ok(manifest) => (Some(manifest), None),
        Err(error) => {
            let text = error.to_string();
            (if let CollectError::Account { manifest, .. } = error { Some(*manifest) } else { None }, Some(text))
        }
    };
    drop(metrics);
    warn(&warnings, &mut said);
    // Trouble with the last rows, as on a disk that ran full at the end.
    let notes = manifest.iter().flat_map(|manifest| &manifest.notes);
    notes.filter(|text| !said.contains(*text)).for_each(|text| note(text));
    manifest.iter().filter_map(nobody_came).for_each(|text| note(&text));
    let any_survivor = !survivors.is_empty();
    // Removing a dozen files takes as long as a short summary, so it goes on beside it. Without room for a thread the
    // rest is swept by a later run.
    let cleaning = thread::Builder::new().spawn(move || {
        session.end(any_survivor);
        // Until then it would do this, if we were killed.
        drop(heir);
    });
    // What was written before a disk ran full is still worth its summary.
    if let Some(trouble) = trouble {
        say(&format!("{trouble}; the trace in {} is cut short", trace.display()));
    }
    if let Some(folder) = &args.simulated
        && let Err(error) = device_times::add_all(&trace, folder)
    {
        say(&format!("the simulated GPU's times are not in the trace: {error:#}"));
    }
    let deadline = hurried.then_some(deadline);
    let wanted = !supervisor.is_hurried();
    let summary = if wanted { summarise(&trace, manifest, &mut supervisor, deadline) } else { None };
    let summary = summary.map(|text| format!("{}{text}", survivors_text.unwrap_or_default()));
    let _ = cleaning.map(|cleaning| cleaning.join());
    Recorded { ending, trace, summary }
}

/// The summary, also written into the trace. None: it is not wanted any more.
fn summarise(
    trace: &Path,
    manifest: Option<Manifest>,
    supervisor: &mut Supervisor,
    deadline: Option<Instant>,
) -> Option<String> {
    let (at_work, of) = manifest.as_ref().map_or((0, 0), |own| trace_folder::others_at_work(trace, own));
    if at_work > 0 {
        // The launcher that ends last reports on all of them.
        return Some(format!(
            "gputrace: trace in {}; {at_work} of {of} launchers are still at work\n",
            trace.display()
        ));
    }
    // In a thread of its own, because a large trace takes its time and Ctrl-C must end that.
    let (sender, receiver) = mpsc::channel();
    let path = trace.to_owned();
    if let Err(error) = thread::Builder::new().spawn(move || sender.send(summary::at_end(&path, manifest))) {
        return Some(format!("gputrace: no summary: {error}; trace in {}\n", trace.display()));
    }
    let result = loop {
        match receiver.recv_timeout(Duration::from_millis(5)) {
            Ok(result) => break result,
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                if late || supervisor.is_told_to_end(Duration::ZERO) {
                    return None;
                }
            }
        }
    };
    let text = match result {
        Ok(text) => render::summary(text.trim_end()),
        Err(error) => return Some(format!("gputrace: no summary: {error:#}; trace in {}\n", trace.display())),
    };
    if let Err(error) = gputrace_collectors::write_text(trace, "summary.txt", &text) {
        say(&format!("{}: cannot be written: {error}", trace.join("summary.txt").display()));
        // An empty one says nothing.
        let _ = fs::remove_file(trace.join("summary.txt"));
    }
    Some(text)
}

/// What the collector has to say now, a line each.
fn warn(warnings: &Warnings, said: &mut Vec<String>) {
    while let Some(warning) = warnings.take() {
        note(&warning);
        said.push(warning);
    }
}

/// What to say of a run in which no process loaded the shim, and nobody knows why.
fn nobody_came(manifest: &Manifest) -> Option<String> {
    if manifest.accounts().next().is_some() || manifest.untraced_count() > 0 {
        return None;
    }
    let words: Vec<String> = manifest.command.iter().map(|word| gputrace_collectors::quote(word)).collect();
    Some(format!("no process loaded the tracer; what may be in the way: gputrace doctor -- {}", words.join(" ")))
}

fn survivors_text(survivors: &[u32]) -> Option<String> {
    if survivors.is_empty() {
        return None;
    }
    let named = survivors.iter().take(NAMED_SURVIVORS).map(|pid| format!("{pid} {}", processes::name(*pid)));
    let mut named = named.collect::<Vec<_>>().join(", ");
    if survivors.len() > NAMED_SURVIVORS {
        named.push_str(", ...");
    }
    let (processes, they) =
        if survivors.len() == 1 { ("process outlives", "it runs") } else { ("processes outlive", "they run") };
    Some(format!("gputrace: {} {processes} the command ({named}); {they} on untraced\n", survivors.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_any_traced_process_says_so_unless_somebody_was_named() {
        let mut manifest = Manifest { command: vec!["a b".to_owned(), "c".to_owned()], ..Manifest::default() };
        let text = nobody_came(&manifest).expect("nobody came");
        assert!(text.contains("no process loaded the tracer") && text.ends_with("doctor -- 'a b' c"), "{text}");
        manifest.untraced.push(Untraced::default());
        assert_eq!(nobody_came(&manifest), None);
    }

    #[test]
    fn survivors_are_counted_and_the_first_ones_named() {
        assert_eq!(survivors_text(&[]), None);
        let one = survivors_text(&[std::process::id()]).unwrap();
        assert!(one.starts_with("gputrace: 1 process outlives") && one.contains("it runs on untraced"), "{one}");
        let many = survivors_text(&[1, 2, 3, 4]).unwrap();
        assert!(many.contains("4 processes") && many.contains("..."), "{many}");
    }
}
