//! host-leaks: what malloc gave and never got back, and what grows from step to step.

use super::by_stack::{self, OfStack, PLACE, PROCESS, SITE, STACK, STACK_ID, VIA, bytes, largest, whole};
use super::growing::{Growing, Verdict, a_second, seeming};
use super::passes::allocations::{Amount, Beat};
use super::section::{Column, Section, Table, Unit, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need, by_line, pinned};
use gputrace_collectors::schema::TableId;

/// The analysis.
pub(crate) struct HostLeaks;

impl Analysis for HostLeaks {
    fn name(&self) -> &'static str {
        "host-leaks"
    }

    fn title(&self) -> &'static str {
        "Leaks of the host"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Live at the end: allocated in the trace and not freed in it, by stack; of a part of a trace (--from, --to, --range, \
                --steps) what is live at its end, whenever it was allocated. Pinned is what the driver gave of host memory and did not get back; a context's end \
                gives it back without a call. Growing: a line by least squares through the \
                live bytes of a stack at the end of each step after warm-up (of each hundredth of the process's time without its first and last tenth, \
                where there are no steps). A stack grows when its slope is 6 standard errors above none, each half of the steps has at \
                least 0.4 of it, 10 blocks and more are live after the last of them (one that is made anew, larger and larger, is a table and its content is looked \
                at by itself), and, in sampled mode, the growth is more than 3 standard deviations of the live samples, of which that takes more than 9. What \
                has such a slope and fails the rest may grow, and stands apart with the reason. So a program that \
                never ends shows its leak, and what was allocated before the first step, or fills up once, is none by growth.",
            unit: "bytes; bytes per step or per second; significance in standard errors of the slope (at most a million, where nothing \
                is left beside the line).",
            limits: "What is live at the end of a program is often meant to be: tables, caches, what exit gives back in one go. Growth is no \
                proof either: a log that is kept in memory, or a cache that is still filling. Fewer than 10 steps tell nothing. Live bytes of \
                steps next to each other are alike, so that the standard error is too small; that is why 6 are asked for. A leak that is \
                spread over many stacks may be below the threshold in each: the growth of the whole process is told as well. Where recording was on \
                in parts only (windows, the flight recorder), or events were lost, nothing is said to grow: frees are missing. Mapped memory is \
                in host-allocations.",
            source: "least squares; leak detection by growth as in memray and Instruments.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Allocations, Need::DeviceMemory]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("live_at_end_bytes", Bytes, "bytes of malloc that were never freed")
                .sums(&[TableId::HostMemory]),
            Metric::about("live_at_end_blocks", Count, "the blocks that they are in").sums(&[TableId::HostMemory]),
            Metric::about("error_percent", Percent, "error of these bytes: two standard deviations"),
            Metric::about("pinned_at_end_bytes", Bytes, "pinned memory that the driver gave and never got back")
                .sums(&[TableId::DeviceMemory]),
            Metric::cost("growing_stacks", Count, "stacks whose live memory grows")
                .sums(&[TableId::HostMemory])
                .unsteady(),
            Metric::cost("growth_per_step_bytes", Bytes, "by how much they grow in a step, together")
                .unsteady()
                .of_step(),
            Metric::cost("growth_bytes_per_s", BytesPerS, "by how much they grow in a second, together")
                .sums(&[TableId::HostMemory])
                .unsteady(),
        ];
        METRICS
    }

    fn answers(&self, facts: &Facts<'_>) -> bool {
        by_stack::any(facts)
    }

    fn section(&self, facts: &Facts<'_>) -> Section {
        let mut section = Section::default();
        if !by_stack::begin(&mut section, facts) {
            return section;
        }
        let mut live = Amount::default();
        facts.allocations.processes.iter().for_each(|(_, process)| live.add(process.live));
        let (growing, unsure): (Vec<_>, Vec<_>) =
            seeming(facts).into_iter().partition(|grows| grows.verdict == Verdict::Grows);
        let steps: Vec<f64> = growing.iter().filter_map(Growing::per_step).collect();
        let a_second: f64 = growing.iter().filter_map(|grows| grows.a_second(facts)).sum();
        section.fact("live_at_end_bytes", "live at the end", Unit::Bytes, bytes(live.bytes));
        section.fact("live_at_end_blocks", "in blocks", Unit::Count, whole(live.blocks));
        section.fact("error_percent", "error (+-)", Unit::Percent, by_stack::error_percent(facts, live));
        let pinned: i64 = pinned::all(facts).map(|(_, pinned)| pinned.live_bytes.max(0)).sum();
        let any_pinned = pinned::all(facts).next().is_some();
        section.rare_fact(
            "pinned_at_end_bytes",
            "pinned by the driver at the end",
            Unit::Bytes,
            any_pinned.then_some(pinned),
        );
        let doubted = unsure.iter().find(|grows| grows.verdict.is_doubted());
        let known = |sum: f64| doubted.is_none().then_some(sum);
        let count = doubted.is_none().then_some(growing.len() as i64);
        section.fact("growing_stacks", "stacks that grow", Unit::Count, count);
        let any_steps = facts.allocations.processes.iter().any(|(id, _)| facts.steps.of(*id).is_some());
        // The sum of none is -0.0.
        let per_step = any_steps.then(|| 0.0 + steps.iter().sum::<f64>()).and_then(known);
        section.fact("growth_per_step_bytes", "by, a step", Unit::Bytes, per_step);
        section.fact("growth_bytes_per_s", "by, a second", Unit::BytesPerS, known(0.0 + a_second));
        section.table(of_growing(facts, &growing));
        section.table(of_unsure(facts, &unsure));
        section.table(by_process(facts, &growing));
        let all = largest(facts, |of| of.stack.live.bytes);
        by_line::add(&mut section, facts, &all, "Live at the end, by line", |of| of.stack.live, |of| of.process.live);
        section.table(at_end(facts, &all));
        section.table(pinned::left(facts));
        by_stack::note_rare_samples(&mut section, facts);
        note_few_samples(&mut section, facts, &growing, &unsure);
        if let Some(why) = doubted.and_then(|grows| grows.verdict.why()) {
            section.note(format!("Whether anything grows is not known ({why})."));
        }
        section
    }
}

