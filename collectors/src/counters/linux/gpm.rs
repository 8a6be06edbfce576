//! GPM, NVML's hardware metrics of Hopper and newer: utilisation of multiprocessors, pipes, memory and links.
//!
//! A metric is made of two samples; each reading keeps its own for the next one. No profiler and no permission of one is needed, and
//! nothing happens in the traced process.

use std::sync::Arc;

use nvml_wrapper::enums::gpm::GpmMetricId as Metric;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample, Nvml};

use super::{Id, Page};

/// Of GPM's rates, which are in MiB/s.
const MIB: f64 = 1_048_576.0;

/// Counter, metric, and what its values are multiplied with.
const METRICS: [(Id, Metric, f64); 16] = [
    (Id::GraphicsUtil, Metric::GraphicsUtil, 1.0),
    (Id::SmUtil, Metric::SmUtil, 1.0),
    (Id::SmOccupancy, Metric::SmOccupancy, 1.0),
    (Id::AnyTensorUtil, Metric::AnyTensorUtil, 1.0),
    (Id::HmmaTensorUtil, Metric::HmmaTensorUtil, 1.0),
    (Id::ImmaTensorUtil, Metric::ImmaTensorUtil, 1.0),
    (Id::DfmaTensorUtil, Metric::DfmaTensorUtil, 1.0),
    (Id::IntegerUtil, Metric::IntegerUtil, 1.0),
    (Id::Fp64Util, Metric::Fp64Util, 1.0),
    (Id::Fp32Util, Metric::Fp32Util, 1.0),
    (Id::Fp16Util, Metric::Fp16Util, 1.0),
    (Id::DramUtil, Metric::DramBwUtil, 1.0),
    (Id::PcieTx, Metric::PcieTxPerSec, MIB),
    (Id::PcieRx, Metric::PcieRxPerSec, MIB),
    (Id::NvlinkTx, Metric::NvlinkTotalTxPerSec, MIB),
    (Id::NvlinkRx, Metric::NvlinkTotalRxPerSec, MIB),
];

/// The last sample of a device.
pub(super) struct Gpm {
    last: Option<(u64, GpmSample<'static>)>,
}

impl Gpm {
    /// For a device that has it; else why it has not.
    pub(super) fn of(device: &Device<'static>) -> Result<Gpm, String> {
        if device.mig_is_mig_device_handle().unwrap_or(false) {
            return Err("GPM of a MIG instance is not read".to_owned());
        }
        match device.gpm_support() {
            Ok(true) => Ok(Gpm { last: None }),
            Ok(false) | Err(NvmlError::NotSupported) => Err("GPM needs a Hopper GPU or a newer one".to_owned()),
            Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
                Err("GPM needs driver 525 or newer".to_owned())
            }
            Err(NvmlError::NoPermission) => Err("no permission for GPM: try as root".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Takes a sample, and writes what came since the last one. An error: GPM does not work here.
    pub(super) fn read(
        &mut self,
        nvml: &'static Nvml,
        device: &Device<'static>,
        uuid: &Arc<str>,
        page: &mut Page<'_>,
    ) -> Result<(), NvmlError> {
        let sample = device.gpm_sample()?;
        if let Some((then_ns, last)) = &self.last {
            let metrics = gpm_metrics_get(nvml, last, &sample, &METRICS.map(|(_, metric, _)| metric))?;
            for ((id, _, factor), found) in METRICS.iter().zip(metrics) {
                // A metric that this GPU lacks answers with an error of its own.
                if let Some(value) = found.ok().map(|found| found.value).filter(|value| value.is_finite()) {
                    page.since(*then_ns, None, Some(uuid), *id, value * factor);
                }
            }
        }
        self.last = Some((page.at_ns, sample));
        Ok(())
    }
}
