//! Which command buffers a commit of Metal 4's has, by its number: told by messages of their own, before the commit's event.
//!
//! They are read at once, and asked for when the commit is: when every ring was read as far as that, which may be long after, where a
//! thread waits inside of a message or others write as fast as they are read. So as many commits are kept as can wait
//! ([`super::waiting`]); those beyond are counted.

use super::recent::Recent;

/// Commits that are kept, and command buffers of one and of all. Of what waits a commit is at most every fourth message.
const MOST_COMMITS: usize = 1 << 18;
const MOST_OF_ONE: usize = 1 << 10;
const MOST_OF_ALL: usize = 1 << 20;

/// Command buffers by the number of their commit.
#[derive(Debug)]
pub(super) struct Members {
    by_number: Recent<Vec<u64>>,
    /// In all of them.
    kept: usize,
    /// Command buffers that there was no room for, and commits whose command buffers were forgotten.
    beyond: u64,
    forgotten: u64,
}

impl Default for Members {
    fn default() -> Members {
        Members::new(MOST_COMMITS)
    }
}

impl Members {
    fn new(most: usize) -> Members {
        Members { by_number: Recent::new(most), kept: 0, beyond: 0, forgotten: 0 }
    }

    /// A commit has this command buffer.
    pub(super) fn take(&mut self, number: u64, buffer: u64) {
        if self.by_number.get(number).is_none()
            && let Some(gone) = self.by_number.insert(number, Vec::new())
        {
            self.kept -= gone.len();
            self.forgotten += 1;
        }
        let Some(members) = self.by_number.get_mut(number) else { return };
        if members.len() < MOST_OF_ONE && self.kept < MOST_OF_ALL {
            members.push(buffer);
            self.kept += 1;
        } else {
            self.beyond += 1;
        }
    }

    /// The command buffers of a commit, which is there.
    pub(super) fn remove(&mut self, number: u64) -> Option<Vec<u64>> {
        let members = self.by_number.remove(number)?;
        self.kept -= members.len();
        Some(members)
    }

    /// What the manifest says of those that were not kept.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let beyond = (self.beyond > 0).then(|| {
            format!(
                "{} command buffers beyond the first {MOST_OF_ONE} of their commit of Metal 4's, or beyond {MOST_OF_ALL} in all: \
                 their dispatches are of no commit",
                self.beyond
            )
        });
        let forgotten = (self.forgotten > 0).then(|| {
            format!(
                "{} commits of Metal 4's, of more than {MOST_COMMITS} that were not yet put into their order: their dispatches are of \
                 no commit",
                self.forgotten
            )
        });
        beyond.into_iter().chain(forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_beyond_the_bound_are_forgotten_and_counted() {
        let mut members = Members::new(2);
        for (number, buffer) in [(1, 10), (1, 11), (2, 20), (3, 30)] {
            members.take(number, buffer);
        }
        assert_eq!((members.remove(1), members.remove(2), members.remove(3)), (None, Some(vec![20]), Some(vec![30])));
        assert_eq!(members.kept, 0);
        let notes: Vec<String> = members.notes().collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("1 commits of Metal 4's, of more than"), "{notes:?}");
    }
}
