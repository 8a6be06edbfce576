//! The lists of hooks against what drivers have: no function is missing, and each hook passes on what its function takes.
//!
//! Signatures are compared with those that cudarc generated from the vendor's headers, all versions of them, by the
//! number of arguments and by the width and kind of each: that decides what a call puts into which register.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;

use crate::util::{hooked_functions, lacks, repository};

/// Exported, but no functions for programs: the debugger looks them up and calls them itself, or no header has them.
const NOT_HOOKED: [&str; 4] = ["cudbg", "cuEGLApiInit", "cuMemGetAttribute", "cuMemGetAttribute_v2"];

fn is_hooked_or_private(name: &str, hooked: &BTreeSet<String>) -> bool {
    hooked.contains(name) || NOT_HOOKED.iter().any(|no| name == *no || (*no == "cudbg" && name.starts_with(no)))
}

/// The text of cudarc's list of the driver API.
fn cudarc() -> String {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform]);
    cargo.current_dir(repository());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo's answer is JSON");
    let packages = value["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == "cudarc").expect("cudarc is a dependency");
    let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
    let file = manifest.with_file_name("src").join("driver/sys/mod.rs");
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// The driver functions that cudarc has, with their arguments' types. Most signatures never changed.
fn declared(text: &str) -> BTreeMap<&str, Vec<Vec<&str>>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("pub unsafe fn cu")) {
        let (Some(open), Some(close)) = (line.find('('), line.rfind(") -> CUresult")) else { continue };
        let start = line.as_ptr() as usize - text.as_ptr() as usize - 2;
        let name = &text[start..start + 2 + open];
        all.entry(name).or_default().push(arguments(&line[open + 1..close]));
    }
    assert!(all.len() > 500, "{} functions in cudarc", all.len());
    all
}

/// The types of `a: T, b: U` or `T, U`.
fn arguments(list: &str) -> Vec<&str> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.split_once(": ").map_or(part, |(_, kind)| kind).trim()).collect()
}

/// The hooks of a list, with their arguments' types, in the order in which they stand: lines of the macro, or functions.
fn listed(text: &str) -> Vec<(Vec<&str>, Vec<&str>)> {
    let mut lines = Vec::new();
    for (before, separator) in [(": [", "]("), ("extern \"C\" fn ", "(")] {
        for hook in text.split(before).skip(1).filter(|hook| hook.starts_with("cu")) {
            let (Some((names, rest)), Some(end)) = (hook.split_once(separator), hook.find(')')) else { continue };
            lines.push((arguments(names), arguments(&rest[..end - names.len() - separator.len()])));
        }
    }
    lines
}

/// The texts of the lists.
fn lists() -> Vec<(PathBuf, String)> {
    let folder = repository().join("shim/src/hooks/cuda");
    let files = std::fs::read_dir(&folder).expect("the lists' folder").flatten().map(|entry| entry.path());
    let files = files.chain([repository().join("shim/src/interpose/procaddr.rs")]);
    files.map(|file| (file.clone(), std::fs::read_to_string(&file).expect("source is text"))).collect()
}

/// How a value of a type is passed: bytes of an integer or pointer, `f` for a float, a struct's name.
fn passed(kind: &str, aliases: &HashMap<&str, &str>) -> String {
    let kind = kind.trim_start_matches("::core::ffi::");
    if kind.starts_with('*') || kind.contains("Option<") {
        return "8".to_owned();
    }
    match kind {
        "u8" | "c_uchar" => "1",
        "u16" | "c_ushort" => "2",
        "u32" | "i32" | "c_uint" | "c_int" | "enum" => "4",
        "u64" | "usize" | "c_ulonglong" | "c_ulong" => "8",
        // Two words of 32 bits travel in one register of 64.
        "CUmemLocation" => "8",
        "f32" => "f",
        other => match aliases.get(other) {
            Some(meaning) if *meaning != other => return passed(meaning, aliases),
            _ => other,
        },
    }
    .to_owned()
}

/// What names of types stand for: `pub type A = B;`, and enumerations.
fn aliases(text: &str) -> HashMap<&str, &str> {
    let mut all = HashMap::new();
    for line in text.lines().map(str::trim_start) {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        if let Some((name, meaning)) = line.strip_prefix("type ").and_then(|rest| rest.split_once(" = ")) {
            all.entry(name).or_insert(meaning.trim_end_matches(';'));
        } else if let Some((name, alias)) = line.strip_prefix("use self::").and_then(|rest| rest.split_once(" as ")) {
            all.insert(alias.trim_end_matches(';'), name);
        } else if let Some((name, meaning)) = line.strip_prefix("struct ").and_then(|rest| rest.split_once("(pub ")) {
            all.insert(name, meaning.trim_end_matches(");"));
        } else if let Some(name) = line.strip_prefix("enum ") {
            all.insert(name.trim_end_matches(" {"), "enum");
        }
    }
    all
}

#[test]
fn every_function_that_cudarc_has_is_hooked() {
    let (hooked, text) = (hooked_functions(), cudarc());
    let missing: Vec<_> = declared(&text).into_keys().filter(|name| !is_hooked_or_private(name, &hooked)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_function_that_the_vendors_library_exports_is_hooked() {
    let Some(library) = std::env::var_os("GPUTRACE_VENDOR_LIBCUDA") else {
        lacks("the vendor's libcuda.so.1 (GPUTRACE_VENDOR_LIBCUDA)");
        return;
    };
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().expect("nm is installed");
    let text = String::from_utf8(output.stdout).expect("symbols are text");
    let functions: Vec<_> = text.lines().filter_map(|line| line.split_once(" T ")).map(|(_, name)| name).collect();
    assert!(functions.len() > 500, "{} functions in {}", functions.len(), library.display());
    let hooked = hooked_functions();
    let names = functions.iter().map(|name| name.split('@').next().unwrap_or(name));
    let missing: Vec<_> = names.filter(|name| !is_hooked_or_private(name, &hooked)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_hook_takes_what_its_function_takes() {
    let text = cudarc();
    let (declared, theirs) = (declared(&text), aliases(&text));
    let (mut complaints, mut compared) = (Vec::new(), 0);
    for (file, list) in lists() {
        let mut known = theirs.clone();
        known.extend(aliases(&list));
        known.extend([("Location", "u64")]);
        for (names, types) in listed(&list) {
            let ours: Vec<_> = types.iter().map(|kind| passed(kind, &known)).collect();
            for name in names {
                let base = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
                let Some(signatures) = declared.get(base) else { continue };
                compared += 1;
                for signature in signatures {
                    let wanted: Vec<_> = signature.iter().map(|kind| passed(kind, &theirs)).collect();
                    if ours != wanted {
                        complaints.push(format!("{}: {name} {ours:?}, cudarc has {wanted:?}", file.display()));
                    }
                }
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(compared > 600, "{compared} hooks compared");
}

#[test]
fn the_lines_of_each_list_are_in_order() {
    for (file, list) in lists() {
        let lines = listed(&list);
        let first: Vec<_> = lines.iter().filter_map(|(names, _)| names.first()).collect();
        assert!(first.is_sorted(), "{}: {:?}", file.display(), first.windows(2).find(|pair| pair[0] > pair[1]));
    }
}
