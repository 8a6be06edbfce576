//! Events that stand in a file twice, as where two profiles of a run were put together: they happened once.
//!
//! What is the same in name, thread, times and the number that its format gave it is one event. Ranges of which some have no number
//! are only taken for doubles where most calls and kernels have one: a loop may enter two of a name within a tick of the clock.

use std::hash::Hash;

use rustc_hash::FxHashSet;

use super::events::{Call, Range, Work};
use super::gathered::Gathered;
use crate::render::counted;

/// Takes the doubles out, and says how many there were.
pub(super) fn drop(found: &mut Gathered) {
    let all = found.calls.len() + found.kernels.len() + found.copies.len();
    let call = |call: &Call| call.correlation.map(|number| (call.api_ns, number.get(), call.caller));
    let work = |work: &Work| work.correlation.map(|number| (work.gpu_ns, number.get(), work.process, work.what));
    let mut gone = once(&mut found.calls, |call| call.start_ns, call);
    gone += once(&mut found.kernels, |work| work.start_ns, work);
    gone += once(&mut found.copies, |work| work.start_ns, work);
    let mostly = 3 * gone > all;
    let range = |range: &Range| {
        let number = range.external.map(|number| number.get());
        (mostly || number.is_some()).then_some((range.end_ns, range.named, number))
    };
    gone += once(&mut found.ranges, |range| range.start_ns, range);
    if gone > 0 {
        let what = counted(
            gone as f64,
            "event stands in the file twice and counts",
            "events stand in the file twice and count",
        );
        found.notes.push(format!("{what} once"));
    }
}

/// Keeps the first of events that begin at the same time and have the same `key`, and says how many others there were. Afterwards
/// they are in the order of their begins.
fn once<T, K: Eq + Hash>(events: &mut Vec<T>, start: impl Fn(&T) -> i64, key: impl Fn(&T) -> Option<K>) -> usize {
    let all = events.len();
    if !events.is_sorted_by_key(&start) {
        events.sort_by_key(&start);
    }
    // Those that begin with the last one that was kept, and were kept.
    let (mut at, mut kept): (i64, FxHashSet<K>) = (i64::MIN, FxHashSet::default());
    events.retain(|event| {
        if start(event) != at {
            at = start(event);
            kept.clear();
        }
        key(event).is_none_or(|key| kept.insert(key))
    });
    all - events.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::kineto;

    /// What is left of the events of a launch, its kernel and an operator, after so many copies of each; the note.
    fn left(times: usize) -> ([usize; 3], Vec<String>) {
        const EVENTS: &str = r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":10,"dur":5,"args":{"correlation":7}},
            {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":20,"dur":5,"args":{"correlation":7,"device":0,"stream":7}},
            {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":9,"dur":7}"#;
        let text = format!(r#"{{"traceEvents":[{}]}}"#, vec![EVENTS; times].join(","));
        let mut found = kineto::read(text.as_bytes()).expect("our own file");
        drop(&mut found);
        ([found.calls.len(), found.kernels.len(), found.ranges.len()], found.notes)
    }

    #[test]
    fn a_file_with_every_event_twice_tells_of_one_run() {
        assert_eq!(left(1), ([1; 3], vec![]));
        assert_eq!(left(2), ([1; 3], vec!["3 events stand in the file twice and count once".to_owned()]));
    }

    #[test]
    fn the_same_at_the_same_time_is_kept_once_and_what_has_no_number_always() {
        let mut events = vec![(5, Some(1)), (3, None), (5, Some(2)), (3, None), (5, Some(1)), (7, Some(1))];
        let gone = once(&mut events, |event| event.0, |event| event.1);
        assert_eq!((gone, events), (1, vec![(3, None), (3, None), (5, Some(1)), (5, Some(2)), (7, Some(1))]));
    }
}
