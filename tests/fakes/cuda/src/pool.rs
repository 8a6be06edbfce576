//! Memory pools, and allocation and freeing in the order of a stream.

use crate::codes::*;
use crate::config::config;
use crate::memory::{Kind, Owner};
use crate::state::{Driver, driver, out};
use crate::table::{R, driver as functions};
use crate::work::Work;
use std::ffi::c_void;

pub(crate) struct Pool {
    device: i32,
    attributes: [u64; 16],
    default: bool,
}

/// The front of CUmemPoolProps.
#[repr(C)]
pub(crate) struct PoolProps {
    alloc_type: u32,
    handle_types: u32,
    location_type: u32,
    location_id: i32,
}

const RELEASE_THRESHOLD: usize = 4;
const USED: usize = 7;

impl Driver {
    /// A device's default pool.
    pub(crate) fn default_pool(&mut self, device: i32) -> R<u64> {
        if device < 0 || device >= config().devices {
            return Err(INVALID_DEVICE);
        }
        let at = device as usize;
        if self.device_pools[at].0 == 0 {
            let pool = self.pools.insert(Pool {
                device,
                attributes: [0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                default: true,
            });
            self.device_pools[at] = (pool, pool);
        }
        Ok(self.device_pools[at].0)
    }

    fn current_pool(&mut self, device: i32) -> R<u64> {
        self.default_pool(device)?;
        Ok(self.device_pools[device as usize].1)
    }

    fn allocate_in_stream(&mut self, stream: u64, pool: u64, bytes: usize) -> R<u64> {
        let device = self.pools.get(pool).ok_or(INVALID_VALUE)?.device;
        let context = self.streams.get(stream).ok_or(INVALID_HANDLE)?.context;
        if let Some(capture) = self.streams.get(stream).and_then(|s| s.capture) {
            self.valid_capture(capture)?;
        }
        let address = self.memory.allocate(Kind::Pooled, bytes as u64, Owner { context, device, flags: 0, pool })?;
        self.submit(stream, Work::Nothing)?;
        Ok(address)
    }
}

functions! {
    fn cuMemAllocAsync(result: *mut u64, bytes: usize, stream: u64)
        = "cuMemAllocAsync" 11020 + "cuMemAllocAsync_ptsz" 11020 |default| {
        let result = out(result)?;
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        let device = d.streams.get(stream).ok_or(INVALID_HANDLE)?.device as i32;
        let pool = d.current_pool(device)?;
        *result = d.allocate_in_stream(stream, pool, bytes)?;
        Ok(())
    }
    fn cuMemAllocFromPoolAsync(result: *mut u64, bytes: usize, pool: u64, stream: u64)
        = "cuMemAllocFromPoolAsync" 11020 + "cuMemAllocFromPoolAsync_ptsz" 11020 |default| {
        let result = out(result)?;
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        *result = d.allocate_in_stream(stream, pool, bytes)?;
        Ok(())
    }
    fn cuMemFreeAsync(address: u64, stream: u64) = "cuMemFreeAsync" 11020 + "cuMemFreeAsync_ptsz" 11020 |default| {
        let mut d = driver()?;
        let stream = d.stream(stream, default)?;
        if address == 0 {
            return Ok(());
        }
        let allowed = |kind| matches!(kind, Kind::Pooled | Kind::Device | Kind::Managed);
        let a = d.memory.get_mut(address).filter(|a| !a.freeing && allowed(a.kind)).ok_or(INVALID_VALUE)?;
        a.freeing = true;
        d.submit(stream, Work::Free(address)).map(|_| ())
    }
    fn cuMemPoolCreate(result: *mut u64, props: *const PoolProps) = "cuMemPoolCreate" 11020 |_| {
        let props = props.as_ref().ok_or(INVALID_VALUE)?;
        let mut d = driver()?;
        if props.location_id < 0 || props.location_id >= config().devices {
            return Err(INVALID_VALUE);
        }
        let attributes = [0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        *out(result)? = d.pools.insert(Pool { device: props.location_id, attributes, default: false });
        Ok(())
    }
    fn cuMemPoolDestroy(pool: u64) = "cuMemPoolDestroy" 11020 |_| {
        let mut d = driver()?;
        if d.pools.get(pool).is_none_or(|pool| pool.default) {
            return Err(INVALID_VALUE);
        }
        d.pools.remove(pool);
        for device in &mut d.device_pools {
            if device.1 == pool {
                device.1 = device.0;
            }
        }
        Ok(())
    }
    fn cuMemPoolTrimTo(pool: u64, _keep: usize) = "cuMemPoolTrimTo" 11020 |_| {
        driver()?.pools.get(pool).map(|_| ()).ok_or(INVALID_VALUE)
    }
    fn cuMemPoolGetAttribute(pool: u64, attribute: u32, value: *mut c_void) = "cuMemPoolGetAttribute" 11020 |_| {
        let d = driver()?;
        let pool = d.pools.get(pool).ok_or(INVALID_VALUE)?;
        let number = match attribute as usize {
            0 | 9.. => return Err(INVALID_VALUE),
            USED => d.memory.used[pool.device as usize],
            other => pool.attributes[other],
        };
        if (attribute as usize) < RELEASE_THRESHOLD {
            *out(value.cast::<u32>())? = number as u32;
        } else {
            *out(value.cast::<u64>())? = number;
        }
        Ok(())
    }
    fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: *const c_void) = "cuMemPoolSetAttribute" 11020 |_| {
        let mut d = driver()?;
        let pool = d.pools.get_mut(pool).ok_or(INVALID_VALUE)?;
        if attribute == 0 || attribute > 8 || value.is_null() {
            return Err(INVALID_VALUE);
        }
        let small = (attribute as usize) < RELEASE_THRESHOLD;
        let number = if small { u64::from(*value.cast::<u32>()) } else { *value.cast::<u64>() };
        pool.attributes[attribute as usize] = number;
        Ok(())
    }
    fn cuMemPoolSetAccess(pool: u64, _descriptors: *const c_void, _count: usize) = "cuMemPoolSetAccess" 11020 |_| {
        driver()?.pools.get(pool).map(|_| ()).ok_or(INVALID_VALUE)
    }
    fn cuMemPoolGetAccess(flags: *mut u32, pool: u64, _location: *const c_void) = "cuMemPoolGetAccess" 11020 |_| {
        driver()?.pools.get(pool).ok_or(INVALID_VALUE)?;
        *out(flags)? = 3;
        Ok(())
    }
    fn cuDeviceGetDefaultMemPool(result: *mut u64, device: i32) = "cuDeviceGetDefaultMemPool" 11020 |_| {
        *out(result)? = driver()?.default_pool(device)?;
        Ok(())
    }
    fn cuDeviceGetMemPool(result: *mut u64, device: i32) = "cuDeviceGetMemPool" 11020 |_| {
        *out(result)? = driver()?.current_pool(device)?;
        Ok(())
    }
    fn cuDeviceSetMemPool(device: i32, pool: u64) = "cuDeviceSetMemPool" 11020 |_| {
        let mut d = driver()?;
        d.default_pool(device)?;
        if d.pools.get(pool).is_none_or(|pool| pool.device != device) {
            return Err(INVALID_VALUE);
        }
        d.device_pools[device as usize].1 = pool;
        Ok(())
    }
}
