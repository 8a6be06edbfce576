//! Rules about copies and sets.

use super::lines::{count, ms, worst_of};
use super::rule::{Effort, Rule, Title, always};
use crate::analysis::{AtSite, Cause, Class, TransferKey, TransferRule, TransferSum, What};
use crate::findings::{Evidence, OnGpu, Subject};

/// Calls that one of these rules of Nsight Systems names: their time, what they are, and the line of most of it.
fn named_copies(s: &Subject<'_>, rules: &[TransferRule]) -> (f64, Vec<String>) {
    let transfers = &s.facts.transfers;
    let of = |sum: &TransferSum| {
        let number = s.per_unit(sum.rule.own.0 as f64, sum.rule.middle.0 as f64);
        (number, s.per_unit(sum.rule.own.1 as f64, sum.rule.middle.1 as f64))
    };
    let named = transfers.sums.iter().filter(|(key, _)| key.process_id == s.process_id);
    let named = named.filter(|(key, _)| transfers.rule(key).is_some_and(|rule| rules.contains(&rule)));
    let mut named: Vec<_> = named.filter(|(_, sum)| of(sum).0 > 0.0).collect();
    named.sort_by(|(_, a), (_, b)| of(b).1.total_cmp(&of(a).1));
    let line = |(key, sum): &(&TransferKey, &TransferSum)| {
        let (number, ns) = of(sum);
        let size = crate::render::bytes(sum.rule.bytes as f64 / sum.rule.count.max(1) as f64);
        let (api, direction) = (s.facts.names.full(key.api_id), transfers.text(key.direction));
        format!("{api} {direction} {}, {size} and {} each", count(s, number), ms(ns / number.max(1e-9)))
    };
    let gain_ns = named.iter().map(|(_, sum)| of(sum).1).sum();
    let mut lines: Vec<String> = named.iter().take(2).map(line).collect();
    let is_named =
        |at: &AtSite, key: &TransferKey| at.api_id == key.api_id && at.direction == transfers.text(key.direction);
    let worst = worst_of(s, What::Copy, |at| named.iter().any(|(key, _)| is_named(at, key)));
    lines.extend(worst.and_then(|at| at.site).map(|site| format!("from {}", site.short())));
    (gain_ns, lines)
}

pub(super) const PAGEABLE_COPIES: Rule = Rule {
    name: "pageable-copies",
    verdict: Some("TRANSFER BOUND"),
    title: Title::new("asynchronous copies of pageable memory"),
    about: "pageable copies",
    condition: "Asynchronous copies that touch pageable memory (rule cuda_memcpy_async) take 2 % or more, without what \
        they waited for earlier work. Gain: at most the time in the calls.",
    advice: "pin the host memory: DataLoader(pin_memory=True), cuMemHostAlloc, cuMemHostRegister",
    on_metal: None,
    without: &[Class::Copy],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Low,
    recorded: always,
    evaluate: pageable_copies,
};

fn pageable_copies(s: &Subject<'_>) -> Option<Evidence> {
    let (ns, lines) = named_copies(s, &[TransferRule::MemcpyAsync]);
    let gain_ns = s.gain_ns(ns, |gpu| copying_ns(gpu).min(ns));
    (gain_ns > 0.0).then_some(Evidence { gain_ns, of_run: false, lines })
}

pub(super) const SYNC_COPIES: Rule = Rule {
    name: "sync-copies",
    verdict: Some("TRANSFER BOUND"),
    title: Title::new("copies that block the host"),
    about: "synchronous copies",
    condition: "Synchronous copies and sets (rules cuda_memcpy_sync, cuda_memset_sync) take 2 % or more, without what \
        they waited for earlier work. Gain: at most the time in the calls, or the rest of the step, whichever is less: the copy itself remains.",
    advice: "copy asynchronously from pinned memory: tensor.to(device, non_blocking=True), cuMemcpyAsync",
    on_metal: None,
    without: &[Class::Copy],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Low,
    recorded: always,
    evaluate: sync_copies,
};

fn sync_copies(s: &Subject<'_>) -> Option<Evidence> {
    let (ns, lines) = named_copies(s, &[TransferRule::MemcpySync, TransferRule::MemsetSync]);
    let gain_ns = s.gain_ns(s.overlap_bound(ns), |gpu| copying_ns(gpu).min(ns));
    (ns > 0.0).then_some(Evidence { gain_ns, of_run: false, lines })
}

/// So much of a step is a finding.
const EXPOSED_WORTH: f64 = 0.05;

