//! What grows from step to step: which stacks of malloc and which processes, and why the others are said not to.

use std::fmt;

use gputrace_collectors::schema::TableId;

use super::Facts;
use super::by_stack::{OfStack, largest};
use super::loss::Loss;
use super::passes::allocations::{Amount, Beat};
use super::passes::growth::{ERRORS, FEWEST, Slope, Trend};
use crate::render::number;

/// A sampled stack grows by more than so many standard deviations of what is live of it: chance alone makes less.
const DEVIATIONS: f64 = 3.0;
/// Samples of one size that alone make more than these deviations.
const SAMPLES: f64 = DEVIATIONS * DEVIATIONS;
/// What grows in fewer blocks is a table that is made anew, larger: what is kept in it grows as well, or it is none.
const BLOCKS: f64 = 10.0;

/// A stack whose live memory grows, or seems to.
pub(crate) struct Growing<'a> {
    /// The stack.
    pub(crate) of: OfStack<'a>,
    /// How.
    pub(crate) slope: Slope,
    /// Whether it does.
    pub(super) verdict: Verdict,
    beat: Beat,
}

/// Whether something grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It does.
    Grows,
    /// It does not.
    No(Why),
    /// There is too little to judge by.
    Unknown(Why),
}

/// What stands against growth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Why {
    /// It stays.
    Constant,
    /// It becomes less.
    Decreases,
    /// It swings by as much.
    NotSignificant,
    /// It fills up.
    Plateau,
    /// It began late.
    BegunLate,
    /// It came at once.
    Jump,
    /// Too few of them are live.
    FewBlocks,
    /// So many samples are live, about, that chance may have made it.
    FewSamples(f64),
    /// There are so few steps.
    FewSteps(usize),
    /// The time of the process is not known.
    NoTime,
    /// Recording was on in parts of the time only.
    Parts,
    /// Events of malloc were lost.
    Lost,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Constant => f.write_str("constant"),
            Why::Decreases => f.write_str("decreases"),
            Why::NotSignificant => write!(f, "not significant: below {ERRORS} standard errors"),
            Why::Plateau => f.write_str("plateau: grew in the first half only"),
            Why::BegunLate => f.write_str("begun late: grew in the second half only"),
            Why::Jump => f.write_str("one jump, and constant before and after"),
            Why::FewBlocks => write!(f, "fewer than {BLOCKS} blocks: a table made anew, larger"),
            Why::FewSamples(samples) => write!(f, "too few samples: about {}", number(samples.round())),
            Why::FewSteps(steps) => write!(f, "too few steps: {steps} after warm-up, of {FEWEST}"),
            Why::NoTime => f.write_str("no steps, and its time is not known"),
            Why::Parts => {
                f.write_str("recorded in parts: frees of what was allocated outside of them are not told apart")
            }
            Why::Lost => f.write_str("events of malloc were lost, and frees among them"),
        }
    }
}

