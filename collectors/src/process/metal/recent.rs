//! Values by address, of which the oldest make room for new ones.

use std::collections::VecDeque;

use crate::bindings::ByHandle;

/// Fewer addresses than twice so many are not looked through for those whose values are gone.
const LEAST: usize = 1 << 6;

/// At most so many values by address.
#[derive(Debug)]
pub(super) struct Recent<T> {
    by_address: ByHandle<(u64, T)>,
    /// Addresses in the order in which they came, with the number of the value; of values that are gone too.
    order: VecDeque<(u64, u64)>,
    next: u64,
    most: usize,
}

impl<T> Recent<T> {
    pub(super) fn new(most: usize) -> Recent<T> {
        Recent { by_address: ByHandle::default(), order: VecDeque::new(), next: 0, most }
    }

    /// Puts a value there. Gives what stood there before, or the oldest one where there was no room.
    pub(super) fn insert(&mut self, address: u64, value: T) -> Option<T> {
        let before = self.remove(address).or_else(|| self.make_room());
        self.next += 1;
        self.order.push_back((address, self.next));
        self.by_address.insert(address, (self.next, value));
        if self.order.len() > 2 * self.by_address.len().max(self.most.min(LEAST)) {
            let known = &self.by_address;
            self.order.retain(|(address, number)| known.get(address).is_some_and(|(of, _)| of == number));
        }
        before
    }

    fn make_room(&mut self) -> Option<T> {
        while self.by_address.len() >= self.most {
            let (address, number) = self.order.pop_front()?;
            if self.by_address.get(&address).is_some_and(|(of, _)| *of == number) {
                return self.remove(address);
            }
        }
        None
    }

    pub(super) fn get(&self, address: u64) -> Option<&T> {
        self.by_address.get(&address).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, address: u64) -> Option<&mut T> {
        self.by_address.get_mut(&address).map(|(_, value)| value)
    }

    /// What stands there, or the value of nothing.
    pub(super) fn get_or_default(&mut self, address: u64) -> &mut T
    where
        T: Default,
    {
        if !self.by_address.contains_key(&address) {
            self.insert(address, T::default());
        }
        &mut self.by_address.entry(address).or_default().1
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<T> {
        self.by_address.remove(&address).map(|(_, value)| value)
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.by_address.iter().map(|(address, (_, value))| (*address, value))
    }

    /// All of them, the oldest first; none is left.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        let mut all: Vec<(u64, T)> = self.by_address.drain().map(|(_, value)| value).collect();
        all.sort_by_key(|(number, _)| *number);
        self.order.clear();
        all.into_iter().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room_and_an_address_that_comes_back_is_young() {
        let mut recent = Recent::new(2);
        assert_eq!((recent.insert(1, 'a'), recent.insert(2, 'b')), (None, None));
        assert_eq!(recent.insert(1, 'c'), Some('a'), "what stood there");
        assert_eq!(recent.insert(3, 'd'), Some('b'), "the oldest");
        assert_eq!((recent.get(1), recent.get(2)), (Some(&'c'), None));
        assert_eq!(recent.take_all(), ['c', 'd']);
    }

    #[test]
    fn values_that_come_and_go_take_bounded_memory() {
        let mut recent = Recent::new(8);
        for address in 0..10_000 {
            recent.insert(address % 20, address);
            recent.remove(address % 3);
        }
        assert!(recent.by_address.len() <= 8 && recent.order.len() <= 17);
    }
}
