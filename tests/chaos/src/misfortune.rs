//! What happens to a round: who is killed, stopped or asked to end, which disk is full, what is taken away; and when.

use crate::random::Draw;

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfortune {
    /// Nothing.
    None,
    /// A signal ends the command.
    TargetKilled(i32),
    /// One of the command's children is killed.
    ChildKilled,
    /// gputrace is killed; its heir goes on.
    CollectorKilled,
    /// gputrace is killed, and its heirs with it.
    AllKilled,
    /// The heir is killed, for which gputrace has another one.
    HeirKilled,
    /// gputrace stands still for so many ms.
    Frozen(u64),
    /// gputrace is asked to end, by SIGTERM or SIGINT.
    Asked(i32),
    /// The disk has so many KiB.
    SmallDisk(u64),
    /// The disk becomes full.
    DiskFills,
    /// The trace is to be written where nothing can be.
    ReadOnly,
    /// So many descriptors at most.
    FewDescriptors(u64),
    /// No file may be larger than so many KiB.
    SmallFiles(u64),
    /// The trace's folder is removed.
    TraceRemoved,
    /// What is in the session's folder is removed.
    SessionRemoved,
    /// Recording is switched on and off.
    Switched,
    /// `gputrace dump` asks for what the recorder has.
    Dumped,
    /// A file of the trace is cut or changed afterwards.
    Damaged,
}

/// All kinds by their names, for the table at the end.
pub(crate) const NAMES: [&str; 18] = [
    "nothing",
    "target killed",
    "child killed",
    "collector killed",
    "collector and heirs killed",
    "heir killed",
    "collector stopped",
    "asked to end",
    "small disk",
    "disk fills up",
    "read-only folder",
    "few descriptors",
    "small files",
    "trace removed",
    "session removed",
    "start and stop",
    "dump",
    "damaged file",
];

impl Misfortune {
    /// That of a seed. Without mounts no disk is full.
    pub(crate) fn of(seed: u64, mounts: bool) -> Misfortune {
        let mut how = Draw::of(seed, "misfortune, how");
        let kind = Draw::of(seed, "misfortune").weighted(&[
            (18, 0),
            (9, 1),
            (5, 2),
            (12, 3),
            (12, 4),
            (4, 5),
            (6, 6),
            (7, 7),
            (5, 8),
            (5, 9),
            (1, 10),
            (3, 11),
            (2, 12),
            (3, 13),
            (2, 14),
            (5, 15),
            (4, 16),
            (5, 17),
        ]);
        match kind {
            1 => Misfortune::TargetKilled(how.weighted(&[
                (4, libc::SIGKILL),
                (2, libc::SIGSEGV),
                (2, libc::SIGABRT),
                (1, libc::SIGTERM),
            ])),
            2 => Misfortune::ChildKilled,
            3 => Misfortune::CollectorKilled,
            4 => Misfortune::AllKilled,
            5 => Misfortune::HeirKilled,
            6 => Misfortune::Frozen(how.between(20, 700)),
            7 => Misfortune::Asked(how.weighted(&[(1, libc::SIGTERM), (1, libc::SIGINT)])),
            8 if mounts => Misfortune::SmallDisk(how.weighted(&[(1, 16), (1, 40), (1, 64), (1, 128), (1, 400)])),
            9 if mounts => Misfortune::DiskFills,
            10 if mounts => Misfortune::ReadOnly,
            11 => Misfortune::FewDescriptors(how.weighted(&[(1, 12), (1, 16), (1, 20), (1, 32), (1, 64)])),
            12 => Misfortune::SmallFiles(how.weighted(&[(1, 64), (1, 500), (1, 3000), (1, 8000)])),
            13 => Misfortune::TraceRemoved,
            14 => Misfortune::SessionRemoved,
            15 => Misfortune::Switched,
            16 => Misfortune::Dumped,
            17 => Misfortune::Damaged,
            _ => Misfortune::None,
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        let place = match self {
            Misfortune::None => 0,
            Misfortune::TargetKilled(_) => 1,
            Misfortune::ChildKilled => 2,
            Misfortune::CollectorKilled => 3,
            Misfortune::AllKilled => 4,
            Misfortune::HeirKilled => 5,
            Misfortune::Frozen(_) => 6,
            Misfortune::Asked(_) => 7,
            Misfortune::SmallDisk(_) => 8,
            Misfortune::DiskFills => 9,
            Misfortune::ReadOnly => 10,
            Misfortune::FewDescriptors(_) => 11,
            Misfortune::SmallFiles(_) => 12,
            Misfortune::TraceRemoved => 13,
            Misfortune::SessionRemoved => 14,
            Misfortune::Switched => 15,
            Misfortune::Dumped => 16,
            Misfortune::Damaged => 17,
        };
        NAMES[place]
    }

    /// Whether it comes from outside while the program runs, which must take long enough.
    pub(crate) fn comes_later(self) -> bool {
        !matches!(
            self,
            Misfortune::None
                | Misfortune::SmallDisk(_)
                | Misfortune::ReadOnly
                | Misfortune::FewDescriptors(_)
                | Misfortune::SmallFiles(_)
                | Misfortune::Damaged
        )
    }

    /// Whether something may be missing on the disk that was read.
    pub(crate) fn takes_disk(self) -> bool {
        matches!(
            self,
            Misfortune::SmallDisk(_)
                | Misfortune::DiskFills
                | Misfortune::ReadOnly
                | Misfortune::SmallFiles(_)
                | Misfortune::FewDescriptors(_)
                | Misfortune::TraceRemoved
                | Misfortune::SessionRemoved
        )
    }

    /// Whether gputrace may refuse to start, before the program does.
    pub(crate) fn may_stop_the_start(self) -> bool {
        matches!(
            self,
            Misfortune::SmallDisk(_) | Misfortune::ReadOnly | Misfortune::SmallFiles(_) | Misfortune::FewDescriptors(_)
        )
    }

    /// Whether processes may run untraced.
    pub(crate) fn may_leave_untraced(self) -> bool {
        matches!(
            self,
            Misfortune::CollectorKilled
                | Misfortune::AllKilled
                | Misfortune::SmallFiles(_)
                | Misfortune::FewDescriptors(_)
                | Misfortune::SessionRemoved
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_drawn_and_no_disk_is_where_none_can_be_mounted() {
        let drawn = |mounts| -> std::collections::BTreeSet<&str> {
            (0..5000).map(|seed| Misfortune::of(seed, mounts).name()).collect()
        };
        assert_eq!(drawn(true), NAMES.into_iter().collect());
        assert_eq!(drawn(false).len(), NAMES.len() - 3);
    }
}
