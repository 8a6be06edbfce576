//! Rules about what no usual step shows: nodes that hold their GPUs back, and calls that hang.

use crate::analysis::{hung, node_faults as faults};
use crate::findings::{Evidence, Subject};

pub(super) fn node_faults(s: &Subject<'_>) -> Option<Evidence> {
    let lines = faults(s.facts, s.process_id);
    (!lines.is_empty()).then_some(Evidence { gain_ns: 0.0, of_run: false, lines })
}

pub(super) fn hangs(s: &Subject<'_>) -> Option<Evidence> {
    let (gain_ns, lines) = hung(s.facts, s.process_id)?;
    Some(Evidence { gain_ns, of_run: true, lines })
}
