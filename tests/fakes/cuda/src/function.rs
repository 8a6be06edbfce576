//! What can be asked of a function or kernel, and how many of its blocks fit a multiprocessor.

use crate::codes::*;
use crate::module::Owner;
use crate::state::{driver, out, put};
use crate::table::{R, driver as functions};
use std::ffi::{c_char, c_void};

fn get_attribute(function: u64, attribute: u32) -> R<i32> {
    driver()?.function(function)?.attributes.get(attribute as usize).copied().ok_or(INVALID_VALUE)
}

fn set_attribute(function: u64, attribute: u32, value: i32) -> R {
    let mut d = driver()?;
    // Only those from MAX_DYNAMIC_SHARED_SIZE_BYTES on can be set.
    if attribute < 8 {
        return Err(INVALID_VALUE);
    }
    *d.function_mut(function)?.attributes.get_mut(attribute as usize).ok_or(INVALID_VALUE)? = value;
    Ok(())
}

/// Blocks per multiprocessor of a kernel with few registers: threads and shared memory decide.
fn blocks(function: u64, block: i32, shared: usize) -> R<i32> {
    driver()?.function(function)?;
    if block <= 0 {
        return Err(INVALID_VALUE);
    }
    let by_shared = 233_472usize.checked_div(shared).map_or(32, |blocks| blocks as i32);
    Ok(if block > 1024 { 0 } else { (2048 / block).min(32).min(by_shared) })
}

/// The parameters of a kernel are known only where its code computes something.
fn parameter(function: u64, index: usize) -> R<(usize, usize)> {
    let d = driver()?;
    let name = &d.function(function)?.name;
    let layout: &[(usize, usize)] = match &**name {
        n if n.contains("saxpy") => &[(0, 4), (4, 4), (8, 8), (16, 8)],
        n if n.contains("fill_") => &[(0, 8), (8, 4), (12, 4)],
        _ => &[],
    };
    layout.get(index).copied().ok_or(INVALID_VALUE)
}

unsafe fn parameter_info(function: u64, index: usize, offset: *mut usize, size: *mut usize) -> R {
    let (at, bytes) = parameter(function, index)?;
    unsafe {
        *out(offset)? = at;
        put(size, bytes);
    }
    Ok(())
}

unsafe fn parameter_count(function: u64, count: *mut usize) -> R {
    driver()?.function(function)?;
    unsafe { *out(count)? = (0..8).take_while(|i| parameter(function, *i).is_ok()).count() };
    Ok(())
}

unsafe fn symbol(result: *mut *const c_char, function: u64) -> R {
    let d = driver()?;
    unsafe { *out(result)? = d.function(function)?.symbol.as_ptr() };
    Ok(())
}

