//! Small numbers for communicators: a handle means nothing outside its process, and its address is used again.
//!
//! A table by handle holds what is known of each living one. It goes to the collector once: the hash of the unique id
//! is the same on every rank, so that the ranks' traces can be put together.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_abi::Event;
use gputrace_abi::collective::{pack_party, unpack_party};
use gputrace_abi::event;
use gputrace_abi::layout::note;

use super::operation::{Comm, Effect, Operation};
use crate::interpose::copies::NO_COPY;
use crate::session;
use crate::thread::State;

/// What is known of a communicator.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// Hash of its unique id; 0: not known.
    pub(super) id: u64,
    /// -1: not known.
    pub(super) rank: i32,
    /// -1: not known.
    pub(super) ranks: i32,
    pub(super) number: u32,
    /// Number of the communicator that it was derived from; 0: none.
    pub(super) parent: u32,
    /// Copy of NCCL.
    pub(super) copy: u8,
    /// Hook that made it.
    pub(super) maker: u16,
    /// [`gputrace_abi::collective::NO_DEVICE`]: not known.
    pub(super) device: u16,
    /// Ticks when the call that made it began.
    pub(super) since: u64,
}

/// The same, for all threads.
pub(super) struct Shared([AtomicU64; 5]);

impl Shared {
    pub(super) const fn new() -> Shared {
        Shared([const { AtomicU64::new(0) }; 5])
    }

    pub(super) fn store(&self, facts: &Facts) {
        let origin = u64::from(facts.copy) | u64::from(facts.maker) << 16 | u64::from(facts.device) << 32;
        let ranks = pack_party(facts.rank as u32, facts.ranks);
        let words = [facts.id, ranks, pack_party(facts.number, facts.parent as i32), origin, facts.since];
        self.0.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }

    pub(super) fn load(&self) -> Facts {
        let [id, ranks, numbers, origin, since] = [0, 1, 2, 3, 4].map(|n| self.word(n));
        let ((rank, ranks), (number, parent)) = (unpack_party(ranks), unpack_party(numbers));
        Facts {
            id,
            rank: rank as i32,
            ranks,
            number,
            parent: parent as u32,
            copy: origin as u8,
            maker: (origin >> 16) as u16,
            device: (origin >> 32) as u16,
            since,
        }
    }

    #[inline(always)]
    fn word(&self, n: usize) -> u64 {
        self.0.get(n).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

/// A place in the table.
#[repr(align(64))]
struct Entry {
    handle: AtomicU64,
    facts: Shared,
    /// Communicators that were derived from this one.
    derived: AtomicU64,
    /// Not 0: the collector was told.
    told: AtomicU64,
}

/// No communicator has these addresses.
const FREE: u64 = 0;
const GONE: u64 = 1;
const FILLING: u64 = 2;

static ALL: [Entry; 1024] = [const {
    Entry { handle: AtomicU64::new(FREE), facts: Shared::new(), derived: AtomicU64::new(0), told: AtomicU64::new(0) }
}; 1024];
/// Places that a handle may have.
const PROBES: usize = 16;
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The number of a new communicator.
pub(super) fn new_number() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The communicator of a call.
#[derive(Clone, Copy)]
pub(super) struct Known(Option<&'static Entry>);

impl Known {
    pub(super) const NONE: Known = Known(None);

    /// 0: not known.
    #[inline(always)]
    pub(super) fn number(self) -> u32 {
        self.0.map_or(0, |entry| unpack_party(entry.facts.word(2)).0)
    }

    /// The copy of NCCL that it belongs to.
    #[inline(always)]
    pub(super) fn copy(self) -> Option<u8> {
        self.0.map(|entry| entry.facts.word(3) as u8).filter(|copy| *copy != NO_COPY)
    }

    /// Hash of its unique id, and how many communicators were derived from it before.
    pub(super) fn derive(self) -> (u64, u64) {
        self.0.map_or((0, 0), |entry| (entry.facts.word(0), entry.derived.fetch_add(1, Ordering::Relaxed)))
    }

    /// Forgets the communicator, if the call is its end.
    #[inline(always)]
    pub(super) fn ends(self, operation: &Operation) {
        if operation.effect == Effect::Ends
            && let Some(entry) = self.0
        {
            entry.handle.store(GONE, Ordering::Release);
        }
    }

    /// Tells the collector of it, if there was no room when it was made.
    #[inline(always)]
    pub(super) fn tell(self, state: &State) {
        if let Some(entry) = self.0
            && entry.told.load(Ordering::Relaxed) == 0
        {
            tell(state, entry);
        }
    }
}

fn places(handle: u64) -> impl Iterator<Item = &'static Entry> {
    let first = (handle >> 6 ^ handle >> 16) as usize;
    (0..PROBES).filter_map(move |probe| ALL.get(first.wrapping_add(probe) & (ALL.len() - 1)))
}

/// The living communicator with this handle.
#[inline]
pub(super) fn find(comm: Comm) -> Known {
    let handle = comm as usize as u64;
    for entry in places(handle) {
        match entry.handle.load(Ordering::Acquire) {
            FREE => return Known::NONE,
            known if known == handle => return Known(Some(entry)),
            _ => {}
        }
    }
    Known::NONE
}

/// Enters a new communicator and tells the collector.
pub(super) fn enter(state: &State, handle: u64, facts: &Facts) {
    // One that was left without being destroyed may have stood at the same address.
    let entry = find(handle as usize as Comm).0.or_else(|| {
        places(handle).find(|entry| {
            let now = entry.handle.load(Ordering::Relaxed);
            matches!(now, FREE | GONE)
                && entry.handle.compare_exchange(now, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    });
    let Some(entry) = entry else {
        state.header().notes.fetch_or(note::COMMUNICATORS_FULL, Ordering::Relaxed);
        return;
    };
    entry.facts.store(facts);
    entry.derived.store(0, Ordering::Relaxed);
    entry.told.store(0, Ordering::Relaxed);
    entry.handle.store(handle, Ordering::Release);
    tell(state, entry);
}

#[cold]
#[inline(never)]
fn tell(state: &State, entry: &Entry) {
    let facts = entry.facts.load();
    let handle = entry.handle.load(Ordering::Relaxed);
    let event = Event {
        hook: event::KIND_COMMUNICATOR,
        start: facts.since,
        end: session::now(),
        flags: facts.maker,
        result: u16::from(facts.copy),
        payload: [
            facts.id,
            pack_party(facts.rank as u32, facts.ranks),
            pack_party(facts.number, facts.parent as i32),
            handle & 0xffff_ffff_ffff | u64::from(facts.device) << 48,
        ],
        ..Event::default()
    };
    entry.told.store(u64::from(state.write_apart(event)), Ordering::Relaxed);
}
