//! What the GPU did, and when that was recorded.

use std::io;

use gputrace_collectors::schema::TableId;

use super::{Arg, Flow, Limited, Slice, Texts, Track};
use crate::export::on_gpu;
use crate::trace::{NO_NAME, Rows, Want};

/// What is read.
pub(super) const WANTS: &[Want] = &[
    on_gpu::KERNELS,
    on_gpu::COPIES,
    Want { table: TableId::GpuWindows, columns: &["window_ns", "kind", "ended_by"] },
];

/// What all work has.
struct Works<'a> {
    rows: &'a Rows,
    columns: [std::borrow::Cow<'a, [i64]>; 6],
    device: std::borrow::Cow<'a, [i32]>,
    context: std::borrow::Cow<'a, [i32]>,
}

impl<'a> Works<'a> {
    fn of(rows: &'a Rows) -> Works<'a> {
        let columns = [
            rows.i64("process_id"),
            rows.i64("start_ns"),
            rows.i64("gpu_ns"),
            rows.i64("stream"),
            rows.i64_or("correlation_id", -1),
            rows.i64_or("graph_node", -1),
        ];
        Works { rows, columns, device: rows.i32_or("device", 0), context: rows.i32_or("context", 0) }
    }

    /// The bar of a row, without what only its table knows.
    fn slice<'b>(&self, row: usize, name: &'b str, category: &'b str, more: Vec<(&'static str, Arg<'b>)>) -> Slice<'b> {
        let [process, start, length, stream, call, node] = self.columns.each_ref().map(|column| column[row]);
        let mut args = more;
        let numbers = [("context", i64::from(self.context[row])), ("correlation", call), ("graph node", node)];
        args.extend(numbers.into_iter().filter(|(_, value)| *value >= 0).map(|(name, value)| (name, Arg::Int(value))));
        Slice {
            track: Track::Stream(process, self.device[row], stream),
            start_ns: start,
            length_ns: Some(length.max(0)),
            name,
            category,
            flow: if call >= 0 { Flow::Ends(process, call) } else { Flow::None },
            args,
        }
    }
}

/// Kernels.
pub(super) fn kernels(rows: &Rows, texts: &Texts, to: &mut Limited<'_>) -> io::Result<()> {
    let (works, name) = (Works::of(rows), rows.i64_or("name_id", NO_NAME));
    let (grid, block) = (rows.axes("grid"), rows.axes("block"));
    let known = [
        ("registers per thread", rows.i32_or("registers", -1)),
        ("static shared memory (bytes)", rows.i32_or("static_shared_bytes", -1)),
        ("dynamic shared memory (bytes)", rows.i32_or("shared_bytes", -1)),
    ];
    for row in 0..works.rows.len {
        let mut args = Vec::with_capacity(8);
        let shape = [grid.get(row), block.get(row)].map(|(x, y, z)| format!("{x} {y} {z}"));
        if grid.get(row).0 > 0 {
            args.push(("grid", Arg::Text(&shape[0])));
            args.push(("block", Arg::Text(&shape[1])));
        }
        let known = known.iter().filter(|(_, values)| values[row] >= 0);
        args.extend(known.map(|(name, values)| (*name, Arg::Int(values[row].into()))));
        to.slice(works.slice(row, &texts.name(name[row])?, "kernel", args))?;
    }
    Ok(())
}

/// Copies and sets, called as nsys and torch.profiler call them.
pub(super) fn copies(rows: &Rows, to: &mut Limited<'_>) -> io::Result<()> {
    let (works, bytes) = (Works::of(rows), rows.i64("bytes"));
    let (kind, direction) = (rows.texts("kind"), rows.texts("direction"));
    let (src, dst) = (rows.texts("src_kind"), rows.texts("dst_kind"));
    for row in 0..works.rows.len {
        let set = kind.get(row) == "set";
        let name = if set { "Memset".to_owned() } else { format!("Memcpy {}", direction.get(row)) };
        let kinds = [("from", src.get(row)), ("to", dst.get(row))].into_iter().filter(|(_, kind)| !kind.is_empty());
        let mut args: Vec<_> = kinds.map(|(name, kind)| (name, Arg::Text(kind))).collect();
        args.push(("bytes", Arg::Int(bytes[row])));
        to.slice(works.slice(row, &name, if set { "memset" } else { "memcpy" }, args))?;
    }
    Ok(())
}

/// When the GPU's work was recorded: between two of them nothing is known of it.
pub(super) fn windows(rows: &Rows, to: &mut Limited<'_>) -> io::Result<()> {
    let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("window_ns"));
    let (kind, ended_by) = (rows.texts("kind"), rows.texts("ended_by"));
    for row in 0..rows.len {
        to.slice(Slice {
            track: Track::Recording(process[row]),
            start_ns: start[row],
            length_ns: Some(length[row].max(0)),
            name: "GPU times are recorded",
            category: "recording",
            flow: Flow::None,
            args: vec![("kind", Arg::Text(kind.get(row))), ("ended by", Arg::Text(ended_by.get(row)))],
        })?;
    }
    Ok(())
}
