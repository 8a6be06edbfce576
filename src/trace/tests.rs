//! Traces that are damaged, foreign, empty or in several pieces.

use std::fs;
use std::path::{Path, PathBuf};

use gputrace_collectors::Manifest;
use gputrace_collectors::archive::{Archive, Columns};
use gputrace_collectors::names::NameKind;
use gputrace_collectors::schema::{SCHEMA_VERSION, TableId};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};
use serde_json::json;

use super::testing::{START, TestTrace};
use super::{Filter, Problem, Trace, TraceError, Want};
use crate::analysis::{ALL, Facts, Need};

const LAUNCHES: [Want; 1] = [Want { table: TableId::Launches, columns: &["api_ns", "name_id", "captured"] }];

fn rows_of(trace: &Trace, filter: &Filter) -> u64 {
    let mut rows = 0;
    trace.scan(&LAUNCHES, filter, &mut |r| rows += r.len as u64);
    rows
}

/// A trace with every table, of 300 launches.
fn sample() -> TestTrace {
    let mut trace = TestTrace::new();
    trace.process(1, 100, Some(0), START + 1_000_000_000);
    trace.process(2, 200, Some(1), START + 1_000_000_000);
    for process in [1, 2] {
        let mut thread = trace.thread(process, 7);
        for step in 0..50 {
            thread.copy("HtoD", ("pageable", "device"), true, 1 << 20, 9_000);
            (0..3).for_each(|k| thread.launch(&format!("kernel_{k}"), 2_000));
            thread.alloc("cuMemAlloc_v2", "device", step, 10, 40_000);
            thread.other("cuModuleGetFunction", "module", 900);
            thread.sync("cuStreamSynchronize", "stream", 100_000);
            thread.malloc("alloc", 100, 524_338.0);
        }
    }
    trace
}

fn error(path: &std::path::Path) -> String {
    Trace::open(&[path.to_owned()]).map(|_| ()).expect_err("not a trace").to_string()
}

#[test]
fn what_is_no_trace_is_said_in_one_line() {
    let trace = sample();
    let folder = trace.write_parts(1);
    assert!(error(&folder.join("nothing")).contains("no such folder"));
    assert!(error(&folder.join("launches/host=node/abc-000000.parquet")).contains("a trace is a folder"));
    assert!(error(&folder.join("launches/host=node")).contains("neither a manifest nor a table"));
}

