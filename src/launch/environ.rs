//! The environment with which the target starts: this process's own, with LD_PRELOAD and the GPUTRACE_* variables.
//!
//! Entries keep their order, and those that are not `NAME=value` stay as they are.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const PRELOAD: &str = "LD_PRELOAD";
const SESSION: &str = "GPUTRACE_SESSION";

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
    let outer = value(&inherited, SESSION).map(|outer| outer.strip_suffix(b"/s").unwrap_or(outer).to_vec());
    let mut line = preload.as_bytes().to_vec();
    for entry in value(&inherited, PRELOAD).unwrap_or_default().split(|b| *b == b':' || *b == b' ') {
        let is_outer = outer.as_ref().is_some_and(|outer| !outer.is_empty() && entry.starts_with(outer));
        if !entry.is_empty() && !is_outer {
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
}
