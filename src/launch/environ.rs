//! The environment with which the target starts: this process's own, with LD_PRELOAD, NVTX_INJECTION64_PATH, for inline
//! hooks LD_AUDIT, and the GPUTRACE_* variables.
//!
//! Entries keep their order, and those that are not `NAME=value` stay as they are.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Libraries that the loader puts before all others.
pub(crate) const PRELOAD: &str = if cfg!(target_os = "macos") { "DYLD_INSERT_LIBRARIES" } else { "LD_PRELOAD" };
/// Libraries that the loader tells of each library that it maps.
const AUDIT: &str = "LD_AUDIT";
const SESSION: &str = "GPUTRACE_SESSION";
/// The library that NVTX loads to have its calls taken.
pub(crate) const INJECTION: &str = "NVTX_INJECTION64_PATH";
/// The one that it would have loaded without us.
const NEXT_INJECTION: &str = "GPUTRACE_NVTX_NEXT";

/// `inherited` with our entry first in LD_PRELOAD and `variables` set.
///
/// An LD_PRELOAD that is there already keeps its entries after ours, but for the entry of an outer gputrace: that shim
/// is the same library and its session is not ours.
pub(crate) fn for_target(
    inherited: Vec<OsString>,
    preload: &OsStr,
    session: &OsStr,
    variables: &[(&str, String)],
) -> Vec<OsString> {
    let outer = outer(&inherited);
    let mut line = preload.as_bytes().to_vec();
    for entry in value(&inherited, PRELOAD).unwrap_or_default().split(|b| *b == b':' || *b == b' ') {
        if !entry.is_empty() && !is_of(&outer, entry) {
            line.push(b':');
            line.extend(entry);
        }
    }
    let mut environment = inherited;
    set(&mut environment, PRELOAD, &line);
    set(&mut environment, SESSION, session.as_bytes());
    for (name, value) in variables {
        set(&mut environment, name, value.as_bytes());
    }
    environment
}

/// `inherited` with NVTX sent to the library of LD_PRELOAD. The loader expands both alike and so finds the copy that it
/// has loaded; musl's expands nothing, and its programs go on without ranges. An injection that is there already is
/// handed on to the shim, which calls it.
pub(crate) fn with_nvtx(mut inherited: Vec<OsString>, preload: &OsStr) -> Vec<OsString> {
    let next = value(&inherited, INJECTION).unwrap_or_default();
    let next = match is_of(&outer(&inherited), next) {
        true => value(&inherited, NEXT_INJECTION).unwrap_or_default(),
        false => next,
    };
    let next = next.to_vec();
    if !next.is_empty() || value(&inherited, NEXT_INJECTION).is_some() {
        set(&mut inherited, NEXT_INJECTION, &next);
    }
    set(&mut inherited, INJECTION, preload.as_bytes());
    inherited
}

/// `inherited` with the engine of inline hooks last in LD_AUDIT, in place of that of an outer gputrace.
pub(crate) fn with_engine(mut inherited: Vec<OsString>, entry: &OsStr) -> Vec<OsString> {
    let outer = outer(&inherited);
    let there = value(&inherited, AUDIT).unwrap_or_default().split(|b| *b == b':');
    let kept = there.filter(|entry| !entry.is_empty() && !is_of(&outer, entry));
    let line = kept.chain([entry.as_bytes()]).collect::<Vec<_>>().join(&b':');
    set(&mut inherited, AUDIT, &line);
    inherited
}

/// Session folder of a gputrace around this one; empty where there is none.
fn outer(inherited: &[OsString]) -> Vec<u8> {
    let session = value(inherited, SESSION).unwrap_or_default();
    session.strip_suffix(b"/s").unwrap_or(session).to_vec()
}

/// Whether a path leads into that session.
fn is_of(outer: &[u8], path: &[u8]) -> bool {
    !outer.is_empty() && path.starts_with(outer)
}

