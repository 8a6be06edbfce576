//! NCCL's public functions, a line each: the kind of call, the name, the arguments with NCCL's own types, and what the
//! event says of it ([`crate::nccl::Operation`]).
//!
//! Functions of versions 2.10 to 2.32; a copy of NCCL that lacks one never comes to its line. Functions that only ask
//! (versions, ranks, errors, parameters) have no line: [`HARMLESS`].

use core::ffi::{CStr, c_void};

use gputrace_abi::Class;
use gputrace_abi::event::detail;

use super::Hook;
use crate::interpose::copies::COPIES;
use crate::nccl::{self, Comm, Operation, Running, UniqueId};
use crate::tls::entry;

/// One hooked function.
pub(crate) struct Function {
    /// Name, class and export.
    pub(crate) hook: Hook,
    /// What dlsym answers, by copy.
    pub(crate) entries: [*const (); COPIES],
}

// SAFETY: the only pointers are addresses of functions.
unsafe impl Sync for Function {}

/// Number of the first hook of this list.
pub(crate) const FIRST: u16 = super::nvtx::BASE + super::nvtx::EVENTS.len() as u16;

/// The function with this name, and its place in the list.
pub(crate) fn find(name: &CStr) -> Option<(&'static Function, usize)> {
    let at = LIST.iter().position(|function| function.hook.name == name)?;
    Some((LIST.get(at)?, at))
}

/// The name of a function of the list.
pub(crate) fn name(function: usize) -> &'static CStr {
    LIST.get(function).map_or(c"", |function| function.hook.name)
}

/// Beginnings of names of functions that only ask.
const HARMLESS: [&[u8]; 13] = [
    b"ncclCommCount",
    b"ncclCommCuDevice",
    b"ncclCommGetAsyncError",
    b"ncclCommMemStats",
    b"ncclCommQueryProperties",
    b"ncclCommUserRank",
    b"ncclGet",
    b"ncclParam",
    b"ncclRedOp",
    b"ncclResetDebugInit",
    b"ncclSetEncryption",
    b"ncclTeam",
    b"ncclWinGetUserPtr",
];

/// Whether this is a function of NCCL that does work and has no line here: a newer one.
pub(crate) fn is_uncovered(name: &CStr) -> bool {
    let name = name.to_bytes();
    let is_ours = name.starts_with(b"nccl") || name.starts_with(b"pnccl");
    is_ours && !HARMLESS.iter().any(|start| name.strip_prefix(b"p").unwrap_or(name).starts_with(start))
}

macro_rules! nccl {
    ($( $detail:ident : [$($name:ident),+ $(,)?] $arguments:tt => $operation:expr; )*) => {
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        enum Index { $($($name,)+)* }

        /// Every function.
        pub(crate) static LIST: [Function; COUNT] = [
            $($(Function {
                hook: Hook::new(
                    match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"",
                    },
                    Class::Collective,
                    detail::$detail,
                    false,
                    $name as *const (),
                ),
                entries: [
                    $name::entry::<0> as *const (),
                    $name::entry::<1> as *const (),
                    $name::entry::<2> as *const (),
                    $name::entry::<3> as *const (),
                ],
            },)+)*
        ];

        /// How many there are.
        pub(crate) const COUNT: usize = [$($(stringify!($name),)+)*].len();

        $($(nccl!(@one $name, $arguments, $operation);)+)*
    };
    (@one $name:ident, ($($argument:ident : $type:ty),* $(,)?), $operation:expr) => {
        #[allow(non_camel_case_types)]
        enum $name {}

        impl $name {
            /// What the export and the copies' entries jump to.
            unsafe extern "C" fn work($($argument: $type),*) -> u32 {
                let mut running = Running::new();
                let address = running.begin(Index::$name as usize, $operation);
                if address == 0 {
                    return nccl::SYSTEM_ERROR;
                }
                // SAFETY: the address is that of a function of this name in a copy of NCCL: this is its signature.
                let f: unsafe extern "C" fn($($type),*) -> u32 = unsafe { core::mem::transmute(address) };
                // SAFETY: the program's own arguments, passed on.
                let result = unsafe { f($($argument),*) };
                running.end(result);
                result
            }

            /// What a program gets that looked the function up in the copy of this number.
            #[unsafe(naked)]
            unsafe extern "C" fn entry<const COPY: usize>() {
                entry!($name::work, COPY)
            }
        }

        /// The hook of NCCL's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            entry!($name::work)
        }
    };
}

type Config = *mut c_void;
type In = *const c_void;
type Out = *mut c_void;
type Stream = *mut c_void;
type Window = *mut c_void;

