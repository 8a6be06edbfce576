//! Nodes that are well, ones that are not, and what nobody measured.

use gputrace_collectors::manifest::{Attached, Hook, Node};

use super::*;
use crate::trace::testing::TestTrace;

#[test]
fn only_what_is_recorded_is_judged() {
    let mut trace = TestTrace::new();
    let about = trace.manifest.as_mut().expect("a manifest");
    let cpus_allowed = Some("8-11,14".to_owned());
    about.node = Node { cpu_quota: Some(1.5), cpus_allowed, numa_nodes: vec![1], all_numa_nodes: vec![0, 1] };
    let attached = Attached {
        numa_node: Some(0),
        link_per_s: Some(2.5e9),
        link_max_per_s: Some(32e9),
        lanes: Some(8),
        lanes_max: Some(16),
    };
    let uuid = |uuid: &str| Device { uuid: uuid.into(), name: "H200".into(), ..Device::default() };
    about.devices = vec![Device { attached: Some(attached), ..uuid("a") }, uuid("b")];
    let section = trace.section(&NodeHealth);
    assert_eq!((section.get("found"), section.get("fine")), (&Value::Int(3), &Value::Int(0)));
    let row = |row: usize| ["check", "measured"].map(|column| section.cell("checks", row, column).clone());
    assert_eq!(row(0), ["quota of processors".into(), "1.5 of 5 processors".into()]);
    assert_eq!(row(1), ["NUMA node of launcher and GPU".into(), "GPU on 0, launcher on 1 of 0,1".into()]);
    assert_eq!(row(2), ["PCIe lanes".into(), "8 of 16".into()]);
}

#[test]
fn a_node_with_a_fault_is_a_finding_whose_gain_is_not_known_and_no_run_there_is_healthy() {
    let summary = |lanes: i64, quota: f64| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, crate::trace::testing::START + 1_000_000_000);
        let about = trace.manifest.as_mut().expect("a manifest");
        about.node = Node { cpu_quota: Some(quota), cpus_allowed: Some("0-7".to_owned()), ..Node::default() };
        let attached = Attached { lanes: Some(lanes), lanes_max: Some(16), ..Attached::default() };
        about.devices =
            vec![Device { uuid: "a".into(), name: "H200".into(), attached: Some(attached), ..Device::default() }];
        let mut thread = trace.thread(1, 11);
        for _ in 0..40 {
            (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
            thread.sync("cuStreamSynchronize", "stream", 9_000_000);
        }
        trace.section(&super::super::summary::Summary)
    };
    let fine = summary(16, 2.0);
    assert_eq!(fine.get("verdict"), &Value::from("HEALTHY"), "{:?}", fine.literal);
    assert!(fine.literal.clone().is_some_and(|text| text.contains("launches, the node,")), "{:?}", fine.literal);
    for (lanes, quota, says) in
        [(8, 2.0, "PCIe lanes: 8 of 16 on node (H200"), (16, 0.5, "quota of processors: 0.5 of 8")]
    {
        let section = summary(lanes, quota);
        let text = section.literal.clone().unwrap_or_default();
        assert!(text.contains("\n1 the node holds its GPUs back  gain not known  effort medium\n"), "{text}");
        assert!(text.contains(says) && !text.contains("HEALTHY"), "{text}");
        assert_eq!(section.cell("findings", 0, "gain_ns"), &Value::Missing);
        assert_eq!(section.get("joint_gain_ns"), &Value::Num(0.0));
    }
}

#[test]
fn counters_are_judged_where_they_were_read() {
    let node = |counters: &[(&str, f64)]| {
        let mut trace = TestTrace::new();
        let about = trace.manifest.as_mut().expect("a manifest");
        about.devices = vec![Device { uuid: "GPU-1".into(), name: "H200".into(), ..Device::default() }];
        for at in 0..10 {
            let second = at * 1_000_000_000;
            let of_device =
                [("gpu_utilization", 90.0), ("pcie_link_gen_max", 5.0)].into_iter().chain(counters.iter().copied());
            of_device.for_each(|(name, value)| trace.counter(second, Err("GPU-1"), "nvml", name, value));
        }
        trace.section(&NodeHealth)
    };
    let found = |section: &Section| -> Vec<(Value, Value)> {
        let rows = section.tables.iter().find(|table| table.key == "checks").map_or(0, |table| table.rows.len());
        let cell = |row, column| section.cell("checks", row, column).clone();
        let wrong = (0..rows).filter(|row| cell(*row, "result") == "found".into());
        wrong.map(|row| (cell(row, "check"), cell(row, "measured"))).collect()
    };
    // A power cap, an idle device, corrected errors and a mistake of the program's are no faults of the node.
    let fine = node(&[
        ("clocks_event_reasons", 5.0),
        ("ecc_corrected", 7.0),
        ("ecc_uncorrected", 0.0),
        ("xid", 31.0),
        ("pcie_link_gen", 5.0),
    ]);
    assert_eq!((found(&fine), fine.get("fine")), (Vec::new(), &Value::Int(5)));
    let bad = node(&[
        ("clocks_event_reasons", 72.0),
        ("ecc_corrected", 7.0),
        ("ecc_uncorrected", 2.0),
        ("xid", 79.0),
        ("pcie_link_gen", 3.0),
        ("pcie_link_width", 8.0),
        ("pcie_link_width_max", 16.0),
    ]);
    let all: [(Value, Value); 5] = [
        ("PCIe lanes".into(), "8 of 16".into()),
        ("PCIe speed".into(), "generation 3 of 5 while it worked".into()),
        ("throttled clocks".into(), "hardware slowdown 100 %, hardware thermal slowdown 100 % of 10 readings".into()),
        ("ECC errors".into(), "2 not corrected, 7 corrected".into()),
        ("Xid errors".into(), "79 (10 times)".into()),
    ];
    assert_eq!(found(&bad), all);
}

