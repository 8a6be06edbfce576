//! Segments over the session's socket.
//!
//! A process sends one message with its segment's descriptor and waits for no answer. Its pid is the kernel's word
//! (SO_PEERCRED), not its own, and a message from another user is refused: the socket stands in a folder that only
//! its owner may enter, but root, and folders that somebody opened up, exist.

use std::fs;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputrace_abi::hello::{EXE_BYTES, FILE, Hello, Refusal};

use super::Announced;
use super::Arrival;
use crate::segment::{Refused, Segment};
use crate::socket_path;

/// Processes that may stand in line to be accepted. A shell may start thousands while the collector sleeps.
const BACKLOG: i32 = 4096;
/// A connection that sends nothing is closed after this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// `getsockopt` option of Linux 6.5: a pidfd of the peer that cannot be a later process with the same pid.
const SO_PEERPIDFD: i32 = 77;

/// The session's socket, and who has come to it.
pub(super) struct Door {
    socket: OwnedFd,
    path: PathBuf,
    /// Accepted, but the message is not there yet.
    waiting: Vec<(OwnedFd, Instant)>,
}

impl Door {
    /// Listens on the session's socket.
    pub(super) fn open(session: &Path) -> io::Result<Door> {
        let path = socket_path(session);
        // SAFETY: an all-zero address is a valid value of this plain struct.
        let mut address: libc::sockaddr_un = unsafe { zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= address.sun_path.len() {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
            *place = *byte as libc::c_char;
        }
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: numbers only; a descriptor that the call returns is ours.
        let socket = unsafe { owned(libc::socket(libc::AF_UNIX, kind, 0))? };
        // A collector that died here left its socket; the session's lock says that none is alive.
        let _ = fs::remove_file(&path);
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: the kernel reads an address of the given size.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
        // SAFETY: numbers only.
        check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
        Ok(Door { socket, path, waiting: Vec::new() })
    }

    /// Goes on at the socket of an earlier collector.
    pub(super) fn keep(socket: OwnedFd, session: &Path) -> Door {
        Door { socket, path: socket_path(session), waiting: Vec::new() }
    }

    /// The descriptor that becomes readable when a process comes.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    /// Whether a connection is still without its message: it must be looked at again soon.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes whatever has come over the socket. True: somebody says that there is a file; who that is `announced` hears.
    pub(super) fn accept(&mut self, mut take: impl FnMut(Arrival), announced: &mut Vec<Announced>) -> bool {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        loop {
            let none = std::ptr::null_mut();
            // SAFETY: the kernel is asked for no address; a descriptor that it returns is ours.
            let accepted = unsafe { owned(libc::accept4(self.socket.as_raw_fd(), none, none.cast(), flags)) };
            let Ok(connection) = accepted else { break };
            self.waiting.push((connection, Instant::now()));
        }
        let mut file = false;
        self.waiting.retain(|(connection, since)| match receive(connection) {
            Message::NotYet => since.elapsed() < PATIENCE,
            Message::Nothing => false,
            Message::File(by) => {
                file = true;
                announced.extend(by);
                false
            }
            Message::Segment(arrival) => {
                take(arrival);
                false
            }
        });
        file
    }

    /// Gives connections whose message is on its way a moment to bring it.
    pub(super) fn wait(&self, deadline: Instant) {
        let mut poll: Vec<libc::pollfd> = Vec::new();
        for (connection, _) in &self.waiting {
            poll.push(libc::pollfd { fd: connection.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        }
        let wait = deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(5));
        // SAFETY: the kernel reads and writes the given number of entries.
        unsafe { libc::poll(poll.as_mut_ptr(), poll.len() as libc::nfds_t, wait.as_millis() as i32) };
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What a connection brought.
pub(super) enum Message {
    NotYet,
    Nothing,
    /// The segment is a file in the session's folder.
    File(Option<Announced>),
    Segment(Arrival),
}

/// Room for the control message of one descriptor, aligned as the kernel wants it; more are cut off and closed.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Takes the message of a connection, if it is there.
pub(super) fn receive(connection: &OwnedFd) -> Message {
    let mut bytes = [0u8; size_of::<Hello>() + EXE_BYTES];
    let mut control = Control([0; 64]);
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: an all-zero msghdr is a valid value of this plain struct.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the header points to buffers that live until the call returns.
    let got = unsafe { libc::recvmsg(connection.as_raw_fd(), &mut header, flags) };
    if got < 0 {
        let again = io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        return if again { Message::NotYet } else { Message::Nothing };
    }
    let fds = descriptors(&header);
    let bytes = bytes.get(..got as usize).unwrap_or(&[]);
    let Some(hello) = Hello::from_bytes(bytes) else { return Message::Nothing };
    let exe = bytes.get(size_of::<Hello>()..).filter(|exe| !exe.is_empty());
    let exe = exe.map(|exe| String::from_utf8_lossy(exe).into_owned());
    let Some(peer) = peer(connection) else { return Message::Nothing };
    // SAFETY: no arguments, cannot fail.
    if peer.uid != unsafe { libc::getuid() } && peer.uid != 0 {
        return Message::Nothing;
    }
    // A process of a pid namespace that is not below ours has no pid here; its own number must do.
    let pid = if peer.pid > 0 { peer.pid } else { hello.pid as i32 };
    let mut memory = None;
    // What version the segment is of stands in itself.
    let segment = match (fds.into_iter().next(), Refusal::from_number(hello.segment_bytes)) {
        (Some(fd), _) => {
            let segment = Segment::map(fd.as_fd());
            memory = Some(fd);
            segment
        }
        (None, Some(why)) => Err(Refused::Told(why)),
        (None, None) if hello.segment_bytes == FILE => {
            let pidfd = peer_pidfd(connection, peer.pid).filter(|_| peer.pid > 0);
            return Message::File(pidfd.map(|pidfd| Announced { claimed: hello.pid as i32, file: exe, pid, pidfd }));
        }
        (None, None) if hello.version > gputrace_abi::VERSION => Err(Refused::Version(hello.version)),
        (None, None) => return Message::Nothing,
    };
    let foreign = peer.pid <= 0;
    Message::Segment(Arrival {
        pid,
        foreign,
        pidfd: peer_pidfd(connection, peer.pid),
        segment,
        exe,
        file: None,
        memory,
        gone: false,
    })
}

/// The descriptors of a control message. All are taken, so that all are closed.
fn descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the control buffer and set its length; the macros stay inside it.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(head) = message.as_ref() {
            if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                let bytes = head.cmsg_len.saturating_sub(data as usize - message as usize);
                for n in 0..bytes / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(n).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    fds
}

fn peer(connection: &OwnedFd) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut peer).cast();
    // SAFETY: the kernel fills at most `length` bytes of the struct.
    let got =
        unsafe { libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut length) };
    (got == 0).then_some(peer)
}

/// A pidfd of the sender; none when it has ended.
fn peer_pidfd(connection: &OwnedFd, pid: i32) -> Option<OwnedFd> {
    let mut fd: RawFd = -1;
    let mut length = size_of::<RawFd>() as libc::socklen_t;
    let place = (&raw mut fd).cast();
    // SAFETY: the kernel fills the integer.
    let got = unsafe { libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, place, &mut length) };
    if got == 0 && fd >= 0 {
        // SAFETY: the kernel made the descriptor for us.
        return Some(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    // The process was alive when it connected, a moment ago: the pid has not been given to another one since.
    open_pidfd(pid)
}

/// A descriptor that becomes readable when the process has ended; none when it already has.
pub(crate) fn open_pidfd(pid: i32) -> Option<OwnedFd> {
    // SAFETY: numbers only; a descriptor that the call returns is ours, and closes on exec by itself.
    unsafe { owned(libc::syscall(libc::SYS_pidfd_open, pid, 0) as RawFd).ok() }
}

/// # Safety
/// A descriptor that is not negative belongs to nobody else.
unsafe fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: as the caller says.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
