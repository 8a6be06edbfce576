//! What a multiprocessor holds, by compute capability, and how many blocks of a launch that makes.
//!
//! Blocks, warps and shared memory: CUDA Programming Guide, Compute Capabilities, tables of information per compute
//! capability (7.0: its edition of CUDA 12). Registers are allotted to whole warps in units of 256, from four equal parts;
//! shared memory in units of 128 bytes (256 before 8.0), of which each block takes 1 KiB for the system from 8.0 on: CUDA's
//! header of the occupancy calculator, cuda_occupancy.h.

/// Threads of a warp.
const WARP: i64 = 32;
/// Registers of a multiprocessor, of every capability listed.
const REGISTERS: i64 = 64 << 10;
/// Its parts, each with as many of the registers.
const PARTS: i64 = 4;
/// Registers of a warp come in such units.
const REGISTER_UNIT: i64 = 256;

/// What a multiprocessor holds at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    capability: &'static str,
    blocks: i64,
    pub(super) warps: i64,
    shared_kib: i64,
}

const fn limits(capability: &'static str, blocks: i64, warps: i64, shared_kib: i64) -> Limits {
    Limits { capability, blocks, warps, shared_kib }
}

/// Capability, blocks, warps, shared memory.
const ALL: &[Limits] = &[
    limits("7.0", 32, 64, 96),
    limits("7.5", 16, 32, 64),
    limits("8.0", 32, 64, 164),
    limits("8.6", 16, 48, 100),
    limits("8.7", 16, 48, 164),
    limits("8.9", 24, 48, 100),
    limits("9.0", 32, 64, 228),
    limits("10.0", 32, 64, 228),
    limits("10.3", 32, 64, 228),
    limits("12.0", 24, 48, 100),
    limits("12.1", 24, 48, 100),
];

/// How many blocks fit, and what keeps it from being more.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fit {
    /// Blocks of a multiprocessor.
    pub(super) blocks: i64,
    /// Warps that it then holds, of those that it could, in percent.
    pub(super) percent: f64,
    /// What bounds the blocks; empty where all warps are there.
    pub(super) limiter: String,
}

impl Limits {
    /// Those of a capability, if it is listed.
    pub(super) fn of(capability: &str) -> Option<&'static Limits> {
        ALL.iter().find(|known| known.capability == capability)
    }

    /// Blocks of so many threads with so many registers each and so much shared memory; what is not known bounds nothing. None
    /// for a block that does not fit at all: then the numbers are not those of the launch.
    pub(super) fn fit(&self, threads: i64, registers: Option<i64>, shared_bytes: Option<i64>) -> Option<Fit> {
        let warps = (threads + WARP - 1) / WARP;
        let by_registers = registers.filter(|registers| *registers > 0).map(|registers| {
            let of_warp = round_up(registers * WARP, REGISTER_UNIT);
            REGISTERS / PARTS / of_warp * PARTS / warps.max(1)
        });
        let (unit, own) = if self.capability.starts_with('7') { (256, 0) } else { (128, 1024) };
        let by_shared = shared_bytes.map(|bytes| round_up(bytes + own, unit)).filter(|bytes| *bytes > 0);
        let by_shared = by_shared.map(|bytes| (self.shared_kib << 10) / bytes);
        let bounds = [
            ("block size", Some((self.warps / warps.max(1)).min(self.blocks))),
            ("registers", by_registers),
            ("shared memory", by_shared),
        ];
        let blocks = bounds.iter().filter_map(|(_, blocks)| *blocks).min().filter(|blocks| *blocks > 0)?;
        let at_bound = bounds.iter().filter(|(_, bound)| *bound == Some(blocks)).map(|(name, _)| *name);
        let full = blocks * warps == self.warps;
        Some(Fit {
            blocks,
            percent: 100.0 * (blocks * warps) as f64 / self.warps as f64,
            limiter: if full { String::new() } else { at_bound.collect::<Vec<_>>().join(", ") },
        })
    }
}

fn round_up(value: i64, unit: i64) -> i64 {
    (value + unit - 1) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(capability: &str, threads: i64, registers: i64, shared_bytes: i64) -> Option<(i64, f64, String)> {
        let fit = Limits::of(capability)?.fit(threads, Some(registers), Some(shared_bytes))?;
        Some((fit.blocks, fit.percent, fit.limiter))
    }

    #[test]
    fn blocks_are_as_many_as_the_scarcest_resource_holds() {
        let of = |blocks, percent, limiter: &str| Some((blocks, percent, limiter.to_owned()));
        assert_eq!(fit("9.0", 256, 32, 0), of(8, 100.0, ""));
        assert_eq!(fit("9.0", 256, 64, 0), of(4, 50.0, "registers"));
        // 33 registers of a warp are 1,056, and take 1,280.
        assert_eq!(fit("9.0", 1024, 33, 0), of(1, 50.0, "registers"));
        assert_eq!(fit("9.0", 128, 255, 0), of(2, 12.5, "registers"));
        assert_eq!(fit("9.0", 32, 16, 0), of(32, 50.0, "block size"));
        // 227 KiB and the system's own are all that there is.
        assert_eq!(fit("9.0", 128, 16, 227 << 10), of(1, 6.25, "shared memory"));
        assert_eq!(fit("9.0", 128, 16, 228 << 10), None);
        assert_eq!(fit("8.6", 256, 40, 16 << 10), of(5, 83.33333333333333, "shared memory"));
        assert_eq!(fit("7.5", 256, 32, 16 << 10), of(4, 100.0, ""));
        assert_eq!(fit("11.0", 256, 32, 0), None);
    }

    #[test]
    fn what_is_not_known_bounds_nothing() {
        let hopper = Limits::of("9.0").expect("listed");
        assert_eq!(hopper.fit(256, None, None).map(|fit| fit.blocks), Some(8));
        assert_eq!(hopper.fit(256, Some(128), None).map(|fit| fit.blocks), Some(2));
    }
}
