//! On macOS segments are files in the session's folder, which outlive a collector: there is no heir.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use super::BYTES;

pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn paper() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn send(_: &OwnedFd, _: &[u8; BYTES], _: Option<&OwnedFd>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn send_waiting(_: &OwnedFd, _: &[u8; BYTES]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn receive(_: &OwnedFd) -> Option<([u8; BYTES], Option<OwnedFd>)> {
    None
}
