//! One event: 64 bytes, explicit widths, no pointer that the reader would have to follow.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | `commit` | written last: generation of the chunk and index of the slot ([`crate::ring`]) |
//! | 4 | 2 | `hook` | row of the segment's hook table, or one of the `KIND_` constants |
//! | 6 | 2 | `thread` | row of the segment's thread table |
//! | 8 | 8 | `start` | clock ticks before the call |
//! | 16 | 8 | `end` | clock ticks after the call |
//! | 24 | 2 | `context` | number of the CUDA context in this process, 0 unknown |
//! | 26 | 2 | `flags` | `FLAG_` bits and the kinds of memory of a copy |
//! | 28 | 2 | `result` | the driver's result code |
//! | 30 | 2 | `spare` | zero; the collector's own use once it has read the event |
//! | 32 | 32 | `payload` | four words whose meaning the class gives, see [`Class`] |

pub mod detail;

/// One recorded event, as it stands in a slot of a ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Commit word of the slot, written last. See [`crate::ring::commit_word`].
    pub commit: u32,
    /// Row of the hook table, or a `KIND_` constant.
    pub hook: u16,
    /// Row of the thread table.
    pub thread: u16,
    /// Ticks of the segment's clock before the original was called.
    pub start: u64,
    /// Ticks after it returned.
    pub end: u64,
    /// Number of the current CUDA context in this process; 0 when there is none or it is not known.
    pub context: u16,
    /// [`FLAG_CAPTURED`], for copies [`memory_kinds`] and for launches [`drawn_power`].
    pub flags: u16,
    /// Result code of the call (CUresult; larger codes saturate).
    pub result: u16,
    /// Zero in a ring.
    pub spare: u16,
    /// Meaning by class: see [`Class`].
    pub payload: [u64; 4],
}

const _: () = {
    assert!(size_of::<Event>() == 64);
    assert!(core::mem::offset_of!(Event, hook) == 4);
    assert!(core::mem::offset_of!(Event, thread) == 6);
    assert!(core::mem::offset_of!(Event, start) == 8);
    assert!(core::mem::offset_of!(Event, end) == 16);
    assert!(core::mem::offset_of!(Event, context) == 24);
    assert!(core::mem::offset_of!(Event, flags) == 26);
    assert!(core::mem::offset_of!(Event, result) == 28);
    assert!(core::mem::offset_of!(Event, payload) == 32);
};

impl Event {
    /// The event as the eight words of a slot.
    #[inline(always)]
    pub fn words(&self) -> [u64; 8] {
        [
            u64::from(self.commit) | u64::from(self.hook) << 32 | u64::from(self.thread) << 48,
            self.start,
            self.end,
            u64::from(self.context)
                | u64::from(self.flags) << 16
                | u64::from(self.result) << 32
                | u64::from(self.spare) << 48,
            self.payload[0],
            self.payload[1],
            self.payload[2],
            self.payload[3],
        ]
    }

    /// The event that eight words of a slot hold. Any eight words are an event; none is trusted.
    #[inline(always)]
    pub fn from_words(w: [u64; 8]) -> Event {
        Event {
            commit: w[0] as u32,
            hook: (w[0] >> 32) as u16,
            thread: (w[0] >> 48) as u16,
            start: w[1],
            end: w[2],
            context: w[3] as u16,
            flags: (w[3] >> 16) as u16,
            result: (w[3] >> 32) as u16,
            spare: (w[3] >> 48) as u16,
            payload: [w[4], w[5], w[6], w[7]],
        }
    }
}

