//! Metal: command buffers and what was put into them.

use std::collections::BTreeMap;

use gputrace_collectors::names::{self, NameKind};
use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashSet;

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::stats::Stats;
use super::steps::{Cursor, Steps};
use super::union::Union;
use crate::trace::{NO_NAME, Rows, Want};

/// Threads that keep the smallest GPU of a Mac busy: eight cores of 3,072 threads each.
pub(crate) const FULL_THREADS: i64 = 24_576;
/// Kernels that are kept apart.
const KERNELS: usize = 20_000;
/// Queues whose labels are known.
const QUEUES: usize = 10_000;

/// Ids of the messages that commit: their launch is about a command buffer, which is no kernel that could be launched again.
pub(super) fn commits() -> [i64; 3] {
    const COMMITS: [&str; 3] =
        ["[MTLCommandBuffer commit]", "[MTL4CommandQueue commit:count:]", "[MTL4CommandQueue commit:count:options:]"];
    COMMITS.map(|name| names::id(NameKind::Api, name))
}

/// Command buffers of one process.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Commits.
    pub(crate) count: u64,
    /// Those in steady steps of usual duration.
    pub(crate) middle: u64,
    /// Dispatches of each that has some.
    pub(crate) dispatches: Stats,
    /// Those with one dispatch and no other encoder than its own.
    pub(crate) single: u64,
    /// Encoders: compute, blit, render, other.
    pub(crate) encoders: [u64; 4],
    /// Time in messages that encoded them.
    pub(crate) encode_ns: i64,
    /// Time that their scheduling took.
    pub(crate) schedule: Stats,
    /// Time on the GPU.
    pub(crate) gpu: Stats,
    /// Time in which any of them was there.
    pub(crate) busy: Union,
    /// Kernels of those with dispatches whose time on the GPU is known, and that time.
    pub(crate) timed: (u64, i64),
    /// The GPU gave them up.
    pub(crate) errors: u64,
    /// Not seen to end.
    pub(crate) open: u64,
    /// Those without a time on the GPU, but for what it gave up.
    pub(crate) untimed: u64,
    /// Dispatches whose commit was not seen, if there was one.
    pub(crate) stray: u64,
    /// Dispatches of command buffers that went without one.
    pub(crate) discarded: u64,
}

/// Dispatches of one pipeline.
#[derive(Debug, Default)]
pub(crate) struct Dispatches {
    /// All.
    pub(crate) count: u64,
    /// Kernels: one each of those that were committed, but that of an indirect command buffer each of its commands is one.
    pub(crate) kernels: u64,
    /// Threads of those whose size the host knew.
    pub(crate) threads: Stats,
    /// Those of fewer than [`FULL_THREADS`].
    pub(crate) small: u64,
    /// Time in the messages.
    pub(crate) api_ns: i64,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Metal {
    /// By process.
    pub(crate) processes: Groups<i64, Buffers>,
    /// By process and pipeline.
    pub(crate) kernels: Groups<(i64, i64), Dispatches>,
    /// Labels of queues, by process and queue: the last one of each.
    pub(crate) queues: BTreeMap<(i64, i64), i64>,
    cursor: Cursor,
}

impl Default for Metal {
    fn default() -> Metal {
        let kernels = Groups::new(KERNELS, (OTHER, OTHER));
        Metal { processes: Groups::default(), kernels, queues: BTreeMap::new(), cursor: Cursor::default() }
    }
}

impl Metal {
    /// Time in messages that encoded, ns.
    pub(crate) fn encode_ns(&self) -> i64 {
        self.processes.iter().map(|(_, buffers)| buffers.encode_ns).sum()
    }

    /// Dispatches of all processes.
    pub(crate) fn dispatches(&self) -> u64 {
        self.kernels.iter().map(|(_, dispatches)| dispatches.count).sum()
    }

