//! How much is left out: a rung of a ladder, chosen once a second from what the last second cost.
//!
//! What is left out is counted, and its price is known; so it is known as well what each rung would cost, whichever one is
//! in use, and a choice does not change what the next one is made from. That is why nothing swings under a steady load: up
//! at once, to the lowest rung that holds the budget if the load stays; down only after some time in which a lower rung
//! would have cost clearly less than is allowed. A load that keeps coming back makes that time longer.

use std::collections::VecDeque;

use gputrace_abi::shed::{Shed, may};

/// The budget holds over so many looks, a second each.
const SPAN: usize = 10;
/// A lower rung is taken when it would have cost no more than this part of the budget,
const ENOUGH: f64 = 0.7;
/// for so many looks,
const PATIENCE: u32 = 10;
/// which double whenever that proves to have been too soon, up to so many.
const MOST_PATIENCE: u32 = 640;
/// Powers of two by which malloc's samples and launches get rarer, a rung each.
const STEPS: [u8; 2] = [3, 6];

/// What recording would have cost in the last second if nothing had been left out, in millionths of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Whatever cannot be left out.
    pub(super) fixed: f64,
    /// Stacks.
    pub(super) stacks: f64,
    /// Events of malloc's samples.
    pub(super) malloc: f64,
    /// Events of launches.
    pub(super) launches: f64,
    /// What launches cost if all were only counted.
    pub(super) counted: f64,
}

impl Load {
    fn cost(&self, shed: Shed) -> f64 {
        let one_in = |power: u8| (-f64::from(power)).exp2();
        let (malloc, launches) = (one_in(shed.malloc), one_in(shed.launches));
        let stacks = if shed.stacks { 0.0 } else { self.stacks };
        self.fixed + stacks + self.malloc * malloc + self.launches * launches + self.counted * (1.0 - launches)
    }
}

/// Of the budget the GPU's times always have so much: enough for short windows, or for launches that are timed now and then;
const LEAST: f64 = 0.25;
/// so much where the hooks alone need the rest: for launches that are timed.
const LEAST_SHED: f64 = 0.125;

/// What part of the budget the GPU's times have at least.
pub(in crate::process) fn least(shed: Shed) -> f64 {
    if shed.gpu_times { LEAST_SHED } else { LEAST }
}

/// The dearest goes first: stacks, then malloc's samples, then what the GPU's times have for sure, then launches.
#[derive(Debug)]
pub(super) struct Ladder {
    rungs: Vec<Shed>,
    /// The GPU's times have a part of the budget.
    shares: bool,
    at: usize,
    /// What the last looks found to be spent, in millionths of the wall time.
    spent: VecDeque<f64>,
    /// For how many looks each rung would have been enough.
    calm: Vec<u32>,
    patience: u32,
    /// Looks since a lower rung was taken, and since any was.
    since_down: u32,
    since_change: u32,
}

impl Ladder {
    /// `may_shed`: bits of [`may`].
    pub(super) fn new(may_shed: u32) -> Ladder {
        let mut shed = Shed::default();
        let mut rungs = vec![shed];
        if may_shed & may::STACKS != 0 {
            shed.stacks = true;
            rungs.push(shed);
        }
        for malloc in STEPS.into_iter().filter(|_| may_shed & may::MALLOC != 0) {
            shed.malloc = malloc;
            rungs.push(shed);
        }
        let shares = may_shed & may::GPU_TIMES != 0;
        // For the hooks' sake alone: where nothing else of theirs can be left out it helps them little.
        if shares {
            shed.gpu_times = true;
            rungs.push(shed);
        }
        for launches in STEPS.into_iter().filter(|_| may_shed & may::LAUNCHES != 0) {
            shed.launches = launches;
            rungs.push(shed);
        }
        let calm = vec![0; rungs.len()];
        let (since_down, since_change) = (MOST_PATIENCE * 2, MOST_PATIENCE);
        Ladder { rungs, shares, at: 0, spent: VecDeque::new(), calm, patience: PATIENCE, since_down, since_change }
    }

