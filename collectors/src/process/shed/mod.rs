//! What is left out to keep to `--budget`: measured once a second, decided by [`ladder`], told to the process through its
//! segment, and kept for the manifest. The GPU's times have what the hooks leave, and a part of the budget for sure
//! (`gpu/governor.rs`).

mod ladder;
mod work;

use std::collections::VecDeque;

use gputrace_abi::layout::Header;
use gputrace_abi::shed::Shed;
use gputrace_abi::sync::Ordering;

use crate::manifest::{HookBudget, ShedPart};
use ladder::Ladder;
pub(super) use ladder::least;
pub(super) use work::{Prices, Work};

/// What was spent is looked at this often.
const EVERY_NS: i64 = 1_000_000_000;
/// The budget holds over this time.
const SPAN_NS: i64 = 10 * EVERY_NS;
/// What is left out, in the order of its going.
const PARTS: [&str; 4] = ["stacks", "malloc", GPU_TIMES, "launches"];
/// What so many stacks took is what one takes.
const ENOUGH_STACKS: u64 = 20;
/// Of that part nobody knows how much there would have been.
const GPU_TIMES: &str = "gpu_times";

/// How much of each part was left out so far.
fn left_out(work: &Work) -> [u64; PARTS.len()] {
    let [stacks, malloc, launches] = work.left_out;
    [stacks, malloc, 0, launches]
}

/// What is left out in a process.
#[derive(Debug, Default)]
pub(crate) struct Shedding {
    /// None: not begun.
    ladder: Option<Ladder>,
    began_ns: i64,
    looked_ns: i64,
    /// At the first look, and at the last.
    first: Work,
    last: Work,
    prices: Prices,
    /// The looks of the last ten seconds: when, and what had been done.
    looks: VecDeque<(i64, Work)>,
    most_ppm: f64,
    /// What a stack takes by now.
    stack_ns: f64,
    parts: Vec<ShedPart>,
    /// The place in the list of each part that is left out now, and how many had been left out when that began.
    open: [Option<(usize, u64)>; PARTS.len()],
}

impl Shedding {
    /// Looks at what was spent, once a second, and says in the header what is left out from then on.
    pub(crate) fn look(&mut self, header: &Header, now_ns: i64, prices: Prices, work: impl FnOnce() -> Work) {
        let budget_ppm = header.shed_ppm.load(Ordering::Relaxed);
        if budget_ppm == 0 || (self.ladder.is_some() && now_ns - self.looked_ns < EVERY_NS) {
            return;
        }
        let work = work();
        let Some(ladder) = &mut self.ladder else {
            self.ladder = Some(Ladder::new(header.may_shed.load(Ordering::Relaxed)));
            (self.began_ns, self.looked_ns) = (now_ns, now_ns);
            (self.first, self.last) = (work, work);
            self.looks.push_back((now_ns, work));
            return;
        };
        let passed_ns = now_ns - self.looked_ns;
        // The first stacks of a program take a hundred times as long as later ones: what counts is what they took lately.
        let before = self.looks.front().map_or(self.first, |(_, work)| *work);
        let taken = work.stacks.saturating_sub(before.stacks);
        if taken >= ENOUGH_STACKS || self.stack_ns == 0.0 {
            self.stack_ns = (work.stacks_ns - before.stacks_ns) / taken.max(1) as f64;
        }
        let load = work.load(&self.last, &prices, self.stack_ns, passed_ns);
        let spent_ppm = (work.cost_ns(&prices) - self.last.cost_ns(&prices)) / passed_ns as f64 * 1e6;
        let shed = ladder.look(budget_ppm.into(), spent_ppm, &load);
        header.shed.store(shed.word(), Ordering::Relaxed);
        self.keep(now_ns, work, prices);
        self.turn(shed, now_ns);
    }

    /// The process has ended: the last of what it did.
    pub(crate) fn finish(&mut self, now_ns: i64, prices: Prices, work: Work) {
        if self.ladder.is_some() {
            self.keep(now_ns, work, prices);
        }
    }

    fn keep(&mut self, now_ns: i64, work: Work, prices: Prices) {
        for (open, left_out) in self.open.iter().zip(left_out(&work)) {
            if let Some((place, before)) = open {
                self.parts[*place].sampled_out = left_out.saturating_sub(*before);
            }
        }
        (self.looked_ns, self.last, self.prices) = (now_ns, work, prices);
        self.looks.push_back((now_ns, work));
        while self.looks.get(1).is_some_and(|(at, _)| now_ns - at >= SPAN_NS) {
            self.looks.pop_front();
        }
        if let Some((from_ns, before)) = self.looks.front() {
            let spent_ns = work.cost_ns(&prices) - before.cost_ns(&prices);
            let ppm = spent_ns / (now_ns - from_ns).max(1) as f64 * 1e6;
            // Of a run of less than ten seconds all of it is what counts.
            let whole = now_ns - from_ns >= SPAN_NS;
            self.most_ppm = if whole || from_ns > &self.began_ns { self.most_ppm.max(ppm) } else { ppm };
        }
    }

