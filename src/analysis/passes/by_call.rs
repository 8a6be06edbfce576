//! Values by the call that they belong to, for passes that join what was caused with its cause: millions of look-ups by
//! process and correlation id.
//!
//! The ids of a thread rise from call to call, and what calls caused comes in nearly their order. So neighbours share a page:
//! one look-up after the other touches memory in order, where a hash map would jump about and wait for memory each time.

use rustc_hash::FxHashMap;

/// So many ids in a row share a page; their number in it fits a byte.
const IDS: i64 = 64;
/// Pages that were used last are found without the index.
const HINTS: usize = 16;

/// Values by process and correlation id.
#[derive(Debug)]
pub(crate) struct ByCall<V> {
    index: FxHashMap<(i64, i64), usize>,
    pages: Vec<Page<V>>,
    free: Vec<usize>,
    hints: [usize; HINTS],
    /// The page that became empty last: the next call mostly has its place there.
    emptied: Option<usize>,
    most: usize,
}

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    page: usize,
    at: usize,
}

#[derive(Debug)]
struct Page<V> {
    /// Process, and id without its last bits; none of a page that is free.
    key: Option<(i64, i64)>,
    /// When the youngest call began.
    newest: i64,
    /// Values that are still there.
    live: usize,
    /// By number in the page; taken ones are none.
    values: Vec<(u8, Option<V>)>,
}

impl<V> ByCall<V> {
    /// Nothing yet; when there are more than `most` pages the older half is forgotten.
    pub(crate) fn new(most: usize) -> ByCall<V> {
        ByCall {
            index: FxHashMap::default(),
            pages: Vec::new(),
            free: Vec::new(),
            hints: [0; HINTS],
            emptied: None,
            most,
        }
    }

    /// Sets the value of a call that began at some time.
    #[inline]
    pub(crate) fn insert(&mut self, process_id: i64, correlation: i64, start: i64, value: V) {
        let (key, number) = split(process_id, correlation);
        let page = self.find(key).unwrap_or_else(|| self.add(key, start));
        let page = &mut self.pages[page];
        page.newest = page.newest.max(start);
        match page.place(number) {
            Ok(at) => page.live += usize::from(page.values[at].1.replace(value).is_none()),
            Err(at) => {
                page.values.insert(at, (number, Some(value)));
                page.live += 1;
            }
        }
    }

    /// Where the value of a call is, until anything is inserted or forgotten.
    #[inline]
    pub(crate) fn place(&mut self, process_id: i64, correlation: i64) -> Option<Place> {
        let (key, number) = split(process_id, correlation);
        let page = self.find(key)?;
        Some(Place { page, at: self.pages[page].place(number).ok()? })
    }

    /// The value at a place, if it is still there.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<&V> {
        self.pages[place.page].values[place.at].1.as_ref()
    }

    /// The value of a call.
    #[inline]
    pub(crate) fn get(&mut self, process_id: i64, correlation: i64) -> Option<&V> {
        let place = self.place(process_id, correlation)?;
        self.at(place)
    }

    /// The same, which is not there any more then.
    #[inline]
    pub(crate) fn take(&mut self, process_id: i64, correlation: i64) -> Option<V> {
        let place = self.place(process_id, correlation)?;
        self.take_at(place)
    }

    /// The value at a place, which is not there any more then.
    #[inline]
    pub(crate) fn take_at(&mut self, Place { page: found, at }: Place) -> Option<V> {
        let page = &mut self.pages[found];
        let value = page.values[at].1.take()?;
        page.live -= 1;
        if page.live == 0 && self.emptied != Some(found) {
            self.sweep();
            self.emptied = Some(found);
        }
        Some(value)
    }

    /// Gives the page back that became empty last, if it still is.
    fn sweep(&mut self) {
        if let Some(emptied) = self.emptied.take().filter(|page| self.pages[*page].live == 0) {
            self.remove(emptied);
        }
    }

    /// Forgets all calls but these.
    pub(crate) fn retain(&mut self, keep: impl Fn(i64, i64) -> bool) {
        for number in 0..self.pages.len() {
            let page = &mut self.pages[number];
            let Some((process_id, first)) = page.key else { continue };
            let others = |number: u8| !keep(process_id, first * IDS + i64::from(number));
            page.values.iter_mut().filter(|(number, _)| others(*number)).for_each(|(_, value)| *value = None);
            page.live = page.values.iter().filter(|(_, value)| value.is_some()).count();
            if page.live == 0 {
                self.remove(number);
            }
        }
    }

    /// All values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.pages.iter().flat_map(|page| &page.values).filter_map(|(_, value)| value.as_ref())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.pages.iter().map(|page| page.live).sum()
    }

    /// Forgets calls that began before some time; some that share a page with a later one stay with it.
    pub(crate) fn forget(&mut self, before: i64) {
        for number in 0..self.pages.len() {
            if self.pages[number].newest < before {
                self.remove(number);
            }
        }
    }

    #[inline]
    fn find(&mut self, key: (i64, i64)) -> Option<usize> {
        let hint = &mut self.hints[key.1 as usize % HINTS];
        if self.pages.get(*hint).is_none_or(|page| page.key != Some(key)) {
            *hint = *self.index.get(&key)?;
        }
        Some(*hint)
    }

    fn add(&mut self, key: (i64, i64), start: i64) -> usize {
        if self.index.len() >= self.most {
            self.sweep();
        }
        if self.index.len() >= self.most {
            let mut ages: Vec<i64> =
                self.pages.iter().filter(|page| page.key.is_some()).map(|page| page.newest).collect();
            let middle = ages.len() / 2;
            let middle = *ages.select_nth_unstable(middle).1;
            // As young as the middle one may be all of them.
            self.forget(middle.saturating_add(1));
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.pages.push(Page { key: None, newest: start, live: 0, values: Vec::new() });
            self.pages.len() - 1
        });
        self.pages[number].key = Some(key);
        self.pages[number].newest = start;
        self.index.insert(key, number);
        number
    }

    fn remove(&mut self, number: usize) {
        let page = &mut self.pages[number];
        if let Some(key) = page.key.take() {
            page.values.clear();
            page.live = 0;
            self.index.remove(&key);
            self.free.push(number);
        }
    }
}

