//! How long operations have work of another kind beside them, as the order of their begin brings both.

/// Operations that may still be running, by what they are counted as.
#[derive(Debug)]
pub(super) struct Beside<K>(Vec<Running<K>>);

#[derive(Debug)]
struct Running<K> {
    of: K,
    end: i64,
    beside_ns: i64,
}

impl<K> Default for Beside<K> {
    fn default() -> Beside<K> {
        Beside(Vec::new())
    }
}

impl<K: Copy> Beside<K> {
    /// An operation begins; the other work that began before it ends at `until`.
    pub(super) fn begin(&mut self, of: K, (start, end): (i64, i64), until: i64) {
        self.0.push(Running { of, end, beside_ns: (until.min(end) - start).max(0) });
    }

    /// Other work covers a piece of time that none of it had covered.
    pub(super) fn covered(&mut self, (start, end): (i64, i64)) {
        self.0.iter_mut().for_each(|running| running.beside_ns += (running.end.min(end) - start).max(0));
    }

    /// Hands out, and forgets, what is over by this time, with the time that it had other work beside it.
    #[inline]
    pub(super) fn over(&mut self, by: i64, mut each: impl FnMut(K, i64)) {
        self.0.retain(|running| {
            let runs = running.end > by;
            if !runs {
                each(running.of, running.beside_ns);
            }
            runs
        });
    }
}
