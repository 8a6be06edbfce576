//! The socket between a collector and its heir: messages in one piece, a descriptor with each.

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::BYTES;

/// Both ends.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills the array.
    let made =
        unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Memory without a name.
pub(super) fn paper() -> io::Result<File> {
    // SAFETY: a name that ends in a zero byte; a descriptor that the call returns is ours.
    let fd = unsafe { libc::memfd_create(c"gputrace-told".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Room for the control message of one descriptor, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 24]);

/// Sends a message, if there is room for it.
pub(super) fn send(to: &OwnedFd, bytes: &[u8; BYTES], fd: Option<&OwnedFd>) -> io::Result<()> {
    transmit(to, bytes, fd, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
}

/// Sends a message without a descriptor, and waits for room.
pub(super) fn send_waiting(to: &OwnedFd, bytes: &[u8; BYTES]) -> io::Result<()> {
    transmit(to, bytes, None, libc::MSG_NOSIGNAL)
}

fn transmit(to: &OwnedFd, bytes: &[u8; BYTES], fd: Option<&OwnedFd>, flags: i32) -> io::Result<()> {
    let mut control = Control([0; 24]);
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: BYTES };
    // SAFETY: an all-zero msghdr is a valid value of this plain struct.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    if let Some(fd) = fd {
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the control buffer has room for one descriptor, which is what the macros lay out there.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(message).cast::<RawFd>().write_unaligned(fd.as_raw_fd());
        }
    }
    // SAFETY: the header points to buffers that live until the call returns.
    let sent = unsafe { libc::sendmsg(to.as_raw_fd(), &header, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The next message. None: the other end is gone.
pub(super) fn receive(from: &OwnedFd) -> Option<([u8; BYTES], Option<OwnedFd>)> {
    loop {
        let (mut bytes, mut control) = ([0u8; BYTES], Control([0; 24]));
        let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: BYTES };
        // SAFETY: an all-zero msghdr is a valid value of this plain struct.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_iov = &mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        // SAFETY: as above.
        let got = unsafe { libc::recvmsg(from.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
        if got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        if got <= 0 {
            return None;
        }
        // SAFETY: the kernel filled the control buffer and set its length; a descriptor in it is ours.
        let fd = unsafe {
            libc::CMSG_FIRSTHDR(&header)
                .as_ref()
                .filter(|head| head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS)
                .map(|head| OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned()))
        };
        return Some((bytes, fd));
    }
}
