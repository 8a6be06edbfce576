//! Ids of names: the same text has the same id in every process, host and run.
//!
//! Files of several collectors are joined without a translation, and two traces are compared by id. An id is the
//! 64-bit FNV-1a hash of the kind, a zero byte and the name, without its top bit so that it stays positive in INT64.
//! With 63 bits a trace of a million different names has a collision with probability 5e-8.

use std::collections::{HashMap, HashSet};

use gputrace_abi::text::{FNV, fnv};

/// What a name is: column `kind` of the table `names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// A hooked function.
    Api,
    /// A kernel, mangled.
    Kernel,
    /// A driver function that the program fetched and no hook covers.
    Symbol,
    /// A range that a program named, or a text that it registered for one.
    Range,
    /// A domain of ranges.
    Domain,
    /// A category of ranges.
    Category,
}

impl NameKind {
    /// The text in the table.
    pub fn name(self) -> &'static str {
        match self {
            NameKind::Api => "api",
            NameKind::Kernel => "kernel",
            NameKind::Symbol => "symbol",
            NameKind::Range => "range",
            NameKind::Domain => "domain",
            NameKind::Category => "category",
        }
    }
}

/// The id of a name.
pub fn id(kind: NameKind, name: &str) -> i64 {
    let mut hash = Hash::new(kind.name());
    hash.text(name);
    hash.id()
}

/// An id on its way.
pub(crate) struct Hash(u64);

impl Hash {
    /// Of something of this kind.
    pub(crate) fn new(kind: &str) -> Hash {
        let mut hash = Hash(FNV);
        hash.text(kind);
        hash.text("\0");
        hash
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.0 = fnv(self.0, text.as_bytes());
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0 = fnv(self.0, &number.to_le_bytes());
    }

    pub(crate) fn id(&self) -> i64 {
        (self.0 & i64::MAX as u64) as i64
    }
}

/// Names of one collector.
const MOST: usize = 1 << 20;
/// Stacks of one collector, half of them those that it met last; of the others the rows may come twice.
pub(crate) const MOST_STACKS: usize = if cfg!(test) { 1 << 8 } else { 1 << 23 };

/// The names that a collector has written, so that each is written once.
#[derive(Debug, Default)]
pub(crate) struct Written {
    ids: HashSet<i64>,
    stacks: HashSet<i64>,
    /// Those that were met before there were too many.
    earlier_stacks: HashSet<i64>,
    /// Ids of texts by their keys ([`gputrace_abi::text::key`]), of all processes: a forked child sends nothing again.
    by_key: HashMap<u64, i64>,
}

impl Written {
    /// Whether the id is new; it counts as written from now on. A process that sends names without end gets no more.
    pub(crate) fn insert(&mut self, id: i64) -> bool {
        self.ids.len() < MOST && self.ids.insert(id)
    }

    /// The same of a stack's id.
    pub(crate) fn stack(&mut self, id: i64) -> bool {
        if self.stacks.contains(&id) {
            return false;
        }
        let known = self.earlier_stacks.contains(&id);
        if self.stacks.len() >= MOST_STACKS / 2 {
            self.earlier_stacks = std::mem::take(&mut self.stacks);
        }
        self.stacks.insert(id);
        !known
    }

    /// All must be written again.
    pub(crate) fn forget(&mut self) {
        self.ids.clear();
        self.stacks.clear();
        self.earlier_stacks.clear();
    }

    /// Events say this key where they mean the name with this id.
    pub(crate) fn key(&mut self, key: u64, id: i64) {
        if self.by_key.len() < MOST {
            self.by_key.insert(key, id);
        }
    }

    /// The name that a key stands for; none for 0, and where its text never came.
    pub(crate) fn by_key(&self, key: u64) -> Option<i64> {
        self.by_key.get(&key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_never_change() {
        // Traces of earlier versions hold these numbers.
        assert_eq!(id(NameKind::Api, "cuLaunchKernel"), 0x678f_2563_2509_5fef);
        assert!(id(NameKind::Kernel, "cuLaunchKernel") != id(NameKind::Api, "cuLaunchKernel"));
    }

    #[test]
    fn a_name_is_new_once() {
        let mut written = Written::default();
        assert!(written.insert(7));
        assert!(!written.insert(7));
    }
}
