//! Traces of Nsight Systems, exported to sqlite (`nsys export --type sqlite`).
//!
//! The schema grew over the years: columns are looked up, and one that is not there reads as null. Times are ns since the
//! session began, which a table tells in time since 1970; processes and threads stand together in one number
//! (`globalTid`: 8 bits of hardware, 8 of the machine, 24 of the process, 24 of the thread).

mod rows;

use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use gputrace_collectors::manifest::Device;
use gputrace_collectors::names::NameKind;
use rusqlite::{Connection, OpenFlags};

use super::calls::{Kind, direction_of, memory_of};
use super::events::{Call, Caller, Copy, Kernel, Lane, NOWHERE, Named, Range, Work};
use super::gathered::{Gathered, LATEST_BASE_NS};
use rows::{Cell, Row};

/// CUPTI's kinds of copies, by number, where the export has no table of them.
const COPIES: [&str; 11] = ["unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"];
/// Its kinds of memory, as such exports number them.
const MEMORY: [&str; 7] = ["pageable", "pinned", "device", "array", "managed", "device", "managed"];
/// NVTX events: `NVTX_EVENTS.eventType`.
const MARK: i64 = 34;
const PUSH_POP: i64 = 59;
const START_END: i64 = 60;

/// Opens a database that is only looked at: of one with a write-ahead log sqlite makes files beside it even for that. Where there is such
/// a log already, what it holds belongs to the database.
fn opened(file: &Path) -> Result<Connection> {
    let file = &file.canonicalize()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let beside = |end: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        Path::new(&name).exists()
    };
    if beside("-wal") || beside("-journal") {
        return Ok(Connection::open_with_flags(file, flags)?);
    }
    let mut name = "file:".to_owned();
    for byte in file.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => name.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => name.push(char::from(*byte)),
            byte => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name.push_str("?mode=ro&immutable=1");
    Ok(Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_URI)?)
}

/// Reads an export.
pub(super) fn read(file: &Path) -> Result<Gathered> {
    let base = opened(file)?;
    // A view, or a table that some code stands for, is a query: one of a few words may have rows without end.
    let mut names =
        base.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")?;
    let tables: BTreeSet<String> = names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    drop(names);
    if !tables.contains("StringIds") {
        bail!("it is a database of sqlite, but not one that nsys exported (no table StringIds)");
    }
    let mut reader = Reader { base, tables, texts: HashMap::new(), found: Gathered::new("Nsight Systems, sqlite") };
    reader.texts()?;
    reader.calls()?;
    reader.kernels()?;
    reader.graphs()?;
    reader.copies("CUPTI_ACTIVITY_KIND_MEMCPY", false)?;
    reader.copies("CUPTI_ACTIVITY_KIND_MEMSET", true)?;
    reader.syncs()?;
    reader.ranges()?;
    reader.about()?;
    reader.left_out()?;
    Ok(reader.found)
}

struct Reader {
    base: Connection,
    tables: BTreeSet<String>,
    texts: HashMap<i64, String>,
    found: Gathered,
}

impl Reader {
    fn texts(&mut self) -> Result<()> {
        self.rows("StringIds", &["id", "value"], |reader, row| {
            if let (Some(id), Some(text)) = (row[0].int(), row[1].text()) {
                reader.texts.insert(id, text.to_owned());
            }
        })
    }

    /// A name by its number in the table of texts.
    fn named(&mut self, kind: NameKind, text: &Cell) -> Option<i64> {
        let text = self.texts.get(&text.int()?)?.clone();
        Some(self.found.name(kind, &text))
    }

