//! What two traces are compared by, step by step, and which analyses that answers for.
//!
//! What a step's calls did is as the report has it (`passes::step_sums`): a copy, a free or an allocation that waited for
//! earlier work is a wait, and its waiting is time in waits. To add a quantity: write its line.

use gputrace_collectors::schema::TableId;

use super::{Change, Part, Samples, compare};
use crate::analysis::{StepCause, Tally, Unit};

/// A quantity of a step.
pub(super) struct Quantity {
    /// What it is called.
    pub(super) what: &'static str,
    /// Its unit.
    pub(super) unit: Unit,
    /// Where it comes from.
    pub(super) of: Of,
    /// The analyses whose numbers it is, step by step.
    analyses: &'static [&'static str],
}

/// Where a quantity of a step comes from.
#[derive(Clone, Copy)]
pub(super) enum Of {
    /// From its begin to its end.
    Duration,
    /// Its calls.
    Calls(fn(&Tally) -> f64),
    /// Runs of kernels on the GPU.
    Kernels,
    /// Time of them.
    KernelNs,
    /// Time in which a GPU worked for the process, of several GPUs the mean.
    Busy,
    /// The rest of the step.
    Idle,
}

impl Of {
    /// Whether it takes times of a GPU.
    fn is_of_gpu(self) -> bool {
        matches!(self, Of::Kernels | Of::KernelNs | Of::Busy | Of::Idle)
    }
}

const fn quantity(what: &'static str, unit: Unit, analyses: &'static [&'static str], of: Of) -> Quantity {
    Quantity { what, unit, of, analyses }
}

fn ns(tally: &Tally, cause: StepCause) -> f64 {
    tally.ns[cause as usize] as f64
}

fn calls(tally: &Tally, cause: StepCause) -> f64 {
    f64::from(tally.calls[cause as usize])
}

/// All of them, in the order of a comparison.
pub(super) const QUANTITIES: &[Quantity] = {
    use StepCause::*;
    use Unit::*;
    &[
        quantity("duration", Ns, &["summary", "metal-baseline"], Of::Duration),
        quantity(LAUNCHES, Count, &["summary", "launch-overhead"], Of::Calls(|t| calls(t, Launch))),
        quantity(LAUNCH_TIME, Ns, &["summary", "launch-overhead"], Of::Calls(|t| ns(t, Launch))),
        // Of CUDA without graphs these are the launches: with steps they stand nowhere.
        quantity(GIVEN, Count, &["metal-baseline"], Of::Calls(|t| f64::from(t.kernels))),
        quantity("waits", Count, &["summary", "syncs"], Of::Calls(|t| f64::from(t.waits()))),
        quantity("time in waits", Ns, &["summary", "syncs"], Of::Calls(|t| ns(t, Wait))),
        quantity("copies and sets", Count, &["summary", "transfers"], Of::Calls(|t| calls(t, Copy))),
        quantity(BYTES, Bytes, &["transfers"], Of::Calls(|t| t.bytes as f64)),
        quantity("time in copies and sets", Ns, &["summary", "transfers"], Of::Calls(|t| ns(t, Copy))),
        quantity(
            "allocation and free calls",
            Count,
            &["summary", "device-memory", "metal-baseline"],
            Of::Calls(|t| calls(t, Memory) + f64::from(t.frees)),
        ),
        quantity("time in allocation and free", Ns, &["summary", "device-memory"], Of::Calls(|t| ns(t, Memory))),
        quantity("module loads", Count, &["modules"], Of::Calls(|t| calls(t, Load))),
        quantity("time in module loads", Ns, &["modules"], Of::Calls(|t| ns(t, Load))),
        quantity("time in the driver", Ns, &["api"], Of::Calls(in_driver)),
        quantity("system waits", Count, &["os-waits"], Of::Calls(|t| calls(t, System))),
        quantity("time in system waits", Ns, &["os-waits"], Of::Calls(|t| ns(t, System))),
        quantity("kernels that ran", Count, &["kernels"], Of::Kernels),
        quantity("time of kernels on the GPU", Ns, &["kernels", "metal-baseline"], Of::KernelNs),
        quantity("GPU busy", Ns, &["summary", "gpu-utilisation", "metal-baseline"], Of::Busy),
        quantity("GPU idle", Ns, &["summary", "gpu-gaps", "metal-baseline"], Of::Idle),
    ]
};

/// What counts launches.
pub(super) const LAUNCHES: &str = "launches";
/// What counts kernels: those of a command buffer of Metal's are its dispatches.
pub(super) const GIVEN: &str = "kernels given to the GPU";
/// What counts bytes.
const BYTES: &str = "bytes copied and set";
/// What launches' part by kernel is called too.
pub(super) const LAUNCH_TIME: &str = "time in launch calls";

/// Time in all calls of the driver, over all threads.
fn in_driver(tally: &Tally) -> f64 {
    use StepCause::*;
    [Wait, Load, Memory, Copy, Launch, Other].into_iter().map(|cause| ns(tally, cause)).sum()
}

/// The tables whose rows the quantity of this name counts or sums. How long a step took is known without any of them.
pub(super) fn tables(what: &str) -> &'static [TableId] {
    use TableId::*;
    match what {
        LAUNCHES | LAUNCH_TIME => &[Launches],
        GIVEN => &[Launches, CommandBuffers],
        // Copies, frees and allocations wait too.
        "waits" | "time in waits" => &[Syncs, Transfers, DeviceMemory],
        "copies and sets" | BYTES | "time in copies and sets" => &[Transfers],
        "allocation and free calls" | "time in allocation and free" => &[DeviceMemory],
        "module loads" | "time in module loads" => &[Api],
        "time in the driver" => &[Launches, Syncs, Transfers, DeviceMemory, Api],
        "system waits" | "time in system waits" => &[OsWaits],
        "kernels that ran" | "time of kernels on the GPU" => &[Kernels],
        "GPU busy" | "GPU idle" => &[Kernels, DeviceCopies],
        _ => &[],
    }
}