    /// What is to be left out from now on. `spent`: what the last second did cost, in millionths of it, as `budget` is.
    pub(super) fn look(&mut self, budget: f64, spent: f64, load: &Load) -> Shed {
        self.since_down = self.since_down.saturating_add(1);
        self.since_change = self.since_change.saturating_add(1);
        self.spent.push_back(spent);
        if self.spent.len() >= SPAN {
            self.spent.drain(..=self.spent.len() - SPAN);
        }
        let costs: Vec<f64> = self.rungs.iter().map(|shed| load.cost(*shed)).collect();
        let rooms: Vec<f64> = self.rungs.iter().map(|shed| self.room(budget, *shed)).collect();
        for ((calm, cost), room) in self.calm.iter_mut().zip(&costs).zip(&rooms) {
            *calm = if *cost <= room * ENOUGH { *calm + 1 } else { 0 };
        }
        // Threads take notice of a change in the second after it: what that one cost says nothing of the rung.
        let settled = self.since_change > 1;
        // What the rung does not keep from being spent stays with those above it.
        let more = if settled { (spent - costs[self.at]).max(0.0) } else { 0.0 };
        let highest = self.rungs.len() - 1;
        let wanted = (self.at..highest).find(|rung| self.holds(rooms[*rung], costs[*rung] + more)).unwrap_or(highest);
        if wanted > self.at && settled {
            if self.since_down <= self.patience * 2 {
                self.patience = (self.patience * 2).min(MOST_PATIENCE);
            }
            self.go(wanted);
        } else if wanted == self.at || self.at == highest {
            let enough = |rung: &usize| self.calm[*rung] >= self.patience && self.holds(rooms[*rung], costs[*rung]);
            if let Some(lower) = (0..self.at).find(enough) {
                self.since_down = 0;
                self.go(lower);
            }
        }
        self.rungs[self.at]
    }

    /// What of the budget the hooks may spend.
    fn room(&self, budget: f64, shed: Shed) -> f64 {
        if self.shares { budget * (1.0 - least(shed)) } else { budget }
    }

    fn go(&mut self, rung: usize) {
        (self.at, self.since_change) = (rung, 0);
        self.calm.fill(0);
    }

