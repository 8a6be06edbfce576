//! The repository keeps its own rules: file heads, file sizes, who imports whom, lists in order, docs that name
//! everything, nothing that points elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::{gputrace, repository};

/// Files that may be longer than [`MOST_LINES`], and why.
const LONG_FILES: &[(&str, &str)] = &[("tests/fakes/cuda/src/nodes.rs", "a list: the graph API")];
const MOST_LINES: usize = 450;

/// Files that git has, or would take.
fn files() -> Vec<PathBuf> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(repository());
    let output = git.output().expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("file names are text");
    let all = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    all.filter(|path| repository().join(path).is_file()).collect()
}

/// Files with this extension, with their text.
fn sources(extension: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for path in files().into_iter().filter(|path| path.extension().is_some_and(|e| e == extension)) {
        let text = fs::read_to_string(repository().join(&path)).expect("source is text");
        all.push((path.to_string_lossy().into_owned(), text));
    }
    assert!(!all.is_empty(), "no .{extension} file");
    all
}

/// The text of a file that must be there.
#[track_caller]
fn text(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Fails with all complaints at once.
#[track_caller]
fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_source_file_begins_by_saying_what_it_is_for() {
    let rust = sources("rs").into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path);
    let c = sources("c").into_iter().filter(|(_, text)| !text.starts_with("/* ")).map(|(path, _)| path);
    none(rust.chain(c).collect());
}

#[test]
fn files_stay_short_or_are_listed_with_the_reason() {
    let long: Vec<(String, usize)> = sources("rs")
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|f| f.1 > MOST_LINES)
        .collect();
    let listed = |path: &str| LONG_FILES.iter().any(|(name, _)| *name == path);
    let unlisted = long.iter().filter(|(path, _)| !listed(path)).map(|(path, lines)| format!("{path}: {lines} lines"));
    let stale = LONG_FILES.iter().filter(|(name, _)| !long.iter().any(|(path, _)| path == name));
    none(unlisted.chain(stale.map(|(name, _)| format!("{name} is short now: take it off the list"))).collect());
}

#[test]
fn unsafe_code_stands_in_the_files_that_its_inventory_lists() {
    const SHIPPED: [&str; 4] = ["src/", "collectors/src/", "shim/src/", "shim/abi/src/"];
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let has = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        // What stands in quotes is none.
        code.split('"').step_by(2).any(|part| part.split(|c| !is_word(c)).any(|word| word == "unsafe"))
    };
    let shipped = sources("rs").into_iter().filter(|(path, _)| SHIPPED.iter().any(|folder| path.starts_with(folder)));
    let found: BTreeSet<String> = shipped.filter(|(_, text)| text.lines().any(has)).map(|(path, _)| path).collect();
    let mut listed = BTreeSet::new();
    for line in text("docs/unsafe.md").lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, folder, files, why, _] = cells[..] else { panic!("{line}") };
        assert!(!why.is_empty(), "{line}");
        listed.extend(files.split(' ').map(|file| format!("{}/{}", folder.trim_matches('`'), file.trim_matches('`'))));
    }
    let new = found.difference(&listed).map(|path| format!("{path} has unsafe code and is not in docs/unsafe.md"));
    let stale = listed.difference(&found).map(|path| format!("{path} is in docs/unsafe.md and has no unsafe code"));
    none(new.chain(stale).collect());
}

/// What follows `use ` or stands before `::` as the first part of a path.
fn imports(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    let roots = lines.filter_map(|line| {
        let path =
            line.strip_prefix("pub(crate) use ").or(line.strip_prefix("pub use ")).or(line.strip_prefix("use "))?;
        Some(path.split([':', ';', ' ', '{']).next().unwrap_or_default().to_owned())
    });
    roots.collect()
}

#[test]
fn the_floors_of_the_house_are_imported_downwards_only() {
    let rules: [(&str, &[&str]); 5] = [
        (
            "shim/abi/src/",
            &["alloc", "arrow", "ctor", "gputrace", "gputrace_collectors", "gputrace_shim", "libc", "std"],
        ),
        ("shim/src/", &["alloc", "arrow", "gputrace", "gputrace_collectors", "parquet", "serde", "std"]),
        ("shim/inline/src/", &["arrow", "gputrace", "gputrace_collectors", "gputrace_shim", "parquet", "serde"]),
        ("shim/patch/src/", &["gputrace", "gputrace_abi", "gputrace_collectors", "gputrace_shim", "libc"]),
        ("collectors/src/", &["gputrace", "gputrace_shim", "clap"]),
    ];
    let mut complaints = Vec::new();
    for (path, text) in sources("rs") {
        for (folder, forbidden) in rules.iter().filter(|(folder, _)| path.starts_with(folder)) {
            let code = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
            let found = imports(code).into_iter().filter(|root| forbidden.contains(&root.as_str()));
            complaints.extend(found.map(|root| format!("{path}, in {folder}, imports {root}")));
        }
        // The shim as an rlib would replace malloc in whatever links it.
        let names_shim = text.contains("gputrace_shim::") && !path.starts_with("tests/tidy");
        complaints.extend(names_shim.then(|| format!("{path} links the shim")));
    }
    none(complaints);
}

