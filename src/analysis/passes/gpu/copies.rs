//! Copies and sets as the device made them: how many, how large, how long.

use super::order::Operation;
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::stats::Stats;
use crate::analysis::passes::texts::Texts;

/// A transfer of fewer bytes is small (metrics.md).
pub(crate) const SMALL_BYTES: i64 = 64 << 10;

/// Which copies are counted together; texts are numbers of [`Copies::texts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) process_id: i64,
    pub(crate) kind: u16,
    pub(crate) direction: u16,
    pub(crate) memory: [u16; 2],
}

/// Copies of one key.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) time: Stats,
    pub(crate) bytes: Stats,
    /// Of fewer bytes than [`SMALL_BYTES`].
    pub(crate) small: u64,
}

/// Copies and sets that devices made.
#[derive(Debug)]
pub(crate) struct Copies {
    pub(crate) sums: Groups<Key, Sum>,
    pub(crate) texts: Texts,
}

impl Default for Copies {
    fn default() -> Copies {
        let other = Key { process_id: OTHER, kind: 0, direction: 0, memory: [0; 2] };
        Copies { sums: Groups::new(20_000, other), texts: Texts::default() }
    }
}

impl Copies {
    #[inline]
    pub(super) fn add(&mut self, of: &mut Operation, kind: &str, direction: &str, memory: [&str; 2], bytes: i64) {
        let memory = memory.map(|of| self.texts.number(of));
        let (kind, direction) = (self.texts.number(kind), self.texts.number(direction));
        of.direction = direction;
        let sum = self.sums.at(Key { process_id: of.process_id, kind, direction, memory });
        sum.time.add(of.end - of.start);
        sum.bytes.add(bytes);
        sum.small += u64::from(bytes < SMALL_BYTES);
    }
}
