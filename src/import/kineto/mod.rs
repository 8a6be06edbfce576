//! Traces of torch.profiler (Kineto): Chrome's JSON, with a GPU's work beside the calls that caused it.
//!
//! Read event by event ([`pieces`]). Times are microseconds, since 1970 or since `baseTimeNanoseconds`, which may come
//! last. A GPU's events have the device as pid and the stream as tid; whose they are is told by their correlation.

mod collectives;
mod event;
mod pieces;
mod python;

pub(crate) use collectives::{OPERATOR, Told};

use std::io::{self, BufRead};

use gputrace_collectors::manifest::Device;
use gputrace_collectors::names::NameKind;
use serde_json::Value;

use super::calls::{self, Kind};
use super::events::{Beside, Call, Caller, Copy, Function, Kernel, Lane, NOWHERE, Named, Range, Work};
use super::gathered::{Gathered, LATEST_BASE_NS};
use event::{Args, Event, last_of_each, mended, ns, number, plain, small, three, unquoted, whole};
use pieces::{Piece, Pieces};

/// A time that is later than 2001 is one since 1970, whatever `baseTimeNanoseconds` says.
const ABSOLUTE_NS: i64 = 1_000_000_000_000_000_000;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum KinetoError {
    #[error("is not a trace of torch.profiler: {0}")]
    Foreign(&'static str),
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Reads a trace.
pub(super) fn read(input: impl BufRead) -> Result<Gathered, KinetoError> {
    let mut found = Gathered::new("Kineto JSON");
    let mut pieces = Pieces::new(input);
    let (mut events, mut base_ns) = (0u64, 0);
    loop {
        let next = pieces.next(|text| {
            let taken = whole_event(&mut found, text);
            events += u64::from(taken.is_some());
            taken
        });
        match next {
            Ok(Piece::Event) => {
                events += 1;
                take(&mut found, &pieces.buffer);
            }
            Ok(Piece::Member(key)) => member(&mut found, &key, &pieces.buffer, &mut base_ns),
            Ok(Piece::End) => break,
            Ok(Piece::More) => {
                found.notes.push(
                    "something follows the end of the JSON and is left out: two files may have been put together"
                        .to_owned(),
                );
                break;
            }
            Ok(Piece::Foreign) if events == 0 => {
                return Err(KinetoError::Foreign("it is no JSON object with traceEvents"));
            }
            Ok(Piece::Foreign | Piece::CutOff) => {
                found
                    .notes
                    .push(format!("the file ends in the middle, after event {events}: what came later is missing"));
                break;
            }
            // A compressed file that was cut off.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && events > 0 => {
                found
                    .notes
                    .push(format!("the file ends in the middle, after event {events}: what came later is missing"));
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if found.rows() == 0 && found.left_out.is_empty() {
        return Err(KinetoError::Foreign("no event in it is one of a profiler"));
    }
    if (1..LATEST_BASE_NS).contains(&base_ns) && found.span_ns().is_some_and(|(first, _)| first < ABSOLUTE_NS) {
        found.shift(base_ns);
    }
    if let Some((first, _)) = found.span_ns().filter(|(first, _)| *first < 0) {
        found.shift(-first);
        found.notes.push("times begin before 1970: all are later by so much that they begin then".to_owned());
    }
    Ok(found)
}

/// Takes an event in.
fn take(found: &mut Gathered, text: &[u8]) {
    if read_event(found, text) {
        return;
    }
    let mended = mended(text);
    let read = read_event(found, &mended)
        || last_of_each(text).or_else(|| last_of_each(&mended)).is_some_and(|text| read_event(found, &text));
    found.broken += u64::from(!read);
}

/// Takes an event in with which a text begins, if that is one. How many bytes it has.
fn whole_event(found: &mut Gathered, text: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Event<'_>>();
    let event = values.next()?.ok()?;
    found.broken += u64::from(place(found, &event).is_none());
    Some(values.byte_offset())
}

/// Takes an event in if it is one. What it lacks is counted.
fn read_event(found: &mut Gathered, text: &[u8]) -> bool {
    let Ok(event) = serde_json::from_slice::<Event<'_>>(text) else { return false };
    found.broken += u64::from(place(found, &event).is_none());
    true
}

/// Puts an event where it belongs. None: a value that it must have is missing.
fn place(found: &mut Gathered, event: &Event<'_>) -> Option<()> {
    let (ph, cat) = (event::text(&event.ph), event::text(&event.cat));
    let none = Args::default();
    let args = event.args.as_ref().unwrap_or(&none);
    match (ph, cat) {
        ("M", _) => {
            metadata(found, event, args);
            Some(())
        }
        ("X", "cuda_runtime" | "cuda_driver" | "metal" | "Runtime") => call(found, event, args),
        ("X", "kernel" | "Kernel") => kernel(found, event, args),
        ("X", "gpu_memcpy" | "gpu_memset" | "Memcpy" | "Memset") => copy(found, event, args, cat.ends_with("emset")),
        ("X", "cuda_sync") => {
            // A wait's stream stands only here; the wait itself is a call.
            let stream = whole(args.wait_on_stream).filter(|s| *s >= 0).or(whole(args.stream));
            if let (Some(correlation), Some(stream)) = (whole(args.correlation), stream.filter(|s| *s >= 0)) {
                found.sync_streams.insert(correlation, (stream, small(args.context).unwrap_or(0)));
            }
            beside(found, event, args, "sync")
        }
        ("X", "gpu_user_annotation") => beside(found, event, args, "annotation"),
        ("X", "python_function") => function(found, event, args),
        ("X", "cpu_op") if event.name.as_ref().is_some_and(|name| name.0 == OPERATOR) => {
            range(found, event, args, cat, "push_pop")?;
            let process = found.process(whole(event.pid)?);
            let tid = whole(event.tid).unwrap_or(0) as i32;
            collectives::take(found, args, process, tid, ns(event.ts)?, ns(event.dur)?.max(0));
            Some(())
        }
        ("X", "user_annotation" | "cpu_op" | "Operator") => range(found, event, args, cat, "push_pop"),
        ("i" | "I", "user_annotation") => range(found, event, args, cat, "mark"),
        ("C", _) => {
            found.leave_out("counter");
            Some(())
        }
        (_, "") => {
            found.leave_out(if ph == "X" { "without a category" } else { "other" });
            Some(())
        }
        _ => {
            found.leave_out(cat);
            Some(())
        }
    }
}

fn call(found: &mut Gathered, event: &Event<'_>, args: &Args<'_>) -> Option<()> {
    let (start_ns, api_ns) = (ns(event.ts)?, found.length(ns(event.dur)?));
    let name = &args.driver_function.as_ref().or(event.name.as_ref())?.0;
    let process = found.process(whole(event.pid)?);
    let correlation = number(args.correlation);
    if let (Some(correlation), Some(stream)) = (correlation, whole(args.waits_for)) {
        found.sync_streams.insert(correlation.get(), (stream, 0));
    }
    let caller = Caller {
        process,
        tid: whole(event.tid).unwrap_or(0) as i32,
        api_id: found.name(NameKind::Api, name),
        kernel_id: args.kernel.as_ref().map(|kernel| found.name(NameKind::Kernel, &kernel.0)),
        kind: Kind::of(name),
        result: small(args.result).unwrap_or(0),
    };
    let caller = found.callers.number(caller);
    found.calls.push(Call { start_ns, api_ns, correlation, caller, stack: None, external: number(args.external) });
    Some(())
}

/// A call of a function of Python: a frame of what was called inside of it.
fn function(found: &mut Gathered, event: &Event<'_>, args: &Args<'_>) -> Option<()> {
    let start_ns = ns(event.ts)?;
    let name = &event.name.as_ref()?.0;
    let function = Function {
        start_ns,
        end_ns: start_ns + found.length(ns(event.dur)?),
        process: found.process(whole(event.pid)?),
        tid: whole(event.tid).unwrap_or(0) as i32,
        frame: found.stacks.frame(python::frame(name)),
        name_id: found.name(NameKind::Range, name),
        numbers: [args.function, args.caller, args.module].map(small),
    };
    found.functions.push(function);
    Some(())
}

/// What is told of a GPU beside its work. A wait itself is a call, which need not be in the file.
fn beside(found: &mut Gathered, event: &Event<'_>, args: &Args<'_>, kind: &'static str) -> Option<()> {
    let beside = Beside {
        start_ns: ns(event.ts)?,
        event_ns: found.length(ns(event.dur)?),
        kind,
        name_id: event.name.as_ref().map(|name| found.name(NameKind::Range, &name.0)),
        lane: lane(event, args),
        correlation: whole(args.correlation),
        external: number(args.external),
        waits_for: [args.wait_on_stream, args.wait_on_cuda_event_id, args.wait_on_cuda_event_record_corr_id].map(whole),
    };
    found.beside.push(beside);
    Some(())
}

/// What a GPU's event says of its time; what it was is still to be told.
fn work(found: &mut Gathered, event: &Event<'_>, args: &Args<'_>) -> Option<Work> {
    Some(Work {
        start_ns: ns(event.ts)?,
        gpu_ns: found.length(ns(event.dur)?),
        process: NOWHERE,
        correlation: number(args.correlation),
        what: 0,
        external: number(args.external),
    })
}

fn lane(event: &Event<'_>, args: &Args<'_>) -> Lane {
    Lane {
        device: small(args.device).or(small(event.pid)),
        context: small(args.context).unwrap_or(0),
        stream: whole(args.stream).or(whole(event.tid)).unwrap_or(0),
        graph: whole(args.graph).filter(|graph| *graph > 0),
        graph_node: whole(args.graph_node).filter(|node| *node > 0),
    }
}

fn kernel(found: &mut Gathered, event: &Event<'_>, args: &Args<'_>) -> Option<()> {
    let work = work(found, event, args)?;
    let name_id = event.name.as_ref().map(|name| found.name(NameKind::Kernel, &name.0));
    // Kineto's "shared memory" is both kinds together.
    let dynamic = small(args.dynamic_shared).or(small(args.shared));
    let kernel = Kernel {
        lane: lane(event, args),
        name_id,
        grid: three(args.grid),
        block: three(args.block),
        registers: small(args.registers),
        static_shared_bytes: small(args.static_shared),
        shared_bytes: dynamic,
        whole_graph: false,
    };
    found.kernels.push(Work { what: found.kernel_kinds.number(kernel), ..work });
    Some(())
}

fn copy(found: &mut Gathered, event: &Event<'_>, args: &Args<'_>, set: bool) -> Option<()> {
    let work = work(found, event, args)?;
    let name = event.name.as_ref().map_or("", |name| &name.0);
    let (direction, src_kind, dst_kind) = match (set, calls::copy_of(name)) {
        (true, (_, kind, _)) => ("unknown", None, kind),
        (false, known) => known,
    };
    let bytes = whole(args.bytes).unwrap_or(0).max(0);
    let copy = Copy { lane: lane(event, args), set, direction, src_kind, dst_kind, bytes };
    found.copies.push(Work { what: found.copy_kinds.number(copy), ..work });
    Some(())
}

fn range(found: &mut Gathered, event: &Event<'_>, args: &Args<'_>, cat: &str, kind: &'static str) -> Option<()> {
    let start_ns = ns(event.ts)?;
    let end_ns = if kind == "mark" { start_ns } else { start_ns + found.length(ns(event.dur)?) };
    let process = found.process(whole(event.pid)?);
    let domain = match &args.domain {
        Some(domain) if domain.0.is_empty() => None,
        Some(domain) => Some(domain.0.as_ref()),
        None if cat == "Operator" => Some("cpu_op"),
        None => Some(cat),
    };
    let kind = if args.range.as_ref().is_some_and(|kind| kind.0 == "start_end") { "start_end" } else { kind };
    let named = Named {
        process,
        tid: whole(event.tid).unwrap_or(0) as i32,
        kind,
        name_id: event.name.as_ref().map(|name| found.name(NameKind::Range, &name.0)),
        domain_id: domain.map(|domain| found.name(NameKind::Domain, domain)),
        open: args.open,
    };
    found.shapes += u64::from(args.shapes.is_some());
    let named = found.named.number(named);
    found.ranges.push(Range { start_ns, end_ns, named, level: -1, external: number(args.external) });
    Some(())
}

/// Names of processes and threads. A GPU's are among them; only those of processes with rows are written.
fn metadata(found: &mut Gathered, event: &Event<'_>, args: &Args<'_>) {
    let what = event.name.as_ref().map_or("", |name| &name.0);
    let named = args.name.and_then(unquoted);
    let (Some(named), Some(pid)) = (named, event.pid.and_then(|pid| plain(pid).parse().ok())) else { return };
    let process = found.process(pid);
    match what {
        "process_name" => found.processes[process].name = named,
        "thread_name" => {
            if let Some(tid) = whole(event.tid) {
                found.processes[process].threads.insert(tid as i32, named);
            }
        }
        _ => {}
    }
}

/// A member of the object around the events.
fn member(found: &mut Gathered, key: &str, text: &[u8], base_ns: &mut i64) {
    let value = serde_json::from_slice::<Value>(text).or_else(|_| serde_json::from_slice(&mended(text)));
    let Ok(value) = value else { return };
    let int = |value: &Value, key: &str| value.get(key).and_then(Value::as_i64);
    match key {
        "baseTimeNanoseconds" => *base_ns = value.as_i64().unwrap_or(0),
        "distributedInfo" => {
            let small = |key| int(&value, key).and_then(|v| i32::try_from(v).ok());
            (found.rank, found.world_size) = (small("rank"), small("world_size"));
        }
        "hostname" | "host_name" => found.host = value.as_str().map(str::to_owned),
        "deviceProperties" => {
            for device in value.as_array().into_iter().flatten() {
                let Some(ordinal) = int(device, "id").and_then(|v| i32::try_from(v).ok()) else { continue };
                let text = |key: &str| device.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                let capability = int(device, "computeMajor").zip(int(device, "computeMinor"));
                let described = Device {
                    uuid: text("uuid"),
                    name: text("name"),
                    compute_capability: capability.map_or(String::new(), |(major, minor)| format!("{major}.{minor}")),
                    sm_count: int(device, "numSms"),
                    sm_threads: int(device, "maxThreadsPerMultiprocessor"),
                    memory_bytes: int(device, "totalGlobalMem"),
                    ..Device::default()
                };
                found.devices.insert(ordinal, described);
            }
        }
        _ => {}
    }
}