fn of_growing(facts: &Facts<'_>, growing: &[Growing<'_>]) -> Table {
    const COLUMNS: [Column; 11] = [
        PROCESS,
        SITE,
        column("per_step_bytes", "A step", Unit::Bytes),
        column("bytes_per_s", "A second", Unit::BytesPerS),
        column("significance", "Significance", Unit::Count),
        column("live_bytes", "Live by then", Unit::Bytes),
        column("blocks", "Blocks", Unit::Count),
        VIA,
        PLACE,
        STACK,
        STACK_ID,
    ];
    by_stack::table(facts, growing, ["growing", "Growing, by stack"], &COLUMNS, |grows| {
        let live = grows.of.stack.grown();
        let (each, a_second) = (grows.per_step(), grows.a_second(facts));
        [each.into(), a_second.into(), grows.slope.errors.into(), bytes(live.bytes), whole(live.blocks)]
    })
}

fn of_unsure(facts: &Facts<'_>, unsure: &[Growing<'_>]) -> Table {
    const COLUMNS: [Column; 10] = [
        PROCESS,
        SITE,
        column("per_step_bytes", "A step", Unit::Bytes),
        column("bytes_per_s", "A second", Unit::BytesPerS),
        column("significance", "Significance", Unit::Count),
        column("reason", "Why not", Unit::Text),
        VIA,
        PLACE,
        STACK,
        STACK_ID,
    ];
    by_stack::table(facts, unsure, ["unsure", "May grow, not counted above, by stack"], &COLUMNS, |grows| {
        let (each, a_second) = (grows.per_step(), grows.a_second(facts));
        [each.into(), a_second.into(), grows.slope.errors.into(), grows.verdict.why().into()]
    })
}

