//! Sums of processes that come and go, and what is told of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gputrace_abi::event::detail;

use super::*;
use crate::manifest::{self, Cost, Count};
use crate::rollups::Key;
use crate::tables::{StackRow, Stacked};

const SECOND: i64 = 1_000_000_000;

fn event(process_id: i64, kind: RowKind, start_ns: i64, took_ns: i64) -> Folded {
    Folded {
        key: Key::new(process_id, process_id as i32, kind),
        start_ns,
        took_ns: Some(took_ns),
        events: 1,
        bytes: 10,
        failed: false,
    }
}

fn launch(process_id: i64, took_ns: i64) -> Folded {
    event(process_id, RowKind::of(Class::Launch), 0, took_ns)
}

/// A process in the manifest that made so many launches.
fn described(process_id: i64, seen: u64, dropped: u64) -> manifest::Process {
    let count = Count { seen, dropped, ..Count::default() };
    let cost = Cost { total_ns: Some(seen as f64 * 30.0), ..Cost::default() };
    manifest::Process { process_id, accounting: [("launch".to_owned(), count)].into(), cost, ..Default::default() }
}

/// What is told of processes, each with what it says of itself.
fn told(live: &mut Live, processes: &[&manifest::Process]) -> Snapshot {
    let mut snapshot = Snapshot { version: VERSION, ..Snapshot::default() };
    let own: Vec<_> = processes.iter().filter(|process| live.has_own(process.process_id)).collect();
    for process in own {
        let sums = account::described(process);
        let mut one = Process { process_id: process.process_id, sums, gpu: Some(Gpu::default()), ..Process::default() };
        live.complete(&mut one);
        snapshot.processes.push(one);
    }
    live.describe(0, &mut snapshot);
    snapshot
}

/// Launches of all: seen, read, lost, and their time.
fn launches(snapshot: &Snapshot) -> (u64, u64, u64, i64) {
    let all = snapshot.processes.iter().map(|process| &process.sums).chain([&snapshot.others]);
    all.filter_map(|sums| sums.kinds.get("launch")).fold((0, 0, 0, 0), |(seen, events, lost, ns), kind| {
        (seen + kind.seen, events + kind.events, lost + kind.dropped, ns + kind.total_ns)
    })
}

#[test]
fn a_process_that_ends_leaves_its_sums_to_the_others_and_none_runs_back() {
    let mut live = Live::default();
    live.began(1);
    live.began(2);
    (0..5).for_each(|n| live.fold(&launch(1, 100 + n)));
    live.fold(&launch(2, 1000));
    let before = told(&mut live, &[&described(1, 6, 1), &described(2, 1, 0)]);
    assert_eq!(launches(&before), (7, 6, 1, 1510));
    // It had been counted before it was known what became of it: the last account says less.
    live.ended(&described(1, 5, 0));
    live.fold(&launch(1, 7));
    let after = told(&mut live, &[&described(2, 1, 0)]);
    assert_eq!((launches(&after), after.ended, after.processes.len()), ((7, 7, 1, 1517), 1, 1));
    let others = &after.others.kinds["launch"];
    assert_eq!((others.durations.count(), others.bytes, after.others.cost_ns), (6, 60, Some(180.0)));
    // The next process takes its place, and none of its sums.
    live.began(3);
    let next = told(&mut live, &[&described(3, 0, 0)]);
    assert_eq!(next.processes[0].sums.kinds["launch"].events, 0);
}

