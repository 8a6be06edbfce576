//! The steps of one process, on the host's line of time and, where the host runs ahead, on the GPU's.
//!
//! A host that gives the GPU the work of many steps in no time, and then waits, has steps of no meaning: a call belongs to
//! the host's step in which it began, but how long a step takes is told by the GPU: from the end of the step's last
//! kernel to the end of the next one's ([`super::super::gpu_steps`]). What the GPU does belongs to its own steps. Usual
//! are there all steady steps but those that take longer than most, and not those around the median alone: the host's wait
//! for many of them is in one. The same goes for processes whose long steps belong to the others ([`super::rhythm`]).

use super::line::Line;
use super::rhythm::{CALM, OUTLIER, Rhythm, rhythm, turns};
use super::{Place, quantile};
use crate::analysis::passes::period::Name;

/// Steps between these quantiles of the durations are the usual ones.
const USUAL: (f64, f64) = (0.4, 0.6);
/// The step in which a row lay: the next one often lies there too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint {
    /// Its number.
    step: usize,
    /// On which line it was looked up: from when to when it is, and what lies there.
    on_gpu: bool,
    from: i64,
    to: i64,
    place: Place,
}

impl Default for Hint {
    fn default() -> Hint {
        Hint { step: 0, on_gpu: false, from: 0, to: 0, place: Place::Outside }
    }
}

/// The steps of one process.
#[derive(Debug)]
pub(crate) struct ProcessSteps {
    /// The process.
    pub(crate) process_id: i64,
    /// The thread whose loop it is.
    pub(crate) tid: i32,
    /// What marks a step.
    pub(crate) anchor: Name,
    /// How often the anchor occurred.
    pub(crate) count: u64,
    /// Number of the first one in the run, where only some are looked at.
    pub(crate) number: usize,
    /// Steps at the start that are left out.
    pub(crate) warm_up: usize,
    /// Durations of the steady steps, sorted.
    pub(crate) sorted_ns: Vec<i64>,
    /// Steps of usual duration.
    pub(crate) middle: u64,
    /// Their mean duration.
    pub(crate) middle_ns: f64,
    /// The mean time that the host is in one of them; other than their duration where the host runs ahead.
    pub(crate) middle_host_ns: f64,
    host: Line,
    /// Where the host runs ahead.
    gpu: Option<Line>,
    usual: (i64, i64),
    /// The steps of which it is known what the GPU did, by their number; none: all.
    known: Option<Vec<bool>>,
    /// Whether it is known of any.
    pub(crate) tells_of_gpu: bool,
    /// From the first steady step to the end of the last, ns since the epoch.
    steady_span: (i64, i64),
    /// Steps that count as none.
    left_out: Vec<usize>,
    /// Long steps at even distances.
    pub(crate) rhythm: Option<Rhythm>,
    /// They are turns of a loop of a few calls, which may be parts of a step.
    are_turns: bool,
}

impl ProcessSteps {
    /// The steps between these times, at which the anchor occurred `count` times; none when there are too few.
    pub(crate) fn new(process_id: i64, tid: i32, (anchor, count): (Name, u64), mut times: Vec<i64>) -> Option<Self> {
        times.sort_unstable();
        times.dedup();
        if times.len() < 5 {
            return None;
        }
        Some(ProcessSteps::of(process_id, tid, (anchor, count), (Line::new(times), None), None))
    }

