//! What is hot: kernels and lines of the last seconds, counted in a ring of seconds, and only while somebody looks.
//!
//! A second is one of the collector's, in which events were read: what the GPU did is told late, and counts when it is told.
//! Each second keeps so many kernels and lines; of further ones it is only known that there were some.

use rustc_hash::FxHashMap;

use crate::rollups::{Folded, Kind};
use gputrace_abi::Class;

/// Seconds that are told together.
pub(super) const SECONDS: usize = 10;
/// Somebody who has not asked for so long looks no more.
const WANTED_NS: i64 = 10_000_000_000;
/// Kernels, and lines, of a second.
const MOST_KEYS: usize = 1024;
const SECOND_NS: i64 = 1_000_000_000;

/// A kernel's sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) launches: u64,
    pub(super) launch_ns: i64,
    pub(super) timed: u64,
    pub(super) gpu_ns: i64,
}

/// A line's sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) calls: u64,
    /// Those that were drawn for so many, where that is how they were counted.
    pub(super) drawn: u64,
    pub(super) total_ns: i64,
    pub(super) bytes: i64,
}

/// By the kernel's name.
pub(super) type Kernels = FxHashMap<Option<i64>, Kernel>;
/// By stack and kind.
pub(super) type Sites = FxHashMap<(i64, Kind), Site>;

#[derive(Default)]
struct Second {
    /// Seconds since the epoch.
    number: i64,
    kernels: Kernels,
    sites: Sites,
    cut: bool,
}

/// The ring.
#[derive(Default)]
pub(super) struct Hot {
    /// Whether somebody looks: the only thing that is read where nobody does.
    pub(super) is_wanted: bool,
    asked_ns: i64,
    since_ns: i64,
    now: usize,
    seconds: [Second; SECONDS + 1],
}

/// The sums of the seconds.
pub(super) struct Told {
    pub(super) span_ns: i64,
    pub(super) kernels: Kernels,
    pub(super) sites: Sites,
    pub(super) cut: bool,
}

impl Hot {
    /// Somebody looks.
    pub(super) fn want(&mut self, now_ns: i64) {
        if !self.is_wanted {
            (self.is_wanted, self.since_ns) = (true, now_ns);
        }
        self.asked_ns = now_ns;
        self.tick(now_ns);
    }

    /// Time passes.
    pub(super) fn tick(&mut self, now_ns: i64) {
        if !self.is_wanted {
            return;
        }
        if now_ns - self.asked_ns > WANTED_NS {
            *self = Hot::default();
            return;
        }
        let number = now_ns.div_euclid(SECOND_NS);
        self.now = number.rem_euclid(self.seconds.len() as i64) as usize;
        let second = &mut self.seconds[self.now];
        if second.number != number {
            second.kernels.clear();
            second.sites.clear();
            (second.number, second.cut) = (number, false);
        }
    }

    /// Adds an event. Only called while somebody looks.
    pub(super) fn fold(&mut self, folded: &Folded) {
        let (key, ns) = (&folded.key, folded.took_ns.unwrap_or(0));
        match key.kind {
            Kind::KERNEL => self.kernel(key.name_id, Kernel { timed: 1, gpu_ns: ns, ..Kernel::default() }),
            // Without a name it is no kernel's launch, or one that was only counted.
            kind if kind == Kind::of(Class::Launch) && key.name_id.is_some() => {
                self.kernel(key.name_id, Kernel { launches: folded.events, launch_ns: ns, ..Kernel::default() });
            }
            _ => {}
        }
        if let Some(stack) = key.stack_id {
            self.site(stack, key.kind, Site { calls: folded.events, drawn: 0, total_ns: ns, bytes: folded.bytes });
        }
    }

    /// Adds what is known of a kernel.
    pub(super) fn kernel(&mut self, name: Option<i64>, more: Kernel) {
        let second = &mut self.seconds[self.now];
        if second.kernels.len() >= MOST_KEYS && !second.kernels.contains_key(&name) {
            second.cut = true;
            return;
        }
        add_kernel(second.kernels.entry(name).or_default(), &more);
    }