#[test]
fn processes_beyond_the_bound_count_together_and_keep_to_that() {
    let mut live = Live::default();
    let all: Vec<_> = (0..3 * MOST_PROCESSES as i64).map(|id| described(id, 2, 0)).collect();
    for process in &all {
        live.began(process.process_id);
        live.fold(&launch(process.process_id, 1));
    }
    let list: Vec<&manifest::Process> = all.iter().collect();
    live.looked(list.iter().copied());
    let snapshot = told(&mut live, &list);
    assert_eq!(snapshot.processes.len(), MOST_PROCESSES);
    assert_eq!(launches(&snapshot), (1536, 768, 0, 768));
    // Of those that end nothing is lost.
    let mut last = launches(&snapshot);
    for process in &all[..300] {
        live.ended(process);
        live.fold(&launch(767, 1));
        let now = launches(&told(&mut live, &list));
        assert!(now.0 >= last.0 && now.1 > last.1 && now.3 > last.3, "{now:?} after {last:?}");
        last = now;
    }
    assert!(!live.has_own(767) && !live.has_own(3));
    // At the next look places that got free are taken.
    live.looked(list[300..].iter().copied());
    let now = told(&mut live, &list);
    assert_eq!((launches(&now), now.processes.len()), ((1536, 1068, 0, 1068), MOST_PROCESSES));
    assert!(live.has_own(300) && live.has_own(555) && !live.has_own(556));
}

#[test]
fn who_works_takes_the_place_of_who_does_not_and_no_sum_runs_back() {
    let mut live = Live::default();
    let last = MOST_PROCESSES as i64 + 1;
    (0..=last).for_each(|id| live.began(id));
    let class = |id: i64, class: &str, seen: u64| {
        let count = Count { seen, ..Count::default() };
        manifest::Process { process_id: id, accounting: [(class.to_owned(), count)].into(), ..Default::default() }
    };
    // All sleep, but for one that waits for the system, and behind them all two that use the GPU.
    let mut all: Vec<_> = (0..=last).map(|id| class(id, "os_wait", 0)).collect();
    all[MOST_PROCESSES - 1] = class(last - 2, "os_wait", 9);
    let look = |live: &mut Live, all: &[manifest::Process]| {
        live.looked(all.iter());
        told(live, &all.iter().collect::<Vec<_>>())
    };
    let before = look(&mut live, &all);
    assert!(live.has_own(0) && !live.has_own(last));
    for id in [last - 1, last] {
        live.fold(&launch(id, 100));
        live.memory(id, 4096);
        live.sees(id, ["GPU-a"].into_iter());
        all[id as usize] = described(id, 1, 0);
    }
    let after = look(&mut live, &all);
    assert!(live.has_own(last) && live.has_own(last - 1) && live.has_own(last - 2), "who works");
    assert_eq!(after.processes.len(), MOST_PROCESSES);
    assert_eq!((launches(&before), launches(&after)), ((0, 0, 0, 0), (2, 2, 0, 200)));
    let own = after.processes.iter().find(|process| process.process_id == last).unwrap();
    assert_eq!(own.sums.device_memory_bytes, 4096, "of all the time");
    let mut kernel = event(last, RowKind::KERNEL, 0, 7);
    kernel.key.device = Some(0);
    live.fold(&kernel);
    let again = look(&mut live, &all);
    assert_eq!(again.devices[0].busy_ns, 7);
    let gone: Vec<_> = again.processes.iter().map(|process| process.process_id).collect();
    assert_eq!(
        gone,
        after.processes.iter().map(|process| process.process_id).collect::<Vec<_>>(),
        "none comes and goes"
    );
}

#[test]
fn what_calls_waited_for_work_before_them_is_told_apart_from_what_they_took() {
    let mut live = Live::default();
    live.began(1);
    live.fold(&event(1, RowKind::of(Class::Free), 0, 1_000_000));
    let free = Memory { class: Class::Free, detail: detail::DEVICE, bytes: 0, took_ns: 1_000_000, pending: true };
    live.managed(1, &free);
    live.managed(1, &Memory { pending: false, ..free });
    live.fold(&event(1, RowKind::of(Class::Transfer), 0, 300));
    live.waited(1, Class::Transfer, 200);
    let kinds = &told(&mut live, &[&described(1, 0, 0)]).processes[0].sums.kinds;
    let of = |kind: &str| (kinds[kind].total_ns, kinds[kind].waited_ns);
    assert_eq!((of("free"), of("transfer")), ((1_000_000, 900_000), (300, 200)));
    live.ended(&described(1, 0, 0));
    assert_eq!(told(&mut live, &[]).others.kinds["free"].waited_ns, 900_000);
}

