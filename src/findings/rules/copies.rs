//! Rules about copies and sets.

use super::lines::{count, ms, worst_of};
use crate::analysis::{AtSite, Cause, TransferRule, What};
use crate::findings::{Evidence, OnGpu, Subject};

/// Calls that one of these rules of Nsight Systems names: their time, what they are, and the line of most of it.
fn named_copies(s: &Subject<'_>, rules: &[TransferRule]) -> (f64, Vec<String>) {
    let transfers = &s.facts.transfers;
    let of = |sum: &crate::analysis::TransferSum| {
        let number = s.per_unit(sum.rule.own.0 as f64, sum.rule.middle.0 as f64);
        (number, s.per_unit(sum.rule.own.1 as f64, sum.rule.middle.1 as f64))
    };
    let named = transfers.sums.iter().filter(|(key, _)| key.process_id == s.process_id);
    let named = named.filter(|(key, _)| transfers.rule(key).is_some_and(|rule| rules.contains(&rule)));
    let mut named: Vec<_> = named.filter(|(_, sum)| of(sum).0 > 0.0).collect();
    named.sort_by(|(_, a), (_, b)| of(b).1.total_cmp(&of(a).1));
    let line = |(key, sum): &(&crate::analysis::TransferKey, &crate::analysis::TransferSum)| {
        let (number, ns) = of(sum);
        let size = crate::render::bytes(sum.rule.bytes as f64 / sum.rule.count.max(1) as f64);
        let (api, direction) = (s.facts.names.full(key.api_id), transfers.text(key.direction));
        format!("{api} {direction} {}, {size} and {} each", count(s, number), ms(ns / number.max(1e-9)))
    };
    let gain_ns = named.iter().map(|(_, sum)| of(sum).1).sum();
    let mut lines: Vec<String> = named.iter().take(2).map(line).collect();
    let is_named = |at: &AtSite, key: &crate::analysis::TransferKey| {
        at.api_id == key.api_id && at.direction == transfers.text(key.direction)
    };
    let worst = worst_of(s, What::Copy, |at| named.iter().any(|(key, _)| is_named(at, key)));
    lines.extend(worst.and_then(|at| at.site).map(|site| format!("from {}", site.short())));
    (gain_ns, lines)
}

pub(super) fn pageable_copies(s: &Subject<'_>) -> Option<Evidence> {
    let (ns, lines) = named_copies(s, &[TransferRule::MemcpyAsync]);
    let gain_ns = s.gain_ns(ns, |gpu| copying_ns(gpu).min(ns));
    (gain_ns > 0.0).then_some(Evidence { gain_ns, of_run: false, lines })
}

pub(super) fn sync_copies(s: &Subject<'_>) -> Option<Evidence> {
    let (ns, lines) = named_copies(s, &[TransferRule::MemcpySync, TransferRule::MemsetSync]);
    let gain_ns = s.gain_ns(s.overlap_bound(ns), |gpu| copying_ns(gpu).min(ns));
    (ns > 0.0).then_some(Evidence { gain_ns, of_run: false, lines })
}

/// Time of the GPU that copies take from computing: exposed, or idle while the host is in the calls.
fn copying_ns(gpu: &OnGpu) -> f64 {
    gpu.copy_ns + gpu.idle_ns(&[Cause::Transfer])
}

pub(super) fn small_transfers(s: &Subject<'_>) -> Option<Evidence> {
    let sums = s.facts.transfers.sums.iter().filter(|(key, _)| key.process_id == s.process_id);
    let (number, ns) = sums.fold((0.0, 0.0), |(number, ns), (_, sum)| {
        (
            number + s.per_unit(sum.unruled_small.0 as f64, sum.unruled_small_middle.0 as f64),
            ns + s.per_unit(sum.unruled_small.1 as f64, sum.unruled_small_middle.1 as f64),
        )
    });
    if number < if s.per_step { 8.0 } else { 100.0 } {
        return None;
    }
    let lines = vec![format!("{}, {} each", count(s, number), ms(ns / number))];
    let host_ns = ns * (1.0 - 1.0 / number);
    // Time in which only copies ran is that of large ones.
    let gain_ns = s.gain_ns(host_ns, |gpu| gpu.idle_ns(&[Cause::Transfer]).min(host_ns));
    Some(Evidence { gain_ns, of_run: false, lines })
}
