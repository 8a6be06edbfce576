//! Virtual memory management: address ranges that are reserved, and physical memory (a memfd) that is mapped there.

use crate::codes::*;
use crate::config::config;
use crate::memory::{CHUNK, Kind, Owner};
use crate::state::{driver, out};
use crate::table::driver as functions;
use std::ffi::c_void;

pub(crate) struct Physical {
    pub(crate) bytes: u64,
    device: i32,
    fd: i32,
    /// Mappings, and 1 for the handle until it is released.
    users: u32,
    /// Handles not yet released.
    handles: u32,
}

/// The front of CUmemAllocationProp.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Prop {
    kind: u32,
    handle_types: u32,
    location_type: u32,
    location_id: i32,
    windows: u64,
    flags: u64,
}

impl crate::state::Driver {
    /// Gives up one use of physical memory; the last one frees it.
    fn unuse(&mut self, handle: u64) {
        let Some(p) = self.physical.get_mut(handle) else { return };
        p.users -= 1;
        if p.users == 0 {
            let (fd, device, bytes) = (p.fd, p.device, p.bytes);
            unsafe { libc::close(fd) };
            self.memory.used[device as usize] -= bytes;
            self.physical.remove(handle);
        }
    }
}

functions! {
    fn cuMemAddressReserve(result: *mut u64, bytes: usize, _alignment: usize, _address: u64, flags: u64)
        = "cuMemAddressReserve" 10020 |_| {
        if bytes == 0 || !(bytes as u64).is_multiple_of(CHUNK) || flags != 0 {
            return Err(INVALID_VALUE);
        }
        *out(result)? = driver()?.memory.map(bytes as u64, libc::PROT_NONE)?;
        Ok(())
    }
    fn cuMemAddressFree(address: u64, bytes: usize) = "cuMemAddressFree" 10020 |_| {
        let d = driver()?;
        if address == 0 || bytes == 0 || d.memory.overlaps(address, address.saturating_add(bytes as u64)) {
            return Err(INVALID_VALUE);
        }
        libc::munmap(address as *mut c_void, bytes);
        Ok(())
    }
    fn cuMemCreate(result: *mut u64, bytes: usize, prop: *const Prop, flags: u64) = "cuMemCreate" 10020 |_| {
        let (result, prop) = (out(result)?, prop.as_ref().ok_or(INVALID_VALUE)?);
        let mut d = driver()?;
        let device = prop.location_id;
        if bytes == 0 || !(bytes as u64).is_multiple_of(CHUNK) || flags != 0 || prop.kind != 1 {
            return Err(INVALID_VALUE);
        }
        if device < 0 || device >= config().devices {
            return Err(INVALID_DEVICE);
        }
        d.refuse_in_capture()?;
        d.memory.charge(device, bytes as u64)?;
        let fd = libc::memfd_create(c"fake-cuda".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 || libc::ftruncate(fd, bytes as i64) != 0 {
            d.memory.used[device as usize] -= bytes as u64;
            return Err(OUT_OF_MEMORY);
        }
        *result = d.physical.insert(Physical { bytes: bytes as u64, device, fd, users: 1, handles: 1 });
        Ok(())
    }
    fn cuMemRelease(handle: u64) = "cuMemRelease" 10020 |_| {
        let mut d = driver()?;
        let p = d.physical.get_mut(handle).filter(|p| p.handles > 0).ok_or(INVALID_VALUE)?;
        p.handles -= 1;
        d.unuse(handle);
        Ok(())
    }
    fn cuMemRetainAllocationHandle(result: *mut u64, address: *mut c_void) = "cuMemRetainAllocationHandle" 11000 |_| {
        let mut d = driver()?;
        let (_, a) = d.memory.find(address as u64).filter(|(_, a)| a.kind == Kind::Mapped).ok_or(INVALID_VALUE)?;
        let handle = a.pool;
        let p = d.physical.get_mut(handle).ok_or(INVALID_VALUE)?;
        p.users += 1;
        p.handles += 1;
        *out(result)? = handle;
        Ok(())
    }
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) = "cuMemMap" 10020 |_| {
        let mut d = driver()?;
        let p = d.physical.get_mut(handle).ok_or(INVALID_VALUE)?;
        let (fd, device, whole) = (p.fd, p.device, p.bytes);
        if flags != 0 || offset != 0 || bytes as u64 > whole || bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if address == 0 || d.memory.overlaps(address, address.saturating_add(bytes as u64)) {
            return Err(INVALID_VALUE);
        }
        d.refuse_in_capture()?;
        let at = libc::mmap(address as *mut c_void, bytes, libc::PROT_NONE, libc::MAP_SHARED | libc::MAP_FIXED, fd, 0);
        if at == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        if let Some(p) = d.physical.get_mut(handle) {
            p.users += 1;
        }
        // The handle stands where other allocations have their pool.
        d.memory.insert(address, bytes as u64, Kind::Mapped, Owner { device, pool: handle, ..Owner::default() });
        Ok(())
    }
    fn cuMemUnmap(address: u64, bytes: usize) = "cuMemUnmap" 10020 |_| {
        let mut d = driver()?;
        if d.memory.get(address).is_none_or(|a| a.kind != Kind::Mapped || a.bytes != bytes as u64) {
            return Err(INVALID_VALUE);
        }
        d.refuse_in_capture()?;
        let reserved = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        libc::mmap(address as *mut c_void, bytes, libc::PROT_NONE, reserved, -1, 0);
        if let Some(a) = d.memory.forget(address) {
            d.unuse(a.pool);
        }
        Ok(())
    }
    fn cuMemSetAccess(address: u64, bytes: usize, descriptors: *const [u32; 3], count: usize)
        = "cuMemSetAccess" 10020 |_| {
        let mut d = driver()?;
        if descriptors.is_null() || count == 0 || d.memory.get(address).is_none_or(|a| a.kind != Kind::Mapped) {
            return Err(INVALID_VALUE);
        }
        // CUmemAccessDesc: type and number of the location, then 0, 1 (read) or 3 (read and write).
        let flags = (*descriptors)[2];
        let access = match flags {
            0 => libc::PROT_NONE,
            1 => libc::PROT_READ,
            3 => libc::PROT_READ | libc::PROT_WRITE,
            _ => return Err(INVALID_VALUE),
        };
        if libc::mprotect(address as *mut c_void, bytes, access) != 0 {
            return Err(INVALID_VALUE);
        }
        if let Some(a) = d.memory.get_mut(address) {
            a.flags = flags;
        }
        Ok(())
    }
    fn cuMemGetAccess(flags: *mut u64, _location: *const c_void, address: u64) = "cuMemGetAccess" 10020 |_| {
        let d = driver()?;
        let (_, a) = d.memory.find(address).ok_or(INVALID_VALUE)?;
        *out(flags)? = if a.kind == Kind::Mapped { a.flags.into() } else { 3 };
        Ok(())
    }
    fn cuMemGetAllocationGranularity(bytes: *mut usize, prop: *const Prop, _option: u32)
        = "cuMemGetAllocationGranularity" 10020 |_| {
        crate::state::ready()?;
        prop.as_ref().ok_or(INVALID_VALUE)?;
        *out(bytes)? = CHUNK as usize;
        Ok(())
    }
    fn cuMemGetAllocationPropertiesFromHandle(prop: *mut Prop, handle: u64)
        = "cuMemGetAllocationPropertiesFromHandle" 10020 |_| {
        let d = driver()?;
        let location_id = d.physical.get(handle).ok_or(INVALID_VALUE)?.device;
        *out(prop)? = Prop { kind: 1, handle_types: 0, location_type: 1, location_id, windows: 0, flags: 0 };
        Ok(())
    }
}
