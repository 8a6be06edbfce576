//! What stands beside the events: processes, threads, devices, hosts, when it was, and what wrote it.

use std::io;

use super::Export;
use super::database::Cell;
use super::sheets::{ANALYSIS_DETAILS, CUDA_DEVICE, GPU, META, PROCESSES, SESSION_START, SYSTEM_ENV, THREADS};
use crate::trace::{Filter, Trace};

/// The version of nsys' schema whose columns these are.
const SCHEMA: [i64; 3] = [3, 16, 1];

impl Export<'_> {
    pub(super) fn about(&mut self, trace: &Trace, filter: &Filter, outside: Option<&str>) -> io::Result<()> {
        let kept = |process: i64| filter.processes.as_ref().is_none_or(|kept| kept.contains(&process));
        for process in trace.processes.iter().filter(|process| process.summed == 0 && kept(process.process_id)) {
            let pid = self.places.pid(process.process_id);
            self.to.insert(&PROCESSES, &[pid.into(), i64::from(process.pid).into(), process.exe.as_str().into()])?;
        }
        let mut threads: Vec<_> = trace.thread_names().into_iter().filter(|((process, _), _)| kept(*process)).collect();
        threads.sort();
        for ((process, tid), name) in threads {
            let tid = self.places.tid(process, tid);
            let name = self.strings.number(&mut self.to, &name)?;
            self.to.insert(&THREADS, &[name.into(), tid.into()])?;
        }
        self.devices(trace)?;
        for (host, vid) in self.places.hosts.clone() {
            self.to.insert(&SYSTEM_ENV, &[vid.into(), "".into(), "Hostname".into(), 0.into(), host.into()])?;
        }
        let (begin, end) = (self.begin_ns, self.end_ns);
        self.to.insert(&SESSION_START, &[begin.into()])?;
        self.to.insert(&ANALYSIS_DETAILS, &[0.into(), end.into(), 0.into(), end.into()])?;
        let [major, minor, micro] = SCHEMA.map(|part| part.to_string());
        for (name, value) in [
            ("EXPORT_PRODUCT_NAME", "gputrace"),
            ("EXPORT_PRODUCT_VERSION", env!("CARGO_PKG_VERSION")),
            ("EXPORT_SCHEMA_VERSION", &format!("{major}.{minor}.{micro}")),
            ("EXPORT_SCHEMA_VERSION_MAJOR", &major),
            ("EXPORT_SCHEMA_VERSION_MINOR", &minor),
            ("EXPORT_SCHEMA_VERSION_MICRO", &micro),
        ] {
            self.to.insert(&META, &[name.into(), value.into()])?;
        }
        if let Some(text) = outside {
            self.to.insert(&META, &["GPUTRACE_LEFT_OUT".into(), text.into()])?;
        }
        Ok(())
    }

    fn devices(&mut self, trace: &Trace) -> io::Result<()> {
        for (id, device) in (0..).zip(self.places.devices.clone()) {
            let capability = device.compute_capability.split_once('.');
            let part = |text: Option<&str>| Cell::from(text.and_then(|text| text.parse::<i64>().ok()));
            self.to.insert(
                &GPU,
                &[
                    id.into(),
                    device.name.as_str().into(),
                    device.pci_bus_id.as_str().into(),
                    device.l2_bytes.into(),
                    device.memory_bytes.into(),
                    device.memory_peak_bytes_per_s.into(),
                    device.sm_clock_hz.into(),
                    device.sm_count.into(),
                    device.uuid.as_str().into(),
                    id.into(),
                    part(capability.map(|(major, _)| major)),
                    part(capability.map(|(_, minor)| minor)),
                ],
            )?;
        }
        let mut seen: Vec<_> = self.places.seen().collect();
        seen.sort_unstable();
        for (process, ordinal, device) in seen {
            let about = self.places.devices[device as usize];
            let pid = trace.process(process).map(|process| i64::from(process.pid));
            let sms = about.sm_count.into();
            let cells = [device.into(), ordinal.into(), pid.into(), about.uuid.as_str().into(), sms];
            self.to.insert(&CUDA_DEVICE, &cells)?;
        }
        Ok(())
    }
}
