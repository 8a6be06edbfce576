//! The rule about steps that are far longer than the others: no usual step shows what they cost.

use super::lines::ms;
use super::rule::{Effort, Rule, Title};
use crate::analysis::{long_steps, outlier_causes};
use crate::findings::{EVEN_LONG_STEPS, Evidence, LONG_STEPS, Subject};
use crate::render::{counted, ordinal, share};

pub(super) const OUTLIER_STEPS: Rule = Rule {
    name: "outlier-steps",
    verdict: Some("OUTLIER STEPS"),
    title: Title::new("a few steps take far longer than the others"),
    about: "outlier steps",
    condition: "Steady steps of more than four times the median, or of more than twice where they come at even distances and are no \
        usual steps all the same (--explain steps), have 20 % or more of all steady steps' time beyond it, those at even distances 10 %, without the loading of code (warm-up). Other findings are about the usual step, and do not see \
        these. Causes are those of the table of outliers (--explain steps). Gain: at most that time, of the run.",
    advice: "see what they do more (report --only steps lists each, --steps N shows one): checkpoints, logs, validation, batches of \
        another size; do it less often, or beside the GPU's work",
    on_metal: Some(
        "see what they do more (report --only steps lists each, --steps N shows one); do it less often, or beside the GPU's work",
    ),
    without: &[],
    all_of_it: false,
    gain_known: true,
    effort: Effort::Medium,
    // That all steps are alike is said by their times.
    recorded: |_| false,
    evaluate: outlier_steps,
};

pub(super) fn outlier_steps(s: &Subject<'_>) -> Option<Evidence> {
    let long = long_steps(s.facts, s.process_id)?;
    if long.share() < if long.every.is_some() { EVEN_LONG_STEPS } else { LONG_STEPS } {
        return None;
    }
    let steps = counted(long.steps as f64, "step", "steps");
    let first = format!(
        "{} of {steps}{} {} over {} times the median of {}: {} more in all, {} of the steps' time; the longest {}",
        long.count,
        long.every.map(|every| format!(", every {},", ordinal(every))).unwrap_or_default(),
        if long.count == 1 { "takes" } else { "take" },
        if long.every.is_some() { "two" } else { "four" },
        ms(long.median_ns as f64),
        ms(long.beyond_ns as f64),
        share(long.share()),
        ms(long.longest_ns as f64)
    );
    let causes = outlier_causes(s.facts, s.process_id);
    let lines = [Some(first), (!causes.is_empty()).then_some(causes)];
    Some(Evidence { gain_ns: long.beyond_ns as f64, of_run: true, lines: lines.into_iter().flatten().collect() })
}

#[cfg(test)]
mod tests {
    use crate::analysis::{ALL, Section, Value};
    use crate::findings::tests::found;
    use crate::trace::testing::{START, TestTrace};

    /// A loop of 104 steps of 1 ms in which the GPU works for most of the time, with a copy of 25 ms in some.
    fn with_long_steps(long: &[usize], gpu_times: bool) -> Section {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let line = trace.stack("save", "/home/u/train.py", 212);
        let mut thread = trace.thread(1, 11);
        for step in 0..104 {
            let began = thread.range_begin();
            match gpu_times {
                true => drop(thread.launch_running("k", 5_000, 7, (thread.now + 6_000, 940_000))),
                false => thread.launch("k", 5_000),
            }
            thread.sync("cuStreamSynchronize", "stream", 945_000);
            if long.contains(&step) {
                thread.stack = Some((line, 0));
                thread.copy("DtoH", ("device", "pageable"), false, 4, 24_000_000);
                thread.stack = None;
            }
            thread.host(45_000);
            thread.range_end(None, "step", began, true);
        }
        trace.section(ALL[0])
    }

