//! Class-specific detail of a hook, in the hook table: what sub-kind its events are.

/// No sub-kind.
pub const NONE: u8 = 0;

/// Launch: one kernel.
pub const KERNEL: u8 = 1;
/// Launch: an instantiated graph.
pub const GRAPH: u8 = 2;
/// Launch: a function on the host, in stream order.
pub const HOST_FUNCTION: u8 = 3;

/// Sync: waits for a context.
pub const CONTEXT: u8 = 1;
/// Sync: waits for a stream.
pub const STREAM: u8 = 2;
/// Sync: waits for an event.
pub const EVENT: u8 = 3;
/// Sync: asks without waiting; spinning on it is a wait.
pub const QUERY: u8 = 4;
/// Sync: a stream waits for an event; the host does not.
pub const STREAM_WAIT: u8 = 5;
/// Sync: waits until a Metal command buffer was handed to the GPU.
pub const SCHEDULE: u8 = 6;
/// Sync: a new Metal command buffer, for which there may have been no room before others completed.
pub const ROOM: u8 = 7;

/// Transfer: a copy that returns when it is done (as far as the API promises).
pub const COPY: u8 = 1;
/// Transfer: a copy in stream order.
pub const COPY_ASYNC: u8 = 2;
/// Transfer: a set that may return when it is done.
pub const SET: u8 = 3;
/// Transfer: a set in stream order.
pub const SET_ASYNC: u8 = 4;

/// Alloc and Free: device memory.
pub const DEVICE: u8 = 1;
/// Alloc and Free: stream-ordered device memory from a pool.
pub const POOL: u8 = 2;
/// Alloc: managed memory.
pub const MANAGED: u8 = 3;
/// Alloc and Free: page-locked host memory.
pub const PINNED: u8 = 4;
/// Alloc and Free: the program's own memory, page-locked.
pub const REGISTERED: u8 = 5;
/// Alloc and Free: a physical handle without an address.
pub const PHYSICAL: u8 = 6;
/// Alloc and Free: a physical handle mapped at an address.
pub const MAPPING: u8 = 7;
/// Alloc and Free: a CUDA array.
pub const ARRAY: u8 = 8;

/// Collective: all ranks take part.
pub const COLLECTIVE: u8 = 1;
/// Collective: two ranks take part; the party is the peer.
pub const POINT_TO_POINT: u8 = 2;
/// Collective: a group of calls begins, or ends and does its work.
pub const GROUP: u8 = 3;
/// Collective: a communicator is made, changed or ended.
pub const COMMUNICATOR: u8 = 4;
/// Collective: memory for transfers is taken, registered or given back.
pub const MEMORY: u8 = 5;

/// Module: code in memory is loaded; word 3 is how it begins, at most four bytes and none of a failed call.
pub const IMAGE: u8 = 1;
/// Module: the driver's linker takes code in, which it compiles, or puts it together.
pub const LINK: u8 = 2;

/// HostAlloc: a block that another block was moved to.
pub const REALLOC: u8 = 1;
/// HostAlloc and HostFree: memory of the kernel's, not of an allocator; word 1 is protection, and flags << 32.
pub const MAP: u8 = 2;

/// Range: one begins; it ends with its thread's next [`POP`] in its domain.
pub const PUSH: u8 = 1;
/// Range: the one pushed last ends.
pub const POP: u8 = 2;
/// Range: one with a number begins.
pub const START: u8 = 3;
/// Range: it ends, in any thread.
pub const END: u8 = 4;
/// Range: a moment.
pub const MARK: u8 = 5;
/// OsWait: a mutex, a read-write lock, a lock on a file.
pub const LOCK: u8 = 1;
/// OsWait: a condition variable or a barrier.
pub const CONDITION: u8 = 2;
/// OsWait: a semaphore.
pub const SEMAPHORE: u8 = 3;
/// OsWait: the end of a thread.
pub const JOIN: u8 = 4;
/// OsWait: one of several descriptors.
pub const POLL: u8 = 5;
/// OsWait: data from a file, pipe or socket, or a connection to accept.
pub const READ: u8 = 6;
/// OsWait: data given to a file, pipe or socket, or a connection to make.
pub const WRITE: u8 = 7;
/// OsWait: data on its way to the disk.
pub const SYNC: u8 = 8;
/// OsWait: time.
pub const SLEEP: u8 = 9;
/// OsWait: a child process.
pub const CHILD: u8 = 10;
/// OsWait: a futex, by the bare system call.
pub const FUTEX: u8 = 11;

/// Encode: an encoder was made.
pub const ENCODER: u8 = 1;
/// Encode: the pipeline of the encoder's next dispatches.
pub const PIPELINE: u8 = 2;
/// Encode: a dispatch of so many threads.
pub const THREADS: u8 = 3;
/// Encode: a dispatch of so many groups of threads.
pub const GROUPS: u8 = 4;
/// Encode: a dispatch whose size the GPU reads in a buffer.
pub const INDIRECT: u8 = 5;
/// Encode: commands that were encoded before.
pub const COMMANDS: u8 = 6;
/// Encode: the encoder is done.
pub const END_ENCODER: u8 = 7;
/// Encode: a Metal 4 command buffer is among those of a commit.
pub const COMMITTED: u8 = 8;