    /// Whether no [`SPAN`] looks from now on cost more than is allowed if each costs so much.
    fn holds(&self, budget: f64, cost: f64) -> bool {
        let mut sum = 0.0;
        let mut newest = self.spent.iter().rev();
        // Of the looks behind so many as are left beside those to come.
        let behind = std::iter::once(0.0).chain(std::iter::from_fn(|| newest.next().copied()));
        behind.enumerate().all(|(known, spent)| {
            sum += spent;
            sum + (SPAN - known) as f64 * cost <= budget * SPAN as f64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = may::STACKS | may::MALLOC | may::LAUNCHES;
    const BUDGET: f64 = 10_000.0;

    /// Plays loads, a second each: what was left out in each second, and what that cost.
    fn play(may_shed: u32, loads: impl IntoIterator<Item = Load>) -> Vec<(Shed, f64)> {
        let mut ladder = Ladder::new(may_shed);
        let mut shed = Shed::default();
        let second = |load: Load| {
            let (was, spent) = (shed, load.cost(shed));
            shed = ladder.look(BUDGET, spent, &load);
            (was, spent)
        };
        loads.into_iter().map(second).collect()
    }

    fn changes(played: &[(Shed, f64)]) -> usize {
        played.windows(2).filter(|two| two[0].0 != two[1].0).count()
    }

    /// The most that ten seconds cost, from some second on.
    fn most(played: &[(Shed, f64)], from: usize) -> f64 {
        played[from..].windows(SPAN).map(|ten| ten.iter().map(|(_, spent)| spent).sum::<f64>()).fold(0.0, f64::max)
    }

    /// All parts times this.
    fn load(times: f64) -> Load {
        Load {
            fixed: 100.0 * times,
            stacks: 3000.0 * times,
            malloc: 2000.0 * times,
            launches: 4000.0 * times,
            counted: 400.0 * times,
        }
    }

    #[test]
    fn the_dearest_goes_first_and_no_more_than_must() {
        let rung = |times: f64| play(ALL, vec![load(times); 3])[2].0;
        let shed = |stacks: bool, malloc: u8, launches: u8| Shed { stacks, malloc, launches, ..Shed::default() };
        assert_eq!(rung(1.0), shed(false, 0, 0));
        assert_eq!(rung(1.2), shed(true, 0, 0));
        assert_eq!(rung(1.8), shed(true, 3, 0));
        assert_eq!(rung(3.0), shed(true, 6, 3));
        assert_eq!(rung(1000.0), shed(true, 6, 6));
        // Malloc alone is dear: launches stay whole.
        let mallocs = Load { malloc: 60_000.0, ..load(0.1) };
        assert_eq!(play(ALL, vec![mallocs; 3])[2].0, shed(true, 6, 0));
    }

    #[test]
    fn what_is_not_recorded_is_not_left_out() {
        let launches = play(may::LAUNCHES, vec![load(9.0); 3])[2].0;
        assert_eq!(launches, Shed { launches: 6, ..Shed::default() });
        assert_eq!(play(0, vec![load(9.0); 3])[2].0, Shed::default());
    }

    #[test]
    fn the_times_of_the_gpu_have_their_part_and_give_half_of_it_before_launches_go() {
        let with_gpu = ALL | may::GPU_TIMES;
        let rung = |load: Load| play(with_gpu, vec![load; 3])[2];
        // What fits the budget, and not three quarters of it.
        let (shed, spent) = rung(load(0.9));
        assert_eq!((shed, spent <= 0.75 * BUDGET), (Shed { stacks: true, ..Shed::default() }, true));
        // Launches that fit the rest only if no window opens stay whole.
        let (shed, spent) = rung(Load { launches: 8_000.0, counted: 800.0, ..Load::default() });
        assert!(shed.gpu_times && shed.launches == 0 && spent <= 0.875 * BUDGET, "{shed:?} {spent}");
        let (shed, spent) = rung(Load { launches: 25_000.0, counted: 4_000.0, ..Load::default() });
        assert!(shed.gpu_times && shed.launches == 3 && spent <= 0.875 * BUDGET, "{shed:?} {spent}");
        // Whatever the load, it settles, and the hooks leave what the GPU's times may spend.
        for tenth in 1..400 {
            let played = play(with_gpu, vec![load(f64::from(tenth) / 10.0); 100]);
            let (shed, spent) = played[99];
            assert_eq!(changes(&played[20..]), 0, "{tenth}");
            assert!(shed.launches == 6 || spent + BUDGET * least(shed) <= BUDGET, "{tenth}: {shed:?} {spent}");
        }
    }

    #[test]
    fn a_steady_load_changes_nothing_after_it_is_known() {
        for tenth in 1..400 {
            let played = play(ALL, vec![load(f64::from(tenth) / 10.0); 500]);
            // A rung that was needed for the first second, which nothing was known of, may prove too high later.
            assert!(changes(&played[1..]) <= 1 && changes(&played[20..]) == 0, "{tenth}: {}", changes(&played));
        }
    }

    #[test]
    fn every_ten_seconds_cost_no_more_than_the_budget() {
        // A load that comes and goes; its first second is not known before it is over, and costs less than all ten may.
        for period in [3, 7, 20, 45] {
            let loads = (0..1000).map(|second| load(if second / period % 2 == 0 { 4.0 } else { 0.2 }));
            let played = play(ALL, loads);
            assert!(most(&played, 0) <= BUDGET * SPAN as f64, "{period}: {}", most(&played, 0));
        }
        // One that nothing was known of breaks it once, and never again.
        let played = play(ALL, vec![load(15.0); 100]);
        assert!(most(&played, 0) > BUDGET * SPAN as f64 && most(&played, 1) <= BUDGET * SPAN as f64);
    }

    #[test]
    fn a_load_that_comes_back_again_and_again_is_given_in_to_ever_more_rarely() {
        for period in [11, 15, 25] {
            let loads = (0..10_000).map(|second| load(if second / period % 2 == 0 { 3.0 } else { 0.1 }));
            let changed = changes(&play(ALL, loads));
            assert!((2..20).contains(&changed), "{period}: {changed}");
        }
    }

    #[test]
    fn all_is_recorded_again_when_the_load_is_gone_and_not_before() {
        let loads = |low: f64| (0..60).map(move |second| load(if second < 20 { 3.0 } else { low }));
        let gone = play(ALL, loads(0.1));
        assert_ne!(gone[28].0, Shed::default());
        assert_eq!(gone[40].0, Shed::default());
        // All of it would be just inside the budget, and soon over it again.
        let hardly = play(ALL, loads(0.95));
        assert_eq!(hardly[59].0, Shed { stacks: true, ..Shed::default() });
    }

    #[test]
    fn noise_around_the_budget_does_not_make_it_swing() {
        let mut random = 1u64;
        let noise = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            0.8 + 0.4 * (random >> 33) as f64 / (1u64 << 31) as f64
        };
        let loads: Vec<Load> = std::iter::repeat_with(noise).take(2000).map(|times| load(times * 1.1)).collect();
        assert!(changes(&play(ALL, loads)) <= 4);
    }

    #[test]
    fn what_does_not_get_cheaper_on_a_rung_leads_to_the_next() {
        let mut ladder = Ladder::new(ALL);
        // Stacks are all that seems to be dear, and leaving them out saves nothing.
        let load = Load { stacks: 15_000.0, launches: 1000.0, ..Load::default() };
        let shed: Vec<Shed> = (0..4).map(|_| ladder.look(BUDGET, 16_000.0, &load)).collect();
        assert_eq!(shed[0], Shed { stacks: true, ..Shed::default() });
        assert_eq!(shed[1], shed[0], "threads have not taken notice yet");
        assert_eq!((shed[2].launches, shed[3].launches), (6, 6));
    }
}
