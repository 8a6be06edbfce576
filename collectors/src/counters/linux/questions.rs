//! What NVML is asked of a device, a line each: the counter, and the question in the counter's unit.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use super::Id;

/// Asks a device.
pub(super) type Ask = fn(&Device<'static>) -> Result<f64, NvmlError>;

/// Read each time.
pub(super) const QUICK: &[(Id, Ask)] = &[
    (Id::GpuUtilization, |gpu| Ok(f64::from(gpu.utilization_rates()?.gpu))),
    (Id::MemoryUtilization, |gpu| Ok(f64::from(gpu.utilization_rates()?.memory))),
    (Id::MemoryUsed, |gpu| Ok(gpu.memory_info()?.used as f64)),
    (Id::Power, |gpu| Ok(f64::from(gpu.power_usage()?) / 1e3)),
    (Id::SmClock, |gpu| Ok(f64::from(gpu.clock_info(Clock::SM)?) * 1e6)),
    (Id::MemoryClock, |gpu| Ok(f64::from(gpu.clock_info(Clock::Memory)?) * 1e6)),
    (Id::ClocksEventReasons, |gpu| Ok(gpu.current_throttle_reasons()?.bits() as f64)),
];

/// Read once a second at most.
pub(super) const SLOW: &[(Id, Ask)] = &[
    (Id::PowerLimit, |gpu| Ok(f64::from(gpu.enforced_power_limit()?) / 1e3)),
    (Id::Temperature, |gpu| Ok(f64::from(gpu.temperature(TemperatureSensor::Gpu)?))),
    (Id::PcieGeneration, |gpu| Ok(f64::from(gpu.current_pcie_link_gen()?))),
    (Id::PcieGenerationMax, |gpu| Ok(f64::from(gpu.max_pcie_link_gen()?))),
    (Id::PcieWidth, |gpu| Ok(f64::from(gpu.current_pcie_link_width()?))),
    (Id::PcieWidthMax, |gpu| Ok(f64::from(gpu.max_pcie_link_width()?))),
    (Id::EccCorrected, |gpu| Ok(gpu.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile)? as f64)),
    (Id::EccUncorrected, |gpu| Ok(gpu.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)? as f64)),
];

/// Read with the slow ones where GPM does not tell: NVML looks at the link for 20 ms each time, in which this thread sleeps.
pub(super) const WITHOUT_GPM: &[(Id, Ask)] = &[
    (Id::PcieSent, |gpu| Ok(f64::from(gpu.pcie_throughput(PcieUtilCounter::Send)?) * 1e3)),
    (Id::PcieReceived, |gpu| Ok(f64::from(gpu.pcie_throughput(PcieUtilCounter::Receive)?) * 1e3)),
];