/// What a hook is about. Analyses select by class, so a new hook in an old class shows up everywhere.
///
/// Payload words by class (`stream` is always word 1, and means nothing without the context):
///
/// | class | 0 | 1 | 2 | 3 |
/// |---|---|---|---|---|
/// | Launch | function or graph exec | stream | grid ([`pack_grid`]) | block and shared bytes ([`pack_block`]) |
/// | Sync | event or context | stream | flags | 0 |
/// | Transfer | destination | stream | source (or value of a set) | bytes |
/// | Alloc, Free | address or handle | stream | pool, or address of a mapping | bytes |
/// | HostAlloc, HostFree | address | by how many powers of two samples lay further apart than was asked for | key of its stack ([`crate::stack`]), 0 none | bytes |
/// | Module, Api | handle | stream | second handle | number |
/// | Range | key of its name ([`crate::text::key`]) | key of its domain, 0 the default one | number, see [`range`] | category, colour << 32 |
/// | Collective | communicator and root or peer ([`crate::collective::pack_party`]) | stream | elements, or bytes | data type and operator ([`crate::collective::pack_type`]) |
/// | OsWait | address of the lock, condition, semaphore, thread or memory | descriptor + 1 | 0 | what the function returned |
/// | Commit, Encode, and what else Metal does | see [`crate::metal`] | | | |
///
/// An event of class Range has one clock read, in `start`. `end` is the number of a range that starts and ends, in
/// whichever threads; `result` counts the thread's range events, so that the reader sees where some are missing.
///
/// The result of an OsWait is the error number, 0 for none.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A call of no special class: streams, events, contexts, captures, initialisation.
    Api = 0,
    /// Work given to the GPU: kernels, graphs, host functions.
    Launch = 1,
    /// A call that waits, asks whether it would have to wait, or makes a stream wait.
    Sync = 2,
    /// A copy or a set of memory.
    Transfer = 3,
    /// Device, pinned, managed or virtual memory taken.
    Alloc = 4,
    /// The same given back.
    Free = 5,
    /// malloc and its family.
    HostAlloc = 6,
    /// free, and the old block of a realloc.
    HostFree = 7,
    /// Modules, libraries, kernels and functions loaded, looked up or unloaded.
    Module = 8,
    /// A Metal command buffer committed.
    Commit = 9,
    /// A range that the program named (NVTX).
    Range = 10,
    /// A collective operation (NCCL).
    Collective = 11,
    /// A wait for the operating system: a lock, a file, a pipe, a thread.
    OsWait = 12,
    /// Work put into a Metal command buffer.
    Encode = 13,
}

impl Class {
    /// Every class, in the order of its number.
    pub const ALL: [Class; 14] = [
        Class::Api,
        Class::Launch,
        Class::Sync,
        Class::Transfer,
        Class::Alloc,
        Class::Free,
        Class::HostAlloc,
        Class::HostFree,
        Class::Module,
        Class::Commit,
        Class::Range,
        Class::Collective,
        Class::OsWait,
        Class::Encode,
    ];

    /// The class with this number, if there is one.
    pub fn from_u8(n: u8) -> Option<Class> {
        Self::ALL.get(usize::from(n)).copied()
    }

    /// The class of this name.
    pub fn named(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The name that reports and the manifest use.
    pub fn name(self) -> &'static str {
        match self {
            Class::Api => "api",
            Class::Launch => "launch",
            Class::Sync => "sync",
            Class::Transfer => "transfer",
            Class::Alloc => "alloc",
            Class::Free => "free",
            Class::HostAlloc => "host_alloc",
            Class::HostFree => "host_free",
            Class::Module => "module",
            Class::Commit => "commit",
            Class::Range => "range",
            Class::Collective => "collective",
            Class::OsWait => "os_wait",
            Class::Encode => "encode",
        }
    }
}

/// Hook numbers from here on are not rows of the hook table but the kinds below.
pub const KIND_FIRST: u16 = 0xff00;
/// A slot without meaning, where a text did not fit the rest of its chunk.
pub const KIND_PADDING: u16 = 0xff00;
/// A text: payload is key, [`text_kind`], bytes, number; the bytes follow in [`KIND_TEXT_MORE`] slots of the chunk.
pub const KIND_TEXT: u16 = 0xff01;
/// 56 bytes of text in the seven words after the first.
pub const KIND_TEXT_MORE: u16 = 0xff02;
/// A CUDA context was given its number: payload is the context's handle, 0, the device's ordinal, 0.
pub const KIND_CONTEXT: u16 = 0xff03;
/// The stack of the thread's event with this start: payload is the stack's key, 0, the launches that it stands for or
/// 0, 0. See [`crate::stack`].
pub const KIND_STACK: u16 = 0xff08;

/// When the GPU ran a Metal command buffer, told when it had: payload is the command buffer as its commit names it, how many ns
/// before the event's start the GPU began, how many ns before it ended (both wrapping: a clock of its own may be ahead), and ns that its scheduling took on the host
/// ([`crate::metal::UNSCHEDULED`] where that is not known); `flags` as the commit's, `result` one of [`crate::metal::status`].
pub const KIND_GPU_TIMES: u16 = 0xff09;

/// A GPU's clock beside the host's: payload is the GPU's time (`sampleTimestamps:gpuTimestamp:`), and the host's right before and right after
/// it was asked for, each in ns, or in units of the GPU's own, after the moment of the event's start on the clock of Metal's times
/// (wrapping); and how many ns the reading of that moment took. `context` is the device's number.
pub const KIND_GPU_CLOCK: u16 = 0xff0b;

/// An NCCL communicator was given its number: payload is the hash of its unique id, rank and number of ranks
/// ([`crate::collective::pack_party`]), its number and its parent's (the same), and its handle with its device above bit
/// 48 ([`crate::collective::NO_DEVICE`] when not known); `flags` is the hook that made it, `result` the number of the
/// library copy.
pub const KIND_COMMUNICATOR: u16 = 0xff04;

