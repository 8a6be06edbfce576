//! Memory snapshots of PyTorch become tables, and device-memory says what PyTorch's own statistics said.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::util::{Scratch, Trace, repository};

/// Imports a file into a new trace.
#[track_caller]
fn imported(scratch: &Scratch, file: &Path) -> (Trace, String) {
    let trace = scratch.path().join("imported");
    let run = scratch.gputrace(&["import".as_ref(), file.as_os_str(), "-o".as_ref(), trace.as_os_str()]).expect(0);
    (Trace::open(&trace), run.own_stderr())
}

/// What device-memory says of an imported trace.
fn device_memory(scratch: &Scratch) -> serde_json::Value {
    let report =
        scratch.gputrace(&["report", "imported", "--only", "device-memory", "--format", "json"]).expect(0).text();
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    report["analyses"]["device-memory"].clone()
}

#[test]
fn a_memory_snapshot_of_pytorch_says_what_pytorch_counted_whatever_its_protocol() {
    let scratch = Scratch::new();
    let file = repository().join("tests/traces/torch-memory.pickle");
    for protocol in 2..=5 {
        let _ = fs::remove_dir_all(scratch.path().join("imported"));
        let copy = scratch.path().join(format!("protocol-{protocol}.pickle"));
        let script = "import pickle, sys; pickle.dump(pickle.load(open(sys.argv[1], 'rb')), open(sys.argv[2], 'wb'), int(sys.argv[3]))";
        let python =
            Command::new("python3").args(["-c", script]).arg(&file).arg(&copy).arg(protocol.to_string()).status();
        assert!(python.expect("Python runs").success());
        let (trace, said) = imported(&scratch, &copy);
        assert!(said.contains("protocol-") && said.contains("events imported"), "{said}");
        assert_eq!(trace.table("torch_memory").len(), 190 + 6 + 23, "{protocol}");
        let report = device_memory(&scratch);
        // torch.cuda.memory_stats() said this on an H200, when PyTorch 2.11 took the snapshot: requested_bytes.all.peak,
        // reserved_bytes, allocated_bytes, inactive_split_bytes.
        for (fact, bytes) in [
            ("torch_peak_bytes", 74_979_336),
            ("torch_peak_reserved_bytes", 75_497_472),
            ("torch_reserved_bytes", 75_497_472),
            ("torch_allocated_bytes", 71_833_600),
            ("torch_fragmented_bytes", 1_566_720),
            ("torch_failed", 0),
        ] {
            assert_eq!(report["facts"][fact], bytes, "protocol {protocol}: {fact}");
        }
        let summary = scratch.gputrace(&["report", "imported", "--only", "summary", "--width", "200"]).expect(0).text();
        let line = " memory  most at once 71.5 MiB | at the snapshot 68.5 MiB in tensors, of 72.0 MiB reserved, 1.49 MiB of it fragmented; 0 allocations failed";
        assert!(summary.contains(line) && !summary.contains("no CUDA calls"), "{summary}");
        let rows = report["tables"]["torch_by_site"]["rows"].as_array().expect("rows").clone();
        let kept = rows.iter().find(|row| row["site"] == "train.py:9 leak").unwrap_or_else(|| panic!("{rows:?}"));
        assert_eq!((&kept["at_end"], &kept["at_end_bytes"]), (&3.into(), &(3 * 512 * 256 * 4).into()));
        assert!(kept["snapshot"] == format!("protocol-{protocol}.pickle") && kept["place"] == "/home/user/train.py:9");
        let at_peak: i64 = rows.iter().filter_map(|row| row["at_peak_bytes"].as_i64()).sum();
        assert_eq!(at_peak, 74_979_336, "the lines' bytes are the peak");
    }
}

#[test]
fn a_snapshot_without_a_history_and_one_that_failed_say_what_they_know() {
    let scratch = Scratch::new();
    let script = "
import pickle, sys
block = {'address': 4096, 'size': 1024, 'requested_size': 1000, 'state': 'active_allocated', 'frames': []}
free = {'address': 5120, 'size': 3072, 'requested_size': 0, 'state': 'inactive', 'frames': []}
segment = {'device': 1, 'address': 4096, 'total_size': 4096, 'stream': 0, 'blocks': [block, free]}
oom = {'action': 'oom', 'device_free': 7, 'size': 1 << 40, 'stream': 0, 'frames': [{'filename': 'a.py', 'line': 3, 'name': 'f'}]}
pickle.dump([segment], open('list.pickle', 'wb'))
pickle.dump({'segments': [segment], 'device_traces': [[], []]}, open('state.pickle', 'wb'))
pickle.dump({'segments': [segment], 'device_traces': [[], [oom, {'action': 'new'}]]}, open('oom.pickle', 'wb'))
pickle.dump({'segments': [print]}, open('code.pickle', 'wb'))
pickle.dump({'a': 1}, open('other.pickle', 'wb'))
open('cut.pickle', 'wb').write(pickle.dumps([segment])[:-9])
";
    scratch.target("python3").args(["-c", script]).plain().expect(0);
    for (name, notes) in [("list", "has no history"), ("state", "has no history"), ("oom", "memory action new 1")] {
        let _ = fs::remove_dir_all(scratch.path().join("imported"));
        let (_, said) = imported(&scratch, &scratch.path().join(format!("{name}.pickle")));
        assert!(said.contains(notes), "{name}: {said}");
        let facts = &device_memory(&scratch)["facts"];
        assert_eq!((&facts["torch_allocated_bytes"], &facts["torch_fragmented_bytes"]), (&1024.into(), &3072.into()));
        assert_eq!(facts["torch_failed"], i64::from(name == "oom"));
        assert_eq!(facts["torch_peak_bytes"].is_null(), name != "oom", "{name}: {facts}");
    }
    for (name, wanted) in [("code", "only plain data"), ("other", "no memory snapshot"), ("cut", "cut off or damaged")]
    {
        let file = scratch.path().join(format!("{name}.pickle"));
        let run = scratch.gputrace(&["import".as_ref(), file.as_os_str(), "-o".as_ref(), "new".as_ref()]).expect(1);
        assert!(run.own_stderr().contains(wanted) && run.own_stderr().lines().count() == 1, "{}", run.own_stderr());
    }
}
