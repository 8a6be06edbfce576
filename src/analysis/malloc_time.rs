//! malloc-time: what the calls of malloc's family took, and which of them had to wait.

use gputrace_collectors::schema::TableId;

use super::by_stack::{self, PLACE, PROCESS, SITE, STACK, STACK_ID, VIA, largest, whole};
use super::passes::allocations::{Calls, OfProcess};
use super::passes::counters::{Of, Subject};
use super::section::{Column, Section, Table, Unit, Value, column, percent};
use super::{Analysis, Explain, Facts, Metric, Need};
use crate::render::counted;
use crate::trace::Site;

/// The analysis.
pub(crate) struct MallocTime;

impl Analysis for MallocTime {
    fn name(&self) -> &'static str {
        "malloc-time"
    }

    fn title(&self) -> &'static str {
        "Time in malloc"
    }

    fn explain(&self) -> Explain {
        Explain {
            definition: "Time inside calls of malloc's and free's families. In full mode one call in 61 is timed and stands for the \
                others: time = calls * mean of those that were timed, allocations and frees each for themselves; in sampled mode every sample is timed and stands for \
                weight / bytes calls. Calls above 10 us had to wait: for the lock of an arena that another thread holds, or for the kernel, \
                which gives new pages (page faults, mmap, brk) or takes them back; or their processor was taken from them. Beside them stand page faults a second \
                and the processor's time in the kernel, from /proc, where --counters read them.",
            unit: "ns in JSON; over all threads, which run at the same time: their share of the wall time may exceed 100 %. Percent of the process's \
                wall time.",
            limits: "A time holds one read of the clock, 10 to 15 ns. Estimates from few timed calls are rough: their number is told; a share of wall time is never told as more than 100 %. Culled calls have no times and count like the others. \
                Why a call was slow is not known: many slow calls in several threads at once speak of a lock, in one of page faults, which \
                the counters confirm. A large allocation is slow later, when its pages are touched first: that is no time in malloc. \
                Page faults and system time are of the whole process, whatever caused them.",
            source: "mallinfo and arenas as in the GNU C library's manual.",
        }
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Allocations, Need::Counters]
    }

    fn metrics(&self) -> &'static [Metric] {
        use Unit::*;
        const METRICS: &[Metric] = &[
            Metric::about("time_ns", Ns, "time in malloc, and free where that is timed, over all threads")
                .sums(&[TableId::HostMemory]),
            Metric::cost("wall_percent", Percent, "that time of the process's wall time, where that is most")
                .sums(&[TableId::HostMemory])
                .unsteady(),
            Metric::about("error_percent", Percent, "error of the time: two standard deviations"),
            Metric::about("timed_calls", Count, "calls that were timed").sums(&[TableId::HostMemory]),
            Metric::cost("avg_ns", Ns, "mean of a call").unsteady(),
            Metric::about("slow_calls", Count, "calls above 10 us").sums(&[TableId::HostMemory]),
            Metric::cost("slow_percent", Percent, "the part of the time that is in them").unsteady(),
            Metric::cost("page_faults_per_s", PerS, "page faults a second, of the process with most").unsteady(),
            Metric::cost(
                "system_percent",
                Percent,
                "time on processors in the kernel, of the process with most; 100 is one",
            )
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
        let processes = processes(facts);
        let sum: Sum = processes.iter().map(|(_, process)| Sum::of(&process.calls)).fold(Sum::default(), Sum::and);
        let wall = processes.iter().filter_map(|(id, process)| share(facts, *id, Sum::of(&process.calls).ns));
        let known = |value: f64| (sum.timed > 0).then_some(value);
        let most = |of: fn(&FromOutside) -> Option<f64>| {
            processes.iter().filter_map(|(id, _)| of(&FromOutside::of(facts, *id))).max_by(f64::total_cmp)
        };
        section.fact("time_ns", "time in malloc", Unit::Ns, known(sum.ns));
        section.fact("error_percent", "error (+-)", Unit::Percent, sum.error_percent());
        section.fact("wall_percent", "of wall time", Unit::Percent, wall.max_by(f64::total_cmp));
        section.fact("timed_calls", "calls that were timed", Unit::Count, sum.timed);
        section.fact("avg_ns", "mean of a call", Unit::Ns, known(sum.ns / sum.calls));
        section.fact("slow_calls", "calls above 10 us", Unit::Count, known(sum.slow.0.round()));
        section.fact("slow_percent", "of the time", Unit::Percent, percent(sum.slow.1, sum.ns));
        section.fact("page_faults_per_s", "page faults a second", Unit::PerS, most(|outside| outside.faults));
        section.fact("system_percent", "in the kernel", Unit::Percent, most(|outside| outside.system));
        section.table(by_process(facts, &processes));
        section.table(of_stacks(facts));
        section.table(by_thread(facts));
        let frees = |(_, process): &(i64, &OfProcess)| process.calls[1].calls > 0.0 && process.calls[1].timed.rows == 0;
        if sum.timed > 0 && processes.iter().any(frees) {
            section.note("Frees were not timed: what they take is in no number here.");
        }
        let beyond = |(id, process): &&(i64, &OfProcess)| Sum::of(&process.calls).ns > facts.wall_ns(*id).max(1.0);
        if let Some((id, process)) = processes.iter().find(beyond) {
            let sum = Sum::of(&process.calls);
            let timed = counted(sum.timed as f64, "timed call", "timed calls");
            let error = if sum.ns > 0.0 { 200.0 * sum.variance.sqrt() / sum.ns } else { 0.0 };
            section.note(format!(
                "{}: by its {timed} malloc took longer than the run (+- {error:.0} %): several threads were in it at once, or the estimate is too long. Its share is told as 100 %.",
                facts.label(*id)
            ));
        }
        if sum.timed == 0 {
            section.note("No call of malloc was timed: there were too few.");
        }
        if !facts.trace.may_hold(TableId::Counters) {
            section.note("Page faults and time in the kernel are not known: no counters were read (--counters off, or a run shorter than a second).");
        }
        section
    }
}

