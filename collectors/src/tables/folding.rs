//! What each row counts for in the rollups, and in the sums of whoever watches (`live`).

use gputrace_abi::Class;
use gputrace_abi::event::detail;

use super::{Call, HostAction, HostCall, OnGpu, OsWait, Range, RangeKind, Tables, Worked, rollups};
use crate::results::has_failed;
use crate::rollups::{Folded, Key, Kind, Rollups};
use crate::schema::TableId;
use crate::writer::Message;

impl Tables {
    /// Makes sums from here on.
    pub(crate) fn sum_up(&mut self, rollups: Option<Rollups>) {
        self.rollups = rollups;
    }

    #[inline]
    pub(super) fn fold_call(&mut self, call: &Call, name_id: Option<i64>, bytes: i64) {
        let failed = has_failed(call.result, call.class == Class::Collective);
        self.fold(Folded {
            key: Key {
                api_id: Some(call.api_id),
                name_id,
                // Of launches few have one, drawn at random: their rows are by kernel.
                stack_id: call.stack_id.filter(|_| call.class != Class::Launch),
                context: call.context,
                device: call.device,
                stream: Some(call.stream),
                ..Key::new(call.process_id, call.pid, Kind::of(call.class))
            },
            start_ns: call.start_ns,
            took_ns: Some(call.api_ns),
            events: 1,
            bytes: if failed { 0 } else { bytes },
            failed,
        });
    }

    /// Device memory that a call took, or gave back: address space and the host's own memory are none.
    pub(super) fn hold(&mut self, call: &Call, detail: u8, bytes: i64) {
        if call.result == 0 && !matches!(detail, detail::PINNED | detail::REGISTERED | detail::MAPPING) {
            self.live.memory(call.process_id, if call.class == Class::Alloc { bytes } else { -bytes });
        }
    }

    pub(super) fn fold_range(&mut self, range: &Range) {
        let both_ends = range.kind != RangeKind::Mark && range.end_ns.is_some();
        let key = Key::new(range.process_id, range.pid, Kind::of(Class::Range));
        self.fold(Folded {
            key: Key { name_id: range.name_id, ..key },
            start_ns: range.start_ns,
            took_ns: range.end_ns.filter(|_| both_ends).map(|end| end - range.start_ns),
            events: 1 + u64::from(both_ends),
            bytes: 0,
            failed: false,
        });
    }

    #[inline]
    pub(super) fn fold_host(&mut self, call: &HostCall) {
        let both = [Class::HostAlloc, Class::HostFree];
        let classes = match call.action {
            HostAction::Culled => &both[..],
            HostAction::Free | HostAction::Unmap => &both[1..],
            _ => &both[..1],
        };
        for class in classes {
            let key = Key::new(call.process_id, call.pid, Kind::of(*class));
            self.fold(Folded {
                key: Key { api_id: Some(call.api_id), stack_id: call.stack_id, ..key },
                start_ns: call.start_ns,
                took_ns: call.api_ns.filter(|_| call.calls == 1),
                events: call.calls.max(0) as u64,
                bytes: call.weight_bytes.round() as i64,
                failed: false,
            });
        }
    }

    pub(super) fn fold_wait(&mut self, wait: &OsWait) {
        let key = Key::new(wait.process_id, wait.pid, Kind::of(Class::OsWait));
        self.fold(Folded {
            key: Key { api_id: Some(wait.api_id), stack_id: wait.stack_id, ..key },
            start_ns: wait.start_ns,
            took_ns: Some(wait.wait_ns),
            events: 1,
            bytes: wait.bytes.unwrap_or(0),
            failed: false,
        });
    }

    /// Adds a message that puts work into a command buffer of Metal's: of many there is no row, and of some never one.
    #[inline]
    pub(crate) fn encoded(&mut self, call: &Call) {
        let key = Key::new(call.process_id, call.pid, Kind::of(Class::Encode));
        let key = Key { api_id: Some(call.api_id), context: call.context, device: call.device, ..key };
        let (start_ns, took_ns) = (call.start_ns, Some(call.api_ns));
        self.fold(Folded { key, start_ns, took_ns, events: 1, bytes: 0, failed: false });
    }

    #[inline]
    pub(super) fn fold_worked(&mut self, of: &OnGpu, worked: &Worked) {
        let (kind, name_id, bytes) = match worked {
            Worked::Kernel(kernel) => (Kind::KERNEL, kernel.name_id, 0),
            Worked::Copies(copies) => (Kind::DEVICE_COPY, None, copies.bytes),
        };
        let key = Key::new(of.process_id, of.pid, kind);
        self.fold(Folded {
            key: Key { name_id, context: of.context, device: of.device, stream: Some(of.stream), ..key },
            start_ns: of.start_ns,
            took_ns: Some(of.gpu_ns),
            events: 1,
            bytes,
            failed: false,
        });
    }

    /// Adds events of a class of which no row tells: those that were only counted.
    pub(crate) fn counted(&mut self, process_id: i64, pid: i32, class: Class, start_ns: i64, events: u64) {
        let key = Key::new(process_id, pid, Kind::of(class));
        self.fold(Folded { key, start_ns, took_ns: None, events, bytes: 0, failed: false });
    }

    /// Adds so many events of a class to the sums of short periods, and so many to those of long ones.
    pub(crate) fn make_known(&mut self, process_id: i64, pid: i32, class: Class, start_ns: i64, events: [u64; 2]) {
        let Some(rollups) = &mut self.rollups else { return };
        let key = Key::new(process_id, pid, Kind::of(class));
        for (level, events) in [&mut rollups.fine, &mut rollups.named].into_iter().zip(events).filter(|(_, n)| *n > 0) {
            level.fold(&Folded { key, start_ns, took_ns: None, events, bytes: 0, failed: false });
        }
    }

    /// The one place that all events come through.
    #[inline]
    fn fold(&mut self, folded: Folded) {
        self.live.fold(&folded);
        if let Some(rollups) = &mut self.rollups {
            rollups.fold(&folded);
        }
    }

    /// Ends the periods that are over; at the end, all.
    pub(crate) fn settle_rollups(&mut self, now_ns: i64, all: bool) {
        if let Some(rollups) = &mut self.rollups {
            rollups.settle(now_ns, all);
        }
    }

    pub(super) fn take_rollups(&mut self) -> Vec<Message> {
        let Some(rollups) = &mut self.rollups else { return Vec::new() };
        let mut messages = rollups::take(TableId::Rollups, &mut rollups.fine);
        messages.extend(rollups::take(TableId::RollupNames, &mut rollups.named));
        messages
    }

    /// Rows of the periods that are open, for the journal.
    pub(crate) fn live_rollups(&self) -> Vec<Message> {
        let Some(rollups) = &self.rollups else { return Vec::new() };
        let live = [(TableId::Rollups, &rollups.fine), (TableId::RollupNames, &rollups.named)];
        live.into_iter().filter_map(|(table, level)| rollups::live(table, level)).collect()
    }
}
