//! Words in which the loader puts where a library's functions of other libraries are: leading one elsewhere leads the calls of one library.
//!
//! For functions that cannot be ours by name, for a symbol of ours would be found where there was none. A word is exchanged as a whole, and only
//! where it says what it was expected to. Most of them the loader made read-only when it had filled them (RELRO); one that it is still to
//! protect is left alone: another thread is opening the library at this moment, and would write into a page that we had protected again.
//! Walks of the libraries exclude each other by a lock of the loader's, and signals are held back: nobody of ours protects a page either.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use gputrace_abi::layout::note;

use super::elf::{self, Library};
use crate::{session, sys};

/// A slot of a library, and what the library says of it.
pub(crate) struct Slot<'a> {
    /// The function that it is for.
    pub(crate) name: &'a CStr,
    /// Where it leads.
    pub(crate) to: usize,
    library: &'a Library,
    info: &'a libc::dl_phdr_info,
}

impl Slot<'_> {
    /// Whether its library lies between these addresses.
    pub(crate) fn is_of_library(&self, from: usize, to: usize) -> bool {
        (from..to).contains(&self.library.base)
    }

    /// Whether calls by it come to this function, which everybody finds first who searches the global scope.
    pub(crate) fn leads_to(&self, function: usize) -> bool {
        self.to == function || self.is_lazy() && self.searches_globally()
    }

    /// Whether calls by it come to a function of ours.
    pub(crate) fn leads_to_us(&self) -> bool {
        elf::is_ours(self.to) || self.is_lazy() && self.searches_globally() && elf::exports(self.name)
    }

    /// The function of this name that the library has itself; 0 when it has none.
    pub(crate) fn own(&self) -> usize {
        // SAFETY: the library is loaded while the loader visits it.
        unsafe { self.library.find(self.name, false) }
    }

    /// Whether it leads not yet to the function, but to where the loader looks that up at the first call: into its own library, where
    /// a definition of that one's own lies, too.
    fn is_lazy(&self) -> bool {
        elf::holds(self.info, self.to) && self.own() != self.to
    }

    /// Whether the loader will look in the global scope first.
    fn searches_globally(&self) -> bool {
        // SAFETY: as above.
        let own_first = unsafe { self.library.is_symbolic() } && self.own() != 0;
        // Which libraries were opened RTLD_DEEPBIND is not known.
        let deep =
            session::present().is_none_or(|view| view.header().notes.load(Ordering::Relaxed) & note::DEEPBIND != 0);
        !own_first && !deep
    }
}

/// What became of the slots that were wanted elsewhere.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Some stayed as they are: their pages cannot be written to.
    pub(crate) failed: bool,
    /// Some are to be looked at again: their library is being opened.
    pub(crate) unfinished: bool,
}

/// Asks of each slot of each loaded library but ours where it is wanted; none: where it is.
pub(crate) fn lead(mut wanted: impl FnMut(&Slot<'_>) -> Option<usize>) -> Outcome {
    let mut outcome = Outcome::default();
    sys::without_signals(|| {
        elf::find_library(|library, info| {
            let look = |name: &CStr, word: &AtomicUsize| {
                let to = word.load(Ordering::Relaxed);
                if let Some(wanted) = wanted(&Slot { name, to, library, info }) {
                    exchange(info, word, to, wanted, &mut outcome);
                }
            };
            // SAFETY: the library is loaded while the loader visits it.
            unsafe { library.each_slot(look) };
            false
        });
    });
    outcome
}

fn exchange(info: &libc::dl_phdr_info, word: &AtomicUsize, from: usize, to: usize, outcome: &mut Outcome) {
    let write = || {
        // The loader may have looked it up meanwhile, and then it is as it was before we came.
        let _ = word.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    };
    match (elf::is_read_only_later(info, word.as_ptr() as usize), sys::is_writable(word)) {
        (false, true) => write(),
        (true, true) => outcome.unfinished = true,
        // SAFETY: the loader is done with the page, and it is read-only again at once: whoever calls through it meanwhile reads.
        (true, false) if unsafe { sys::protect(word.as_ptr() as usize, libc::PROT_READ | libc::PROT_WRITE) } => {
            write();
            // SAFETY: as it was before.
            unsafe { sys::protect(word.as_ptr() as usize, libc::PROT_READ) };
        }
        _ => outcome.failed = true,
    }
}
