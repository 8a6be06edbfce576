//! The frames of a stack while it is taken, and how it is described to the collector.

use core::mem::MaybeUninit;

use gputrace_abi::event::text_kind;
use gputrace_abi::stack::{self, CUT, DEPTH_MAX, FRAME_BYTES, Frame};

use super::{known, native, python};
use crate::session;
use crate::thread::State;

/// Frames, innermost first. They stand on the traced thread's own stack: 3 KiB, and none of it is touched for nothing.
pub(super) struct Frames {
    list: [MaybeUninit<Frame>; DEPTH_MAX],
    /// Where each one's code object or module is.
    whose: [MaybeUninit<usize>; DEPTH_MAX],
    pub(super) count: usize,
    cut: bool,
    /// The stack's key.
    pub(super) hash: u64,
    language: u64,
}

impl Frames {
    #[inline(always)]
    pub(super) fn new() -> Frames {
        Frames {
            list: [const { MaybeUninit::uninit() }; DEPTH_MAX],
            whose: [const { MaybeUninit::uninit() }; DEPTH_MAX],
            count: 0,
            cut: false,
            hash: stack::PYTHON,
            language: stack::PYTHON,
        }
    }

    /// Begins again, with native frames.
    pub(super) fn begin_native(&mut self) {
        self.count = 0;
        self.cut = false;
        // An address means something else when another library came to its place.
        self.hash = known::mix(stack::NATIVE, python::opened().into());
        self.language = stack::NATIVE;
    }

    /// Adds the next outer frame; false when there is no room for it.
    #[inline(always)]
    pub(super) fn push(&mut self, key: u64, offset: u64, whose: usize) -> bool {
        let (Some(frame), Some(place)) = (self.list.get_mut(self.count), self.whose.get_mut(self.count)) else {
            self.cut = true;
            self.hash = known::mix(self.hash, CUT);
            return false;
        };
        frame.write(Frame { key, offset });
        place.write(whose);
        self.hash = known::mix(known::mix(self.hash, key), offset);
        self.count += 1;
        true
    }

    /// Writes what the collector must know to understand the stack's key; false where there was no room.
    pub(super) fn describe(&mut self, state: &State) -> bool {
        // SAFETY: `push` has written so many of both.
        let (frames, whose) = unsafe {
            let frames = core::slice::from_raw_parts_mut(self.list.as_mut_ptr().cast::<Frame>(), self.count);
            (frames, core::slice::from_raw_parts(self.whose.as_ptr().cast::<usize>(), self.count))
        };
        let mut known = frames.iter_mut().zip(whose);
        let described = match self.language {
            stack::PYTHON => known.all(|(frame, whose)| python::write(state, frame.key, *whose)),
            _ => known.all(|(frame, _)| match native::resolve(state, frame.offset) {
                Some((key, offset)) => {
                    *frame = Frame { key, offset };
                    true
                }
                None => false,
            }),
        };
        if !described {
            return false;
        }
        // SAFETY: as above. A frame is two words without padding; its bytes are those of its text, low byte first, as on every
        // processor that this runs on.
        let text = unsafe { core::slice::from_raw_parts(self.list.as_ptr().cast::<u8>(), self.count * FRAME_BYTES) };
        let number = self.language | if self.cut { CUT } else { 0 };
        state.write_text(text_kind::STACK, self.hash, number, text, session::now())
    }
}

const _: () = assert!(size_of::<Frame>() == FRAME_BYTES && cfg!(target_endian = "little"));
