//! The summary's lines of what the host did: its time by what it was in, and how many calls there were.
//!
//! What was removed to keep to a limit is not known here, and no zero.

use std::fmt::Write;

use gputrace_collectors::schema::TableId;

use super::Content;
use crate::analysis::{Part, What, removed};
use crate::findings::{Subject, worst_site};
use crate::render::{number, time};

/// The host line, that of the time outside the driver, and the line of counts.
pub(super) fn lines(content: &Content<'_>, main: &Subject<'_>, shown: &dyn Fn(f64) -> String) -> String {
    let mut out = String::new();
    // Rows that were removed are no zero.
    let gone = |part: Part| is_gone(content, main, part);
    let told = |part: Part, ns: f64| if gone(part) { "not known".to_owned() } else { shown(ns) };
    let any_gone = [Part::Launch, Part::Wait, Part::Copy, Part::Memory, Part::Other].into_iter().any(gone);
    let outside = if any_gone { "not known".to_owned() } else { shown(main.outside_ns()) };
    let _ = write!(out, " host  outside driver {outside}");
    let always = [("launch calls", Part::Launch), ("waits", Part::Wait), ("copies", Part::Copy)];
    let when_seen = [("memory", Part::Memory), ("other", Part::Other)];
    let seen = when_seen.into_iter().filter(|(_, part)| main.share(*part) >= 0.005);
    for (name, part) in always.into_iter().chain(seen) {
        let _ = write!(out, " | {name} {}", told(part, main.ns(part)));
    }
    out.push_str(&outside_line(main, shown));
    out.push_str(&counts(content, main));
    out
}

/// How many operations, launches, waits and other calls.
fn counts(content: &Content<'_>, main: &Subject<'_>) -> String {
    let gone = |part: Part| is_gone(content, main, part);
    let mut out = String::new();
    let launches = content.facts.launches.processes.get(&main.process_id);
    let median = launches.map_or(0, |l| l.steady.median()) as f64;
    let calls = number(main.calls(Part::Launch));
    // Those that were drawn stand for the others.
    let about = if main.lacks_launches() { "about " } else { "" };
    out.push(' ');
    let plural = |n: f64, one: &'static str, many: &'static str| if number(n) == "1" { one } else { many };
    let (waits, copies) = (main.waits(), main.calls(Part::Copy));
    let mut one_each = false;
    if let Some(gpu) = &main.on_gpu {
        let operations = plural(gpu.operations, "operation", "operations");
        let median = gpu.kernel_ns.map_or(String::new(), |ns| format!(", median kernel {}", time(ns)));
        let _ = write!(out, "{} GPU {operations}{median}; ", number(gpu.operations));
        let launched = main.kernels().filter(|kernels| number(*kernels) == calls);
        one_each = launched.is_some_and(|kernels| number(kernels + copies) == number(gpu.operations));
    }
    // Where each call is one operation, their number is said.
    if gone(Part::Launch) {
        out.push_str("launches not known; ");
    } else if !one_each {
        let _ = write!(out, "{about}{calls} {}", plural(main.calls(Part::Launch), "launch", "launches"));
        match main.kernels().map(number) {
            Some(kernels) if kernels == calls => {}
            Some(kernels) if kernels == "0" => out.push_str(" without kernels"),
            Some(kernels) => {
                let one = if kernels == "1" { "kernel" } else { "kernels" };
                let _ = write!(out, " of {kernels} {one}");
            }
            None => out.push_str(" (kernels of some graphs not known)"),
        }
        if median > 0.0 {
            let _ = write!(out, ", median {} api", time(median));
        }
        out.push_str("; ");
    }
    match gone(Part::Wait) {
        true => out.push_str("waits not known"),
        false => _ = write!(out, "{} {}", number(waits), plural(waits, "wait", "waits")),
    }
    if main.implicit_waits >= 0.05 {
        let _ = write!(out, " ({} of them implicit)", number(main.implicit_waits));
    }
    if copies > 0.0 && !gone(Part::Copy) {
        let _ = write!(out, "; {} {}", number(copies), plural(copies, "copy or set", "copies and sets"));
    }
    let memory = main.calls(Part::Memory);
    if memory >= 0.05 && !gone(Part::Memory) {
        let _ = write!(out, "; {} allocation and free calls", number(memory));
    }
    out.push('\n');
    out
}

