//! What a rule is.

use gputrace_collectors::schema::TableId;

use crate::analysis::{Class, removed};
use crate::findings::{Evidence, Subject};

/// Work that a fix takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// An option or a line.
    Low,
    /// Some lines in several places.
    Medium,
    /// Another structure of the program.
    High,
}

impl Effort {
    /// The word.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        }
    }
}

/// What is wrong, in a few words: of a program with steps, and of one without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Title {
    /// Per step.
    pub(crate) of_step: &'static str,
    /// In the run.
    pub(crate) of_run: &'static str,
}

impl Title {
    /// The same of both.
    pub(super) const fn new(both: &'static str) -> Title {
        Title { of_step: both, of_run: both }
    }
}

/// A rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Name in JSON and for `--explain`.
    pub(crate) name: &'static str,
    /// The verdict where nothing costs more; none where what it costs is not known.
    pub(crate) verdict: Option<&'static str>,
    /// What is wrong, in a few words.
    pub(crate) title: Title,
    /// What was looked at, for "checked, fine".
    pub(crate) about: &'static str,
    /// The condition and how the bound of the gain is computed.
    pub(crate) condition: &'static str,
    /// What to do.
    pub(crate) advice: &'static str,
    /// The same in a program that uses Metal; none where the rule is about what Metal does not have.
    pub(crate) on_metal: Option<&'static str>,
    /// The work that goes away, as far as the replay knows it.
    pub(crate) without: &'static [Class],
    /// All of that work is what the rule is about: other rules have no part in it.
    pub(crate) all_of_it: bool,
    /// What it costs can be told from the trace; else it is a finding whenever it is found.
    pub(crate) gain_known: bool,
    /// Work that it takes.
    pub(crate) effort: Effort,
    /// Whether what it looks at was recorded: else nothing was checked.
    pub(crate) recorded: fn(&Subject<'_>) -> bool,
    /// Looks at a process.
    pub(crate) evaluate: fn(&Subject<'_>) -> Option<Evidence>,
}

/// What every trace holds.
pub(super) fn always(_: &Subject<'_>) -> bool {
    true
}

/// Rules of calls that give the GPU work, and of what waits for it: nothing is checked where the trace lacks most of these calls.
const OF_LAUNCHES: [&str; 9] = [
    "exposed-copies",
    "hidden-waits",
    "host-work",
    "launch-bound",
    "pageable-copies",
    "serialised-streams",
    "small-transfers",
    "sync-copies",
    "wait-every-step",
];

/// What rules count: nothing is checked where rows of it were removed to keep to a limit.
const COUNTED: [(&str, &[TableId]); 12] = [
    ("allocation-in-loop", &[TableId::DeviceMemory]),
    ("gpu-errors", &[TableId::CommandBuffers]),
    ("hidden-waits", &[TableId::DeviceMemory, TableId::Transfers]),
    ("host-memory-growth", &[TableId::HostMemory]),
    ("launch-bound", &[TableId::Launches]),
    ("malloc-time", &[TableId::HostMemory]),
    ("pageable-copies", &[TableId::Transfers]),
    ("small-transfers", &[TableId::Transfers]),
    ("sync-copies", &[TableId::Transfers]),
    ("system-waits", &[TableId::OsWaits]),
    ("wait-every-step", &[TableId::Syncs, TableId::Transfers]),
    ("warm-up", &[TableId::Api]),
];

impl Rule {
    /// Whether what it looks at is in the trace.
    pub(crate) fn is_checked(&self, subject: &Subject<'_>) -> bool {
        let of_launches = OF_LAUNCHES.contains(&self.name);
        let counted = COUNTED.iter().find(|(name, _)| *name == self.name).map_or(&[][..], |(_, tables)| tables);
        (self.recorded)(subject)
            && !(subject.calls_doubt.is_some() && of_launches)
            && removed::lacks(subject.facts, counted, subject.per_step).is_none()
    }

    /// What to do, in a program that uses Metal or one that does not.
    pub(crate) fn advice(&self, metal: bool) -> &'static str {
        self.on_metal.filter(|_| metal).unwrap_or(self.advice)
    }

    /// Whether it is about what such a program has.
    pub(crate) fn is_about(&self, metal: bool) -> bool {
        !metal || self.on_metal.is_some()
    }
}
