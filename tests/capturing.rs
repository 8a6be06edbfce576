//! Recording by itself in parts of a run only: in ranges, steps and times of the clock, and at a signal.

use std::time::Duration;

use gputrace_collectors::manifest::Interval;

use crate::switching::{grids, intervals, made, switched};
use crate::util::{Driver, Scratch, Target, driver_folder, linked_with_library, poll, program_with};

const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: i64 = 1_000_000_000;
/// A machine with much else to do wakes nobody up at once.
const LATE: i64 = SECOND * 7 / 10;

fn captured<'a>(scratch: &'a Scratch, scenario: &str) -> Target<'a> {
    let flags = linked_with_library("libcuda.so.1", &driver_folder(Driver::Plain), &["-l:libcuda.so.1"]);
    let target = scratch.target(program_with("captured", "linked", &flags)).arg(scenario);
    target.with_driver(Driver::Plain).options(["--malloc", "off"])
}

/// Grids of what was recorded, with the number of launches of each.
fn recorded(scenario: &str, options: &[&str]) -> Vec<(i64, usize)> {
    let scratch = Scratch::new();
    let trace = captured(&scratch, scenario).options(options).same().read();
    trace.assert_balanced();
    let inside = intervals(&trace);
    let within = |at: i64| inside.iter().any(|interval| (interval.from_ns..interval.to_ns).contains(&at));
    assert!(trace.table("launches").rows().all(|row| within(row.int("start_ns"))), "{inside:?}");
    grids(&trace)
}

#[test]
fn steps_are_counted_and_those_that_were_asked_for_are_recorded() {
    let three_and_four = [(30, 60), (3, 3), (40, 80)];
    assert_eq!(recorded("steps", &["--capture-steps", "3..4"]), three_and_four);
    assert_eq!(recorded("steps", &["--capture-range", "steps", "--capture-steps", "6"]), [(60, 120)]);
    // `step` is a name that is asked for here: the first of the range inside.
    assert_eq!(recorded("steps", &["--nvtx-capture", "step", "--capture-steps", "1"]), [(10, 10)]);
    assert_eq!(recorded("steps", &["--capture-steps", "7..9"]), []);
}

#[test]
fn ranges_are_recorded_whose_name_is_asked_for() {
    let all = [(20, 20), (21, 21), (22, 22), (23, 23), (24, 24), (25, 25), (26, 26)];
    assert_eq!(recorded("ranges", &["--nvtx-capture", "valid*"]), all);
    assert_eq!(recorded("ranges", &["--capture-range", "nvtx", "--nvtx-capture", "validation"]), all[..3]);
    assert_eq!(recorded("ranges", &["--nvtx-capture", "validity"]), all[5..]);
}

#[test]
fn a_range_that_is_recorded_has_its_own_row() {
    let scratch = Scratch::new();
    let trace = captured(&scratch, "ranges").options(["--nvtx-capture", "validation"]).same().read();
    let names = trace.names();
    let ranges = trace.table("ranges");
    let all: Vec<(&str, bool)> =
        ranges.rows().map(|row| (names[&row.int("name_id")].as_str(), row.maybe_int("end_ns").is_some())).collect();
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all.contains(&("validation", true)) && all.contains(&("inside", true)), "{all:?}");
}

#[test]
fn who_recorded_nothing_is_told_what_did_not_come() {
    let never = |scenario: &str, options: &[&str], says: &str| {
        let scratch = Scratch::new();
        let run = captured(&scratch, scenario).options(options).traced().expect(0);
        let line = format!("recording was on in 0 intervals: {says}");
        assert!(run.whole_lines().contains(&line), "{options:?}: {}", run.stderr);
    };
    never("steps", &["--capture-steps", "9..12"], "step 9 did not begin in any process");
    never("steps", &["--capture-steps", "9..12", "--nvtx-capture", "step"], "step 9, of ranges named step, did not");
    never("ranges", &["--nvtx-capture", "training2"], "no NVTX range named training2 began");
    never(
        "ranges",
        &["--capture-range", "cudaProfilerApi"],
        "neither cudaProfilerStart nor cuProfilerStart was called",
    );
    never("ranges", &["--capture-range", "signal"], "gputrace got no SIGUSR2");
    never("ranges", &["--start-paused"], "nobody switched it on (gputrace start)");
    never("ranges", &["--delay", "60"], "the run ended before --delay was over");
    // Nor was anything to be kept of what was never recorded.
    for options in [["--start-paused", "--flight-recorder"], ["--start-paused", "--detail=rollup"]] {
        let scratch = Scratch::new();
        let run = captured(&scratch, "ranges").options(options).traced().expect(0);
        let said = run.whole_lines();
        assert!(said.contains("UNKNOWN: recording was off all the time"), "{said}");
        assert!(said.contains("that --detail full writes: nobody switched it on (gputrace start)"), "{said}");
    }
    let scratch = Scratch::new();
    let run = captured(&scratch, "ranges").options(["--nvtx-capture", "training"]).traced().expect(0);
    assert!(!run.whole_lines().contains("began"), "{}", run.stderr);
}

