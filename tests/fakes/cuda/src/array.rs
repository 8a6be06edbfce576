//! CUDA arrays, kept as plain rows in device memory.

use crate::codes::*;
use crate::memory::Kind;
use crate::state::{Driver, driver, out};
use crate::table::{R, driver as functions};

pub(crate) struct Array {
    pub(crate) base: u64,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
    descriptor: Descriptor3D,
}

#[repr(C)]
pub(crate) struct Descriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Descriptor3D {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

/// Bytes of one channel of a CUarray_format.
fn format_bytes(format: u32) -> R<usize> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(INVALID_VALUE),
    }
}

impl Driver {
    fn new_array(&mut self, descriptor: Descriptor3D) -> R<u64> {
        let Descriptor3D { width, height, depth, format, channels, .. } = descriptor;
        if width == 0 || !matches!(channels, 1 | 2 | 4) {
            return Err(INVALID_VALUE);
        }
        let pitch = width.checked_mul(channels as usize * format_bytes(format)?).ok_or(OUT_OF_MEMORY)?;
        let bytes = pitch.checked_mul(height.max(1)).and_then(|slice| slice.checked_mul(depth.max(1)));
        let base = self.new_memory(Kind::Device, bytes.ok_or(OUT_OF_MEMORY)? as u64, 0)?;
        Ok(self.arrays.insert(Array { base, pitch, height, descriptor }))
    }
}

functions! {
    fn cuArrayCreate_v2(result: *mut u64, descriptor: *const Descriptor) = "cuArrayCreate" 3020 |_| {
        let p = descriptor.as_ref().ok_or(INVALID_VALUE)?;
        let (width, height, format, channels) = (p.width, p.height, p.format, p.channels);
        let descriptor = Descriptor3D { width, height, depth: 0, format, channels, flags: 0 };
        *out(result)? = driver()?.new_array(descriptor)?;
        Ok(())
    }
    fn cuArray3DCreate_v2(result: *mut u64, descriptor: *const Descriptor3D) = "cuArray3DCreate" 3020 |_| {
        *out(result)? = driver()?.new_array(*descriptor.as_ref().ok_or(INVALID_VALUE)?)?;
        Ok(())
    }
    fn cuArrayGetDescriptor_v2(result: *mut Descriptor, array: u64) = "cuArrayGetDescriptor" 3020 |_| {
        let d = driver()?;
        let Descriptor3D { width, height, format, channels, .. } = d.arrays.get(array).ok_or(INVALID_HANDLE)?.descriptor;
        *out(result)? = Descriptor { width, height, format, channels };
        Ok(())
    }
    fn cuArray3DGetDescriptor_v2(result: *mut Descriptor3D, array: u64) = "cuArray3DGetDescriptor" 3020 |_| {
        *out(result)? = driver()?.arrays.get(array).ok_or(INVALID_HANDLE)?.descriptor;
        Ok(())
    }
    fn cuArrayDestroy(array: u64) = "cuArrayDestroy" 2000 |_| {
        let mut d = driver()?;
        d.refuse_in_capture()?;
        let context = d.current()?;
        let points = d.outstanding(context);
        let mut d = crate::timeline::wait(d, |d| d.reached(&points));
        let array = d.arrays.remove(array).ok_or(INVALID_HANDLE)?;
        d.memory.release(array.base);
        Ok(())
    }
}
