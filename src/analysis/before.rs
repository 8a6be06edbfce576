//! The reads before all others, of few columns: where the steps are, and what calls take when nothing is pending.
//!
//! Steps take two reads, and more where they are in doubt or the host runs ahead of the GPU. A report that asks for sums alone
//! does without.

use std::sync::Arc;

use gputrace_collectors::schema::TableId;

use super::passes::ahead;
use super::passes::asked::Asked;
use super::passes::collected;
use super::passes::covered::Covered;
use super::passes::detect::Detect;
use super::passes::named_steps::NamedSteps;
use super::passes::steps::Steps;
use super::passes::waiting::Idle;
use super::{clock, loss};
use crate::trace::{Filter, Trace, Want};

/// Finds the steps, timed by the GPU where `gpu_times` are there and the host runs ahead.
pub(super) fn steps(trace: &Trace, filter: &Filter, gpu_times: bool) -> (Steps, Arc<Idle>) {
    let wanted = filter.step.as_deref();
    let thinned = trace.processes.iter().filter_map(|process| Some((process.process_id, loss::thinned_from(process)?)));
    let mut detect = Detect::new(NamedSteps::new(trace, wanted), Asked::new(trace, wanted), thinned.collect());
    let mut idle = Idle::default();
    let wants: Vec<Want> = detect.wants().into_iter().chain([Idle::WANT]).collect();
    let around = filter.around_steps();
    trace.scan(&wants, &around, &mut |rows| {
        detect.rows(rows);
        if rows.table == TableId::DeviceMemory {
            idle.rows(rows);
        }
    });
    let mut cut = detect.cut();
    trace.scan(&cut.wants(), &around, &mut |rows| cut.rows(rows));
    let mut covered = Covered::new(cut.steps());
    if covered.is_needed() {
        trace.scan(&[Covered::WANT], &around, &mut |rows| covered.rows(rows));
    }
    // Of ranges the host's time inside is what counts, and between windows there are no steps of the GPU.
    let timed = gpu_times && !filter.is_gapped();
    let steps = if timed { ahead::timed(trace, &around, covered.steps(), filter.steps) } else { covered.steps() };
    let idle = Arc::new(idle);
    let steps = collected::collected(trace, &around, steps, &idle);
    let steps = match filter.steps {
        Some((first, last)) => steps.only(first, last),
        None => steps,
    };
    let steps = match filter.named_span() {
        Some(span) => steps.whole_in(span),
        None => steps,
    };
    // How long a step was in which the clock jumped, or of which a killed collector had rows that are lost, nobody knows.
    let steps = steps
        .leave_out(|process_id, span| clock::is_jump(trace, process_id, span) || loss::is_gap(trace, process_id, span));
    (steps.inside(filter).in_order_of(|process_id| trace.place(process_id)), idle)
}

/// What allocations and frees take when nothing is pending, for who asks for no steps.
pub(super) fn idle(trace: &Trace, filter: &Filter) -> Arc<Idle> {
    let mut idle = Idle::default();
    trace.scan(&[Idle::WANT], filter, &mut |rows| idle.rows(rows));
    Arc::new(idle)
}
