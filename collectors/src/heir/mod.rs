//! Who goes on when a collector is killed: a process that holds what would die with it, and does nothing else until then.
//!
//! A segment is memory without a name, mapped by its process and by the collector. So the collector gives each segment's
//! descriptor to its heir as well, with what only it knows: the process's id in the trace, a descriptor of the process, and a
//! `Told` with what went through the rings once and is not said again. The heir sleeps on a socket. When that ends without
//! a word of farewell it makes the trace whole ([`crate::recover`]) and becomes the collector of the processes that it holds.
//!
//! The collector never waits for its heir: what the socket has no room for is sent later, and without an heir all goes on as before.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
pub mod path;
pub mod standing;
pub(crate) mod told;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(target_os = "macos")]
use macos as platform;

/// A pair of ends: the collector's and the heir's.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    platform::pair()
}

/// Memory without a name, for what an heir must know from its start.
pub fn paper() -> io::Result<File> {
    platform::paper()
}

/// Whether nobody is at the other end any more.
pub fn is_gone(heir: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: heir.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: the kernel reads and writes one entry.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLHUP != 0 }
}

/// A process that the heir holds.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) pid: i32,
    pub(crate) foreign: bool,
    pub(crate) segment: OwnedFd,
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) told: Option<OwnedFd>,
    /// The segment's file, where it has one.
    pub(crate) file: Option<PathBuf>,
    /// It is known to have ended.
    pub(crate) gone: bool,
}

/// An heir that was just started has read what it is given by then.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a collector leaves to its heir.
#[derive(Debug, Default)]
pub struct Inheritance {
    pub(crate) processes: BTreeMap<i64, Kept>,
    pub(crate) root: Option<u32>,
    pub(crate) door: Option<OwnedFd>,
}

impl Inheritance {
    /// Gives it to an heir of one's own, who may need it before this collector has begun.
    pub fn hand_on(&self, heir: &Arc<OwnedFd>) {
        let mut will = Will::new(Some(heir.clone()));
        let copy = |fd: &OwnedFd| fd.try_clone().ok();
        self.door.iter().filter_map(copy).for_each(|door| will.door(door));
        self.root.into_iter().for_each(|root| will.root(root));
        for (id, kept) in &self.processes {
            let Some(segment) = copy(&kept.segment) else { continue };
            will.process(*id, kept.pid, kept.foreign, segment, kept.pidfd.as_ref());
            kept.told.iter().filter_map(copy).for_each(|told| will.told(*id, told));
        }
        // It reads them: it has nothing else to do. One that does not is worth no wait.
        let until = Instant::now() + PATIENCE;
        while !will.unsent.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            will.flush();
        }
    }
}

/// What a message is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A process and its segment.
    Process = 1,
    /// The descriptor of the process came with it; else it follows in a message of this kind, or there is none.
    Pidfd = 2,
    /// What the process told once.
    Told = 3,
    /// The process has ended, and its rings were read.
    Ended = 4,
    /// The pid of the command.
    Root = 5,
    /// The collector has ended by itself.
    Farewell = 6,
    /// The socket to which processes come: who has come and was not seen yet is seen by the heir.
    Door = 7,
}

impl Kind {
    fn from_u8(n: u8) -> Option<Kind> {
        [Kind::Process, Kind::Pidfd, Kind::Told, Kind::Ended, Kind::Root, Kind::Farewell, Kind::Door]
            .into_iter()
            .find(|kind| *kind as u8 == n)
    }
}

const BYTES: usize = 16;

/// One message: kind, whether the pid is foreign, the pid, the process's id.
struct Message {
    bytes: [u8; BYTES],
    fd: Option<OwnedFd>,
}

impl Message {
    fn new(kind: Kind, id: i64, pid: i32, foreign: bool, fd: Option<OwnedFd>) -> Message {
        let mut bytes = [0; BYTES];
        (bytes[0], bytes[1]) = (kind as u8, u8::from(foreign));
        bytes[4..8].copy_from_slice(&pid.to_le_bytes());
        bytes[8..].copy_from_slice(&id.to_le_bytes());
        Message { bytes, fd }
    }
}

/// The collector's side.
#[derive(Default)]
pub(crate) struct Will {
    heir: Option<Arc<OwnedFd>>,
    /// There is one, or was and may be again.
    wanted: bool,
    unsent: VecDeque<Message>,
}

impl Will {
    pub(crate) fn new(heir: Option<Arc<OwnedFd>>) -> Will {
        Will { wanted: heir.is_some(), heir, unsent: VecDeque::new() }
    }