    /// Notes what begins to be left out, and what no longer is.
    fn turn(&mut self, shed: Shed, now_ns: i64) {
        let power = |shed: Shed| [u8::from(shed.stacks), shed.malloc, u8::from(shed.gpu_times), shed.launches];
        for (part, power) in power(shed).into_iter().enumerate() {
            if power == 0 {
                if let Some((place, _)) = self.open[part].take() {
                    self.parts[place].to_ns = Some(now_ns);
                }
                continue;
            }
            let begin = || {
                let what = PARTS[part].to_owned();
                self.parts.push(ShedPart { what, from_ns: now_ns, ..ShedPart::default() });
                (self.parts.len() - 1, left_out(&self.last)[part])
            };
            let (place, _) = *self.open[part].get_or_insert_with(begin);
            let one_in = matches!(PARTS[part], "malloc" | "launches").then(|| 1u64 << power);
            self.parts[place].one_in = self.parts[place].one_in.max(one_in);
        }
    }

    /// What the manifest says; none where nobody gave a budget.
    pub(crate) fn describe(&self, header: &Header) -> Option<HookBudget> {
        let budget_ppm = Some(header.shed_ppm.load(Ordering::Relaxed)).filter(|ppm| *ppm != 0)?;
        let (cost, work) = (|work: &Work| work.cost_ns(&self.prices), &self.last);
        let ns = (self.looked_ns - self.began_ns).max(1) as f64;
        Some(HookBudget {
            percent: f64::from(budget_ppm) / 1e4,
            hooks_percent: (cost(work) - cost(&self.first)) / ns * 100.0,
            most_percent: self.most_ppm / 1e4,
            stack_ns: (work.stacks > 0).then(|| work.stacks_ns / work.stacks as f64),
            shed: self.parts.iter().filter(|part| part.sampled_out > 0 || part.what == GPU_TIMES).cloned().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::Memory;
    use gputrace_abi::layout::{SMALLEST_BYTES, malloc_mode};
    use gputrace_abi::shed::may;

    const PRICES: Prices = Prices { event_ns: Some(30.0), passed_ns: Some(1.0), counted_ns: Some(5.0) };

    #[test]
    fn stacks_come_back_when_they_are_found_to_be_cheap() {
        let memory = Memory::new(SMALLEST_BYTES, malloc_mode::SAMPLE);
        let header = memory.view.header();
        header.may_shed.store(may::STACKS, Ordering::Relaxed);
        header.shed_ppm.store(10_000, Ordering::Relaxed);
        let (mut shedding, mut work) = (Shedding::default(), Work::default());
        let mut rungs = Vec::new();
        for second in 0..60 {
            shedding.look(header, second * EVERY_NS, PRICES, || work);
            let is_shed = Shed::of(header.shed.load(Ordering::Relaxed)).stacks;
            rungs.push(is_shed);
            // 600 a second: 0.5 ms each at first (30 %), later 7 us (0.4 %). While they are left out ten a second are taken.
            let taken = if is_shed { 10 } else { 600 };
            work.stacks += taken;
            work.left_out[0] += 600 - taken;
            work.stacks_ns += taken as f64 * if second < 3 { 5e5 } else { 7e3 };
        }
        assert!(rungs[2..10].iter().all(|is_shed| *is_shed), "{rungs:?}");
        assert!(rungs[40..].iter().all(|is_shed| !is_shed), "{rungs:?}");
    }

    #[test]
    fn the_account_says_what_was_left_out_from_when_to_when_and_how_much() {
        let memory = Memory::new(SMALLEST_BYTES, malloc_mode::SAMPLE);
        let header = memory.view.header();
        header.may_shed.store(may::LAUNCHES | may::STACKS, Ordering::Relaxed);
        let (mut shedding, mut work) = (Shedding::default(), Work::default());
        let mut look = |second: i64, work: Work| {
            shedding.look(header, second * EVERY_NS, PRICES, || work);
            (shedding.describe(header), Shed::of(header.shed.load(Ordering::Relaxed)))
        };
        assert_eq!(look(0, work), (None, Shed::default()), "nobody gave a budget");
        header.shed_ppm.store(10_000, Ordering::Relaxed);
        for second in 1..40 {
            // 10 % for three seconds, and nothing after it.
            let launches = if second < 5 { 3_333_333 } else { 0 };
            let recorded = if second > 3 { launches / 64 } else { launches };
            work.events += recorded;
            work.launches += recorded;
            work.left_out[2] += launches - recorded;
            look(second, work);
        }
        let (about, shed) = look(40, work);
        let about = about.expect("a budget");
        assert_eq!(shed, Shed::default());
        let [part] = &about.shed[..] else { panic!("no stacks were there to be left out: {about:?}") };
        assert_eq!((part.what.as_str(), part.one_in), ("launches", Some(64)));
        assert_eq!(part.sampled_out, work.left_out[2]);
        assert!(part.from_ns >= 2 * EVERY_NS && part.to_ns.is_some_and(|to| to > part.from_ns), "{part:?}");
        assert!(about.most_percent > about.hooks_percent && about.hooks_percent > 0.1, "{about:?}");
    }
}
