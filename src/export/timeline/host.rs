//! What the host did: calls, nested ranges, waits for the operating system.

use std::io;

use gputrace_collectors::schema::TableId;

use super::{Arg, Flow, Limited, Slice, Texts, Track};
use crate::trace::{NO_NAME, NO_STACK, Rows, Want};

const CALL: [&str; 6] = ["api_ns", "tid", "correlation_id", "api_id", "result", "stack_id"];

/// What is read.
pub(super) const WANTS: &[Want] = &[
    Want {
        table: TableId::Launches,
        columns: &[
            CALL[0], CALL[1], CALL[2], CALL[3], CALL[4], CALL[5], "name_id", "stream", "grid_x", "grid_y", "grid_z",
            "block_x", "block_y", "block_z", "kernels",
        ],
    },
    Want { table: TableId::Syncs, columns: &[CALL[0], CALL[1], CALL[2], CALL[3], CALL[4], CALL[5], "kind", "stream"] },
    Want {
        table: TableId::Transfers,
        columns: &[
            CALL[0],
            CALL[1],
            CALL[2],
            CALL[3],
            CALL[4],
            CALL[5],
            "kind",
            "stream",
            "direction",
            "src_kind",
            "dst_kind",
            "bytes",
        ],
    },
    Want {
        table: TableId::DeviceMemory,
        columns: &[
            CALL[0], CALL[1], CALL[2], CALL[3], CALL[4], CALL[5], "action", "kind", "address", "bytes", "device",
        ],
    },
    Want { table: TableId::Api, columns: &[CALL[0], CALL[1], CALL[2], CALL[3], CALL[4], CALL[5], "class"] },
    Want {
        table: TableId::Collectives,
        columns: &[CALL[0], CALL[1], CALL[2], CALL[3], CALL[4], CALL[5], "kind", "stream", "bytes", "communicator"],
    },
    Want { table: TableId::Dispatches, columns: &[CALL[0], CALL[1], CALL[2], CALL[3], "name_id"] },
    Want { table: TableId::Ranges, columns: &["end_ns", "tid", "kind", "name_id", "domain_id", "payload_int"] },
    Want {
        table: TableId::OsWaits,
        columns: &["wait_ns", "tid", "api_id", "kind", "fd", "bytes", "errno", "stack_id"],
    },
];

/// What a call of a table is.
fn category(table: TableId) -> &'static str {
    match table {
        TableId::Launches => "launch",
        TableId::Syncs => "sync",
        TableId::Transfers => "transfer",
        TableId::DeviceMemory => "memory",
        TableId::Collectives => "collective",
        TableId::Dispatches => "dispatch",
        _ => "api",
    }
}

/// Calls, each with what its table knows of it.
pub(super) fn calls(rows: &Rows, texts: &Texts, to: &mut Limited<'_>) -> io::Result<()> {
    let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
    let (tid, result, call) = (rows.i32_or("tid", 0), rows.i32_or("result", 0), rows.i64_or("correlation_id", -1));
    let (api, stack) = (rows.i64("api_id"), rows.i64_or("stack_id", NO_STACK));
    let (kernel, kernels) = (rows.i64_or("name_id", NO_NAME), rows.i32_or("kernels", 0));
    let (grid, block) = (rows.axes("grid"), rows.axes("block"));
    let numbers: Vec<_> = ["bytes", "address", "device", "communicator"]
        .map(|name| (name, if name == "device" { widened(rows, name) } else { rows.i64_or(name, 0).into_owned() }))
        .into();
    let words = ["kind", "direction", "src_kind", "dst_kind", "action", "class"].map(|name| (name, rows.texts(name)));
    let stream = rows.i64("stream");
    let causes = matches!(rows.table, TableId::Launches | TableId::Transfers);
    for row in 0..rows.len {
        let mut args = Vec::with_capacity(8);
        let (name, kernel) = (texts.name(api[row])?, texts.known(kernel[row])?);
        args.extend(kernel.as_deref().map(|kernel| ("kernel", Arg::Text(kernel))));
        let shape = [grid.get(row), block.get(row)].map(|(x, y, z)| format!("{x} {y} {z}"));
        if grid.get(row).0 > 0 {
            args.push(("grid", Arg::Text(&shape[0])));
            args.push(("block", Arg::Text(&shape[1])));
        }
        if kernels[row] > 1 {
            args.push(("kernels", Arg::Int(kernels[row].into())));
        }
        let words = words.iter().filter_map(|(name, texts)| Some((*name, texts.known(row)?)));
        args.extend(words.filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, Arg::Text(text))));
        args.extend(numbers.iter().filter(|(_, of)| of[row] > 0).map(|(name, of)| (*name, Arg::Int(of[row]))));
        if stream[row] != 0 {
            args.push(("stream", Arg::Int(stream[row])));
        }
        if call[row] >= 0 {
            args.push(("correlation", Arg::Int(call[row])));
        }
        if result[row] != 0 {
            args.push(("result", Arg::Int(result[row].into())));
        }
        let whole = texts.stacks.whole(stack[row])?;
        args.extend(whole.as_deref().map(|text| ("stack", Arg::Text(text))));
        to.slice(Slice {
            track: Track::Thread(process[row], tid[row]),
            start_ns: start[row],
            length_ns: Some(length[row].max(0)),
            name: &name,
            category: category(rows.table),
            flow: if causes && call[row] >= 0 { Flow::Begins(process[row], call[row]) } else { Flow::None },
            args,
        })?;
    }
    Ok(())
}

