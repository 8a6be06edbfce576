//! Throttling by the quota of processors: cpu.stat of the control groups (version 2) of the traced processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Id, Page};
use crate::node;

/// The groups, each once, with the process that stands for it in rows.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<PathBuf, Group>,
}

#[derive(Debug)]
struct Group {
    members: Vec<(i64, i32)>,
    last: Option<(u64, [u64; 3])>,
}

impl Groups {
    /// A process began; `root` is `/`.
    pub(super) fn add(&mut self, root: &Path, whose: (i64, i32)) {
        if let Some(path) = node::control_group(root, &whose.1.to_string()) {
            self.groups.entry(path).or_insert(Group { members: Vec::new(), last: None }).members.push(whose);
        }
    }

    /// It has ended.
    pub(super) fn forget(&mut self, process_id: i64) {
        for group in self.groups.values_mut() {
            group.members.retain(|(id, _)| *id != process_id);
        }
        self.groups.retain(|_, group| !group.members.is_empty());
    }

    /// Reads them.
    pub(super) fn read(&mut self, root: &Path, page: &mut Page<'_>) {
        for (path, group) in &mut self.groups {
            let at = root.join("sys/fs/cgroup").join(path).join("cpu.stat");
            let Some(now) = fs::read_to_string(at).ok().as_deref().and_then(throttling) else {
                let what = "the kernel tells of no quota of processors: no controller `cpu` in their control group";
                page.missing("cgroup", what.to_owned());
                continue;
            };
            let Some((then_ns, last)) = group.last.replace((page.at_ns, now)) else { continue };
            let whose = group.members.first().copied();
            let added = |n: usize| now[n].saturating_sub(last[n]) as f64;
            page.since(then_ns, whose, None, Id::Periods, added(0));
            page.since(then_ns, whose, None, Id::ThrottledPeriods, added(1));
            page.since(then_ns, whose, None, Id::ThrottledTime, added(2) * 1000.0);
        }
    }
}

/// Periods, throttled ones, and the time that was taken away, us.
fn throttling(text: &str) -> Option<[u64; 3]> {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok())
    };
    Some([of("nr_periods")?, of("nr_throttled")?, of("throttled_usec")?])
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::counters::Counters;

    #[test]
    fn throttling_is_what_was_added_and_once_for_each_group() {
        let root = std::env::temp_dir().join(format!("gputrace-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        };
        write("proc/7/cgroup", "1:name=systemd:/x\n0::/job\n");
        write("proc/8/cgroup", "0::/job\n");
        write("proc/9/cgroup", "0::/bare\n");
        write("sys/fs/cgroup/bare/cpu.stat", "usage_usec 5\n");
        let about = Mutex::new(Counters::new(1.0));
        let mut groups = Groups::default();
        [7, 8, 9].into_iter().for_each(|pid| groups.add(&root, (i64::from(pid) * 10, pid)));
        let mut look = |at_ns: u64, throttled: u64| {
            let text =
                format!("usage_usec 5\nnr_periods {}\nnr_throttled {throttled}\nthrottled_usec 50\n", at_ns / 1000);
            write("sys/fs/cgroup/job/cpu.stat", &text);
            let mut page = Page { at_ns, rows: Vec::new(), about: &about };
            groups.read(&root, &mut page);
            page.rows
        };
        assert!(look(1_000_000, 3).is_empty());
        let rows = look(2_000_000, 10);
        let values: Vec<(Id, f64)> = rows.iter().map(|row| (row.id, row.value)).collect();
        assert_eq!(values, [(Id::Periods, 1000.0), (Id::ThrottledPeriods, 7.0), (Id::ThrottledTime, 0.0)]);
        assert!(rows.iter().all(|row| row.process == Some((70, 7)) && row.interval_ns == Some(1_000_000)));
        let missing = about.lock().unwrap().source("cgroup").map(|source| source.missing.len());
        assert_eq!(missing, Some(1));
        groups.forget(70);
        groups.forget(90);
        assert_eq!(groups.groups.len(), 1);
        fs::remove_dir_all(&root).unwrap();
    }
}