/// Whether rows of a part of the host's time were removed.
fn is_gone(content: &Content<'_>, main: &Subject<'_>, part: Part) -> bool {
    removed::lacks(content.facts, rows_of(part), main.per_step).is_some()
}

/// The table whose rows a part of the host's time is made of.
fn rows_of(part: Part) -> &'static [TableId] {
    match part {
        Part::Launch => &[TableId::Launches],
        Part::Wait => &[TableId::Syncs],
        Part::Copy => &[TableId::Transfers],
        Part::Memory => &[TableId::DeviceMemory],
        Part::Other => &[TableId::Api],
    }
}

/// What the time outside the driver went into, as far as there is evidence of it: ends the host line, and has one of its
/// own where the operating system was waited for.
fn outside_line(main: &Subject<'_>, shown: &dyn Fn(f64) -> String) -> String {
    let mut out = "\n".to_owned();
    if let Some(system_ns) = main.system_ns.filter(|ns| *ns >= 0.005 * main.unit_ns) {
        let worst = worst_site(main, What::System).map(|at| {
            let site = at.site.as_ref().map(|site| format!("{} ", site.short()));
            format!(" (most: {}{})", site.unwrap_or_default(), main.facts.names.full(at.api_id))
        });
        let (system, unknown) = (shown(system_ns), shown(main.unknown_ns()));
        let _ =
            writeln!(out, "  outside driver: system waits {system}{} | unknown {unknown}", worst.unwrap_or_default());
    }
    out
}

#[cfg(test)]
mod tests {
    use gputrace_collectors::manifest::Removed;
    use gputrace_collectors::schema::TableId;

    use super::super::Summary;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn one_command_buffer_of_many_dispatches_is_not_called_too_few_calls() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 10_000_000);
        let dispatches = vec![("gemm", 100_000); 500];
        trace.thread(1, 11).commit(&dispatches, 1_000, 5_000, (START + 600_000, 9_000_000));
        let said = "\nUNKNOWN: 1 command buffer of 500 dispatches: too few commits and waits to judge; see metal-baseline, dispatches\n";
        let text = trace.section(&Summary).literal.unwrap_or_default();
        assert!(text.contains(said), "{text}");
    }

    /// A run of Metal's commits and waits, of which the rows of some tables were removed.
    fn lacking(tables: &[TableId]) -> String {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        for _ in 0..60 {
            let begin = thread.now + 10_000;
            thread.alloc("[MTLDevice newBufferWithLength:options:]", "managed", 0x50, 4096, 1_000);
            thread.commit_commands("gemm", 4, Some((begin, 300_000)));
            thread.sync("[MTLCommandBuffer waitUntilCompleted]", "stream", begin + 304_000 - thread.now);
        }
        for table in tables {
            trace.clear(*table);
            let (limit, table) = ("--max-size".into(), table.table().name.into());
            let removed = Removed { limit, table, rows: 20, from_ns: START, to_ns: START + 90_000_000 };
            trace.manifest.as_mut().expect("a manifest").removed.push(removed);
        }
        trace.section(&Summary).literal.unwrap_or_default()
    }

    #[test]
    fn what_was_removed_is_no_zero() {
        let whole = lacking(&[]);
        assert!(whole.contains(" | waits ") && !whole.contains("not known |") && whole.contains("1 wait"), "{whole}");
        let launches = lacking(&[TableId::Launches, TableId::Dispatches]);
        assert!(launches.contains(" host  outside driver not known | launch calls not known | waits "), "{launches}");
        assert!(launches.contains("launches not known; ") && !launches.contains("0 launches"), "{launches}");
        let waits = lacking(&[TableId::Syncs]);
        assert!(waits.contains(" | waits not known |") && waits.contains("waits not known"), "{waits}");
        assert!(!waits.contains("0 waits"), "{waits}");
        let memory = lacking(&[TableId::DeviceMemory]);
        assert!(whole.contains("allocations") && !memory.contains("allocations"), "{memory}");
    }
}
