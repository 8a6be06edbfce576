//! Rows of Metal: a command buffer with its dispatches, its commit, and its run on the GPU.

use gputrace_collectors::names::NameKind;
use gputrace_collectors::schema::TableId;
use serde_json::{Value, json};

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
        let buffer = json!({
            "dispatches": dispatches.len(), "compute_encoders": i32::from(!dispatches.is_empty()),
            "encode_ns": encode_ns * dispatches.len() as i64,
        });
        self.committed(names.first().copied(), ns, Some((begin, gpu_ns)), buffer);
    }

    /// A command buffer that runs so many commands of an indirect one; its run on the GPU, if it was told.
    pub(crate) fn commit_commands(&mut self, name: &str, commands: i64, gpu: Option<(i64, i64)>) {
        let (process_id, tid, encode_ns) = (self.process_id, self.tid, 1_000);
        let name_id = self.trace.name(NameKind::Kernel, name);
        let row = json!({
            "start_ns": self.now, "api_ns": encode_ns, "process_id": process_id, "pid": process_id, "tid": tid,
            "correlation_id": (i64::from(tid) << 32) + self.calls, "device": 0, "name_id": name_id, "kind": "commands",
            "size_x": commands,
        });
        self.trace.row(TableId::Dispatches, row);
        self.now += encode_ns;
        let buffer = json!({ "dispatches": commands, "compute_encoders": 1, "encode_ns": encode_ns });
        self.committed(Some(name_id), 5_000, gpu, buffer);
    }

    /// A wait for what was committed to one of several queues.
    pub(crate) fn wait_for_queue(&mut self, queue: i64, ns: i64) {
        let row = json!({ "kind": "stream", "stream": queue });
        self.call(TableId::Syncs, "[MTLCommandBuffer waitUntilCompleted]", ns, row);
    }

    /// The rows of a commit; `buffer`: what its command buffer held.
    fn committed(&mut self, name_id: Option<i64>, ns: i64, gpu: Option<(i64, i64)>, buffer: Value) {
        let (process_id, start_ns) = (self.process_id, self.now);
        let correlation_id = (i64::from(self.tid) << 32) + self.calls;
        let launch = json!({ "name_id": name_id, "device": 0, "stream": 7, "kernels": buffer["dispatches"] });
        self.call(TableId::Launches, "[MTLCommandBuffer commit]", ns, launch);
        let mut row = json!({
            "start_ns": start_ns, "process_id": process_id, "pid": process_id, "correlation_id": correlation_id, "device": 0,
            "queue": 7, "name_id": name_id, "command_buffers": 1, "dispatches": buffer["dispatches"],
            "compute_encoders": buffer["compute_encoders"], "encode_ns": buffer["encode_ns"],
        });
        if let Some((begin, gpu_ns)) = gpu {
            (row["gpu_start_ns"], row["gpu_ns"], row["status"]) = (begin.into(), gpu_ns.into(), "completed".into());
        }
        self.trace.row(TableId::CommandBuffers, row);
        let Some((begin, gpu_ns)) = gpu else { return };
        let row = json!({
            "start_ns": begin, "gpu_ns": gpu_ns, "process_id": process_id, "pid": process_id, "device": 0, "context": 1,
            "stream": 7, "correlation_id": correlation_id, "name_id": name_id,
        });
        self.trace.row(TableId::Kernels, row);
    }
}
