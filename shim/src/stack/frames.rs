//! The frames of a stack while it is walked, and how it is described to the collector.
//!
//! A walk tells a [`Sink`] frame by frame. Most stacks were described before, and only their key is needed: a [`Key`] is two
//! words, for allocations happen on stacks that have no room for more.

use core::mem::MaybeUninit;

use gputrace_abi::event::text_kind;
use gputrace_abi::stack::{self, CUT, DEPTH_MAX, FRAME_BYTES, Frame, MIXED_PYTHON};

use super::{known, native, python};
use crate::session;
use crate::thread::State;

/// What a walk tells, innermost first.
pub(super) trait Sink {
    /// The next outer frame, of native code: the address behind its call. False: no more are taken.
    fn native(&mut self, pc: usize) -> bool;
    /// The same of Python: its code object's key, where in its bytecode it is, and where the code object is.
    fn python(&mut self, key: u64, offset: u64, code: usize) -> bool;
}

/// The key of a stack, as its frames come.
pub(super) struct Key {
    pub(super) hash: u64,
    pub(super) count: u32,
    cut: bool,
}

impl Key {
    #[inline(always)]
    pub(super) fn new(language: u64) -> Key {
        let hash = match language {
            stack::PYTHON => language,
            // An address means something else when another library came to its place.
            _ => known::mix(language, python::opened().into()),
        };
        Key { hash, count: 0, cut: false }
    }

    #[inline(always)]
    fn takes(&mut self) -> bool {
        if self.count < DEPTH_MAX as u32 {
            self.count += 1;
            return true;
        }
        self.cut = true;
        self.hash = known::mix(self.hash, CUT);
        false
    }
}

impl Sink for Key {
    #[inline(always)]
    fn native(&mut self, pc: usize) -> bool {
        self.takes() && {
            self.hash = known::mix(self.hash, pc as u64);
            true
        }
    }

    #[inline(always)]
    fn python(&mut self, key: u64, offset: u64, _: usize) -> bool {
        self.takes() && {
            self.hash = known::mix(known::mix(self.hash, key), offset);
            true
        }
    }
}

/// Frames with all that is needed to describe them: 3 KiB, none of which is touched for nothing.
pub(super) struct Frames {
    list: [MaybeUninit<Frame>; DEPTH_MAX],
    /// Where each one's code object is; 0 for native ones.
    whose: [MaybeUninit<usize>; DEPTH_MAX],
    pub(super) key: Key,
    language: u64,
}

impl Frames {
    #[inline(always)]
    pub(super) const fn unused() -> Frames {
        Frames {
            list: [const { MaybeUninit::uninit() }; DEPTH_MAX],
            whose: [const { MaybeUninit::uninit() }; DEPTH_MAX],
            key: Key { hash: 0, count: 0, cut: false },
            language: 0,
        }
    }

    /// Begins a stack of this language; [`MIXED`](stack::MIXED) turns out to be native where no frame is Python's.
    #[inline(always)]
    pub(super) fn begin(&mut self, language: u64) {
        self.language = language;
        self.key = Key::new(if language == stack::MIXED { stack::NATIVE } else { language });
    }

    fn put(&mut self, frame: Frame, whose: usize) {
        let at = self.key.count as usize - 1;
        if let (Some(place), Some(owner)) = (self.list.get_mut(at), self.whose.get_mut(at)) {
            place.write(frame);
            owner.write(whose);
        }
    }

    /// Writes what the collector must know to understand the stack's key, under this one; false where there was no room.
    pub(super) fn describe(&mut self, state: &State, key: u64) -> bool {
        let count = self.key.count as usize;
        // SAFETY: so many of both were written: each call of `put` follows one more in `count`.
        let (frames, whose) = unsafe {
            let frames = core::slice::from_raw_parts_mut(self.list.as_mut_ptr().cast::<Frame>(), count);
            (frames, core::slice::from_raw_parts(self.whose.as_ptr().cast::<usize>(), count))
        };
        let described = frames.iter_mut().zip(whose).all(|(frame, whose)| match *whose {
            0 => match native::resolve(state, frame.offset) {
                Some((key, offset)) => {
                    *frame = Frame { key, offset };
                    true
                }
                None => false,
            },
            code => python::write(state, frame.key, code),
        });
        if !described {
            return false;
        }
        let language = match self.language {
            stack::MIXED if whose.iter().all(|whose| *whose == 0) => stack::NATIVE,
            stack::MIXED => {
                let pythons = frames.iter_mut().zip(whose).filter(|(_, whose)| **whose != 0);
                pythons.for_each(|(frame, _)| frame.offset |= MIXED_PYTHON);
                stack::MIXED
            }
            other => other,
        };
        // SAFETY: as above. A frame is two words without padding; its bytes are those of its text, low byte first, as on every
        // processor that this runs on.
        let text = unsafe { core::slice::from_raw_parts(self.list.as_ptr().cast::<u8>(), count * FRAME_BYTES) };
        let number = language | if self.key.cut { CUT } else { 0 };
        state.write_text(text_kind::STACK, key, number, text, session::now())
    }
}

impl Sink for Frames {
    #[inline(always)]
    fn native(&mut self, pc: usize) -> bool {
        self.key.native(pc) && {
            self.put(Frame { key: 0, offset: pc as u64 }, 0);
            true
        }
    }

    #[inline(always)]
    fn python(&mut self, key: u64, offset: u64, code: usize) -> bool {
        self.key.python(key, offset, code) && {
            self.put(Frame { key, offset }, code);
            true
        }
    }
}

const _: () = assert!(size_of::<Frame>() == FRAME_BYTES && cfg!(target_endian = "little"));
