//! Files that a traced process names or writes: programs and libraries with their debugging information, and maps for perf.

use std::fs;
use std::path::Path;

use super::file::File;
use super::perf_map::PerfMaps;

pub(crate) fn symbols(data: &[u8]) {
    let root = crate::fuzzed::folder("symbols");
    fs::create_dir_all(&root).expect("room");
    fs::write(root.join("lib.so"), data).expect("room");
    if let Some(mut file) = File::read(&root, Path::new("/lib.so"), &mut |_| None) {
        for address in (0..0x4000).step_by(0x3f).chain([u64::MAX, i64::MAX as u64]) {
            let sites = file.find(address);
            assert!(sites.len() <= 64);
        }
    }
    let _ = fs::remove_dir_all(&root);
}

pub(crate) fn perf_map(data: &[u8]) {
    let proc = crate::fuzzed::folder("perf-map");
    fs::create_dir_all(proc.join("7/root/tmp")).expect("room");
    fs::write(proc.join("7/status"), "NSpid:\t7\t3\n").expect("room");
    let mut maps = PerfMaps::new(&proc);
    // It grows while it is read.
    let (first, _) = data.split_at(data.len() / 2);
    for text in [first, data] {
        fs::write(proc.join("7/root/tmp/perf-3.map"), text).expect("room");
        for address in [0, 0x1000, 0x1010, 0x2000, 0xffff, u64::MAX - 1, u64::MAX] {
            assert!(maps.find(7, address, true).is_none_or(|name| !name.is_empty()));
        }
    }
    let _ = fs::remove_dir_all(&proc);
}