/// Allocations and frees together, estimated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    /// Calls.
    pub(crate) calls: f64,
    /// Time in them.
    pub(crate) ns: f64,
    /// Calls that were timed.
    pub(crate) timed: u64,
    slow: (f64, f64),
    variance: f64,
}

impl Sum {
    /// Of allocations and frees.
    pub(crate) fn of(calls: &[Calls; 2]) -> Sum {
        let of = |calls: &Calls| {
            let timed = calls.timed.rows;
            // Calls of which none was timed have no time; they are none of the mean either.
            let all = if timed > 0 { calls.calls } else { 0.0 };
            Sum { calls: all, ns: calls.ns(), timed, slow: calls.slow(), variance: calls.variance() }
        };
        of(&calls[0]).and(of(&calls[1]))
    }

    fn and(self, other: Sum) -> Sum {
        Sum {
            calls: self.calls + other.calls,
            ns: self.ns + other.ns,
            timed: self.timed + other.timed,
            slow: (self.slow.0 + other.slow.0, self.slow.1 + other.slow.1),
            variance: self.variance + other.variance,
        }
    }

    /// Two standard deviations of the time, in percent of it.
    fn error_percent(&self) -> Value {
        (self.ns > 0.0).then(|| 200.0 * self.variance.sqrt() / self.ns).into()
    }
}

/// The stack in whose allocations and frees a process spent most time, with its site.
pub(crate) fn slowest<'a>(facts: &'a Facts<'_>, process_id: i64) -> Option<&'a Site> {
    let all = largest(facts, |of| if of.process_id == process_id { Sum::of(&of.stack.calls).ns } else { 0.0 });
    all.first()?.site(facts)
}

/// What /proc says of a process.
#[derive(Clone, Copy, Debug, Default)]
struct FromOutside {
    /// Page faults a second.
    faults: Option<f64>,
    /// Percent of a processor in the kernel.
    system: Option<f64>,
}

impl FromOutside {
    fn of(facts: &Facts<'_>, process_id: i64) -> FromOutside {
        let is_its = |subject: &Subject| matches!(subject, Subject::Process(id, device) if *id == process_id && device.is_empty());
        let mut all = facts.counters.all.iter().filter(|((_, subject), _)| is_its(subject)).map(|(_, of)| of);
        let Some(of) = all.next() else { return FromOutside::default() };
        let sum = |of: &Of, name| of.get("proc", name).map(|values| values.sum());
        let faults = sum(of, "minor_faults").map(|minor| minor + sum(of, "major_faults").unwrap_or(0.0));
        let wall_ns = facts.wall_ns(process_id);
        FromOutside {
            faults: faults.filter(|_| wall_ns > 0.0).map(|faults| faults * 1e9 / wall_ns),
            system: of.get("proc", "cpu_system").map(|values| values.mean()),
        }
    }
}

