//! What macOS says of a process (`proc_pidinfo`): processor time, memory, threads, page faults.

use super::{Id, Reading};

/// What the kernel knows of a process; times and faults are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Task {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) threads: u64,
    /// Page faults, those among them that read from disk.
    pub(crate) faults: u64,
    pub(crate) page_ins: u64,
}

/// The looks at a process.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last: Option<(u64, Task)>,
}

impl Looks {
    /// The rows of a look at this moment.
    pub(super) fn rows(&mut self, at_ns: u64, whose: (i64, i32), task: Task) -> Vec<Reading> {
        let row = |monotonic_ns, interval_ns, (id, value)| Reading {
            monotonic_ns,
            interval_ns,
            process: Some(whose),
            device: None,
            id,
            value,
        };
        let now = [(Id::Threads, task.threads as f64), (Id::Rss, task.resident_bytes as f64)];
        let mut rows: Vec<Reading> = now.into_iter().map(|value| row(at_ns, None, value)).collect();
        if let Some((then_ns, last)) = self.last.replace((at_ns, task)) {
            let passed_ns = at_ns.saturating_sub(then_ns);
            let added = |now: u64, before: u64| now.saturating_sub(before) as f64;
            let share = |now, before| added(now, before) / passed_ns.max(1) as f64 * 100.0;
            let minor = |task: Task| task.faults.saturating_sub(task.page_ins);
            let since = [
                (Id::CpuUser, share(task.user_ns, last.user_ns)),
                (Id::CpuSystem, share(task.system_ns, last.system_ns)),
                (Id::MinorFaults, added(minor(task), minor(last))),
                (Id::MajorFaults, added(task.page_ins, last.page_ins)),
            ];
            rows.extend(since.into_iter().map(|value| row(then_ns, Some(passed_ns), value)));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_become_what_was_added_and_processor_time_a_share() {
        let mut looks = Looks::default();
        let task = |user_ns, faults, page_ins| Task {
            user_ns,
            faults,
            page_ins,
            resident_bytes: 4096,
            threads: 3,
            ..Task::default()
        };
        let first = looks.rows(1_000_000_000, (70, 7), task(100, 5, 1));
        let values = |rows: &[Reading]| rows.iter().map(|row| (row.id, row.value)).collect::<Vec<_>>();
        assert_eq!(values(&first), [(Id::Threads, 3.0), (Id::Rss, 4096.0)]);
        // 250 ms of 500 ms.
        let second = looks.rows(1_500_000_000, (70, 7), task(250_000_100, 12, 3));
        let since = [(Id::CpuUser, 50.0), (Id::CpuSystem, 0.0), (Id::MinorFaults, 5.0), (Id::MajorFaults, 2.0)];
        assert_eq!(values(&second)[2..], since);
        let last = second.last().expect("a row");
        assert_eq!(
            (last.monotonic_ns, last.interval_ns, last.process),
            (1_000_000_000, Some(500_000_000), Some((70, 7)))
        );
    }
}
