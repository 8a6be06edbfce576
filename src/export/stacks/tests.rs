//! Profiles, read back.

use std::collections::BTreeMap;
use std::io::Read;

use super::*;
use crate::trace::testing::{START, TestTrace};

/// Two processes: 100 bytes allocated in all by `a`, of which the peak holds 100 and the end 30; 70 by nobody known.
fn trace() -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000);
    trace.process(2, 200, Some(3), START + 1_000_000);
    let a = trace.stack("a;b", "/home/u/x.py", 7);
    let mut thread = trace.thread(1, 11);
    let first = thread.malloc_at(a, 70, 70.0);
    thread.malloc_at(a, 30, 30.0);
    thread.free_block(&first);
    thread.culled(a, 4, 400, 500);
    trace.thread(2, 12).malloc("alloc", 50, 100.0);
    trace
}

fn written(write: impl FnOnce(&Path) -> io::Result<Written>, name: &str) -> (Vec<u8>, u64) {
    let folder = std::env::temp_dir().join(format!("gputrace-stacks-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let done = write(&folder.join(name)).unwrap();
    let bytes = std::fs::read(&done.files[0].0).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    (bytes, done.files[0].1)
}

#[test]
fn folded_stacks_have_the_value_that_was_asked_for() {
    let recorded = trace();
    let trace = recorded.open();
    let text = |what, at| {
        String::from_utf8(written(|file| folded(&trace, &Filter::default(), file, what, at), "f").0).unwrap()
    };
    let space = "python (pid 100);a:b (x.py:7) 500\npython (rank 3);[no stack] 100\n";
    assert_eq!(text(ExportValue::AllocSpace, ExportAt::End), space);
    assert_eq!(text(ExportValue::AllocObjects, ExportAt::End), space.replace(" 500", " 6").replace("] 100", "] 2"));
    assert_eq!(text(ExportValue::InuseSpace, ExportAt::End), space.replace(" 500", " 30"));
    assert_eq!(text(ExportValue::InuseSpace, ExportAt::Peak), space.replace(" 500", " 100"));
    assert_eq!(text(ExportValue::InuseObjects, ExportAt::Peak), space.replace(" 500", " 2").replace("] 100", "] 2"));
}

/// The fields of a message: numbers, and bytes.
#[derive(Default)]
struct Fields(BTreeMap<u64, Vec<(u64, Vec<u8>)>>);

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return value;
        }
    }
}

impl Fields {
    fn read(mut bytes: &[u8]) -> Fields {
        let mut fields = Fields::default();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let number = varint(&mut bytes);
            let mut part = Vec::new();
            if key & 7 == 2 {
                let (own, rest) = bytes.split_at(number as usize);
                (part, bytes) = (own.to_vec(), rest);
            }
            fields.0.entry(key >> 3).or_default().push((number, part));
        }
        fields
    }

    fn parts(&self, field: u64) -> impl Iterator<Item = Fields> {
        self.0.get(&field).into_iter().flatten().map(|(_, part)| Fields::read(part))
    }

    fn number(&self, field: u64) -> u64 {
        self.0.get(&field).map_or(0, |all| all[0].0)
    }

    fn packed(&self, field: u64) -> Vec<u64> {
        let (mut bytes, mut all) = (self.0[&field][0].1.as_slice(), Vec::new());
        while !bytes.is_empty() {
            all.push(varint(&mut bytes));
        }
        all
    }
}

/// The types of the values and the one that is shown first; then each sample as text: frames from the outermost on, labels, values.
fn samples(bytes: &[u8]) -> (Vec<String>, Fields) {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    let profile = Fields::read(&plain);
    let texts: Vec<String> = profile.0[&6].iter().map(|(_, t)| String::from_utf8(t.clone()).unwrap()).collect();
    let text = |number: u64| texts[number as usize].as_str();
    let functions: BTreeMap<u64, (u64, u64)> =
        profile.parts(5).map(|f| (f.number(1), (f.number(2), f.number(4)))).collect();
    let locations: BTreeMap<u64, (u64, u64)> = profile
        .parts(4)
        .map(|l| (l.number(1), l.parts(4).map(|line| (line.number(1), line.number(2))).next().unwrap()))
        .collect();
    let frame = |location: u64| {
        let (function, line) = locations[&location];
        let (name, file) = functions[&function];
        format!("{} {}:{line}", text(name), text(file))
    };
    let sample = |sample: Fields| {
        let frames: Vec<String> = sample.packed(1).into_iter().rev().map(frame).collect();
        let labels: Vec<String> =
            sample.parts(3).map(|l| format!("{}={}{}", text(l.number(1)), text(l.number(2)), l.number(3))).collect();
        format!("{} {} {:?}", frames.join(" > "), labels.join(" "), sample.packed(2))
    };
    assert_eq!(texts[0], "");
    let types: Vec<String> = profile.parts(1).map(|t| format!("{}/{}", text(t.number(1)), text(t.number(2)))).collect();
    let head = vec![format!("{} shown as {}", types.join(" "), text(profile.number(14)))];
    (head.into_iter().chain(profile.parts(2).map(sample)).collect(), profile)
}

