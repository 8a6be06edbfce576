//! What an archive leaves, and what it does not.

use super::*;

/// A folder of its own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("gputrace-archive-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn files(&self, table: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(table).join("host=h")).into_iter().flatten();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn kernels(rows: i64) -> RecordBatch {
    Columns::new(TableId::Kernels, rows as usize)
        .i64("start_ns", (0..rows).map(|n| n * 10))
        .i64("gpu_ns", (0..rows).map(|_| 7))
        .i64("correlation_id", (0..rows).map(|n| (n % 2 == 0).then_some(n)))
        .batch()
        .unwrap()
}

#[test]
fn a_second_archive_goes_on_after_the_files_that_are_there() {
    let folder = Folder::new("more");
    let mut first = Archive::create(&folder.0, "h", 0xabc).unwrap();
    (first.group_rows, first.file_bytes) = (1, 1);
    first.append(TableId::Kernels, &kernels(40_000)).unwrap();
    first.finish(&Manifest::default()).unwrap();
    let about = || Manifest::read(&manifest::path(&folder.0, "h", 0xabc)).unwrap();
    assert_eq!(about().stored, [("kernels".to_owned(), Stored { files: 2, rows: 40_000 })].into());
    assert_eq!(folder.files("kernels"), ["abc-000000.parquet", "abc-000001.parquet"]);
    assert!(Archive::create(&folder.0, "h", 0xabc).is_err());

    let mut more = Archive::add_to(&folder.0, "h", 0xabc).unwrap();
    more.append(TableId::Kernels, &kernels(5)).unwrap();
    more.finish(&Manifest { complete: true, ..about() }).unwrap();
    assert_eq!(folder.files("kernels").last().unwrap(), "abc-000002.parquet");
    assert!(about().complete);
    assert_eq!(about().stored["kernels"], Stored { files: 3, rows: 40_005 });
    assert!(Archive::add_to(&folder.0, "h", 0xdef).is_err(), "nobody recorded as this launcher");
}

#[test]
fn an_archive_that_is_not_finished_leaves_no_rows() {
    let folder = Folder::new("unfinished");
    let mut archive = Archive::create(&folder.0, "h", 0xabc).unwrap();
    (archive.group_rows, archive.file_bytes) = (1, 1);
    archive.append(TableId::Kernels, &kernels(40_000)).unwrap();
    archive.file_bytes = FILE_BYTES;
    archive.append(TableId::Kernels, &kernels(5)).unwrap();
    assert_eq!(folder.files("kernels").len(), 3);
    drop(archive);
    assert_eq!(folder.files("kernels"), Vec::<String>::new());
}

#[test]
fn columns_that_are_not_the_tables_are_refused() {
    let wrong = |columns: Columns| columns.batch().unwrap_err().to_string();
    let kernels = || Columns::new(TableId::Kernels, 1);
    assert_eq!(wrong(kernels().i64("start", [1])), "kernels has no column start");
    assert_eq!(wrong(kernels().i32("start_ns", [1])), "kernels.start_ns is not Int32");
    assert!(wrong(kernels().i64("start_ns", [1, 2])).contains("length"));
    assert!(wrong(kernels().i64("start_ns", [None])).contains("start_ns"));

    let folder = Folder::new("columns");
    let mut archive = Archive::create(&folder.0, "h", 1).unwrap();
    let copies = Columns::new(TableId::DeviceCopies, 1).batch().unwrap();
    assert!(archive.append(TableId::Kernels, &copies).unwrap_err().to_string().contains("kernels"));
}
