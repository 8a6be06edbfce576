//! The files are what `gputrace schema` says, whoever reads them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use gputrace_collectors::schema::{SCHEMA_VERSION, TABLES, Table, TableId};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Encoding;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::util::{
    Driver, Finished, Scratch, Trace, linked_with_library, nccl_folder, program, program_with, repository,
};

/// A run that fills every table.
fn full(scratch: &Scratch) -> Finished {
    let target = scratch.target(program("cuda_values")).with_driver(Driver::Plain);
    target.options(["--malloc", "full"]).traced().expect(0)
}

/// Runs of programs that fill every table.
fn all(scratch: &Scratch) -> Finished {
    let python = format!("python3 {} nested", repository().join("tests/programs/stacks.py").display());
    let folder = nccl_folder();
    let nccl = program_with("nccl_client", "linked", &linked_with_library("libnccl.so.2", &folder, &[]));
    let nccl = format!("LD_LIBRARY_PATH={} TMPDIR=. {} > /dev/null", folder.display(), nccl.display());
    let script = format!("{} > /dev/null && {python} > /dev/null && {nccl}", program("cuda_values").display());
    let truth = scratch.path().join("truth-%p.json");
    let target = scratch.shell(&script).with_driver(Driver::Plain).env("FAKE_CUDA_TRUTH", &truth);
    let run = target.options(["--malloc", "full", "--stacks-over", "0", "--gpu-time", "full"]).traced().expect(0);
    // And what the simulated GPU tells of itself.
    let trace = run.trace.to_string_lossy().into_owned();
    for file in names(scratch.path()).into_iter().filter(|name| name.starts_with("truth-")) {
        let file = scratch.path().join(file);
        scratch.gputrace(&["import", &file.to_string_lossy(), "-o", &trace]).expect(0);
    }
    run
}

/// The tables that a recorded trace of CUDA may have: what PyTorch's allocator held, and what other profilers told, is in
/// none that was not imported.
fn recorded() -> impl Iterator<Item = &'static Table> {
    const OTHERS: [TableId; 5] = [
        TableId::GpuSamples,
        TableId::TorchMemory,
        TableId::CommandBuffers,
        TableId::Dispatches,
        TableId::ProfilerEvents,
    ];
    TABLES.iter().filter(|table| !OTHERS.contains(&table.id))
}

#[test]
fn every_file_has_the_columns_that_the_schema_states() {
    let scratch = Scratch::new();
    let trace = all(&scratch).read();
    for table in recorded() {
        let files = trace.files(table.name);
        // Each import adds files of its own; what is recorded stands in one.
        let imported = ["kernels", "device_copies", "names"].contains(&table.name);
        assert!(files.len() == 1 || imported && !files.is_empty(), "{}: {files:?}", table.name);
        for file in &files {
            let file = File::open(file).expect("a file");
            let schema = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file").schema().clone();
            let stated = table.arrow();
            let columns = |schema: &arrow::datatypes::Schema| -> Vec<_> {
                schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone(), f.is_nullable())).collect()
            };
            assert_eq!(columns(&schema), columns(&stated), "{}", table.name);
        }
    }
}

#[test]
fn every_column_is_encoded_as_older_readers_know_it() {
    let scratch = Scratch::new();
    let trace = all(&scratch).read();
    // DuckDB before 2.0 reads BYTE_STREAM_SPLIT for floating point numbers only.
    let known = [Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY, Encoding::DELTA_BINARY_PACKED];
    for path in recorded().flat_map(|table| trace.files(table.name)) {
        let reader = SerializedFileReader::new(File::open(&path).expect("a file")).expect("a Parquet file");
        for column in reader.metadata().row_groups().iter().flat_map(|group| group.columns()) {
            let unknown: Vec<_> = column.encodings().filter(|encoding| !known.contains(encoding)).collect();
            assert!(unknown.is_empty(), "{}: {} {unknown:?}", path.display(), column.column_path());
        }
    }
}

