//! A rule about streams whose work does not run at once because of the legacy default stream.

use super::lines::{count, ms};
use super::rule::{Effort, Rule, Title};
use crate::analysis::Class;
use crate::findings::{Evidence, Subject};

/// So much of the shorter streams' time that runs beside other work already makes them concurrent.
const CONCURRENT: f64 = 0.5;

/// Whether the trace would tell of the rule: imports of other profilers' traces do not.
fn rule_is_known(s: &Subject<'_>) -> bool {
    !s.facts.trace.is_imported(s.process_id)
}

pub(super) const SERIALISED_STREAMS: Rule = Rule {
    name: "serialised-streams",
    verdict: Some("GPU BOUND"),
    title: Title::new("streams that the default stream serialises"),
    about: "serialised streams",
    condition: "Work is queued behind another stream's in (nearly) every step, because one of the two is the legacy default stream \
        and the other is not CU_STREAM_NON_BLOCKING, and less than half of what the shorter streams do runs beside other work \
        (--explain streams). Gain: at most the time of all streams but the longest that nothing runs beside, as a share of the run, and \
        what the run replayed without that order gains (--explain critical-path); work that fills the GPU by itself gains less. Needs GPU times, and a recorded trace: imports do not tell of that rule.",
    advice: "give no work to the default stream: torch.cuda.Stream for all of it, cuStreamCreate(CU_STREAM_NON_BLOCKING), \
        nvcc --default-stream per-thread",
    on_metal: None,
    without: &[Class::Streams],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Low,
    recorded: |s| s.on_gpu.is_some() && rule_is_known(s),
    evaluate: serialised_streams,
};

fn serialised_streams(s: &Subject<'_>) -> Option<Evidence> {
    s.on_gpu.as_ref()?;
    let own = s.facts.implicit.legacy.iter().filter(|((process_id, _), _)| *process_id == s.process_id);
    let mut queued: Vec<(i64, f64)> =
        own.map(|((_, api), of)| (*api, s.per_unit(of.queued as f64, of.queued_middle as f64))).collect();
    queued.retain(|(_, number)| *number > 0.0);
    let behind: f64 = queued.iter().map(|(_, number)| number).sum();
    if behind < if s.per_step { 0.9 } else { 10.0 } {
        return None;
    }
    // What could run beside the stream that is busy longest, of the device where that is most, as a share of its time.
    let devices = s.facts.gpu.iter().flat_map(|gpu| gpu.devices.iter());
    let mine = devices.filter(|device| device.in_steps.get(&s.process_id).is_some() && device.range_ns() > 0);
    let could = mine.filter_map(|device| {
        let streams =
            device.streams.iter().filter(|((process_id, _), of)| *process_id == s.process_id && of.busy_ns > 0);
        let busy: Vec<i64> = streams.map(|(_, of)| of.busy_ns).collect();
        let shorter = (busy.iter().sum::<i64>() - busy.iter().max()?) as f64;
        let concurrent = device.several.total_ns as f64;
        (concurrent < CONCURRENT * shorter).then(|| ((shorter - concurrent) / device.range_ns() as f64, busy.len()))
    });
    let (share, streams) = could.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let gain_ns = (share * s.unit_ns).min(s.unit_ns);
    queued.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let calls = queued.iter().take(2).map(|(api, number)| {
        format!(
            "{} {} behind work of another stream, by the legacy stream's rule",
            s.facts.names.full(*api),
            count(s, *number)
        )
    });
    let beside =
        format!("{} of a {} in {streams} streams, one after the other, could run at once", ms(gain_ns), s.unit());
    Some(Evidence { gain_ns, of_run: false, lines: calls.chain([beside]).collect() })
}
