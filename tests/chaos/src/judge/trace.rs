//! The trace survives: it opens, it recovers, its rows are those of its account, and what is damaged is named.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use super::{Case, Found, found, tail, unless};
use crate::books::{Books, files_below};
use crate::misfortune::Misfortune;
use crate::random::Draw;
use crate::stage::Ended;

/// Ended by itself and said nothing of a panic.
fn survived(what: &str, ended: &Ended, codes: &[i32]) -> Vec<String> {
    let fine = ended.status.is_some_and(|code| codes.contains(&code)) && !ended.stderr.contains("panicked");
    unless(fine, || format!("{what} ended with {:?}: {}", ended.status, tail(&ended.stderr)))
}

/// After the death of gputrace and all its heirs the report says so, `recover` makes the trace whole, and that once.
pub(super) fn recovers(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let trace = case.stage.trace();
    let folder = trace.display().to_string();
    if case.round.misfortune != Misfortune::AllKilled || !case.played.happened || case.books.manifests == 0 {
        return Ok(None);
    }
    let before = case.stage.tool(case.round, "report-before", &["report", &folder])?;
    let mut wrong = survived("report before recover", &before, &[0]);
    let first = case.stage.tool(case.round, "recover", &["recover", &folder])?;
    wrong.extend(survived("recover", &first, &[0]));
    let again = case.stage.tool(case.round, "recover-again", &["recover", &folder])?;
    wrong.extend(survived("recover, once more", &again, &[0]));
    let says = String::from_utf8_lossy(&again.stdout).into_owned();
    wrong.extend(unless(says.contains("nothing to recover"), || format!("recover, once more: {says}")));
    case.books = Books::read(&trace);
    if !case.round.options.pauses {
        let launches = case.books.images.iter().filter_map(|image| image.classes.get("launch"));
        let (there, before) = (launches.map(|count| count.all).sum::<u64>(), case.played.long_before);
        wrong.extend(unless(there >= before, || {
            format!("{there} launches are accounted for, {before} were made long before gputrace was killed")
        }));
    }
    found(wrong)
}

/// The report is whole; or, where a misfortune explains it, names what is missing.
pub(super) fn opens(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let trace = case.stage.trace();
    if case.refused() || !trace.exists() || case.round.misfortune == Misfortune::Damaged {
        return Ok(None);
    }
    let report = case.stage.tool(case.round, "report", &["report", &trace.display().to_string()])?;
    let codes: &[i32] = match case.round.misfortune {
        Misfortune::TraceRemoved => &[0, 1, 2],
        how if how.takes_disk() => &[0, 1],
        _ => &[0],
    };
    let mut wrong = survived("report", &report, codes);
    if report.status == Some(1) {
        wrong.extend(unless(report.stderr.starts_with("gputrace: "), || {
            format!("report names nothing: {}", report.stderr)
        }));
    }
    if !case.round.misfortune.takes_disk() {
        wrong.extend(unless(case.books.complete, || "the manifest is not complete".to_owned()));
    }
    found(wrong)
}

/// Tables and the classes of which they have a row for each event.
const TABLES: [(&str, &str); 3] = [("launches", "launch"), ("transfers", "transfer"), ("syncs", "sync")];

/// The tables' rows, as anybody reads them, are as many as the account says, and each call is there once.
pub(super) fn rows(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let round = case.round;
    let wanted = Draw::of(round.seed, "rows").chance(40);
    let damaged = round.misfortune == Misfortune::Damaged || round.misfortune.takes_disk();
    if !wanted || damaged || round.options.removes || case.refused() || !case.books.complete {
        return Ok(None);
    }
    let (trace, folder) = (case.stage.trace().display().to_string(), case.stage.folder.join("csv"));
    let to = folder.display().to_string();
    let export = case.stage.tool(round, "export", &["export", &trace, "--format", "csv", "-o", &to])?;
    let mut wrong = survived("export", &export, &[0]);
    for (table, class) in TABLES {
        let rows = rows_of(&folder.join(format!("{table}.csv")))?;
        for image in case.books.images.iter().filter(|image| !image.running) {
            let recorded = image.classes.get(class).map_or(0, |count| count.recorded);
            let ids = rows.get(&image.process_id).map_or(&[][..], Vec::as_slice);
            let (all, different) = (ids.len() as u64, ids.iter().collect::<BTreeSet<_>>().len() as u64);
            // A wait may stand in another table too; a launch or a copy has its own.
            let is_so = if class == "sync" { all <= recorded } else { all == recorded };
            wrong
                .extend(unless(is_so, || format!("process {}: {all} rows of {table}, {recorded} recorded", image.pid)));
            wrong.extend(unless(different == all, || {
                format!("process {}: {all} rows of {table}, {different} calls", image.pid)
            }));
        }
    }
    let _ = fs::remove_dir_all(folder);
    found(wrong)
}

