//! The environment that a child gets on macOS from a program that makes it itself: with the loader's and our variables.
//!
//! The shim's own function is tried here, from its source: it is pure, and of no system.

use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

#[path = "../shim/src/hooks/kept.rs"]
mod kept;

use kept::{MOST, kept};

const OURS: [&str; 3] =
    ["DYLD_INSERT_LIBRARIES=/s/no-libasan.so/libgputrace.dylib", "GPUTRACE_SESSION=/s/s", "GPUTRACE_MALLOC=full"];

/// What a child gets where its program gives it `given`, and whether that is the program's own array.
fn child(given: &[&str], ours: &[&str]) -> (Vec<String>, bool) {
    let own = |list: &[&str]| list.iter().map(|text| CString::new(*text).expect("text")).collect::<Vec<CString>>();
    let (given, ours) = (own(given), own(ours));
    let mut pointers: Vec<*mut c_char> = given.iter().map(|text| text.as_ptr().cast_mut()).collect();
    pointers.push(null_mut());
    let mut room = [null_mut(); MOST];
    // SAFETY: C strings, in an array that a null pointer ends; all of them live through the call and the reading.
    unsafe {
        let mut at = kept(pointers.as_ptr(), ours.iter().map(|text| text.as_ptr().cast_mut()), &mut room);
        let same = at == pointers.as_ptr();
        let mut entries = Vec::new();
        while !(*at).is_null() {
            entries.push(CStr::from_ptr(*at).to_string_lossy().into_owned());
            at = at.add(1);
        }
        (entries, same)
    }
}

#[test]
fn an_empty_environment_gets_all_of_ours() {
    assert_eq!(child(&[], &OURS), (OURS.map(str::to_owned).to_vec(), false));
}

#[test]
fn what_the_program_gives_stays_in_front_as_it_is() {
    let (entries, _) = child(&["PATH=/bin", "odd", "GPUTRACE_MALLOC=off"], &OURS);
    assert_eq!(entries, ["PATH=/bin", "odd", "GPUTRACE_MALLOC=off", OURS[0], OURS[1]]);
}

#[test]
fn an_environment_that_says_what_it_wants_is_left_alone() {
    for given in [["A=1", "DYLD_INSERT_LIBRARIES=/other.dylib"], ["A=1", "GPUTRACE=off"]] {
        assert_eq!(child(&given, &OURS), (given.map(str::to_owned).to_vec(), true));
    }
    assert!(child(&["A=1"], &[]).1, "without a session nothing is put back");
    assert!(!child(&["DYLD_INSERT_LIBRARIES_OLD=/x"], &OURS).1);
}

#[test]
fn an_environment_that_is_too_long_or_none_is_passed_on() {
    let long: Vec<String> = (0..MOST).map(|number| format!("V{number}=")).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    assert!(child(&long, &OURS).1);
    assert!(child(&long[..MOST - 3], &OURS).1, "the end needs a place as well");
    let (entries, same) = child(&long[..MOST - 4], &OURS);
    assert_eq!((entries.len(), same), (MOST - 1, false));
    // SAFETY: no array is read.
    assert!(unsafe { kept(std::ptr::null(), std::iter::empty(), &mut [null_mut(); MOST]) }.is_null());
}