functions! {
    fn cuFuncGetName(result: *mut *const c_char, function: u64) = "cuFuncGetName" 12030 |_| { symbol(result, function) }
    fn cuKernelGetName(result: *mut *const c_char, function: u64) = "cuKernelGetName" 12030 |_| {
        symbol(result, function)
    }
    fn cuFuncGetModule(result: *mut u64, function: u64) = "cuFuncGetModule" 11000 |_| {
        let d = driver()?;
        *out(result)? = d.module_of(d.function(function)?).ok_or(INVALID_HANDLE)?;
        Ok(())
    }
    fn cuKernelGetLibrary(result: *mut u64, kernel: u64) = "cuKernelGetLibrary" 12050 |_| {
        let d = driver()?;
        let Owner::Library(library) = d.function(kernel)?.owner else { return Err(INVALID_HANDLE) };
        *out(result)? = library;
        Ok(())
    }
    fn cuKernelGetFunction(result: *mut u64, kernel: u64) = "cuKernelGetFunction" 12000 |_| {
        let mut d = driver()?;
        d.current()?;
        let f = d.function(kernel)?;
        let (symbol, module) = (f.symbol.clone(), d.module_of(f).ok_or(INVALID_HANDLE)?);
        *out(result)? = d.look_up(Owner::Module(module), &symbol)?;
        Ok(())
    }
    fn cuFuncGetAttribute(value: *mut i32, attribute: u32, function: u64) = "cuFuncGetAttribute" 2020 |_| {
        *out(value)? = get_attribute(function, attribute)?;
        Ok(())
    }
    fn cuFuncSetAttribute(function: u64, attribute: u32, value: i32) = "cuFuncSetAttribute" 9000 |_| {
        set_attribute(function, attribute, value)
    }
    fn cuKernelGetAttribute(value: *mut i32, attribute: u32, kernel: u64, _device: i32)
        = "cuKernelGetAttribute" 12000 |_| {
        *out(value)? = get_attribute(kernel, attribute)?;
        Ok(())
    }
    fn cuKernelSetAttribute(attribute: u32, value: i32, kernel: u64, _device: i32) = "cuKernelSetAttribute" 12000 |_| {
        set_attribute(kernel, attribute, value)
    }
    fn cuFuncSetCacheConfig(function: u64, _config: u32) = "cuFuncSetCacheConfig" 3000 |_| {
        driver()?.function(function).map(|_| ())
    }
    fn cuKernelSetCacheConfig(kernel: u64, _config: u32, _device: i32) = "cuKernelSetCacheConfig" 12000 |_| {
        driver()?.function(kernel).map(|_| ())
    }
    fn cuFuncSetSharedMemConfig(function: u64, _config: u32) = "cuFuncSetSharedMemConfig" 4020 |_| {
        driver()?.function(function).map(|_| ())
    }
    fn cuFuncGetParamInfo(function: u64, index: usize, offset: *mut usize, size: *mut usize)
        = "cuFuncGetParamInfo" 12040 |_| { parameter_info(function, index, offset, size) }
    fn cuKernelGetParamInfo(kernel: u64, index: usize, offset: *mut usize, size: *mut usize)
        = "cuKernelGetParamInfo" 12040 |_| { parameter_info(kernel, index, offset, size) }
    fn cuFuncGetParamCount(function: u64, count: *mut usize) = "cuFuncGetParamCount" 13020 |_| {
        parameter_count(function, count)
    }
    fn cuKernelGetParamCount(kernel: u64, count: *mut usize) = "cuKernelGetParamCount" 13020 |_| {
        parameter_count(kernel, count)
    }
    fn cuFuncIsLoaded(state: *mut u32, function: u64) = "cuFuncIsLoaded" 12040 |_| {
        driver()?.function(function)?;
        *out(state)? = 1;
        Ok(())
    }
    fn cuFuncLoad(function: u64) = "cuFuncLoad" 12040 |_| { driver()?.function(function).map(|_| ()) }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(result: *mut i32, function: u64, block: i32, shared: usize)
        = "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050 |_| {
        *out(result)? = blocks(function, block, shared)?;
        Ok(())
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(result: *mut i32, function: u64, block: i32,
        shared: usize, _flags: u32) = "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000 |_| {
        *out(result)? = blocks(function, block, shared)?;
        Ok(())
    }
    fn cuOccupancyMaxPotentialBlockSize(grid: *mut i32, block: *mut i32, function: u64, _shared_of: *const c_void,
        shared: usize, limit: i32) = "cuOccupancyMaxPotentialBlockSize" 6050 |_| {
        let size = if limit > 0 { limit.min(1024) } else { 1024 };
        *out(grid)? = 132 * blocks(function, size, shared)?;
        *out(block)? = size;
        Ok(())
    }
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(grid: *mut i32, block: *mut i32, function: u64,
        _shared_of: *const c_void, shared: usize, limit: i32, _flags: u32)
        = "cuOccupancyMaxPotentialBlockSizeWithFlags" 7000 |_| {
        let size = if limit > 0 { limit.min(1024) } else { 1024 };
        *out(grid)? = 132 * blocks(function, size, shared)?;
        *out(block)? = size;
        Ok(())
    }
    fn cuOccupancyAvailableDynamicSMemPerBlock(result: *mut usize, function: u64, count: i32, block: i32)
        = "cuOccupancyAvailableDynamicSMemPerBlock" 10020 |_| {
        blocks(function, block, 0)?;
        *out(result)? = 233_472 / count.max(1) as usize - 1024;
        Ok(())
    }
    fn cuOccupancyMaxPotentialClusterSize(result: *mut i32, function: u64, _config: *const c_void)
        = "cuOccupancyMaxPotentialClusterSize" 11070 |_| {
        driver()?.function(function)?;
        *out(result)? = 8;
        Ok(())
    }
    fn cuOccupancyMaxActiveClusters(result: *mut i32, function: u64, _config: *const c_void)
        = "cuOccupancyMaxActiveClusters" 11070 |_| {
        driver()?.function(function)?;
        *out(result)? = 16;
        Ok(())
    }
}