/// The intervals of a run of a loop, which is told to stop when it has been recorded in so many; and when it began.
fn of_a_loop(options: &[&str], wanted: usize, meanwhile: impl FnOnce(&Scratch, i32)) -> (Vec<Interval>, i64) {
    let scratch = Scratch::new();
    let file = scratch.path().join("made");
    let started = switched(&scratch, "loop").arg(&file).options(options).start();
    poll(PATIENCE, || made(&file).filter(|now| *now >= 5)).expect("the program goes on");
    meanwhile(&scratch, started.pid());
    let over = || {
        let manifests = started.trace.join("manifest").is_dir().then(|| crate::util::Trace::open(&started.trace))?;
        let known = manifests.manifests().into_iter().find_map(|manifest| manifest.detail)?;
        // The last one is over when the next word of the manifest leaves its end where it was.
        let ended = known.intervals.last()?.to_ns + 2 * LATE < now_ns();
        (known.intervals.len() >= wanted && ended).then_some(())
    };
    poll(PATIENCE, over).expect("it is recorded, and no more");
    std::fs::write(file.with_extension("stop"), "").expect("a file");
    let trace = started.wait().expect(0).read();
    trace.assert_balanced();
    let launches = trace.table("launches");
    let found = intervals(&trace);
    let inside = |interval: &Interval| {
        launches.rows().any(|row| row.int("start_ns") >= interval.from_ns && row.int("start_ns") < interval.to_ns)
    };
    assert!(found.iter().all(inside), "{found:?}");
    (found, trace.manifest().started_ns)
}

fn now_ns() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    now.as_nanos() as i64
}

#[test]
fn a_part_of_a_run_is_recorded_by_the_clock() {
    let (found, started_ns) = of_a_loop(&["--delay", "1.5", "--duration", "1"], 1, |_, _| {});
    let (delay, length) = (found[0].from_ns - started_ns, found[0].to_ns - found[0].from_ns);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!((SECOND * 3 / 2 - LATE..SECOND * 3 / 2 + LATE).contains(&delay), "{delay}");
    assert!((SECOND - LATE..SECOND + LATE).contains(&length), "{length}");
}

#[test]
fn who_is_told_when_to_begin_begins_then_and_ends_by_itself() {
    let mut asked = 0;
    let (found, _) = of_a_loop(&["--start-paused"], 1, |scratch, pid| {
        asked = now_ns() / SECOND + 3;
        scratch.gputrace(&["start", &pid.to_string(), "--at", &asked.to_string(), "--for", "1"]).expect(0);
        let wrong = scratch.gputrace(&["start", &pid.to_string(), "--every", "5"]).expect(2);
        assert!(wrong.stderr.contains("for how long, --for must say"), "{}", wrong.stderr);
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert!((asked * SECOND..asked * SECOND + LATE).contains(&found[0].from_ns), "{asked}: {found:?}");
}

#[test]
fn launchers_that_started_at_different_times_record_at_the_same() {
    let run = |wait_ms: u64| {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(wait_ms));
            let scratch = Scratch::new();
            let file = scratch.path().join("made");
            let windows = ["--duration", "0.5", "--capture-every", "2"];
            let started = switched(&scratch, "loop").arg(&file).options(windows).start();
            std::thread::sleep(Duration::from_millis(7000));
            std::fs::write(file.with_extension("stop"), "").expect("a file");
            intervals(&started.wait().expect(0).read())
        })
    };
    for found in [run(0), run(700)].map(|run| run.join().expect("a run")) {
        assert!(found.len() >= 2, "{found:?}");
        for interval in found {
            let behind = interval.from_ns % (2 * SECOND);
            assert!(behind < LATE, "{behind} behind the clock's even seconds");
        }
    }
}

#[test]
fn a_signal_switches_and_the_program_does_not_get_it() {
    let (found, _) = of_a_loop(&["--capture-range", "signal"], 1, |_, pid| {
        let tell = || {
            // SAFETY: the launcher that this test started, and has not waited for.
            assert_eq!(unsafe { libc::kill(pid, libc::SIGUSR2) }, 0);
        };
        tell();
        std::thread::sleep(Duration::from_millis(1500));
        tell();
    });
    assert_eq!(found.len(), 1, "{found:?}");
    let length = found[0].to_ns - found[0].from_ns;
    assert!((SECOND * 3 / 2 - LATE..SECOND * 3 / 2 + LATE).contains(&length), "{length}");
}

#[test]
fn what_would_never_record_is_refused_before_anything_runs() {
    let scratch = Scratch::new();
    let refused = |options: &[&str], says: &str| {
        let told = scratch.gputrace(&[options, &["--", "true"]].concat()).expect(125);
        assert!(told.stderr.contains(says), "{options:?}: {}", told.stderr);
    };
    refused(&["--capture-range", "nvtx"], "--nvtx-capture NAME says it");
    refused(&["--capture-steps", "0..3"], "counted from 1");
    refused(&["--capture-steps", "1..3", "--nvtx", "off"], "no range would ever begin");
    refused(&["--capture-every", "5"], "for how long, --duration must say");
    refused(&["--duration", "5", "--start-paused"], "nothing else does so beside them");
    refused(&["--capture-range", "signal", "--nvtx-capture", "a"], "one thing switches recording");
}
