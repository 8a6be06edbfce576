//! The line about the budget: what the hooks cost, and which detail was left out to keep to it.

use std::cmp::Ordering;

use gputrace_collectors::manifest::{HookBudget, ShedPart};

use crate::analysis::{Facts, gpu_cost};
use crate::render::{counted, duration, number, share};

/// Parts that are named; of a load that came and went there are more.
const NAMED: usize = 4;

/// A process that lived shorter says nothing of what recording costs: the hooks' own start is most of it.
const LONG_NS: f64 = 1e9;

/// The line; none where nobody gave a budget. Of several processes that lived long the one whose hooks cost most is told of.
pub(super) fn line(facts: &Facts<'_>) -> Option<String> {
    let all = || {
        facts.processes().filter_map(|process| Some((process.process_id, process.manifest.as_ref()?.budget.as_ref()?)))
    };
    let is_long = |process_id: i64| facts.whole_wall_ns(process_id) >= LONG_NS;
    // CUPTI that is at work for the whole run is no part of what a budget bounds, but of what recording costs.
    let cupti_percent = |process_id: i64| {
        let about = facts.trace.process(process_id)?.manifest.as_ref()?.gpu_time.as_ref()?;
        Some(100.0 * gpu_cost::whole_run_ns(about)? / facts.whole_wall_ns(process_id).max(1.0))
    };
    let costs = |process_id: i64, hooks: &HookBudget| {
        (is_long(process_id), hooks.hooks_percent + cupti_percent(process_id).unwrap_or(0.0))
    };
    let dearest =
        all().max_by(|(a, one), (b, other)| costs(*a, one).partial_cmp(&costs(*b, other)).unwrap_or(Ordering::Equal));
    let (process_id, dearest) = dearest?;
    let HookBudget { percent, hooks_percent, most_percent, shed, .. } = dearest;
    let [cost, most] = [hooks_percent, most_percent].map(|percent| share(percent / 100.0));
    let over = if most_percent > percent { ", over it" } else { "" };
    let cupti = cupti_percent(process_id);
    let left_out = match shed.as_slice() {
        [] if cupti.is_some() => "nothing of the hooks was left out".to_owned(),
        [] => "nothing was left out for it".to_owned(),
        parts => {
            let named: Vec<String> = parts.iter().take(NAMED).map(|part| said(facts, part)).collect();
            let more = if parts.len() > NAMED { ", ..." } else { "" };
            format!("left out: {}{more}", named.join(", "))
        }
    };
    let of_gpu = || facts.trace.process(process_id)?.manifest.as_ref()?.gpu_time.as_ref()?.budget.as_ref();
    let times = of_gpu().map_or(String::new(), |times| {
        let parts = [times.windows_percent, times.attached_percent, times.events_percent];
        let sum = parts.into_iter().flatten().sum::<f64>();
        let over = if hooks_percent + sum > *percent { ", over it" } else { "" };
        format!(", GPU times {}, in all {}{over}", share(sum / 100.0), share((hooks_percent + sum) / 100.0))
    });
    let times = cupti.map_or(times, |cupti| {
        let over = if hooks_percent + cupti > *percent { ", over the budget" } else { "" };
        let [cupti, sum] = [cupti, hooks_percent + cupti].map(|percent| share(percent / 100.0));
        format!(
            ", CUPTI about {cupti} (0.6 us a record as on an H200), in all {sum}{over}; the budget does not bind --gpu-time full"
        )
    });
    let others = all().filter(|(_, other)| !std::ptr::eq(*other, dearest) && !other.shed.is_empty()).count();
    let others = match others {
        0 => String::new(),
        _ => format!("; and in {}", counted(others as f64, "more process", "more processes")),
    };
    let metal = if facts.is_metal(process_id) {
        "; on Metal it bounds samples of malloc alone, every message is recorded"
    } else {
        ""
    };
    Some(format!("budget {percent} %: hooks cost {cost} (dearest 10 s {most}{over}){times}; {left_out}{others}{metal}"))
}