/// A text without a number, whose first bytes stand in its own slot: in place of the event's end its key, of its context
/// [`text_kind`], of its flags how many bytes there are, of its payload the first [`NAME_BYTES`] of them; more follow in
/// [`KIND_TEXT_MORE`] slots. Most names of kernels and labels take one slot so.
pub const KIND_NAME: u16 = 0xff0a;

/// Bytes of text in the slot of a [`KIND_NAME`] itself.
pub const NAME_BYTES: usize = 32;
/// Bytes of text that one following slot holds.
pub const TEXT_SLOT_BYTES: usize = 56;
/// Longer texts are cut to this many bytes. C++ kernel names of 2,000 bytes are common.
pub const TEXT_MAX_BYTES: usize = 8_000;

/// What a text is, in payload word 1 of [`KIND_TEXT`].
pub mod text_kind {
    /// Key is a CUfunction or CUkernel, the text its (mangled) name.
    pub const FUNCTION: u64 = 1;
    /// A driver symbol that the program fetched and no hook covers; number is requested version << 32 | flags.
    pub const UNCOVERED: u64 = 2;
    /// Key is the thread's tid, the text the thread's name.
    pub const THREAD: u64 = 3;
    /// Key is a function whose name is the one of the function or kernel in number; no text follows.
    pub const ALIAS: u64 = 4;
    /// The name of a range; its key is [`crate::text::key`], and what stands in the event is not looked at.
    pub const RANGE: u64 = 5;
    /// The name of a domain of ranges, as for [`RANGE`].
    pub const DOMAIN: u64 = 6;
    /// The name of a category of ranges: key is the domain's key, number the category's.
    pub const CATEGORY: u64 = 7;
    /// Key is the number of a copy of NCCL, the text its path, number its version as it gives it itself.
    pub const NCCL: u64 = 8;
    /// The 16 bytes that name a table of private functions which the program asked the driver for; number is the result.
    pub const EXPORT_TABLE: u64 = 9;
    /// Key is the ordinal of a device, the text a [`crate::device::Device`] and the device's name.
    pub const DEVICE: u64 = 10;
    /// Key is an executable graph's handle, number is [`crate::graph::pack_action`], the text what the graph holds
    /// ([`crate::graph`]).
    pub const GRAPH: u64 = 11;
    /// A library that was opened so that its own calls may go past our symbols; the text is its name as the program gave it,
    /// of a long one the end, number one of [`super::past`].
    pub const PAST: u64 = 12;
    /// The label of an object of Metal's; its key is [`crate::text::key`], or [`crate::metal::BEHIND`], and what stands in the event is
    /// not looked at otherwise.
    pub const LABEL: u64 = 13;
    /// A class of Metal's whose objects are not seen in full: key is one of [`crate::metal::unseen`], number how many objects there
    /// were so far.
    pub const METAL_CLASS: u64 = 14;
    /// Key is a stack's, number its language and flags, the text its frames; see [`crate::stack`].
    pub const STACK: u64 = 16;
    /// Key is a code object's, the text a [`crate::stack::PythonCode`], its name and its file.
    pub const PYTHON_CODE: u64 = 17;
    /// Key is a code object's, the text a part of its line table, number the place of the part.
    pub const PYTHON_LINES: u64 = 18;
    /// Key is a module's, the text its path, number where it was loaded.
    pub const MODULE: u64 = 19;
    /// What the GPU did: records as [`crate::gpu`] says.
    pub const GPU_WORK: u64 = 20;
    /// What became of asking CUPTI: number is one of [`crate::gpu::state`], which says what key and text are.
    pub const GPU_TIME: u64 = 21;
    /// The name of a kernel in [`GPU_WORK`]; its key is [`crate::text::key`], and what stands in the event is not looked at.
    pub const KERNEL_NAME: u64 = 22;
    /// How long the GPU took for launches that were timed: records as [`crate::sample`] says.
    pub const GPU_SAMPLES: u64 = 23;
    /// What became of timing launches: a [`crate::sample::Account`].
    pub const GPU_SAMPLING: u64 = 24;
    /// What CUPTI tells beside the GPU's work: records as [`crate::activity`] says.
    pub const GPU_ACTIVITY: u64 = 25;
}

/// How a library was opened whose own calls may go past our symbols.
pub mod past {
    /// RTLD_DEEPBIND.
    pub const DEEPBIND: u64 = 1;
    /// In a namespace of its own (dlmopen).
    pub const NAMESPACE: u64 = 2;
    /// Bytes of its name that are told.
    pub const NAME_BYTES: usize = 256;
}

/// The call was made while its stream was being captured into a graph: nothing ran yet.
pub const FLAG_CAPTURED: u16 = 1;

