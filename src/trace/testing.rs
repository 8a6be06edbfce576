//! Small traces for tests: rows in, a TRACE folder out, as a collector would have written it.

mod host;
mod legacy;
mod metal;
mod outside;
mod removed;
mod rollups;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use gputrace_collectors::names::{NameKind, id};
use gputrace_collectors::schema::{SCHEMA_VERSION, TABLES, TableId, Type};
use gputrace_collectors::{Manifest, manifest};
use parquet::arrow::ArrowWriter;
use serde_json::{Map, Value, json};

use super::{Filter, Trace};
use crate::analysis::{Analysis, Facts, Section};

/// A trace that is being made; its folder goes with it.
pub(crate) struct TestTrace {
    /// The folder.
    pub(crate) folder: PathBuf,
    rows: Vec<Vec<Map<String, Value>>>,
    names: Vec<i64>,
    /// Calls that each thread has made.
    calls: BTreeMap<(i64, i32), i64>,
    /// The manifest; `None` leaves it out.
    pub(crate) manifest: Option<Manifest>,
}

impl Drop for TestTrace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl TestTrace {
    /// An empty trace in a folder of its own.
    pub(crate) fn new() -> TestTrace {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("gputrace-test-{}-{number}", std::process::id()));
        let manifest = Manifest {
            schema_version: SCHEMA_VERSION,
            tool_version: "0.0.0".into(),
            command: vec!["/usr/bin/python".into(), "train.py".into()],
            host: "node".into(),
            launcher_id: 0xabc,
            started_ns: START,
            ended_ns: Some(START + 64_100_000_000),
            complete: true,
            ..Manifest::default()
        };
        let rows = vec![Vec::new(); TABLES.len()];
        TestTrace { folder, rows, names: Vec::new(), calls: BTreeMap::new(), manifest: Some(manifest) }
    }

    /// Gives every row of a table this value.
    pub(crate) fn set(&mut self, table: TableId, column: &str, value: &Value) {
        for row in &mut self.rows[table as usize] {
            row.insert(column.to_owned(), value.clone());
        }
    }

    /// Adds a row; columns that are not named are null, 0, false or empty.
    pub(crate) fn row(&mut self, table: TableId, row: Value) {
        match row {
            Value::Object(row) => self.rows[table as usize].push(row),
            other => panic!("not a row: {other}"),
        }
    }

    /// Takes the rows of a table away again.
    pub(crate) fn clear(&mut self, table: TableId) {
        self.rows[table as usize].clear();
    }

    /// The id of a name, which is put into the table of names.
    pub(crate) fn name(&mut self, kind: NameKind, name: &str) -> i64 {
        let id = id(kind, name);
        if !self.names.contains(&id) {
            self.names.push(id);
            self.row(TableId::Names, json!({ "name_id": id, "kind": kind.name(), "name": name }));
        }
        id
    }

    /// A process image in the table and in the manifest.
    pub(crate) fn process(&mut self, process_id: i64, pid: i32, rank: Option<i32>, end_ns: i64) {
        self.row(
            TableId::Processes,
            json!({
                "process_id": process_id, "pid": pid, "host": "node", "rank": rank, "exe": "/usr/bin/python",
                "command": "python train.py", "origin": "exec", "start_ns": START, "end_ns": end_ns, "exit_code": 0,
                "traced": true, "malloc_mode": "sample:524288",
            }),
        );
        if let Some(manifest) = &mut self.manifest {
            let count = manifest::Count { seen: 1000, recorded: 990, dropped: 10, ..manifest::Count::default() };
            manifest.root.get_or_insert(manifest::Root {
                process_id: Some(process_id),
                exit_code: Some(0),
                exit_signal: None,
                wall_ns: None,
            });
            manifest.processes.push(manifest::Process {
                process_id,
                pid,
                rank,
                exe: "/usr/bin/python".into(),
                traced: true,
                balanced: true,
                accounting: [("api".to_owned(), count)].into(),
                cost: manifest::Cost { total_ns: Some((end_ns - START) as f64 * 0.004), ..manifest::Cost::default() },
                ..manifest::Process::default()
            });
        }
    }

    /// A thread with its name.
    pub(crate) fn thread_row(&mut self, process_id: i64, tid: i32, name: &str) {
        self.row(TableId::Threads, json!({ "process_id": process_id, "tid": tid, "name": name, "start_ns": START }));
    }

    /// A rank of an NCCL communicator that is known on all ranks by its identity.
    pub(crate) fn world(&mut self, process_id: i64, rank: i32, ranks: i32) {
        let row = json!({
            "start_ns": START, "process_id": process_id, "communicator": 1, "unique_id": 77, "rank": rank, "ranks": ranks,
        });
        self.row(TableId::Communicators, row);
    }

    /// An NCCL communicator.
    pub(crate) fn communicator(&mut self, process_id: i64, number: i32, rank: i32, ranks: i32) {
        let row = json!({
            "start_ns": START, "process_id": process_id, "communicator": number, "rank": rank, "ranks": ranks,
        });
        self.row(TableId::Communicators, row);
    }

    /// A Python stack of one frame; its id.
    pub(crate) fn stack(&mut self, function: &str, file: &str, line: i32) -> i64 {
        let id = id(NameKind::Symbol, &format!("{function} {file} {line}"));
        let row = json!({
            "stack_id": id, "language": "python", "function": function, "file": file, "line": line,
        });
        self.row(TableId::Stacks, row);
        id
    }

    /// A loop of 60 steps with everything that an analysis may look for: the metrics that analyses declare are compared with
    /// what they find here.
    pub(crate) fn rich() -> TestTrace {
        let mut trace = TestTrace::new();
        trace.process(1, 100, Some(0), START + 1_000_000_000);
        trace.communicator(1, 1, 0, 2);
        let mut thread = trace.thread(1, 11);
        thread.other("cuModuleLoadData", "module", 300_000);
        for step in 0..60 {
            let began = thread.range_begin();
            thread.host(20_000);
            thread.malloc("alloc", 4096, 524_288.0);
            thread.copy("HtoD", ("pageable", "device"), true, 1 << 20, 120_000);
            thread.alloc("cuMemAlloc_v2", "device", 0x1000, 1 << 20, 8_000);
            for kernel in ["gemm", "relu", "softmax"] {
                let (at, correlation) = (thread.now, (11 << 32) + thread.calls);
                thread.launch(kernel, 3_000 + 10 * (step % 7));
                thread.ran(kernel, at + 5_000, 9_000, correlation);
            }
            thread.launch_graph(Some(1), Some(4), 9_000);
            thread.collective("ncclAllReduce", "all_reduce", 1, 4096, false, 6_000);
            thread.set("device", true, 4096, 3_000);
            thread.system_wait("poll", "poll", 30_000);
            thread.sync("cuStreamSynchronize", "stream", 40_000);
            thread.free("cuMemFree_v2", "device", 0x1000, 9_000);
            thread.range_end(None, &format!("step {step}"), began, true);
        }
        trace.rollup(
            0,
            "launch",
            &json!({"events": 5, "timed": 5, "total_ns": 9_000, "max_ns": 2_000, "durations": "39:5"}),
        );
        trace
    }

    /// Puts the rows of each table into the order of their time, as a collector writes them: ranges when they end.
    pub(crate) fn in_time(&mut self) {
        for (table, rows) in TABLES.iter().zip(&mut self.rows) {
            let column = if table.id == TableId::Ranges { "end_ns" } else { "start_ns" };
            rows.sort_by_key(|row| row.get(column).and_then(Value::as_i64).unwrap_or(0));
        }
    }

    /// Writes all files, each table into `parts` files.
    pub(crate) fn write_parts(&self, parts: usize) -> &Path {
        let launcher = self.manifest.as_ref().map_or("abc".to_owned(), |m| manifest::launcher_text(m.launcher_id));
        for table in &TABLES {
            let rows = &self.rows[table.id as usize];
            for (part, rows) in rows.chunks(rows.len().div_ceil(parts).max(1)).enumerate() {
                let at = self.folder.join(table.name).join("host=node");
                fs::create_dir_all(&at).unwrap();
                let file = fs::File::create(at.join(format!("{launcher}-{part:06}.parquet"))).unwrap();
                let columns = table.columns.iter().map(|c| array(c.kind, c.nullable, c.name, rows)).collect();
                let batch = RecordBatch::try_new(table.arrow(), columns).unwrap();
                let mut writer = ArrowWriter::try_new(file, table.arrow(), None).unwrap();
                writer.write(&batch).unwrap();
                writer.close().unwrap();
            }
        }
        fs::create_dir_all(self.folder.join("manifest")).unwrap();
        if let Some(manifest) = &self.manifest {
            manifest.write(&manifest::path(&self.folder, "node", manifest.launcher_id)).unwrap();
        }
        &self.folder
    }

    /// Writes the files and opens the trace.
    pub(crate) fn open(&self) -> Trace {
        Trace::open(&[self.write_parts(1).to_owned()]).unwrap()
    }

    /// Writes the files and runs an analysis.
    pub(crate) fn section(&self, analysis: &dyn Analysis) -> Section {
        self.section_of(analysis, &Filter::default())
    }

    /// The same of a part of it.
    pub(crate) fn section_of(&self, analysis: &dyn Analysis, filter: &Filter) -> Section {
        let trace = self.open();
        let section = analysis.section(&Facts::gather(&trace, filter, analysis.needs()));
        assert_eq!(trace.problems(), []);
        section
    }
}

