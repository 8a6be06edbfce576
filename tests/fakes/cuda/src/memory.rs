//! Memory of the simulated devices and pinned memory of the host.
//!
//! Device memory is host memory at addresses of its own (from 7 TiB upwards where free), so that copies move real
//! bytes. Small blocks share 2 MiB chunks; each block of more than 1 MiB is a mapping of its own.

use crate::codes::*;
use crate::config::config;
use crate::state::{Driver, driver, out};
use crate::table::{R, driver as functions};
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Device,
    Managed,
    Pinned,
    Registered,
    /// Allocated in the order of a stream.
    Pooled,
    /// Physical memory mapped into a reserved range.
    Mapped,
}

#[derive(Clone)]
pub(crate) struct Allocation {
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) context: u64,
    pub(crate) device: i32,
    pub(crate) flags: u32,
    pub(crate) id: u64,
    pub(crate) pool: u64,
    /// A free in some stream has been asked for.
    pub(crate) freeing: bool,
}

/// Whom an allocation belongs to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Owner {
    pub(crate) context: u64,
    pub(crate) device: i32,
    pub(crate) flags: u32,
    pub(crate) pool: u64,
}

/// What an address of a copy is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Pageable,
    Pinned,
    Managed,
    Device,
}

pub(crate) struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    /// Free blocks of each small size.
    free: HashMap<u64, Vec<u64>>,
    chunk: (u64, u64),
    next_address: u64,
    pub(crate) used: [u64; 8],
    peak: u64,
    next_id: u64,
}

const SMALLEST: u64 = 512;
const LARGE: u64 = 1 << 20;
pub(crate) const CHUNK: u64 = 2 << 20;
const FIRST_ADDRESS: u64 = 0x0700_0000_0000;

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory {
            allocations: BTreeMap::new(),
            free: HashMap::new(),
            chunk: (0, 0),
            next_address: FIRST_ADDRESS,
            used: [0; 8],
            peak: 0,
            next_id: 1,
        }
    }

    /// The allocation that holds an address, and its base.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (base, found) = self.allocations.range(..=address).next_back()?;
        (address < base + found.bytes).then_some((*base, found))
    }

    pub(crate) fn get(&self, base: u64) -> Option<&Allocation> {
        self.allocations.get(&base)
    }

    pub(crate) fn get_mut(&mut self, base: u64) -> Option<&mut Allocation> {
        self.allocations.get_mut(&base)
    }

    pub(crate) fn place(&self, address: u64) -> Place {
        match self.find(address).map(|(_, a)| a.kind) {
            None => Place::Pageable,
            Some(Kind::Pinned | Kind::Registered) => Place::Pinned,
            Some(Kind::Managed) => Place::Managed,
            Some(Kind::Device | Kind::Pooled | Kind::Mapped) => Place::Device,
        }
    }

    /// All of `bytes` from an address belong to one allocation.
    pub(crate) fn holds(&self, address: u64, bytes: u64) -> bool {
        self.find(address).is_some_and(|(base, a)| address.checked_add(bytes).is_some_and(|end| end <= base + a.bytes))
    }

    pub(crate) fn used_and_peak(&self) -> (u64, u64) {
        (self.used.iter().sum(), self.peak)
    }

    /// Counts memory against a device's limit.
    pub(crate) fn charge(&mut self, device: i32, bytes: u64) -> R {
        let used = &mut self.used[device as usize];
        if bytes > config().memory.saturating_sub(*used) {
            return Err(OUT_OF_MEMORY);
        }
        *used += bytes;
        self.peak = self.peak.max(self.used.iter().sum());
        Ok(())
    }

    /// Maps memory at an address of the simulated devices.
    pub(crate) fn map(&mut self, bytes: u64, protection: i32) -> R<u64> {
        let bytes = bytes.checked_next_multiple_of(CHUNK).ok_or(OUT_OF_MEMORY)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        for fixed in [libc::MAP_FIXED_NOREPLACE, 0] {
            let hint = if fixed == 0 { 0 } else { self.next_address };
            let at = unsafe { libc::mmap(hint as *mut _, bytes as usize, protection, flags | fixed, -1, 0) };
            if at != libc::MAP_FAILED {
                self.next_address += if fixed == 0 { 0 } else { bytes };
                return Ok(at as u64);
            }
        }
        Err(OUT_OF_MEMORY)
    }

    fn block(&mut self, bytes: u64) -> R<u64> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        if bytes > LARGE {
            return self.map(bytes, access);
        }
        let size = bytes.max(SMALLEST).next_power_of_two();
        if let Some(block) = self.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(block);
        }
        if self.chunk.1 - self.chunk.0 < size {
            let chunk = self.map(CHUNK, access)?;
            self.chunk = (chunk, chunk + CHUNK);
        }
        // Blocks stand on multiples of their size, so that an address is aligned as well as its block is large.
        let at = self.chunk.0.next_multiple_of(size);
        if at + size > self.chunk.1 {
            self.chunk.0 = self.chunk.1;
            return self.block(bytes);
        }
        self.chunk.0 = at + size;
        Ok(at)
    }

    pub(crate) fn insert(&mut self, base: u64, bytes: u64, kind: Kind, owner: Owner) {
        self.next_id += 1;
        let id = self.next_id;
        let Owner { context, device, flags, pool } = owner;
        let new = Allocation { bytes, kind, context, device, flags, id, pool, freeing: false };
        self.allocations.insert(base, new);
    }

    /// Memory of a device.
    pub(crate) fn allocate(&mut self, kind: Kind, bytes: u64, owner: Owner) -> R<u64> {
        let device = owner.device;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let whole = bytes.checked_next_multiple_of(SMALLEST).ok_or(OUT_OF_MEMORY)?;
        self.charge(device, whole)?;
        match self.block(whole) {
            Ok(base) => {
                self.insert(base, bytes, kind, owner);
                Ok(base)
            }
            Err(code) => {
                self.used[device as usize] -= whole;
                Err(code)
            }
        }
    }

    /// Pinned memory of the host.
    pub(crate) fn allocate_host(&mut self, bytes: u64, owner: Owner) -> R<u64> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, access, private, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        self.insert(at as u64, bytes, Kind::Pinned, owner);
        Ok(at as u64)
    }

    /// Takes an allocation out of the books without giving its memory back.
    pub(crate) fn forget(&mut self, base: u64) -> Option<Allocation> {
        self.allocations.remove(&base)
    }

    pub(crate) fn release(&mut self, base: u64) {
        let Some(a) = self.allocations.remove(&base) else { return };
        match a.kind {
            Kind::Device | Kind::Managed | Kind::Pooled => {
                let whole = a.bytes.next_multiple_of(SMALLEST);
                self.used[a.device as usize] -= whole;
                if whole > LARGE {
                    unsafe { libc::munmap(base as *mut _, whole.next_multiple_of(CHUNK) as usize) };
                } else {
                    self.free.entry(whole.next_power_of_two()).or_default().push(base);
                }
            }
            Kind::Pinned => {
                unsafe { libc::munmap(base as *mut _, a.bytes as usize) };
            }
            Kind::Registered | Kind::Mapped => {}
        }
    }

    pub(crate) fn release_context(&mut self, context: u64) {
        let gone = |a: &Allocation| a.context == context && a.kind != Kind::Mapped && a.kind != Kind::Pooled;
        let bases: Vec<u64> = self.allocations.iter().filter(|(_, a)| gone(a)).map(|(base, _)| *base).collect();
        bases.into_iter().for_each(|base| self.release(base));
    }

    /// Some allocation stands between two addresses.
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.allocations.range(..end).next_back().is_some_and(|(base, a)| base + a.bytes > start)
    }
}

