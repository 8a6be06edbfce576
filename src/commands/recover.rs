//! `gputrace recover`: makes traces whole whose gputrace was killed.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use gputrace_collectors::Manifest;
use gputrace_collectors::recover::{Launcher, launchers, recover};

use super::select::wrong;
use crate::cli::RecoverArgs;
use crate::launch::names;
use crate::render::number;

/// Recovers all of them, and says what came of each.
pub(crate) fn run(args: &RecoverArgs) -> Result<()> {
    for trace in &args.traces {
        let text = one(trace, args.host_is_gone)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot write to stdout")?;
    }
    Ok(())
}

fn one(trace: &Path, host_is_gone: bool) -> Result<String> {
    let name = trace.display();
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
        recovered.extend(recover(trace, launcher)?);
    }
    Ok(match recovered.as_slice() {
        [] => format!("{name}: nothing to recover"),
        some => format!("{name}: recovered{}; next: gputrace report {name}", what(some)),
    })
}

fn is_whole(trace: &Path, launcher: &Launcher) -> bool {
    let at = gputrace_collectors::manifest::path(trace, &launcher.host, launcher.id);
    Manifest::read(&at).is_ok_and(|manifest| manifest.complete)
}

/// How many events there are, and how many are lost.
fn what(manifests: &[Manifest]) -> String {
    let accounts = manifests.iter().flat_map(|manifest| &manifest.processes).flat_map(|p| p.accounting.values());
    let kept: u64 = accounts.map(|count| count.kept()).sum();
    let lost: u64 = manifests.iter().filter_map(|manifest| manifest.recovered).map(|recovered| recovered.lost).sum();
    let of = if manifests.len() > 1 { format!(", of {} launchers", manifests.len()) } else { String::new() };
    let (kept, lost) = (number(kept as f64), number(lost as f64));
    format!(
        "{of}: {kept} events; {lost} are known to be lost, and what came later, or up to about a second before, is too"
    )
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
        assert!(one(folder.path(), true).unwrap().contains(": recovered: 0 events"));
        assert!(one(folder.path(), false).unwrap().ends_with("nothing to recover"));
    }
}
