//! What the GPU did.

use std::io;

use super::Export;
use super::database::Cell;
use super::sheets::{GRAPH_TRACE, KERNEL, MEMCPY, MEMSET};
use crate::export::on_gpu;
use crate::trace::{Ints, NO_NAME, Rows, Want};

/// Directions of copies, by their numbers in CUPTI.
const DIRECTIONS: [&str; 11] =
    ["unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"];
/// The name of a graph's launch of which no kernels are known.
const WHOLE_GRAPH: &str = "(whole CUDA graph)";

/// What is read.
pub(super) const WANTS: &[Want] = &[on_gpu::KERNELS, on_gpu::COPIES];

/// The number of a kind of memory, of what is taken too.
pub(super) fn memory(kind: &str) -> i64 {
    match kind {
        "pageable" => 0,
        "pinned" | "registered" => 1,
        "device" | "async" | "virtual" => 2,
        "array" => 3,
        "managed" => 4,
        _ => 7,
    }
}

/// Columns that all work has.
struct Works<'a> {
    numbers: [std::borrow::Cow<'a, [i64]>; 4],
    known: [Ints<'a>; 4],
}

impl<'a> Works<'a> {
    fn of(rows: &'a Rows) -> Works<'a> {
        Works {
            numbers: ["process_id", "start_ns", "gpu_ns", "stream"].map(|name| rows.i64(name)),
            known: ["device", "context", "correlation_id", "graph_node"].map(|name| rows.ints(name)),
        }
    }

    /// Start, end, deviceId, contextId, streamId, correlationId, globalPid, graphNodeId.
    fn cells(&self, row: usize, export: &Export<'_>) -> [Cell<'static>; 8] {
        let [process, start, length, stream] = self.numbers.each_ref().map(|column| column[row]);
        let [device, context, call, node] = self.known.map(|column| column.known(row));
        let (start, end) = export.span(start, length);
        let device = export.places.device(process, device);
        let pid = export.places.pid(process);
        [start.into(), end.into(), device.into(), context.into(), stream.into(), call.into(), pid.into(), node.into()]
    }
}

impl Export<'_> {
    pub(super) fn kernels(&mut self, rows: &Rows) -> io::Result<()> {
        let (works, name) = (Works::of(rows), rows.i64_or("name_id", NO_NAME));
        let more = ["registers", "static_shared_bytes", "shared_bytes"].map(|name| rows.ints(name));
        let shape = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"].map(|name| rows.ints(name));
        for row in 0..rows.len {
            let place = works.cells(row, self);
            if self.strings.known(name[row])?.as_deref() == Some(WHOLE_GRAPH) {
                self.event(&GRAPH_TRACE, &place[..7])?;
                continue;
            }
            let named = self.strings.named(&mut self.to, name[row])?;
            let mut cells = Vec::with_capacity(20);
            cells.extend(place);
            cells.extend([named.demangled, named.short, named.mangled].map(Cell::Int));
            cells.extend(more.iter().chain(&shape).map(|column| Cell::from(column.known(row))));
            self.event(&KERNEL, &cells)?;
        }
        Ok(())
    }

    pub(super) fn copies(&mut self, rows: &Rows) -> io::Result<()> {
        let (works, bytes, kind) = (Works::of(rows), rows.i64("bytes"), rows.texts("kind"));
        let (direction, src, dst) = (rows.texts("direction"), rows.texts("src_kind"), rows.texts("dst_kind"));
        for row in 0..rows.len {
            let place = works.cells(row, self);
            let [src, dst] = [src, dst].map(|kind| Cell::from(kind.known(row).map(memory)));
            if kind.get(row) == "set" {
                self.event(&MEMSET, &[&place[..], &[bytes[row].into(), dst]].concat())?;
                continue;
            }
            let direction = DIRECTIONS.iter().position(|known| *known == direction.get(row)).unwrap_or(0) as i64;
            self.event(&MEMCPY, &[&place[..], &[bytes[row].into(), direction.into(), src, dst]].concat())?;
        }
        Ok(())
    }
}