    /// The steps on these lines, of which the first ones are warm-up.
    fn of(
        process_id: i64,
        tid: i32,
        (anchor, count): (Name, u64),
        (host, gpu): (Line, Option<Line>),
        warm_up_steps: Option<usize>,
    ) -> ProcessSteps {
        let clock = gpu.as_ref().unwrap_or(&host);
        let lengths: Vec<i64> = clock.lengths().collect();
        let warm_up = warm_up_steps.unwrap_or_else(|| warm_up(&lengths));
        let steady = &lengths[warm_up..];
        let mut sorted_ns = steady.to_vec();
        sorted_ns.sort_unstable();
        let median = quantile(&sorted_ns, 0.5);
        let rhythm = rhythm(steady, median);
        let usual = match rhythm {
            Some(Rhythm { longest_ns, usual: true, .. }) => (i64::MIN, longest_ns),
            _ if gpu.is_some() => (i64::MIN, (CALM * median as f64) as i64),
            _ => (quantile(&sorted_ns, USUAL.0), quantile(&sorted_ns, USUAL.1)),
        };
        let mut steps = ProcessSteps {
            process_id,
            tid,
            anchor,
            count,
            number: 0,
            warm_up,
            middle: 0,
            middle_ns: 0.0,
            middle_host_ns: 0.0,
            sorted_ns,
            usual,
            known: None,
            tells_of_gpu: true,
            steady_span: (clock.boundary(warm_up).unwrap_or(0), clock.last().unwrap_or(0)),
            left_out: Vec::new(),
            rhythm,
            are_turns: false,
            host,
            gpu,
        };
        steps.count_usual();
        steps
    }

    /// Counts steps of these times as none: they are in no number, and what lies in them is in no step.
    pub(super) fn leave_out(&mut self, is_none: impl Fn((i64, i64)) -> bool) {
        let spans = self.each().map(|(start, ns)| (start, start + ns));
        let is_none = |(step, span): &(usize, (i64, i64))| is_none(*span) || self.is_left_out(*step);
        self.left_out = spans.enumerate().filter(is_none).map(|(step, _)| step).collect();
        if self.left_out.is_empty() {
            return;
        }
        let steady = self.each().enumerate().skip(self.warm_up).filter(|(step, _)| !self.is_left_out(*step));
        self.sorted_ns = steady.map(|(_, (_, ns))| ns).collect();
        self.sorted_ns.sort_unstable();
        if self.usual.0 != i64::MIN {
            self.usual = (quantile(&self.sorted_ns, USUAL.0), quantile(&self.sorted_ns, USUAL.1));
        }
        self.count_usual();
    }

    /// Whether a step counts as none.
    pub(crate) fn is_left_out(&self, step: usize) -> bool {
        self.left_out.binary_search(&step).is_ok()
    }

    /// Long steps at even distances are usual ones.
    pub(crate) fn follow_rhythm(&mut self) {
        let Some(rhythm) = &mut self.rhythm else { return };
        rhythm.usual = true;
        self.usual = (i64::MIN, rhythm.longest_ns);
        self.count_usual();
    }

    /// Every so many steps a long one is among the usual ones; 1 where none is.
    pub(crate) fn usual_every(&self) -> usize {
        self.rhythm.filter(|rhythm| rhythm.usual).map_or(1, |rhythm| rhythm.every)
    }

    /// Counts the usual steps, and their mean length.
    fn count_usual(&mut self) {
        let usual: Vec<usize> = (0..self.host.steps()).filter(|step| self.is_middle(*step)).collect();
        let mean = |line: &Line| {
            let spans = usual.iter().filter_map(|step| line.between(*step, *step));
            spans.map(|(from, to)| to - from).sum::<i64>() as f64 / usual.len().max(1) as f64
        };
        (self.middle_ns, self.middle_host_ns) = (mean(self.clock()), mean(&self.host));
        self.middle = usual.len() as u64;
    }

    /// These steps alone, counted from 0 with those of warm-up; warm-up counts as such unless there is nothing else.
    pub(super) fn only(self, first: usize, last: usize) -> Option<ProcessSteps> {
        let host = self.host.only(first, last)?;
        let gpu = self.gpu.and_then(|gpu| gpu.only(first, last));
        let steps = host.steps();
        let warm_up = Some(self.warm_up.saturating_sub(first)).filter(|warm_up| *warm_up < steps).unwrap_or(0);
        let follows = self.rhythm.is_some_and(|rhythm| rhythm.usual);
        let anchor = (self.anchor, steps as u64);
        let mut only = ProcessSteps::of(self.process_id, self.tid, anchor, (host, gpu), Some(warm_up));
        only.number = self.number + first;
        if follows {
            only.follow_rhythm();
        }
        Some(only)
    }

