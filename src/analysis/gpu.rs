//! What the analyses of the GPU's own time share: how devices are called, and what they say where there is no such time.

use super::Facts;
use super::passes::gpu::{Device, Gpu};
use super::section::Section;

/// What is said where a trace has no times of a GPU, and how to get them.
pub(super) const NO_TIMES: &str = "No times of a GPU are in this trace: recording does not take them in this version. \
    gputrace import reads them from traces of torch.profiler (Kineto) and Nsight Systems.";

/// The pass, or a note in the section.
pub(super) fn times<'a>(facts: &'a Facts<'_>, section: &mut Section) -> Option<&'a Gpu> {
    let gpu = facts.gpu.as_ref().filter(|gpu| gpu.any());
    let Some(gpu) = gpu else {
        section.note(NO_TIMES);
        return None;
    };
    if gpu.without_time > 0 {
        let count = gpu.without_time;
        section.note(format!("{count} operations end before they begin in the trace; they are in no sum."));
    }
    if gpu.late > 0 {
        section.note(format!(
            "{} operations came more than 50 ms after later ones; their time may count as idle.",
            gpu.late
        ));
    }
    Some(gpu)
}

/// `0` where one process or rank has it, else `0 of rank 3`.
pub(super) fn name(facts: &Facts<'_>, gpu: &Gpu, device: &Device) -> String {
    let (process_id, ordinal) = device.named;
    let same = gpu.devices.iter().filter(|other| other.named.1 == ordinal).count();
    if same <= 1 { ordinal.to_string() } else { format!("{ordinal} of {}", facts.label(process_id)) }
}