fn by_process(facts: &Facts<'_>, growing: &[Growing<'_>]) -> Table {
    const COLUMNS: [Column; 8] = [
        PROCESS,
        column("program", "Program", Unit::Name),
        column("live_at_end_bytes", "Live at end", Unit::Bytes),
        column("grows", "Grows", Unit::Text),
        column("reason", "Why not", Unit::Text),
        column("per_step_bytes", "A step", Unit::Bytes),
        column("bytes_per_s", "A second", Unit::BytesPerS),
        column("significance", "Significance", Unit::Count),
    ];
    let mut all: Vec<_> = facts.allocations.processes.iter().collect();
    all.sort_by(|(a_id, a), (b_id, b)| {
        b.live.bytes.total_cmp(&a.live.bytes).then_with(|| facts.place(**a_id).cmp(&facts.place(**b_id)))
    });
    let row = |(id, process): &(&i64, &super::passes::allocations::OfProcess)| {
        let id = **id;
        let (slope, beat) = (facts.allocations.slope_of(id), facts.allocations.beat(id));
        let both = slope.zip(beat);
        let verdict = Verdict::of_process(facts, id, growing);
        vec![
            facts.label(id).into(),
            facts.program(id).into(),
            bytes(process.live.bytes),
            verdict.word().into(),
            verdict.why().into(),
            both.filter(|(_, beat)| matches!(beat, Beat::Steps(_))).map(|(slope, _)| slope.each).into(),
            both.and_then(|(slope, beat)| a_second(facts, id, beat, slope)).into(),
            slope.map(|slope| slope.errors).into(),
        ]
    };
    Table::new("by_process", "All of a process", &COLUMNS, all.iter().map(row).collect())
}

/// Says of how many stacks and processes it is not known whether they grow, and what would tell.
fn note_few_samples(section: &mut Section, facts: &Facts<'_>, growing: &[Growing<'_>], unsure: &[Growing<'_>]) {
    let processes = facts.allocations.processes.iter().map(|(id, _)| Verdict::of_process(facts, *id, growing));
    let processes = processes.filter(Verdict::lacks_samples).count();
    let stacks = unsure.iter().filter(|grows| grows.verdict.lacks_samples()).count();
    if processes + stacks > 0 {
        section.note(format!(
            "Too few samples are live to judge growth by in {processes} of the processes and {stacks} of the stacks: chance alone \
             may make as much. A longer run, a smaller --malloc sample=BYTES or --malloc full tells more."
        ));
    }
}

