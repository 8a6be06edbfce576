//! A gate in our own stream: what is given behind it stands in the queue until it opens.
//!
//! So the GPU finds all of it there, and what passes between two events does not depend on how fast the host gave them. Nothing
//! but our own stream waits, for as long as a hundred calls take, and for a word of host memory: to open it takes no call that
//! the driver could refuse or hold up.

use core::sync::atomic::{AtomicU32, Ordering};

use super::driver;
use super::pool::Pool;

/// Closed as long as this lives.
pub(super) struct Gate(&'static AtomicU32);

impl Gate {
    /// Closes it. None: this driver or device has no such waits.
    pub(super) fn close(pool: &Pool, stream: u64) -> Option<Gate> {
        let (mut at, mut there) = (pool.gate.load(Ordering::Relaxed), 0);
        if at == 0 {
            if driver::host_allocate(&mut at, size_of::<u32>(), driver::REACHED_BY_DEVICE) != driver::SUCCESS {
                return None;
            }
            pool.gate.store(at, Ordering::Relaxed);
        }
        // SAFETY: the driver gave this word, aligned, and it is given back when nobody uses the pool any more.
        let gate = Gate(unsafe { &*(at as *const AtomicU32) });
        gate.0.store(0, Ordering::Release);
        let closed = driver::device_pointer(&mut there, at, 0) == driver::SUCCESS
            && driver::wait_value(stream, there, 1, driver::AT_LEAST) == driver::SUCCESS;
        closed.then_some(gate)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SYNC POINT: gate. Release: the device reads it.
        self.0.store(1, Ordering::Release);
    }
}
