//! Records on their way to the client: what is pending, the client's buffer, and the thread that fills it.
//!
//! A buffer is asked for in a call that will need one, or else when the first record is there, and is filled and completed
//! when the next record does not fit, or at a flush. It belongs to the callbacks that gave it: when they are replaced it is never given back.

use crate::beside;
use crate::clock::now;
use crate::config::config;
use crate::record::Record;
use crate::truth;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Condvar, Mutex, MutexGuard, Once};

/// cuptiActivityRegisterCallbacks' functions.
pub(crate) type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(crate) type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

struct Pending {
    callbacks: Option<(Request, Complete)>,
    /// Counts the registrations.
    registration: u64,
    records: VecDeque<Record>,
    bytes: usize,
    /// Of the client's open buffer: its size and how many records it may take; (0, 0) when there is none.
    room: (usize, usize),
    dropped: usize,
}

/// A client's empty buffer.
struct Buffer {
    registration: u64,
    at: *mut u8,
    size: usize,
    most: usize,
}

// SAFETY: the client has given the memory to this library, which uses it under a lock.
unsafe impl Send for Buffer {}

static PENDING: Mutex<Pending> = Mutex::new(Pending {
    callbacks: None,
    registration: 0,
    records: VecDeque::new(),
    bytes: 0,
    room: (0, 0),
    dropped: 0,
});
/// There is something to do for the thread.
static URGENT: Condvar = Condvar::new();
/// Held by whoever calls the client's callbacks.
static OPEN: Mutex<Option<Buffer>> = Mutex::new(None);

/// Without anybody who takes them, records end here.
const MOST_PENDING: usize = 1 << 20;
/// A buffer that could not take any record counts as none.
const SMALLEST_BUFFER: usize = 256;

impl Pending {
    /// The next record needs a buffer, or does not fit into the open one.
    fn urgent(&self) -> bool {
        let (size, most) = self.room;
        self.callbacks.is_some()
            && !self.records.is_empty()
            && (size == 0 || self.bytes > size || (most > 0 && self.records.len() > most))
    }

    fn drop_all(&mut self) {
        self.dropped += self.records.len();
        truth::dropped(self.records.len());
        self.forget();
    }

    fn forget(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }

    /// How many of the next records fit into a buffer.
    fn fitting(&self, buffer: &Buffer) -> usize {
        let most = if buffer.most == 0 { usize::MAX } else { buffer.most };
        let ends = self.records.iter().scan(0, |end, record| {
            *end += record.bytes.len();
            Some(*end)
        });
        ends.take_while(|end| *end <= buffer.size).count().min(most)
    }
}

fn pending() -> MutexGuard<'static, Pending> {
    PENDING.lock().unwrap_or_else(|e| e.into_inner())
}

/// Makes these the callbacks of all records that are not delivered yet.
pub(crate) fn register(callbacks: Option<(Request, Complete)>) {
    let mut p = pending();
    p.callbacks = callbacks;
    p.registration += 1;
    p.room = (0, 0);
    if p.urgent() {
        URGENT.notify_one();
    }
}

pub(crate) fn registered() -> bool {
    pending().callbacks.is_some()
}

/// Records that nobody has taken are gone.
pub(crate) fn forget() {
    pending().forget();
}

/// How many records were dropped since the last time that somebody asked.
pub(crate) fn take_dropped() -> usize {
    std::mem::take(&mut pending().dropped)
}

pub(crate) fn drop_one() {
    pending().dropped += 1;
    truth::dropped(1);
}

/// A record is ready. Calls nothing of the client's: the caller holds the driver's lock.
pub(crate) fn add(record: Record) {
    let mut p = pending();
    p.bytes += record.bytes.len();
    p.records.push_back(record);
    if p.records.len() > MOST_PENDING {
        p.drop_all();
    }
    if p.urgent() {
        URGENT.notify_one();
    }
}

/// Asks for a buffer if there is none. Runs in a call of the program's, which it does not hold up: whoever is at work on
/// buffers will see to it.
pub(crate) fn prepare() {
    let Ok(mut open) = OPEN.try_lock() else { return };
    let p = pending();
    if p.room.0 == 0
        && let Some((request, _)) = p.callbacks
    {
        let registration = p.registration;
        drop(p);
        *open = ask(request, registration);
    }
}

/// A buffer of the callbacks with this registration. Without one all records are dropped.
fn ask(request: Request, registration: u64) -> Option<Buffer> {
    let (mut at, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
    let start_ns = now();
    unsafe { request(&mut at, &mut size, &mut most) };
    beside::overhead(beside::REQUEST, start_ns);
    if config().buffer_records > 0 {
        most = if most == 0 { config().buffer_records } else { most.min(config().buffer_records) };
    }
    let mut p = pending();
    if at.is_null() || size < SMALLEST_BUFFER {
        p.drop_all();
        return None;
    }
    if p.registration == registration {
        p.room = (size, most);
    }
    Some(Buffer { registration, at, size, most })
}

/// Fills and completes buffers while there are records for a full one, or, if `all`, any that were there when this began: a
/// flush of CUPTI's own ends too, however much comes meanwhile.
pub(crate) fn deliver(all: bool) {
    let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    let mut left = if all { pending().records.len() } else { usize::MAX };
    loop {
        let mut p = pending();
        let Some((request, complete)) = p.callbacks.filter(|_| !p.records.is_empty() && left > 0) else { return };
        let Some(buffer) = open.take().filter(|buffer| buffer.registration == p.registration) else {
            let registration = p.registration;
            drop(p);
            *open = ask(request, registration);
            continue;
        };
        let fitting = p.fitting(&buffer);
        if fitting == p.records.len() && !all {
            *open = Some(buffer);
            return;
        }
        left = left.saturating_sub(fitting);
        let mut records: Vec<Record> = p.records.drain(..fitting).collect();
        p.bytes -= records.iter().map(|record| record.bytes.len()).sum::<usize>();
        p.room = (0, 0);
        drop(p);
        std::thread::sleep(std::time::Duration::from_millis(config().buffer_ms));
        if config().shuffle {
            records.sort_by_key(|record| std::cmp::Reverse(record.stream));
        }
        truth::delivered(records.iter().map(|record| record.bytes.as_slice()));
        let bytes: Vec<u8> = records.into_iter().flat_map(|record| record.bytes).collect();
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.at, bytes.len());
            complete(std::ptr::null_mut(), 0, buffer.at, buffer.size, bytes.len());
        }
    }
}

/// Starts the thread that completes full buffers; it takes none of the process's signals.
pub(crate) fn start_thread() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let thread = std::thread::Builder::new().name("cupti-worker".to_owned()).stack_size(256 << 10).spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        if let Err(error) = thread {
            eprintln!("fake-cupti: no thread: {error}");
        }
    });
}

fn run() {
    loop {
        drop(URGENT.wait_while(pending(), |p| !p.urgent()).unwrap_or_else(|e| e.into_inner()));
        deliver(false);
    }
}
