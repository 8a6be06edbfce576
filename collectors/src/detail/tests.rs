//! What the stage lets through, and where the rest is counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use gputrace_abi::Class;

use super::*;
use crate::manifest::{Count, Manifest, Process};
use crate::process::pending::Ahead;
use crate::share::Share;
use crate::tables::{Call, CommandBuffer, HostAction, HostCall, Launch, Range, RangeKind, Tables};

const SECOND: i64 = 1_000_000_000;

fn call(class: Class, start_ns: i64, process_id: i64, result: i32) -> Call {
    Call {
        class,
        start_ns,
        api_ns: 10,
        process_id,
        pid: 40 + process_id as i32,
        tid: 5,
        correlation_id: 6,
        api_id: 7,
        context: 8,
        device: None,
        stream: 9,
        captured: false,
        result,
        ahead: Ahead::default(),
        stack_id: None,
    }
}

fn triggered(before: Duration, bytes: u64) -> Stage {
    Stage::new(Detail::Triggered { before, bytes, also: Triggers::default() }, 0).expect("a stage")
}

/// Gives the stage a batch of waits that began at these times.
fn syncs(stage: &mut Stage, at: impl IntoIterator<Item = i64>) {
    let mut tables = Tables::new();
    at.into_iter().for_each(|at| tables.sync(&call(Class::Sync, at, 1, 0), 1, 0));
    give(stage, &mut tables);
}

fn give(stage: &mut Stage, tables: &mut Tables) -> usize {
    let mut on = Vec::new();
    tables.take(1).for_each(|message| stage.take(message, &mut on));
    on.len()
}

/// When the rows began that are on their way to the writer, and whose events they are.
fn passed(stage: &mut Stage) -> (Vec<i64>, Vec<Share>) {
    let (mut starts, mut all) = (Vec::new(), Vec::new());
    while let Some(Message::Rows(_, rows, shares)) = stage.next() {
        starts.extend(rows.column_by_name("start_ns").unwrap().as_primitive::<Int64Type>().values());
        all.extend(shares);
    }
    (starts, all)
}

/// What the account of process 1 says was left out, by class.
fn left_out(stage: &Stage) -> BTreeMap<String, u64> {
    let count = Count { seen: 10_000, recorded: 5000, culled: 5000, ..Count::default() };
    let accounting = Class::ALL.into_iter().map(|class| (class.name().to_owned(), count)).collect();
    let processes = vec![Process { process_id: 1, accounting, ..Process::default() }];
    let mut manifest = Manifest { processes, ..Manifest::default() };
    stage.left_out().enter(&mut manifest);
    let process = manifest.processes.remove(0);
    assert!(process.accounting.values().all(Count::is_balanced));
    process.accounting.into_iter().filter(|(_, c)| c.left_out > 0).map(|(class, c)| (class, c.left_out)).collect()
}

#[test]
fn a_trigger_keeps_what_began_around_it_and_the_rest_is_left_out() {
    let mut stage = triggered(Duration::from_secs(5), QUEUE_BYTES);
    (0..10).for_each(|second| syncs(&mut stage, (0..4).map(|n| second * SECOND + n * SECOND / 4)));
    assert_eq!(passed(&mut stage).0, Vec::<i64>::new());
    stage.trigger(9 * SECOND + SECOND / 2, "a test").unwrap();
    // What comes later and began in the second after it is kept, too.
    syncs(&mut stage, [10 * SECOND, 10 * SECOND + SECOND / 2, 11 * SECOND]);
    let (starts, shares) = passed(&mut stage);
    let wanted: Vec<i64> = (18..40).map(|n| n * SECOND / 4).chain([10 * SECOND]).collect();
    assert_eq!(starts, wanted);
    assert_eq!(shares.iter().map(|share| share.rows).sum::<u64>(), 23);
    assert_eq!(left_out(&stage), [("sync".to_owned(), 20)].into());
    assert_eq!(stage.describe().intervals[0].to_ns, 10_500_000_000);
    stage.finish(10_250_000_000);
    assert_eq!(left_out(&stage), [("sync".to_owned(), 20)].into());
    let [interval] = stage.describe().intervals.try_into().unwrap();
    assert_eq!((interval.from_ns, interval.to_ns), (4_500_000_000, 10_250_000_000));
    assert_eq!(interval.why, "a test");
}