#[test]
fn packages_depend_downwards_only() {
    let allowed: [(&str, &[&str]); 5] = [
        // libc for its tests only: memory to share, children to kill.
        ("shim/abi/Cargo.toml", &["libc", "loom", "proptest"]),
        ("shim/Cargo.toml", &["ctor", "cudarc", "gputrace-abi", "libc"]),
        // A user as any other, who reads JSON.
        ("tests/chaos/Cargo.toml", &["libc", "serde_json"]),
        ("shim/inline/Cargo.toml", &["dobby-hook-core", "frida-gum", "gputrace-abi", "gputrace-patch", "libc"]),
        ("shim/patch/Cargo.toml", &["iced-x86"]),
    ];
    for (path, allowed) in allowed {
        let manifest = text(path);
        let sections = manifest.split("\n[").filter(|s| s.lines().next().is_some_and(|l| l.contains("dependencies]")));
        for line in sections.flat_map(|section| section.lines().skip(1)) {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            assert!(name.is_empty() || name.starts_with('#') || allowed.contains(&name), "{path} depends on {name}");
        }
    }
    for path in ["collectors/Cargo.toml", "Cargo.toml", "shim/abi/Cargo.toml", "shim/inline/Cargo.toml"] {
        let manifest = text(path);
        assert!(!manifest.lines().any(|line| line.starts_with("gputrace-shim")), "{path} links the shim");
    }
}

#[test]
fn hooked_functions_stand_in_order_of_their_names() {
    let mut complaints = Vec::new();
    let mut lists = 0;
    for (path, text) in sources("rs").into_iter().filter(|(path, _)| path.starts_with("shim/src/hooks/")) {
        let Some(list) = text.split("\nhooks! {").nth(1).or(text.split("\nnccl! {").nth(1)) else { continue };
        lists += 1;
        // A line of the list: `Class DETAIL: [cuName, ...](`; one class and detail after the other, names sorted within.
        let lines = list.lines().filter_map(|line| {
            let (kind, rest) = line.trim_start().split_once(": [")?;
            kind.starts_with(char::is_uppercase).then(|| (kind.to_owned(), rest.split([',', ']']).next().unwrap_or("")))
        });
        let lines: Vec<(String, &str)> = lines.collect();
        assert!(lines.len() > 3, "{path}");
        let mut last: Vec<(String, &str)> = Vec::new();
        for (kind, name) in lines {
            let class = kind.split(' ').next().unwrap_or_default().to_owned();
            match last.iter_mut().find(|(known, _)| *known == class) {
                Some((_, before)) if *before > name => complaints.push(format!("{path}: {name} comes after {before}")),
                Some((_, before)) => *before = name,
                None => last.push((class, name)),
            }
        }
    }
    assert!(lists >= 7, "{lists} lists of hooks");
    none(complaints);
}

#[test]
fn nothing_is_left_undone_or_ignored() {
    // Put together here, so that this file is not found.
    let marks = ["todo", "unimplemented"]
        .map(|m| format!("{m}!"))
        .into_iter()
        .chain(["TODO", "FIXME", "XXX"].map(|m| format!("{m}:")));
    let marks: Vec<String> = marks.chain([format!("#[{}", "ignore"), format!("#[cfg({}", "any())]")]).collect();
    let mut complaints = Vec::new();
    for (path, text) in sources("rs").into_iter().chain(sources("c")).chain(sources("toml")) {
        for mark in marks.iter().filter(|mark| text.contains(*mark) && !path.ends_with("clippy.toml")) {
            complaints.push(format!("{path}: {mark}"));
        }
    }
    none(complaints);
}

#[test]
fn no_file_names_a_registry_or_a_machine_of_its_makers() {
    let hosts = ["crates", "static.crates"].map(|h| format!("{h}.io/api"));
    let hosts = hosts.into_iter().chain(["pypi", "files.pythonhosted"].map(|h| format!("{h}.org/simple")));
    let places = ["work/main", "work/shared", "tmp/plan"].map(|p| format!("/{p}"));
    let marks: Vec<String> =
        hosts.chain([format!("registry.{}js.org", "npm"), format!("index.{}.io", "crates")]).chain(places).collect();
    let mut complaints = Vec::new();
    for path in files() {
        // What is no text names nothing; the lock file names the index that cargo itself means.
        let Ok(text) = fs::read_to_string(repository().join(&path)) else { continue };
        let text = if path.ends_with("Cargo.lock") { String::new() } else { text };
        complaints.extend(marks.iter().filter(|m| text.contains(*m)).map(|m| format!("{}: {m}", path.display())));
    }
    none(complaints);
}

