//! What is known about an address.

use crate::codes::*;
use crate::memory::Kind;
use crate::state::{Driver, driver};
use crate::table::{R, driver as functions};
use std::ffi::c_void;

const HOST: u32 = 1;
const DEVICE: u32 = 2;

impl Driver {
    /// Writes one attribute of an address; INVALID_VALUE for memory that was not got from the driver.
    unsafe fn pointer_attribute(&self, target: *mut c_void, attribute: u32, address: u64) -> R {
        if target.is_null() {
            return Err(INVALID_VALUE);
        }
        let (base, a) = self.memory.find(address).ok_or(INVALID_VALUE)?;
        let host = matches!(a.kind, Kind::Pinned | Kind::Registered);
        let word = |value: u64| unsafe { target.cast::<u64>().write_unaligned(value) };
        let half = |value: u32| unsafe { target.cast::<u32>().write_unaligned(value) };
        let flag = |value: bool| unsafe { target.cast::<u8>().write(value.into()) };
        match attribute {
            1 => word(a.context),
            2 => half(if host { HOST } else { DEVICE }),
            3 => word(address),
            4 if host || a.kind == Kind::Managed => word(address),
            4 | 5 => return Err(INVALID_VALUE),
            6 => flag(false),
            7 => word(a.id),
            8 => flag(a.kind == Kind::Managed),
            9 => half(a.device as u32),
            10 => flag(a.kind == Kind::Device),
            11 => word(base),
            12 => word(a.bytes),
            13 => flag(true),
            14 => word(0),
            15 => flag(false),
            16 => half(3),
            17 => word(if a.kind == Kind::Pooled { a.pool } else { 0 }),
            18 => word(a.bytes),
            19 => word(base),
            20 => word(a.id),
            21 => flag(false),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}

functions! {
    fn cuPointerGetAttribute(target: *mut c_void, attribute: u32, address: u64) = "cuPointerGetAttribute" 4000 |_| {
        driver()?.pointer_attribute(target, attribute, address)
    }
    fn cuPointerGetAttributes(count: u32, attributes: *const u32, targets: *const *mut c_void, address: u64)
        = "cuPointerGetAttributes" 7000 |_| {
        if count == 0 || attributes.is_null() || targets.is_null() {
            return Err(INVALID_VALUE);
        }
        let d = driver()?;
        for i in 0..count as usize {
            let (attribute, target) = (*attributes.add(i), *targets.add(i));
            // Unlike the singular call this one succeeds for any address, with a neutral answer.
            if d.pointer_attribute(target, attribute, address).is_err() && !target.is_null() {
                match attribute {
                    6 | 8 | 10 | 13 | 15 | 21 => target.cast::<u8>().write(0),
                    2 | 16 => target.cast::<u32>().write_unaligned(0),
                    9 => target.cast::<i32>().write_unaligned(-2),
                    _ => target.cast::<u64>().write_unaligned(0),
                }
            }
        }
        Ok(())
    }
    fn cuPointerSetAttribute(_value: *const c_void, _attribute: u32, address: u64) = "cuPointerSetAttribute" 6000 |_| {
        driver()?.memory.find(address).map(|_| ()).ok_or(INVALID_VALUE)
    }
}
