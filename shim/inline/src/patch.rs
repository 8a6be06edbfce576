//! Patches one copy of the driver: each function for which the shim has one of the same name.

use std::collections::{HashMap, HashSet};

use gputrace_abi::patches::{Outcome, Patches, why};
use gputrace_patch::{FAR, Trouble};

use crate::elf::{Function, Library};
use crate::engine::{self, Engine};

/// Leads the driver's functions to the shim's, and enters what came of each into the table.
///
/// # Safety
/// Both libraries are mapped, and no thread can be inside the driver.
pub(crate) unsafe fn driver(driver: &Library, shim: &Library, table: &Patches, interposed: &HashSet<Vec<u8>>) {
    // SAFETY: the shim is mapped.
    let hooks: HashMap<&[u8], usize> = unsafe { shim.functions() }.map(|f| (f.name, f.address)).collect();
    let mut engine = engine::chosen();
    let mut seen = HashSet::new();
    // SAFETY: the driver is mapped.
    for function in unsafe { driver.functions() } {
        let Some(hook) = hooks.get(function.name).filter(|_| function.name.starts_with(b"cu")) else { continue };
        // Two names of one function: the first one's hook gets the calls of both.
        if !seen.insert(function.address) {
            continue;
        }
        let found = match interposed.contains(function.name) {
            true => Err(why::INTERPOSED),
            // SAFETY: nobody runs the function.
            false => unsafe { replace(&mut engine, &function, *hook) },
        };
        let outcome = found.map_or_else(Outcome::Left, Outcome::Patched);
        // Its hook finds the original in the table: a function that is not in it would call itself for ever. That the
        // table has room was made sure of before anything was patched.
        table.enter(function.address, outcome);
        if seen.len() == gputrace_abi::patches::MOST {
            return;
        }
    }
}

/// # Safety
/// Nobody runs the function.
unsafe fn replace(engine: &mut impl Engine, function: &Function, hook: usize) -> Result<usize, u8> {
    // SAFETY: the function's bytes are mapped, as its symbol says.
    let code = unsafe { std::slice::from_raw_parts(function.address as *const u8, function.bytes) };
    gputrace_patch::start(code, function.address, FAR).map_err(|trouble| match trouble {
        Trouble::TooShort => why::TOO_SHORT,
        Trouble::UnknownStart => why::UNKNOWN_START,
        Trouble::JumpsBack => why::JUMPS_BACK,
    })?;
    // SAFETY: the caller's promise, and the function was examined.
    unsafe { engine.replace(function.address, hook) }.ok_or(why::REFUSED)
}
