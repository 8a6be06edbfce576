//! Reads a trace as any user of Parquet would: the tables' files and the manifests, with no help of gputrace's own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use gputrace_collectors::manifest::{Count, Manifest, Process};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::hooked_functions;

/// What the shim itself asks of the driver.
const ASKED_BY_US: [&str; 19] = [
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetUuid_v2",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuFuncGetName",
    "cuGraphChildGraphNodeGetGraph",
    "cuGraphExecGetId",
    "cuGraphGetId",
    "cuGraphGetNodes",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphNodeGetType",
    "cuKernelGetName",
    "cuThreadExchangeStreamCaptureMode",
];

/// A trace folder.
pub(crate) struct Trace {
    path: PathBuf,
}

impl Trace {
    /// The trace in this folder, which must be there.
    #[track_caller]
    pub(crate) fn open(path: &Path) -> Trace {
        assert!(path.join("manifest").is_dir(), "{} holds no trace", path.display());
        Trace { path: path.to_owned() }
    }

    /// All manifests.
    pub(crate) fn manifests(&self) -> Vec<Manifest> {
        let mut files = list(&self.path.join("manifest"));
        files.retain(|file| file.extension().is_some_and(|e| e == "json"));
        files.iter().map(|file| Manifest::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))).collect()
    }

    /// The only manifest.
    #[track_caller]
    pub(crate) fn manifest(&self) -> Manifest {
        let mut all = self.manifests();
        assert_eq!(all.len(), 1, "manifests in {}", self.path.display());
        all.remove(0)
    }

    /// Sealed files of a table.
    pub(crate) fn files(&self, table: &str) -> Vec<PathBuf> {
        let hosts = list(&self.path.join(table));
        hosts.iter().flat_map(|host| list(host)).filter(|f| f.extension().is_some_and(|e| e == "parquet")).collect()
    }

    /// Every row of a table.
    pub(crate) fn table(&self, name: &str) -> Table {
        let mut table = Table::default();
        for file in self.files(name) {
            table.append(&file);
        }
        table
    }

    /// The texts behind ids.
    pub(crate) fn names(&self) -> HashMap<i64, String> {
        self.table("names").rows().map(|row| (row.int("name_id"), row.text("name").to_owned())).collect()
    }

    /// How often each driver function was called: rows of the tables of driver calls, and calls that are only counted.
    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        let names = self.names();
        let mut calls = BTreeMap::new();
        let processes: Vec<Process> = self.manifests().into_iter().flat_map(|m| m.processes).collect();
        let hooks = processes.iter().flat_map(|p| &p.coverage.hooks);
        for hook in hooks.filter(|hook| hook.counted || hook.left_out > 0) {
            let counted = if hook.counted { hook.calls } else { hook.left_out };
            *calls.entry(hook.name.clone()).or_default() += counted;
        }
        calls.retain(|_, calls| *calls > 0);
        for table in ["launches", "syncs", "transfers", "device_memory", "api"] {
            for row in self.table(table).rows() {
                *calls.entry(names[&row.int("api_id")].clone()).or_default() += 1;
            }
        }
        calls
    }

    /// What the manifest knows of the process with this pid.
    #[track_caller]
    pub(crate) fn process(&self, pid: i32) -> Process {
        let all: Vec<Process> = self.manifests().into_iter().flat_map(|m| m.processes).collect();
        let known: Vec<i32> = all.iter().map(|p| p.pid).collect();
        all.into_iter().find(|p| p.pid == pid).unwrap_or_else(|| panic!("process {pid} is not among {known:?}"))
    }

    /// The command's own process.
    #[track_caller]
    pub(crate) fn root(&self) -> Process {
        let manifest = self.manifest();
        let id = manifest.root.and_then(|r| r.process_id).expect("the command was traced");
        manifest.processes.into_iter().find(|p| p.process_id == id).expect("the command is among the processes")
    }

    /// Asserts that it holds as many calls of each hooked function as the simulated driver counted itself.
    #[track_caller]
    pub(crate) fn assert_counts(&self, truth: &BTreeMap<String, u64>) {
        let (hooked, calls) = (hooked_functions(), self.calls());
        let names: BTreeSet<_> = calls.keys().chain(truth.keys().filter(|name| hooked.contains(*name))).collect();
        let count = |of: &BTreeMap<String, u64>, name: &str| of.get(name).copied().unwrap_or(0);
        let differ = names.into_iter().filter(|name| {
            let (seen, happened) = (count(&calls, name), count(truth, name));
            // The shim asks the driver some things itself, and does not count that.
            if ASKED_BY_US.contains(&name.as_str()) { seen > happened } else { seen != happened }
        });
        let differ: Vec<_> = differ.map(|name| (name, count(&calls, name), count(truth, name))).collect();
        assert!(differ.is_empty(), "function, calls seen, calls of the driver: {differ:?}");
    }

    /// Asserts that each process that has ended is accounted for, and that the tables hold what the manifest says.
    #[track_caller]
    pub(crate) fn assert_balanced(&self) {
        let mut recorded: HashMap<(i64, &str), u64> = HashMap::new();
        let manifests = self.manifests();
        let processes = || manifests.iter().flat_map(|m| &m.processes);
        let of_metal: BTreeSet<i64> =
            processes().filter(|p| p.accounting.contains_key("commit")).map(|p| p.process_id).collect();
        for row in self.table("host_memory").rows() {
            let classes: &[&str] = match row.text("action") {
                "culled" => &["host_alloc", "host_free"],
                "free" | "unmap" => &["host_free"],
                _ => &["host_alloc"],
            };
            for class in classes {
                *recorded.entry((row.int("process_id"), class)).or_default() += row.int("calls") as u64;
            }
        }
        for (table, classes) in CLASSES_OF {
            for row in self.table(table).rows() {
                let class = match classes {
                    [one] => one,
                    _ if *table == "api" => classes.iter().find(|c| **c == row.text("class")).expect("a known class"),
                    _ if *table == "launches" => &classes[usize::from(of_metal.contains(&row.int("process_id")))],
                    _ => &classes[usize::from(row.text("action") == "free")],
                };
                // A range that has ended is two events.
                let both = *table == "ranges" && row.text("kind") != "mark" && row.maybe_int("end_ns").is_some();
                *recorded.entry((row.int("process_id"), class)).or_default() += 1 + u64::from(both);
            }
        }
        let summed = ["rollups", "rollup_names"].map(|table| self.summed(table));
        for process in processes() {
            assert!(process.balanced || process.running, "{process:?}");
            for (class, count) in &process.accounting {
                assert!(count.is_balanced() || process.running, "{class} of {process:?}");
                let mut rows = recorded.get(&(process.process_id, class.as_str())).copied().unwrap_or(0);
                if class == "range" {
                    rows += orphans(process);
                }
                // Sums hold every event that is in no call any more, with a row of its own or without.
                for of in summed.iter().filter(|of| !of.is_empty()) {
                    let events = of.get(&(process.process_id, class.clone())).copied().unwrap_or(0);
                    let all = count.kept() + count.left_out + count.dropped + count.sampled_out;
                    let lost = if class == "range" { orphans(process) } else { 0 };
                    assert_eq!(events + lost, all, "{class} in the rollups of {}", process.exe);
                }
                // Of what Metal encodes only dispatches are rows.
                if class != "encode" {
                    assert_eq!(rows, count.kept(), "{class} rows of {}", process.exe);
                }
            }
        }
    }
}

