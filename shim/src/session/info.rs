//! What the segment says about its process: executable, arguments, rank.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use gputrace_abi::layout::{self, View, info};

use crate::sys;

/// Executable, arguments and rank, for the `processes` table: the process may be gone before anyone can look.
pub(super) fn write_info(view: &View) {
    let mut at = 0usize;
    let mut put = |tag: u16, text: &[u8]| {
        let room = layout::INFO_BYTES.saturating_sub(at + 8);
        let text = text.get(..text.len().min(room)).unwrap_or(&[]);
        let head = [tag.to_le_bytes(), (text.len() as u16).to_le_bytes()];
        for byte in head.as_flattened().iter().chain(text) {
            if let Some(word) = view.info().get(at / 8) {
                word.fetch_or(u64::from(*byte) << (8 * (at % 8)), Ordering::Relaxed);
            }
            at += 1;
        }
    };
    let mut buffer = [0u8; 6144];
    let exe = sys::readlink(c"/proc/self/exe", &mut buffer);
    put(info::EXE, buffer.get(..exe).unwrap_or(&[]));
    if let Ok(file) = sys::open(c"/proc/self/cmdline", libc::O_RDONLY, 0) {
        let length = sys::read_all(&file, &mut buffer);
        put(info::COMMAND, buffer.get(..length).unwrap_or(&[]));
    }
    for (text, length) in RANKS.iter().zip(&RANK_BYTES) {
        let mut line = [0u8; RANK_TEXT_BYTES];
        for (place, byte) in line.iter_mut().zip(text) {
            *place = byte.load(Ordering::Relaxed);
        }
        put(info::RANK, line.get(..length.load(Ordering::Relaxed)).unwrap_or(&[]));
    }
}

const RANK_NAMES: [&[u8]; 7] = [
    b"RANK",
    b"LOCAL_RANK",
    b"OMPI_COMM_WORLD_RANK",
    b"OMPI_COMM_WORLD_LOCAL_RANK",
    b"PMI_RANK",
    b"SLURM_PROCID",
    b"SLURM_LOCALID",
];
const RANK_TEXT_BYTES: usize = 48;
/// `NAME=value` of each, as it was when the process started: a forked child may not read the environment, which one of
/// its threads may be changing.
static RANKS: [[AtomicU8; RANK_TEXT_BYTES]; RANK_NAMES.len()] =
    [const { [const { AtomicU8::new(0) }; RANK_TEXT_BYTES] }; RANK_NAMES.len()];
static RANK_BYTES: [AtomicUsize; RANK_NAMES.len()] = [const { AtomicUsize::new(0) }; RANK_NAMES.len()];

pub(super) fn remember_ranks() {
    for ((name, text), length) in RANK_NAMES.iter().zip(&RANKS).zip(&RANK_BYTES) {
        if let Some(value) = sys::variable(name).filter(|v| v.len() < 16) {
            for (place, byte) in text.iter().zip(name.iter().chain(b"=").chain(value)) {
                place.store(*byte, Ordering::Relaxed);
            }
            length.store(name.len() + 1 + value.len(), Ordering::Relaxed);
        }
    }
}