impl Verdict {
    /// Whether it grows, in a word.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Verdict::Grows => "yes",
            Verdict::No(_) => "no",
            Verdict::Unknown(_) => "not known",
        }
    }

    /// Why not.
    pub(super) fn why(&self) -> Option<String> {
        match self {
            Verdict::Grows => None,
            Verdict::No(why) | Verdict::Unknown(why) => Some(why.to_string()),
        }
    }

    /// Whether more samples would tell.
    pub(super) fn lacks_samples(&self) -> bool {
        matches!(self, Verdict::Unknown(Why::FewSamples(_)))
    }

    /// Of a line through live memory, of which so much was live when the steps were over.
    fn of(slope: Option<Slope>, beat: Option<Beat>, live: Amount) -> Verdict {
        let Some(beat) = beat else { return Verdict::Unknown(Why::NoTime) };
        let span = beat.span();
        let steps = span.end.saturating_sub(span.first);
        let Some(slope) = slope else { return Verdict::Unknown(Why::FewSteps(steps)) };
        let samples = live.samples();
        let growth = slope.each * steps as f64;
        match (slope.trend, samples) {
            (Trend::None, _) if slope.each < 0.0 => Verdict::No(Why::Decreases),
            (Trend::None, _) => Verdict::No(Why::Constant),
            (_, Some(samples)) if samples <= SAMPLES => Verdict::Unknown(Why::FewSamples(samples)),
            (Trend::Unsure, _) => Verdict::No(Why::NotSignificant),
            (Trend::FirstHalf, _) => Verdict::No(Why::Plateau),
            (Trend::SecondHalf, _) => Verdict::No(Why::BegunLate),
            (Trend::Jump, _) => Verdict::No(Why::Jump),
            (Trend::Steady, Some(samples)) if growth <= DEVIATIONS / 2.0 * live.error_bytes() => {
                Verdict::Unknown(Why::FewSamples(samples))
            }
            (Trend::Steady, _) => Verdict::Grows,
        }
    }

    /// The same, but that nothing is said to grow where that cannot be told.
    fn unless(self, doubt: Option<Why>) -> Verdict {
        doubt.filter(|_| self == Verdict::Grows).map_or(self, Verdict::Unknown)
    }

    /// Whether it would grow if the rows were all.
    pub(super) fn is_doubted(&self) -> bool {
        matches!(self, Verdict::Unknown(Why::Parts | Why::Lost))
    }

    /// Of all of a process. What grows in one of its stacks is known, however much else is live.
    pub(super) fn of_process(facts: &Facts<'_>, process_id: i64, growing: &[Growing<'_>]) -> Verdict {
        let known = growing.iter().any(|grows| grows.of.process_id == process_id);
        let (slope, beat) = (facts.allocations.slope_of(process_id), facts.allocations.beat(process_id));
        let live = facts.allocations.processes.get(&process_id).map_or_else(Amount::default, |process| process.grown());
        match Verdict::of(slope, beat, live) {
            Verdict::Unknown(Why::FewSamples(_)) if known => Verdict::Grows,
            Verdict::Grows => Verdict::Grows.unless(doubt(facts)),
            verdict => verdict,
        }
    }
}

impl<'a> AsRef<OfStack<'a>> for Growing<'a> {
    fn as_ref(&self) -> &OfStack<'a> {
        &self.of
    }
}

impl Growing<'_> {
    /// Bytes in a step, where there are steps.
    pub(crate) fn per_step(&self) -> Option<f64> {
        matches!(self.beat, Beat::Steps(_)).then_some(self.slope.each)
    }

    /// Bytes in a second.
    pub(crate) fn a_second(&self, facts: &Facts<'_>) -> Option<f64> {
        a_second(facts, self.of.process_id, self.beat, self.slope)
    }
}

/// How much a slope is in a second.
pub(super) fn a_second(facts: &Facts<'_>, process_id: i64, beat: Beat, slope: Slope) -> Option<f64> {
    let each_ns = match beat {
        Beat::Steps(_) => facts.steps.of(process_id)?.mean_ns(),
        Beat::Slices { each_ns, .. } => each_ns as f64,
    };
    (each_ns > 0.0).then(|| slope.each * 1e9 / each_ns)
}

/// Why what is not freed in the rows that there are may be freed all the same.
fn doubt(facts: &Facts<'_>) -> Option<Why> {
    let lost = || Loss::of(facts, &[TableId::HostMemory])?.too_much();
    let parts = facts.trace.intervals().map(|_| Why::Parts);
    parts.or_else(|| lost().map(|_| Why::Lost))
}

/// Stacks whose live memory grows all the time, those that grow most first.
pub(crate) fn growing<'a>(facts: &'a Facts<'_>) -> Vec<Growing<'a>> {
    seeming(facts).into_iter().filter(|grows| grows.verdict == Verdict::Grows).collect()
}

/// The same with those of which it is not sure.
pub(super) fn seeming<'a>(facts: &'a Facts<'_>) -> Vec<Growing<'a>> {
    let doubt = doubt(facts);
    let slope = |of: &OfStack<'_>| facts.allocations.slope(of.process_id, of.stack).filter(Slope::is_steady);
    let grows = largest(facts, |of| slope(of).map_or(0.0, |slope| slope.each)).into_iter().filter_map(|of| {
        let (slope, beat) = (slope(&of)?, facts.allocations.beat(of.process_id)?);
        let live = of.stack.grown();
        let verdict = match Verdict::of(Some(slope), Some(beat), live) {
            Verdict::Grows if live.blocks < BLOCKS => Verdict::No(Why::FewBlocks),
            verdict => verdict.unless(doubt),
        };
        Some(Growing { of, slope, verdict, beat })
    });
    grows.collect()
}
