//! Whose turn the machine is: a test that keeps every processor busy runs beside no other, whose times it would stretch.

use std::cell::Cell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

thread_local! {
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// A turn; over when it is dropped.
pub(crate) struct Turn {
    _guard: Guard,
}

#[expect(dead_code, reason = "held, never read")]
enum Guard {
    /// The thread has one: a second, while another test waits for the machine, would wait for ever.
    Had,
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Turn {
    /// Beside others.
    pub(crate) fn shared() -> Turn {
        // A test that failed has not harmed what is locked.
        Turn::new(|| Guard::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Beside none, for what loads the machine. The thread has no other.
    pub(crate) fn alone() -> Turn {
        assert!(!HELD.get(), "a test that shares the machine cannot have it alone");
        Turn::new(|| Guard::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn new(take: impl FnOnce() -> Guard) -> Turn {
        Turn { _guard: if HELD.replace(true) { Guard::Had } else { take() } }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !matches!(self._guard, Guard::Had) {
            HELD.set(false);
        }
    }
}
