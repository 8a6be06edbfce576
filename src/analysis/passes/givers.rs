//! Which threads give the GPU work, and when: what other threads wait for is told from what holds the loop up.
//!
//! A thread that launches or copies gives work. While one does, a thread of the same process that waits for the operating
//! system waits for that thread's work, as backward() waits for autograd's: nobody can tell otherwise, so no blame is
//! put on such waits.

use rustc_hash::FxHashMap;

/// Launches with less between them are one burst of work.
const PAUSE_NS: i64 = 500_000;
/// Bursts that are kept, of all threads (64 MB).
const MOST: usize = 4_000_000;

/// The threads that give work, by process.
#[derive(Debug, Default)]
pub(crate) struct Givers {
    processes: FxHashMap<i64, Vec<Giver>>,
    bursts: usize,
}

/// One thread, and from when to when it launched.
#[derive(Debug)]
struct Giver {
    tid: i32,
    bursts: Vec<(i64, i64)>,
}

impl Givers {
    fn at(&mut self, process_id: i64, tid: i32) -> &mut Giver {
        let threads = self.processes.entry(process_id).or_default();
        let known = threads.iter().position(|thread| thread.tid == tid);
        let place = known.unwrap_or_else(|| {
            threads.push(Giver { tid, bursts: Vec::new() });
            threads.len() - 1
        });
        &mut threads[place]
    }

    /// A thread gave work otherwise than by a launch.
    pub(crate) fn gave(&mut self, process_id: i64, tid: i32) {
        self.at(process_id, tid);
    }

    /// A thread launched at these times, which come in their order.
    pub(crate) fn launched(&mut self, process_id: i64, tid: i32, times: &[i64]) {
        let mut left = MOST.saturating_sub(self.bursts);
        let thread = self.at(process_id, tid);
        let before = thread.bursts.len();
        for at in times.iter().copied() {
            match thread.bursts.last_mut() {
                Some((_, end)) if at - *end < PAUSE_NS => *end = at.max(*end),
                _ if left == 0 => {}
                _ => {
                    thread.bursts.push((at, at));
                    left -= 1;
                }
            }
        }
        self.bursts += thread.bursts.len() - before;
    }

    /// Whether a thread gave the GPU work at any time.
    pub(crate) fn gives(&self, process_id: i64, tid: i32) -> bool {
        self.processes.get(&process_id).is_some_and(|threads| threads.iter().any(|thread| thread.tid == tid))
    }

    /// Whether another thread of the process launched in this time.
    pub(crate) fn another(&self, process_id: i64, tid: i32, start: i64, end: i64) -> bool {
        let Some(threads) = self.processes.get(&process_id) else { return false };
        threads.iter().filter(|thread| thread.tid != tid).any(|thread| {
            let next = thread.bursts.partition_point(|(_, last)| *last < start);
            thread.bursts.get(next).is_some_and(|(first, _)| *first <= end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_anothers_work_where_another_thread_launches_meanwhile() {
        let mut givers = Givers::default();
        for burst in [1_000_000, 50_000_000] {
            givers.launched(1, 12, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|n| burst + n * 100_000));
        }
        givers.gave(1, 11);
        let another = |from, to| givers.another(1, 11, from, to);
        assert!(another(900_000, 1_000_000) && another(1_300_000, 1_350_000) && another(0, 90_000_000));
        assert!(!another(0, 900_000) && !another(2_000_000, 49_000_000) && !another(60_000_000, 70_000_000));
        assert!(!givers.another(1, 12, 0, 90_000_000), "its own launches");
        assert!(!givers.another(2, 11, 0, 90_000_000), "another process's");
        assert!(givers.gives(1, 11) && givers.gives(1, 12) && !givers.gives(1, 13) && !givers.gives(2, 11));
    }
}