#[test]
fn a_second_trigger_in_an_open_interval_makes_it_longer_and_later_ones_are_bounded() {
    let mut stage = triggered(Duration::from_secs(1), QUEUE_BYTES);
    stage.trigger(10 * SECOND, "one").unwrap();
    stage.trigger(10 * SECOND + SECOND / 2, "two").unwrap();
    stage.trigger(10 * SECOND + SECOND / 2, "two").unwrap();
    let first = Interval { from_ns: 9 * SECOND, to_ns: 11 * SECOND + SECOND / 2, why: "one; two".to_owned() };
    assert_eq!(stage.describe().intervals, [first]);
    for n in 2..20 {
        assert_eq!(stage.trigger(n * 10 * SECOND, "more").is_ok(), n <= MOST_INTERVALS as i64);
    }
    assert_eq!(stage.describe().refused, 9);
    stage.trigger_last(900 * SECOND, "the end");
    assert_eq!(stage.describe().intervals.len(), MOST_INTERVALS + 1);
}

#[test]
fn what_is_too_old_or_too_much_is_let_go_and_no_interval_claims_it() {
    let mut stage = triggered(Duration::from_secs(5), QUEUE_BYTES);
    (0..20).for_each(|second| syncs(&mut stage, [second * SECOND]));
    stage.tick(20 * SECOND);
    // Five seconds, and one for who notices late.
    assert_eq!(left_out(&stage)["sync"], 20);
    assert_eq!(stage.queue.iter().count(), 6);
    assert_eq!(stage.describe().held_ns, None);

    let mut stage = triggered(Duration::from_secs(30), 20_000);
    (0..300).for_each(|n| syncs(&mut stage, (0..8).map(|row| n * SECOND / 10 + row)));
    let bytes: usize = stage.queue.iter().map(|held| held.bytes()).sum();
    assert!(bytes <= 20_000 && bytes > 10_000, "{bytes}");
    let held_ns = stage.describe().held_ns.expect("the bytes bounded it");
    assert!(held_ns < 30 * SECOND, "{held_ns}");
    stage.trigger(30 * SECOND, "late").unwrap();
    let (starts, shares) = passed(&mut stage);
    let from_ns = stage.describe().intervals[0].from_ns;
    assert!(from_ns > SECOND && starts.iter().all(|start| *start >= from_ns), "{from_ns}");
    let kept: u64 = shares.iter().map(|share| share.rows).sum();
    assert!(kept == starts.len() as u64 && kept > 0 && kept < 2400);
    stage.finish(31 * SECOND);
    assert_eq!(left_out(&stage)["sync"] + kept, 2400);
}

#[test]
fn windows_keep_the_rows_that_begin_in_them_and_nothing_waits() {
    let detail = Detail::Windows { length: Duration::from_secs(1), period: Duration::from_secs(10) };
    let mut stage = Stage::new(detail, 0).unwrap();
    syncs(&mut stage, (0..100).map(|n| n * SECOND / 2));
    let starts = passed(&mut stage).0;
    assert_eq!(starts, (0..100).filter(|n| n % 20 < 2).map(|n| n * SECOND / 2).collect::<Vec<_>>());
    assert_eq!((left_out(&stage)["sync"], stage.queue.iter().count()), (90, 0));
    assert_eq!(stage.trigger(0, "nobody waits"), Err(Refused::NoRecorder));
}

