//! Rows of Metal: a command buffer with its dispatches, its commit, and its run on the GPU.

use gputrace_collectors::names::NameKind;
use gputrace_collectors::schema::TableId;
use serde_json::json;

use super::Thread;

impl Thread<'_> {
    /// A Metal command buffer with dispatches of so many threads, each encoded in so long, that is committed in so long; and its
    /// run on the GPU, from when on and how long.
    pub(crate) fn commit(&mut self, dispatches: &[(&str, i64)], encode_ns: i64, ns: i64, (begin, gpu_ns): (i64, i64)) {
        let (process_id, tid) = (self.process_id, self.tid);
        let names: Vec<i64> = dispatches.iter().map(|(name, _)| self.trace.name(NameKind::Kernel, name)).collect();
        let correlation_id = (i64::from(tid) << 32) + self.calls;
        for ((_, threads), name_id) in dispatches.iter().zip(&names) {
            let row = json!({
                "start_ns": self.now, "api_ns": encode_ns, "process_id": process_id, "pid": process_id, "tid": tid,
                "correlation_id": correlation_id, "device": 0, "name_id": name_id, "kind": "threads", "size_x": threads,
                "size_y": 1, "size_z": 1, "threads": threads,
            });
            self.trace.row(TableId::Dispatches, row);
            self.now += encode_ns;
        }
        let (name_id, start_ns) = (names.first().copied(), self.now);
        let launch = json!({ "name_id": name_id, "device": 0, "stream": 7, "kernels": dispatches.len() });
        self.call(TableId::Launches, "[MTLCommandBuffer commit]", ns, launch);
        let row = json!({
            "start_ns": start_ns, "process_id": process_id, "pid": process_id, "correlation_id": correlation_id, "device": 0,
            "queue": 7, "name_id": name_id, "command_buffers": 1, "dispatches": dispatches.len(), "compute_encoders": 1,
            "encode_ns": encode_ns * dispatches.len() as i64, "gpu_start_ns": begin, "gpu_ns": gpu_ns, "status": "completed",
        });
        self.trace.row(TableId::CommandBuffers, row);
        let row = json!({
            "start_ns": begin, "gpu_ns": gpu_ns, "process_id": process_id, "pid": process_id, "device": 0, "context": 1,
            "stream": 7, "correlation_id": correlation_id, "name_id": name_id,
        });
        self.trace.row(TableId::Kernels, row);
    }
}
