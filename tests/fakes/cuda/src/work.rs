//! What a device can be told to do: how long it takes, what it does to memory, and what the truth file says of it.

use crate::config::config;
use crate::event;
use crate::kernel::Kernel;
use crate::observe;
use crate::state::Driver;
use crate::truth;
use std::ffi::c_void;
use std::sync::Arc;

pub(crate) type HostFn = unsafe extern "C" fn(*mut c_void);
pub(crate) type StreamCallback = unsafe extern "C" fn(*mut c_void, u32, *mut c_void);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    HostToHost,
}

/// `depth` slices of `height` rows of `width` bytes.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) dst: u64,
    pub(crate) src: u64,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) dst_pitch: usize,
    pub(crate) src_pitch: usize,
    pub(crate) dst_slice: usize,
    pub(crate) src_slice: usize,
}

#[derive(Clone)]
pub(crate) struct Copy {
    pub(crate) shape: Shape,
    pub(crate) direction: Direction,
    /// The host reads or writes the destination without asking the driver.
    pub(crate) visible: bool,
    /// The source as it was at the call, for a small copy from pageable memory.
    pub(crate) staged: Option<Arc<[u8]>>,
}

#[derive(Clone)]
pub(crate) struct Set {
    pub(crate) dst: u64,
    pub(crate) pitch: usize,
    /// Elements a row.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) value: u32,
    pub(crate) element: usize,
}

#[derive(Clone)]
pub(crate) enum Work {
    Kernel(Kernel),
    Copy(Copy),
    Set(Set),
    /// Records an event, by its handle and ticket.
    Event(u64, u64),
    Nothing,
    Host(HostFn, usize),
    Callback(StreamCallback, u64, usize),
    Free(u64),
    Write {
        address: u64,
        value: u64,
        bytes: usize,
    },
    Graph(Arc<Plan>),
}

/// An instantiated graph: its nodes in an order that respects their edges, each with its place in time.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) total_ns: u64,
    pub(crate) has_host: bool,
    pub(crate) visible: bool,
    /// How many nodes it has, with those of the graphs inside it.
    pub(crate) nodes: u32,
}

pub(crate) struct Step {
    pub(crate) work: Work,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Which node of its graph it is: from 1, and a graph inside counts for as many more as it has nodes.
    pub(crate) node: u32,
}

/// Where and when an operation runs, and as which node of a graph: 0 for none.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) stream: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) node: u32,
}

impl Step {
    /// Its span in a launch of its graph.
    pub(crate) fn span(&self, graph: Span) -> Span {
        let (start, end) = (graph.start + self.start_ns, graph.start + self.end_ns);
        Span { start, end, node: graph.node + self.node, ..graph }
    }
}

impl Shape {
    pub(crate) fn linear(dst: u64, src: u64, bytes: usize) -> Shape {
        Shape {
            dst,
            src,
            width: bytes,
            height: 1,
            depth: 1,
            dst_pitch: bytes,
            src_pitch: bytes,
            dst_slice: bytes,
            src_slice: bytes,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth) as u64
    }
}

impl Copy {
    unsafe fn run(&self) {
        let s = &self.shape;
        let src = self.staged.as_ref().map_or(s.src, |bytes| bytes.as_ptr() as u64);
        for z in 0..s.depth {
            for y in 0..s.height {
                let from = src as usize + z * s.src_slice + y * s.src_pitch;
                let to = s.dst as usize + z * s.dst_slice + y * s.dst_pitch;
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, s.width) };
            }
        }
    }
}

impl Set {
    pub(crate) fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.element) as u64
    }

    unsafe fn run(&self) {
        for y in 0..self.height {
            let row = (self.dst as usize + y * self.pitch) as *mut u8;
            unsafe {
                match self.element {
                    1 => row.write_bytes(self.value as u8, self.width),
                    2 => (0..self.width).for_each(|x| row.cast::<u16>().add(x).write_unaligned(self.value as u16)),
                    _ => (0..self.width).for_each(|x| row.cast::<u32>().add(x).write_unaligned(self.value)),
                }
            }
        }
    }
}

impl Work {
    /// How long the device is busy with it.
    pub(crate) fn ns(&self) -> u64 {
        let config = config();
        if config.instant {
            return 0;
        }
        match self {
            Work::Kernel(kernel) => kernel.ns,
            Work::Copy(copy) => {
                let fast = if copy.direction == Direction::DeviceToDevice { 100.0 } else { 1.0 };
                (copy.shape.bytes() as f64 / (config.bytes_per_ns * fast)) as u64
            }
            Work::Set(set) => (set.bytes() as f64 / (config.bytes_per_ns * 100.0)) as u64,
            Work::Graph(plan) => plan.total_ns,
            _ => 0,
        }
    }

    /// The copy engine it occupies.
    pub(crate) fn engine(&self) -> Option<usize> {
        match self {
            Work::Copy(copy) if copy.direction == Direction::HostToDevice => Some(0),
            Work::Copy(copy) if copy.direction == Direction::DeviceToHost => Some(1),
            _ => None,
        }
    }

    /// Part of it runs on the driver's callback thread.
    pub(crate) fn has_host(&self) -> bool {
        match self {
            Work::Host(..) | Work::Callback(..) => true,
            Work::Graph(plan) => plan.has_host,
            _ => false,
        }
    }

    /// The host can see its effect without calling the driver, so it must happen in time by itself.
    pub(crate) fn visible(&self) -> bool {
        match self {
            Work::Copy(copy) => copy.visible,
            Work::Kernel(kernel) => kernel.builtin.is_some(),
            Work::Host(..) | Work::Callback(..) | Work::Write { .. } => true,
            Work::Graph(plan) => plan.visible,
            Work::Set(..) => true,
            _ => false,
        }
    }

    /// What it does to memory and to its stream's context; nothing of the client's code is called.
    pub(crate) fn effect(&self, driver: &mut Driver, span: Span) {
        match self {
            Work::Kernel(kernel) => {
                truth::device(driver, "kernel", &kernel.name, span, 0, Some(&kernel.geometry));
                observe::kernel(driver, span, kernel);
                kernel.run(driver, span.stream);
            }
            Work::Copy(copy) => {
                unsafe { copy.run() };
                truth::device(driver, "copy", copy.direction.name(), span, copy.shape.bytes(), None);
                observe::copy(driver, span, copy);
            }
            Work::Set(set) => {
                unsafe { set.run() };
                truth::device(driver, "set", "", span, set.bytes(), None);
                observe::set(driver, span, set);
            }
            Work::Event(handle, ticket) => event::completed(driver, *handle, *ticket, span.end),
            Work::Free(address) => driver.memory.release(*address),
            Work::Write { address, value, bytes } => unsafe {
                std::ptr::copy_nonoverlapping(value.to_ne_bytes().as_ptr(), *address as *mut u8, *bytes);
            },
            Work::Graph(plan) => {
                for step in &plan.steps {
                    step.work.effect(driver, step.span(span));
                }
            }
            Work::Nothing | Work::Host(..) | Work::Callback(..) => {}
        }
    }

    /// The client's function in it; runs without the lock, on the callback thread.
    pub(crate) fn host_part(&self, status: u32) {
        match self {
            Work::Host(function, data) => unsafe { function(*data as *mut c_void) },
            Work::Callback(function, stream, data) => unsafe {
                function(*stream as *mut c_void, status, *data as *mut c_void)
            },
            _ => {}
        }
    }
}

impl Direction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::HostToDevice => "HtoD",
            Direction::DeviceToHost => "DtoH",
            Direction::DeviceToDevice => "DtoD",
            Direction::HostToHost => "HtoH",
        }
    }
}