    /// Whether there is an heir, or may be again.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// A process has come.
    pub(crate) fn process(&mut self, id: i64, pid: i32, foreign: bool, segment: OwnedFd, pidfd: Option<&OwnedFd>) {
        self.send(Message::new(Kind::Process, id, pid, foreign, Some(segment)));
        if let Some(pidfd) = pidfd.and_then(|fd| fd.as_fd().try_clone_to_owned().ok()) {
            self.send(Message::new(Kind::Pidfd, id, pid, foreign, Some(pidfd)));
        }
    }

    /// Where it is kept what the process tells once.
    pub(crate) fn told(&mut self, id: i64, told: OwnedFd) {
        self.send(Message::new(Kind::Told, id, 0, false, Some(told)));
    }

    /// A process has ended.
    pub(crate) fn ended(&mut self, id: i64) {
        self.send(Message::new(Kind::Ended, id, 0, false, None));
    }

    /// Where processes come to.
    pub(crate) fn door(&mut self, door: OwnedFd) {
        self.send(Message::new(Kind::Door, 0, 0, false, Some(door)));
    }

    /// The command's pid.
    pub(crate) fn root(&mut self, pid: u32) {
        self.send(Message::new(Kind::Root, 0, pid as i32, false, None));
    }

    fn send(&mut self, message: Message) {
        if self.heir.is_some() {
            self.unsent.push_back(message);
            self.flush();
        }
    }

    /// Sends what there was no room for.
    pub(crate) fn flush(&mut self) {
        let Some(heir) = &self.heir else { return };
        while let Some(message) = self.unsent.front() {
            match platform::send(heir, &message.bytes, message.fd.as_ref()) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The heir is dead. Another one is told all of it.
                Err(_) => {
                    self.heir = None;
                    self.unsent.clear();
                    return;
                }
            }
        }
    }
}

/// Says to the heir that all is well: it ends.
pub fn farewell(heir: &OwnedFd) {
    let Message { bytes, .. } = Message::new(Kind::Farewell, 0, 0, false, None);
    let _ = platform::send_waiting(heir, &bytes);
}

/// The heir's life, as long as the collector lives. None: it ended by itself, and there is nothing to do.
pub fn wait(collector: &OwnedFd) -> Option<Inheritance> {
    let mut all = Inheritance::default();
    loop {
        let Some((bytes, fd)) = platform::receive(collector) else { return Some(all) };
        let pid = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let id = i64::from_le_bytes([8, 9, 10, 11, 12, 13, 14, 15].map(|at| bytes[at]));
        match (Kind::from_u8(bytes[0]), fd) {
            (Some(Kind::Farewell), _) => return None,
            (Some(Kind::Process), Some(segment)) => {
                let kept =
                    Kept { pid, foreign: bytes[1] != 0, segment, pidfd: None, told: None, file: None, gone: false };
                all.processes.insert(id, kept);
            }
            (Some(Kind::Pidfd), fd) => {
                if let Some(kept) = all.processes.get_mut(&id) {
                    kept.pidfd = fd;
                }
            }
            (Some(Kind::Told), fd) => {
                if let Some(kept) = all.processes.get_mut(&id) {
                    kept.told = fd;
                }
            }
            (Some(Kind::Ended), _) => drop(all.processes.remove(&id)),
            (Some(Kind::Root), _) => all.root = Some(pid as u32),
            (Some(Kind::Door), fd) => all.door = fd,
            (Some(Kind::Process) | None, _) => {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn file() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn what_a_collector_leaves_is_what_it_had_when_it_died() {
        let (collector, heir) = pair().unwrap();
        let mut will = Will::new(Some(Arc::new(collector)));
        will.root(77);
        for id in 0..3 {
            will.process(id, 100 + id as i32, id == 2, file(), Some(&file()));
        }
        will.told(2, file());
        will.ended(1);
        drop(will);
        let left = wait(&heir).expect("it did not say farewell");
        assert_eq!((left.root, left.processes.keys().copied().collect::<Vec<_>>()), (Some(77), vec![0, 2]));
        let kept = &left.processes[&2];
        assert!(kept.pid == 102 && kept.foreign && kept.pidfd.is_some() && kept.told.is_some(), "{kept:?}");
    }

    #[test]
    fn a_collector_that_ends_by_itself_leaves_nothing_and_waits_for_nobody() {
        let (collector, heir) = pair().unwrap();
        let collector = Arc::new(collector);
        let mut will = Will::new(Some(collector.clone()));
        // Nobody reads meanwhile: what finds no room waits here.
        (0..5_000).for_each(|id| will.ended(id));
        assert!(!will.unsent.is_empty());
        let reader = std::thread::spawn(move || wait(&heir).is_none());
        while !will.unsent.is_empty() {
            will.flush();
        }
        farewell(&collector);
        assert!(reader.join().unwrap());
        will.root(1);
        assert!(will.heir.is_none() && will.is_wanted(), "and nobody is there any more");
    }
}
