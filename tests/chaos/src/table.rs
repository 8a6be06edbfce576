//! What all rounds came to: misfortunes, invariants, failures.

use std::collections::BTreeMap;

use crate::judge::CHECKS;

/// The sums.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rounds: u64,
    /// Rounds and failed rounds by misfortune.
    misfortunes: BTreeMap<&'static str, (u64, u64)>,
    /// Checks and failures by invariant.
    checks: [(u64, u64); CHECKS.len()],
    /// Seeds that failed.
    failed: Vec<u64>,
}

impl Table {
    /// Adds a round.
    pub(crate) fn add(&mut self, seed: u64, misfortune: &'static str, found: &[(usize, Vec<String>)]) {
        self.rounds += 1;
        let bad = found.iter().any(|(_, wrong)| !wrong.is_empty());
        let of = self.misfortunes.entry(misfortune).or_default();
        *of = (of.0 + 1, of.1 + u64::from(bad));
        for (check, wrong) in found {
            let of = &mut self.checks[*check];
            *of = (of.0 + 1, of.1 + u64::from(!wrong.is_empty()));
        }
        if bad {
            self.failed.push(seed);
        }
    }

    /// How many rounds there were.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Seeds that failed.
    pub(crate) fn failed(&self) -> &[u64] {
        &self.failed
    }

    /// As text.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{:<38} rounds  failed\n", "misfortune");
        for (name, (rounds, failed)) in &self.misfortunes {
            text += &format!("{name:<38} {rounds:>6}  {failed:>6}\n");
        }
        text += &format!("\n{:<38} checks  failed\n", "invariant");
        for ((name, _), (checks, failed)) in CHECKS.iter().zip(&self.checks) {
            text += &format!("{name:<38} {checks:>6}  {failed:>6}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_with_one_complaint_has_failed() {
        let mut table = Table::default();
        table.add(1, "nothing", &[(0, Vec::new()), (1, Vec::new())]);
        table.add(2, "nothing", &[(0, Vec::new()), (1, vec!["1 (alone 0)".to_owned()])]);
        assert_eq!((table.rounds(), table.failed()), (2, &[2][..]));
        let text = table.text();
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("nothing").ends_with("     2       1"), "{text}");
        assert!(line(CHECKS[1].0).ends_with("     2       1"), "{text}");
        assert!(line(CHECKS[0].0).ends_with("     2       0"), "{text}");
    }
}