impl Driver {
    pub(crate) fn new_memory(&mut self, kind: Kind, bytes: u64, flags: u32) -> R<u64> {
        let context = self.current()?;
        self.refuse_in_capture()?;
        let device = self.current_device()?;
        self.memory.allocate(kind, bytes, Owner { context, device, flags, pool: 0 })
    }

    pub(crate) fn new_host_memory(&mut self, bytes: u64, flags: u32) -> R<u64> {
        let context = self.current()?;
        self.refuse_in_capture()?;
        let device = self.current_device()?;
        self.memory.allocate_host(bytes, Owner { context, device, flags, pool: 0 })
    }
}

unsafe fn allocate(result: *mut u64, kind: Kind, bytes: usize, flags: u32) -> R {
    let result = unsafe { out(result)? };
    *result = driver()?.new_memory(kind, bytes as u64, flags)?;
    Ok(())
}

unsafe fn allocate_host(result: *mut u64, bytes: usize, flags: u32) -> R {
    let result = unsafe { out(result)? };
    *result = driver()?.new_host_memory(bytes as u64, flags)?;
    Ok(())
}

/// Frees memory that was not allocated in a stream's order: waits for the device first.
fn free(base: u64, kinds: &[Kind]) -> R {
    let mut d = driver()?;
    if base == 0 {
        return Ok(());
    }
    let a = d.memory.get(base).filter(|a| kinds.contains(&a.kind)).ok_or(INVALID_VALUE)?;
    let context = a.context;
    d.refuse_in_capture()?;
    let points = d.outstanding(context);
    let mut d = crate::timeline::wait(d, |d| d.reached(&points));
    d.memory.release(base);
    Ok(())
}

