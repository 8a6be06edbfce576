//! Calls of CUDA, with what they waited for and the memory that they took and gave back; waits for the operating system.

use std::io;

use gputrace_collectors::schema::TableId;

use super::Export;
use super::chains::Of;
use super::sheets::{MEMORY_USAGE, OSRT, RUNTIME, SYNCHRONIZATION};
use super::work::memory;
use crate::trace::{NO_STACK, Rows, Want};

/// Classes of events: calls of the runtime, of the driver, of the operating system.
const CUDA_RUNTIME: i64 = 0;
const CUDA_DRIVER: i64 = 1;
const OS_RUNTIME: i64 = 27;
/// In place of a stream or an event where a wait is for none.
const NOT_ONE: i64 = 0xffff_ffff;

const CALL: [&str; 6] = ["api_ns", "tid", "correlation_id", "api_id", "result", "stack_id"];

/// What is read.
pub(super) const WANTS: &[Want] = &[
    Want { table: TableId::Launches, columns: &CALL },
    Want {
        table: TableId::Syncs,
        columns: &[
            CALL[0], CALL[1], CALL[2], CALL[3], CALL[4], CALL[5], "kind", "context", "device", "stream", "handle",
        ],
    },
    Want { table: TableId::Transfers, columns: &CALL },
    Want {
        table: TableId::DeviceMemory,
        columns: &[
            CALL[0], CALL[1], CALL[2], CALL[3], CALL[4], CALL[5], "action", "kind", "address", "bytes", "context",
            "device", "stream",
        ],
    },
    Want { table: TableId::Api, columns: &CALL },
    Want { table: TableId::OsWaits, columns: &["wait_ns", "tid", "api_id", "bytes", "errno", "stack_id"] },
];

impl Export<'_> {
    pub(super) fn calls(&mut self, rows: &Rows) -> io::Result<()> {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (tid, call, result) = (rows.i32_or("tid", 0), rows.ints("correlation_id"), rows.i32_or("result", 0));
        let (api, stack) = (rows.i64("api_id"), rows.i64_or("stack_id", NO_STACK));
        for row in 0..rows.len {
            let class = if self.strings.text(api[row])?.starts_with("cuda") { CUDA_RUNTIME } else { CUDA_DRIVER };
            let name = self.strings.named(&mut self.to, api[row])?.mangled;
            let tid = self.places.tid(process[row], tid[row]);
            let chain = self.chains.number(Of::Call, stack[row])?;
            let (start, end) = self.span(start[row], length[row]);
            let call = call.known(row).into();
            let cells =
                [start.into(), end.into(), class.into(), tid.into(), call, name.into(), i64::from(result[row]).into()];
            self.event(&RUNTIME, &[&cells[..], &[chain.into()]].concat())?;
        }
        match rows.table {
            TableId::Syncs => self.syncs(rows),
            TableId::DeviceMemory => self.memory(rows),
            _ => Ok(()),
        }
    }

    fn syncs(&mut self, rows: &Rows) -> io::Result<()> {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (call, device, context) = (rows.ints("correlation_id"), rows.ints("device"), rows.ints("context"));
        let (kind, stream, handle) = (rows.texts("kind"), rows.i64("stream"), rows.i64("handle"));
        for row in 0..rows.len {
            let (kind, stream, event) = match kind.get(row) {
                "event" => (1, NOT_ONE, handle[row]),
                "stream_wait" => (2, stream[row], handle[row]),
                "stream" => (3, stream[row], NOT_ONE),
                "context" => (4, NOT_ONE, NOT_ONE),
                // A question waits for nothing; CUPTI has no other kinds.
                _ => continue,
            };
            let (start, end) = self.span(start[row], length[row]);
            let device = self.places.device(process[row], device.known(row));
            let pid = self.places.pid(process[row]);
            self.event(
                &SYNCHRONIZATION,
                &[
                    start.into(),
                    end.into(),
                    device.into(),
                    context.known(row).into(),
                    stream.into(),
                    call.known(row).into(),
                    pid.into(),
                    i64::into(kind),
                    event.into(),
                ],
            )?;
        }
        Ok(())
    }

    fn memory(&mut self, rows: &Rows) -> io::Result<()> {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("api_ns"));
        let (call, device, context) = (rows.ints("correlation_id"), rows.ints("device"), rows.ints("context"));
        let (kind, action, result) = (rows.texts("kind"), rows.texts("action"), rows.i32_or("result", 0));
        let (address, bytes, stream) = (rows.i64("address"), rows.i64("bytes"), rows.i64("stream"));
        for row in (0..rows.len).filter(|row| result[*row] == 0) {
            // It is there, or gone, when the call is done.
            let (_, at) = self.span(start[row], length[row]);
            let device = self.places.device(process[row], device.known(row));
            let pid = self.places.pid(process[row]);
            self.rows += 1;
            self.to.insert(
                &MEMORY_USAGE,
                &[
                    at.into(),
                    pid.into(),
                    device.into(),
                    context.known(row).into(),
                    address[row].into(),
                    bytes[row].into(),
                    memory(kind.get(row)).into(),
                    i64::from(action.get(row) == "free").into(),
                    call.known(row).into(),
                    stream[row].into(),
                ],
            )?;
        }
        Ok(())
    }

    pub(super) fn waits(&mut self, rows: &Rows) -> io::Result<()> {
        let (process, start, length) = (rows.i64("process_id"), rows.i64("start_ns"), rows.i64("wait_ns"));
        let (tid, api, bytes) = (rows.i32_or("tid", 0), rows.i64("api_id"), rows.i64("bytes"));
        let (errno, stack) = (rows.i32_or("errno", 0), rows.i64_or("stack_id", NO_STACK));
        for row in 0..rows.len {
            let name = self.strings.named(&mut self.to, api[row])?.mangled;
            let tid = self.places.tid(process[row], tid[row]);
            let chain = self.chains.number(Of::Wait, stack[row])?;
            let (start, end) = self.span(start[row], length[row]);
            let returned = if errno[row] == 0 { bytes[row] } else { -1 };
            let cells = [start.into(), end.into(), OS_RUNTIME.into(), tid.into(), name.into(), returned.into()];
            self.event(&OSRT, &[&cells[..], &[chain.into()]].concat())?;
        }
        Ok(())
    }
}
