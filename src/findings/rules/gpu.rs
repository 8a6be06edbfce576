//! Rules about what a GPU is given: next to nothing, or kernels that compute nothing.

use crate::analysis::layout_ns;
use crate::findings::{Evidence, Subject};
use crate::render::share;
use crate::trace::shortened;

/// Of the time of all kernels; users' guides say so.
const LAYOUTS: f64 = 0.05;
/// Lines of evidence.
const LINES: usize = 3;

pub(super) fn idle_gpu(s: &Subject<'_>) -> Option<Evidence> {
    let (most, idle) = s.on_gpu.as_ref()?.idle_beside(s.unit_ns)?;
    let busy = |ns: f64| share(ns / s.unit_ns.max(1.0));
    let line = |name: &str, ns: f64| {
        format!("GPU {name} busy {} of a {}, GPU {} {}", busy(ns), s.unit(), most.name, busy(most.busy_ns))
    };
    let lines = idle.iter().take(LINES).map(|each| line(&each.name, each.busy_ns)).collect();
    Some(Evidence { gain_ns: 0.0, of_run: false, lines })
}

/// Whether there is any such kernel, of which nobody need be told that it is fine.
pub(super) fn has_layout_kernels(s: &Subject<'_>) -> bool {
    s.on_gpu.is_some() && layout_ns(s.facts).is_some_and(|(kernels, _)| !kernels.is_empty())
}

pub(super) fn layout_kernels(s: &Subject<'_>) -> Option<Evidence> {
    let gpu = s.on_gpu.as_ref()?;
    let (kernels, all_ns) = layout_ns(s.facts)?;
    let of_all = |ns: i64| ns as f64 / all_ns as f64;
    let layouts = of_all(kernels.iter().map(|(_, ns)| ns).sum());
    if layouts < LAYOUTS {
        return None;
    }
    let line =
        |(name, ns): &(String, i64)| format!("{} of the kernels' time  {}", share(of_all(*ns)), shortened(name, 60));
    let lines = kernels.iter().take(LINES).map(line).collect();
    Some(Evidence { gain_ns: layouts * gpu.compute_ns, of_run: false, lines })
}
