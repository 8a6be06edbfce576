//! cuInit, versions, and what can be asked of a device.

use crate::codes::*;
use crate::config::config;
use crate::state::{Driver, driver, initialise, out, put, ready};
use crate::table::{R, driver as functions};
use std::ffi::{CStr, c_char, c_void};

fn check(device: i32) -> R {
    ready()?;
    if device < 0 || device >= config().devices { Err(INVALID_DEVICE) } else { Ok(()) }
}

/// Attributes that are not zero: those of a Hopper card, by number.
static ATTRIBUTES: &[(u32, i32)] = &[
    (1, 1024),        // MAX_THREADS_PER_BLOCK
    (2, 1024),        // MAX_BLOCK_DIM_X
    (3, 1024),        // MAX_BLOCK_DIM_Y
    (4, 64),          // MAX_BLOCK_DIM_Z
    (5, i32::MAX),    // MAX_GRID_DIM_X
    (6, 65535),       // MAX_GRID_DIM_Y
    (7, 65535),       // MAX_GRID_DIM_Z
    (8, 49152),       // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 65536),       // TOTAL_CONSTANT_MEMORY
    (10, 32),         // WARP_SIZE
    (11, i32::MAX),   // MAX_PITCH
    (12, 65536),      // MAX_REGISTERS_PER_BLOCK
    (13, 1_980_000),  // CLOCK_RATE
    (14, 512),        // TEXTURE_ALIGNMENT
    (15, 1),          // GPU_OVERLAP
    (16, 132),        // MULTIPROCESSOR_COUNT
    (19, 1),          // CAN_MAP_HOST_MEMORY
    (30, 512),        // SURFACE_ALIGNMENT
    (31, 1),          // CONCURRENT_KERNELS
    (33, 1),          // PCI_BUS_ID
    (36, 2_619_000),  // MEMORY_CLOCK_RATE
    (37, 5120),       // GLOBAL_MEMORY_BUS_WIDTH
    (38, 52_428_800), // L2_CACHE_SIZE
    (39, 2048),       // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 3),          // ASYNC_ENGINE_COUNT
    (41, 1),          // UNIFIED_ADDRESSING
    (75, 9),          // COMPUTE_CAPABILITY_MAJOR
    (76, 0),          // COMPUTE_CAPABILITY_MINOR
    (78, 1),          // STREAM_PRIORITIES_SUPPORTED
    (79, 1),          // GLOBAL_L1_CACHE_SUPPORTED
    (80, 1),          // LOCAL_L1_CACHE_SUPPORTED
    (81, 233_472),    // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    (82, 65536),      // MAX_REGISTERS_PER_MULTIPROCESSOR
    (83, 1),          // MANAGED_MEMORY
    (86, 1),          // HOST_NATIVE_ATOMIC_SUPPORTED
    (89, 1),          // CONCURRENT_MANAGED_ACCESS
    (90, 1),          // COMPUTE_PREEMPTION_SUPPORTED
    (91, 1),          // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (95, 1),          // COOPERATIVE_LAUNCH
    (97, 232_448),    // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    (99, 1),          // HOST_REGISTER_SUPPORTED
    (102, 1),         // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (103, 1),         // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    (106, 32),        // MAX_BLOCKS_PER_MULTIPROCESSOR
    (107, 1),         // GENERIC_COMPRESSION_SUPPORTED
    (111, 1024),      // RESERVED_SHARED_MEMORY_PER_BLOCK
    (115, 1),         // MEMORY_POOLS_SUPPORTED
    (120, 1),         // CLUSTER_LAUNCH
    (121, 1),         // DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
    (129, 1),         // UNIFIED_FUNCTION_POINTERS
];

pub(crate) fn attribute(number: u32) -> i32 {
    ATTRIBUTES.iter().find(|row| row.0 == number).map_or(0, |row| row.1)
}

pub(crate) fn uuid(device: i32) -> [u8; 16] {
    let mut bytes = *b"fake-cuda-gpu-00";
    bytes[15] += device as u8;
    bytes
}

unsafe fn text(target: *mut c_char, length: i32, value: &str) -> R {
    if target.is_null() || length <= 0 {
        return Err(INVALID_VALUE);
    }
    let bytes = &value.as_bytes()[..value.len().min(length as usize - 1)];
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.cast(), bytes.len());
        *target.add(bytes.len()) = 0;
    }
    Ok(())
}