/// A time as a share of a process's wall time, in percent. An estimate from few timed calls may be longer than that: it is all of it then.
fn share(facts: &Facts<'_>, process_id: i64, ns: f64) -> Option<f64> {
    let wall_ns = facts.wall_ns(process_id);
    (wall_ns > 0.0).then(|| (100.0 * ns / wall_ns).min(100.0))
}

fn processes<'a>(facts: &'a Facts<'_>) -> Vec<(i64, &'a OfProcess)> {
    let mut all: Vec<_> = facts.allocations.processes.iter().map(|(id, process)| (*id, process)).collect();
    let ns = |process: &OfProcess| Sum::of(&process.calls).ns;
    all.sort_by(|(a_id, a), (b_id, b)| {
        ns(b).total_cmp(&ns(a)).then_with(|| facts.place(*a_id).cmp(&facts.place(*b_id)))
    });
    all
}

fn by_process(facts: &Facts<'_>, processes: &[(i64, &OfProcess)]) -> Table {
    const COLUMNS: [Column; 9] = [
        PROCESS,
        column("program", "Program", Unit::Name),
        column("total_ns", "Total", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
        column("avg_ns", "Avg", Unit::Ns),
        column("slow_calls", "Above 10 us", Unit::Count),
        column("slow_ns", "Time in these", Unit::Ns),
        column("page_faults_per_s", "Page faults", Unit::PerS),
        column("system_percent", "In the kernel", Unit::Percent),
    ];
    let row = |(id, process): &(i64, &OfProcess)| {
        let (sum, outside) = (Sum::of(&process.calls), FromOutside::of(facts, *id));
        vec![
            facts.label(*id).into(),
            facts.program(*id).into(),
            sum.ns.into(),
            share(facts, *id, sum.ns).into(),
            (sum.ns / sum.calls).into(),
            whole(sum.slow.0),
            sum.slow.1.into(),
            outside.faults.into(),
            outside.system.into(),
        ]
    };
    Table::new("by_process", "By process", &COLUMNS, processes.iter().map(row).collect())
}

fn of_stacks(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 13] = [
        PROCESS,
        SITE,
        column("total_ns", "Total", Unit::Ns),
        column("error_percent", "+-", Unit::Percent),
        column("wall_percent", "Of wall", Unit::Percent),
        column("avg_ns", "Avg", Unit::Ns),
        column("timed_calls", "Timed", Unit::Count),
        column("slow_calls", "Above 10 us", Unit::Count),
        column("slow_ns", "Time in these", Unit::Ns),
        VIA,
        PLACE,
        STACK,
        STACK_ID,
    ];
    let all = largest(facts, |of| Sum::of(&of.stack.calls).ns);
    let title = "By stack of the allocation (frees of its blocks with it)";
    by_stack::table(facts, &all, ["by_stack", title], &COLUMNS, |of| {
        let sum = Sum::of(&of.stack.calls);
        [
            sum.ns.into(),
            sum.error_percent(),
            share(facts, of.process_id, sum.ns).into(),
            (sum.ns / sum.calls).into(),
            sum.timed.into(),
            whole(sum.slow.0),
            sum.slow.1.into(),
        ]
    })
}

