//! A stand-in for libnccl.so.2: the public functions of version 2.28, for buffers in the machine's own memory.
//!
//! Ranks are threads or processes that find each other by a file in the temporary folder. Calls do their work before they
//! return; sums are right for the types that tests sum up. Streams are ignored. FAKE_NCCL_VERSION is the version that it
//! claims, FAKE_NCCL_OLD makes it write handles when a group ends, FAKE_NCCL_US says how long an operation takes.
//! `fakeNcclCalls(name)` is how often a function of this copy was called.

mod calls;
mod codes;
mod communicator;
mod group;
mod operation;
mod region;

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use calls::count;
use codes::{INVALID_ARGUMENT, SUCCESS};
use communicator::{Communicator, mix};
use operation::{Kind, Operation};

type Comm = *mut c_void;
type Stream = *mut c_void;
type In = *const u8;
type Out = *mut u8;

/// ncclUniqueId.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u8; 128]);

fn id_of(id: &UniqueId) -> u64 {
    u64::from_ne_bytes(id.0[..8].try_into().unwrap_or_default())
}

fn join(place: *mut Comm, id: u64, rank: i32, ranks: i32) -> i32 {
    let made = Communicator::join(id, rank, ranks);
    if made.is_null() || place.is_null() {
        return INVALID_ARGUMENT;
    }
    group::publish(place as usize, made as usize);
    SUCCESS
}

macro_rules! export {
    ($( fn $name:ident($($argument:ident: $type:ty),*) $body:block )*) => {$(
        /// NCCL's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
            count(stringify!($name));
            $body
        }
    )*};
}

