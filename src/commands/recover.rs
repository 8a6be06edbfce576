//! `gputrace recover`: makes traces whole whose gputrace was killed.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gputrace_collectors::Manifest;
use gputrace_collectors::manifest::Process;
use gputrace_collectors::recover::{Launcher, launchers, recover_telling};

use super::report::whole;
use super::select::wrong;
use crate::cli::RecoverArgs;
use crate::launch::{names, processes, standing};
use crate::progress::{self, Unit};
use crate::render::number;
use crate::say;
use crate::terminal;
use crate::trace::{Trace, TraceError};

/// Recovers all of them, says what came of each, and fails where a file is not whole that nobody can recover.
pub(crate) fn run(args: &RecoverArgs) -> Result<()> {
    let (mut damaged, mut failed) = (Vec::new(), None);
    for trace in &args.traces {
        let work = progress::of("recovering");
        let recovered = match one(trace, args.host_is_gone) {
            Ok(recovered) => recovered,
            // The others are recovered all the same.
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    say(&format!("{earlier:#}"));
                }
                continue;
            }
        };
        let before = damaged.len();
        // Of a trace that nothing can be read of there is nothing more to say here.
        if let Ok(trace) = Trace::open(std::slice::from_ref(trace)) {
            trace.look_at_ends();
            damaged.extend(trace.problems());
        }
        let name = trace.display();
        let text = recovered.unwrap_or_else(|| match damaged.len() - before {
            0 => format!("{name}: nothing to recover; its files end as they should, what stands in them check reads"),
            _ => format!("{name}: nothing that can be recovered"),
        });
        drop(work);
        if terminal::is_quiet() {
            continue;
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot write to stdout")?;
    }
    failed.map_or_else(|| whole("trace", &damaged), Err)
}

/// What was recovered. None: there was nothing to recover.
fn one(trace: &Path, host_is_gone: bool) -> Result<Option<String>> {
    let name = trace.display();
    if trace.exists() && !trace.is_dir() {
        return Err(wrong(TraceError::NotAFolder(trace.to_owned()).to_string()));
    }
    let all = launchers(trace)?;
    if all.is_empty() {
        return Err(wrong(format!("{name}: no trace")));
    }
    let here = names::host();
    let mut recovered = Vec::new();
    for launcher in &all {
        if launcher.host != here && !host_is_gone && !is_whole(trace, launcher) {
            let host = &launcher.host;
            bail!(
                "{name}: was written on {host}; recover it there, or with --host-is-gone when nothing runs there any more"
            );
        }
        if let Some(session) = session_of(trace, launcher) {
            bail!(
                "{name}: its session goes on with it, and loses nothing of what its programs have recorded since: gputrace collect {}; \
                 to give the session up, remove that folder first",
                session.display()
            );
        }
        recovered.extend(recover_telling(trace, launcher, file_is_read)?);
    }
    Ok((!recovered.is_empty()).then(|| {
        let (what, who) = (what(&recovered), who_runs(&recovered, &here));
        format!("{name}: recovered{what}{who}; next: gputrace report {name}")
    }))
}

/// Shows how many of a launcher's files are read.
fn file_is_read(done: usize, all: usize) {
    match done {
        0 => progress::stage("recovering files", Some((all as u64, Unit::Number))),
        _ => progress::step(1),
    }
}

/// The session of this launcher, where its next collector would go on with the trace.
fn session_of(trace: &Path, launcher: &Launcher) -> Option<PathBuf> {
    let at = gputrace_collectors::manifest::path(trace, &launcher.host, launcher.id);
    let manifest = Manifest::read(&at).ok().filter(|manifest| !manifest.complete)?;
    let root = PathBuf::from(manifest.standing?);
    let about = standing::said(&root).ok().filter(|about| about.launcher_id == launcher.id)?;
    // From elsewhere it may have another name.
    let known = about.trace.canonicalize().ok().zip(trace.canonicalize().ok());
    known.is_none_or(|(one, other)| one == other).then_some(root)
}