fn at_end(facts: &Facts<'_>, all: &[OfStack<'_>]) -> Table {
    const COLUMNS: [Column; 10] = [
        PROCESS,
        SITE,
        column("bytes", "Live at end", Unit::Bytes),
        column("error_bytes", "+-", Unit::Bytes),
        column("percent", "Of it", Unit::Percent),
        column("blocks", "Blocks", Unit::Count),
        VIA,
        PLACE,
        STACK,
        STACK_ID,
    ];
    by_stack::table(facts, all, ["by_stack", "Live at the end, by stack"], &COLUMNS, |of| {
        let live = of.stack.live;
        let error = by_stack::error_bytes(facts, live);
        [live.bytes.into(), error, percent(live.bytes, of.process.live.bytes), whole(live.blocks)]
    })
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::{Count, KeptDetail, Manifest};
    use gputrace_collectors::schema::TableId;

    use super::super::section::Value;
    use super::*;
    use crate::trace::testing::{START, TestTrace, Thread};

    /// Steps of a millisecond, in which `act` does something.
    fn steps(trace: &mut TestTrace, count: usize, mut act: impl FnMut(&mut Thread<'_>, usize)) {
        let mut thread = trace.thread(1, 11);
        for step in 0..count {
            let began = thread.range_begin();
            act(&mut thread, step);
            thread.launch("k", 10_000);
            thread.now = began + 1_000_000;
            thread.range_end(None, &format!("step {step}"), began, true);
        }
    }

    #[test]
    fn what_grows_with_the_steps_is_told_from_what_is_only_live_at_the_end() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let [history, table, cache] =
            [("history", 3), ("table", 4), ("cache", 5)].map(|(f, line)| trace.stack(f, "/home/u/x.py", line));
        trace.thread(1, 11).malloc_at(table, 1 << 30, f64::from(1 << 30));
        steps(&mut trace, 100, |thread, step| {
            thread.malloc_at(history, 256, 256.0);
            if step < 30 {
                thread.malloc_at(cache, 1 << 20, f64::from(1 << 20));
            }
        });
        let section = trace.section(&HostLeaks);
        assert_eq!(section.get("growing_stacks"), &Value::Int(1));
        assert_eq!(section.get("live_at_end_blocks"), &Value::Int(131));
        let close = |value: &Value, to: f64| matches!(value, Value::Num(v) if (v - to).abs() < 0.001 * to);
        assert!(close(section.get("growth_per_step_bytes"), 256.0), "{section:?}");
        assert!(close(section.get("growth_bytes_per_s"), 256_000.0), "{section:?}");
        assert_eq!(section.cell("growing", 0, "site"), &"x.py:3 history".into());
        assert_eq!(section.cell("growing", 0, "live_bytes"), &25_600.0.into());
        assert_eq!(section.cell("by_stack", 0, "site"), &"x.py:4 table".into());
        assert_eq!(section.cell("by_process", 0, "grows"), &false.into());
        assert_eq!(section.cell("by_process", 0, "reason"), &"plateau: grew in the first half only".into());
    }

    #[test]
    fn a_sampled_stack_grows_when_its_samples_are_too_many_for_chance() {
        for (samples, grows) in [(6, 0), (60, 1)] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 300_000_000);
            let leak = trace.stack("leak", "/home/u/x.py", 3);
            steps(&mut trace, 300, |thread, step| {
                if step % (300 / samples) == 0 {
                    thread.malloc_at(leak, 64, 524_320.0);
                }
            });
            let section = trace.section(&HostLeaks);
            assert_eq!(section.get("growing_stacks"), &Value::Int(grows), "{samples} samples: {section:?}");
            let says = |table: &str, column: &str| section.cell(table, 0, column).clone();
            let few = ["not known".into(), "too few samples: about 6".into()];
            let process = ["grows", "reason"].map(|column| says("by_process", column));
            if grows == 0 {
                assert_eq!(process, few);
                assert_eq!([says("unsure", "site"), says("unsure", "reason")], ["x.py:3 leak".into(), few[1].clone()]);
                assert!(section.notes[0].starts_with("Too few samples are live to judge"), "{:?}", section.notes);
            } else {
                assert_eq!((process, section.notes.len()), (["yes".into(), Value::Missing], 0));
            }
        }
    }

    #[test]
    fn nothing_is_said_to_grow_where_frees_may_be_missing() {
        let of = |change: &dyn Fn(&mut Manifest)| {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 100_000_000);
            let history = trace.stack("history", "/home/u/x.py", 3);
            steps(&mut trace, 100, |thread, _| _ = thread.malloc_at(history, 256, 256.0));
            change(trace.manifest.as_mut().unwrap());
            let section = trace.section(&HostLeaks);
            let why = section
                .tables
                .iter()
                .any(|table| table.key == "unsure")
                .then(|| section.cell("unsure", 0, "reason").clone());
            (["growing_stacks", "growth_bytes_per_s"].map(|key| section.get(key).clone()), why)
        };
        let lost = |manifest: &mut Manifest, dropped| {
            let count = Count { seen: 100 + dropped, recorded: 100, dropped, ..Count::default() };
            manifest.processes[0].accounting.insert("host_free".to_owned(), count);
        };
        assert_eq!(of(&|_| ()).0[0], Value::Int(1));
        assert_eq!(of(&|manifest| lost(manifest, 1)).0[0], Value::Int(1));
        let not_known = [Value::Missing, Value::Missing];
        let (facts, why) = of(&|manifest| lost(manifest, 40));
        assert_eq!((facts, why), (not_known.clone(), Some("events of malloc were lost, and frees among them".into())));
        let (facts, why) = of(&|manifest| manifest.detail = Some(KeptDetail::default()));
        assert_eq!(facts, not_known);
        assert!(matches!(&why, Some(Value::Text(why)) if why.starts_with("recorded in parts")), "{why:?}");
    }

    #[test]
    fn what_is_given_back_at_the_exit_has_leaked_until_then() {
        for with_steps in [true, false] {
            let mut trace = TestTrace::new();
            trace.process(1, 100, None, START + 100_000_000);
            let history = trace.stack("history", "/home/u/x.py", 3);
            let mut blocks = Vec::new();
            steps(&mut trace, 98, |thread, _| blocks.push(thread.malloc_at(history, 256, 256.0)));
            if !with_steps {
                trace.clear(TableId::Launches);
                trace.clear(TableId::Ranges);
            }
            let mut thread = trace.thread(1, 11);
            thread.now = START + 99_000_000;
            blocks.iter().for_each(|block| thread.free_block(block));
            let section = trace.section(&HostLeaks);
            assert_eq!(section.get("live_at_end_bytes"), &0.0.into());
            assert_eq!(section.get("growing_stacks"), &Value::Int(1), "{section:?}");
            assert!(matches!(section.cell("growing", 0, "live_bytes"), Value::Num(live) if *live > 20_000.0));
        }
    }

    #[test]
    fn a_table_that_is_made_anew_larger_and_larger_is_no_leak() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 300_000_000);
        let table = trace.stack("table", "/home/u/x.py", 3);
        let mut last = None;
        steps(&mut trace, 300, |thread, step| {
            let bytes = (step as i64 + 1) * 4096;
            let block = thread.malloc_at(table, bytes, bytes as f64);
            if let Some(last) = last.replace(block) {
                thread.free_block(&last);
            }
        });
        let section = trace.section(&HostLeaks);
        assert_eq!(section.get("growing_stacks"), &Value::Int(0), "{section:?}");
        // All of the process grows nevertheless, and that is told.
        assert_eq!(section.cell("by_process", 0, "grows"), &true.into());
        let reason = section.cell("unsure", 0, "reason");
        assert_eq!(reason, &"fewer than 10 blocks: a table made anew, larger".into());
    }

    #[test]
    fn what_grows_in_one_stack_is_known_beside_much_of_which_samples_say_little() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 300_000_000);
        let [leak, model] = [("leak", 3), ("model", 4)].map(|(f, line)| trace.stack(f, "/home/u/x.py", line));
        let mut thread = trace.thread(1, 11);
        for _ in 0..4000 {
            thread.malloc_at(model, 64, 524_320.0);
        }
        steps(&mut trace, 300, |thread, step| {
            if step % 10 == 0 {
                thread.malloc_at(leak, 64, 524_320.0);
            }
        });
        let section = trace.section(&HostLeaks);
        assert_eq!(section.cell("growing", 0, "site"), &"x.py:3 leak".into());
        assert_eq!(section.cell("by_process", 0, "grows"), &"yes".into(), "{section:?}");
    }

    #[test]
    fn too_few_steps_are_the_reason_why_growth_is_not_known() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let leak = trace.stack("leak", "/home/u/x.py", 3);
        steps(&mut trace, 9, |thread, _| {
            thread.malloc_at(leak, 64, 64.0);
        });
        let section = trace.section(&HostLeaks);
        let reason = section.cell("by_process", 0, "reason");
        assert!(matches!(reason, Value::Text(why) if why.starts_with("too few steps: ")), "{section:?}");
    }

    #[test]
    fn a_program_without_steps_grows_with_time() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000_000);
        let leak = trace.stack("leak", "/home/u/x.py", 3);
        let mut thread = trace.thread(1, 11);
        for _ in 0..1000 {
            thread.host(9_999_990);
            thread.malloc_at(leak, 100, 100.0);
        }
        let section = trace.section(&HostLeaks);
        assert_eq!(section.get("growth_per_step_bytes"), &Value::Missing);
        assert!(
            matches!(section.get("growth_bytes_per_s"), Value::Num(v) if (v - 10_000.0).abs() < 50.0),
            "{section:?}"
        );
        assert_eq!(section.cell("growing", 0, "per_step_bytes"), &Value::Missing);
    }

    #[test]
    fn rows_of_one_line_are_told_apart_by_their_callers_and_ids() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000_000);
        let frame = |id: i64, caller: Option<i64>, function: &str, line: i32| {
            serde_json::json!({
                "stack_id": id, "caller_id": caller, "language": "python", "function": function, "file": "/home/u/x.py", "line": line,
            })
        };
        for (id, caller) in [(1 << 60, 10), (7, 20)] {
            trace.row(TableId::Stacks, frame(id, Some(caller), "copy", 3));
            trace.row(TableId::Stacks, frame(caller, None, "main", caller as i32));
        }
        trace.row(TableId::Stacks, frame(8, None, "other", 4));
        let mut thread = trace.thread(1, 11);
        for (id, bytes) in [(1 << 60, 300), (7, 200), (8, 100)] {
            thread.malloc_at(id, bytes, bytes as f64);
        }
        let section = trace.section(&HostLeaks);
        let row = |row: usize| ["site", "via", "stack_id"].map(|column| section.cell("by_stack", row, column).clone());
        assert_eq!(row(0), ["x.py:3 copy".into(), "x.py:10 main".into(), (1i64 << 60).to_string().into()]);
        assert_eq!(row(1), ["x.py:3 copy".into(), "x.py:20 main".into(), "7".into()]);
        assert_eq!(row(2), ["x.py:4 other".into(), Value::Missing, "8".into()]);
    }
}