/// Value of the first entry called `name`, which is the one that getenv finds.
fn value<'a>(environment: &'a [OsString], name: &str) -> Option<&'a [u8]> {
    environment.iter().find_map(|entry| entry.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Sets a variable where it stands, or at the end.
pub(crate) fn set(environment: &mut Vec<OsString>, name: &str, value: &[u8]) {
    let entry = OsString::from_vec([name.as_bytes(), b"=", value].concat());
    let start = [name.as_bytes(), b"="].concat();
    match environment.iter_mut().find(|entry| entry.as_bytes().starts_with(&start)) {
        Some(place) => *place = entry,
        None => environment.push(entry),
    }
}

/// Takes a variable away.
pub(crate) fn unset(environment: &mut Vec<OsString>, name: &str) {
    let start = [name.as_bytes(), b"="].concat();
    environment.retain(|entry| !entry.as_bytes().starts_with(&start));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[&str]) -> Vec<OsString> {
        list.iter().map(OsString::from).collect()
    }

    fn target(inherited: &[&str]) -> Vec<OsString> {
        let variables = [("GPUTRACE_MALLOC", "off".to_owned())];
        for_target(entries(inherited), OsStr::new("/s/$LIB/x.so"), OsStr::new("/s/s"), &variables)
    }

    #[test]
    fn order_and_odd_entries_stay_and_ours_come_last() {
        let expected =
            ["B=2", "odd", "A=1", "A=3", "LD_PRELOAD=/s/$LIB/x.so", "GPUTRACE_SESSION=/s/s", "GPUTRACE_MALLOC=off"];
        assert_eq!(target(&["B=2", "odd", "A=1", "A=3"]), entries(&expected));
    }

    #[test]
    fn an_existing_preload_stays_in_its_place_behind_ours() {
        let environment = target(&["LD_PRELOAD=/a.so /b.so:libc.so", "B=2"]);
        assert_eq!(environment[..2], entries(&["LD_PRELOAD=/s/$LIB/x.so:/a.so:/b.so:libc.so", "B=2"]));
    }

    #[test]
    fn the_entry_of_an_outer_gputrace_goes() {
        let environment = target(&["LD_PRELOAD=/o/$LIB/x.so:/a.so", "GPUTRACE_SESSION=/o/s"]);
        assert_eq!(environment[..2], entries(&["LD_PRELOAD=/s/$LIB/x.so:/a.so", "GPUTRACE_SESSION=/s/s"]));
    }

    #[test]
    fn an_injection_that_is_there_already_is_handed_on() {
        let with = |inherited: &[&str]| with_nvtx(entries(inherited), OsStr::new("/s/$LIB/x.so"));
        assert_eq!(with(&["A=1"]), entries(&["A=1", "NVTX_INJECTION64_PATH=/s/$LIB/x.so"]));
        assert_eq!(
            with(&["NVTX_INJECTION64_PATH=/tool.so", "A=1"]),
            entries(&["NVTX_INJECTION64_PATH=/s/$LIB/x.so", "A=1", "GPUTRACE_NVTX_NEXT=/tool.so"])
        );
    }

    #[test]
    fn the_engine_comes_after_other_auditors_and_an_outer_ones_goes() {
        let with = |inherited: &[&str]| with_engine(entries(inherited), OsStr::new("/s/$LIB/y.so"));
        assert_eq!(with(&["A=1"]), entries(&["A=1", "LD_AUDIT=/s/$LIB/y.so"]));
        let outer = ["LD_AUDIT=/a.so:/o/$LIB/y.so", "GPUTRACE_SESSION=/o/s"];
        assert_eq!(with(&outer), entries(&["LD_AUDIT=/a.so:/s/$LIB/y.so", "GPUTRACE_SESSION=/o/s"]));
    }

    #[test]
    fn the_injection_of_an_outer_gputrace_goes_and_what_it_handed_on_stays() {
        let outer = ["GPUTRACE_SESSION=/o/s", "NVTX_INJECTION64_PATH=/o/$LIB/x.so", "GPUTRACE_NVTX_NEXT=/tool.so"];
        let inner = with_nvtx(entries(&outer), OsStr::new("/s/$LIB/x.so"));
        let expected = ["GPUTRACE_SESSION=/o/s", "NVTX_INJECTION64_PATH=/s/$LIB/x.so", "GPUTRACE_NVTX_NEXT=/tool.so"];
        assert_eq!(inner, entries(&expected));
        let stale = with_nvtx(entries(&["GPUTRACE_NVTX_NEXT=/tool.so"]), OsStr::new("/s/$LIB/x.so"));
        assert_eq!(stale, entries(&["GPUTRACE_NVTX_NEXT=", "NVTX_INJECTION64_PATH=/s/$LIB/x.so"]));
    }

    #[test]
    fn a_variable_that_is_taken_away_is_gone_with_each_of_its_entries() {
        let mut environment = ["A=1", "AB=2", "A=3"].map(OsString::from).to_vec();
        unset(&mut environment, "A");
        assert_eq!(environment, ["AB=2"]);
    }
}