#[test]
fn a_gpu_that_was_lost_is_found_and_the_summary_says_so_once() {
    let of = |calls: i64, lost: &[&str]| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, crate::trace::testing::START + 1_000_000_000);
        let about = trace.manifest.as_mut().expect("a manifest");
        about.devices = vec![Device { uuid: "GPU-1".into(), name: "H200".into(), ..Device::default() }];
        let lost = lost.iter().map(|uuid| (*uuid).to_owned()).collect();
        about.counters = Some(gputrace_collectors::manifest::Counters { lost, ..Default::default() });
        trace.counter(0, Err("GPU-1"), "nvml", "gpu_utilization", 90.0);
        let mut thread = trace.thread(1, 11);
        for _ in 0..calls {
            thread.launch("k", 2_000);
            thread.sync("cuStreamSynchronize", "stream", 9_000_000);
        }
        (trace.section(&NodeHealth), trace.section(&super::super::summary::Summary).literal.unwrap_or_default())
    };
    // A run with findings, and one that was over too soon for any.
    for calls in [40, 1] {
        let (node, text) = of(calls, &["GPU-1"]);
        let row = ["check", "result", "measured"].map(|column| node.cell("checks", 0, column).clone());
        assert_eq!(row, ["GPU lost".into(), "found".into(), "off the bus or in need of a reset".into()]);
        let said = "GPU lost: off the bus or in need of a reset on node (H200 )";
        assert_eq!((text.matches(said).count(), text.contains("HEALTHY")), (1, false), "{text}");
        let (node, text) = of(calls, &[]);
        assert_eq!((node.get("found"), text.contains("GPU lost")), (&Value::Int(0), false), "{text}");
    }
}

#[test]
fn a_quota_that_was_used_up_is_found() {
    let mut trace = TestTrace::new();
    for (name, value) in [("periods", 10.0), ("throttled_periods", 4.0), ("throttled_time", 250e6)] {
        (0..5).for_each(|second| trace.counter(second * 1_000_000_000, Ok(1), "cgroup", name, value));
    }
    let section = trace.section(&NodeHealth);
    assert_eq!(section.cell("checks", 0, "check"), &"quota used up".into());
    assert_eq!(section.cell("checks", 0, "measured"), &"in 40 % of 50 periods, 1.25 s taken away".into());
}

#[test]
fn nothing_recorded_is_nothing_measured() {
    let section = TestTrace::new().section(&NodeHealth);
    assert_eq!((section.get("found"), section.get("fine")), (&Value::Missing, &Value::Int(0)));
    assert_eq!(section.get("not_measured"), &Value::Int(4));
}

#[test]
fn of_a_mac_nobody_is_sent_to_nvidias_tools() {
    let asked = |on_metal: bool| {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, crate::trace::testing::START + 1_000_000_000);
        let about = trace.manifest.as_mut().expect("a manifest");
        about.devices = vec![Device { uuid: "a".into(), name: "M1".into(), ..Device::default() }];
        let hook = Hook { name: "MTLCreateSystemDefaultDevice".into(), calls: 1, ..Hook::default() };
        about.processes[0].coverage.hooks.extend(on_metal.then_some(hook));
        let section = trace.section(&NodeHealth);
        let rows = &section.tables.iter().find(|table| table.key == "checks").expect("checks").rows;
        let asked = rows.iter().filter(|row| row[5] != Value::Missing);
        asked.map(|row| [1, 5].map(|column| row[column].clone())).collect::<Vec<_>>()
    };
    assert_eq!(asked(true), [["throttled clocks".into(), "sudo powermetrics --samplers gpu_power,thermal".into()]]);
    assert!(asked(false).len() > 3);
}
