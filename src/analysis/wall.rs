//! How long processes ran: each alone, and several that share a GPU together.

use super::passes::union::Union;
use super::{Facts, clock};

impl Facts<'_> {
    /// How long a process ran, of the time that the filter keeps: from its start to its end, where both are known, else
    /// from its first driver call to the end of its last.
    pub(crate) fn wall_ns(&self, process_id: i64) -> f64 {
        if let Some(inside) = self.filter.inside_ns(process_id) {
            return (inside as f64).min(self.whole_wall_ns(process_id));
        }
        let (from, to) = self.lifetime(process_id);
        let from = from.max(self.filter.from_ns.unwrap_or(i64::MIN));
        let to = to.min(self.filter.to_ns.unwrap_or(i64::MAX));
        self.passed_ns(process_id, (from, to))
    }

    /// The length of a time, without what lies in it of a jump of an imported clock.
    fn passed_ns(&self, process_id: i64, (from, to): (i64, i64)) -> f64 {
        let jumped_ns = clock::jumped_ns(self.trace, process_id, (from, to));
        (to.saturating_sub(from) - jumped_ns).max(0) as f64
    }

    /// The part of it in which it is known what the GPU did.
    pub(crate) fn gpu_wall_ns(&self, process_id: i64) -> f64 {
        self.wall_ns(process_id) * self.filter.observed_share(process_id, self.lifetime(process_id))
    }

    /// How long any of these processes ran, each ns once, of the time that the filter keeps; `on_gpu`: of that in which it is known
    /// what the GPU did.
    pub(crate) fn wall_of_any_ns(&self, processes: &[i64], on_gpu: bool) -> f64 {
        if let [alone] = processes {
            return if on_gpu { self.gpu_wall_ns(*alone) } else { self.wall_ns(*alone) };
        }
        let parts = |process_id: &i64| {
            let span = self.lifetime(*process_id);
            let parts = match on_gpu {
                true => self.filter.inside(*process_id, span),
                false => self.filter.kept_of(*process_id, span),
            };
            parts.into_iter().flat_map(|part| clock::without_jumps(self.trace, *process_id, part)).collect::<Vec<_>>()
        };
        let mut parts: Vec<(i64, i64)> = processes.iter().flat_map(parts).collect();
        parts.sort_unstable();
        let mut union = Union::default();
        parts.into_iter().for_each(|(from, to)| union.add(from, to));
        union.total_ns() as f64
    }

    /// The same, whatever the filter keeps.
    pub(crate) fn whole_wall_ns(&self, process_id: i64) -> f64 {
        self.passed_ns(process_id, self.lifetime(process_id))
    }

    fn lifetime(&self, process_id: i64) -> (i64, i64) {
        let calls = self.host.processes.get(&process_id).map_or((0, 0), |t| t.span_ns);
        let process = self.trace.process(process_id);
        let ended = process.and_then(|p| p.end_ns);
        let known = process.filter(|p| p.start_ns > 0).and_then(|p| Some((p.start_ns, ended?)));
        known.unwrap_or(calls)
    }
}
