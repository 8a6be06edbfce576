//! Values by key, for passes that look a key up for every row.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Values by key. Rows come in runs of one key, and a loop has its keys in one order time after time: so the last key and the
/// one that followed it the last time are tried before the table. The number of keys is bounded, so that a trace with a
/// million kernels, streams or threads does not fill the memory: what comes after the last free place falls under one key.
#[derive(Debug)]
pub(crate) struct Groups<K, V> {
    index: FxHashMap<K, usize>,
    items: Vec<(K, V)>,
    /// By item: the one that followed it the last time.
    next: Vec<usize>,
    last: usize,
    limit: usize,
    /// Key for everything beyond the limit.
    other: K,
}

impl<K: Hash + Eq + Copy, V: Default> Groups<K, V> {
    /// No values yet; at most `limit` keys and `other`.
    pub(crate) fn new(limit: usize, other: K) -> Groups<K, V> {
        Groups { index: FxHashMap::default(), items: Vec::new(), next: Vec::new(), last: 0, limit, other }
    }

    /// The value of a key, made when it is new.
    #[inline]
    pub(crate) fn at(&mut self, key: K) -> &mut V {
        let is = |at: usize| self.items.get(at).is_some_and(|(k, _)| *k == key);
        if !is(self.last) {
            let next = self.next.get(self.last).copied().unwrap_or(0);
            self.last = if is(next) { next } else { self.follow(key) };
        }
        &mut self.items[self.last].1
    }

    /// Looks a key up, and notes that it follows the last one.
    fn follow(&mut self, key: K) -> usize {
        let found = self.find(key);
        if let Some(next) = self.next.get_mut(self.last) {
            *next = found;
        }
        found
    }

    fn find(&mut self, key: K) -> usize {
        if let Some(found) = self.index.get(&key) {
            return *found;
        }
        if self.items.len() >= self.limit && key != self.other {
            return self.find(self.other);
        }
        self.items.push((key, V::default()));
        self.next.push(self.items.len() - 1);
        self.index.insert(key, self.items.len() - 1);
        self.items.len() - 1
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes out what is not wanted any more.
    pub(crate) fn take_where(&mut self, mut gone: impl FnMut(&K, &V) -> bool) -> Vec<(K, V)> {
        let (taken, left): (Vec<_>, Vec<_>) = self.items.drain(..).partition(|(key, value)| gone(key, value));
        self.items = left;
        self.next = (0..self.items.len()).collect();
        self.last = 0;
        self.index = self.items.iter().enumerate().map(|(at, (key, _))| (*key, at)).collect();
        taken
    }

    /// The value of a key, if there is one.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.index.get(key).map(|i| &self.items[*i].1)
    }

    /// All keys and values, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.items.iter_mut().map(|(k, v)| (&*k, v))
    }

    /// All values.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.items.iter_mut().map(|(_, v)| v)
    }

    /// All keys and values, for good.
    pub(crate) fn into_items(self) -> impl Iterator<Item = (K, V)> {
        self.items.into_iter()
    }

    /// All keys and values, in the order of their first row.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.items.iter().map(|(k, v)| (k, v))
    }
}

impl<V: Default> Default for Groups<i64, V> {
    /// By process or thread: no run has more than a hundred thousand that matter.
    fn default() -> Self {
        Groups::new(100_000, -1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_beyond_the_limit_fall_under_one() {
        let mut groups: Groups<i64, u32> = Groups::new(2, -1);
        for key in [5, 5, 6, 7, 8, 5, 7] {
            *groups.at(key) += 1;
        }
        let all: Vec<(i64, u32)> = groups.iter().map(|(k, v)| (*k, *v)).collect();
        assert_eq!(all, [(5, 3), (6, 1), (-1, 3)]);
        assert_eq!(groups.get(&7), None);
    }

    #[test]
    fn keys_are_told_apart_whatever_follows_what() {
        let (mut groups, mut map) = (Groups::<i64, u32>::new(100, -1), FxHashMap::<i64, u32>::default());
        for turn in 0..100 {
            for key in [1, 2, 3, 2, 4, turn % 7, 5, 5, turn] {
                *groups.at(key) += 1;
                *map.entry(key).or_default() += 1;
            }
        }
        assert_eq!(groups.iter().count(), map.len());
        assert!(groups.iter().all(|(key, count)| map[key] == *count));
    }
}