#[test]
fn a_profile_of_pprof_says_what_the_trace_does() {
    let recorded = trace();
    let trace = recorded.open();
    let (bytes, stacks) =
        written(|file| pprof(&trace, &Filter::default(), file, ExportOf::Malloc, ExportAt::End), "heap.pb");
    let (lines, profile) = samples(&bytes);
    let wanted = [
        "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes shown as inuse_space",
        "a;b /home/u/x.py:7 process=python (pid 100)0 pid=100 [6, 500, 1, 30]",
        "[no stack] :0 process=python (rank 3)0 pid=200 [2, 100, 2, 100]",
    ];
    assert_eq!((lines.as_slice(), stacks), (wanted.map(str::to_owned).as_slice(), 2));
    assert_eq!((profile.number(9), profile.number(12)), (START as u64, 524_288));
    let (peak, _) = samples(
        &written(|file| pprof(&trace, &Filter::default(), file, ExportOf::Malloc, ExportAt::Peak), "peak.pb.gz").0,
    );
    assert!(peak[1].ends_with("[6, 500, 2, 100]"), "{peak:?}");
}

#[test]
fn a_frame_without_a_name_has_its_librarys() {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 1_000_000);
    let row = |id: i32, caller: Option<i32>, function: &str| {
        serde_json::json!({
            "stack_id": id, "caller_id": caller, "language": "native", "function": function, "module": "/lib/libx.so",
        })
    };
    trace.row(gputrace_collectors::schema::TableId::Stacks, row(5, Some(6), ""));
    trace.row(gputrace_collectors::schema::TableId::Stacks, row(6, None, "_ZN5model7forwardEi"));
    trace.thread(1, 11).malloc_at(5, 8, 8.0);
    let opened = trace.open();
    let (lines, profile) = samples(
        &written(|file| pprof(&opened, &Filter::default(), file, ExportOf::Malloc, ExportAt::End), "x.pb.gz").0,
    );
    assert!(lines[1].starts_with("model::forward :0 > [libx.so] :0 "), "{lines:?}");
    // The first mapping is the program itself.
    assert_eq!((profile.parts(3).count(), profile.parts(4).map(|l| l.number(2)).collect::<Vec<_>>()), (2, vec![2, 2]));
}

/// Two processes: one waits in a call, a copy, a free and for the operating system, and launches; the other waits without a stack.
fn waiting() -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 100, None, START + 100_000_000);
    trace.process(2, 200, Some(3), START + 100_000_000);
    let [step, item] = [("step", 50), ("item", 44)].map(|(name, line)| trace.stack(name, "/home/u/train.py", line));
    let mut thread = trace.thread(1, 11);
    thread.stack = Some((item, 0));
    (0..2).for_each(|_| thread.sync("cuStreamSynchronize", "stream", 300_000));
    thread.copy("DtoH", ("device", "pageable"), false, 4, 1_020_002);
    thread.free("cuMemFree_v2", "device", 9, 1_200_000);
    thread.system_wait("poll", "poll", 5_000_000);
    // Neither waits.
    thread.sync("cuStreamQuery", "query", 400_000);
    thread.copy("DtoH", ("device", "pinned"), true, 4, 600_000);
    for n in 0..30 {
        thread.stack = (n == 7).then_some((step, 30));
        thread.launch("k", 2_000);
    }
    trace.thread(2, 12).sync("cuCtxSynchronize", "context", 7_000);
    trace
}

const WAITS: &str = "python (pid 100);item (train.py:44);cuMemFree_v2 1100000
python (pid 100);item (train.py:44);cuMemcpy 1000000
python (pid 100);item (train.py:44);cuStreamSynchronize 600000
python (rank 3);[no stack];cuCtxSynchronize 7000
";
const OS_WAITS: &str = "python (pid 100);item (train.py:44);poll 5000000\n";
const CALLS: &str = "python (pid 100);item (train.py:44);cuMemFree_v2 1200000
python (pid 100);item (train.py:44);cuMemcpy 1020002
python (pid 100);item (train.py:44);cuMemcpyAsync 600000
python (pid 100);item (train.py:44);cuStreamQuery 400000
python (pid 100);item (train.py:44);cuStreamSynchronize 600000
python (pid 100);step (train.py:50);cuLaunchKernel 60000
";