fn is_whole(trace: &Path, launcher: &Launcher) -> bool {
    let at = gputrace_collectors::manifest::path(trace, &launcher.host, launcher.id);
    Manifest::read(&at).is_ok_and(|manifest| manifest.complete)
}

/// How many events there are, and how many are lost.
fn what(manifests: &[Manifest]) -> String {
    let accounts = manifests.iter().flat_map(Manifest::accounts).flat_map(|p| p.accounting.values());
    let kept: u64 = accounts.map(|count| count.kept()).sum();
    let lost: u64 = manifests.iter().filter_map(|manifest| manifest.recovered).map(|recovered| recovered.lost).sum();
    let unknown = match manifests.iter().filter(|manifest| manifest.is_made_anew()).count() {
        0 => "",
        _ => "; what was known of losses went with the manifest, which could not be read",
    };
    let of = if manifests.len() > 1 { format!(", of {} launchers", manifests.len()) } else { String::new() };
    let (kept, lost) = (number(kept as f64), number(lost as f64));
    if manifests.iter().all(|manifest| !manifest.is_cut_short()) {
        return format!("{of}: {kept} events, which are all that were recorded");
    }
    format!(
        "{of}: {kept} events; {lost} are known to be lost, and what came later, or up to about a second before, is too{unknown}"
    )
}

/// Processes that run on: what they do now nobody records, and what nobody had read of them stays in their memory.
fn who_runs(manifests: &[Manifest], here: &str) -> String {
    let of_here = manifests.iter().filter(|manifest| manifest.host == here).flat_map(|manifest| &manifest.processes);
    let runs = |process: &&Process| {
        let exe = u32::try_from(process.pid).ok().and_then(|pid| processes::executable_path(pid).ok());
        process.running && exe.is_some_and(|exe| exe == Path::new(&process.exe))
    };
    let named: Vec<String> = of_here.filter(runs).map(|process| format!("{} ({})", process.pid, process.exe)).collect();
    match named.as_slice() {
        [] => String::new(),
        [one] => format!("; process {one} still runs, unrecorded since"),
        [first, ..] => format!("; {} processes still run, unrecorded since, the first of them {first}", named.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::exit::Failure;
    use crate::launch::testing::Folder;

    #[test]
    fn what_is_no_trace_and_what_another_host_wrote_is_refused() {
        let folder = Folder::new("recover");
        let error = one(folder.path(), false).unwrap_err();
        assert_eq!(error.downcast_ref::<Failure>().map(|failure| failure.code), Some(2));
        std::fs::create_dir(folder.path().join("manifest")).unwrap();
        let manifest =
            Manifest { host: "elsewhere".to_owned(), launcher_id: 7, schema_version: 1, ..Manifest::default() };
        manifest.write(&folder.path().join("manifest/elsewhere-7.json")).unwrap();
        let error = one(folder.path(), false).unwrap_err().to_string();
        assert!(error.contains("was written on elsewhere") && error.contains("--host-is-gone"), "{error}");
        assert!(one(folder.path(), true).unwrap().unwrap().contains(": recovered: 0 events"));
        assert_eq!(one(folder.path(), false).unwrap(), None);
    }

    #[test]
    fn what_still_runs_is_named() {
        let own = std::process::id();
        let exe = processes::executable_path(own).unwrap().to_string_lossy().into_owned();
        let process =
            |pid: i32, exe: &str, running| Process { pid, exe: exe.to_owned(), running, ..Process::default() };
        let said = |processes: Vec<Process>| {
            who_runs(&[Manifest { host: "h".to_owned(), processes, ..Manifest::default() }], "h")
        };
        let live = process(own as i32, &exe, true);
        assert_eq!(said(vec![live.clone()]), format!("; process {own} ({exe}) still runs, unrecorded since"));
        assert!(said(vec![live.clone(), live.clone()]).contains("; 2 processes still run"));
        assert_eq!(said(vec![process(own as i32, "/bin/other", true), process(own as i32, &exe, false)]), "");
        assert_eq!(who_runs(&[Manifest { processes: vec![live], ..Manifest::default() }], "elsewhere"), "");
    }
}