impl Trace {
    /// Events by process and class, as a table of rollups sums them up.
    pub(crate) fn summed(&self, table: &str) -> HashMap<(i64, String), u64> {
        let mut summed: HashMap<(i64, String), u64> = HashMap::new();
        for row in self.table(table).rows() {
            let key = (row.int("process_id"), row.text("class").to_owned());
            *summed.entry(key).or_default() += row.int("events") as u64;
        }
        summed
    }
}

/// What a test makes of the frames of stacks, by the stacks' ids: of each the innermost one's, who called it, and who is outside of that.
pub(crate) struct Stacks<T>(HashMap<i64, (T, [Option<i64>; 2])>);

impl Trace {
    /// All stacks.
    pub(crate) fn stacks<T>(&self, of_frame: impl Fn(&Row<'_>) -> T) -> Stacks<T> {
        let mut stacks = HashMap::new();
        for row in self.table("stacks").rows() {
            let callers = ["caller_id", "outer_id"].map(|column| row.maybe_int(column));
            stacks.entry(row.int("stack_id")).or_insert_with(|| (of_frame(&row), callers));
        }
        Stacks(stacks)
    }
}

impl<T> Stacks<T> {
    /// The frames of a stack, innermost first; none where it is not in the trace.
    pub(crate) fn of(&self, id: i64) -> impl Iterator<Item = &T> {
        let (mut next, mut outside) = (self.0.contains_key(&id).then_some(id), None);
        std::iter::from_fn(move || {
            let (frame, [caller, outer]) = &self.0[&next?];
            outside = outer.or(outside);
            next = caller.or_else(|| outside.take());
            Some(frame)
        })
    }