/// What was left out, when, and how much.
fn said(facts: &Facts<'_>, part: &ShedPart) -> String {
    let after = |at: i64| duration(at.saturating_sub(facts.trace.began_ns()).max(0) as f64);
    let until = part.to_ns.map_or("the end".to_owned(), after);
    let what = match (part.what.as_str(), part.one_in) {
        ("gpu_times", _) => {
            return format!("windows of GPU times, and launches timed more rarely, {} .. {until}", after(part.from_ns));
        }
        ("malloc", Some(times)) => format!("malloc's samples, {times} times rarer,"),
        (what, Some(times)) => format!("{what}, one in {times} kept,"),
        (what, None) => what.to_owned(),
    };
    format!("{what} {} .. {until} ({})", after(part.from_ns), number(part.sampled_out as f64))
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::{Budget, GpuTime};

    use super::*;
    use crate::analysis::Need;
    use crate::trace::Filter;
    use crate::trace::testing::{START, TestTrace};

    fn said_of(budget: Option<HookBudget>) -> Option<String> {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        trace.manifest.as_mut().expect("a manifest").processes[0].budget = budget;
        let opened = trace.open();
        let filter = Filter::of(&opened);
        line(&Facts::gather(&opened, &filter, &[]))
    }

    #[test]
    fn a_process_of_a_moment_does_not_speak_for_the_run() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 20_000_000_000);
        trace.process(2, 200, None, START + 18_000_000);
        for (process, hooks_percent) in [(0, 0.1), (1, 9.0)] {
            let budget =
                HookBudget { percent: 1.0, hooks_percent, most_percent: hooks_percent, ..HookBudget::default() };
            trace.manifest.as_mut().expect("a manifest").processes[process].budget = Some(budget);
        }
        let opened = trace.open();
        let said = line(&Facts::gather(&opened, &Filter::of(&opened), &[])).expect("a line");
        assert!(said.starts_with("budget 1 %: hooks cost 0.1 %"), "{said}");
    }

    #[test]
    fn what_the_times_of_the_gpu_cost_is_part_of_the_sum() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 20_000_000_000);
        let process = &mut trace.manifest.as_mut().expect("a manifest").processes[0];
        let shed = ShedPart { what: "gpu_times".to_owned(), from_ns: START + 2_000_000_000, ..ShedPart::default() };
        process.budget = Some(HookBudget {
            percent: 1.0,
            hooks_percent: 0.4,
            most_percent: 0.5,
            shed: vec![shed],
            ..HookBudget::default()
        });
        let times = Budget {
            percent: 1.0,
            windows_percent: Some(0.2),
            attached_percent: Some(0.5),
            events_percent: Some(0.1),
            ..Budget::default()
        };
        process.gpu_time = Some(GpuTime { budget: Some(times), ..GpuTime::default() });
        let opened = trace.open();
        let said = line(&Facts::gather(&opened, &Filter::of(&opened), &[])).expect("a line");
        let wanted = "budget 1 %: hooks cost 0.4 % (dearest 10 s 0.5 %), GPU times 0.8 %, in all 1.2 %, over it; left out: windows of GPU \
                      times, and launches timed more rarely, 2.00 s .. the end";
        assert_eq!(said, wanted);
    }

    #[test]
    fn what_cupti_takes_of_a_whole_run_is_in_the_sum_which_may_be_over_the_budget() {
        let said = |records: u64| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 10_000_000_000);
            let process = &mut trace.manifest.as_mut().expect("a manifest").processes[0];
            let (hooks_percent, most_percent) = (0.1, 0.2);
            process.budget = Some(HookBudget { percent: 1.0, hooks_percent, most_percent, ..HookBudget::default() });
            process.gpu_time = Some(GpuTime { windows: 1, records, ..GpuTime::default() });
            process.cost.total_ns = Some(10_000_000.0);
            let count = gputrace_collectors::manifest::Count { seen: 9, sampled_out: 9, ..Default::default() };
            process.accounting.insert("launch".to_owned(), count);
            let text = trace.section(crate::analysis::ALL[0]).literal.unwrap_or_default();
            let of = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
            let itself = trace.section(*crate::analysis::ALL.iter().find(|of| of.name() == "self").expect("it"));
            let shares = [itself.get("cost_percent"), itself.cell("by_process", 0, "cupti_percent")];
            let shares = shares.map(|value| match value {
                crate::analysis::Value::Num(share) => (share * 1e6).round() / 1e6,
                other => panic!("{other:?}"),
            });
            (of("cost "), of("budget "), shares)
        };
        let (cost, budget, shares) = said(2_833_333);
        assert!(cost.starts_with("cost 17 % (CUPTI about 17 %; over the budget of 1 %)  lost"), "{cost}");
        let wanted = "budget 1 %: hooks cost 0.1 % (dearest 10 s 0.2 %), CUPTI about 17 % (0.6 us a record as on an H200), in all 17 %, \
                      over the budget; the budget does not bind --gpu-time full; nothing of the hooks was left out";
        assert_eq!(budget, wanted);
        assert_eq!(shares, [17.099998, 16.999998]);
        let (cost, budget, shares) = said(50_000);
        assert!(cost.contains("(CUPTI about 0.3 %, 0.6 us a record as on an H200)"), "{cost}");
        assert!(
            budget.contains(", in all 0.4 %; the budget does not bind --gpu-time full") && !budget.contains("over"),
            "{budget}"
        );
        assert_eq!(shares, [0.4, 0.3]);
    }

    #[test]
    fn who_uses_metal_is_told_what_a_budget_bounds_there() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        trace.thread(1, 11).commit(&[("gemm", 64)], 1_000, 5_000, (START + 10_000, 40_000));
        trace.manifest.as_mut().expect("a manifest").processes[0].budget = Some(HookBudget::default());
        let opened = trace.open();
        let said = line(&Facts::gather(&opened, &Filter::of(&opened), &[Need::Metal])).expect("a line");
        assert!(said.ends_with("; on Metal it bounds samples of malloc alone, every message is recorded"), "{said}");
    }

    #[test]
    fn the_line_says_what_was_allowed_and_spent_and_what_was_left_out_and_when() {
        assert_eq!(said_of(None), None);
        let mut budget = HookBudget { percent: 1.0, hooks_percent: 0.4, most_percent: 0.5, ..HookBudget::default() };
        let nothing = "budget 1 %: hooks cost 0.4 % (dearest 10 s 0.5 %); nothing was left out for it";
        assert_eq!(said_of(Some(budget.clone())).as_deref(), Some(nothing));
        budget.most_percent = 2.0;
        let part = |what: &str, one_in: Option<u64>, to_ns: Option<i64>| ShedPart {
            what: what.to_owned(),
            from_ns: START + 1_000_000_000,
            to_ns,
            one_in,
            sampled_out: 1234,
        };
        budget.shed = vec![
            part("stacks", None, Some(START + 2_000_000_000)),
            part("malloc", Some(64), None),
            part("launches", Some(8), None),
        ];
        let line = said_of(Some(budget)).expect("a line");
        let (head, parts) = line.split_once("; left out: ").expect("what was left out");
        assert_eq!(head, "budget 1 %: hooks cost 0.4 % (dearest 10 s 2 %, over it)");
        assert_eq!(
            parts,
            "stacks 1.00 s .. 2.00 s (1,234), malloc's samples, 64 times rarer, 1.00 s .. the end (1,234), \
             launches, one in 8 kept, 1.00 s .. the end (1,234)"
        );
    }
}
