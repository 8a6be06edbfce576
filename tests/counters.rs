//! Counters that are read from outside: what the stand-in for NVML and the kernel say stands in the trace, with its device or
//! process; what is not there is named once; and NVML is left alone where nobody uses a GPU.

use std::ffi::OsString;

use gputrace_collectors::manifest::{Counters, Source};

use crate::util::{Driver, Finished, Row, Scratch, Target, Trace, driver_folder, gputrace, nvml_folder, program};

const UUID: &str = "GPU-66616b65-2d63-7564-612d-6770752d3030";

/// A program that has the device until the collector has read NVML three times, ten times a second.
fn until_read<'a>(scratch: &'a Scratch) -> Target<'a> {
    let read = scratch.path().join("read");
    let mut libraries = OsString::from(driver_folder(Driver::Plain));
    libraries.push(":");
    libraries.push(nvml_folder());
    let target = scratch.target(program("cuda_until")).arg(&read).options(["--counters", "10"]);
    target.env("LD_LIBRARY_PATH", libraries).env("FAKE_NVML_READ", read)
}

fn run(target: &Target<'_>) -> (Finished, Trace) {
    let run = target.traced().expect(0);
    assert_eq!(run.text(), "ok\n");
    let trace = run.read();
    (run, trace)
}

fn about(trace: &Trace) -> Counters {
    trace.manifest().counters.expect("counters were asked for")
}

fn source(trace: &Trace, name: &str) -> Source {
    about(trace).sources.into_iter().find(|source| source.name == name).expect("a source")
}

/// Values of a counter, each from a row that passes.
fn values(trace: &Trace, source: &str, name: &str, check: impl Fn(&Row<'_>)) -> Vec<f64> {
    let table = trace.table("counters");
    let rows: Vec<Row<'_>> =
        table.rows().filter(|row| row.text("source") == source && row.text("name") == name).collect();
    rows.iter().for_each(check);
    rows.iter().map(|row| row.float("value")).collect()
}

#[test]
fn what_nvml_says_of_a_device_is_in_the_trace() {
    let scratch = Scratch::new();
    let (_, trace) = run(&until_read(&scratch).env("FAKE_NVML_ECC", "2").env("FAKE_NVML_XID", "79"));
    let of_device = |row: &Row<'_>| {
        assert_eq!((row.maybe_text("device"), row.maybe_int("process_id")), (Some(UUID), None));
    };
    for (name, value) in [
        ("gpu_utilization", 98.0),
        ("memory_utilization", 40.0),
        ("memory_used", (20u64 << 30) as f64),
        ("power", 612.5),
        ("power_limit", 700.0),
        ("temperature", 61.0),
        ("sm_clock", 1_755e6),
        ("memory_clock", 3_201e6),
        ("clocks_event_reasons", 4.0),
        ("pcie_link_gen", 5.0),
        ("pcie_link_width", 8.0),
        ("pcie_link_width_max", 16.0),
        ("ecc_uncorrected", 2.0),
        ("compute_processes", 1.0),
    ] {
        let found = values(&trace, "nvml", name, |row| {
            of_device(row);
            assert_eq!(row.maybe_int("interval_ns"), None, "{name}");
        });
        assert!(!found.is_empty() && found.iter().all(|found| *found == value), "{name}: {found:?}");
    }
    assert_eq!(values(&trace, "nvml", "xid", of_device), [79.0]);
    assert!(values(&trace, "nvml", "power", of_device).len() >= 3);
    for (name, value) in [
        ("sm_util", 81.0),
        ("any_tensor_util", 79.0),
        ("dram_bw_util", 15.0),
        ("sm_occupancy", 12.0),
        ("pcie_tx", 64.0 * 1_048_576.0),
    ] {
        let found = values(&trace, "gpm", name, |row| {
            of_device(row);
            assert!(row.int("interval_ns") > 1_000_000, "{name}");
        });
        assert!(found.len() >= 2 && found.iter().all(|found| *found == value), "{name}: {found:?}");
    }
    // A metric that the device does not have is no row, and no number.
    assert!(values(&trace, "gpm", "nvlink_tx", |_| ()).is_empty());
    // What a library lacks is named, with the rest as ever.
    let missing = source(&trace, "nvml").missing;
    assert_eq!(missing, [format!("{UUID}: pcie_replays: this driver is too old for it")]);
    trace.assert_balanced();
}