nccl! {
    COLLECTIVE: [ncclAllGather](send: In, receive: Out, count: usize, kind: i32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind);
    COLLECTIVE: [ncclAllGatherConfig](
        send: In, receive: Out, count: usize, kind: i32, comm: Comm, stream: Stream, config: Config)
        => Operation::on(comm, stream).elements(count, kind);
    COLLECTIVE: [ncclAllReduce](send: In, receive: Out, count: usize, kind: i32, operator: i32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind).operator(operator);
    COLLECTIVE: [ncclAllReduceConfig](
        send: In, receive: Out, count: usize, kind: i32, operator: i32, comm: Comm, stream: Stream, config: Config)
        => Operation::on(comm, stream).elements(count, kind).operator(operator);
    COLLECTIVE: [ncclAlltoAll](send: In, receive: Out, count: usize, kind: i32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind);
    COLLECTIVE: [ncclAlltoAllConfig](
        send: In, receive: Out, count: usize, kind: i32, comm: Comm, stream: Stream, config: Config)
        => Operation::on(comm, stream).elements(count, kind);
    COLLECTIVE: [ncclBcast](buffer: Out, count: usize, kind: i32, root: i32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind).with(root);
    COLLECTIVE: [ncclBroadcast, ncclGather, ncclScatter](
        send: In, receive: Out, count: usize, kind: i32, root: i32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind).with(root);
    COLLECTIVE: [ncclBroadcastConfig, ncclGatherConfig, ncclScatterConfig](
        send: In, receive: Out, count: usize, kind: i32, root: i32, comm: Comm, stream: Stream, config: Config)
        => Operation::on(comm, stream).elements(count, kind).with(root);
    COLLECTIVE: [ncclReduce](
        send: In, receive: Out, count: usize, kind: i32, operator: i32, root: i32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind).operator(operator).with(root);
    COLLECTIVE: [ncclReduceConfig](
        send: In, receive: Out, count: usize, kind: i32, operator: i32, root: i32, comm: Comm, stream: Stream,
        config: Config)
        => Operation::on(comm, stream).elements(count, kind).operator(operator).with(root);
    COLLECTIVE: [ncclReduceScatter](
        send: In, receive: Out, count: usize, kind: i32, operator: i32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind).operator(operator);
    COLLECTIVE: [ncclReduceScatterConfig](
        send: In, receive: Out, count: usize, kind: i32, operator: i32, comm: Comm, stream: Stream, config: Config)
        => Operation::on(comm, stream).elements(count, kind).operator(operator);

    POINT_TO_POINT: [ncclPutSignal](
        local: In, count: usize, kind: i32, peer: i32, window: Window, offset: usize, signal: i32, context: i32, flags: u32,
        comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind).with(peer);
    POINT_TO_POINT: [ncclRecv](receive: Out, count: usize, kind: i32, peer: i32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind).with(peer);
    POINT_TO_POINT: [ncclSend](send: In, count: usize, kind: i32, peer: i32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).elements(count, kind).with(peer);
    POINT_TO_POINT: [ncclSignal](peer: i32, signal: i32, context: i32, flags: u32, comm: Comm, stream: Stream)
        => Operation::on(comm, stream).with(peer);
    POINT_TO_POINT: [ncclWaitSignal](count: i32, descriptions: *mut c_void, comm: Comm, stream: Stream)
        => Operation::on(comm, stream);

    GROUP: [ncclGroupEnd]() => Operation::ends_group();
    GROUP: [ncclGroupSimulateEnd](information: *mut c_void) => Operation::ends_group();
    GROUP: [ncclGroupStart]() => Operation::begins_group();

    COMMUNICATOR: [ncclCommAbort, ncclCommDestroy](comm: Comm) => Operation::ends(comm);
    COMMUNICATOR: [ncclCommFinalize, ncclCommResume](comm: Comm) => Operation::about(comm);
    COMMUNICATOR: [ncclCommGetUniqueId](comm: Comm, id: *mut UniqueId) => Operation::about(comm);
    COMMUNICATOR: [ncclCommGrow](
        comm: Comm, ranks: i32, id: *const UniqueId, rank: i32, place: *mut Comm, config: Config)
        => Operation::derives(comm, place).by_ids(id, 1).ranked(rank, ranks);
    COMMUNICATOR: [ncclCommInitAll](places: *mut Comm, count: i32, devices: *const i32)
        => Operation::makes_all(places, count, devices);
    COMMUNICATOR: [ncclCommInitRank](place: *mut Comm, ranks: i32, id: UniqueId, rank: i32)
        => Operation::makes(place).by_ids(&id, 1).ranked(rank, ranks);
    COMMUNICATOR: [ncclCommInitRankConfig](place: *mut Comm, ranks: i32, id: UniqueId, rank: i32, config: Config)
        => Operation::makes(place).by_ids(&id, 1).ranked(rank, ranks);
    COMMUNICATOR: [ncclCommInitRankScalable](
        place: *mut Comm, ranks: i32, rank: i32, count: i32, ids: *const UniqueId, config: Config)
        => Operation::makes(place).by_ids(ids, count).ranked(rank, ranks);
    COMMUNICATOR: [ncclCommRevoke, ncclCommSuspend](comm: Comm, flags: i32) => Operation::about(comm);
    COMMUNICATOR: [ncclCommShrink](
        comm: Comm, excluded: *mut i32, count: i32, place: *mut Comm, config: Config, flags: i32)
        => Operation::derives(comm, place);
    COMMUNICATOR: [ncclCommSplit](comm: Comm, color: i32, key: i32, place: *mut Comm, config: Config)
        => Operation::derives(comm, place).colored(color);
    COMMUNICATOR: [ncclGetUniqueId](id: *mut UniqueId) => Operation::none();

    MEMORY: [ncclCommDeregister, ncclCommWindowDeregister](comm: Comm, registration: *mut c_void) => Operation::about(comm);
    MEMORY: [ncclCommRegister](comm: Comm, buffer: Out, bytes: usize, registration: *mut *mut c_void)
        => Operation::about(comm).bytes(bytes);
    MEMORY: [ncclCommWindowRegister](comm: Comm, buffer: Out, bytes: usize, window: *mut Window, flags: i32)
        => Operation::about(comm).bytes(bytes);
    MEMORY: [ncclMemAlloc](place: *mut *mut c_void, bytes: usize) => Operation::none().bytes(bytes);
    MEMORY: [ncclMemFree](memory: *mut c_void) => Operation::none();
}