    fn command_buffers(&mut self, rows: &Rows, steps: &Steps) {
        const ENCODERS: [&str; 4] = ["compute_encoders", "blit_encoders", "render_encoders", "other_encoders"];
        let (process, start) = (rows.i64("process_id"), rows.i64("start_ns"));
        let (dispatches, encoders) = (rows.i32_or("dispatches", 0), ENCODERS.map(|name| rows.i32_or(name, 0)));
        let (encode, schedule) = (rows.i64("encode_ns"), rows.i64_or("schedule_ns", -1));
        let (gpu, status) = (rows.i64_or("gpu_ns", -1), rows.texts("status"));
        let begin = rows.i64_or("gpu_start_ns", 0);
        let (queue, label) = (rows.i64("queue"), rows.i64_or("queue_name_id", NO_NAME));
        for row in 0..rows.len {
            let known = (process[row], queue[row]);
            if label[row] != NO_NAME && (self.queues.len() < QUEUES || self.queues.contains_key(&known)) {
                self.queues.insert(known, label[row]);
            }
            let of = self.processes.at(process[row]);
            of.count += 1;
            of.middle += u64::from(steps.place(&mut self.cursor, process[row], start[row]).is_middle());
            if dispatches[row] > 0 {
                of.dispatches.add(i64::from(dispatches[row]));
            }
            let made: i32 = encoders.iter().map(|of_kind| of_kind[row]).sum();
            of.single += u64::from(dispatches[row] == 1 && made <= 1);
            of.encoders.iter_mut().zip(&encoders).for_each(|(sum, of_kind)| *sum += of_kind[row].max(0) as u64);
            of.encode_ns += encode[row];
            if schedule[row] >= 0 {
                of.schedule.add(schedule[row]);
            }
            if gpu[row] >= 0 {
                of.gpu.add(gpu[row]);
                of.busy.add(begin[row], begin[row].saturating_add(gpu[row]));
                if dispatches[row] > 0 {
                    of.timed.0 += u64::from(dispatches[row].unsigned_abs());
                    of.timed.1 += gpu[row];
                }
            }
            let failed = status.get(row) == "error";
            of.errors += u64::from(failed);
            of.untimed += u64::from(gpu[row] < 0 && !failed);
            of.open += u64::from(status.known(row).is_none());
        }
    }
}

impl Pass for Metal {
    fn wants(&self) -> &'static [Want] {
        const BUFFERS: &[&str] = &[
            "dispatches",
            "compute_encoders",
            "blit_encoders",
            "render_encoders",
            "other_encoders",
            "encode_ns",
            "schedule_ns",
            "gpu_start_ns",
            "gpu_ns",
            "status",
            "queue",
            "queue_name_id",
        ];
        &[
            Want { table: TableId::CommandBuffers, columns: BUFFERS },
            Want {
                table: TableId::Dispatches,
                columns: &["api_ns", "name_id", "kind", "size_x", "threads", "correlation_id", "discarded"],
            },
        ]
    }

    fn rows(&mut self, rows: &Rows, steps: &Steps) {
        if rows.table == TableId::CommandBuffers {
            return self.command_buffers(rows, steps);
        }
        let (process, name) = (rows.i64("process_id"), rows.i64_or("name_id", NO_NAME));
        let (length, threads) = (rows.i64("api_ns"), rows.i64_or("threads", -1));
        let (kind, size) = (rows.texts("kind"), rows.i32_or("size_x", 0));
        let (commit, discarded) = (rows.i64_or("correlation_id", -1), rows.flags("discarded"));
        for row in 0..rows.len {
            let is_stray = commit[row] < 0;
            if is_stray {
                let own = self.processes.at(process[row]);
                let count = if discarded.get(row) { &mut own.discarded } else { &mut own.stray };
                *count += 1;
            }
            let of = self.kernels.at((process[row], name[row]));
            of.count += 1;
            of.kernels += match kind.get(row) {
                _ if is_stray => 0,
                "commands" => size[row].max(0) as u64,
                _ => 1,
            };
            of.api_ns += length[row].max(0);
            if threads[row] >= 0 {
                of.threads.add(threads[row]);
                of.small += u64::from(threads[row] < FULL_THREADS);
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.kernels.iter().map(|((_, name), _)| *name));
        ids.extend(self.queues.values());
    }
}
