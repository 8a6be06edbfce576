//! Connections that are open, in the order in which they were used last: where there are too many, the one that has been idle longest
//! is let go, so that whoever opens connections and says nothing keeps nobody out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All that are open.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<VecDeque<Arc<Connection>>>);

/// One of them.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Requests that are being answered.
    answering: Mutex<u32>,
    /// Told when it is to end.
    pub(super) leave: Notify,
}

impl Connections {
    /// A new one.
    pub(super) fn open(&self) -> Arc<Connection> {
        let connection = Arc::new(Connection::default());
        self.lock().push_back(connection.clone());
        connection
    }

    /// It has ended.
    pub(super) fn close(&self, connection: &Arc<Connection>) {
        self.lock().retain(|one| !Arc::ptr_eq(one, connection));
    }

    /// A request of it is being answered: it is the one that was used last.
    pub(super) fn begin(&self, connection: &Arc<Connection>) {
        let mut all = self.lock();
        if let Some(place) = all.iter().position(|one| Arc::ptr_eq(one, connection))
            && let Some(one) = all.remove(place)
        {
            all.push_back(one);
        }
        *connection.count() += 1;
    }

    /// It was answered.
    pub(super) fn end(&self, connection: &Connection) {
        let mut count = connection.count();
        *count = count.saturating_sub(1);
    }

    /// Tells the one that has been idle longest to end; false: all are being answered.
    pub(super) fn let_go(&self) -> bool {
        let mut all = self.lock();
        let Some(place) = all.iter().position(|one| *one.count() == 0) else { return false };
        // It is told once: the next time it is another's turn.
        all.remove(place).inspect(|one| one.leave.notify_one()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Connection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn count(&self) -> MutexGuard<'_, u32> {
        self.answering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_was_idle_longest_goes_first_and_none_that_is_being_answered() {
        let all = Connections::default();
        let [first, second, third] = [(); 3].map(|()| all.open());
        all.begin(&first);
        all.end(&first);
        all.begin(&second);
        let open = |all: &Connections, one: &Arc<Connection>| all.lock().iter().any(|other| Arc::ptr_eq(other, one));
        assert!(all.let_go() && !open(&all, &third), "first was used since, second is being answered");
        assert!(all.let_go() && !open(&all, &first));
        assert!(!all.let_go() && open(&all, &second));
        all.end(&second);
        all.close(&second);
        assert!(!all.let_go());
    }
}
