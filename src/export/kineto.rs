//! Events as torch.profiler writes them, with what Holistic Trace Analysis reads of them.
//!
//! Times are microseconds with three digits after the point, since `baseTimeNanoseconds`: so small that a reader's floating
//! point numbers hold each ns. Only events of the GPU have a `stream` among their arguments, by which that tool knows
//! them; the stream that a wait is for has another name. The default stream, 0, is 7 there as with torch.profiler.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;

use gputrace_collectors::schema::{IMPORTED_ONLY, TableId};
use rustc_hash::FxHashMap;

use super::collectives::{self, Collectives};
use super::output::{Output, quoted};
use super::{Files, counters, on_gpu, runtime};
use crate::analysis::Shed;
use crate::import::OPERATOR;
use crate::new_file::NewFile;
use crate::trace::{NO_NAME, Process, Rows, Texts, Trace, Want, copy_name};

const CALL: [&str; 7] = ["api_ns", "pid", "tid", "correlation_id", "api_id", "result", IMPORTED_ONLY];
const WORK: &[&str] = &["pid", IMPORTED_ONLY];

/// What is read.
pub(super) const WANTS: &[Want] = &[
    Want {
        table: TableId::Launches,
        columns: &[CALL[0], CALL[1], CALL[2], CALL[3], CALL[4], CALL[5], CALL[6], "name_id"],
    },
    Want {
        table: TableId::Syncs,
        columns: &[CALL[0], CALL[1], CALL[2], CALL[3], CALL[4], CALL[5], CALL[6], "kind", "stream"],
    },
    Want { table: TableId::Transfers, columns: &CALL },
    Want { table: TableId::DeviceMemory, columns: &CALL },
    Want { table: TableId::Api, columns: &CALL },
    Want { table: TableId::Dispatches, columns: &["api_ns", "pid", "tid", "correlation_id", "api_id", "name_id"] },
    on_gpu::KERNELS,
    Want { table: TableId::Kernels, columns: WORK },
    on_gpu::COPIES,
    Want { table: TableId::DeviceCopies, columns: WORK },
    collectives::WANT,
    counters::WANT,
    Want { table: TableId::Ranges, columns: &["end_ns", "pid", "tid", "kind", "name_id", "domain_id", IMPORTED_ONLY] },
];

/// Before it times are told, which are then small and never negative: works may begin before their calls.
fn base_ns(trace: &Trace) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    (trace.began_ns() / SECOND - 1).max(0) * SECOND
}