pub(super) const EXPOSED_COPIES: Rule = Rule {
    name: "exposed-copies",
    verdict: Some("TRANSFER BOUND"),
    title: Title::new("copies of pinned memory that nothing runs beside"),
    about: "exposed copies",
    condition: "Asynchronous copies between the GPU and pinned memory of the host, which could run beside kernels, are all \
        that the GPU does for 5 % of a step or more: its time with copies alone, by the part that these are of the \
        copies' time and of the bytes between host and GPU. Gain: at most that time, and what the run replayed without \
        copies gains (--explain critical-path). Needs GPU times.",
    advice: "copy the next batch in a stream of its own while this one computes: torch.cuda.Stream, non_blocking=True, a \
        prefetcher, two buffers; keep on the GPU what is used again",
    on_metal: None,
    without: &[Class::Copy],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Medium,
    recorded: |s| s.on_gpu.is_some(),
    evaluate: exposed_copies,
};

fn exposed_copies(s: &Subject<'_>) -> Option<Evidence> {
    let (on_gpu, gpu) = (s.on_gpu.as_ref()?, s.facts.gpu.as_ref()?);
    let crosses = |direction: &str| matches!(direction, "HtoD" | "DtoH");
    let copies = &gpu.copies;
    let own = || copies.sums.iter().filter(|(key, _)| key.process_id == s.process_id);
    let time = |sum: &mut dyn Iterator<Item = i64>| sum.sum::<i64>() as f64;
    let crossing =
        time(&mut own().filter(|(key, _)| crosses(copies.texts.text(key.direction))).map(|(_, sum)| sum.time.sum));
    let all = time(&mut own().map(|(_, sum)| sum.time.sum));
    let transfers = &s.facts.transfers;
    let calls = transfers.sums.iter().filter(|(key, _)| key.process_id == s.process_id && !key.set);
    let mut calls: Vec<_> = calls.filter(|(key, _)| crosses(transfers.text(key.direction))).collect();
    let bytes = |calls: &[(&TransferKey, &TransferSum)]| calls.iter().map(|(_, sum)| sum.bytes).sum::<i64>() as f64;
    let of_all = bytes(&calls);
    calls.retain(|(key, _)| key.queued && [key.src, key.dst].iter().any(|memory| transfers.text(*memory) == "pinned"));
    let pinned = bytes(&calls);
    let gain_ns = on_gpu.copy_ns * crossing / all.max(1.0) * pinned / of_all.max(1.0);
    if gain_ns < EXPOSED_WORTH * s.unit_ns {
        return None;
    }
    calls.sort_by_key(|(key, sum)| (std::cmp::Reverse(sum.bytes), key.api_id, transfers.text(key.direction)));
    let mut lines = vec![format!("the GPU does nothing else for {} of a {}", ms(gain_ns), s.unit())];
    lines.extend(calls.iter().take(2).map(|(key, sum)| {
        let (api, direction) = (s.facts.names.full(key.api_id), transfers.text(key.direction));
        let size = crate::render::bytes(sum.bytes as f64 / sum.api.count.max(1) as f64);
        let per_step = s.steps.map_or(1, |steps| steps.sorted_ns.len() + steps.warm_up).max(1);
        format!("{api} {direction} {} of {size}", count(s, sum.api.count as f64 / per_step as f64))
    }));
    let is_named = |at: &AtSite| {
        calls.iter().any(|(key, _)| at.api_id == key.api_id && at.direction == transfers.text(key.direction))
    };
    lines.extend(worst_of(s, What::Copy, is_named).and_then(|at| at.site).map(|site| format!("from {}", site.short())));
    Some(Evidence { gain_ns, of_run: false, lines })
}

/// Time of the GPU that copies take from computing: exposed, or idle while the host is in the calls.
fn copying_ns(gpu: &OnGpu) -> f64 {
    gpu.copy_ns + gpu.idle_ns(&[Cause::Transfer])
}

pub(super) const SMALL_TRANSFERS: Rule = Rule {
    name: "small-transfers",
    verdict: Some("TRANSFER BOUND"),
    title: Title::new("many small transfers"),
    about: "small transfers",
    condition: "At least 8 transfers a step (100 in a run) of less than 64 KiB, that no other rule names, take 2 % or \
        more. Gain: at most the time in all of them but one.",
    advice: "pack them into one buffer and copy once; keep small values on the GPU",
    on_metal: Some(
        "GPU and host have one memory: let kernels read shared buffers (storageModeShared) in place of small blits, pass small \
        values by setBytes, and pack the others into one buffer",
    ),
    without: &[Class::Copy],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Medium,
    recorded: |s| s.facts.transfers.is_sized(Some(s.process_id)),
    evaluate: small_transfers,
};

fn small_transfers(s: &Subject<'_>) -> Option<Evidence> {
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
