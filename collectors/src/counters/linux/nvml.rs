//! NVML: what the driver tells of the devices that traced processes see.
//!
//! The library is the driver's own, loaded when the first of them is seen. What a device does not answer (a MIG instance, a virtual
//! GPU, an old driver) is named once in the manifest and not asked again; a device that fell off the bus is left alone from then on.
//!
//! A collector of several sessions reads in several threads, and the library is used by one at a time: read by two, an H200's driver
//! (580.159) died in it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::GpuVirtualizationMode;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::gpm::Gpm;
use super::questions::{Ask, QUICK, SLOW, WITHOUT_GPM};
use super::{Id, Page};

/// The library's name: the one that the driver installs, and that containers get.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// What changes slowly, or takes the driver longer, is read this often at most.
const SLOW_NS: u64 = 950_000_000;

/// Whose turn it is.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The devices, once there are any.
#[derive(Default)]
pub(super) struct Gpus {
    /// None before the first device; an error is not tried again.
    library: Option<Option<&'static Nvml>>,
    all: BTreeMap<String, Gpu>,
}

struct Gpu {
    uuid: Arc<str>,
    /// None: NVML does not know it, or it is lost.
    device: Option<Device<'static>>,
    gpm: Option<Gpm>,
    xid: Option<EventSet<'static>>,
    /// Processes that see it and live.
    seen_by: Vec<i64>,
    /// What it does not answer.
    refused: Vec<Id>,
    slow_ns: Option<u64>,
    replays: Option<(u64, u32)>,
}

impl Gpus {
    /// A process sees these devices: UUID and PCI address.
    pub(super) fn see(&mut self, process_id: i64, devices: &[(String, String)], page: &Page<'_>) {
        let _turn = turn();
        for (uuid, pci) in devices {
            let Some(nvml) = *self.library.get_or_insert_with(|| load(page)) else { return };
            let gpu = self.all.entry(uuid.clone()).or_insert_with(|| Gpu::find(nvml, uuid, pci, page));
            if !gpu.seen_by.contains(&process_id) {
                gpu.seen_by.push(process_id);
            }
        }
    }

    /// It has ended.
    pub(super) fn forget(&mut self, process_id: i64) {
        self.all.values_mut().for_each(|gpu| gpu.seen_by.retain(|id| *id != process_id));
    }

    /// Reads the devices that a living process sees; processes are known by process id and pid.
    pub(super) fn read(&mut self, processes: &[(i64, i32)], page: &mut Page<'_>) {
        let Some(Some(nvml)) = self.library else { return };
        let _turn = turn();
        for gpu in self.all.values_mut().filter(|gpu| !gpu.seen_by.is_empty()) {
            gpu.read(nvml, processes, page);
        }
    }

    /// Says why there are no rows, where nobody used a GPU.
    pub(super) fn note_unused(&self, page: &Page<'_>) {
        if self.library.is_none() {
            for source in ["nvml", "gpm"] {
                page.missing(source, "no traced process used a CUDA device".to_owned());
            }
        }
    }
}

impl Drop for Gpus {
    fn drop(&mut self) {
        let _turn = turn();
        self.all.clear();
    }
}

/// Loads and starts the library; else says why that cannot be, and what to do.
fn start(library: &str) -> Result<Nvml, String> {
    Nvml::builder().lib_path(OsStr::new(library)).init().map_err(|error| match error {
        NvmlError::LibloadingError(why) if !why.to_string().contains("No such file") => {
            format!("{library} cannot be loaded: {why}")
        }
        NvmlError::LibloadingError(_) => format!(
            "{library} is not there: it comes with the driver, into containers with NVIDIA_DRIVER_CAPABILITIES=utility"
        ),
        NvmlError::LibRmVersionMismatch => {
            format!("{library} is not of the driver's version: restart the machine, or install the driver's own")
        }
        NvmlError::NoPermission => "no permission to ask the driver: see the rights of /dev/nvidiactl".to_owned(),
        other => format!("{library} does not start: {other}"),
    })
}