#[test]
fn rollups_alone_let_no_single_event_through_and_everything_else() {
    let mut stage = Stage::new(Detail::Rollup, 0).unwrap();
    let mut tables = Tables::new();
    tables.name(7, "api", "cuStreamSynchronize");
    tables.sync(&call(Class::Sync, 5, 1, 0), 1, 0);
    assert_eq!(give(&mut stage, &mut tables), 1, "names pass");
    assert!(stage.is_empty() && left_out(&stage) == [("sync".to_owned(), 1)].into());
    assert!(Stage::new(Detail::Full, 0).is_none());
}

#[test]
fn shares_are_right_where_a_batch_holds_several_classes_and_processes() {
    let detail = Detail::Windows { length: Duration::from_nanos(100), period: Duration::from_secs(1) };
    let mut stage = Stage::new(detail, 0).unwrap();
    let mut tables = Tables::new();
    // Each is there twice: wanted, at 10, and not, at 500; of another process only wanted.
    for at in [10, 500] {
        tables.memory(&call(Class::Alloc, at, 1, 0), 1, 0, 0, None);
        tables.memory(&call(Class::Free, at, 1, 0), 1, 0, 0, None);
        tables.api(&call(Class::Api, at, 1, 0), 0, false);
        tables.api(&call(Class::Module, at, 1, 0), 0, false);
        tables.api(&call(Class::Module, at, 1, 0), 0, false);
        tables.api(&call(Class::Sync, at, 1, 0), 0, false);
        let range = Range {
            start_ns: at,
            end_ns: Some(at + 5),
            process_id: 1,
            pid: 1,
            tid: 1,
            correlation_id: 1,
            kind: RangeKind::PushPop,
            name_id: None,
            domain_id: None,
            level: None,
            category: None,
            category_id: None,
            color: None,
            payload_int: None,
            payload_float: None,
        };
        tables.range(&range);
        tables.range(&Range { end_ns: None, ..range });
        tables.range(&Range { kind: RangeKind::Mark, ..range });
        for (action, calls) in [(HostAction::Alloc, 3), (HostAction::Unmap, 2), (HostAction::Culled, 11)] {
            tables.host(&HostCall { action, start_ns: at, process_id: 1, calls, ..HostCall::default() });
        }
        for events in [5, 7] {
            tables.command_buffer(&CommandBuffer { start_ns: at, process_id: 1, events, ..CommandBuffer::default() });
        }
    }
    tables.memory(&call(Class::Free, 20, 2, 0), 1, 0, 0, None);
    give(&mut stage, &mut tables);
    let (starts, shares) = passed(&mut stage);
    assert!(starts.iter().all(|at| [10, 20].contains(at)), "{starts:?}");
    let mut kept: BTreeMap<String, u64> = BTreeMap::new();
    for share in shares.iter().filter(|share| share.process_id == 1) {
        *kept.entry(Class::from_u8(share.class).unwrap().name().to_owned()).or_default() += share.rows + share.culled;
    }
    let own = [
        ("alloc", 1),
        ("api", 1),
        ("encode", 12),
        ("free", 1),
        ("host_alloc", 14),
        ("host_free", 13),
        ("module", 2),
        ("range", 4),
        ("sync", 1),
    ];
    let own: BTreeMap<String, u64> = own.into_iter().map(|(class, rows)| (class.to_owned(), rows)).collect();
    assert_eq!((kept, left_out(&stage)), (own.clone(), own));
    assert_eq!(shares.iter().filter(|share| share.process_id == 2).map(|share| share.rows).sum::<u64>(), 1);
}

