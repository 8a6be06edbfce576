//! A rule about nodes that hold their GPUs back, whatever the program does.

use crate::analysis::node_faults as faults;
use crate::findings::{Evidence, Subject};

pub(super) fn node_faults(s: &Subject<'_>) -> Option<Evidence> {
    let lines = faults(s.facts, s.process_id);
    (!lines.is_empty()).then_some(Evidence { gain_ns: 0.0, of_run: false, lines })
}
