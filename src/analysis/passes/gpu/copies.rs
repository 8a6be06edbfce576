//! Copies and sets as the device made them: how many, how large, how long.

use super::order::Operation;
use crate::analysis::passes::groups::Groups;
use crate::analysis::passes::launches::OTHER;
use crate::analysis::passes::stats::Stats;
use crate::analysis::passes::texts::Texts;
use crate::analysis::passes::timeline::Flow;

/// A transfer of fewer bytes is small (metrics.md).
pub(crate) const SMALL_BYTES: i64 = 64 << 10;

/// Series of bytes that are kept apart (8 MB).
const FLOWS: usize = 4_096;

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
    /// Bytes over time, since `origin_ns`, by process, kind and direction.
    pub(crate) over_time: Groups<(i64, u16, u16), Flow>,
    pub(crate) origin_ns: i64,
    pub(crate) texts: Texts,
}

impl Default for Copies {
    fn default() -> Copies {
        let other = Key { process_id: OTHER, kind: 0, direction: 0, memory: [0; 2] };
        Copies {
            sums: Groups::new(20_000, other),
            over_time: Groups::new(FLOWS, (OTHER, 0, 0)),
            origin_ns: 0,
            texts: Texts::default(),
        }
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
        let span = (of.start.saturating_sub(self.origin_ns), of.end.saturating_sub(self.origin_ns));
        self.over_time.at((of.process_id, kind, direction)).add(span, bytes.max(0));
    }
}