#[test]
fn an_export_has_them_as_tracks_and_a_report_of_a_rank_keeps_its_devices() {
    let scratch = Scratch::new();
    let (run, trace) = run(&until_read(&scratch).env("RANK", "3"));
    let root = trace.root();
    let path = run.trace.display().to_string();
    scratch.gputrace(&["export", &path, "--format", "kineto", "-o", "out.json"]).expect(0);
    let text = std::fs::read_to_string(scratch.path().join("out.json")).expect("the export");
    let events: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let track = |name: &str| -> Vec<(i64, f64)> {
        let all = events["traceEvents"].as_array().expect("events").iter();
        let own = all.filter(|event| event["ph"] == "C" && event["name"] == name);
        own.map(|event| (event["pid"].as_i64().expect("a pid"), event["args"]["value"].as_f64().expect("a value")))
            .collect()
    };
    let power = track("nvml power (W)");
    assert!(power.len() >= 3 && power.iter().all(|value| *value == (0, 612.5)), "{power:?}");
    assert!(track("proc threads").iter().all(|(pid, _)| *pid == i64::from(root.pid)));
    for (rank, devices) in [("3", true), ("4", false)] {
        let report = scratch.gputrace(&["report", &path, "--only", "counters", "--rank", rank]);
        assert_eq!(report.text().contains("compute bound"), devices, "{}{}", report.text(), report.stderr);
    }
}

#[test]
fn what_the_kernel_says_of_a_process_is_in_the_trace() {
    let scratch = Scratch::new();
    let (_, trace) = run(&until_read(&scratch).options(["--cpu-counters", "on"]));
    let root = trace.root();
    let of_process = |row: &Row<'_>| {
        assert_eq!((row.int("process_id"), row.int("pid")), (root.process_id, i64::from(root.pid)));
        assert_eq!(row.maybe_text("device"), None);
    };
    let table = trace.table("processes");
    let began = table.rows().find(|row| row.int("process_id") == root.process_id).expect("its row").int("start_ns");
    let user = values(&trace, "proc", "cpu_user", |row| {
        of_process(row);
        assert!(row.int("start_ns") >= began && row.int("interval_ns") > 0);
    });
    assert!(!user.is_empty() && user.iter().sum::<f64>() > 0.0, "it works all the time: {user:?}");
    assert!(values(&trace, "proc", "rss", of_process).iter().all(|bytes| *bytes > 100e3));
    assert!(values(&trace, "proc", "threads", of_process).iter().all(|threads| *threads >= 1.0));
    assert!(values(&trace, "proc", "voluntary_switches", of_process).iter().sum::<f64>() > 0.0);
    // Where the kernel gives neither the hardware's nor its own it says why.
    let perf = source(&trace, "perf");
    let counted = ["instructions", "task_clock"].map(|name| values(&trace, "perf", name, of_process));
    let any = counted.iter().flatten().sum::<f64>() > 0.0;
    assert!(any || !perf.missing.is_empty() && perf.rows == 0, "{perf:?}");
    assert!(about(&trace).readings >= 3 && about(&trace).cpu_ns > 0);
}

#[test]
fn nvml_is_left_alone_where_nobody_uses_a_gpu() {
    let scratch = Scratch::new();
    let started = scratch.path().join("started");
    let file = scratch.file("now", "");
    let target = scratch.target(program("cuda_until")).arg(file).arg("none").env("LD_LIBRARY_PATH", nvml_folder());
    let (_, trace) = run(&target.env("FAKE_NVML_STARTED", &started));
    assert!(!started.exists());
    assert_eq!(source(&trace, "nvml").missing, ["no traced process used a CUDA device"]);
    assert_eq!(source(&trace, "perf").missing, ["not asked for: --cpu-counters on"]);
}

#[test]
fn counters_that_are_off_leave_nothing() {
    let scratch = Scratch::new();
    let file = scratch.file("now", "");
    let (_, trace) = run(&scratch.target(program("cuda_until")).arg(file).arg("none").options(["--counters", "off"]));
    assert_eq!(trace.manifest().counters, None);
    assert!(trace.files("counters").is_empty());
}

#[test]
fn a_library_that_is_missing_or_refuses_is_named_and_harms_nobody() {
    // 4: no permission; 9: no driver; 18: another driver's version.
    for (result, says) in
        [(4, "no permission to ask the driver"), (9, "driver is not loaded"), (18, "not of the driver's version")]
    {
        let scratch = Scratch::new();
        let started = scratch.path().join("read");
        let target = until_read(&scratch).env("FAKE_NVML_FAIL", format!("nvmlInit_v2:{result}"));
        let (_, trace) = run(&target.env("FAKE_NVML_STARTED", started));
        let missing = source(&trace, "nvml").missing;
        assert!(missing.len() == 1 && missing[0].contains(says), "{missing:?}");
        assert_eq!((source(&trace, "nvml").rows, source(&trace, "gpm").missing), (0, vec!["needs NVML".to_owned()]));
    }
}