#[test]
fn the_first_call_that_returns_an_error_is_worth_keeping_and_later_ones_of_that_code_are_not() {
    let mut stage = triggered(Duration::from_secs(1), QUEUE_BYTES);
    let mut tables = Tables::new();
    tables.name(7, "api", "cuStreamQuery");
    // Not ready is an answer, and the driver's being gone is how processes end.
    for (at, result) in [(10, 0), (20, 600), (25, 4), (30, 700), (40, 700), (50, 719)] {
        tables.sync(&call(Class::Sync, at * SECOND, 1, result), 1, 0);
        give(&mut stage, &mut tables);
    }
    tables.sync(&call(Class::Sync, 60 * SECOND, 2, 700), 1, 0);
    give(&mut stage, &mut tables);
    let intervals = stage.describe().intervals;
    let found: Vec<_> = intervals.iter().map(|i| ((i.from_ns - 10) / SECOND, i.why.clone())).collect();
    let said = [(29, 700, "ILLEGAL_ADDRESS", 41), (49, 719, "LAUNCH_FAILED", 41), (59, 700, "ILLEGAL_ADDRESS", 42)];
    let said = said.map(|(at, result, name, pid)| {
        let stays = "which stays: every later call of its context fails";
        (at, format!("cuStreamQuery returned {result} (CUDA_ERROR_{name}, {stays}) in process {pid}"))
    });
    assert_eq!(found, said);
    assert_eq!(passed(&mut stage).0, [30, 50, 60].map(|second| second * SECOND));
}

#[test]
fn a_wait_that_takes_far_longer_than_is_usual_is_worth_keeping_where_that_was_asked_for() {
    for (slow, said) in
        [(Some(5), vec!["cuCtxSynchronize took 30000 us, where about 1048 us are usual"]), (None, Vec::new())]
    {
        let detail = Detail::Triggered {
            before: Duration::from_secs(1),
            bytes: QUEUE_BYTES,
            also: Triggers { slow, ..Triggers::default() },
        };
        let mut stage = Stage::new(detail, 0).unwrap();
        let mut tables = Tables::new();
        tables.name(7, "api", "cuCtxSynchronize");
        let wait = |tables: &mut Tables, at: i64, api_ns: i64, kind: u8| {
            tables.sync(&Call { api_ns, ..call(Class::Sync, at * SECOND, 1, 0) }, kind, 0);
        };
        // Nobody knows yet what is usual; then a wait of four times the usual, a slow one, and a question, which is no wait.
        let (context, query) = (1, 4);
        wait(&mut tables, 1, 80_000_000, context);
        (2..400).for_each(|at| wait(&mut tables, at, 1_000_000, context));
        give(&mut stage, &mut tables);
        for (at, api_ns, kind) in [(500, 4_000_000, context), (600, 30_000_000, context), (700, 90_000_000, query)] {
            wait(&mut tables, at, api_ns, kind);
            give(&mut stage, &mut tables);
        }
        let whys: Vec<String> = stage.describe().intervals.into_iter().map(|interval| interval.why).collect();
        assert_eq!(whys, said);
    }
}

/// A batch of the names of ranges, by their ids.
fn range_names(names: &[(i64, &str)]) -> Message {
    let ids = Arc::new(Int64Array::from_iter_values(names.iter().map(|(id, _)| *id)));
    let kinds = Arc::new(StringArray::from_iter_values(names.iter().map(|_| "range")));
    let texts = Arc::new(StringArray::from_iter_values(names.iter().map(|(_, name)| *name)));
    let rows = RecordBatch::try_new(TableId::Names.table().arrow(), vec![ids, kinds, texts]).unwrap();
    Message::Rows(TableId::Names, rows, Vec::new())
}

