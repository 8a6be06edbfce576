//! Rows of `gpu_activity`.

use gputrace_abi::activity::{Activity, NONE, kind};

use super::columns::{Coded, Optional, Plain, Rows, take};
use crate::schema::TableId;
use crate::writer::Message;

/// Texts of `kind`, by its number; the last stands for those that this version does not know.
pub(crate) const KINDS: [&str; 4] = ["overhead", "sync", "unified_memory", UNKNOWN];
const UNKNOWN: &str = "unknown";

/// Texts of `what`, by kind and number; the first of each stands for those that this version does not know.
const OVERHEAD: [&str; 10] = [
    UNKNOWN,
    "compiler",
    "buffer_flush",
    "instrumentation",
    "resource",
    "module_loading",
    "lazy_loading",
    "queue_full",
    "buffer_request",
    "memory_init",
];
const SYNC: [&str; 5] = [UNKNOWN, "event", "stream_wait_event", "stream", "context"];
const MEMORY: [&str; 9] =
    [UNKNOWN, "HtoD", "DtoH", "cpu_fault", "gpu_fault", "thrashing", "throttling", "remote_map", "DtoD"];
const WHATS: [&[&str]; 4] = [&OVERHEAD, &SYNC, &MEMORY, &[UNKNOWN]];

/// Texts of `cause`: why pages moved, then what a fault of the GPU wanted, by their numbers from 1 on.
const MOVED: [&str; 5] = ["user", "fault", "prefetch", "eviction", "access_counters"];
const WANTED: [&str; 4] = ["read", "write", "atomic", "prefetch_instruction"];

/// A row of `gpu_activity`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuActivity {
    pub(crate) start_ns: i64,
    pub(crate) process_id: i64,
    pub(crate) pid: i32,
    pub(crate) activity: Activity,
}

impl GpuActivity {
    /// Place of its kind in [`KINDS`].
    pub(crate) fn kind(&self) -> usize {
        usize::from(self.activity.kind).min(KINDS.len() - 1)
    }

    /// Place of what it was among the texts of its kind.
    fn what(&self) -> usize {
        let what = usize::from(self.activity.what);
        if what < WHATS[self.kind()].len() { what } else { 0 }
    }

    fn is(&self, text: &str) -> bool {
        WHATS[self.kind()][self.what()] == text
    }

    fn moves_pages(&self) -> bool {
        ["HtoD", "DtoH", "DtoD"].iter().any(|way| self.is(way))
    }

    /// Place of its cause among the texts of all.
    fn cause(&self) -> Option<u8> {
        let why = usize::from(self.activity.why).checked_sub(1)?;
        match () {
            () if self.moves_pages() && why < MOVED.len() => Some(why as u8),
            () if self.is("gpu_fault") && why < WANTED.len() => Some((MOVED.len() + why) as u8),
            () => None,
        }
    }

    fn activity_ns(&self) -> Option<i64> {
        let Activity { start, end, .. } = self.activity;
        end.checked_sub(start).filter(|_| end != 0).and_then(|ns| i64::try_from(ns).ok())
    }
}

pub(super) struct GpuActivityColumns {
    rows: Rows,
    start_ns: Plain<i64>,
    activity_ns: Optional<i64>,
    process_id: Plain<i64>,
    pid: Plain<i32>,
    kind: Coded,
    what: Coded,
    cause: Coded,
    device: Optional<i32>,
    /// Context, stream and thread, as CUPTI numbers them.
    numbers: [Optional<i64>; 3],
    bytes: Optional<i64>,
    faults: Optional<i64>,
    address: Optional<i64>,
}

impl Default for GpuActivityColumns {
    fn default() -> GpuActivityColumns {
        GpuActivityColumns {
            rows: Rows::default(),
            start_ns: Plain::default(),
            activity_ns: Optional::default(),
            process_id: Plain::default(),
            pid: Plain::default(),
            kind: Coded::new(&KINDS),
            what: Coded::new(&WHATS.concat()),
            cause: Coded::new(&[&MOVED[..], &WANTED].concat()),
            device: Optional::default(),
            numbers: Default::default(),
            bytes: Optional::default(),
            faults: Optional::default(),
            address: Optional::default(),
        }
    }
}

