//! Events to rows: ticks become nanoseconds, handles become names, addresses become kinds of memory.

use gputrace_abi::Class;
use gputrace_abi::collective::{unpack_party, unpack_type};
use gputrace_abi::event::{
    Event, FLAG_CAPTURED, FLAG_IN_GROUP, MemoryKind, detail, drawn_power, memory_kinds, unpack_block, unpack_grid,
};
use gputrace_abi::metal::FLAG_NUMBERED;
use gputrace_abi::shed::Shed;

use super::Process;
use super::gpu::{Given, Gpu, What};
use super::intake::key;
use super::metal;
use super::pending::{Ahead, StreamId};
use crate::bindings::Memory;
use crate::clock::Clocks;
use crate::facts::Role;
use crate::names::{NameKind, Written};
use crate::schema::MOST_BYTES;

use crate::tables::{Call, Collective, End, Launch, OsWait, Tables, Transfer};

impl Process {
    /// Writes the name of a hook's function, once, and says its class.
    #[inline]
    pub(super) fn announce(&mut self, hook: usize, tables: &mut Tables, written: &mut Written) -> Option<Class> {
        let hook = self.intake.hooks.get_mut(hook)?;
        if !hook.announced {
            hook.announced = true;
            if written.insert(hook.api_id) {
                tables.name(hook.api_id, NameKind::Api.name(), &hook.name);
            }
        }
        Some(hook.class)
    }

    /// Adds the rows of events whose bindings are all known.
    pub(crate) fn resolve(&mut self, events: &[Event], clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        for event in events {
            let Some(class) = self.announce(event.hook.into(), tables, written) else { continue };
            match class {
                Class::HostAlloc | Class::HostFree => {
                    if let Some(thread) = self.threads.get(event.commit as usize) {
                        self.host.take(event, class, thread.tid);
                    }
                }
                // Paired afterwards.
                Class::Range => {}
                Class::OsWait => self.os_wait(event, clocks, tables, written),
                _ => self.driver_call(event, clocks, tables, written),
            }
        }
    }

