//! The accounts of a trace, as its manifests have them: read as JSON by anybody's means, not by gputrace's own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Where calls of one class went.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Count {
    /// Calls that began.
    pub(crate) seen: u64,
    /// Events in the trace.
    pub(crate) recorded: u64,
    /// Calls that found no room, or no disk.
    pub(crate) dropped: u64,
    /// All of them together with what was culled, left out, sampled out, in flight and abandoned.
    pub(crate) all: u64,
}

/// A process image.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    /// Its number in the trace.
    pub(crate) process_id: i64,
    /// Its pid.
    pub(crate) pid: i32,
    /// Its events are in the trace.
    pub(crate) traced: bool,
    /// It ran when gputrace ended.
    pub(crate) running: bool,
    /// What the manifest says of its own books.
    pub(crate) balanced: bool,
    /// Calls inside of others.
    pub(crate) nested: u64,
    /// By class.
    pub(crate) classes: BTreeMap<String, Count>,
}

/// All manifests of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    /// How many manifests there are.
    pub(crate) manifests: usize,
    /// All of them are the last word.
    pub(crate) complete: bool,
    /// The images.
    pub(crate) images: Vec<Image>,
    /// Pids that were not traced, with the reason.
    pub(crate) untraced: Vec<(i32, String)>,
    /// Manifests that cannot be read.
    pub(crate) unreadable: Vec<String>,
}

impl Books {
    /// Reads them.
    pub(crate) fn read(trace: &Path) -> Books {
        let mut books = Books { complete: true, ..Books::default() };
        for file in manifests(trace) {
            let text = fs::read(&file).unwrap_or_default();
            match serde_json::from_slice::<Value>(&text) {
                Ok(manifest) => books.add(&manifest),
                Err(error) => books.unreadable.push(format!("{}: {error}", file.display())),
            }
        }
        books.complete &= books.manifests > 0;
        books
    }

    fn add(&mut self, manifest: &Value) {
        self.manifests += 1;
        self.complete &= manifest["complete"] == true;
        for process in manifest["processes"].as_array().into_iter().flatten() {
            let classes = process["accounting"].as_object().into_iter().flatten();
            self.images.push(Image {
                process_id: process["process_id"].as_i64().unwrap_or(0),
                pid: process["pid"].as_i64().unwrap_or(0) as i32,
                traced: process["traced"] == true,
                running: process["running"] == true,
                balanced: process["balanced"] == true,
                nested: process["nested"].as_u64().unwrap_or(0),
                classes: classes.map(|(class, count)| (class.clone(), Count::of(count))).collect(),
            });
        }
        for process in manifest["untraced"].as_array().into_iter().flatten() {
            let reason = process["reason"].as_str().unwrap_or_default().to_owned();
            self.untraced.push((process["pid"].as_i64().unwrap_or(0) as i32, reason));
        }
    }

    /// The images of a pid.
    pub(crate) fn images_of(&self, pid: i32) -> Vec<&Image> {
        self.images.iter().filter(|image| image.pid == pid).collect()
    }
}

impl Count {
    fn of(count: &Value) -> Count {
        let part = |name: &str| count[name].as_u64().unwrap_or(0);
        let parts = ["recorded", "culled", "left_out", "dropped", "sampled_out", "in_flight", "abandoned"];
        Count {
            seen: part("seen"),
            recorded: part("recorded"),
            dropped: part("dropped"),
            all: parts.iter().map(|name| part(name)).sum(),
        }
    }
}

/// The manifests' files.
fn manifests(trace: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(trace.join("manifest")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "json")).collect()
}

/// Every file below a folder.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_with_all_its_parts() {
        let text = r#"{"complete": true, "processes": [{"process_id": 3, "pid": 7, "traced": true, "running": false, "balanced": true,
            "nested": 2, "accounting": {"launch": {"seen": 9, "recorded": 3, "culled": 1, "dropped": 2, "sampled_out": 1,
            "in_flight": 1, "abandoned": 1}}}], "untraced": [{"pid": 8, "reason": "static"}]}"#;
        let mut books = Books { complete: true, ..Books::default() };
        books.add(&serde_json::from_str(text).unwrap());
        let launch = &books.images_of(7)[0].classes["launch"];
        assert_eq!(*launch, Count { seen: 9, recorded: 3, dropped: 2, all: 9 });
        assert_eq!(books.untraced, [(8, "static".to_owned())]);
        assert!(books.images_of(8).is_empty() && books.complete);
    }
}
