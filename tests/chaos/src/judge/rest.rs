//! Nothing is left behind: sessions, temporary files; and gputrace's own memory stays bounded.

use std::time::Duration;
use std::{fs, thread};

use super::{Case, Found, found, unless};
use crate::books::files_below;
use crate::misfortune::Misfortune;

/// Beside the flight recorder's 256 MiB, of which these rounds fill little.
const MEMORY_KIB: u64 = 300 << 10;

/// gputrace's own memory.
pub(super) fn memory(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let kib = case.played.memory_kib;
    Ok((kib > 0).then(|| unless(kib < MEMORY_KIB, || format!("gputrace took {} MiB", kib >> 10))))
}

/// How many gputraces come after one that was killed.
const NEXT: usize = 10;

/// Sessions, files that are being written, segments in /dev/shm.
pub(super) fn left_behind(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let mut wrong = Vec::new();
    let run = case.stage.folder.join("run");
    let sessions = || -> Vec<String> {
        let entries = fs::read_dir(&run).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    // Who is killed with all its heirs leaves its session, which the next one sweeps. So does one that saw children outlive it.
    let outlived = case.books.images.iter().any(|image| image.running) || case.round.options.grace_ms < 1000;
    let killed = case.round.misfortune == Misfortune::AllKilled && case.played.happened;
    if killed || outlived || case.round.misfortune == Misfortune::SessionRemoved {
        // Not on a disk that may be full.
        let folder = case.stage.folder.join("next").display().to_string();
        // What a process still holds or refers to is left to a later one, and one that is just ending counts.
        for _ in 0..NEXT {
            let _ = fs::remove_dir_all(&folder);
            let next = case.stage.tool(case.round, "next", &["-o", &folder, "--", "true"])?;
            let worked = next.status == Some(0);
            wrong.extend(unless(worked, || format!("the next gputrace: {:?} {}", next.status, next.stderr)));
            if !worked || sessions().is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
    wrong.extend(sessions().into_iter().map(|name| format!("session {name} is left")));
    let files = files_below(&case.stage.trace());
    let young = files.iter().filter(|file| file.extension().is_some_and(|end| end == "new" || end == "part"));
    if case.books.complete && !case.round.misfortune.takes_disk() {
        wrong.extend(young.map(|file| format!("{} is left", file.display())));
    }
    let shared = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let of_root = format!("gputrace-{}", case.played.truth.root);
    let shared = shared.filter(|name| name.to_string_lossy().starts_with(&of_root));
    wrong.extend(shared.map(|name| format!("/dev/shm/{} is left", name.to_string_lossy())));
    found(wrong)
}