    /// Adds calls of a line.
    pub(super) fn site(&mut self, stack: i64, kind: Kind, more: Site) {
        let second = &mut self.seconds[self.now];
        if second.sites.len() >= MOST_KEYS && !second.sites.contains_key(&(stack, kind)) {
            second.cut = true;
            return;
        }
        add_site(second.sites.entry((stack, kind)).or_default(), &more);
    }

    /// The sums of the last seconds; none where nobody looked.
    pub(super) fn tell(&self, now_ns: i64) -> Option<Told> {
        if !self.is_wanted {
            return None;
        }
        let last = now_ns.div_euclid(SECOND_NS);
        let first = last - SECONDS as i64 + 1;
        let span_ns = now_ns - self.since_ns.max(first.saturating_mul(SECOND_NS));
        let mut told = Told { span_ns, kernels: Kernels::default(), sites: Sites::default(), cut: false };
        for second in self.seconds.iter().filter(|second| (first..=last).contains(&second.number)) {
            second.kernels.iter().for_each(|(name, kernel)| add_kernel(told.kernels.entry(*name).or_default(), kernel));
            second.sites.iter().for_each(|(key, site)| add_site(told.sites.entry(*key).or_default(), site));
            told.cut |= second.cut;
        }
        Some(told)
    }
}

fn add_kernel(to: &mut Kernel, more: &Kernel) {
    to.launches = to.launches.saturating_add(more.launches);
    to.launch_ns = to.launch_ns.saturating_add(more.launch_ns);
    to.timed += more.timed;
    to.gpu_ns = to.gpu_ns.saturating_add(more.gpu_ns);
}

fn add_site(to: &mut Site, more: &Site) {
    to.calls = to.calls.saturating_add(more.calls);
    to.drawn += more.drawn;
    to.total_ns = to.total_ns.saturating_add(more.total_ns);
    to.bytes = to.bytes.saturating_add(more.bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Kernel = Kernel { launches: 1, launch_ns: 3, timed: 0, gpu_ns: 0 };

    #[test]
    fn the_last_ten_seconds_are_told_and_what_is_older_is_not() {
        let mut hot = Hot::default();
        assert!(hot.tell(0).is_none(), "nobody asked");
        for second in 0..30 {
            hot.want(second * SECOND_NS);
            hot.kernel(Some(second % 2), ONE);
        }
        let told = hot.tell(29 * SECOND_NS + 500_000_000).unwrap();
        assert_eq!(told.span_ns, 9_500_000_000);
        let launches = |name: i64| told.kernels[&Some(name)].launches;
        assert_eq!((launches(0), launches(1), told.kernels.len(), told.cut), (5, 5, 2, false));
    }

    #[test]
    fn who_asks_no_more_is_forgotten() {
        let mut hot = Hot::default();
        hot.want(SECOND_NS);
        hot.kernel(None, ONE);
        hot.tick(SECOND_NS + WANTED_NS);
        assert!(hot.is_wanted);
        hot.tick(SECOND_NS + WANTED_NS + 1);
        assert!(!hot.is_wanted && hot.tell(SECOND_NS + WANTED_NS + 1).is_none());
        hot.want(20 * SECOND_NS);
        let told = hot.tell(21 * SECOND_NS).unwrap();
        assert_eq!((told.span_ns, told.kernels.len()), (SECOND_NS, 0));
    }

    #[test]
    fn kernels_and_lines_without_end_are_cut_and_that_is_said() {
        let mut hot = Hot::default();
        hot.want(0);
        for key in 0..2 * MOST_KEYS as i64 {
            hot.kernel(Some(key), ONE);
            hot.site(key, Kind::KERNEL, Site { calls: 1, total_ns: 1, ..Site::default() });
        }
        hot.kernel(Some(0), ONE);
        let told = hot.tell(1).unwrap();
        assert_eq!((told.kernels.len(), told.sites.len(), told.cut), (MOST_KEYS, MOST_KEYS, true));
        assert_eq!(told.kernels[&Some(0)].launches, 2);
    }
}