export! {
    fn ncclGetVersion(version: *mut i32) {
        let claimed = std::env::var("FAKE_NCCL_VERSION").ok().and_then(|v| v.parse().ok());
        // SAFETY: the program's place.
        unsafe { version.write(claimed.unwrap_or(22803)) };
        SUCCESS
    }
    fn ncclGetUniqueId(id: *mut UniqueId) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
        let here = &raw const NEXT as u64;
        let number = mix(mix(time ^ u64::from(std::process::id()) << 40) ^ here ^ NEXT.fetch_add(1, Ordering::Relaxed));
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&number.to_ne_bytes());
        // SAFETY: the program's place.
        unsafe { id.write(UniqueId(bytes)) };
        SUCCESS
    }
    fn ncclCommInitRank(place: *mut Comm, ranks: i32, id: UniqueId, rank: i32) { join(place, id_of(&id), rank, ranks) }
    fn ncclCommInitRankConfig(place: *mut Comm, ranks: i32, id: UniqueId, rank: i32, _config: *mut c_void) {
        join(place, id_of(&id), rank, ranks)
    }
    fn ncclCommInitRankScalable(
        place: *mut Comm, ranks: i32, rank: i32, _count: i32, ids: *const UniqueId, _config: *mut c_void
    ) {
        // SAFETY: the program's list, of which the first is enough here.
        join(place, id_of(unsafe { &*ids }), rank, ranks)
    }
    fn ncclCommInitAll(places: *mut Comm, ranks: i32, _devices: *const i32) {
        let mut id = UniqueId([0; 128]);
        // SAFETY: a place of our own.
        unsafe { ncclGetUniqueId(&mut id) };
        // SAFETY: the program's places, one a rank.
        (0..ranks).map(|rank| join(unsafe { places.add(rank as usize) }, id_of(&id), rank, ranks)).max().unwrap_or(SUCCESS)
    }
    fn ncclCommSplit(comm: Comm, color: i32, key: i32, place: *mut Comm, _config: *mut c_void) {
        add(Kind::Split(color, key), std::ptr::null(), place.cast(), 0, 0, comm)
    }
    fn ncclCommShrink(
        comm: Comm, excluded: *mut i32, excluded_count: i32, place: *mut Comm, _config: *mut c_void, _flags: i32
    ) {
        let Some(comm) = communicator::of(comm) else { return INVALID_ARGUMENT };
        // SAFETY: the program's list and place.
        unsafe { place.write(comm.shrink(std::slice::from_raw_parts(excluded, excluded_count as usize)).cast()) };
        SUCCESS
    }
    fn ncclCommFinalize(_comm: Comm) { SUCCESS }
    fn ncclCommDestroy(comm: Comm) { destroy(comm) }
    fn ncclCommAbort(comm: Comm) { destroy(comm) }
    fn ncclCommCount(comm: Comm, place: *mut i32) { tell(place, communicator::of(comm).map(|c| c.ranks as i32)) }
    fn ncclCommUserRank(comm: Comm, place: *mut i32) { tell(place, communicator::of(comm).map(|c| c.rank as i32)) }
    fn ncclCommCuDevice(comm: Comm, place: *mut i32) { tell(place, communicator::of(comm).map(|_| 0)) }
    fn ncclCommGetAsyncError(comm: Comm, place: *mut i32) { tell(place, communicator::of(comm).map(|_| SUCCESS)) }
    fn ncclMemAlloc(place: *mut *mut c_void, bytes: usize) {
        // SAFETY: the program's place.
        unsafe { place.write(libc::calloc(1, bytes)) };
        SUCCESS
    }
    fn ncclMemFree(memory: *mut c_void) {
        // SAFETY: memory that ncclMemAlloc gave out.
        unsafe { libc::free(memory) };
        SUCCESS
    }
    fn ncclCommRegister(_comm: Comm, buffer: *mut c_void, _bytes: usize, place: *mut *mut c_void) {
        // SAFETY: the program's place.
        unsafe { place.write(buffer) };
        SUCCESS
    }
    fn ncclCommDeregister(_comm: Comm, _registration: *mut c_void) { SUCCESS }
    fn ncclGroupStart() {
        group::start();
        SUCCESS
    }
    fn ncclGroupEnd() { group::end(false) }
    fn ncclGroupSimulateEnd(_information: *mut c_void) { group::end(true) }
    fn ncclAllGather(send: In, receive: Out, n: usize, kind: i32, comm: Comm, _stream: Stream) {
        add(Kind::AllGather, send, receive, n, kind, comm)
    }
    fn ncclAllReduce(send: In, receive: Out, n: usize, kind: i32, op: i32, comm: Comm, _stream: Stream) {
        add(Kind::AllReduce(op), send, receive, n, kind, comm)
    }
    fn ncclAlltoAll(send: In, receive: Out, n: usize, kind: i32, comm: Comm, _stream: Stream) {
        add(Kind::AlltoAll, send, receive, n, kind, comm)
    }
    fn ncclBcast(buffer: Out, n: usize, kind: i32, root: i32, comm: Comm, _stream: Stream) {
        add(Kind::Broadcast(root), buffer, buffer, n, kind, comm)
    }
    fn ncclBroadcast(send: In, receive: Out, n: usize, kind: i32, root: i32, comm: Comm, _stream: Stream) {
        add(Kind::Broadcast(root), send, receive, n, kind, comm)
    }
    fn ncclGather(send: In, receive: Out, n: usize, kind: i32, root: i32, comm: Comm, _stream: Stream) {
        add(Kind::Gather(root), send, receive, n, kind, comm)
    }
    fn ncclReduce(send: In, receive: Out, n: usize, kind: i32, op: i32, root: i32, comm: Comm, _stream: Stream) {
        add(Kind::Reduce(op, root), send, receive, n, kind, comm)
    }
    fn ncclReduceScatter(send: In, receive: Out, n: usize, kind: i32, op: i32, comm: Comm, _stream: Stream) {
        add(Kind::ReduceScatter(op), send, receive, n, kind, comm)
    }
    fn ncclScatter(send: In, receive: Out, n: usize, kind: i32, root: i32, comm: Comm, _stream: Stream) {
        add(Kind::Scatter(root), send, receive, n, kind, comm)
    }
    fn ncclRecv(receive: Out, n: usize, kind: i32, peer: i32, comm: Comm, _stream: Stream) {
        add(Kind::Recv(peer), std::ptr::null(), receive, n, kind, comm)
    }
    fn ncclSend(send: In, n: usize, kind: i32, peer: i32, comm: Comm, _stream: Stream) {
        add(Kind::Send(peer), send, std::ptr::null_mut(), n, kind, comm)
    }
}

fn add(kind: Kind, send: In, receive: Out, count: usize, data_type: i32, comm: Comm) -> i32 {
    if comm.is_null() {
        return INVALID_ARGUMENT;
    }
    group::add(Operation { kind, send, receive, count, data_type, comm: comm.cast(), number: 0 })
}

fn tell(place: *mut i32, value: Option<i32>) -> i32 {
    let Some(value) = value else { return INVALID_ARGUMENT };
    // SAFETY: the program's place.
    unsafe { place.write(value) };
    SUCCESS
}

fn destroy(comm: Comm) -> i32 {
    if comm.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: a handle that was given out and is destroyed once.
    drop(unsafe { Box::from_raw(comm.cast::<Communicator>()) });
    SUCCESS
}

/// NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(_result: i32) -> *const c_char {
    c"fake".as_ptr()
}