impl GpuActivityColumns {
    pub(super) fn push(&mut self, row: &GpuActivity) {
        let activity = &row.activity;
        let is_memory = activity.kind == kind::UNIFIED_MEMORY;
        let amount = i64::try_from(activity.amount).unwrap_or(i64::MAX);
        self.rows.count += 1;
        self.start_ns.push(row.start_ns);
        self.activity_ns.push(row.activity_ns());
        self.process_id.push(row.process_id);
        self.pid.push(row.pid);
        self.kind.push(row.kind() as u8);
        let before: usize = WHATS[..row.kind()].iter().map(|whats| whats.len()).sum();
        self.what.push((before + row.what()) as u8);
        self.cause.push_some(row.cause());
        self.device.push(i32::try_from(activity.device).ok());
        for (column, number) in self.numbers.iter_mut().zip([activity.context, activity.stream, activity.thread]) {
            column.push(Some(number).filter(|number| *number != NONE).map(i64::from));
        }
        let is_size = row.moves_pages() || row.is("thrashing") || row.is("remote_map");
        self.bytes.push(Some(amount).filter(|_| is_size));
        self.faults.push(Some(amount).filter(|_| row.is("cpu_fault") || row.is("gpu_fault")));
        self.address.push(Some(activity.address as i64).filter(|_| is_memory));
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// A batch, when there are so many rows.
    pub(super) fn take(&mut self, rows: usize) -> Option<Message> {
        if self.rows.count < rows {
            return None;
        }
        let [context, stream, thread] = &mut self.numbers;
        let columns = take![
            self.start_ns,
            self.activity_ns,
            self.process_id,
            self.pid,
            self.kind,
            self.what,
            self.cause,
            self.device,
            *context,
            *stream,
            *thread,
            self.bytes,
            self.faults,
            self.address
        ];
        self.rows.batch(TableId::GpuActivity, columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: u8, what: u8, why: u8) -> GpuActivity {
        let activity = Activity { why, start: 5, end: 7, ..Activity::of(kind, what) };
        GpuActivity { start_ns: 1, process_id: 2, pid: 3, activity }
    }

    #[test]
    fn what_a_record_says_has_its_text_and_what_nobody_knows_does_too() {
        let said = |row: GpuActivity| (KINDS[row.kind()], WHATS[row.kind()][row.what()]);
        assert_eq!(said(row(kind::OVERHEAD, 6, 0)), ("overhead", "lazy_loading"));
        assert_eq!(said(row(kind::SYNC, 4, 0)), ("sync", "context"));
        assert_eq!(said(row(kind::UNIFIED_MEMORY, 8, 0)), ("unified_memory", "DtoD"));
        assert_eq!(said(row(kind::SYNC, 200, 0)), ("sync", "unknown"));
        assert_eq!(said(row(77, 3, 0)), ("unknown", "unknown"));
    }

    #[test]
    fn only_pages_that_move_and_faults_of_the_gpu_have_causes() {
        let causes = [&MOVED[..], &WANTED].concat();
        let cause = |row: GpuActivity| row.cause().map(|cause| causes[usize::from(cause)]);
        assert_eq!(cause(row(kind::UNIFIED_MEMORY, 1, 2)), Some("fault"));
        assert_eq!(cause(row(kind::UNIFIED_MEMORY, 4, 2)), Some("write"));
        assert_eq!(cause(row(kind::UNIFIED_MEMORY, 1, 6)), None);
        assert_eq!(cause(row(kind::UNIFIED_MEMORY, 3, 1)), None);
        assert_eq!(cause(row(kind::SYNC, 1, 1)), None);
    }

    #[test]
    fn a_moment_has_no_duration() {
        let mut moment = row(kind::UNIFIED_MEMORY, 3, 0);
        assert_eq!(moment.activity_ns(), Some(2));
        moment.activity.end = 0;
        assert_eq!(moment.activity_ns(), None);
        moment.activity.end = 4; // before its begin
        assert_eq!(moment.activity_ns(), None);
    }
}