/// What stands before the events, and the names of the processes.
pub(super) fn head(
    output: &mut Output,
    trace: &Trace,
    processes: &[&Process],
    outside: Option<&str>,
) -> io::Result<()> {
    writeln!(output, "{{\n\"schemaVersion\": 1,")?;
    let known = processes.iter().find_map(|process| Some((process.rank?, process.world_size)));
    if let Some((rank, ranks)) = known {
        let ranks = ranks.map_or(String::new(), |ranks| format!(", \"world_size\": {ranks}"));
        writeln!(output, "\"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {rank}{ranks}}},")?;
    }
    let visible = processes.iter().find_map(|p| p.manifest.as_ref().map(|m| &m.devices).filter(|d| !d.is_empty()));
    let mut devices = Vec::new();
    for (ordinal, uuid) in visible.into_iter().flatten().enumerate() {
        let Some(device) = trace.device(uuid) else { continue };
        let (major, minor) = device.compute_capability.split_once('.').unwrap_or(("0", "0"));
        let number = |text: &str| text.parse::<i64>().unwrap_or(0);
        let described = serde_json::json!({
            "id": ordinal, "name": device.name, "uuid": device.uuid, "totalGlobalMem": device.memory_bytes,
            "computeMajor": number(major), "computeMinor": number(minor), "numSms": device.sm_count,
            "maxThreadsPerMultiprocessor": device.sm_threads,
        });
        devices.push(described.to_string());
    }
    writeln!(output, "\"deviceProperties\": [{}],", devices.join(", "))?;
    writeln!(output, "\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": {},", base_ns(trace))?;
    if let Some(text) = outside {
        writeln!(output, "\"left_out\": {},", quoted(text))?;
    }
    write!(output, "\"traceEvents\": [")?;
    for process in processes {
        let (pid, name) = (process.pid, quoted(process.exe.rsplit('/').next().unwrap_or_default()));
        write!(
            output.event()?,
            r#"{{"ph":"M","name":"process_name","ts":0,"pid":{pid},"tid":0,"args":{{"name":{name}}}}}"#
        )?;
        if let Some(shed) = Shed::of(std::iter::once(*process)) {
            let labels = quoted(&shed.text(trace));
            write!(
                output.event()?,
                r#"{{"ph":"M","name":"process_labels","ts":0,"pid":{pid},"tid":0,"args":{{"labels":{labels}}}}}"#
            )?;
        }
    }
    output.base_ns = base_ns(trace);
    Ok(())
}

/// A thread's name.
pub(super) fn thread_name(output: &mut Output, pid: i32, tid: i32, name: &str) -> io::Result<()> {
    let name = quoted(name);
    write!(
        output.event()?,
        r#"{{"ph":"M","name":"thread_name","ts":0,"pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#
    )
}

/// What stands after them.
pub(super) fn end(mut output: Output) -> io::Result<(NewFile, PathBuf, u64)> {
    let name = quoted(&output.path.file_name().unwrap_or_default().to_string_lossy());
    write!(output, "\n],\n\"traceName\": {name}\n}}\n")?;
    output.whole()
}

/// Microseconds with three digits.
pub(super) struct Us(pub(super) i64);

impl std::fmt::Display for Us {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sign, ns) = if self.0 < 0 { ("-", self.0.unsigned_abs()) } else { ("", self.0 as u64) };
        write!(f, "{sign}{}.{:03}", ns / 1000, ns % 1000)
    }
}

/// Writes rows as events.
pub(super) struct Events {
    names: Texts,
    host_only: bool,
    collectives: Collectives,
    /// When each process ended; ranges that are open then are told to end there.
    ends: FxHashMap<i64, i64>,
    pub(super) open_ranges: u64,
}

impl Events {
    /// With these names, as JSON has them.
    pub(super) fn new(names: Texts, host_only: bool, trace: &Trace) -> io::Result<Events> {
        let ended_ns = trace.ended_ns();
        let end = |process: &Process| Some((process.process_id, process.end_ns.or(ended_ns)?));
        let ends = trace.processes.iter().filter_map(end).collect();
        Ok(Events { names, host_only, collectives: Collectives::read(trace)?, ends, open_ranges: 0 })
    }

    /// When a range ended, which has a negative end where it was open when its process ended.
    fn end(&self, process_id: i64, end_ns: i64) -> Option<i64> {
        if end_ns < 0 { self.ends.get(&process_id).copied() } else { Some(end_ns) }
    }

    /// Names, as JSON has them.
    pub(super) fn names(&self) -> &Texts {
        &self.names
    }

    /// Writes each row to the file of its process.
    pub(super) fn write(&mut self, rows: &Rows, files: &mut Files) -> io::Result<()> {
        let process = rows.i64("process_id");
        let mut each = |write: &mut dyn FnMut(&mut Output, usize) -> io::Result<()>| {
            (0..rows.len).try_for_each(|row| files.of(process[row]).map_or(Ok(()), |output| write(output, row)))
        };
        match rows.table {
            TableId::Kernels => each(&mut self.kernels(rows)),
            TableId::Dispatches => each(&mut self.dispatches(rows)),
            TableId::DeviceCopies => each(&mut self.copies(rows)),
            TableId::Collectives => {
                let mut write = self.collectives(rows);
                collectives::calls(rows)
                    .try_for_each(|row| files.of(process[row]).map_or(Ok(()), |output| write(output, row)))
            }
            TableId::Ranges => {
                let ends = rows.i64_or("end_ns", -1);
                self.open_ranges += ends.iter().filter(|end| **end < 0).count() as u64;
                each(&mut self.ranges(rows))
            }
            _ => each(&mut self.calls(rows)),
        }
    }

