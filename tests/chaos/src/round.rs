//! A round: a program, options and a misfortune, all of which follow from its seed.

use crate::misfortune::Misfortune;
use crate::options::{Given, Options};
use crate::program::{Driver, Program};
use crate::random::Draw;

/// What of the machine a round depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Machine {
    /// Disks can be mounted.
    pub(crate) mounts: bool,
    /// The engine of inline hooks is there.
    pub(crate) inline: bool,
}

/// A round.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// Its seed.
    pub(crate) seed: u64,
    /// The program.
    pub(crate) program: Program,
    /// The program's plan, with all that the round adds.
    pub(crate) plan: String,
    /// gputrace's options.
    pub(crate) options: Options,
    /// What goes wrong.
    pub(crate) misfortune: Misfortune,
    /// When, after the program's begin, ms.
    pub(crate) after_ms: u64,
}

impl Round {
    /// The round of a seed.
    pub(crate) fn of(seed: u64, machine: Machine) -> Round {
        let program = Program::of(seed);
        let misfortune = Misfortune::of(seed, machine.mounts);
        let given = Given {
            inline: machine.inline,
            switched: misfortune == Misfortune::Switched,
            recorder: misfortune == Misfortune::Dumped,
        };
        let options = Options::of(seed, &program, given);
        let mut when = Draw::of(seed, "when");
        let after_ms = when.weighted(&[(1, 0), (2, 5), (3, 100), (3, 500), (1, 1500)]);
        let mut after_ms = when.between(0, after_ms);
        // What was written more than a second before a death is looked for: some must die late enough.
        let mut later = Draw::of(seed, "much later");
        if misfortune == Misfortune::AllKilled && later.chance(20) {
            after_ms += later.between(1_800, 2_600);
        }
        let lengthened_ms = match misfortune.comes_later() {
            true => after_ms + when.between(20, 400),
            false => when.weighted(&[(3, 0), (2, 50), (1, 300)]),
        };
        let mut plan = program.lengthened(lengthened_ms);
        if misfortune == Misfortune::ChildKilled {
            // There must be some, which live long enough.
            plan = plan.replace(",children=", ",children=fFp");
            plan += &format!(",children_die=1,linger={}", (lengthened_ms * 1000 / 20).max(1));
        }
        // Threads can be counted where none of ours is among them, and only when the program is there alone.
        if !options.has_threads {
            plan += ",look=1";
        }
        plan += ",";
        Round { seed, program, plan, options, misfortune, after_ms }
    }

    /// What to print of it, a line each.
    pub(crate) fn lines(&self) -> String {
        let when = if self.misfortune.comes_later() { format!(" after {} ms", self.after_ms) } else { String::new() };
        format!(
            "   misfortune  {:?}{when}\n   options     {}\n   plan        {}\n",
            self.misfortune,
            self.options.words.join(" "),
            self.plan
        )
    }

    /// Variables for the simulated driver.
    pub(crate) fn variables(&self) -> Vec<(&'static str, &'static str)> {
        if self.program.driver == Driver::Timed { Vec::new() } else { vec![("FAKE_CUDA_INSTANT", "1")] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_all_of_a_round() {
        let machine = Machine { mounts: true, inline: true };
        for seed in 0..200 {
            let (one, again) = (Round::of(seed, machine), Round::of(seed, machine));
            assert_eq!(one.lines(), again.lines());
            assert!(one.plan.starts_with(",seed=") && one.plan.ends_with(','), "{}", one.plan);
        }
    }

    #[test]
    fn who_is_to_be_mistreated_lives_long_enough_for_it() {
        let rounds = (0..500).map(|seed| Round::of(seed, Machine { mounts: true, inline: false }));
        for round in rounds.filter(|round| round.misfortune.comes_later()) {
            assert!(round.plan.contains(",pause="), "{}", round.plan);
        }
    }
}