/// Whether steps tell of an analysis.
pub(super) fn tell_of(analysis: &str) -> bool {
    analysis == "steps" || QUANTITIES.iter().any(|quantity| quantity.analyses.contains(&analysis))
}

/// The quantities of a step, or of the run.
pub(super) fn steps(before: &Samples, after: &Samples) -> Part {
    let title = if before.per_step {
        "Usual step (medians; means where it says so, of equal medians)"
    } else {
        "Run (no steps in one of the traces)"
    };
    let rows = rows(before, after, |quantity| quantity.what != GIVEN);
    Part { name: "steps".to_owned(), title: title.to_owned(), rows, ..Part::default() }
}

/// Those of an analysis; nothing without steps, nor where neither a step nor the run (`differs`) changed.
pub(super) fn of_analysis(about: (&str, &str), differs: bool, before: &Samples, after: &Samples) -> Option<Part> {
    let (name, title) = about;
    let rows = rows(before, after, |quantity| quantity.analyses.contains(&name));
    let changed = differs || rows.iter().any(|row| row.before != row.after);
    let title = format!("{title}: in a step (medians; means where it says so)");
    let part = Part { name: format!("{name}.per_step"), title, rows, ..Part::default() };
    (before.per_step && changed && !part.rows.is_empty()).then_some(part)
}

fn rows(before: &Samples, after: &Samples, wanted: impl Fn(&Quantity) -> bool) -> Vec<Change> {
    let row = |(index, quantity): (usize, &Quantity)| {
        let compared = compare(before.get(index), after.get(index), QUANTITIES.len());
        let (old, new) = compared.values;
        let known = |samples: &Samples, value: f64| {
            let sized = samples.sized || quantity.what != BYTES;
            (sized && (samples.gpu || !quantity.of.is_of_gpu())).then_some(value)
        };
        let change = Change {
            what: quantity.what.to_owned(),
            unit: quantity.unit,
            before: known(before, old),
            after: known(after, new),
            mean: compared.mean,
            beyond: compared.beyond.filter(|_| before.per_step),
            unmeasured: false,
            note: None,
        };
        let told = change.before.is_some() && change.after.is_some();
        let change = if told { change } else { Change { beyond: None, ..change }.unmeasured("before", "after") };
        let any = (old != 0.0 || new != 0.0) && (change.before.is_some() || change.after.is_some());
        any.then_some(change)
    };
    QUANTITIES.iter().enumerate().filter(|(_, quantity)| wanted(quantity)).filter_map(row).collect()
}