    fn name(&self, id: i64) -> io::Result<Rc<str>> {
        Ok(self.names.get(id)?.unwrap_or_else(|| "\"(name not known)\"".into()))
    }

    fn calls<'a>(&'a self, rows: &'a Rows) -> impl FnMut(&mut Output, usize) -> io::Result<()> + 'a {
        let (start, length) = (rows.i64("start_ns"), rows.i64("api_ns"));
        let (pid, tid, result) = (rows.i32_or("pid", 0), rows.i32_or("tid", 0), rows.i32_or("result", 0));
        let (api, correlation) = (rows.i64("api_id"), rows.i64("correlation_id"));
        let kernel = rows.i64_or("name_id", NO_NAME);
        let (kind, stream, external) = (rows.texts("kind"), rows.i64("stream"), external(rows));
        move |output, row| {
            let function = &*self.name(api[row])?;
            let as_runtime = runtime::named(function.trim_matches('"'));
            let name = as_runtime.map_or(Cow::from(function), |name| quoted(name).into());
            let cat = category(&name);
            let (ts, dur) = (Us(start[row] - output.base_ns), Us(length[row]));
            let (pid, tid, correlation) = (pid[row], tid[row], correlation[row]);
            write!(
                output.event()?,
                r#"{{"ph":"X","cat":"{cat}","name":{name},"pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"args":{{"correlation":{correlation}"#
            )?;
            if as_runtime.is_some() {
                write!(output, r#","driver function":{function}"#)?;
            }
            external(output, row)?;
            if result[row] != 0 {
                write!(output, r#","result":{}"#, result[row])?;
            }
            if rows.table == TableId::Syncs
                && stream[row] != 0
                && matches!(kind.get(row), "stream" | "stream_wait" | "query")
            {
                write!(output, r#","waits for stream":{}"#, stream[row])?;
            }
            if self.host_only && rows.table == TableId::Launches && kernel[row] != NO_NAME {
                write!(output, r#","kernel":{}"#, self.name(kernel[row])?)?;
            }
            write!(output, "}}}}")
        }
    }

    /// What Metal's dispatches took of the host. Readers join calls with the GPU's work by `correlation`, which is the commit's.
    fn dispatches<'a>(&'a self, rows: &'a Rows) -> impl FnMut(&mut Output, usize) -> io::Result<()> + 'a {
        let (start, length, api) = (rows.i64("start_ns"), rows.i64("api_ns"), rows.i64("api_id"));
        let (pid, tid) = (rows.i32_or("pid", 0), rows.i32_or("tid", 0));
        let (commit, kernel) = (rows.i64_or("correlation_id", -1), rows.i64_or("name_id", NO_NAME));
        move |output, row| {
            let (name, ts, dur) = (self.name(api[row])?, Us(start[row] - output.base_ns), Us(length[row]));
            write!(
                output.event()?,
                r#"{{"ph":"X","cat":"metal","name":{name},"pid":{},"tid":{},"ts":{ts},"dur":{dur},"args":{{"commit":{}"#,
                pid[row],
                tid[row],
                commit[row]
            )?;
            if kernel[row] != NO_NAME {
                write!(output, r#","kernel":{}"#, self.name(kernel[row])?)?;
            }
            write!(output, "}}}}")
        }
    }

    fn kernels<'a>(&'a self, rows: &'a Rows) -> impl FnMut(&mut Output, usize) -> io::Result<()> + 'a {
        let (name, mut work) = (rows.i64_or("name_id", NO_NAME), work(rows));
        let three = |names: [&str; 3]| names.map(|name| rows.i32_or(name, 0));
        let (grid, block) = (three(["grid_x", "grid_y", "grid_z"]), three(["block_x", "block_y", "block_z"]));
        let optional = [
            ("registers per thread", rows.i32_or("registers", -1)),
            ("static shared memory", rows.i32_or("static_shared_bytes", -1)),
            ("dynamic shared memory", rows.i32_or("shared_bytes", -1)),
        ];
        move |output, row| {
            work(output, row, "kernel", &self.name(name[row])?)?;
            let [x, y, z] = [0, 1, 2].map(|axis| grid[axis][row]);
            let [bx, by, bz] = [0, 1, 2].map(|axis| block[axis][row]);
            if x > 0 && bx > 0 {
                write!(output, r#","grid":[{x},{y},{z}],"block":[{bx},{by},{bz}]"#)?;
            }
            for (key, values) in optional.iter().filter(|(_, values)| values[row] >= 0) {
                write!(output, r#","{key}":{}"#, values[row])?;
            }
            // Both together, where both are known.
            let shared = [&optional[1].1, &optional[2].1].map(|values| i64::from(values[row]));
            if shared.iter().all(|bytes| *bytes >= 0) {
                write!(output, r#","shared memory":{}"#, shared[0] + shared[1])?;
            }
            write!(output, "}}}}")
        }
    }

    fn copies<'a>(&'a self, rows: &'a Rows) -> impl FnMut(&mut Output, usize) -> io::Result<()> + 'a {
        let (bytes, length, mut work) = (rows.i64("bytes"), rows.i64("gpu_ns"), work(rows));
        let (kind, direction) = (rows.texts("kind"), rows.texts("direction"));
        let (src, dst) = (rows.texts("src_kind"), rows.texts("dst_kind"));
        move |output, row| {
            let name = copy_name(kind.get(row), direction.get(row), [src.get(row), dst.get(row)]);
            let cat = if kind.get(row) == "set" { "gpu_memset" } else { "gpu_memcpy" };
            work(output, row, cat, &quoted(&name))?;
            write!(output, r#","bytes":{}"#, bytes[row])?;
            if length[row] > 0 {
                let rate = bytes[row] as f64 / length[row] as f64;
                write!(output, r#","memory bandwidth (GB/s)":{rate}"#)?;
            }
            write!(output, "}}}}")
        }
    }

    fn collectives<'a>(&'a self, rows: &'a Rows) -> impl FnMut(&mut Output, usize) -> io::Result<()> + 'a {
        let (start, length, api) = (rows.i64("start_ns"), rows.i64("api_ns"), rows.i64("api_id"));
        let (pid, tid) = (rows.i32_or("pid", 0), rows.i32_or("tid", 0));
        let (arguments, external) = (self.collectives.arguments(rows), external(rows));
        move |output, row| {
            let (ts, dur) = (Us(start[row] - output.base_ns), Us(length[row]));
            let (pid, tid, arguments) = (pid[row], tid[row], arguments(row, self.name(api[row])?.trim_matches('"')));
            write!(
                output.event()?,
                r#"{{"ph":"X","cat":"cpu_op","name":"{OPERATOR}","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"args":{{{arguments}"#
            )?;
            external(output, row)?;
            write!(output, "}}}}")
        }
    }

    fn ranges<'a>(&'a self, rows: &'a Rows) -> impl FnMut(&mut Output, usize) -> io::Result<()> + 'a {
        let (start, end) = (rows.i64("start_ns"), rows.i64_or("end_ns", -1));
        let (pid, tid, kind) = (rows.i32_or("pid", 0), rows.i32_or("tid", 0), rows.texts("kind"));
        let (name, domain) = (rows.i64_or("name_id", NO_NAME), rows.i64_or("domain_id", NO_NAME));
        let (process, external) = (rows.i64("process_id"), external(rows));
        move |output, row| {
            let name = self.name(name[row])?;
            if self.collectives.tells(&name, process[row], tid[row], start[row])? {
                return Ok(());
            }
            let (open, end) = (end[row] < 0, self.end(process[row], end[row]));
            let Some(end) = end.filter(|end| *end >= start[row]) else { return Ok(()) };
            let domain = if domain[row] == NO_NAME { "\"\"".into() } else { self.name(domain[row])? };
            let cat = if &*domain == "\"cpu_op\"" { "cpu_op" } else { "user_annotation" };
            let (pid, tid) = (pid[row], tid[row]);
            let (ts, dur) = (Us(start[row] - output.base_ns), Us(end - start[row]));
            let when = match kind.get(row) {
                "mark" => format!(r#""ph":"i","s":"t","ts":{ts}"#),
                _ => format!(r#""ph":"X","ts":{ts},"dur":{dur}"#),
            };
            let kind = if kind.get(row) == "start_end" { r#","range":"start_end""# } else { "" };
            write!(
                output.event()?,
                r#"{{{when},"cat":"{cat}","name":{name},"pid":{pid},"tid":{tid},"args":{{"domain":{domain}{kind}"#
            )?;
            if open {
                write!(output, r#","end not seen":true"#)?;
            }
            external(output, row)?;
            write!(output, "}}}}")
        }
    }
}

/// Writes the number by which a row's profiler told what belongs to which operator, where it did.
fn external(rows: &Rows) -> impl Fn(&mut Output, usize) -> io::Result<()> {
    let numbers = rows.ints(IMPORTED_ONLY);
    move |output, row| match numbers.known(row) {
        Some(number) => write!(output, r#","External id":{number}"#),
        None => Ok(()),
    }
}

/// Begins an event of the GPU, up to its further arguments.
fn work(rows: &Rows) -> impl FnMut(&mut Output, usize, &str, &str) -> io::Result<()> {
    let external = external(rows);
    let (start, length) = (rows.i64("start_ns").into_owned(), rows.i64("gpu_ns").into_owned());
    let (device, context) = (rows.i32_or("device", 0).into_owned(), rows.i32_or("context", 0).into_owned());
    let (stream, correlation) = (rows.i64("stream").into_owned(), rows.i64_or("correlation_id", -1).into_owned());
    let node = rows.i64_or("graph_node", -1).into_owned();
    move |output, row, cat, name| {
        let (ts, dur) = (Us(start[row] - output.base_ns), Us(length[row]));
        let (device, context) = (device[row], context[row]);
        let stream = if stream[row] == 0 { 7 } else { stream[row] };
        write!(
            output.event()?,
            r#"{{"ph":"X","cat":"{cat}","name":{name},"pid":{device},"tid":{stream},"ts":{ts},"dur":{dur},"args":{{"device":{device},"context":{context},"stream":{stream}"#
        )?;
        if correlation[row] >= 0 {
            write!(output, r#","correlation":{}"#, correlation[row])?;
        }
        if node[row] >= 0 {
            write!(output, r#","graph node id":{}"#, node[row])?;
        }
        external(output, row)
    }
}

/// The category of a call with this name, which is quoted: Metal's own, beside torch.profiler's two.
fn category(name: &str) -> &'static str {
    if name.starts_with("\"cuda") {
        "cuda_runtime"
    } else if name.starts_with("\"[MTL") || name.starts_with("\"MTL") {
        "metal"
    } else {
        "cuda_driver"
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn calls_are_named_by_whose_they_are() {
        let names = [
            r#""cudaLaunchKernel""#,
            r#""cuLaunchKernel""#,
            r#""[MTLCommandBuffer commit]""#,
            r#""MTLCopyAllDevices""#,
        ];
        assert_eq!(names.map(super::category), ["cuda_runtime", "cuda_driver", "metal", "metal"]);
    }
}
