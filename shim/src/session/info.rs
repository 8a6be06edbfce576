//! What the segment says about its process: executable, arguments, rank, devices that it may see.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use gputrace_abi::layout::{self, View, info};

use crate::sys;

/// Executable, variables and arguments, for the `processes` table: the process may be gone before anyone can look.
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
    let exe = sys::executable(&mut buffer);
    put(info::EXE, buffer.get(..exe).unwrap_or(&[]));
    let mut variables = [0u8; VARIABLES_BYTES];
    let length = VARIABLES_LENGTH.load(Ordering::Relaxed);
    for (place, byte) in variables.iter_mut().zip(&VARIABLES) {
        *place = byte.load(Ordering::Relaxed);
    }
    for variable in variables.get(..length).unwrap_or(&[]).split(|byte| *byte == 0).filter(|text| !text.is_empty()) {
        put(info::VARIABLE, variable);
    }
    // Last, because it may be longer than there is room.
    let length = sys::arguments(&mut buffer);
    if length > 0 {
        put(info::COMMAND, buffer.get(..length).unwrap_or(&[]));
    }
}

/// Variables by which launchers tell a process its rank, how many ranks there are and which devices it may see:
/// torchrun and accelerate, Open MPI, MPICH and Intel MPI, Slurm, CUDA.
const NAMES: [&[u8]; 13] = [
    b"RANK",
    b"LOCAL_RANK",
    b"WORLD_SIZE",
    b"OMPI_COMM_WORLD_RANK",
    b"OMPI_COMM_WORLD_LOCAL_RANK",
    b"OMPI_COMM_WORLD_SIZE",
    b"PMI_RANK",
    b"MPI_LOCALRANKID",
    b"PMI_SIZE",
    b"SLURM_PROCID",
    b"SLURM_LOCALID",
    b"SLURM_NTASKS",
    b"CUDA_VISIBLE_DEVICES",
];
const VARIABLES_BYTES: usize = 2048;
/// `NAME=value` of each, ended by a zero byte, as it was when the process started: a forked child may not read the
/// environment, which one of its threads may be changing.
static VARIABLES: [AtomicU8; VARIABLES_BYTES] = [const { AtomicU8::new(0) }; VARIABLES_BYTES];
static VARIABLES_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Keeps the variables. For the constructor.
pub(super) fn remember_variables() {
    let mut at = 0;
    for name in NAMES {
        let Some(value) = sys::variable(name) else { continue };
        let end = at + name.len() + value.len() + 2;
        let Some(places) = VARIABLES.get(at..end) else { continue };
        let line = name.iter().chain(b"=").chain(value).chain(&[0]);
        places.iter().zip(line).for_each(|(place, byte)| place.store(*byte, Ordering::Relaxed));
        at = end;
    }
    VARIABLES_LENGTH.store(at, Ordering::Relaxed);
}