fn widened(rows: &Rows, name: &str) -> Vec<i64> {
    rows.i32_or(name, 0).iter().map(|value| i64::from(*value)).collect()
}

/// Ranges that ended, and moments.
pub(super) fn ranges(rows: &Rows, texts: &Texts, to: &mut Limited<'_>) -> io::Result<()> {
    let (process, start, end) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64_or("end_ns", -1));
    let (tid, kind) = (rows.i32_or("tid", 0), rows.texts("kind"));
    let (name, domain) = (rows.i64_or("name_id", NO_NAME), rows.i64_or("domain_id", NO_NAME));
    let payload = rows.i64_or("payload_int", 0);
    for row in 0..rows.len {
        let kind = kind.get(row);
        if end[row] < 0 {
            to.done.open_ranges += 1;
            continue;
        }
        let (name, of) = (texts.name(name[row])?, texts.known(domain[row])?);
        let mut args: Vec<_> = of.as_deref().map(|text| ("domain", Arg::Text(text))).into_iter().collect();
        if payload[row] != 0 {
            args.push(("payload", Arg::Int(payload[row])));
        }
        to.slice(Slice {
            track: match kind {
                "start_end" => Track::Spans(process[row]),
                _ => Track::Ranges(process[row], tid[row], domain[row]),
            },
            start_ns: start[row],
            length_ns: (kind != "mark").then(|| (end[row] - start[row]).max(0)),
            name: &name,
            category: "range",
            flow: Flow::None,
            args,
        })?;
    }
    Ok(())
}

/// Waits for the operating system.
pub(super) fn waits(rows: &Rows, texts: &Texts, to: &mut Limited<'_>) -> io::Result<()> {
    let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("wait_ns"));
    let (tid, api, kind) = (rows.i32_or("tid", 0), rows.i64("api_id"), rows.texts("kind"));
    let (fd, bytes, errno) = (rows.i32_or("fd", -1), rows.i64_or("bytes", -1), rows.i32_or("errno", 0));
    let stack = rows.i64_or("stack_id", NO_STACK);
    for row in 0..rows.len {
        let name = texts.name(api[row])?;
        let mut args = vec![("kind", Arg::Text(kind.get(row)))];
        let numbers = [("fd", i64::from(fd[row])), ("bytes", bytes[row])];
        args.extend(numbers.into_iter().filter(|(_, of)| *of >= 0).map(|(name, of)| (name, Arg::Int(of))));
        if errno[row] != 0 {
            args.push(("errno", Arg::Int(errno[row].into())));
        }
        let whole = texts.stacks.whole(stack[row])?;
        args.extend(whole.as_deref().map(|text| ("stack", Arg::Text(text))));
        to.slice(Slice {
            track: Track::Waits(process[row], tid[row]),
            start_ns: start[row],
            length_ns: Some(length[row].max(0)),
            name: &name,
            category: "os_wait",
            flow: Flow::None,
            args,
        })?;
    }
    Ok(())
}