functions! {
    fn cuInit(flags: u32) = "cuInit" 2000 |_| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        initialise()
    }
    fn cuDriverGetVersion(version: *mut i32) = "cuDriverGetVersion" 2020 |_| {
        *out(version)? = config().version as i32;
        Ok(())
    }
    fn cuDeviceGet(result: *mut i32, ordinal: i32) = "cuDeviceGet" 2000 |_| {
        check(ordinal)?;
        *out(result)? = ordinal;
        Ok(())
    }
    fn cuDeviceGetCount(result: *mut i32) = "cuDeviceGetCount" 2000 |_| {
        ready()?;
        *out(result)? = config().devices;
        Ok(())
    }
    fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) = "cuDeviceGetName" 2000 |_| {
        check(device)?;
        text(name, length, "Simulated GPU")
    }
    fn cuDeviceGetUuid(result: *mut [u8; 16], device: i32) = "cuDeviceGetUuid" 9020 |_| {
        check(device)?;
        *out(result)? = uuid(device);
        Ok(())
    }
    fn cuDeviceGetUuid_v2(result: *mut [u8; 16], device: i32) = "cuDeviceGetUuid" 11040 |_| {
        check(device)?;
        *out(result)? = uuid(device);
        Ok(())
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) = "cuDeviceTotalMem" 3020 |_| {
        check(device)?;
        *out(bytes)? = config().memory as usize;
        Ok(())
    }
    fn cuDeviceGetAttribute(result: *mut i32, number: u32, device: i32) = "cuDeviceGetAttribute" 2000 |_| {
        check(device)?;
        if number == 0 || number > 200 {
            return Err(INVALID_VALUE);
        }
        *out(result)? = if number == 33 { device + 1 } else { attribute(number) };
        Ok(())
    }
    fn cuDeviceGetProperties(result: *mut [i32; 14], device: i32) = "cuDeviceGetProperties" 2000 |_| {
        check(device)?;
        let a = attribute;
        *out(result)? = [a(1), a(2), a(3), a(4), a(5), a(6), a(7), a(8), a(9), a(10), a(11), a(12), a(13), a(14)];
        Ok(())
    }
    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32) = "cuDeviceComputeCapability" 2000 |_| {
        check(device)?;
        put(major, attribute(75));
        put(minor, attribute(76));
        Ok(())
    }
    fn cuDeviceGetP2PAttribute(result: *mut i32, number: u32, from: i32, to: i32)
        = "cuDeviceGetP2PAttribute" 8000 |_| {
        check(from)?;
        check(to)?;
        if from == to {
            return Err(INVALID_DEVICE);
        }
        *out(result)? = i32::from(number != 3);
        Ok(())
    }
    fn cuDeviceCanAccessPeer(result: *mut i32, device: i32, peer: i32) = "cuDeviceCanAccessPeer" 4000 |_| {
        check(device)?;
        check(peer)?;
        *out(result)? = i32::from(device != peer);
        Ok(())
    }
    fn cuDeviceGetByPCIBusId(result: *mut i32, bus_id: *const c_char) = "cuDeviceGetByPCIBusId" 4010 |_| {
        ready()?;
        if bus_id.is_null() {
            return Err(INVALID_VALUE);
        }
        let id = CStr::from_ptr(bus_id).to_bytes();
        let device = (0..config().devices).find(|device| id.eq_ignore_ascii_case(bus(*device).as_bytes()));
        *out(result)? = device.ok_or(INVALID_DEVICE)?;
        Ok(())
    }
    fn cuDeviceGetPCIBusId(bus_id: *mut c_char, length: i32, device: i32) = "cuDeviceGetPCIBusId" 4010 |_| {
        check(device)?;
        text(bus_id, length, &bus(device))
    }
    fn cuDeviceGetLuid(_luid: *mut c_char, _mask: *mut u32, device: i32) = "cuDeviceGetLuid" 10000 |_| {
        check(device)?;
        Err(NOT_SUPPORTED)
    }
    fn cuDeviceGetTexture1DLinearMaxWidth(result: *mut usize, _format: u32, _channels: u32, device: i32)
        = "cuDeviceGetTexture1DLinearMaxWidth" 11010 |_| {
        check(device)?;
        *out(result)? = 1 << 28;
        Ok(())
    }
    fn cuDeviceGetExecAffinitySupport(result: *mut i32, _kind: u32, device: i32)
        = "cuDeviceGetExecAffinitySupport" 11040 |_| {
        check(device)?;
        *out(result)? = 0;
        Ok(())
    }
    fn cuDevicePrimaryCtxRetain(result: *mut u64, device: i32) = "cuDevicePrimaryCtxRetain" 7000 |_| {
        *out(result)? = driver()?.primary_context(device, true)?;
        Ok(())
    }
    fn cuDevicePrimaryCtxRelease(device: i32) = "cuDevicePrimaryCtxRelease" 7000 |_| { release(device) }
    fn cuDevicePrimaryCtxRelease_v2(device: i32) = "cuDevicePrimaryCtxRelease" 11000 |_| { release(device) }
    fn cuDevicePrimaryCtxReset(device: i32) = "cuDevicePrimaryCtxReset" 7000 |_| { reset(device) }
    fn cuDevicePrimaryCtxReset_v2(device: i32) = "cuDevicePrimaryCtxReset" 11000 |_| { reset(device) }
    fn cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) = "cuDevicePrimaryCtxSetFlags" 7000 |_| {
        set_flags(device, flags)
    }
    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) = "cuDevicePrimaryCtxSetFlags" 11000 |_| {
        set_flags(device, flags)
    }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32)
        = "cuDevicePrimaryCtxGetState" 7000 |_| {
        check(device)?;
        let d = driver()?;
        put(flags, d.primary_flags[device as usize]);
        put(active, i32::from(d.primary[device as usize].1 > 0));
        Ok(())
    }
    fn cuDeviceGetGraphMemAttribute(_device: i32, _attribute: u32, value: *mut u64)
        = "cuDeviceGetGraphMemAttribute" 11040 |_| {
        ready()?;
        *out(value)? = 0;
        Ok(())
    }
    fn cuDeviceSetGraphMemAttribute(device: i32, _attribute: u32, _value: *mut c_void)
        = "cuDeviceSetGraphMemAttribute" 11040 |_| { check(device) }
    fn cuDeviceGraphMemTrim(device: i32) = "cuDeviceGraphMemTrim" 11040 |_| { check(device) }
    fn cuFlushGPUDirectRDMAWrites(_target: u32, _scope: u32) = "cuFlushGPUDirectRDMAWrites" 11030 |_| { ready() }
    fn cuProfilerInitialize(_config: *const c_char, _output: *const c_char, _mode: u32)
        = "cuProfilerInitialize" 4000 |_| { Err(NOT_SUPPORTED) }
    fn cuProfilerStart() = "cuProfilerStart" 4000 |_| { crate::context::current().map(|_| ()) }
    fn cuProfilerStop() = "cuProfilerStop" 4000 |_| { crate::context::current().map(|_| ()) }
}