    #[inline]
    fn driver_call(&mut self, event: &Event, clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        if !self.reported.is_empty() {
            self.note_return(event);
        }
        let Some(hook) = self.intake.hooks.get(usize::from(event.hook)) else { return };
        let Some(thread) = self.threads.get_mut(event.commit as usize) else { return };
        let number = thread.calls;
        thread.calls += 1;
        (thread.latest_start, thread.latest) = (event.start, event.end);
        if event.result == 0 && !matches!(hook.class, Class::Api | Class::Module) {
            thread.worked = event.end;
        }
        let [first, stream, third, fourth] = event.payload;
        let stack = self.intake.stacks.of(event, tables, written);
        let mut call = Call {
            class: hook.class,
            start_ns: clocks.ns(self.clock, event.start),
            api_ns: clocks.span_ns(self.clock, event.start, event.end),
            process_id: self.id,
            pid: self.pid,
            tid: thread.tid,
            correlation_id: thread.correlation() | (number & 0xffff_ffff) as i64,
            api_id: hook.api_id,
            context: event.context.into(),
            device: self.intake.contexts.device(event.context),
            stream: stream as i64,
            captured: event.flags & FLAG_CAPTURED != 0,
            result: event.result.into(),
            stack_id: stack.id,
            ahead: Ahead::default(),
        };
        if metal::takes(hook) {
            if hook.class == Class::Encode {
                tables.encoded(&call);
            }
            return self.intake.metal.take(metal::Message {
                call,
                detail: hook.detail,
                role: hook.role,
                numbered: event.flags & FLAG_NUMBERED != 0,
                at: event.start,
                end_ns: clocks.ns(self.clock, event.end),
                payload: event.payload,
                stack_launches: stack.launches,
            });
        }
        let follows =
            !call.captured && (event.result == 0 || hook.detail == detail::QUERY && hook.class == Class::Sync);
        let (pending, context, at) = (&mut self.pending, event.context, event.start);
        let stream_id = StreamId::new(stream, event.commit);
        match hook.class {
            Class::Launch => {
                if follows {
                    call.ahead = pending.work(context, stream_id, at);
                    pending.returned(context, stream_id, Some(event.hook), event.end);
                }
                let kernel = hook.detail == detail::KERNEL;
                let (block, shared_bytes) = if kernel { unpack_block(fourth) } else { ([0; 3], 0) };
                let graph = (hook.detail == detail::GRAPH).then(|| self.intake.graphs.find(first, at)).flatten();
                let kernels = match hook.detail {
                    _ if call.captured || event.result != 0 => Some(0),
                    detail::KERNEL => Some(1),
                    detail::GRAPH => graph.and_then(|graph| graph.kernels),
                    _ => Some(0),
                };
                let launch = Launch {
                    name_id: if kernel { self.intake.names.find(first, event.start) } else { None },
                    function: first as i64,
                    grid: if kernel { unpack_grid(third) } else { [0; 3] },
                    block,
                    shared_bytes,
                    kernels: kernels.map(|kernels| kernels.min(i32::MAX as u32) as i32),
                    graph_exec_id: graph.map(|graph| graph.number as i64),
                    stack_launches: stack.launches,
                    stands_for: Some(drawn_power(event.flags))
                        .filter(|power| *power > 0)
                        .map(|power| 1 << power.min(Shed::MOST)),
                };
                let what = match hook.detail {
                    detail::KERNEL => Some(What::Kernel(third, fourth)),
                    detail::GRAPH => Some(What::Graph),
                    _ => None,
                };
                if let Some(what) = what {
                    // CUPTI makes a graph's launch dearer by as much for each five of its nodes.
                    let nodes = launch.kernels.filter(|_| what == What::Graph).unwrap_or(0).max(0);
                    let count = f64::from(launch.stands_for.unwrap_or(1)).max(f64::from(nodes) / 5.0);
                    gave(&mut self.gpu, &call, what, count);
                }
                self.gpu.samples.launched(event, &call, &launch);
                tables.launch(&call, &launch);
            }
            Class::Sync => {
                call.ahead = match hook.detail {
                    _ if !follows => Ahead::default(),
                    detail::CONTEXT => pending.wait_context(context, at, true),
                    detail::STREAM => pending.wait_stream(context, stream_id, at, true),
                    detail::EVENT => pending.wait_event(first, at, true),
                    // An answer that nothing is left to wait for is as good as a wait.
                    detail::QUERY if stream == 0 && first != 0 => pending.wait_event(first, at, event.result == 0),
                    detail::QUERY => pending.wait_stream(context, stream_id, at, event.result == 0),
                    _ if hook.role == Role::WaitsForEvent => pending.join(context, stream_id, first, at),
                    _ => Ahead::default(),
                };
                match hook.detail {
                    _ if !follows || event.result != 0 => {}
                    detail::EVENT => pending.event_returned(first, event.end),
                    detail::QUERY if stream == 0 && first != 0 => pending.event_returned(first, event.end),
                    detail::STREAM | detail::QUERY => pending.returned(context, stream_id, None, event.end),
                    _ => {}
                }
                tables.sync(&call, hook.detail, first as i64);
            }
            Class::Transfer => {
                let (source, destination) = memory_kinds(event.flags);
                let memory = &self.intake.memory;
                let transfer = Transfer {
                    set: hook.is_set(),
                    peer: hook.peer,
                    src_kind: if hook.is_set() { End::Unknown } else { end(memory, source, third, event.start) },
                    dst_kind: if hook.is_set() && destination == MemoryKind::Unknown {
                        set_end(memory, first, event.start)
                    } else {
                        end(memory, destination, first, event.start)
                    },
                    bytes: size(fourth),
                    dst: first as i64,
                    src: third as i64,
                    is_async: hook.is_async(),
                };
                if follows {
                    call.ahead = match transfer.waits() {
                        Some(done) => pending.wait_stream(context, stream_id, at, done),
                        None => pending.work(context, stream_id, at),
                    };
                    let gave = transfer.waits().is_none().then_some(event.hook);
                    pending.returned(context, stream_id, gave, event.end);
                }
                let what = if transfer.set { What::Set(fourth) } else { What::Copy(fourth) };
                gave(&mut self.gpu, &call, what, 1.0);
                tables.transfer(&call, &transfer);
            }
            Class::Alloc => {
                if follows {
                    call.ahead = match hook.detail {
                        detail::POOL => pending.work(context, stream_id, at),
                        _ => pending.wait_context(context, at, false),
                    };
                }
                tables.memory(&call, hook.detail, first as i64, size(fourth), None);
            }
            Class::Free => {
                let block = self.intake.memory.freed(key(hook.detail, first), event.start);
                // cuMemFree and cuMemFreeHost free what several functions gave out.
                let kind = block.map_or(hook.detail, |b| b.detail);
                if follows {
                    call.ahead = match hook.detail {
                        detail::POOL => pending.work(context, stream_id, at),
                        // Freeing nothing does nothing; giving back address space waits for nobody that we know of.
                        detail::PHYSICAL | detail::MAPPING => pending.wait_context(context, at, false),
                        _ => pending.wait_context(context, at, first != 0),
                    };
                }
                let bytes = if fourth == 0 { block.map_or(0, |b| b.bytes) } else { fourth };
                tables.memory(&call, kind, first as i64, size(bytes), None);
            }
            Class::Collective => {
                let ((communicator, party), (data_type, operator)) = (unpack_party(first), unpack_type(fourth));
                let in_group = event.flags & FLAG_IN_GROUP != 0;
                let detail = hook.detail;
                if detail == detail::COLLECTIVE && event.result == 0 {
                    self.communicators.entered(communicator, event);
                }
                let own = Collective { detail, communicator, count: third, data_type, operator, party, in_group };
                tables.collective(&call, &own);
            }
            _ => {
                match hook.role {
                    _ if !follows => {}
                    Role::CreatesStream => pending.create(context, StreamId::new(first, event.commit), fourth),
                    Role::RecordsEvent => pending.record(context, first, stream_id, at),
                    Role::Other if hook.class == Class::Module => call.ahead = pending.wait_context(context, at, false),
                    _ => {}
                }
                tables.api(&call, first as i64, hook.class == Class::Module && compiles(hook.detail, fourth));
            }
        }
    }