fn by_thread(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 8] = [
        PROCESS,
        column("tid", "Thread", Unit::Text),
        column("name", "Name", Unit::Name),
        column("total_ns", "Total", Unit::Ns),
        column("wall_percent", "Of wall", Unit::Percent),
        column("avg_ns", "Avg", Unit::Ns),
        column("slow_calls", "Above 10 us", Unit::Count),
        column("slow_ns", "Time in these", Unit::Ns),
    ];
    let names = facts.trace.thread_names();
    let threads = facts.allocations.threads.iter().map(|(key, thread)| (key, Sum::of(&thread.calls)));
    let mut threads: Vec<_> = threads.filter(|(_, sum)| sum.ns > 0.0).collect();
    threads.sort_by(|(a_key, a), (b_key, b)| {
        b.ns.total_cmp(&a.ns).then_with(|| (facts.place(a_key.0), a_key.1).cmp(&(facts.place(b_key.0), b_key.1)))
    });
    let row = |(key, sum): &(&(i64, i32), Sum)| {
        let (process_id, tid) = **key;
        vec![
            facts.label(process_id).into(),
            tid.to_string().into(),
            names.get(*key).cloned().into(),
            sum.ns.into(),
            share(facts, process_id, sum.ns).into(),
            (sum.ns / sum.calls).into(),
            whole(sum.slow.0),
            sum.slow.1.into(),
        ]
    };
    Table::new("by_thread", "By thread", &COLUMNS, threads.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn one_timed_call_in_64_stands_for_the_others_and_slow_ones_are_told_apart() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let [small, large] = [("small", 3), ("large", 4)].map(|(f, line)| trace.stack(f, "/home/u/x.py", line));
        let mut thread = trace.thread(1, 11);
        for n in 0..640 {
            let ns = (n % 64 == 0).then_some(50);
            thread.host_memory("alloc", 16, 16.0, json!({ "stack_id": small, "api_ns": ns }));
        }
        for n in 0..64 {
            let ns = (n == 7).then_some(30_000);
            thread.host_memory("alloc", 1 << 20, f64::from(1 << 20), json!({ "stack_id": large, "api_ns": ns }));
        }
        trace.counter(1_000, Ok(1), "proc", "minor_faults", 30.0);
        trace.counter(2_000, Ok(1), "proc", "minor_faults", 20.0);
        trace.counter(2_000, Ok(1), "proc", "cpu_system", 12.5);
        let section = trace.section(&MallocTime);
        // Eleven of 704 were timed: 30,500 ns.
        assert_eq!((section.get("time_ns"), section.get("timed_calls")), (&1_952_000.0.into(), &Value::Int(11)));
        assert_eq!((section.get("slow_calls"), section.get("page_faults_per_s")), (&64.0.into(), &500.0.into()));
        assert_eq!((section.get("system_percent"), section.get("wall_percent")), (&12.5.into(), &1.952.into()));
        let row = |row: usize| {
            ["site", "total_ns", "avg_ns", "slow_calls", "slow_ns"].map(|c| section.cell("by_stack", row, c).clone())
        };
        assert_eq!(
            row(0),
            ["x.py:4 large".into(), 1_920_000.0.into(), 30_000.0.into(), 64i64.into(), 1_920_000.0.into()]
        );
        // One call of 64 says how long all were: it may have been the only one that was slow.
        assert!(
            matches!(section.cell("by_stack", 0, "error_percent"), Value::Num(error) if (198.0..199.0).contains(error))
        );
        assert_eq!(row(1), ["x.py:3 small".into(), 32_000.0.into(), 50.0.into(), 0i64.into(), 0.0.into()]);
        assert_eq!(section.cell("by_thread", 0, "total_ns"), &1_952_000.0.into());
        assert!(section.notes.is_empty(), "{:?}", section.notes);
    }

    #[test]
    fn a_share_of_the_run_is_no_more_than_all_of_it_and_the_error_is_said() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000);
        let mut thread = trace.thread(1, 11);
        for n in 0..64 {
            let ns = (n == 7).then_some(30_000);
            thread.host_memory("alloc", 1 << 20, f64::from(1 << 20), json!({ "api_ns": ns }));
        }
        let section = trace.section(&MallocTime);
        assert_eq!((section.get("time_ns"), section.get("wall_percent")), (&1_920_000.0.into(), &100.0.into()));
        let said = "pid 100: by its 1 timed call malloc took longer than the run (+- 198 %)";
        assert!(section.notes.iter().any(|note| note.starts_with(said)), "{:?}", section.notes);
    }

    #[test]
    fn a_sample_stands_for_the_calls_of_its_size_and_what_was_not_timed_has_no_time() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        let mut thread = trace.thread(1, 11);
        thread.host_memory("alloc", 1000, 500_000.0, json!({ "api_ns": 40 }));
        let section = trace.section(&MallocTime);
        assert_eq!((section.get("time_ns"), section.get("avg_ns")), (&20_000.0.into(), &40.0.into()));
        assert_eq!(section.get("page_faults_per_s"), &Value::Missing);
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 100_000_000);
        trace.thread(1, 11).malloc("alloc", 10, 10.0);
        let section = trace.section(&MallocTime);
        assert_eq!((section.get("time_ns"), section.get("avg_ns")), (&Value::Missing, &Value::Missing));
    }
}
