//! The frames of a stack while it is walked, and how it is described to the collector.
//!
//! A walk tells a [`Sink`] frame by frame. Most stacks were described before, and only their key is needed: a [`Key`] is two
//! words, for allocations happen on stacks that have no room for more.

use core::mem::MaybeUninit;

use gputrace_abi::event::{TEXT_MAX_BYTES, text_kind};
use gputrace_abi::stack::{CALLERS_BYTES, CUT, Callers, FRAME_BYTES, Frame, PYTHON};

use super::known::Known;
use super::{known, native, python};
use crate::session;
use crate::thread::State;

/// What a key is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Python = 1,
    /// And Python's among native ones.
    Native = 2,
}

/// Frames that were told of, by their numbers.
static TOLD: Known<65_536> = Known::new();

/// Stacks of Python that were told of, which others name as their callers.
static CALLING: Known<65_536> = Known::new();

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
    most: u32,
    cut: bool,
}

impl Key {
    #[inline(always)]
    pub(super) fn new(language: Language, most: usize) -> Key {
        let hash = match language {
            Language::Python => language as u64,
            // An address means something else when another library came to its place.
            Language::Native => known::mix(language as u64, python::opened().into()),
        };
        Key { hash, count: 0, most: most as u32, cut: false }
    }

    #[inline(always)]
    fn takes(&mut self) -> bool {
        if self.count < self.most {
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

/// Frames, so many at most, with all that is needed to describe them: 32 bytes each, none of which is touched for nothing.
pub(super) struct Frames<const MOST: usize> {
    list: [MaybeUninit<Frame>; MOST],
    /// Where each one's code object is; 0 for native ones.
    whose: [MaybeUninit<usize>; MOST],
    pub(super) key: Key,
}

/// Frames that one text has room for.
const TOLD_AT_ONCE: usize = (TEXT_MAX_BYTES - CALLERS_BYTES) / FRAME_BYTES;

impl<const MOST: usize> Frames<MOST> {
    #[inline(always)]
    pub(super) const fn unused() -> Self {
        Frames {
            list: [const { MaybeUninit::uninit() }; MOST],
            whose: [const { MaybeUninit::uninit() }; MOST],
            key: Key { hash: 0, count: 0, most: 0, cut: false },
        }
    }

    /// Begins a stack of this language.
    #[inline(always)]
    pub(super) fn begin(&mut self, language: Language) {
        self.key = Key::new(language, MOST);
    }

    fn put(&mut self, frame: Frame, whose: usize) {
        let at = self.key.count as usize - 1;
        if let (Some(place), Some(owner)) = (self.list.get_mut(at), self.whose.get_mut(at)) {
            place.write(frame);
            owner.write(whose);
        }
    }

    /// The frames, and where the code objects of those of Python are.
    fn taken(&mut self) -> (&mut [Frame], &[usize]) {
        let count = self.key.count as usize;
        // SAFETY: so many of both were written: each call of `put` follows one more in `count`.
        unsafe {
            let frames = core::slice::from_raw_parts_mut(self.list.as_mut_ptr().cast::<Frame>(), count);
            (frames, core::slice::from_raw_parts(self.whose.as_ptr().cast::<usize>(), count))
        }
    }

    /// Writes what the collector must know to understand the stack's key, under this one: the frames that no stack had that was told of,
    /// with the same callers, `since` then. False where there was no room.
    pub(super) fn describe(&mut self, state: &State, key: u64, since: u64) -> bool {
        let cut = if self.key.cut { CUT } else { 0 };
        let (frames, whose) = self.taken();
        let mut all = Part { frames, whose, cut };
        all.number();
        all.tell(state, key, 0, since)
    }

    /// The same of a stack whose first frames, so many, are native code that Python called. The others may be missing where a stack of
    /// them [`is_calling`]; they are told under that key, or one that is made of them.
    pub(super) fn describe_called(
        &mut self,
        state: &State,
        key: u64,
        called: usize,
        outer: Option<u64>,
        since: u64,
    ) -> bool {
        let cut = if self.key.cut { CUT } else { 0 };
        let (frames, whose) = self.taken();
        let (Some((inner, rest)), Some((no_code, whose))) =
            (frames.split_at_mut_checked(called), whose.split_at_checked(called))
        else {
            return false;
        };
        let mut outer = outer.unwrap_or(0);
        if !rest.is_empty() {
            let mut rest = Part { frames: rest, whose, cut };
            let number = rest.number();
            if outer == 0 {
                outer = number;
            }
            if !CALLING.has(outer, since) {
                if !rest.tell(state, outer, 0, since) {
                    return false;
                }
                CALLING.insert(outer, since);
            }
        }
        let mut inner = Part { frames: inner, whose: no_code, cut: 0 };
        inner.number();
        inner.tell(state, key, outer, since)
    }
}

/// Whether a stack with this key was told of that Python calls native code from.
pub(super) fn is_calling(key: u64, since: u64) -> bool {
    CALLING.has(key, since)
}

/// Frames that are told together, innermost first.
struct Part<'f> {
    frames: &'f mut [Frame],
    whose: &'f [usize],
    cut: u64,
}

impl Part<'_> {
    /// Gives each frame its number. That of the innermost.
    fn number(&mut self) -> u64 {
        let mut number = known::mix(known::mix(PYTHON, python::opened().into()), self.cut);
        for (frame, whose) in self.frames.iter_mut().zip(self.whose).rev() {
            if *whose != 0 {
                frame.offset |= PYTHON;
                number = known::mix(number, frame.key);
            }
            number = known::mix(number, frame.offset);
            frame.number = number;
        }
        number
    }

    /// Writes those that were not told of. `outer`: key of the stack that called the outermost. False where there was no room.
    fn tell(self, state: &State, key: u64, outer: u64, since: u64) -> bool {
        let told = self.frames.iter().position(|frame| TOLD.has(frame.number, since)).unwrap_or(self.frames.len());
        let Some((new, callers)) = self.frames.split_at_mut_checked(told) else { return false };
        let described = new.iter_mut().zip(self.whose).all(|(frame, whose)| match *whose {
            0 => native::resolve(state, frame.offset, since).is_some_and(|place| {
                (frame.key, frame.offset) = place;
                true
            }),
            code => python::write(state, frame.key, code, since),
        });
        if !described {
            return false;
        }
        let mut callers = Callers { outer, inner: callers.first().map_or(0, |caller| caller.number) };
        // The outermost come first: they are what the others name.
        let mut parts = new.rchunks(TOLD_AT_ONCE).peekable();
        loop {
            let part = parts.next().unwrap_or_default();
            let is_last = parts.peek().is_none();
            // SAFETY: a frame is three words without padding; its bytes are those of its text, low byte first, as on every processor
            // that this runs on.
            let text = unsafe { core::slice::from_raw_parts(part.as_ptr().cast::<u8>(), size_of_val(part)) };
            let (key, texts) = (if is_last { key } else { 0 }, [&callers.to_bytes()[..], text, &[]]);
            let told = state.write_texts(text_kind::STACK, key, self.cut, texts, session::now());
            if told {
                part.iter().for_each(|frame| TOLD.insert(frame.number, since));
            }
            if is_last || !told {
                return told;
            }
            callers.inner = part.first().map_or(callers.inner, |frame| frame.number);
        }
    }
}

impl<const MOST: usize> Sink for Frames<MOST> {
    #[inline(always)]
    fn native(&mut self, pc: usize) -> bool {
        self.key.native(pc) && {
            self.put(Frame { offset: pc as u64, ..Frame::default() }, 0);
            true
        }
    }

    #[inline(always)]
    fn python(&mut self, key: u64, offset: u64, code: usize) -> bool {
        self.key.python(key, offset, code) && {
            self.put(Frame { key, offset, ..Frame::default() }, code);
            true
        }
    }
}

const _: () = assert!(size_of::<Frame>() == FRAME_BYTES && cfg!(target_endian = "little"));
