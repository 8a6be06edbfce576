//! Every counter: where it is read, its name, unit and meaning. `gputrace schema counters` prints this list.
//!
//! Names are those of NVML, of its GPM metrics and of /proc, in small letters. A value that is added up by the kernel or the device
//! is written as what was added since the reading before, so that sums over rows are sums over time.

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Where it is read: `nvml`, `gpm`, `proc`, `cgroup` or `perf`; `malloc`: the process says so itself.
    pub source: &'static str,
    /// Its name, unique with its source.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: &'static str,
    /// What a value means.
    pub meaning: &'static str,
}

macro_rules! counters {
    ($($source:ident { $($id:ident $name:literal $unit:literal $meaning:literal;)* })*) => {
        /// Place of a counter in [`COUNTERS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // macOS has few of them
        pub(crate) enum Id {
            $($($id,)*)*
        }

        /// Every counter.
        pub const COUNTERS: &[Counter] = &[
            $($(Counter { source: stringify!($source), name: $name, unit: $unit, meaning: $meaning },)*)*
        ];
    };
}

counters! {
    nvml {
        GpuUtilization "gpu_utilization" "%" "time in which a kernel ran, over NVML's own last sample period";
        MemoryUtilization "memory_utilization" "%" "time in which device memory was read or written, over the same period";
        MemoryUsed "memory_used" "bytes" "device memory in use, by all processes";
        Power "power" "W" "power draw";
        PowerLimit "power_limit" "W" "the limit that is enforced";
        Temperature "temperature" "C" "temperature of the GPU";
        SmClock "sm_clock" "Hz" "clock of the multiprocessors";
        MemoryClock "memory_clock" "Hz" "clock of the memory";
        ClocksEventReasons "clocks_event_reasons" "" "why clocks are not higher, the sum of: 1 idle, 2 applications clocks, 4 \
            software power cap, 8 hardware slowdown, 16 sync boost, 32 software thermal slowdown, 64 hardware thermal slowdown, 128 \
            power brake, 256 display clocks";
        PcieGeneration "pcie_link_gen" "" "generation of the PCIe link, as it is now";
        PcieGenerationMax "pcie_link_gen_max" "" "the highest that device and system can have";
        PcieWidth "pcie_link_width" "" "lanes of the PCIe link, as it is now";
        PcieWidthMax "pcie_link_width_max" "" "the most that device and system can have";
        PcieReplays "pcie_replays" "" "PCIe packets that had to be sent again";
        PcieSent "pcie_tx" "bytes/s" "sent by the GPU over PCIe, over 20 ms; read where there is no GPM";
        PcieReceived "pcie_rx" "bytes/s" "received by it";
        EccCorrected "ecc_corrected" "" "memory errors that ECC corrected, since the driver was loaded";
        EccUncorrected "ecc_uncorrected" "" "memory errors that it could not correct, since the driver was loaded";
        Xid "xid" "" "number of a critical Xid error, when it was told of";
        Processes "compute_processes" "" "processes with a compute context on the device";
        ProcessMemory "process_memory_used" "bytes" "device memory that the process uses";
    }
    gpm {
        GraphicsUtil "graphics_util" "%" "time in which any kernel was on the GPU";
        SmUtil "sm_util" "%" "time in which a multiprocessor had a warp, mean of all";
        SmOccupancy "sm_occupancy" "%" "warps on the multiprocessors, of those that they can hold";
        AnyTensorUtil "any_tensor_util" "%" "time in which tensor pipes worked";
        HmmaTensorUtil "hmma_tensor_util" "%" "the same, with 16-bit floating point numbers";
        ImmaTensorUtil "imma_tensor_util" "%" "the same, with integers";
        DfmaTensorUtil "dfma_tensor_util" "%" "the same, with 64-bit floating point numbers";
        IntegerUtil "integer_util" "%" "time in which integer pipes worked";
        Fp64Util "fp64_util" "%" "time in which pipes for 64-bit floating point numbers worked";
        Fp32Util "fp32_util" "%" "the same, of 32 bits";
        Fp16Util "fp16_util" "%" "the same, of 16 bits";
        DramUtil "dram_bw_util" "%" "bandwidth of device memory, of its peak";
        PcieTx "pcie_tx" "bytes/s" "sent by the GPU over PCIe";
        PcieRx "pcie_rx" "bytes/s" "received by it";
        NvlinkTx "nvlink_tx" "bytes/s" "sent over all NVLinks";
        NvlinkRx "nvlink_rx" "bytes/s" "received";
    }
    proc {
        CpuUser "cpu_user" "%" "time on a processor in user mode; 100 is one processor";
        CpuSystem "cpu_system" "%" "the same in the kernel";
        Rss "rss" "bytes" "resident memory";
        Threads "threads" "" "threads";
        MinorFaults "minor_faults" "" "page faults that needed no disk";
        MajorFaults "major_faults" "" "page faults that did";
        VoluntarySwitches "voluntary_switches" "" "how often the process's first thread waited";
        InvoluntarySwitches "involuntary_switches" "" "how often its processor was taken from it";
    }
    cgroup {
        Periods "periods" "" "periods of the quota of processors in which something ran";
        ThrottledPeriods "throttled_periods" "" "those in which the quota was used up";
        ThrottledTime "throttled_time" "ns" "time for which processors were taken away, sum of all of them";
    }
    malloc {
        Arenas "arenas" "bytes" "what the arenas of glibc's malloc have from the kernel (--malloc-arenas)";
        ArenasFree "arenas_free" "bytes" "of these, what no block has: fragmentation and what is kept for later";
        ArenasEnd "arenas_at_end" "bytes" "of these, what lies at the heap's end and could be given back at once";
        MappedBlocks "mapped_blocks" "bytes" "large blocks of malloc's outside of the arenas, each with a mapping of its own";
        ArenasLook "arenas_look" "ns" "how long the look at the arenas took; each was locked for its part of it";
    }
    perf {
        Cycles "cycles" "" "cycles of processors, in user mode";
        Instructions "instructions" "" "instructions, in user mode";
        CacheMisses "cache_misses" "" "misses of the last-level cache, in user mode";
        BranchMisses "branch_misses" "" "branches that were predicted wrongly, in user mode";
        TaskClock "task_clock" "ns" "time on processors";
        PageFaults "page_faults" "" "page faults";
        ContextSwitches "context_switches" "" "changes of the thread on a processor; 0 where only user mode may be counted";
    }
}

impl Id {
    /// What stands in the list.
    pub(crate) fn counter(self) -> &'static Counter {
        &COUNTERS[self as usize]
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn each_counter_is_there_once_and_in_the_order_of_its_number() {
        for (n, one) in COUNTERS.iter().enumerate() {
            let same = |other: &&Counter| (other.source, other.name) == (one.source, one.name);
            assert_eq!(COUNTERS.iter().filter(same).count(), 1, "{one:?}");
            assert!(n < usize::from(u8::MAX) && !one.meaning.is_empty());
        }
        assert_eq!(Id::ContextSwitches as usize, COUNTERS.len() - 1);
        assert_eq!((Id::Xid.counter().name, Id::DramUtil.counter().source), ("xid", "gpm"));
    }
}
