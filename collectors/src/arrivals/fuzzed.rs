//! What a process says at the session's socket, of any bytes, with a descriptor of any kind or with several.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::linux::{Message, receive};

/// More than one message has room for, so that some are cut off.
const MOST_DESCRIPTORS: usize = 20;

pub(crate) fn hello(data: &[u8]) {
    let (&[how, count], bytes) = data.split_first_chunk().unwrap_or((&[0, 0], &[]));
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel fills the array with two descriptors of ours.
    let [ours, theirs] = unsafe {
        assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()), 0);
        ends.map(|fd| OwnedFd::from_raw_fd(fd))
    };
    let descriptors: Vec<OwnedFd> = (0..usize::from(count) % MOST_DESCRIPTORS).map(|n| given(how, n)).collect();
    send(&theirs, bytes, &descriptors.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>());
    if let Message::Segment(arrival) = receive(&ours) {
        let known = arrival.segment.as_ref().map(|segment| (segment.view().chunk_count(), segment.texts().len()));
        assert!(known.is_ok() || arrival.segment.is_err_and(|why| !why.to_string().is_empty()));
        assert!(arrival.exe.is_none_or(|exe| exe.len() <= 3 * 512));
    }
}

/// A descriptor that somebody may give: of memory that is too small, or no segment, or of no memory at all.
fn given(how: u8, n: usize) -> OwnedFd {
    let memory = |bytes: i64| {
        // SAFETY: the name is a C string, the rest are numbers; the descriptor is ours.
        unsafe {
            let fd = libc::memfd_create(c"fuzzed".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            assert!(fd >= 0 && libc::ftruncate(fd, bytes) == 0);
            OwnedFd::from_raw_fd(fd)
        }
    };
    let named = |path: &str| File::open(path).expect("every Linux has it").into();
    match (usize::from(how) + n) % 6 {
        0 => memory(0),
        1 => memory(4096),
        2 => memory(8 << 20),
        3 => memory(1 << 40),
        4 => named("/dev/null"),
        _ => named("/"),
    }
}

fn send(to: &OwnedFd, bytes: &[u8], descriptors: &[RawFd]) {
    let mut control = [0u64; 2 + MOST_DESCRIPTORS];
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: plain structs filled in and passed by address; the control message fits into its room.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&mut vector, 1);
        if !descriptors.is_empty() {
            let size = size_of_val(descriptors) as u32;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size) as _;
            let message = libc::CMSG_FIRSTHDR(&header);
            ((*message).cmsg_level, (*message).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            (*message).cmsg_len = libc::CMSG_LEN(size) as _;
            descriptors.as_ptr().copy_to_nonoverlapping(libc::CMSG_DATA(message).cast(), descriptors.len());
        }
        // One that is too long is not sent; then there is nothing to receive.
        libc::sendmsg(to.as_raw_fd(), &header, libc::MSG_DONTWAIT);
    }
}