#[test]
fn another_version_is_named() {
    let mut trace = sample();
    if let Some(manifest) = &mut trace.manifest {
        (manifest.schema_version, manifest.tool_version) = (99, "9.9.9".into());
    }
    let folder = trace.write_parts(1);
    let error = Trace::open(&[folder.to_owned()]).map(|_| ()).expect_err("another version");
    assert!(matches!(error, TraceError::Version { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("version 99") && error.to_string().contains("9.9.9"), "{error}");
}

#[test]
fn of_mixed_versions_this_one_is_read_and_the_other_is_named_in_one_line() {
    let trace = sample();
    let folder = trace.write_parts(1);
    let mut other = trace.manifest.clone().unwrap();
    (other.schema_version, other.tool_version, other.launcher_id) = (99, "9.9.9".into(), 0xdef);
    other.write(&gputrace_collectors::manifest::path(folder, "node", 0xdef)).unwrap();
    for table in ["launches", "syncs", "processes", "names"] {
        let files = folder.join(table).join("host=node");
        fs::copy(files.join("abc-000000.parquet"), files.join("def-000000.parquet")).unwrap();
    }
    let trace = Trace::open(&[folder.to_owned()]).unwrap();
    assert_eq!((rows_of(&trace, &Filter::default()), trace.processes.len(), trace.launchers.len()), (300, 2, 1));
    let problems = trace.problems();
    assert!(problems.len() == 1 && problems[0].lost_rows(), "{problems:?}");
    assert!(problems[0].text.contains("schema version 99") && problems[0].text.contains("9.9.9"), "{problems:?}");
}

#[test]
fn a_lost_manifest_leaves_the_rows() {
    let mut trace = sample();
    trace.manifest = None;
    let trace = trace.open();
    assert_eq!((rows_of(&trace, &Filter::default()), trace.processes.len()), (300, 2));
    let problems = trace.problems();
    assert!(
        problems.len() == 1 && problems[0].text.contains("no manifest") && !problems[0].lost_rows(),
        "{problems:?}"
    );
}

#[test]
fn a_damaged_file_is_named_and_the_others_are_read() {
    let trace = sample();
    let folder = trace.write_parts(3);
    let file = folder.join("launches/host=node/abc-000001.parquet");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(folder.join("launches/host=node/abc-000002.parquet"), "no Parquet at all").unwrap();
    fs::write(folder.join("manifest/node-def.json"), "{ broken").unwrap();
    let trace = Trace::open(&[folder.to_owned()]).unwrap();
    assert_eq!(rows_of(&trace, &Filter::default()), 100);
    let problems = trace.problems();
    assert_eq!(problems.iter().filter(|p| p.lost_rows()).count(), 2, "{problems:?}");
    assert!(problems.iter().any(|p| p.path == file && p.text.contains("cut short")), "{problems:?}");
    assert!(problems.iter().any(|p| p.path.ends_with("node-def.json") && p.text.contains("not a manifest")));
}

/// Writes a file's end anew, with other facts in it.
fn rewritten(file: &std::path::Path, change: impl Fn(ParquetMetaData) -> ParquetMetaData) {
    let bytes = fs::read(file).unwrap();
    let footer = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let rows = &bytes[..bytes.len() - 8 - footer(bytes.len() - 8)];
    let about = ParquetMetaDataReader::new().parse_and_finish(&fs::File::open(file).unwrap()).unwrap();
    let mut out = rows.to_vec();
    ParquetMetaDataWriter::new(&mut out, &change(about)).finish().unwrap();
    fs::write(file, out).unwrap();
}

#[test]
fn a_compression_that_is_not_supported_is_no_damage() {
    let trace = sample();
    let folder = trace.write_parts(1);
    rewritten(&folder.join("launches/host=node/abc-000000.parquet"), |about| {
        let mut about = about.into_builder();
        let groups = about.take_row_groups().into_iter().map(|group| {
            let mut group = group.into_builder();
            let columns = group.take_columns().into_iter();
            let snappy = |column: ColumnChunkMetaData| {
                column.into_builder().set_compression(parquet::basic::Compression::SNAPPY).build().unwrap()
            };
            group.set_column_metadata(columns.map(snappy).collect()).build().unwrap()
        });
        let groups = groups.collect();
        about.set_row_groups(groups).build()
    });
    let trace = Trace::open(&[folder.to_owned()]).unwrap();
    assert_eq!(rows_of(&trace, &Filter::default()), 0);
    let problems = trace.problems();
    assert!(problems.len() == 1 && problems[0].lost_rows(), "{problems:?}");
    assert!(
        problems[0].text.contains("compressed with snappy") && !problems[0].text.contains("damaged"),
        "{problems:?}"
    );
}

#[test]
fn a_file_that_was_given_another_name_is_named() {
    let trace = sample();
    let folder = trace.write_parts(1);
    let mut archive = Archive::create(folder, "node", 0xdef).unwrap();
    let rows = Columns::new(TableId::Launches, 1).i64("start_ns", [START]).batch().unwrap();
    archive.append(TableId::Launches, &rows).unwrap();
    archive.finish(&Manifest { schema_version: SCHEMA_VERSION, ..Manifest::default() }).unwrap();
    let at = |name: &str| folder.join("launches/host=node").join(name);
    let read = || {
        let trace = Trace::open(&[folder.to_owned()]).unwrap();
        (rows_of(&trace, &Filter::default()), trace.problems())
    };
    let problems = read().1;
    assert!(!problems.iter().any(|problem| problem.text.contains("was written as")), "{problems:?}");
    fs::rename(at("def-000000.parquet"), at("def-000007.parquet")).unwrap();
    let (rows, problems) = read();
    assert_eq!(rows, 301, "its rows are read");
    let named =
        |problem: &Problem| problem.path == at("def-000007.parquet") && problem.text.contains("def-000000.parquet");
    assert!(problems.iter().any(|problem| named(problem) && problem.lost_rows()), "{problems:?}");
}

#[test]
fn a_foreign_file_is_named_and_left_out() {
    let trace = sample();
    let folder = trace.write_parts(1);
    fs::copy(folder.join("names/host=node/abc-000000.parquet"), folder.join("launches/host=node/abc-000009.parquet"))
        .unwrap();
    let trace = Trace::open(&[folder.to_owned()]).unwrap();
    assert_eq!(rows_of(&trace, &Filter::default()), 300);
    assert!(trace.problems()[0].text.contains("has no column start_ns"), "{:?}", trace.problems());
}

#[test]
fn no_damage_makes_a_report_panic() {
    let trace = sample();
    let folder = trace.write_parts(1);
    let tables = ["launches", "syncs", "names", "processes", "device_memory", "host_memory", "transfers"];
    let files = tables.map(|t| folder.join(t).join("host=node/abc-000000.parquet"));
    let whole = files.clone().map(|f| fs::read(f).unwrap());
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for round in 0..100 {
        for (file, whole) in files.iter().zip(&whole) {
            let mut bytes = whole.clone();
            for _ in 0..1 + round % 4 {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            fs::write(file, bytes).unwrap();
        }
        let trace = Trace::open(&[folder.to_owned()]).unwrap();
        let filter = Filter::default();
        let needs: Vec<Need> = ALL.iter().flat_map(|a| a.needs()).copied().collect();
        let facts = Facts::gather(&trace, &filter, &needs);
        ALL.iter().for_each(|analysis| drop(analysis.section(&facts)));
    }
}

#[test]
fn splitting_into_files_changes_nothing() {
    let trace = sample();
    let sections = |parts| {
        let trace = Trace::open(&[trace.write_parts(parts).to_owned()]).unwrap();
        let filter = Filter::default();
        let needs: Vec<Need> = ALL.iter().flat_map(|a| a.needs()).copied().collect();
        let facts = Facts::gather(&trace, &filter, &needs);
        // The summary names the size of the trace.
        ALL[1..].iter().map(|a| a.section(&facts)).collect::<Vec<_>>()
    };
    assert_eq!(sections(1), sections(7));
}

#[test]
fn filters_keep_a_span_and_some_ranks() {
    let trace = sample();
    let trace = trace.open();
    let of = |pids: &[i32], ranks: &[i32]| rows_of(&trace, &Filter::default().only(&trace.processes, pids, ranks));
    assert_eq!((of(&[], &[]), of(&[100], &[]), of(&[], &[1]), of(&[100], &[1]), of(&[], &[5])), (300, 150, 150, 0, 0));
    let step = 9_000 + 3 * 2_000 + 40_000 + 900 + 100_000 + 10;
    let span = Filter { from_ns: Some(START + step), to_ns: Some(START + 3 * step), ..Filter::default() };
    assert_eq!(rows_of(&trace, &span), 2 * 2 * 3);
    let later = Filter { from_ns: Some(START + 3_600_000_000_000), ..Filter::default() };
    assert_eq!(rows_of(&trace, &later), 0);
}

#[test]
fn several_folders_are_one_trace() {
    let (mut one, mut two) = (TestTrace::new(), TestTrace::new());
    one.thread(1, 7).launch("a", 1_000);
    two.thread(2, 7).launch("b", 1_000);
    let id = two.name(NameKind::Kernel, "b");
    two.manifest.as_mut().expect("a manifest").launcher_id += 1;
    let folders = [one.write_parts(1).to_owned(), two.write_parts(1).to_owned()];
    let trace = Trace::open(&folders).unwrap();
    assert_eq!(rows_of(&trace, &Filter::default()), 2);
    assert_eq!(trace.names(&[id].into_iter().collect()).full(id), "b");
    assert_eq!(trace.manifests().count(), 2);
}

#[test]
fn an_empty_trace_is_reported() {
    let mut trace = TestTrace::new();
    trace.row(TableId::Processes, json!({ "process_id": 1, "pid": 5, "traced": true, "exe": "/bin/true" }));
    let trace = trace.open();
    let filter = Filter::default();
    let needs: Vec<Need> = ALL.iter().flat_map(|a| a.needs()).copied().collect();
    let facts = Facts::gather(&trace, &filter, &needs);
    let text = ALL[0].section(&facts).literal.unwrap_or_default();
    assert!(text.contains("no CUDA calls seen: no process loaded the driver (1 process traced)"), "{text}");
}

#[test]
fn rows_that_were_added_to_a_recorded_trace_are_read_with_its_own() {
    let trace = sample();
    let folder = trace.write_parts(2).to_owned();
    let manifest = trace.manifest.clone().unwrap();
    let mut archive = Archive::add_to(&folder, &manifest.host, manifest.launcher_id).unwrap();
    let gemm = archive.name(NameKind::Kernel, "gemm").unwrap();
    let rows = 100_000;
    let batch = Columns::new(TableId::Kernels, rows)
        .i64("start_ns", (0..rows as i64).map(|n| START + 5 + n * 1_000))
        .i64("gpu_ns", (0..rows as i64).map(|n| n % 900))
        .i64("process_id", (0..rows).map(|_| 1))
        .i64("name_id", (0..rows).map(|n| (n % 3 > 0).then_some(gemm)));
    archive.append(TableId::Kernels, &batch.batch().unwrap()).unwrap();
    let more = Columns::new(TableId::Launches, 2).i64("start_ns", [START, START + 1]).i64("process_id", [2, 2]);
    archive.append(TableId::Launches, &more.batch().unwrap()).unwrap();
    archive.finish(&manifest).unwrap();

    let trace = Trace::open(&[folder]).unwrap();
    assert_eq!(trace.launchers.len(), 1);
    assert_eq!(rows_of(&trace, &Filter::default()), 302);
    let (mut count, mut sum, mut named) = (0, 0, 0);
    let want = [Want { table: TableId::Kernels, columns: &["gpu_ns", "name_id", "correlation_id"] }];
    trace.scan(&want, &Filter::default(), &mut |rows| {
        count += rows.len;
        sum += rows.i64("gpu_ns").iter().sum::<i64>();
        named += rows.i64_or("name_id", -1).iter().filter(|id| **id == gemm).count();
        assert!(rows.i64_or("correlation_id", -1).iter().all(|id| *id == -1));
    });
    assert_eq!((count, sum), (rows, (0..rows as i64).map(|n| n % 900).sum()));
    assert_eq!(named, (0..rows).filter(|n| n % 3 > 0).count());
    assert_eq!(trace.names(&[gemm].into_iter().collect()).full(gemm), "gemm");
    assert_eq!(trace.problems(), []);
}

/// The trace's folder, in which its launcher has a journal that is empty.
fn with_journal(made: &TestTrace) -> (PathBuf, PathBuf) {
    let folder = made.write_parts(1).to_owned();
    let manifest = fs::read_dir(folder.join("manifest")).expect("a manifest").next().expect("one").expect("it");
    let name = Path::new(&manifest.file_name()).with_extension("journal");
    fs::create_dir_all(folder.join("journal")).expect("our own folder");
    let journal = folder.join("journal").join(name);
    fs::write(&journal, b"").expect("our own file");
    (folder, journal)
}

#[test]
fn a_trace_whose_writer_ends_while_it_is_read_is_read_anew() {
    let made = TestTrace::rich();
    let (folder, journal) = with_journal(&made);
    let mut times = 0;
    let journals = Trace::read(&[folder], |trace| {
        times += 1;
        let _ = fs::remove_file(&journal);
        Ok::<_, TraceError>(trace.launchers.iter().filter(|launcher| launcher.journal.is_some()).count())
    });
    assert_eq!((times, journals.expect("a trace")), (2, 0));
}

#[test]
fn a_trace_whose_rows_move_into_files_while_it_is_read_is_read_anew() {
    let made = TestTrace::rich();
    let (folder, journal) = with_journal(&made);
    let host = fs::read_dir(folder.join("launches")).expect("a table").next().expect("one").expect("it").path();
    let file = fs::read_dir(&host).expect("a folder").next().expect("one").expect("it").path();
    let young = host.join("young");
    fs::rename(&file, &young).expect("our own file");
    let launches = |trace: &Trace| trace.launchers[0].sealed(TableId::Launches).len();
    // As the one that goes on for a killed gputrace finishes them, and then its journal takes the other's place.
    for turn in 0..2 {
        let mut times = 0;
        let last = Trace::read(std::slice::from_ref(&folder), |trace| {
            times += 1;
            match (times, turn) {
                (1, 0) => fs::rename(&young, &file).expect("our own file"),
                (1, _) => {
                    fs::write(journal.with_extension("new"), b"").expect("our own file");
                    fs::rename(journal.with_extension("new"), &journal).expect("our own file");
                }
                _ => {}
            }
            Ok::<_, TraceError>(launches(trace))
        });
        assert_eq!((times, last.expect("a trace")), (2, 1), "{turn}");
    }
}