    /// Makes rows of Metal's messages, as [`metal::Metal::settle`] says. `last`: no other message comes.
    pub(super) fn settle_metal(
        &mut self,
        horizon: u64,
        clocks: &Clocks,
        tables: &mut Tables,
        written: &mut Written,
        last: bool,
    ) {
        let (intake, kind) = (&mut self.intake, self.clock);
        let (pending, recording) = (&mut self.pending, &self.recording);
        let around = &mut metal::Around { names: &intake.names, pending, tables, written, recording };
        match last {
            true => intake.metal.finish(clocks, kind, around),
            false => intake.metal.settle(horizon, clocks, kind, around),
        }
    }

    fn os_wait(&mut self, event: &Event, clocks: &Clocks, tables: &mut Tables, written: &mut Written) {
        let stack = self.intake.stacks.of(event, tables, written);
        let Some(hook) = self.intake.hooks.get(usize::from(event.hook)) else { return };
        let Some(thread) = self.threads.get(event.commit as usize) else { return };
        let [address, descriptor, _, returned] = event.payload;
        let moves = matches!(hook.detail, detail::READ | detail::WRITE) && event.result == 0;
        tables.os_wait(&OsWait {
            start_ns: clocks.ns(self.clock, event.start),
            wait_ns: clocks.span_ns(self.clock, event.start, event.end),
            process_id: self.id,
            pid: self.pid,
            tid: thread.tid,
            api_id: hook.api_id,
            detail: hook.detail,
            address: (address != 0).then_some(address as i64),
            fd: descriptor.checked_sub(1).map(|fd| fd as i32),
            bytes: moves.then_some(returned as i64),
            errno: event.result.into(),
            stack_id: stack.id,
        });
    }
}

/// Notes that a call gave the GPU work, where it is told what the GPU did. To CUPTI it is as dear as so many launches of a kernel.
#[inline]
fn gave(gpu: &mut Gpu, call: &Call, what: What, launches: f64) {
    if gpu.is_asked() {
        let what = if call.captured || call.result != 0 { What::Nothing } else { what };
        let given = Given::new((call.start_ns, call.start_ns + call.api_ns), call.correlation_id, what);
        let given = Given { stream: call.stream, context: call.context, device: call.device, ..given };
        gpu.gave(given, call.tid, launches);
    }
}

/// A size, as readers believe it. Who asks for more (a negative length, say) gets an error, and a row that they need not take for damage.
pub(super) fn size(bytes: u64) -> i64 {
    bytes.min(MOST_BYTES as u64) as i64
}

/// Whether a call about modules compiles or links code. Of code in memory text is compiled, machine code is not; each of
/// its formats begins with a byte that no text has.
fn compiles(detail: u8, beginning: u64) -> bool {
    let bytes = beginning.to_le_bytes();
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    match detail {
        detail::LINK => true,
        detail::IMAGE => bytes[0] != 0 && bytes.iter().take_while(|byte| **byte != 0).all(is_text),
        _ => false,
    }
}

/// Kind of one end of a copy: what the call says, made more precise by the allocations.
fn end(memory: &Memory, said: MemoryKind, address: u64, ticks: u64) -> End {
    if said == MemoryKind::Array {
        return End::Array;
    }
    match (memory.find(address, ticks).map(|b| b.detail), said) {
        (Some(detail::MANAGED), _) => End::Managed,
        (Some(detail::PINNED | detail::REGISTERED), _) => End::Pinned,
        (Some(detail::DEVICE | detail::POOL | detail::MAPPING), _) | (_, MemoryKind::Device) => End::Device,
        (_, MemoryKind::Host) => End::Pageable,
        // Unified addressing, and no allocation of the driver's holds the address: the program's own memory.
        _ if address != 0 => End::Pageable,
        _ => End::Unknown,
    }
}

/// A set's destination is the driver's memory, whether its allocation was seen or not.
fn set_end(memory: &Memory, address: u64, ticks: u64) -> End {
    end(memory, MemoryKind::Device, address, ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_such_that_readers_believe_them() {
        assert_eq!([size(4096), size(1 << 60), size(u64::MAX)], [4096, 1 << 50, 1 << 50]);
    }

    #[test]
    fn text_is_compiled_and_machine_code_is_not() {
        let of = |bytes: &[u8; 4]| compiles(detail::IMAGE, u32::from_le_bytes(*bytes).into());
        assert!([b"//\n/", b".ver", b"\n\t.v", b"k\0\0\0"].into_iter().all(of));
        // An ELF file, a fat binary, what nvcc wraps around one, and a call that failed.
        let others = [b"\x7fELF", b"\x50\xed\x55\xba", b"\xb1\x43\x62\x46", b"\0\0\0\0"];
        assert!(!others.into_iter().any(of));
        assert!(compiles(detail::LINK, 0) && !compiles(detail::NONE, u64::from(b'/')));
    }
}