#[test]
fn every_file_names_the_version_of_the_schema() {
    let scratch = Scratch::new();
    let run = all(&scratch);
    for table in &TABLES {
        for path in run.read().files(table.name) {
            let reader = SerializedFileReader::new(File::open(&path).expect("a file")).expect("a Parquet file");
            let metadata = reader.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
            let version = metadata.iter().find(|pair| pair.key == "gputrace.schema_version");
            assert_eq!(
                version.and_then(|pair| pair.value.clone()),
                Some(SCHEMA_VERSION.to_string()),
                "{}",
                path.display()
            );
        }
    }
    assert_eq!(run.read().manifest().schema_version, SCHEMA_VERSION);
}

#[test]
fn a_trace_holds_its_parts_and_nothing_else() {
    let scratch = Scratch::new();
    let run = all(&scratch);
    let entries: BTreeSet<String> = names(&run.trace).into_iter().collect();
    let parts = recorded().map(|table| table.name.to_owned()).chain(["manifest", "summary.txt"].map(str::to_owned));
    let expected: BTreeSet<String> = parts.collect();
    let journal = run.trace.join("journal");
    assert!(!journal.exists() || names(&journal).is_empty(), "a clean end leaves no journal");
    let others: Vec<_> = entries.difference(&expected).filter(|name| *name != "journal" && *name != "job").collect();
    assert!(others.is_empty(), "{others:?}");
    // One hive partition per host, and files with the launcher's number.
    let manifest = run.read().manifest();
    for table in recorded() {
        assert_eq!(names(&run.trace.join(table.name)), [format!("host={}", manifest.host)]);
        let files = names(&run.trace.join(table.name).join(format!("host={}", manifest.host)));
        assert!(files.iter().all(|name| name.starts_with(&format!("{:x}-", manifest.launcher_id))), "{files:?}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten();
    let mut all: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

#[test]
fn a_process_without_events_has_its_row_and_no_file() {
    let scratch = Scratch::new();
    let run =
        scratch.shell("for i in 1 2 3; do /bin/true; done; exit 0").options(["--malloc", "off"]).traced().expect(0);
    let trace = run.read();
    assert_eq!(trace.table("processes").len(), 4);
    let files: Vec<PathBuf> = TABLES.iter().flat_map(|table| trace.files(table.name)).collect();
    assert_eq!(files.len(), 1, "{files:?}");
}

#[test]
fn a_name_has_the_same_id_in_every_trace() {
    let scratch = Scratch::new();
    let first = full(&scratch).read().names();
    let target = scratch.target(program("cuda_routes")).arg("procaddr").with_driver(Driver::Symbolic);
    let second = target.traced().expect(0).read().names();
    let shared: Vec<_> = second.iter().filter(|(id, _)| first.contains_key(id)).collect();
    assert!(shared.len() >= 5, "{second:?}");
    assert!(shared.iter().all(|(id, name)| first[id] == **name));
    let ids = |names: &std::collections::HashMap<i64, String>| names.values().cloned().collect::<BTreeSet<_>>();
    let both: Vec<_> = ids(&first).intersection(&ids(&second)).cloned().collect();
    assert_eq!(both.len(), shared.len(), "a name with two ids");
}

#[test]
fn the_summary_is_what_was_printed() {
    let scratch = Scratch::new();
    let run = full(&scratch);
    let summary = fs::read_to_string(run.trace.join("summary.txt")).expect("a summary");
    assert_eq!(run.stderr, summary);
    assert!(summary.starts_with("gputrace: cuda_values  exit 0"), "{summary}");
    assert!(
        summary.ends_with(&format!("({})\n", summary.rsplit('(').next().unwrap_or_default().trim_end_matches(")\n")))
    );
    assert!(summary.contains(&format!("next: gputrace report {}", run.trace.display())), "{summary}");
}

#[test]
fn rows_of_one_process_carry_its_id_pid_and_threads() {
    let scratch = Scratch::new();
    let trace = full(&scratch).read();
    let root = trace.root();
    let threads: BTreeSet<i64> = trace.table("threads").rows().map(|row| row.int("tid")).collect();
    for table in
        ["launches", "syncs", "transfers", "device_memory", "host_memory", "ranges", "os_waits", "api", "threads"]
    {
        for row in trace.table(table).rows() {
            assert_eq!((row.int("process_id"), row.int("pid")), (root.process_id, i64::from(root.pid)), "{table}");
            // The simulated driver has threads too, which allocate and wait; its caller is the first one.
            let tid = row.int("tid");
            let others = ["host_memory", "os_waits", "threads"].contains(&table) && threads.contains(&tid);
            assert!(tid == i64::from(root.pid) || others, "{table}");
        }
    }
    let process = trace.table("processes");
    let row = process.rows().next().expect("one process");
    assert!(row.text("exe").ends_with("/cuda_values") && row.text("command").ends_with("cuda_values"));
    assert_eq!((row.maybe_int("exit_code"), row.maybe_int("exit_signal")), (Some(0), None));
    assert_eq!(row.text("malloc_mode"), "full");
    let events: i64 = ["launches", "syncs", "transfers", "device_memory", "host_memory", "os_waits", "api"]
        .iter()
        .map(|t| trace.table(t).len() as i64)
        .sum();
    // The one range of the program is two events.
    let events = events + 2 * trace.table("ranges").len() as i64;
    assert_eq!(row.int("events"), events);
    assert_eq!(trace.table("threads").rows().map(|thread| thread.int("events")).sum::<i64>(), events);
}

#[test]
fn the_size_of_a_trace_is_bounded_and_the_manifest_says_what_went() {
    let scratch = Scratch::new();
    let target = scratch.target(program("threads")).args(["8", "50000"]).with_instant_driver();
    let run = target.options(["--on-full", "block", "--max-size", "256K"]).traced().expect(0);
    let trace: Trace = run.read();
    let bytes: u64 = trace.files("launches").iter().map(|file| fs::metadata(file).expect("a file").len()).sum();
    let removed = trace.manifest().removed_files;
    assert!(bytes <= 256 << 10 || removed.is_empty(), "{bytes} bytes are left, {removed:?} went");
    assert!(removed.iter().all(|name| !run.trace.join(name).exists()), "{removed:?}");
    // The run's own summary and the report say from when to when it was, and that is no failure of the report.
    assert!(!removed.is_empty(), "800,000 launches take more than 256 KiB");
    let says = "oldest detail removed to keep to --max-size: launches ";
    assert!(run.stderr.lines().any(|line| line.starts_with(says) && line.contains(" rows)")), "{}", run.stderr);
    let path = run.trace.to_str().expect("a plain path");
    let report = scratch.gputrace(&["report", path, "--only", "launch-overhead"]).expect(0);
    assert!(report.text().contains("Removed to keep to --max-size"), "{}", report.text());
    // Removed or not, the books are in order.
    assert!(trace.root().balanced);
}

#[test]
fn a_trace_that_may_be_far_too_small_keeps_its_newest_detail_and_says_what_went() {
    let scratch = Scratch::new();
    let target = scratch.target(program("threads")).args(["8", "50000"]).with_instant_driver();
    let run = target.options(["--on-full", "block", "--max-size", "1K"]).traced().expect(0);
    let trace: Trace = run.read();
    let detail = ["launches", "api", "os_waits", "host_memory", "counters"].map(|table| trace.files(table).len());
    assert_eq!((detail.iter().sum::<usize>(), detail[4]), (1, 0), "{detail:?}");
    assert!(!run.stderr.contains("no CUDA calls seen"), "{}", run.stderr);
    let path = run.trace.to_str().expect("a plain path");
    let report = scratch.gputrace(&["report", path, "--only", "launch-overhead"]).expect(0);
    assert!(report.text().contains("Removed to keep to --max-size"), "{}", report.text());
}