#[test]
fn the_time_that_is_known_of_a_process_does_not_run_back() {
    let mut live = Live::default();
    live.began(1);
    let observed = |live: &mut Live, observed_ns: i64| {
        let gpu = Some(Gpu { observed_ns, devices: Vec::new() });
        let mut process = Process { process_id: 1, gpu, ..Process::default() };
        live.complete(&mut process);
        process.gpu.unwrap().observed_ns
    };
    // Another process began, of which nothing was told yet.
    assert_eq!([301, 216, 400].map(|ns| observed(&mut live, ns)), [301, 301, 400]);
}

#[test]
fn busy_time_is_by_device_of_the_process_and_of_all_together() {
    let mut live = Live::default();
    for process in [1, 2] {
        live.began(process);
        // The one sees the devices in another order than the other.
        let uuids = if process == 1 { ["GPU-a", "GPU-b"] } else { ["GPU-b", "GPU-a"] };
        live.sees(process, uuids.into_iter());
    }
    let run = |live: &mut Live, process: i64, device: i32, start_ns: i64, took_ns: i64| {
        let mut folded = event(process, RowKind::KERNEL, start_ns, took_ns);
        folded.key.device = Some(device);
        live.fold(&folded);
    };
    run(&mut live, 1, 0, 0, 100);
    run(&mut live, 2, 1, 50, 100);
    run(&mut live, 1, 1, 50, 10);
    run(&mut live, 1, 7, 60, 5);
    let snapshot = told(&mut live, &[&described(1, 0, 0), &described(2, 0, 0)]);
    let busy = |devices: &[Device]| -> BTreeMap<Option<String>, i64> {
        devices.iter().map(|device| (device.uuid.clone(), device.busy_ns)).collect()
    };
    let name = |uuid: &str| Some(uuid.to_owned());
    assert_eq!(busy(&snapshot.devices), [(name("GPU-a"), 150), (name("GPU-b"), 10)].into());
    let first = snapshot.processes[0].gpu.as_ref().unwrap();
    assert_eq!(busy(&first.devices), [(name("GPU-a"), 100), (name("GPU-b"), 10), (None, 5)].into());
    assert_eq!(busy(&snapshot.processes[1].gpu.as_ref().unwrap().devices), [(name("GPU-a"), 100)].into());
}

#[test]
fn memory_and_readings_are_the_last_ones_and_go_with_their_process() {
    let mut live = Live::default();
    live.began(1);
    live.memory(1, 4096);
    live.memory(1, -1024);
    live.memory(9, 1 << 40);
    let read = |live: &mut Live, process: Option<i64>, device: Option<&str>, id: Id, value: f64| {
        let process = process.map(|id| (id, id as i32));
        let read = Read { monotonic_ns: 0, interval_ns: None, process, device: device.map(Arc::from), id, value };
        live.read(&read, 77);
    };
    read(&mut live, Some(1), None, Id::Rss, 10.0);
    read(&mut live, Some(1), None, Id::Rss, 12.0);
    read(&mut live, None, Some("GPU-a"), Id::PcieReplays, 2.0);
    read(&mut live, None, Some("GPU-a"), Id::PcieReplays, 3.0);
    read(&mut live, None, Some("GPU-a"), Id::Power, f64::NAN);
    let snapshot = told(&mut live, &[&described(1, 0, 0)]);
    let process = &snapshot.processes[0];
    assert_eq!((process.sums.device_memory_bytes, snapshot.others.device_memory_bytes), (3072, 0));
    let values = |readings: &[Reading]| {
        readings.iter().map(|r| (r.name.to_string(), r.device.clone(), r.at_ns, r.value, r.sum)).collect::<Vec<_>>()
    };
    assert_eq!(values(&process.counters), [("rss".to_owned(), None, 77, 12.0, 22.0)]);
    let device = Some("GPU-a".to_owned());
    assert_eq!(values(&snapshot.counters), [("pcie_replays".to_owned(), device, 77, 3.0, 5.0)]);
    live.ended(&described(1, 0, 0));
    assert_eq!(told(&mut live, &[]).others.device_memory_bytes, 0);
}