    /// The first and the last step that lie wholly in a span of time, on the host and on the GPU, and how many its ends cut.
    pub(super) fn in_span(&self, (from, to): (i64, i64)) -> (Option<(usize, usize)>, usize) {
        let touches = |step: &usize| self.between(*step, *step).is_some_and(|(begin, end)| begin < to && from < end);
        let all: Vec<usize> = (0..self.host.steps()).filter(touches).collect();
        let is_whole =
            |step: &&usize| self.between(**step, **step).is_some_and(|(begin, end)| from <= begin && end <= to);
        let mut whole = all.iter().filter(is_whole).copied();
        let first = whole.next();
        let ends = first.map(|first| (first, whole.next_back().unwrap_or(first)));
        (ends, all.len() - ends.map_or(0, |(first, last)| last - first + 1))
    }

    /// Counts of the usual step only the time inside of what is kept of it: `of` says how much of a span that is.
    pub(super) fn inside(&mut self, of: impl Fn((i64, i64)) -> i64) {
        let usual = (0..self.host.steps()).filter(|step| self.is_middle(*step));
        let ns: i64 = usual.filter_map(|step| self.host.between(step, step)).map(of).sum();
        self.middle_ns = ns as f64 / self.middle.max(1) as f64;
        self.middle_host_ns = self.middle_ns;
    }

    /// Counts only those as usual of which it is known what the GPU did from their begin to their end. Where there is none, the
    /// host's times are all that is known of a step: windows that are shorter say more of the GPU's pauses than of its work.
    pub(super) fn usual_where(&mut self, is_known: impl Fn((i64, i64)) -> bool) {
        let length = |(from, to): (i64, i64)| to - from;
        let spans: Vec<(i64, i64)> = (0..self.host.steps()).filter_map(|s| self.clock().between(s, s)).collect();
        let known: Vec<bool> = spans.iter().map(|span| is_known(*span)).collect();
        let steady = spans.iter().zip(&known).skip(self.warm_up).filter(|(_, known)| **known);
        let mut lengths: Vec<i64> = steady.map(|(span, _)| length(*span)).collect();
        self.tells_of_gpu = !lengths.is_empty();
        if lengths.is_empty() {
            return;
        }
        // Recording makes steps longer: those that are known are compared with each other.
        if self.usual.0 != i64::MIN {
            lengths.sort_unstable();
            self.usual = (quantile(&lengths, USUAL.0), quantile(&lengths, USUAL.1));
        }
        self.known = Some(known);
        self.count_usual();
    }

    /// The same steps of a host that runs ahead: their boundaries on the GPU, as many as there are on the host.
    pub(super) fn ahead(self, boundaries: Vec<i64>) -> ProcessSteps {
        let gpu = Line::new(boundaries);
        debug_assert_eq!(gpu.steps(), self.host.steps());
        let are_turns = self.are_turns;
        let ahead =
            ProcessSteps::of(self.process_id, self.tid, (self.anchor, self.count), (self.host, Some(gpu)), None);
        ProcessSteps { are_turns, ..ahead }
    }

    /// They are turns of a loop of a few calls.
    pub(in crate::analysis::passes) fn may_be_parts(self) -> ProcessSteps {
        ProcessSteps { are_turns: true, ..self }
    }

    /// The steps that these are turns of, if they are.
    pub(super) fn whole(self) -> ProcessSteps {
        let lengths: Vec<i64> = self.clock().lengths().collect();
        let Some(ends) = self.are_turns.then(|| turns(&lengths)).flatten() else { return self };
        let line = |line: &Line| Line::new(ends.iter().filter_map(|end| line.boundary(*end)).collect());
        let lines = (line(&self.host), self.gpu.as_ref().map(line));
        let count = lines.0.steps() as u64 + 1;
        ProcessSteps::of(self.process_id, self.tid, (self.anchor, count), lines, None)
    }

