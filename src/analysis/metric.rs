//! A metric: a fact of an analysis that can be held against a limit or against another trace, declared without a trace.
//!
//! An analysis declares its numbers in [`Analysis::metrics`](super::Analysis::metrics); `gputrace check --list`, `check` and
//! `diff` know them from there, as `ANALYSIS.KEY`. A test compares what is declared with what is pushed.

use gputrace_collectors::schema::TableId;

use super::Unit;

/// In which direction a change is for the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worse {
    /// More is worse.
    More,
    /// Less is worse.
    Less,
    /// Neither: it describes the run.
    Neither,
}

impl Worse {
    /// For `--list`.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Worse::More => "more",
            Worse::Less => "less",
            Worse::Neither => "-",
        }
    }
}

/// A number that an analysis states about a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    /// Key of the fact.
    pub(crate) key: &'static str,
    /// Its unit.
    pub(crate) unit: Unit,
    /// When it is worse.
    pub(crate) worse: Worse,
    /// It is of a step: without steps in the trace it has no value, though the fact then has the run's.
    pub(crate) of_step: bool,
    /// It counts or sums launches of kernels: without those that were left out to keep to a budget it has no value.
    pub(crate) of_launches: bool,
    /// It counts what was lost: where nobody counted to the end there may be more.
    pub(crate) of_losses: bool,
    /// It counts or sums rows of these tables: where some of them were removed to keep to a limit, what is left is not it.
    pub(crate) sums: &'static [TableId],
    /// It is about steady steps alone.
    pub(crate) in_steps: bool,
    /// Two runs of one program have about the same: `check --against` compares it without being asked.
    pub(crate) steady: bool,
    /// What it is, in a line.
    pub(crate) meaning: &'static str,
}

impl Metric {
    /// More of it is worse, whatever the length of the run: a share, a time or a count of a step, a peak.
    pub(crate) const fn cost(key: &'static str, unit: Unit, meaning: &'static str) -> Metric {
        Metric {
            key,
            unit,
            worse: Worse::More,
            of_step: false,
            of_launches: false,
            of_losses: false,
            sums: &[],
            in_steps: false,
            steady: true,
            meaning,
        }
    }

    /// Less of it is worse, whatever the length of the run.
    pub(crate) const fn use_of(key: &'static str, unit: Unit, meaning: &'static str) -> Metric {
        Metric {
            key,
            unit,
            worse: Worse::Less,
            of_step: false,
            of_launches: false,
            of_losses: false,
            sums: &[],
            in_steps: false,
            steady: true,
            meaning,
        }
    }

    /// Neither: it grows with the length of the run, or only describes it.
    pub(crate) const fn about(key: &'static str, unit: Unit, meaning: &'static str) -> Metric {
        Metric {
            key,
            unit,
            worse: Worse::Neither,
            of_step: false,
            of_launches: false,
            of_losses: false,
            sums: &[],
            in_steps: false,
            steady: false,
            meaning,
        }
    }

    /// It is of the usual step.
    pub(crate) const fn of_step(self) -> Metric {
        Metric { of_step: true, in_steps: true, ..self }
    }

    /// It is about steady steps alone, and has no other value without them.
    pub(crate) const fn in_steps(self) -> Metric {
        Metric { in_steps: true, ..self }
    }

    /// It counts or sums launches of kernels.
    pub(crate) const fn of_launches(self) -> Metric {
        Metric { of_launches: true, ..self }
    }

    /// It counts what was lost.
    pub(crate) const fn of_losses(self) -> Metric {
        Metric { of_losses: true, ..self }
    }

    /// It counts or sums rows of these tables.
    pub(crate) const fn sums(self, tables: &'static [TableId]) -> Metric {
        Metric { sums: tables, ..self }
    }

    /// It differs between runs of one program: it is of the recording itself, estimated from samples, one of few extremes, or
    /// work that is done once and takes as long as files and compilers take.
    pub(crate) const fn unsteady(self) -> Metric {
        Metric { steady: false, ..self }
    }

    /// Whether `check --against` compares it without being asked.
    pub(crate) fn is_compared(self) -> bool {
        self.steady && self.worse != Worse::Neither
    }
}