fn array(kind: Type, nullable: bool, name: &str, rows: &[Map<String, Value>]) -> ArrayRef {
    let values = || rows.iter().map(|row| row.get(name).filter(|v| !v.is_null()));
    let whole = |v: Option<&Value>| v.map(|v| v.as_i64().unwrap()).or((!nullable).then_some(0));
    match kind {
        Type::I64 => Arc::new(values().map(whole).collect::<Int64Array>()),
        Type::I32 => Arc::new(values().map(|v| whole(v).map(|v| v as i32)).collect::<Int32Array>()),
        Type::F64 => {
            let value = |v: Option<&Value>| v.map(|v| v.as_f64().unwrap()).or((!nullable).then_some(0.0));
            Arc::new(values().map(value).collect::<Float64Array>())
        }
        Type::Bool => {
            Arc::new(values().map(|v| Some(v.is_some_and(|v| v.as_bool().unwrap()))).collect::<BooleanArray>())
        }
        Type::Text => {
            let value = |v: Option<&Value>| v.map(|v| v.as_str().unwrap().to_owned()).or((!nullable).then(String::new));
            Arc::new(values().map(value).collect::<StringArray>())
        }
    }
}

/// Begin of every test trace.
pub(crate) const START: i64 = 1_800_000_000_000_000_000;

