//! What stands beside the GPU's work: windows in which it was recorded, launches that were timed, and what CUPTI told of itself, of
//! waits and of managed memory.
//!
//! Tools that sum up the GPU's work must not take any of it for that: none has a stream among its arguments. Windows have the
//! category of torch.profiler's own spans (`Trace`), CUPTI's overhead that of torch.profiler's, and its process (-1).

use std::io::{self, Write};

use gputrace_collectors::schema::TableId;

use super::Files;
use super::kineto::Us;
use super::output::{Output, quoted};
use crate::trace::{NO_NAME, Rows, Texts, Want};

/// What is read.
pub(super) const WANTS: [Want; 3] = [
    Want { table: TableId::GpuWindows, columns: &["window_ns", "pid", "kind", "ended_by"] },
    Want { table: TableId::GpuSamples, columns: &["gpu_ns", "pid", "correlation_id", "kind", "name_id", "weight"] },
    Want { table: TableId::GpuActivity, columns: &["activity_ns", "pid", "kind", "what", "cause", "bytes"] },
];

/// Whether it writes rows of this table.
pub(super) fn is_told(table: TableId) -> bool {
    WANTS.iter().any(|want| want.table == table)
}

/// Writes each row to the file of its process. `names`: as JSON has them.
pub(super) fn write(rows: &Rows, names: &Texts, files: &mut Files) -> io::Result<()> {
    let process = rows.i64("process_id");
    let mut each = |write: &mut dyn FnMut(&mut Output, usize) -> io::Result<()>| {
        (0..rows.len).try_for_each(|row| files.of(process[row]).map_or(Ok(()), |output| write(output, row)))
    };
    match rows.table {
        TableId::GpuWindows => each(&mut windows(rows)),
        TableId::GpuSamples => each(&mut samples(rows, names)),
        _ => each(&mut activities(rows)),
    }
}

fn windows(rows: &Rows) -> impl FnMut(&mut Output, usize) -> io::Result<()> {
    let (start, length, pid) = (rows.i64("start_ns"), rows.i64("window_ns"), rows.i32_or("pid", 0));
    let (kind, ended_by) = (rows.texts("kind"), rows.texts("ended_by"));
    move |output, row| {
        let (ts, dur) = (Us(start[row] - output.base_ns), Us(length[row].max(0)));
        let [kind, ended_by] = [kind.get(row), ended_by.get(row)].map(quoted);
        write!(
            output.event()?,
            r#"{{"ph":"X","cat":"Trace","name":"GPU times are recorded","pid":{},"tid":0,"ts":{ts},"dur":{dur},"args":{{"kind":{kind},"ended by":{ended_by}}}}}"#,
            pid[row]
        )
    }
}

/// At the moment at which the launch began on the GPU.
fn samples(rows: &Rows, names: &Texts) -> impl FnMut(&mut Output, usize) -> io::Result<()> {
    let (start, length, pid) = (rows.i64("start_ns"), rows.i64("gpu_ns"), rows.i32_or("pid", 0));
    let (call, weight) = (rows.i64_or("correlation_id", -1), rows.i32_or("weight", 1));
    let (kind, name) = (rows.texts("kind"), rows.i64_or("name_id", NO_NAME));
    move |output, row| {
        let (ts, took, kind) = (Us(start[row] - output.base_ns), Us(length[row]), quoted(kind.get(row)));
        let known = names.get(name[row])?;
        let name = known.as_deref().unwrap_or(&kind);
        write!(
            output.event()?,
            r#"{{"ph":"i","s":"p","cat":"gpu_sample","name":{name},"pid":{},"tid":0,"ts":{ts},"args":{{"kind":{kind},"time on the GPU (us)":{took},"launch":{},"stands for launches":{}}}}}"#,
            pid[row],
            call[row],
            weight[row]
        )
    }
}

fn activities(rows: &Rows) -> impl FnMut(&mut Output, usize) -> io::Result<()> {
    let (start, length, pid) = (rows.i64("start_ns"), rows.i64_or("activity_ns", -1), rows.i32_or("pid", 0));
    let (kind, what, cause) = (rows.texts("kind"), rows.texts("what"), rows.texts("cause"));
    let bytes = rows.i64_or("bytes", -1);
    move |output, row| {
        let ts = Us(start[row] - output.base_ns);
        let (cat, name) = (quoted(kind.get(row)), quoted(what.get(row)));
        let when = match length[row] {
            ..0 => format!(r#""ph":"i","s":"p","ts":{ts}"#),
            ns => format!(r#""ph":"X","ts":{ts},"dur":{}"#, Us(ns)),
        };
        write!(
            output.event()?,
            r#"{{{when},"cat":{cat},"name":{name},"pid":-1,"tid":0,"args":{{"process":{}"#,
            pid[row]
        )?;
        if let Some(cause) = cause.known(row) {
            write!(output, r#","cause":{}"#, quoted(cause))?;
        }
        if bytes[row] >= 0 {
            write!(output, r#","bytes":{}"#, bytes[row])?;
        }
        write!(output, "}}}}")
    }
}