    #[test]
    fn a_jump_of_an_imported_clock_is_no_step_that_took_long() {
        const JUMP_NS: i64 = 7_200_000_000_000;
        for told in [false, true] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + JUMP_NS + 1_000_000_000);
            let mut thread = trace.thread(1, 11);
            let mut jumped = START;
            for step in 0..104 {
                let began = thread.range_begin();
                thread.launch("k", 5_000);
                thread.sync("cuStreamSynchronize", "stream", 945_000);
                if step == 52 {
                    jumped = thread.now;
                    thread.host(JUMP_NS);
                }
                thread.host(45_000);
                thread.range_end(None, "step", began, true);
            }
            let clock = &mut trace.manifest.as_mut().expect("a manifest").clock;
            clock.kind = gputrace_collectors::manifest::IMPORTED.to_owned();
            clock.pauses = if told { vec![(jumped, jumped + JUMP_NS)] } else { Vec::new() };
            let section = trace.section(ALL[0]);
            assert_eq!(found(&section).iter().any(|(name, _)| name == "outlier-steps"), !told, "{:?}", section.literal);
            let mean = 995_000.0 + if told { 0.0 } else { JUMP_NS as f64 / 104.0 };
            let is_mean = |value: &Value| matches!(value, Value::Num(ns) if (ns / mean - 1.0).abs() < 1e-3);
            assert!(is_mean(section.get("step_mean_ns")), "{told} {:?}", section.literal);
        }
    }

    #[test]
    fn a_few_steps_that_are_half_of_the_time_are_the_verdict_and_not_healthy() {
        for gpu_times in [false, true] {
            let section = with_long_steps(&[23, 31, 68, 79], gpu_times);
            let text = section.literal.as_deref().unwrap_or_default();
            assert_eq!(section.get("verdict"), &Value::from("OUTLIER STEPS"), "{text}");
            assert!(text.contains("OUTLIER STEPS: 4 of 104 steps take 50 % of their time: 4 "), "{text}");
            assert!(text.contains("train.py:212"), "{text}");
            assert!(text.contains("--steps N shows one"), "{text}");
            assert!(!text.contains("host work,"), "what the host does in these steps is not fine: {text}");
            assert_eq!(found(&section)[0], ("outlier-steps".to_owned(), 96_000), "{text}");
            // One has less than a fifth of the time.
            let one = with_long_steps(&[50], gpu_times);
            assert!(found(&one).iter().all(|(name, _)| name != "outlier-steps"), "{:?}", one.literal);
            assert_ne!(one.get("verdict"), &Value::from("OUTLIER STEPS"), "{:?}", one.literal);
        }
    }

    #[test]
    fn what_every_fifth_step_has_more_is_told_where_as_much_at_odd_distances_is_not() {
        let text = |is_long: &dyn Fn(usize) -> bool| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 1_000_000_000);
            let mut thread = trace.thread(1, 11);
            for step in 0..50 {
                let began = thread.range_begin();
                (0..20).for_each(|_| thread.launch("k", 5_000));
                thread.sync("cuStreamSynchronize", "stream", 800_000);
                thread.host(if is_long(step) { 1_100_000 } else { 9_000 });
                thread.range_end(None, "step", began, true);
            }
            let section = trace.section(ALL[0]);
            let is_told = found(&section).iter().any(|(name, _)| name == "outlier-steps");
            (is_told, section.literal.unwrap_or_default())
        };
        let (even, said) = text(&|step| step % 5 == 4 && step < 45);
        assert!(even && said.contains("9 host outside the driver"), "{said}");
        let (odd, said) = text(&|step| [2, 3, 11, 12, 23, 29, 31, 40, 48].contains(&step));
        assert!(!odd, "{said}");
    }

    #[test]
    fn rare_long_steps_at_even_distances_are_told_with_their_distance() {
        for (every, number, share) in [(13, 8, 68), (25, 4, 50)] {
            for gpu_times in [false, true] {
                let all: Vec<usize> = (0..104).filter(|step| step % every == every - 1).collect();
                let section = with_long_steps(&all, gpu_times);
                let text = section.literal.as_deref().unwrap_or_default();
                let verdict =
                    format!("OUTLIER STEPS: {number} of 104 steps, every {every}th, take {share} % of their time");
                assert!(text.contains(&verdict), "{text}");
                assert_eq!(found(&section)[0], ("outlier-steps".to_owned(), number * 24_000), "{text}");
                assert!(text.contains(&format!("; outliers {number}, every {every}th: {number} ")), "{text}");
                assert_eq!(
                    section.get("unit_ns"),
                    &Value::Num(995_000.0),
                    "the usual step has no outlier in it: {text}"
                );
            }
        }
    }
}