#[test]
fn a_step_far_longer_than_the_median_opens_an_interval_where_that_was_asked_for() {
    let also = Triggers { slow_step: Some(3), ..Triggers::default() };
    let detail = Detail::Triggered { before: Duration::from_secs(1), bytes: 1 << 20, also };
    let (mut asked, mut not) = (Stage::new(detail, 0).unwrap(), triggered(Duration::from_secs(1), 1 << 20));
    for stage in [&mut asked, &mut not] {
        stage.take(range_names(&[(7, "ProfilerStep#4"), (8, "forward")]), &mut Vec::new());
        let range = |name_id, start_ns, ns| Range {
            start_ns,
            end_ns: Some(start_ns + ns),
            process_id: 1,
            pid: 41,
            tid: 5,
            correlation_id: 6,
            kind: RangeKind::PushPop,
            name_id: Some(name_id),
            domain_id: None,
            level: Some(0),
            category: None,
            category_id: None,
            color: None,
            payload_int: None,
            payload_float: None,
        };
        let mut now = 10 * SECOND;
        let mut batch = |stage: &mut Stage, steps: &[(i64, i64)]| {
            let mut tables = Tables::new();
            for (name_id, ns) in steps {
                tables.range(&range(*name_id, now, *ns));
                now += SECOND / 100;
            }
            give(stage, &mut tables);
        };
        // A long one among the first is no moment: nobody knows yet what is usual.
        batch(stage, &[[(7, 9_000_000)].as_slice(), &[(7, 1_000_000); 30]].concat());
        batch(stage, &[(7, 2_000_000), (8, 9_000_000), (7, 1_000_000)]);
        assert_eq!(stage.describe().intervals, []);
        batch(stage, &[(7, 1_000_000), (7, 4_000_000), (7, 9_000_000), (7, 1_000_000)]);
    }
    let [interval] = asked.describe().intervals.try_into().unwrap();
    assert!(
        interval.why.starts_with("a step took 9.0 ms, where about ") && interval.why.ends_with(" ms are usual"),
        "{interval:?}"
    );
    assert_eq!(not.describe().intervals, []);
}

#[test]
fn a_failure_that_stays_is_told_from_one_that_does_not() {
    let mut stage = triggered(Duration::from_secs(1), 1 << 20);
    let mut fail = |at: i64, result: i32| {
        let mut tables = Tables::new();
        tables.sync(&call(Class::Sync, at, 1, result), 1, 0);
        give(&mut stage, &mut tables);
        stage.describe().intervals.pop().unwrap().why
    };
    assert_eq!(fail(10 * SECOND, 2), "a call returned 2 (CUDA_ERROR_OUT_OF_MEMORY) in process 41");
    let stays = "a call returned 700 (CUDA_ERROR_ILLEGAL_ADDRESS, which stays: every later call of its context fails) in process 41";
    assert_eq!(fail(20 * SECOND, 700), stays);
}

#[test]
fn a_kernel_that_is_new_after_its_process_has_settled_opens_an_interval_where_that_was_asked_for() {
    let also = Triggers { new_kernel: Some(Duration::from_secs(10)), ..Triggers::default() };
    let mut stage = Stage::new(Detail::Triggered { before: Duration::from_secs(1), bytes: 1 << 20, also }, 0).unwrap();
    let mut tables = Tables::new();
    [(1, "first"), (2, "second"), (3, "_Z5thirdv"), (4, "fourth")]
        .iter()
        .for_each(|(id, name)| tables.name(*id, "kernel", name));
    give(&mut stage, &mut tables);
    let launch = |stage: &mut Stage, process: i64, all: &[(i64, Option<i64>)]| {
        let mut tables = Tables::new();
        for (at, name_id) in all {
            let launch = Launch {
                name_id: *name_id,
                function: 9,
                grid: [1; 3],
                block: [1; 3],
                shared_bytes: 0,
                kernels: None,
                graph_exec_id: None,
                stack_launches: None,
                stands_for: None,
            };
            tables.launch(&call(Class::Launch, at * SECOND, process, 0), &launch);
        }
        give(stage, &mut tables);
        stage.describe().intervals.len()
    };
    // All are new at the begin, and one that comes soon after the others; another process has its own.
    assert_eq!(launch(&mut stage, 1, &[(100, Some(1)), (109, Some(2)), (150, Some(1)), (160, None)]), 0);
    assert_eq!(launch(&mut stage, 2, &[(170, Some(3))]), 0);
    // Of those that are new together the first one counts, and no kernel counts twice.
    assert_eq!(launch(&mut stage, 1, &[(200, Some(3)), (203, Some(4)), (230, Some(3)), (240, Some(4))]), 1);
    let why = "process 41 launched third for the first time, after 91.0 s without a new kernel";
    assert_eq!(stage.describe().intervals[0].why, why);
}