impl Driver {
    /// A device's primary context, made when there is none.
    pub(crate) fn primary_context(&mut self, device: i32, retain: bool) -> R<u64> {
        check(device)?;
        let at = device as usize;
        if self.contexts.get(self.primary[at].0).is_none() {
            self.refuse_in_capture()?;
            let flags = self.primary_flags[at];
            self.primary[at] = (self.new_context(device, flags, true), 0);
        }
        self.primary[at].1 += u32::from(retain);
        Ok(self.primary[at].0)
    }
}

fn bus(device: i32) -> String {
    format!("0000:{:02X}:00.0", device + 1)
}

fn release(device: i32) -> R {
    check(device)?;
    let mut d = driver()?;
    let (context, count) = d.primary[device as usize];
    match count {
        0 => Err(INVALID_CONTEXT),
        1 => {
            let points = d.outstanding(context);
            d = crate::timeline::wait(d, |d| d.reached(&points));
            d.primary[device as usize] = (0, 0);
            d.end_context(context)
        }
        _ => {
            d.primary[device as usize].1 -= 1;
            Ok(())
        }
    }
}

fn reset(device: i32) -> R {
    check(device)?;
    let mut d = driver()?;
    let (context, count) = d.primary[device as usize];
    if count > 0 {
        d.primary[device as usize] = (0, 0);
        d.end_context(context)?;
    }
    Ok(())
}

fn set_flags(device: i32, flags: u32) -> R {
    check(device)?;
    driver()?.primary_flags[device as usize] = flags;
    Ok(())
}