/// The words that a `gputrace ... --help` lists under a heading.
fn listed(arguments: &[&str], heading: &str) -> Vec<String> {
    let output = Command::new(gputrace()).args(arguments).output().expect("gputrace runs");
    let text = String::from_utf8(output.stdout).expect("help is text");
    let section = text.split(&format!("{heading}:\n")).nth(1).unwrap_or_else(|| panic!("no {heading} in {text}"));
    let lines = section.lines().take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn documentation() -> String {
    ["README.md", "ARCHITECTURE.md"]
        .iter()
        .map(|name| text(name))
        .chain(sources("md").into_iter().map(|f| f.1))
        .collect()
}

#[test]
fn every_command_is_in_the_readme() {
    let readme = text("README.md");
    let commands = listed(&["--help"], "Commands");
    assert!(commands.len() >= 5, "{commands:?}");
    none(commands.iter().filter(|name| !readme.contains(&format!("gputrace {name}"))).cloned().collect());
}

#[test]
fn every_analysis_and_table_is_in_the_docs() {
    let docs = documentation();
    let files = fs::read_dir(repository().join("src/analysis")).expect("the analyses' folder");
    // A larger analysis is a folder.
    let text_of = |path: &PathBuf| fs::read_to_string(if path.is_dir() { path.join("mod.rs") } else { path.clone() });
    let names = files.flatten().map(|entry| entry.path());
    let analyses = names.filter(|path| text_of(path).is_ok_and(|text| text.contains("impl Analysis for")));
    let names: Vec<String> =
        analyses.filter_map(|path| Some(path.file_stem()?.to_str()?.trim_end_matches('_').replace('_', "-"))).collect();
    assert!(names.len() >= 6, "{names:?}");
    let tables = gputrace_collectors::schema::TABLES.iter().map(|table| table.name.to_owned());
    none(names.into_iter().chain(tables).filter(|name| !docs.contains(&format!("`{name}`"))).collect());
}

/// Commands in the code blocks of a document: lines that begin with `$ gputrace`, or with `gputrace` in a shell block.
fn examples(document: &str) -> Vec<Vec<String>> {
    let lines = document.lines().filter_map(|line| line.trim_start().strip_prefix("$ gputrace "));
    let words = |line: &str| {
        let ours = line.split(" -- ").next().unwrap_or_default().split(['|', '>', '#']).next().unwrap_or_default();
        ours.split_whitespace().map(str::to_owned).collect()
    };
    lines.map(words).collect()
}

#[test]
fn the_readmes_examples_use_options_that_exist() {
    let commands = listed(&["--help"], "Commands");
    let mut complaints = Vec::new();
    let all = examples(&documentation());
    assert!(!all.is_empty(), "no example in the documents");
    for example in all {
        let first = example.first().cloned().unwrap_or_default();
        let command = if commands.contains(&first) { first } else { "record".to_owned() };
        let help = Command::new(gputrace()).args([&command, "--help"]).output().expect("gputrace runs");
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        for option in example.iter().filter(|word| word.starts_with("--") && word.len() > 2) {
            let option = option.split('=').next().unwrap_or_default();
            if !help.contains(option) {
                complaints.push(format!("gputrace {} has no {option}: {example:?}", command));
            }
        }
    }
    none(complaints);
}

#[test]
fn the_map_of_the_tests_names_each_of_its_modules() {
    let map = text("tests/tests.rs");
    let modules = map.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let head: String = map.lines().filter(|line| line.starts_with("//!")).collect();
    none(modules.filter(|name| !head.contains(&format!("`{name}`"))).map(str::to_owned).collect());
    let files = fs::read_dir(repository().join("tests")).expect("this folder").flatten().map(|entry| entry.path());
    let orphans = files.filter(|path| path.extension().is_some_and(|e| e == "rs")).filter(|path| {
        let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or_default();
        name != "tests" && !map.contains(&format!("mod {name};"))
    });
    none(orphans.map(|path| Path::new(&path).display().to_string()).collect());
}

#[test]
fn every_number_that_a_report_may_have_is_in_its_documentation() {
    let document = text("docs/report-json.md");
    let mut missing = BTreeSet::new();
    for (path, source) in sources("rs").into_iter().filter(|(path, _)| path.starts_with("src/analysis/")) {
        let code = source.split("#[cfg(test)]\nmod").next().unwrap_or_default();
        // `column("key", ..)`, `section.fact("key", ..)`, `Table::new("key", ..)`, with the key perhaps on a line of its own.
        for call in ["column(", ".fact(", "rare_fact(", "Table::new("] {
            let keys =
                code.split(call).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
            missing
                .extend(keys.filter(|key| !document.contains(&format!("`{key}`"))).map(|key| format!("{path}: {key}")));
        }
    }
    assert!(document.contains("`gpu_times`"), "keys are looked for as they stand there");
    none(missing.into_iter().collect());
}