impl<V> Page<V> {
    /// Where a number is, or where it belongs: the numbers are sorted and have few gaps, so it is near.
    #[inline]
    fn place(&self, number: u8) -> Result<usize, usize> {
        let mut at = self.values.len().min(usize::from(number) + 1);
        while at > 0 && self.values[at - 1].0 > number {
            at -= 1;
        }
        match at.checked_sub(1) {
            Some(found) if self.values[found].0 == number => Ok(found),
            _ => Err(at),
        }
    }
}

#[inline]
fn split(process_id: i64, correlation: i64) -> ((i64, i64), u8) {
    ((process_id, correlation.div_euclid(IDS)), correlation.rem_euclid(IDS) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_a_hash_map_would_hold() {
        let (mut pages, mut map) = (ByCall::new(1000), FxHashMap::default());
        let mut seed = 1u64;
        let mut random = move |most: i64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as i64 % most
        };
        for step in 0..100_000 {
            let (process, id) = (random(3), step / 8 + random(300) - 150);
            match random(3) {
                0 => {
                    pages.insert(process, id, step, step);
                    map.insert((process, id), step);
                }
                1 => assert_eq!(pages.take(process, id), map.remove(&(process, id))),
                _ => assert_eq!(pages.get(process, id), map.get(&(process, id))),
            }
        }
        assert!(!map.is_empty());
        map.iter().for_each(|((process, id), value)| assert_eq!(pages.get(*process, *id), Some(value)));
        assert!(pages.pages.len() < 800, "emptied pages are used again");
    }

    #[test]
    fn only_some_are_retained() {
        let mut pages = ByCall::new(1000);
        (-300..300).for_each(|id| pages.insert(id % 2, id, id, id));
        assert_eq!((pages.take(0, 8), pages.len()), (Some(8), 599));
        pages.retain(|process, id| process == 0 && id % 4 == 0);
        let left: Vec<i64> = (-300..300).filter(|id| pages.get(id % 2, *id).is_some()).collect();
        assert_eq!(left, (-300..300).filter(|id| id % 4 == 0 && *id != 8).collect::<Vec<i64>>());
        assert_eq!(pages.len(), left.len());
        left.iter().for_each(|id| assert_eq!(pages.take(0, *id), Some(*id)));
        assert!(pages.index.len() <= 1, "the page that became empty last may be used again");
    }

    #[test]
    fn old_calls_are_forgotten() {
        let mut pages = ByCall::new(10);
        (0..1000).for_each(|id| pages.insert(1, id, id, id));
        assert!(pages.index.len() <= 10);
        let known = |pages: &mut ByCall<i64>, ids: [i64; 2]| ids.map(|id| pages.get(1, id).is_some());
        assert_eq!(known(&mut pages, [999, 0]), [true, false], "the older half goes when it is full");
        pages.forget(980);
        assert_eq!(known(&mut pages, [979, 900]), [true, false], "what shares a page with young ones stays");
        // Ids that lie far apart, of calls that began at once.
        (0..1000).for_each(|id| pages.insert(2, id * 1_000_003, 5000, id));
        assert!(pages.index.len() <= 10 && pages.get(2, 999 * 1_000_003) == Some(&999));
    }
}