#[test]
fn waits_and_calls_are_summed_by_stack_and_called_function() {
    let recorded = waiting();
    let trace = recorded.open();
    let text = |value| {
        let write = |file: &Path| folded(&trace, &Filter::default(), file, value, ExportAt::End);
        // They come as the sums do.
        let mut lines =
            String::from_utf8(written(write, "waits").0).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
        lines.sort();
        lines.into_iter().map(|line| line + "\n").collect::<String>()
    };
    assert_eq!(text(ExportValue::WaitTime), WAITS);
    let counts: Vec<String> =
        text(ExportValue::Waits).lines().map(|l| l.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(counts, ["1", "1", "2", "1"]);
    assert_eq!(
        (text(ExportValue::OsWaitTime), text(ExportValue::OsWaits)),
        (OS_WAITS.into(), OS_WAITS.replace("5000000", "1"))
    );
    assert_eq!(text(ExportValue::CallTime), CALLS);
    assert!(text(ExportValue::Calls).ends_with("step (train.py:50);cuLaunchKernel 30\n"));
    assert_eq!(text(ExportValue::AllocSpace), "");
}

#[test]
fn a_part_of_a_trace_has_the_waits_that_began_in_it() {
    let recorded = waiting();
    let trace = recorded.open();
    // The second wait of the first process begins 300 us after the begin, what follows it later.
    let filter = Filter { from_ns: Some(START + 1), to_ns: Some(START + 600_000), ..Filter::default() };
    let write = |file: &Path| folded(&trace, &filter, file, ExportValue::WaitTime, ExportAt::End);
    let text = String::from_utf8(written(write, "part").0).unwrap();
    assert_eq!(text, "python (pid 100);item (train.py:44);cuStreamSynchronize 300000\n");
}

#[test]
fn profiles_of_calls_have_count_and_time() {
    let recorded = waiting();
    let trace = recorded.open();
    let write = |file: &Path| pprof(&trace, &Filter::default(), file, ExportOf::Waits, ExportAt::End);
    let (mut lines, profile) = samples(&written(write, "waits.pb").0);
    let item = |api: &str, values: &str| {
        format!("item /home/u/train.py:44 > {api} :0 process=python (pid 100)0 pid=100 {values}")
    };
    let mut wanted = vec![
        "waits/count wait_time/nanoseconds shown as wait_time".to_owned(),
        item("cuMemFree_v2", "[1, 1100000]"),
        item("cuMemcpy", "[1, 1000000]"),
        item("cuStreamSynchronize", "[2, 600000]"),
        "[no stack] :0 > cuCtxSynchronize :0 process=python (rank 3)0 pid=200 [1, 7000]".to_owned(),
    ];
    lines.sort();
    wanted.sort();
    assert_eq!(lines, wanted);
    assert_eq!((profile.number(12), profile.parts(3).count()), (1, 1));
}

#[test]
fn speedscope_has_a_profile_for_each_value_and_process() {
    let mut recorded = waiting();
    recorded.thread(2, 13).malloc("alloc", 50, 100.0);
    let trace = recorded.open();
    let read = |values: &[ExportValue]| -> (Vec<String>, u64) {
        let write = |file: &Path| speedscope(&trace, &Filter::default(), file, values, ExportAt::End);
        let (bytes, stacks) = written(write, "x.json");
        let file: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let frame = |number: &serde_json::Value| {
            let frame = &file["shared"]["frames"][number.as_u64().unwrap() as usize];
            let place = frame["file"].as_str().map_or_else(String::new, |file| format!(" {file}:{}", frame["line"]));
            format!("{}{place}", frame["name"].as_str().unwrap())
        };
        let text = |profile: &serde_json::Value| {
            let stacks = profile["samples"].as_array().unwrap().iter().zip(profile["weights"].as_array().unwrap());
            let stack = |(stack, weight): (&serde_json::Value, &serde_json::Value)| {
                let frames: Vec<String> = stack.as_array().unwrap().iter().map(frame).collect();
                format!("{} {weight}", frames.join(" > "))
            };
            let mut stacks: Vec<String> = stacks.map(stack).collect();
            stacks.sort();
            let head = format!("{}, {} {}", profile["name"], profile["endValue"], profile["unit"]);
            format!("{head}: {}", stacks.join("; "))
        };
        (file["profiles"].as_array().unwrap().iter().map(text).collect(), stacks)
    };
    let item = "item /home/u/train.py:44 >";
    let waits = [
        format!(
            "\"wait_time of python (pid 100)\", 2700000 \"nanoseconds\": {item} cuMemFree_v2 1100000; {item} cuMemcpy 1000000; \
             {item} cuStreamSynchronize 600000"
        ),
        "\"wait_time of python (rank 3)\", 7000 \"nanoseconds\": [no stack] > cuCtxSynchronize 7000".to_owned(),
    ];
    assert_eq!(read(&weights(Some(ExportOf::Waits))), (waits.to_vec(), 4));
    let (all, stacks) = read(&weights(None));
    let head = |line: &String| line.split(": ").next().unwrap().replace('"', "");
    let wanted = [
        "alloc_space of python (rank 3), 100 bytes",
        "inuse_space of python (rank 3), 100 bytes",
        "wait_time of python (pid 100), 2700000 nanoseconds",
        "wait_time of python (rank 3), 7000 nanoseconds",
        "os_wait_time of python (pid 100), 5000000 nanoseconds",
        "call_time of python (pid 100), 3880002 nanoseconds",
    ];
    assert_eq!((all.iter().map(head).collect::<Vec<_>>(), stacks), (wanted.map(str::to_owned).to_vec(), 13));
    assert_eq!(
        read(&[ExportValue::OsWaits]).0,
        [format!("\"os_waits of python (pid 100)\", 1 \"none\": {item} poll 1")]
    );
}