#[test]
fn a_device_that_is_lost_is_named_once_and_the_rest_goes_on() {
    let scratch = Scratch::new();
    let (run, trace) = run(&until_read(&scratch).env("FAKE_NVML_LOST_AFTER", "5"));
    let missing = source(&trace, "nvml").missing;
    assert_eq!(missing.iter().filter(|text| text.contains("the GPU is lost")).count(), 1, "{missing:?}");
    assert_eq!(about(&trace).lost, [UUID]);
    assert_eq!(values(&trace, "nvml", "gpu_utilization", |_| ()).len(), 2);
    assert!(source(&trace, "proc").rows > 0);
    // The node is not fine then, and the end of the run says so.
    let text = run.whole_lines();
    let lost = "GPU lost: off the bus or in need of a reset on ";
    assert_eq!(text.matches(lost).count(), 1, "{text}");
    let path = run.trace.display().to_string();
    let health = scratch.gputrace(&["report", &path, "--only", "node-health", "--format", "json"]).expect(0).text();
    let health: serde_json::Value = serde_json::from_str(&health).expect("JSON");
    let checks = health["analyses"]["node-health"]["tables"]["checks"]["rows"].as_array().expect("checks");
    let check = checks.iter().find(|row| row["check"] == "GPU lost").expect("a check");
    assert_eq!((&check["result"], &check["ask"]), (&"found".into(), &"dmesg | grep -i xid".into()));
}

#[test]
fn a_mig_instance_has_what_its_driver_tells_of_it() {
    let scratch = Scratch::new();
    let (_, trace) = run(&until_read(&scratch).env("FAKE_NVML_MIG", "1"));
    assert!(values(&trace, "nvml", "memory_used", |row| assert_eq!(row.text("device"), UUID)).len() >= 3);
    assert!(values(&trace, "nvml", "power", |_| ()).is_empty());
    let missing = source(&trace, "nvml").missing;
    // A reason is said once, with all that it is the reason of.
    let refused: Vec<&String> = missing.iter().filter(|text| text.contains("not told of for this device")).collect();
    assert_eq!(refused.len(), 1, "{missing:?}");
    assert!(refused[0].starts_with(&format!("{UUID}: ")) && refused[0].contains("power, sm_clock"), "{refused:?}");
    assert_eq!(source(&trace, "gpm").missing, [format!("{UUID}: GPM of a MIG instance is not read")]);
}

#[test]
fn a_virtual_gpu_is_named_and_a_gpu_without_gpm_has_what_nvml_knows_of_its_link() {
    let scratch = Scratch::new();
    let target = until_read(&scratch).env("FAKE_NVML_VIRTUAL", "1").env("FAKE_NVML_FAIL", "nvmlDeviceGetPowerUsage:3");
    let (_, trace) = run(&target);
    assert_eq!(values(&trace, "nvml", "pcie_rx", |row| assert_eq!(row.text("unit"), "bytes/s"))[0], 5e6);
    assert_eq!(source(&trace, "gpm").missing, [format!("{UUID}: GPM needs a Hopper GPU or a newer one")]);
    let missing = source(&trace, "nvml").missing;
    assert!(missing.iter().any(|text| text.contains("a virtual GPU")), "{missing:?}");
    assert!(missing.iter().any(|text| text.contains("power: not told of for this device")), "{missing:?}");
    assert_eq!(about(&trace).lost, [""; 0]);
}

#[test]
fn doctor_says_whether_devices_can_be_read() {
    let scratch = Scratch::new();
    let ask = |variables: &[(&str, &str)]| {
        let libraries = format!("{}:{}", driver_folder(Driver::Plain).display(), nvml_folder().display());
        let target = scratch.target(gputrace()).arg("doctor").env("LD_LIBRARY_PATH", libraries);
        variables.iter().fold(target, |target, (name, value)| target.env(name, value)).plain().text()
    };
    assert!(ask(&[]).contains("counters        NVML of driver 580.00; GPM\n"), "{}", ask(&[]));
    let refused = ask(&[("FAKE_NVML_FAIL", "nvmlInit_v2:4")]);
    assert!(refused.contains("note  counters        no permission to ask the driver"), "{refused}");
    // Without a device nobody asks.
    assert!(!ask(&[("FAKE_CUDA_DEVICES", "0")]).contains("counters "));
}