#[test]
fn what_is_hot_has_names_and_lines_and_only_where_somebody_looks() {
    let mut live = Live::default();
    live.began(1);
    live.name(5, "gemm");
    let frame = StackRow { language: "python", function: "step".into(), line: Some(9), ..StackRow::default() };
    live.stack(Stacked { id: 8, caller: None, joined: None, frame });
    let frame = StackRow { language: "native", function: "wait".into(), ..StackRow::default() };
    live.resolved().tell([Stacked { id: 9, caller: None, joined: None, frame }]);
    let add = |live: &mut Live| {
        for (kind, name_id, stack_id, took_ns) in [
            (RowKind::of(Class::Launch), Some(5), None, 3),
            (RowKind::of(Class::Launch), Some(6), None, 4),
            (RowKind::KERNEL, Some(5), None, 1000),
            (RowKind::of(Class::Sync), None, Some(8), 50),
            (RowKind::of(Class::Transfer), None, Some(9), 60),
            (RowKind::of(Class::OsWait), None, Some(9), 1 << 30),
        ] {
            let mut folded = event(1, kind, 0, took_ns);
            (folded.key.name_id, folded.key.stack_id) = (name_id, stack_id);
            live.fold(&folded);
        }
        live.launched(Some(8), Some(100), 2);
    };
    add(&mut live);
    let mut nobody = Snapshot::default();
    live.describe(SECOND, &mut nobody);
    assert_eq!(nobody.hot, None);
    live.want_hot(SECOND);
    add(&mut live);
    add(&mut live);
    let mut snapshot = Snapshot { version: VERSION, ..Snapshot::default() };
    live.describe(2 * SECOND, &mut snapshot);
    let hot = snapshot.hot.as_ref().expect("somebody looks");
    let kernels: Vec<_> =
        hot.kernels.iter().map(|k| (k.name.as_deref(), k.launches, k.launch_ns, k.timed, k.gpu_ns)).collect();
    assert_eq!(kernels, [(Some("gemm"), 2, 6, 2, 2000), (None, 2, 8, 0, 0)]);
    let sites: Vec<_> =
        hot.sites.iter().map(|s| (&*s.kind, s.frames[0].function.as_str(), s.calls, s.total_ns)).collect();
    let drawn: Vec<_> = hot.sites.iter().map(|s| s.drawn).collect();
    assert_eq!(drawn, [2, 0, 0, 0], "launches are an estimate from two");
    assert_eq!(
        sites,
        [
            ("launch", "step", 200, 400),
            ("transfer", "wait", 2, 120),
            ("sync", "step", 2, 100),
            ("os_wait", "wait", 2, 1 << 31)
        ]
    );
    // What is told is read as it was told, and another form is refused in words.
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(Snapshot::parse(&text), Ok(snapshot));
    let other = Snapshot::parse(&text.replacen("\"version\":1", "\"version\":2", 1)).unwrap_err();
    assert!(other.contains("another version"), "{other}");
    assert!(Snapshot::parse("nonsense").unwrap_err().contains("cannot be read"));
}

#[test]
fn whatever_comes_a_snapshot_is_bounded() {
    let mut live = Live::default();
    live.want_hot(0);
    for process in 0..1000 {
        live.began(process);
        for kind in 0..=u8::MAX {
            let mut folded = event(process, RowKind(kind), i64::MAX, i64::MAX);
            folded.key.name_id = Some(process * 256 + i64::from(kind));
            folded.key.stack_id = folded.key.name_id;
            folded.key.device = Some(i32::from(kind) - 5);
            (folded.bytes, folded.events) = (i64::MAX, u64::MAX);
            live.fold(&folded);
            live.launched(folded.key.stack_id, Some(i64::MAX), i64::MAX);
        }
        live.memory(process, i64::MAX);
        live.memory(process, i64::MAX);
    }
    let all: Vec<_> = (0..1000).map(|process| described(process, 1, 0)).collect();
    let snapshot = told(&mut live, &all.iter().collect::<Vec<_>>());
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(Snapshot::parse(&text), Ok(snapshot));
    assert!(text.len() < 8 << 20, "{} bytes", text.len());
}