fn load(page: &Page<'_>) -> Option<&'static Nvml> {
    // Given back by the end of the process: devices refer to it as long as it may be asked.
    let loaded = start(LIBRARY).map(|nvml| &*Box::leak(Box::new(nvml)));
    let refused = |why| {
        page.missing("gpm", "needs NVML".to_owned());
        page.missing("nvml", why);
    };
    loaded.map_err(refused).ok()
}

/// For `doctor`: what NVML is there, and whether its first device has GPM.
pub(in super::super) fn probe() -> Result<String, String> {
    let nvml = start(LIBRARY)?;
    let version = nvml.sys_driver_version().unwrap_or_default();
    // A container that is given some devices sees those alone, counted from 0.
    let gpm = nvml.device_by_index(0).and_then(|device| device.gpm_support()).unwrap_or(false);
    Ok(format!(
        "NVML of driver {version}; {}",
        if gpm { "GPM" } else { "no GPM, which needs a Hopper GPU or a newer one" }
    ))
}

impl Gpu {
    fn find(nvml: &'static Nvml, uuid: &str, pci: &str, page: &Page<'_>) -> Gpu {
        let mig = uuid.replacen("GPU-", "MIG-", 1);
        let by_name = nvml.device_by_uuid(uuid).or_else(|error| nvml.device_by_uuid(mig.as_str()).map_err(|_| error));
        let found = by_name.or_else(|error| nvml.device_by_pci_bus_id(pci).map_err(|_| error));
        let mut gpu = Gpu {
            uuid: uuid.into(),
            device: None,
            gpm: None,
            xid: None,
            seen_by: Vec::new(),
            refused: Vec::new(),
            slow_ns: None,
            replays: None,
        };
        match found {
            Ok(device) => {
                if matches!(device.virtualization_mode(), Ok(GpuVirtualizationMode::Vgpu)) {
                    page.missing(
                        "nvml",
                        format!(
                            "{uuid}: a virtual GPU: what its host alone knows (power, clocks, ECC) is not told here"
                        ),
                    );
                }
                gpu.gpm = Gpm::of(&device).map_err(|why| page.missing("gpm", format!("{uuid}: {why}"))).ok();
                gpu.xid = watch(nvml, &device).map_err(|error| page.lacks("nvml", uuid, "xid", &why(error))).ok();
                gpu.device = Some(device);
            }
            Err(error) => page.missing("nvml", format!("{uuid}: {error}")),
        }
        gpu
    }

    fn read(&mut self, nvml: &'static Nvml, processes: &[(i64, i32)], page: &mut Page<'_>) {
        self.ask(QUICK, page);
        self.read_xid(page);
        if let (Some(device), Some(gpm)) = (&self.device, &mut self.gpm)
            && let Err(error) = gpm.read(nvml, device, &self.uuid, page)
        {
            page.missing("gpm", format!("{}: {error}", self.uuid));
            self.gpm = None;
        }
        if self.slow_ns.is_none_or(|then| page.at_ns.saturating_sub(then) >= SLOW_NS) {
            self.slow_ns = Some(page.at_ns);
            self.ask(SLOW, page);
            if self.gpm.is_none() {
                self.ask(WITHOUT_GPM, page);
            }
            self.read_replays(page);
            self.read_processes(processes, page);
        }
    }

    fn ask(&mut self, list: &[(Id, Ask)], page: &mut Page<'_>) {
        for (id, ask) in list {
            if let Some(value) = self.one(*id, ask, page) {
                let uuid = Arc::clone(&self.uuid);
                page.now(None, Some(&uuid), *id, value);
            }
        }
    }

    /// An answer. What is refused is noted, and not asked again.
    fn one<T>(&mut self, id: Id, ask: impl Fn(&Device<'static>) -> Result<T, NvmlError>, page: &Page<'_>) -> Option<T> {
        let device = self.device.as_ref().filter(|_| !self.refused.contains(&id))?;
        match ask(device) {
            Ok(value) => Some(value),
            Err(NvmlError::GpuLost | NvmlError::ResetRequired) => {
                let what =
                    "the GPU is lost, it fell off the bus or needs a reset: not read any more; see dmesg for its Xid";
                page.missing("nvml", format!("{}: {what}", self.uuid));
                page.lost(&self.uuid);
                (self.device, self.gpm, self.xid) = (None, None, None);
                None
            }
            // Passing trouble: it is asked again.
            Err(NvmlError::Timeout | NvmlError::InUse | NvmlError::NoData | NvmlError::InsufficientSize(_)) => None,
            Err(error) => {
                self.refused.push(id);
                page.lacks("nvml", &self.uuid, id.counter().name, &why(error));
                None
            }
        }
    }

    fn read_xid(&mut self, page: &mut Page<'_>) {
        // At most so many at once: a broken device may report without end.
        for _ in 0..8 {
            let Some(event) = self.xid.as_ref().map(|set| set.wait(0)) else { return };
            match event {
                Ok(event) => {
                    let number = match event.event_data {
                        Some(XidError::Value(number)) => number as f64,
                        Some(XidError::Unknown) => 999.0,
                        None => continue,
                    };
                    page.now(None, Some(&self.uuid), Id::Xid, number);
                }
                Err(NvmlError::Timeout) => return,
                Err(error) => {
                    page.lacks("nvml", &self.uuid, "xid", &why(error));
                    self.xid = None;
                }
            }
        }
    }

    fn read_replays(&mut self, page: &mut Page<'_>) {
        let Some(now) = self.one(Id::PcieReplays, |gpu| gpu.pcie_replay_counter(), page) else { return };
        if let Some((then_ns, before)) = self.replays.replace((page.at_ns, now)) {
            page.since(then_ns, None, Some(&self.uuid), Id::PcieReplays, f64::from(now.wrapping_sub(before)));
        }
    }

    fn read_processes(&mut self, processes: &[(i64, i32)], page: &mut Page<'_>) {
        let Some(running) = self.one(Id::Processes, |gpu| gpu.running_compute_processes(), page) else { return };
        page.now(None, Some(&self.uuid), Id::Processes, running.len() as f64);
        for (process_id, pid) in processes {
            let ours = running.iter().find(|process| i64::from(process.pid) == i64::from(*pid));
            if let Some(UsedGpuMemory::Used(bytes)) = ours.map(|process| &process.used_gpu_memory) {
                page.now(Some((*process_id, *pid)), Some(&self.uuid), Id::ProcessMemory, *bytes as f64);
            }
        }
    }
}

/// Why a device does not tell something.
fn why(error: NvmlError) -> String {
    match error {
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => "this driver is too old for it".to_owned(),
        NvmlError::NotSupported => "not told of for this device (a MIG instance, a virtual GPU, its kind)".to_owned(),
        other => other.to_string(),
    }
}

/// A set that gets the device's critical Xid errors.
fn watch(nvml: &'static Nvml, device: &Device<'static>) -> Result<EventSet<'static>, NvmlError> {
    device.register_events(EventTypes::CRITICAL_XID_ERROR, nvml.create_event_set()?).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_there_and_cannot_be_loaded_is_not_said_to_be_missing() {
        let why = |library: &str| start(library).expect_err("no library of NVML");
        assert!(why("/nonexistent/libnvidia-ml.so.1").contains("is not there"));
        assert!(why("/dev/null").starts_with("/dev/null cannot be loaded: "), "{}", why("/dev/null"));
    }
}