    /// The innermost frame of a stack.
    #[track_caller]
    pub(crate) fn innermost(&self, id: i64) -> &T {
        &self.0[&id].0
    }
}

/// How often the simulated driver was called, by function, as it says itself in the file that FAKE_CUDA_TRUTH named.
#[track_caller]
pub(crate) fn truth(file: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let value: serde_json::Value = serde_json::from_str(&text).expect("the truth is JSON");
    let calls = value["calls"].as_object().expect("calls by function");
    calls.iter().map(|(name, count)| (name.clone(), count.as_u64().expect("a count"))).collect()
}

/// Which classes' events stand in which table.
const CLASSES_OF: &[(&str, &[&str])] = &[
    ("launches", &["launch", "commit"]),
    ("syncs", &["sync"]),
    ("transfers", &["transfer"]),
    ("device_memory", &["alloc", "free"]),
    ("collectives", &["collective"]),
    ("api", &["api", "commit", "free", "module", "sync"]),
    ("ranges", &["range"]),
    ("os_waits", &["os_wait"]),
];

/// Events of ranges that became no row: ends that had nothing to end.
pub(crate) fn orphans(process: &Process) -> u64 {
    let number = |note: &String| note.strip_suffix(" ends of ranges without their beginnings")?.parse().ok();
    process.notes.iter().find_map(number).unwrap_or(0)
}

/// A class's counts, all zero when the process made no such call.
pub(crate) fn count(process: &Process, class: &str) -> Count {
    process.accounting.get(class).copied().unwrap_or_default()
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    all.sort();
    all
}

/// Rows of one table.
#[derive(Default)]
pub(crate) struct Table {
    columns: HashMap<String, Column>,
    rows: usize,
}

enum Column {
    Int(Vec<Option<i64>>),
    Float(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
}

impl Table {
    fn append(&mut self, path: &Path) {
        let file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let reader =
            ParquetRecordBatchReaderBuilder::try_new(file).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for batch in reader.build().expect("a reader") {
            let batch = batch.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            for (field, values) in batch.schema().fields().iter().zip(batch.columns()) {
                let column = self.columns.entry(field.name().clone()).or_insert_with(|| Column::of(values.data_type()));
                column.append(values.as_ref());
            }
            self.rows += batch.num_rows();
        }
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// The rows, in the files' order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows).map(|at| Row { table: self, at })
    }
}

impl Column {
    fn of(kind: &DataType) -> Column {
        match kind {
            DataType::Utf8 => Column::Text(Vec::new()),
            DataType::Float64 => Column::Float(Vec::new()),
            _ => Column::Int(Vec::new()),
        }
    }

    fn append(&mut self, values: &dyn Array) {
        match (self, values.data_type()) {
            (Column::Int(all), DataType::Int64) => all.extend(values.as_primitive::<Int64Type>()),
            (Column::Int(all), DataType::Int32) => {
                all.extend(values.as_primitive::<Int32Type>().iter().map(|v| v.map(i64::from)));
            }
            (Column::Int(all), DataType::Boolean) => all.extend(values.as_boolean().iter().map(|v| v.map(i64::from))),
            (Column::Float(all), DataType::Float64) => all.extend(values.as_primitive::<Float64Type>()),
            (Column::Text(all), DataType::Utf8) => {
                all.extend(values.as_string::<i32>().iter().map(|v| v.map(str::to_owned)));
            }
            (_, other) => panic!("a column of type {other}"),
        }
    }
}

/// One row.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    table: &'a Table,
    at: usize,
}

impl<'a> Row<'a> {
    #[track_caller]
    fn column(&self, name: &str) -> &'a Column {
        self.table.columns.get(name).unwrap_or_else(|| panic!("no column {name}"))
    }

    /// An integer or a truth value (0, 1); none when it is null.
    #[track_caller]
    pub(crate) fn maybe_int(&self, name: &str) -> Option<i64> {
        match self.column(name) {
            Column::Int(values) => values[self.at],
            _ => panic!("{name} is no integer"),
        }
    }

    /// An integer that is not null.
    #[track_caller]
    pub(crate) fn int(&self, name: &str) -> i64 {
        self.maybe_int(name).unwrap_or_else(|| panic!("{name} is null"))
    }

    /// A number; none when it is null.
    #[track_caller]
    pub(crate) fn maybe_float(&self, name: &str) -> Option<f64> {
        match self.column(name) {
            Column::Float(values) => values[self.at],
            _ => panic!("{name} is no number"),
        }
    }

    /// A number that is not null.
    #[track_caller]
    pub(crate) fn float(&self, name: &str) -> f64 {
        self.maybe_float(name).unwrap_or_else(|| panic!("{name} is null"))
    }

    /// A text; none when it is null.
    #[track_caller]
    pub(crate) fn maybe_text(&self, name: &str) -> Option<&'a str> {
        match self.column(name) {
            Column::Text(values) => values[self.at].as_deref(),
            _ => panic!("{name} is no text"),
        }
    }

    /// A text that is not null.
    #[track_caller]
    pub(crate) fn text(&self, name: &str) -> &'a str {
        self.maybe_text(name).unwrap_or_else(|| panic!("{name} is null"))
    }
}
