//! Bits of [`crate::layout::Header::notes`]: what the shim saw and the report should say.

/// A library was opened RTLD_DEEPBIND: calls that it makes itself may escape.
pub const DEEPBIND: u32 = 1;
/// The segment is smaller than asked for (RLIMIT_AS, RLIMIT_FSIZE or free space).
pub const SMALL_SEGMENT: u32 = 2;
/// A second copy of the driver library was reached; its calls are not covered.
pub const SECOND_DRIVER: u32 = 4;
/// The malloc that calls are passed to is not libc's (a preloaded jemalloc, tcmalloc or mimalloc).
pub const OTHER_MALLOC: u32 = 8;
/// More than 65,534 CUDA contexts or too many at once: some events have no context.
pub const CONTEXTS_FULL: u32 = 16;
/// Names of ranges, domains or categories found no room in a ring.
pub const RANGE_NAMES_LOST: u32 = 32;
/// A sanitizer, built in or preloaded, replaces malloc itself: malloc is not recorded.
pub const SANITIZER: u32 = 64;
/// The program defines malloc itself, before every library: malloc is not recorded.
pub const OWN_MALLOC: u32 = 128;
/// Too many NCCL communicators at once: some calls have none.
pub const COMMUNICATORS_FULL: u32 = 256;
/// More copies of NCCL than there are entries for, or functions of none: calls of looked-up functions are missing.
pub const UNKNOWN_NCCL: u32 = 512;
/// A library was opened in a namespace of its own (dlmopen): calls that it makes itself may escape.
pub const NAMESPACE: u32 = 1024;
/// The driver is loaded: when no hook was ever reached, something went past them.
pub const DRIVER_HERE: u32 = 2048;
/// Inline hooks were asked for, and the engine did not patch the driver.
pub const NOT_INLINE: u32 = 4096;
/// Threads that waited for room gave up: the collector was gone, or stood still.
pub const GAVE_UP: u32 = 8192;
/// Metal: objects of more classes of one kind than are hooked.
pub const METAL_CLASSES_FULL: u32 = 1 << 14;
/// Metal: an object of a class that lacks what its kind has.
pub const METAL_CLASS_UNKNOWN: u32 = 1 << 15;
/// Metal: a method has another signature than its hook was written for.
pub const METAL_SIGNATURE: u32 = 1 << 16;
/// Metal: more commits with feedback in flight than can be followed, or no room for times of the GPU.
pub const METAL_TIMES_LOST: u32 = 1 << 17;
/// Metal: a thread went on while another one was still putting hooks into a class.
pub const METAL_HOOKS_LATE: u32 = 1 << 18;
/// The program ended before all was told of what its GPU did.
pub const GPU_TIME_CUT: u32 = 1 << 19;
/// C++'s operator new is of the allocator that stands before libc's malloc, and calls of it could not be led to us.
pub const OTHER_NEW: u32 = 1 << 20;
/// Python is here, and gives out small objects from pools of its own.
pub const PYTHON_POOLS: u32 = 1 << 21;
/// What malloc holds for itself was asked for, and this malloc cannot be asked: it is not glibc's, or older than 2.33.
pub const NO_ARENAS: u32 = 1 << 22;
/// `gputrace attach` brought the shim into the process while it ran: only the driver's functions are hooked.
pub const ATTACHED: u32 = 1 << 23;
/// More threads lived at a time than there are rows for: calls of the others are not recorded.
pub const THREADS_FULL: u32 = 1 << 24;