/// Launch: events around it time it, and a [`crate::sample::Sample`] may follow.
pub const FLAG_TIMED: u16 = 1 << 8;

/// Launch of a kernel: it was drawn out of two to the power of the number in these bits, of which the others were only counted.
pub const fn drawn_flag(power: u8) -> u16 {
    (power as u16 & 31) << 9
}

/// The power out of an event's flags.
pub const fn drawn_power(flags: u16) -> u8 {
    (flags >> 9 & 31) as u8
}

/// Collective: the call was made between ncclGroupStart and ncclGroupEnd, which does the work.
pub const FLAG_IN_GROUP: u16 = 1 << 7;

/// Kind of memory of one end of a copy, as far as the call itself says.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The call does not say (unified addressing): the collector looks into the allocations.
    Unknown = 0,
    /// Host memory, pinned or not.
    Host = 1,
    /// Device memory.
    Device = 2,
    /// A CUDA array.
    Array = 3,
}

impl MemoryKind {
    fn from_bits(bits: u16) -> MemoryKind {
        match bits & 7 {
            1 => MemoryKind::Host,
            2 => MemoryKind::Device,
            3 => MemoryKind::Array,
            _ => MemoryKind::Unknown,
        }
    }
}

/// Flag bits for the kinds of memory of a copy's source and destination.
pub const fn memory_flags(source: MemoryKind, destination: MemoryKind) -> u16 {
    (source as u16) << 1 | (destination as u16) << 4
}

/// Source and destination kinds out of an event's flags.
pub fn memory_kinds(flags: u16) -> (MemoryKind, MemoryKind) {
    (MemoryKind::from_bits(flags >> 1), MemoryKind::from_bits(flags >> 4))
}

/// Grid dimensions in one word: x 32 bits, y and z 16 bits each (the driver's own limits).
#[inline(always)]
pub const fn pack_grid(x: u32, y: u32, z: u32) -> u64 {
    x as u64 | ((y & 0xffff) as u64) << 32 | ((z & 0xffff) as u64) << 48
}

/// The dimensions of [`pack_grid`].
pub const fn unpack_grid(word: u64) -> [u32; 3] {
    [word as u32, (word >> 32) as u32 & 0xffff, (word >> 48) as u32]
}

/// Block dimensions (11, 11 and 10 bits; the driver's limits are 1024, 1024, 64) and dynamic shared bytes in one word.
#[inline(always)]
pub const fn pack_block(x: u32, y: u32, z: u32, shared_bytes: u32) -> u64 {
    ((x & 0x7ff) | (y & 0x7ff) << 11 | (z & 0x3ff) << 22) as u64 | (shared_bytes as u64) << 32
}

/// Block dimensions and dynamic shared bytes of [`pack_block`].
pub const fn unpack_block(word: u64) -> ([u32; 3], u32) {
    let w = word as u32;
    ([w & 0x7ff, w >> 11 & 0x7ff, w >> 22], (word >> 32) as u32)
}

/// Flag bits of a range.
pub mod range {
    /// It has a colour.
    pub const COLOR: u16 = 2;
    /// Payload word 2 is an integer (i64; larger unsigned ones wrap).
    pub const INTEGER: u16 = 4;
    /// Payload word 2 is a floating point number (f64).
    pub const FLOAT: u16 = 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_event_are_inverse() {
        let event = Event {
            commit: 0xdead_beef,
            hook: 513,
            thread: 4095,
            start: 1 << 60,
            end: u64::MAX,
            context: 7,
            flags: 0x55,
            result: 719,
            spare: 0,
            payload: [1, u64::MAX, 3, 1 << 63],
        };
        assert_eq!(Event::from_words(event.words()), event);
    }

    #[test]
    fn dimensions_survive_packing_at_the_drivers_limits() {
        assert_eq!(unpack_grid(pack_grid(i32::MAX as u32, 65535, 65535)), [i32::MAX as u32, 65535, 65535]);
        assert_eq!(unpack_block(pack_block(1024, 1024, 64, 232_448)), ([1024, 1024, 64], 232_448));
    }

    #[test]
    fn classes_are_numbered_in_order() {
        for (n, class) in Class::ALL.iter().enumerate() {
            assert_eq!(*class as usize, n);
            assert_eq!(Class::from_u8(n as u8), Some(*class));
        }
        assert_eq!(Class::from_u8(Class::ALL.len() as u8), None);
    }

    #[test]
    fn kinds_of_memory_survive_the_flags() {
        let flags = memory_flags(MemoryKind::Host, MemoryKind::Array) | FLAG_CAPTURED;
        assert_eq!(memory_kinds(flags), (MemoryKind::Host, MemoryKind::Array));
    }
}