const HOST_FLAGS: u32 = 7;

functions! {
    fn cuMemAlloc_v2(result: *mut u64, bytes: usize) = "cuMemAlloc" 3020 |_| {
        allocate(result, Kind::Device, bytes, 0)
    }
    fn cuMemAllocManaged(result: *mut u64, bytes: usize, flags: u32) = "cuMemAllocManaged" 6000 |_| {
        if flags != 1 && flags != 2 {
            return Err(INVALID_VALUE);
        }
        allocate(result, Kind::Managed, bytes, flags)
    }
    fn cuMemAllocPitch_v2(result: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32)
        = "cuMemAllocPitch" 3020 |_| {
        if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(512).ok_or(INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
        // The rest is cuMemAlloc's; through the symbol, as the call of one exported function by another goes.
        let code = crate::procaddr::call_cu_mem_alloc(out(result)?, bytes);
        *out(pitch)? = row;
        if code == 0 { Ok(()) } else { Err(code) }
    }
    fn cuMemFree_v2(address: u64) = "cuMemFree" 3020 |_| {
        free(address, &[Kind::Device, Kind::Managed, Kind::Pooled])
    }
    fn cuMemAllocHost(result: *mut u64, bytes: usize) = "cuMemAllocHost" 2000 |_| { allocate_host(result, bytes, 0) }
    fn cuMemAllocHost_v2(result: *mut u64, bytes: usize) = "cuMemAllocHost" 3020 |_| {
        allocate_host(result, bytes, 0)
    }
    fn cuMemHostAlloc(result: *mut u64, bytes: usize, flags: u32) = "cuMemHostAlloc" 2020 |_| {
        if flags > HOST_FLAGS {
            return Err(INVALID_VALUE);
        }
        allocate_host(result, bytes, flags)
    }
    fn cuMemFreeHost(address: u64) = "cuMemFreeHost" 2000 |_| { free(address, &[Kind::Pinned]) }
    fn cuMemHostRegister(address: u64, bytes: usize, flags: u32) = "cuMemHostRegister" 4000 |_| {
        register(address, bytes, flags)
    }
    fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) = "cuMemHostRegister" 6050 |_| {
        register(address, bytes, flags)
    }
    fn cuMemHostUnregister(address: u64) = "cuMemHostUnregister" 4000 |_| {
        let mut d = driver()?;
        d.current()?;
        if d.memory.get(address).is_none_or(|a| a.kind != Kind::Registered) {
            return Err(HOST_NOT_REGISTERED);
        }
        d.memory.release(address);
        Ok(())
    }
    fn cuMemHostGetDevicePointer_v2(result: *mut u64, address: u64, _flags: u32)
        = "cuMemHostGetDevicePointer" 3020 |_| {
        let d = driver()?;
        if d.memory.place(address) != Place::Pinned {
            return Err(INVALID_VALUE);
        }
        *out(result)? = address;
        Ok(())
    }
    fn cuMemHostGetFlags(flags: *mut u32, address: u64) = "cuMemHostGetFlags" 2030 |_| {
        let d = driver()?;
        let (_, a) = d.memory.find(address).filter(|(_, a)| a.kind == Kind::Pinned).ok_or(INVALID_VALUE)?;
        // Memory of a 64-bit process is always portable and mapped.
        *out(flags)? = a.flags | 3;
        Ok(())
    }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) = "cuMemGetInfo" 3020 |_| {
        let d = driver()?;
        let device = d.current_device()?;
        *out(free)? = config().memory.saturating_sub(d.memory.used[device as usize]) as usize;
        *out(total)? = config().memory as usize;
        Ok(())
    }
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) = "cuMemGetAddressRange" 3020 |_| {
        let d = driver()?;
        let (start, a) = d.memory.find(address).filter(|(_, a)| a.kind != Kind::Registered).ok_or(NOT_FOUND)?;
        crate::state::put(base, start);
        crate::state::put(bytes, a.bytes as usize);
        Ok(())
    }
}

fn register(address: u64, bytes: usize, flags: u32) -> R {
    let mut d = driver()?;
    let context = d.current()?;
    if address == 0 || bytes == 0 || flags > 15 {
        return Err(INVALID_VALUE);
    }
    if d.memory.overlaps(address, address.saturating_add(bytes as u64)) {
        return Err(HOST_ALREADY_REGISTERED);
    }
    let device = d.current_device()?;
    d.memory.insert(address, bytes as u64, Kind::Registered, Owner { context, device, flags, pool: 0 });
    Ok(())
}
