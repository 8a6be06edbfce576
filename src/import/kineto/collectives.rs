//! Collectives, where PyTorch recorded their parameters: `record_param_comms`, an operator around each call of NCCL.
//!
//! Its arguments name the collective as `torch.distributed` does, elements in and out, their type, and the process group
//! with its ranks. The call of NCCL itself is no event; the row has the function that PyTorch calls for it, and the
//! operator's time. What other versions call it is left out and counted. Our own export tells calls in the same way ([`Told`]),
//! with the function, the bytes and the communicator beside it, so that nothing is lost.

use gputrace_collectors::names::NameKind;
use serde_json::value::RawValue;

use super::event::{Args, number, plain, small, whole};
use crate::import::events::{Collective, Group};
use crate::import::gathered::Gathered;

/// Which side's elements are the share of one rank.
#[derive(Clone, Copy)]
enum Share {
    In,
    Out,
    /// Those that go in, divided among the ranks.
    InEach,
}

/// `torch.distributed`'s names, NCCL's function, and its share.
const KNOWN: [(&str, &str, Share); 18] = [
    ("_allgather_base", "ncclAllGather", Share::In),
    ("_reduce_scatter_base", "ncclReduceScatter", Share::Out),
    ("all_gather", "ncclAllGather", Share::In),
    ("all_to_all", "ncclAlltoAll", Share::InEach),
    ("all_to_allv", "ncclAlltoAll", Share::InEach),
    ("allgather", "ncclAllGather", Share::In),
    ("allgather_into_tensor_coalesced", "ncclAllGather", Share::In),
    ("allreduce", "ncclAllReduce", Share::In),
    ("allreduce_coalesced", "ncclAllReduce", Share::In),
    ("allreduce_sparse", "ncclAllReduce", Share::In),
    ("barrier", "ncclAllReduce", Share::In),
    ("broadcast", "ncclBroadcast", Share::In),
    ("gather", "ncclGather", Share::In),
    ("recv", "ncclRecv", Share::Out),
    ("reduce", "ncclReduce", Share::In),
    ("reduce_scatter", "ncclReduceScatter", Share::Out),
    ("scatter", "ncclScatter", Share::Out),
    ("send", "ncclSend", Share::In),
];

/// The operator's name.
pub(crate) const OPERATOR: &str = "record_param_comms";

/// What makes the communicators of process groups.
const MADE_BY: &str = "ProcessGroupNCCL";

/// PyTorch's names of types, NCCL's, and bytes of an element.
const TYPES: [(&str, &str, i64); 17] = [
    ("BFloat16", "bfloat16", 2),
    ("Bool", "uint8", 1),
    ("Byte", "uint8", 1),
    ("Char", "int8", 1),
    ("ComplexDouble", "float64", 16),
    ("ComplexFloat", "float32", 8),
    ("Double", "float64", 8),
    ("Float", "float32", 4),
    ("Float8_e4m3fn", "float8e4m3", 1),
    ("Float8_e4m3fnuz", "float8e4m3", 1),
    ("Float8_e5m2", "float8e5m2", 1),
    ("Float8_e5m2fnuz", "float8e5m2", 1),
    ("Half", "float16", 2),
    ("Int", "int32", 4),
    ("Long", "int64", 8),
    ("UInt32", "uint32", 4),
    ("UInt64", "uint64", 8),
];

/// A call as the operator's arguments tell it.
pub(crate) struct Told<'a> {
    pub(crate) name: &'a str,
    pub(crate) data_type: &'a str,
    pub(crate) elements_in: i64,
    pub(crate) elements_out: i64,
}

impl<'a> Told<'a> {
    /// A call of this function of NCCL, with its type and count, among so many ranks.
    pub(crate) fn of(function: &'a str, data_type: &'a str, count: i64, ranks: i32) -> Told<'a> {
        // NCCL has two names for it.
        let known = KNOWN.iter().find(|(_, known, _)| *known == function.replace("ncclBcast", "ncclBroadcast"));
        let (name, share) = known.map_or((function, Share::In), |(name, _, share)| (*name, *share));
        // Of several with the same elements the last one is the usual one: Byte, not Bool; Float, not ComplexFloat.
        let kind = TYPES.iter().rev().find(|(_, known, _)| *known == data_type);
        let all = count.saturating_mul(i64::from(ranks.max(1)));
        let (elements_in, elements_out) = match (share, function) {
            (Share::InEach, _) => (all, all),
            (Share::In, "ncclAllGather" | "ncclGather") => (count, all),
            (Share::Out, "ncclReduceScatter" | "ncclScatter") => (all, count),
            _ => (count, count),
        };
        Told { name, data_type: kind.map_or(data_type, |(name, ..)| name), elements_in, elements_out }
    }
}

/// Takes in a collective of this process, thread and time.
pub(super) fn take(found: &mut Gathered, args: &Args<'_>, process: usize, tid: i32, start_ns: i64, api_ns: i64) {
    let called = args.collective.map(plain).unwrap_or_default();
    let known = KNOWN.iter().find(|(name, ..)| *name == called.trim_end_matches("_oop").trim_start_matches("nccl:"));
    let known = known.map(|(_, function, share)| (*function, *share));
    let own = args.nccl_call.as_ref().map(|function| (&*function.0, known.map_or(Share::In, |(_, share)| share)));
    let Some((function, share)) = own.or(known) else {
        found.leave_out(&format!("parameters of {}", if called.is_empty() { "unnamed collectives" } else { called }));
        return;
    };
    let ranks = small(args.group_size).filter(|ranks| *ranks > 0);
    let elements = |value: Option<&RawValue>| whole(value).unwrap_or(0).max(0);
    let count = match share {
        Share::In => elements(args.elements_in),
        Share::Out => elements(args.elements_out),
        Share::InEach => elements(args.elements_in) / i64::from(ranks.unwrap_or(1)),
    };
    let dtype = args.dtype.map(plain);
    let kind = TYPES.iter().find(|(name, ..)| Some(*name) == dtype);
    let group = Group {
        process,
        name: args.group_name.map(plain).unwrap_or_default().to_owned(),
        members: args.group_ranks.map(plain).unwrap_or_default().to_owned(),
        ranks,
        unique_id: whole(args.communicator_id).filter(|id| *id != 0),
        rank: small(args.communicator_rank).filter(|rank| *rank >= 0),
        api_id: found.name(NameKind::Api, MADE_BY),
        start_ns,
        tid,
    };
    let own_bytes = whole(args.bytes).filter(|bytes| *bytes >= 0);
    let collective = Collective {
        start_ns,
        api_ns,
        process,
        tid,
        api_id: found.name(NameKind::Api, function),
        kind: if matches!(function, "ncclSend" | "ncclRecv") { "point_to_point" } else { "collective" },
        // A call whose communicator was not known has none.
        group: if whole(args.communicator) == Some(0) { 0 } else { found.group(group) },
        count,
        data_type: kind.map(|(_, name, _)| *name),
        bytes: own_bytes.unwrap_or(count.saturating_mul(kind.map_or(1, |(.., bytes)| *bytes))).min(1 << 50),
        stack: None,
        external: number(args.external),
    };
    found.collectives.push(collective);
}