/// A thread that makes calls one after another.
pub(crate) struct Thread<'a> {
    trace: &'a mut TestTrace,
    process_id: i64,
    tid: i32,
    calls: i64,
    /// Streams with work that nobody waited for, before each call.
    pub(crate) pending: i32,
    /// Time, ns since the epoch.
    pub(crate) now: i64,
    /// Stack of the next calls, and launches that it stands for.
    pub(crate) stack: Option<(i64, i64)>,
    /// Device of the next launches.
    pub(crate) device: i32,
}

impl TestTrace {
    /// A thread of a process, from its start.
    pub(crate) fn thread(&mut self, process_id: i64, tid: i32) -> Thread<'_> {
        let calls = self.calls.get(&(process_id, tid)).copied().unwrap_or(0);
        Thread { trace: self, process_id, tid, calls, pending: 1, now: START, stack: None, device: 0 }
    }
}

impl Thread<'_> {
    /// Time passes outside the driver.
    pub(crate) fn host(&mut self, ns: i64) {
        self.now += ns;
    }

    pub(crate) fn call(&mut self, table: TableId, api: &str, ns: i64, more: Value) {
        let api_id = self.trace.name(NameKind::Api, api);
        let mut row = json!({
            "start_ns": self.now, "api_ns": ns, "process_id": self.process_id, "pid": self.process_id, "tid": self.tid,
            "correlation_id": (i64::from(self.tid) << 32) + self.calls, "api_id": api_id,
            "pending_streams": self.pending,
        });
        if let Some((stack_id, launches)) = self.stack {
            row["stack_id"] = stack_id.into();
            row["stack_launches"] = launches.into();
        }
        if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
            row.extend(more);
        }
        self.trace.row(table, row);
        self.now += ns;
        self.calls += 1;
        self.trace.calls.insert((self.process_id, self.tid), self.calls);
    }

    /// A kernel launch.
    pub(crate) fn launch(&mut self, kernel: &str, ns: i64) {
        let name = self.trace.name(NameKind::Kernel, kernel);
        let device = self.device;
        self.call(
            TableId::Launches,
            "cuLaunchKernel",
            ns,
            json!({ "name_id": name, "device": device, "grid_x": 1, "stream": 7, "kernels": 1 }),
        );
    }

    /// The run of a kernel on the GPU, and the copy before it.
    pub(crate) fn ran(&mut self, kernel: &str, start_ns: i64, gpu_ns: i64, correlation_id: i64) {
        let name_id = self.trace.name(NameKind::Kernel, kernel);
        let row = json!({
            "start_ns": start_ns, "gpu_ns": gpu_ns, "process_id": self.process_id, "pid": self.process_id, "device": 0,
            "context": 1, "stream": 7, "correlation_id": correlation_id, "name_id": name_id, "grid_x": 8, "grid_y": 1,
            "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1,
        });
        self.trace.row(TableId::Kernels, row);
        let copy = json!({
            "start_ns": start_ns - 2_000, "gpu_ns": 1_500, "process_id": self.process_id, "pid": self.process_id,
            "device": 0, "context": 1, "stream": 7, "kind": "copy", "direction": "HtoD", "bytes": 4096,
        });
        self.trace.row(TableId::DeviceCopies, copy);
    }

    /// A kernel launch, and the kernel on the GPU from then on, for so long. Gives the end.
    pub(crate) fn launch_running(&mut self, kernel: &str, ns: i64, stream: i64, (begin, gpu_ns): (i64, i64)) -> i64 {
        let correlation_id = (i64::from(self.tid) << 32) + self.calls;
        let name_id = self.trace.name(NameKind::Kernel, kernel);
        self.launch(kernel, ns);
        let row = json!({
            "start_ns": begin, "gpu_ns": gpu_ns, "process_id": self.process_id, "pid": self.process_id,
            "device": self.device, "stream": stream, "correlation_id": correlation_id, "name_id": name_id, "grid_x": 1, "grid_y": 1, "grid_z": 1,
            "block_x": 32, "block_y": 1, "block_z": 1,
        });
        self.trace.row(TableId::Kernels, row);
        begin + gpu_ns
    }

    /// A copy, and the same on the GPU. Gives the end.
    pub(crate) fn copy_running(&mut self, direction: &str, bytes: i64, ns: i64, (begin, gpu_ns): (i64, i64)) -> i64 {
        let correlation_id = (i64::from(self.tid) << 32) + self.calls;
        self.copy(direction, ("pinned", "device"), true, bytes, ns);
        let row = json!({
            "start_ns": begin, "gpu_ns": gpu_ns, "process_id": self.process_id, "pid": self.process_id, "device": 0,
            "stream": 7, "correlation_id": correlation_id, "kind": "copy", "direction": direction, "bytes": bytes,
        });
        self.trace.row(TableId::DeviceCopies, row);
        begin + gpu_ns
    }

    /// A launch of a graph.
    pub(crate) fn launch_graph(&mut self, graph_exec_id: Option<i64>, kernels: Option<i64>, ns: i64) {
        let row = json!({ "device": 0, "stream": 7, "graph_exec_id": graph_exec_id, "kernels": kernels });
        self.call(TableId::Launches, "cuGraphLaunch", ns, row);
    }

    /// A wait or question.
    pub(crate) fn sync(&mut self, api: &str, kind: &str, ns: i64) {
        self.call(TableId::Syncs, api, ns, json!({ "kind": kind, "stream": 7 }));
    }

    /// A copy.
    pub(crate) fn copy(&mut self, direction: &str, memory: (&str, &str), queued: bool, bytes: i64, ns: i64) {
        let api = if queued { "cuMemcpyAsync" } else { "cuMemcpy" };
        let row = json!({
            "kind": "copy", "direction": direction, "src_kind": memory.0, "dst_kind": memory.1, "bytes": bytes,
            "async": queued,
        });
        self.call(TableId::Transfers, api, ns, row);
    }

    /// A set.
    pub(crate) fn set(&mut self, memory: &str, queued: bool, bytes: i64, ns: i64) {
        let row = json!({ "kind": "set", "direction": "unknown", "dst_kind": memory, "bytes": bytes, "async": queued });
        self.call(TableId::Transfers, "cuMemsetD8_v2", ns, row);
    }

    /// An allocation.
    pub(crate) fn alloc(&mut self, api: &str, kind: &str, address: i64, bytes: i64, ns: i64) {
        let row = json!({ "action": "alloc", "kind": kind, "address": address, "bytes": bytes });
        self.call(TableId::DeviceMemory, api, ns, row);
    }

    /// A free.
    pub(crate) fn free(&mut self, api: &str, kind: &str, address: i64, ns: i64) {
        self.call(TableId::DeviceMemory, api, ns, json!({ "action": "free", "kind": kind, "address": address }));
    }

    /// Another driver call.
    pub(crate) fn other(&mut self, api: &str, class: &str, ns: i64) {
        self.call(TableId::Api, api, ns, json!({ "class": class }));
    }

    /// A wait for the operating system.
    pub(crate) fn system_wait(&mut self, api: &str, kind: &str, ns: i64) {
        self.call(TableId::OsWaits, api, ns, json!({ "kind": kind, "wait_ns": ns }));
    }

    /// A call of NCCL.
    pub(crate) fn collective(&mut self, api: &str, kind: &str, communicator: i32, bytes: i64, in_group: bool, ns: i64) {
        let row =
            json!({ "kind": kind, "communicator": communicator, "bytes": bytes, "in_group": in_group, "stream": 7 });
        self.call(TableId::Collectives, api, ns, row);
    }

    /// Begins a range of this thread; `range_end` takes what it gives.
    pub(crate) fn range_begin(&self) -> i64 {
        self.now
    }

    /// Ends a range that began then, or leaves it without an end in the trace.
    pub(crate) fn range_end(&mut self, domain: Option<&str>, name: &str, began: i64, ended: bool) {
        let name_id = self.trace.name(NameKind::Range, name);
        let domain_id = domain.map(|domain| self.trace.name(NameKind::Domain, domain));
        let row = json!({
            "start_ns": began, "end_ns": ended.then_some(self.now), "process_id": self.process_id, "tid": self.tid,
            "kind": "push_pop", "name_id": name_id, "domain_id": domain_id, "level": 0,
        });
        self.trace.row(TableId::Ranges, row);
    }

    /// A mark.
    pub(crate) fn mark(&mut self, name: &str) {
        let name_id = self.trace.name(NameKind::Range, name);
        let row = json!({
            "start_ns": self.now, "end_ns": self.now, "process_id": self.process_id, "tid": self.tid, "kind": "mark",
            "name_id": name_id,
        });
        self.trace.row(TableId::Ranges, row);
    }
}