    fn calls(&mut self) -> Result<()> {
        let columns = ["start", "end", "globalTid", "correlationId", "nameId", "returnValue"];
        self.rows("CUPTI_ACTIVITY_KIND_RUNTIME", &columns, |reader, row| {
            let (Some(start), Some(end), Some(thread)) = (row[0].time(), row[1].time(), row[2].int()) else {
                reader.found.broken += 1;
                return;
            };
            let name = row[4].int().and_then(|id| reader.texts.get(&id)).map_or("", String::as_str);
            let name = without_version(name).to_owned();
            let process = reader.found.process(pid(thread));
            let caller = Caller {
                process,
                tid: tid(thread),
                api_id: reader.found.name(NameKind::Api, &name),
                kernel_id: None,
                kind: Kind::of(&name),
                result: row[5].small().unwrap_or(0),
            };
            let caller = reader.found.callers.number(caller);
            let api_ns = reader.found.length(end - start);
            let call =
                Call { start_ns: start, api_ns, correlation: row[3].number(), caller, stack: None, external: None };
            reader.found.calls.push(call);
        })
    }

    /// From the columns [`WORK`]: when, and where.
    fn work(&mut self, row: &Row) -> Option<(Work, Lane)> {
        let (start, end) = (row[0].time()?, row[1].time()?);
        let work = Work {
            start_ns: start,
            gpu_ns: self.found.length(end - start),
            process: row[2].int().map_or(NOWHERE, |process| self.found.process(pid(process)) as u32),
            correlation: row[6].number(),
            what: 0,
            external: None,
        };
        let lane = Lane {
            device: row[3].small(),
            context: row[4].small().unwrap_or(0),
            stream: row[5].int().unwrap_or(0),
            graph: row[8].int().filter(|graph| *graph > 0),
            graph_node: row[7].int().filter(|node| *node > 0),
        };
        Some((work, lane))
    }

    fn kernels(&mut self) -> Result<()> {
        const MORE: [&str; 12] = [
            "mangledName",
            "demangledName",
            "shortName",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "registersPerThread",
            "staticSharedMemory",
            "dynamicSharedMemory",
        ];
        self.rows("CUPTI_ACTIVITY_KIND_KERNEL", &[&WORK[..], &MORE].concat(), |reader, row| {
            let Some((work, lane)) = reader.work(row) else {
                reader.found.broken += 1;
                return;
            };
            let name_id = row[9..12].iter().find_map(|name| reader.named(NameKind::Kernel, name));
            let three = |at: usize| [0, 1, 2].map(|axis| row[at + axis].small().unwrap_or(0));
            let kernel = Kernel {
                lane,
                name_id,
                grid: three(12),
                block: three(15),
                registers: row[18].small(),
                static_shared_bytes: row[19].small(),
                shared_bytes: row[20].small(),
                whole_graph: false,
            };
            let what = reader.found.kernel_kinds.number(kernel);
            reader.found.kernels.push(Work { what, ..work });
        })
    }