    /// Whether the host runs ahead of the GPU, and durations are the GPU's.
    pub(crate) fn is_ahead(&self) -> bool {
        self.gpu.is_some()
    }

    /// Whose steps they are: the `GPU`'s, or the `host`'s.
    pub(crate) fn whose(&self) -> &'static str {
        if self.is_ahead() { "GPU" } else { "host" }
    }

    /// What tells how long a step takes, and in which one the GPU's work lies.
    fn clock(&self) -> &Line {
        self.gpu.as_ref().unwrap_or(&self.host)
    }

    /// Mean duration of the steady steps.
    pub(crate) fn mean_ns(&self) -> f64 {
        self.sorted_ns.iter().sum::<i64>() as f64 / self.sorted_ns.len().max(1) as f64
    }

    /// The duration that a share of the steady steps do not exceed.
    pub(crate) fn quantile_ns(&self, share: f64) -> i64 {
        quantile(&self.sorted_ns, share)
    }

    /// The median time that the host is in a steady step.
    pub(crate) fn host_p50_ns(&self) -> i64 {
        if !self.is_ahead() {
            return self.quantile_ns(0.5);
        }
        let mut lengths: Vec<i64> = self.host.lengths().skip(self.warm_up).collect();
        lengths.sort_unstable();
        quantile(&lengths, 0.5)
    }

    /// When the first step began, ns since the epoch.
    pub(crate) fn first_ns(&self) -> i64 {
        self.host.first().unwrap_or(0)
    }

    /// When the host's last step ended, ns since the epoch.
    pub(crate) fn host_end_ns(&self) -> i64 {
        self.host.last().unwrap_or(0)
    }

    /// From the first steady step to the end of the last, ns since the epoch.
    pub(crate) fn steady_span(&self) -> (i64, i64) {
        self.steady_span
    }

    /// From the begin of one step to the end of another, counted from 0 with those of warm-up, on the host and on the
    /// GPU; as far as there are steps.
    pub(crate) fn between(&self, first: usize, last: usize) -> Option<(i64, i64)> {
        let [host, gpu] = self.both_between(first, last)?;
        Some((host.0.min(gpu.0), host.1.max(gpu.1)))
    }

    /// The same on the host, and on the GPU where steps are the GPU's.
    pub(crate) fn both_between(&self, first: usize, last: usize) -> Option<[(i64, i64); 2]> {
        let host = self.host.between(first, last)?;
        let gpu = self.gpu.as_ref().and_then(|gpu| gpu.between(first, last));
        Some([host, gpu.unwrap_or(host)])
    }

    /// The begin of a step, counted from 0 with those of warm-up, or the end of the last one.
    pub(crate) fn boundary(&self, step: usize) -> Option<i64> {
        self.clock().boundary(step)
    }

    /// The same on the host.
    pub(crate) fn host_boundary(&self, step: usize) -> Option<i64> {
        self.host.boundary(step)
    }

    /// Whether it is a steady step of usual duration.
    pub(crate) fn is_middle(&self, step: usize) -> bool {
        let lasts = self.boundary(step + 1).zip(self.boundary(step)).map(|(end, begin)| end - begin);
        let known = self.known.as_ref().is_none_or(|known| known.get(step) == Some(&true));
        known && step >= self.warm_up && !self.is_left_out(step) && lasts.is_some_and(|ns| self.is_usual(ns))
    }

    /// At most so many of these steady steps, spread evenly over them, each with its begin and end: on the host, and on the GPU.
    pub(crate) fn sample(&self, of: impl Iterator<Item = usize>, most: usize) -> Vec<(usize, [(i64, i64); 2])> {
        // Where it is known of some alone what the GPU did, of these.
        let known = |step: &usize| self.known.as_ref().is_none_or(|known| known[*step]);
        let all: Vec<usize> = of.filter(known).collect();
        let taken = all.len().min(most);
        let steps = (0..taken).map(|i| all[i * all.len() / taken]);
        let spans = |step: usize| Some((step, [self.host.between(step, step)?, self.clock().between(step, step)?]));
        steps.filter_map(spans).collect()
    }

    /// Time that the warm-up steps took.
    pub(crate) fn warm_up_ns(&self) -> i64 {
        self.steady_span().0 - self.clock().first().unwrap_or(0)
    }

    /// Steady steps that took more than twice the median.
    pub(crate) fn outliers(&self) -> usize {
        let limit = self.quantile_ns(0.5).saturating_mul(OUTLIER);
        self.sorted_ns.len() - self.sorted_ns.partition_point(|l| *l <= limit)
    }

    /// When each step began and how long it took, in order, those of the warm-up first.
    pub(crate) fn each(&self) -> impl ExactSizeIterator<Item = (i64, i64)> {
        self.clock().each()
    }

    /// Whether a step of this duration is a usual one.
    pub(crate) fn is_usual(&self, ns: i64) -> bool {
        (self.usual.0..=self.usual.1).contains(&ns)
    }

    /// The step in which a call began.
    #[inline]
    pub(super) fn index(&self, hint: &mut Hint, at: i64) -> Option<usize> {
        self.place_on(false, hint, at);
        (hint.from < hint.to).then_some(hint.step)
    }

    /// Where a call lies that began then.
    #[inline]
    pub(super) fn place(&self, hint: &mut Hint, at: i64) -> Place {
        self.place_on(false, hint, at)
    }

    /// Where the GPU's work lies that began then.
    #[inline]
    pub(super) fn place_on_gpu(&self, hint: &mut Hint, at: i64) -> Place {
        self.place_on(true, hint, at)
    }

    #[inline]
    fn place_on(&self, on_gpu: bool, hint: &mut Hint, at: i64) -> Place {
        if hint.on_gpu != on_gpu || at < hint.from || hint.to <= at {
            self.look_up(on_gpu, hint, at);
        }
        hint.place
    }

    /// Finds the step in which a moment lies; outside of all the span is empty.
    fn look_up(&self, on_gpu: bool, hint: &mut Hint, at: i64) {
        let line = if on_gpu { self.clock() } else { &self.host };
        let found = line.index(&mut hint.step, at);
        *hint = Hint { step: hint.step, on_gpu, ..Hint::default() };
        let Some((step, (from, to))) = found.and_then(|step| Some((step, line.between(step, step)?))) else { return };
        (hint.from, hint.to) = (from, to);
        hint.place = match step {
            _ if self.is_left_out(step) => Place::Outside,
            _ if step < self.warm_up => Place::WarmUp,
            _ if self.is_middle(step) => Place::Middle(to),
            _ => Place::Steady,
        };
    }

    /// The part of a span of the GPU's time that lies in usual steps.
    pub(super) fn middle_ns(&self, hint: &mut Hint, start: i64, end: i64) -> i64 {
        let (mut at, mut ns) = (start, 0);
        while at < end {
            let place = self.place_on_gpu(hint, at);
            let next = match place {
                Place::Outside if hint.from >= hint.to => self.clock().first().filter(|first| *first > at),
                _ => Some(hint.to),
            };
            let Some(next) = next else { break };
            if place.is_middle() {
                ns += next.min(end) - at;
            }
            at = next;
        }
        ns
    }
}

fn warm_up(lengths: &[i64]) -> usize {
    let mut second_half = lengths[lengths.len() / 2..].to_vec();
    second_half.sort_unstable();
    let limit = (quantile(&second_half, 0.5) as f64 * CALM).max(quantile(&second_half, 0.9) as f64);
    let calm = |i: &usize| {
        let next = &lengths[*i..(*i + 5).min(lengths.len())];
        lengths[*i] as f64 <= limit && next.iter().filter(|l| **l as f64 <= limit).count() * 5 >= next.len() * 4
    };
    (0..lengths.len() / 2).find(calm).unwrap_or(lengths.len() / 2)
}
