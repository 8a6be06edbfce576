//! What /proc says of a process: processor time, memory, threads, page faults, context switches.

use std::fs;
use std::path::Path;

use super::{Id, Page};
use crate::kernel;

/// The kernel tells user space of processor time in hundredths of a second, whatever its own clock.
const TICK_NS: f64 = 1e7;

/// What the kernel adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    user_ticks: u64,
    system_ticks: u64,
    minor_faults: u64,
    major_faults: u64,
    voluntary: u64,
    involuntary: u64,
}

/// The looks at a process.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last: Option<(u64, Sums)>,
}

impl Looks {
    /// Reads it; `root` is `/`. Nothing comes of a process that has ended.
    pub(super) fn read(&mut self, root: &Path, whose: (i64, i32), page: &mut Page<'_>) {
        let folder = root.join(format!("proc/{}", whose.1));
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let Some((mut sums, threads)) = text("stat").as_deref().and_then(stat) else { return };
        let status = text("status").unwrap_or_default();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        };
        let of_whom = Some(whose);
        sums.voluntary = of("voluntary_ctxt_switches:").unwrap_or_default();
        sums.involuntary = of("nonvoluntary_ctxt_switches:").unwrap_or_default();
        page.now(of_whom, None, Id::Threads, threads as f64);
        // A zombie has no memory.
        if let Some(kilobytes) = of("VmRSS:") {
            page.now(of_whom, None, Id::Rss, (kilobytes << 10) as f64);
        }
        if let Some((then_ns, last)) = self.last.replace((page.at_ns, sums)) {
            let passed_ns = page.at_ns.saturating_sub(then_ns).max(1) as f64;
            let added = |now: u64, before: u64| now.saturating_sub(before) as f64;
            let share = |now, before| added(now, before) * TICK_NS / passed_ns * 100.0;
            for (id, value) in [
                (Id::CpuUser, share(sums.user_ticks, last.user_ticks)),
                (Id::CpuSystem, share(sums.system_ticks, last.system_ticks)),
                (Id::MinorFaults, added(sums.minor_faults, last.minor_faults)),
                (Id::MajorFaults, added(sums.major_faults, last.major_faults)),
                (Id::VoluntarySwitches, added(sums.voluntary, last.voluntary)),
                (Id::InvoluntarySwitches, added(sums.involuntary, last.involuntary)),
            ] {
                page.since(then_ns, of_whom, None, id, value);
            }
        }
    }
}

/// Sums and threads out of /proc/PID/stat.
fn stat(text: &str) -> Option<(Sums, u64)> {
    let fields = kernel::stat_fields(text)?;
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let sums = Sums {
        user_ticks: number(14)?,
        system_ticks: number(15)?,
        minor_faults: number(10)?,
        major_faults: number(12)?,
        ..Sums::default()
    };
    Some((sums, number(20)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::counters::Counters;

    #[test]
    fn a_line_of_stat_is_read_past_any_name() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 101 9 3 0 250 75 0 0 20 0 12 0 5 1000 50";
        let (sums, threads) = stat(line).unwrap();
        assert_eq!((sums.minor_faults, sums.major_faults, sums.user_ticks, sums.system_ticks), (101, 3, 250, 75));
        assert_eq!(threads, 12);
        assert_eq!(stat("7 (a) S 1 7"), None);
        assert_eq!(stat(""), None);
    }

    #[test]
    fn sums_become_what_was_added_and_processor_time_a_share() {
        let root = std::env::temp_dir().join(format!("gputrace-proc-{}", std::process::id()));
        let folder = root.join("proc/7");
        fs::create_dir_all(&folder).unwrap();
        let about = Mutex::new(Counters::new(1.0));
        let mut looks = Looks::default();
        let mut look = |at_ns: u64, user: u64, faults: u64| {
            let stat = format!("7 (a) S 1 7 7 0 -1 0 {faults} 0 0 0 {user} 0 0 0 20 0 2 0 5 0 0");
            fs::write(folder.join("stat"), stat).unwrap();
            let status = format!("VmRSS:\t    2048 kB\nvoluntary_ctxt_switches:\t{user}\n");
            fs::write(folder.join("status"), status).unwrap();
            let mut page = Page { at_ns, rows: Vec::new(), about: &about };
            looks.read(&root, (70, 7), &mut page);
            page.rows
        };
        let first = look(1_000_000_000, 100, 5);
        assert_eq!(first.iter().map(|row| row.id).collect::<Vec<_>>(), [Id::Threads, Id::Rss]);
        let second = look(1_500_000_000, 125, 12);
        let row = |id: Id| second.iter().find(|row| row.id == id).expect("a row");
        assert_eq!((row(Id::Rss).value, row(Id::Threads).value), (2_097_152.0, 2.0));
        // 250 ms in 500 ms.
        assert_eq!((row(Id::CpuUser).value, row(Id::CpuUser).interval_ns), (50.0, Some(500_000_000)));
        assert_eq!((row(Id::MinorFaults).value, row(Id::MinorFaults).monotonic_ns), (7.0, 1_000_000_000));
        assert_eq!((row(Id::VoluntarySwitches).value, row(Id::CpuSystem).process), (25.0, Some((70, 7))));
        fs::remove_dir_all(&root).unwrap();
        assert!(look_at_nothing(&about).is_empty());
    }

    fn look_at_nothing(about: &Mutex<Counters>) -> Vec<crate::counters::Reading> {
        let mut page = Page { at_ns: 1, rows: Vec::new(), about };
        Looks::default().read(Path::new("/nowhere"), (70, 7), &mut page);
        page.rows
    }
}