    /// Launches of graphs that were traced as a whole: each is one operation of the GPU.
    fn graphs(&mut self) -> Result<()> {
        let mut launches = 0u64;
        self.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &[&WORK[..], &["graphExecId"]].concat(), |reader, row| {
            let Some((work, lane)) = reader.work(row) else {
                reader.found.broken += 1;
                return;
            };
            launches += 1;
            let graph = row[9].int().filter(|graph| *graph > 0).or(lane.graph);
            let kernel = Kernel {
                lane: Lane { graph, graph_node: None, ..lane },
                name_id: Some(reader.found.name(NameKind::Kernel, "(whole CUDA graph)")),
                grid: [0; 3],
                block: [0; 3],
                registers: None,
                static_shared_bytes: None,
                shared_bytes: None,
                whole_graph: true,
            };
            let what = reader.found.kernel_kinds.number(kernel);
            reader.found.kernels.push(Work { what, ..work });
        })?;
        if launches > 0 {
            self.found.notes.push(format!(
                "{launches} launches of graphs were traced as a whole: each is one operation of the GPU, of kernels that are not \
                 known (nsys profile --cuda-graph-trace=node has them)"
            ));
        }
        Ok(())
    }

    fn copies(&mut self, table: &str, set: bool) -> Result<()> {
        let directions = self.labels("ENUM_CUDA_MEMCPY_OPER")?;
        let memory = self.labels("ENUM_CUDA_MEM_KIND")?;
        let columns = [&WORK[..], &["bytes", "copyKind", "srcKind", "dstKind", "memKind"]].concat();
        self.rows(table, &columns, |reader, row| {
            let Some((work, lane)) = reader.work(row) else {
                reader.found.broken += 1;
                return;
            };
            let place = |cell: &Cell| cell.int().and_then(|at| usize::try_from(at).ok());
            let kind = |cell: &Cell| match cell.int().and_then(|at| memory.get(&at)) {
                Some(label) => memory_of(label),
                None => place(cell).and_then(|at| MEMORY.get(at).copied()),
            };
            let direction = match row[10].int().and_then(|at| directions.get(&at)) {
                Some(label) => direction_of(&short_direction(label)),
                None => place(&row[10]).and_then(|at| COPIES.get(at).copied()).unwrap_or("unknown"),
            };
            let copy = Copy {
                lane,
                set,
                direction: if set { "unknown" } else { direction },
                src_kind: if set { None } else { kind(&row[11]) },
                dst_kind: kind(&row[if set { 13 } else { 12 }]),
                bytes: row[9].int().unwrap_or(0).max(0),
            };
            let what = reader.found.copy_kinds.number(copy);
            reader.found.copies.push(Work { what, ..work });
        })
    }

    /// The words of an enumeration, where the export has it.
    fn labels(&mut self, table: &str) -> Result<HashMap<i64, String>> {
        let mut labels = HashMap::new();
        self.rows(table, &["id", "label", "name"], |_, row| {
            let label = row[1].text().or(row[2].text());
            labels.extend(row[0].int().zip(label.map(str::to_owned)));
        })?;
        Ok(labels)
    }

    fn syncs(&mut self) -> Result<()> {
        self.rows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &["correlationId", "streamId", "contextId"], |reader, row| {
            // A wait for a context has no stream: all of 32 bits are set. Handles, which an export of ours has, are longer.
            if let (Some(id), Some(stream)) = (row[0].int(), row[1].int().filter(|s| *s >= 0 && *s != 0xffff_ffff)) {
                reader.found.sync_streams.insert(id, (stream, row[2].small().unwrap_or(0)));
            }
        })
    }

    fn ranges(&mut self) -> Result<()> {
        // Names of domains are events of their own.
        let mut domains = HashMap::new();
        self.rows("NVTX_EVENTS", &["eventType", "domainId", "text", "textId"], |reader, row| {
            if row[0].int() == Some(75) {
                let text =
                    row[2].text().map(str::to_owned).or(row[3].int().and_then(|id| reader.texts.get(&id).cloned()));
                domains.extend(row[1].int().zip(text));
            }
        })?;
        let columns = ["start", "end", "eventType", "text", "textId", "globalTid", "domainId"];
        self.rows("NVTX_EVENTS", &columns, |reader, row| {
            let kind = match row[2].int() {
                Some(PUSH_POP) => "push_pop",
                Some(START_END) => "start_end",
                Some(MARK) => "mark",
                _ => return,
            };
            let end = if kind == "mark" { row[0].time() } else { row[1].time() };
            let (Some(start), Some(end), Some(thread)) = (row[0].time(), end, row[5].int()) else {
                reader.found.leave_out("NVTX ranges without an end");
                return;
            };
            let text = row[3].text().map(str::to_owned).or(row[4].int().and_then(|id| reader.texts.get(&id).cloned()));
            let domain = row[6].int().and_then(|id| domains.get(&id)).cloned();
            let process = reader.found.process(pid(thread));
            let named = Named {
                process,
                tid: tid(thread),
                kind,
                name_id: text.map(|text| reader.found.name(NameKind::Range, &text)),
                domain_id: domain.map(|domain| reader.found.name(NameKind::Domain, &domain)),
                open: false,
            };
            let named = reader.found.named.number(named);
            let end_ns = start + reader.found.length(end - start);
            reader.found.ranges.push(Range { start_ns: start, end_ns, named, level: -1, external: None });
        })
    }

    /// Devices, processes, threads, the host, and when the session began.
    fn about(&mut self) -> Result<()> {
        const GPU: [&str; 9] = [
            "id",
            "name",
            "uuid",
            "busLocation",
            "totalMemory",
            "smCount",
            "computeMajor",
            "computeMinor",
            "l2CacheSize",
        ];
        self.rows("TARGET_INFO_GPU", &GPU, |reader, row| {
            let text = |at: usize| row[at].text().unwrap_or_default().to_owned();
            let capability = row[6].int().zip(row[7].int());
            let device = Device {
                name: text(1),
                uuid: text(2),
                pci_bus_id: text(3),
                memory_bytes: row[4].int(),
                sm_count: row[5].int(),
                compute_capability: capability.map_or(String::new(), |(major, minor)| format!("{major}.{minor}")),
                l2_bytes: row[8].int(),
                ..Device::default()
            };
            reader.found.devices.extend(row[0].small().map(|ordinal| (ordinal, device)));
        })?;
        self.rows("PROCESSES", &["globalPid", "name"], |reader, row| {
            let known = row[0].int().and_then(|id| reader.found.processes.iter().position(|p| p.pid == pid(id)));
            if let (Some(at), Some(name)) = (known, row[1].text()) {
                reader.found.processes[at].name = name.to_owned();
            }
        })?;
        self.rows("ThreadNames", &["globalTid", "nameId"], |reader, row| {
            let (Some(thread), Some(name)) = (row[0].int(), row[1].int().and_then(|id| reader.texts.get(&id))) else {
                return;
            };
            let process = reader.found.processes.iter_mut().find(|process| process.pid == pid(thread));
            process.map(|process| process.threads.insert(tid(thread), name.clone()));
        })?;
        self.rows("TARGET_INFO_SYSTEM_ENV", &["name", "value"], |reader, row| {
            if row[0].text() == Some("Hostname") {
                reader.found.host = row[1].text().map(str::to_owned);
            }
        })?;
        let mut began = 0;
        self.rows("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |_, row| began = row[0].int().unwrap_or(0))?;
        if (0..LATEST_BASE_NS).contains(&began) {
            self.found.shift(began);
        }
        Ok(())
    }

    /// Counts tables of events that have no place.
    fn left_out(&mut self) -> Result<()> {
        const TAKEN: [&str; 6] = ["GRAPH_TRACE", "KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION"];
        let events = |table: &&String| {
            let cupti = table.strip_prefix("CUPTI_ACTIVITY_KIND_").is_some_and(|kind| !TAKEN.contains(&kind));
            cupti
                || ["OSRT_API", "CUBLAS_EVENTS", "CUDNN_EVENTS", "SCHED_EVENTS", "GPU_METRICS"]
                    .contains(&table.as_str())
        };
        for table in self.tables.iter().filter(events) {
            let count: i64 = self.base.query_row(&format!("SELECT count(*) FROM \"{table}\""), [], |row| row.get(0))?;
            if count > 0 {
                self.found.leave_out_many(table, count as u64);
            }
        }
        Ok(())
    }
}

/// Columns of everything that the GPU did.
const WORK: [&str; 9] =
    ["start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId", "graphNodeId", "graphId"];

fn pid(global: i64) -> i64 {
    global >> 24 & 0xff_ffff
}

fn tid(global: i64) -> i32 {
    (global & 0xff_ffff) as i32
}

/// `cudaLaunchKernel_v7000` is `cudaLaunchKernel` of CUDA 7.0's ABI; `_v2` is part of a driver function's name.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((short, version)) if version.len() >= 4 && version.bytes().all(|b| b.is_ascii_digit()) => short,
        _ => name,
    }
}

/// `Host-to-Device` as `HtoD`.
fn short_direction(label: &str) -> String {
    let (from, to) = label.split_once("-to-").unwrap_or((label, ""));
    let letter = |word: &str| word.chars().next().map_or(String::new(), |c| c.to_ascii_uppercase().to_string());
    format!("{}to{}", letter(from), letter(to))
}
