//! What an imported profile had beside calls, ranges and the GPU's work, given back as it was: functions of Python, annotations on
//! the GPU and waits as CUPTI saw them.
//!
//! Waits have a stream among their arguments, as those of torch.profiler do: its readers tell them from the GPU's work by their category.

use std::io::{self, Write};

use gputrace_collectors::schema::{IMPORTED_ONLY, TableId};

use super::Files;
use super::kineto::Us;
use super::output::Output;
use crate::trace::{NO_NAME, Rows, Texts, Want};

/// What is read.
pub(super) const WANT: Want = Want {
    table: TableId::ProfilerEvents,
    columns: &[
        "event_ns",
        "pid",
        "tid",
        "kind",
        "name_id",
        "device",
        "context",
        "stream",
        "correlation_id",
        "waits_for_stream",
        "event",
        "event_call",
        "function",
        "caller",
        "module",
        IMPORTED_ONLY,
    ],
};

/// Columns of numbers that stand among the arguments, and what they are called there; of waits the device and what follows it.
const NUMBERS: [(&str, &str); 8] = [
    (IMPORTED_ONLY, "External id"),
    ("function", "Python id"),
    ("caller", "Python parent id"),
    ("module", "Python module id"),
    ("waits_for_stream", "wait_on_stream"),
    ("event", "wait_on_cuda_event_id"),
    ("event_call", "wait_on_cuda_event_record_corr_id"),
    ("correlation_id", "correlation"),
];

/// Writes each row to the file of its process. `names`: as JSON has them.
pub(super) fn write(rows: &Rows, names: &Texts, files: &mut Files) -> io::Result<()> {
    let process = rows.i64("process_id");
    let mut event = event(rows, names);
    (0..rows.len).try_for_each(|row| files.of(process[row]).map_or(Ok(()), |output| event(output, row)))
}

fn event<'a>(rows: &'a Rows, names: &'a Texts) -> impl FnMut(&mut Output, usize) -> io::Result<()> + 'a {
    let (start, length, kind) = (rows.i64("start_ns"), rows.i64("event_ns"), rows.texts("kind"));
    let (pid, tid, name) = (rows.i32_or("pid", 0), rows.i32_or("tid", 0), rows.i64_or("name_id", NO_NAME));
    let (device, context) = (rows.i32_or("device", 0), rows.i32_or("context", 0));
    let stream = rows.i64_or("stream", -1);
    let numbers = NUMBERS.map(|(column, key)| (rows.ints(column), key));
    move |output, row| {
        let name = names.get(name[row])?.unwrap_or_else(|| "\"\"".into());
        let (ts, dur) = (Us(start[row] - output.base_ns), Us(length[row]));
        let (cat, pid, tid) = match kind.get(row) {
            "annotation" => ("gpu_user_annotation", device[row], stream[row]),
            "sync" => ("cuda_sync", device[row], stream[row]),
            _ => ("python_function", pid[row], i64::from(tid[row])),
        };
        write!(
            output.event()?,
            r#"{{"ph":"X","cat":"{cat}","name":{name},"pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"args":{{"#
        )?;
        let mut before = "";
        if cat == "cuda_sync" {
            write!(output, r#""cuda_sync_kind":{name},"stream":{tid},"device":{pid},"context":{}"#, context[row])?;
            before = ",";
        }
        for (values, key) in &numbers {
            if let Some(number) = values.known(row) {
                write!(output, r#"{before}"{key}":{number}"#)?;
                before = ",";
            }
        }
        write!(output, "}}}}")
    }
}