/// Numbers of the calls in a table, by process.
fn rows_of(file: &Path) -> Result<HashMap<i64, Vec<i64>>, String> {
    let mut found: HashMap<i64, Vec<i64>> = HashMap::new();
    // A table without rows has no file.
    let Ok(text) = fs::read_to_string(file) else { return Ok(found) };
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let place = |name: &str| names.iter().position(|of| *of == name).ok_or(format!("{}: no {name}", file.display()));
    let (process, call) = (place("process_id")?, place("correlation_id")?);
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |place: usize| cells.get(place).and_then(|cell| cell.parse().ok());
        if let Some((process, call)) = number(process).zip(number(call)) {
            found.entry(process).or_default().push(call);
        }
    }
    Ok(found)
}

/// A file that was cut, changed or removed ends no reader but by an error that it names.
pub(super) fn damage(case: &mut Case<'_, '_>) -> Result<Found, String> {
    let trace = case.stage.trace();
    if case.round.misfortune != Misfortune::Damaged || case.books.manifests == 0 {
        return Ok(None);
    }
    let mut draw = Draw::of(case.round.seed, "damage");
    let files = files_below(&trace);
    let mut wrong = Vec::new();
    for turn in 0..3 {
        let Some(file) = files.get(draw.below(files.len() as u64) as usize) else { break };
        let was = fs::read(file).unwrap_or_default();
        let mut bytes = was.clone();
        let how = match draw.below(3) {
            _ if bytes.is_empty() => "left",
            0 => {
                bytes.truncate(draw.below(bytes.len() as u64) as usize);
                "cut"
            }
            1 => {
                for _ in 0..draw.between(1, 20) {
                    let place = draw.below(bytes.len() as u64) as usize;
                    bytes[place] ^= 1 << draw.below(8);
                }
                "changed"
            }
            _ => {
                let at = draw.below(bytes.len() as u64) as usize;
                let end = (at + draw.between(1, 4096) as usize).min(bytes.len());
                bytes[at..end].fill(0);
                "overwritten"
            }
        };
        fs::write(file, &bytes).map_err(|error| format!("{}: {error}", file.display()))?;
        let folder = trace.display().to_string();
        let name = file.strip_prefix(&trace).unwrap_or(file).display().to_string();
        for (tool, arguments) in [
            ("report", vec!["report", &folder]),
            ("check", vec!["check", &folder, "--max", "summary.waits=1000000000"]),
            ("recover", vec!["recover", &folder]),
        ] {
            let ended = case.stage.tool(case.round, &format!("{tool}-damaged{turn}"), &arguments)?;
            wrong.extend(survived(&format!("{tool} with {name} {how}"), &ended, &[0, 1, 2]));
        }
        if !wrong.is_empty() {
            break;
        }
        fs::write(file, &was).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    found(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_by_process_in_a_table_of_text() {
        let file = std::env::temp_dir().join(format!("chaos-rows-{}.csv", std::process::id()));
        fs::write(&file, "start_ns,process_id,correlation_id,name\n1,7,100,a\n2,7,101,b\n3,8,100,c\n").unwrap();
        let rows = rows_of(&file).unwrap();
        fs::write(&file, "start_ns,process_id\n1,7\n").unwrap();
        let without = rows_of(&file);
        fs::remove_file(&file).unwrap();
        assert_eq!((rows[&7].as_slice(), rows[&8].as_slice()), (&[100, 101][..], &[100][..]));
        assert!(without.is_err() && rows_of(&file).unwrap().is_empty());
    }

    #[test]
    fn a_signal_a_panic_and_a_hang_are_no_way_to_end() {
        let ended = |status, stderr: &str| Ended { status, stderr: stderr.to_owned(), ..Ended::default() };
        assert!(survived("report", &ended(Some(1), "gputrace: cut short"), &[0, 1]).is_empty());
        for bad in
            [ended(Some(-11), ""), ended(None, ""), ended(Some(0), "thread 'main' panicked at"), ended(Some(2), "")]
        {
            assert_eq!(survived("report", &bad, &[0, 1]).len(), 1, "{bad:?}");
        }
    }
}
