//! Theoretical occupancy: what a multiprocessor holds, by compute capability, and how many blocks of a launch that makes.
//!
//! The collector fills columns of `kernels` with it, and the analysis of occupancy asks it for whole traces.
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
pub struct Limits {
    capability: &'static str,
    blocks: i64,
    warps: i64,
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Blocks of a multiprocessor.
    pub blocks: i64,
    /// Warps that it then holds, of those that it could, in percent.
    pub percent: f64,
    /// What bounds the blocks; none where all warps are there.
    pub limiter: Option<Limiter>,
}

/// What can bound the blocks of a multiprocessor: how many it holds at all, its registers, its shared memory, its warps.
const RESOURCES: [&str; 4] = ["blocks", "registers", "shared memory", "warps"];

/// What keeps blocks from being more: one resource, or several that allow equally many; a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter(u8);

impl Limiter {
    /// Its number, below 16.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The resources' names, separated by commas.
    pub fn text(self) -> String {
        let named = (0..).zip(RESOURCES).filter(|(bit, _)| self.0 >> bit & 1 != 0);
        named.map(|(_, name)| name).collect::<Vec<_>>().join(", ")
    }

    /// All texts, by number; the first is empty.
    pub(crate) fn texts() -> Vec<String> {
        (0..1 << RESOURCES.len()).map(|number| Limiter(number).text()).collect()
    }
}

impl Limits {
    /// Those of a capability, if it is listed.
    pub fn of(capability: &str) -> Option<&'static Limits> {
        ALL.iter().find(|known| known.capability == capability)
    }

    /// Blocks of so many threads with so many registers each and so much shared memory; what is not known bounds nothing. None
    /// for a block that does not fit at all: then the numbers are not those of the launch.
    pub fn fit(&self, threads: i64, registers: Option<i64>, shared_bytes: Option<i64>) -> Option<Fit> {
        let warps = threads / WARP + i64::from(threads % WARP > 0);
        let by_registers = registers.filter(|registers| *registers > 0).map(|registers| {
            let of_warp = round_up(registers * WARP, REGISTER_UNIT);
            REGISTERS / PARTS / of_warp * PARTS / warps.max(1)
        });
        let (unit, own) = if self.capability.starts_with('7') { (256, 0) } else { (128, 1024) };
        let by_shared = shared_bytes.map(|bytes| round_up(bytes + own, unit)).filter(|bytes| *bytes > 0);
        let by_shared = by_shared.map(|bytes| (self.shared_kib << 10) / bytes);
        // In the order of RESOURCES.
        let bounds = [Some(self.blocks), by_registers, by_shared, Some(self.warps / warps.max(1))];
        let blocks = bounds.into_iter().flatten().min().filter(|blocks| *blocks > 0)?;
        let at_bound = (0..).zip(bounds).filter(|(_, bound)| *bound == Some(blocks));
        let limiter = Limiter(at_bound.fold(0, |bits, (bit, _)| bits | 1 << bit));
        let full = blocks * warps == self.warps;
        Some(Fit {
            blocks,
            percent: 100.0 * (blocks * warps) as f64 / self.warps as f64,
            limiter: (!full).then_some(limiter),
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
        Some((fit.blocks, fit.percent, fit.limiter.map(Limiter::text).unwrap_or_default()))
    }

    #[test]
    fn blocks_are_as_many_as_the_scarcest_resource_holds() {
        let of = |blocks, percent, limiter: &str| Some((blocks, percent, limiter.to_owned()));
        assert_eq!(fit("9.0", 256, 32, 0), of(8, 100.0, ""));
        assert_eq!(fit("9.0", 256, 64, 0), of(4, 50.0, "registers"));
        // 33 registers of a warp are 1,056, and take 1,280.
        assert_eq!(fit("9.0", 1024, 33, 0), of(1, 50.0, "registers"));
        assert_eq!(fit("9.0", 128, 255, 0), of(2, 12.5, "registers"));
        assert_eq!(fit("9.0", 32, 16, 0), of(32, 50.0, "blocks"));
        // Three blocks of 20 warps leave room for four.
        assert_eq!(fit("9.0", 640, 16, 0), of(3, 93.75, "warps"));
        // A warp takes 1,536 registers: a part holds ten, and the four 40, one block of 32.
        assert_eq!(fit("9.0", 1024, 48, 100 << 10), of(1, 50.0, "registers"));
        assert_eq!(fit("9.0", 512, 64, 113 << 10), of(2, 50.0, "registers, shared memory"));
        // 227 KiB and the system's own are all that there is.
        assert_eq!(fit("9.0", 128, 16, 227 << 10), of(1, 6.25, "shared memory"));
        assert_eq!(fit("9.0", 128, 16, 228 << 10), None);
        assert_eq!(fit("8.6", 256, 40, 16 << 10), of(5, 83.33333333333333, "shared memory"));
        assert_eq!(fit("7.5", 256, 32, 16 << 10), of(4, 100.0, ""));
        assert_eq!(fit("11.0", 256, 32, 0), None);
        assert_eq!(fit("9.0", i64::MAX, 32, 0), None);
    }

    #[test]
    fn each_limiter_has_its_text_at_its_number() {
        let texts = Limiter::texts();
        assert_eq!((texts.len(), texts[0].as_str(), texts[8].as_str()), (16, "", "warps"));
        assert_eq!(texts[15], "blocks, registers, shared memory, warps");
    }

    #[test]
    fn what_is_not_known_bounds_nothing() {
        let hopper = Limits::of("9.0").expect("listed");
        assert_eq!(hopper.fit(256, None, None).map(|fit| fit.blocks), Some(8));
        assert_eq!(hopper.fit(256, Some(128), None).map(|fit| fit.blocks), Some(2));
    }
}
