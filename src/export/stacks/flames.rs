//! Stacks for the flame graphs of a page: a list of frames that all share, and for each value the stacks that have most of it.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::folded::frame_text;
use super::{Line, Sums};
use crate::analysis::Facts;
use crate::cli::{ExportAt, ExportOf, ExportValue};

/// Stacks of a graph; what the others have together is told.
const STACKS: usize = 2000;

/// What is drawn: title, value, unit, and when memory in use is looked at.
const GRAPHS: [(&str, ExportValue, &str, ExportAt); 6] = [
    ("Host memory in use at the peak", ExportValue::InuseSpace, "bytes", ExportAt::Peak),
    ("Host memory in use at the end", ExportValue::InuseSpace, "bytes", ExportAt::End),
    ("Host memory allocated in all", ExportValue::AllocSpace, "bytes", ExportAt::End),
    ("Host allocations", ExportValue::AllocObjects, "count", ExportAt::End),
    ("Waits for the GPU", ExportValue::WaitTime, "ns", ExportAt::End),
    ("Waits for the operating system, all threads", ExportValue::OsWaitTime, "ns", ExportAt::End),
];

/// The graphs that have something; their facts are those of allocations and of sites.
pub(crate) fn flames(facts: &Facts<'_>) -> Value {
    let mut frames = Frames::default();
    let graphs: Vec<Value> = GRAPHS.iter().filter_map(|graph| drawn(facts, graph, &mut frames)).collect();
    json!({ "frames": frames.all, "graphs": graphs })
}

/// Texts of frames, by number.
#[derive(Default)]
struct Frames {
    numbers: FxHashMap<String, usize>,
    all: Vec<String>,
}

impl Frames {
    fn number(&mut self, text: String) -> usize {
        *self.numbers.entry(text).or_insert_with_key(|text| {
            self.all.push(text.clone());
            self.all.len() - 1
        })
    }
}

/// A graph: of each stack its value, then its frames from the process inwards.
fn drawn(
    facts: &Facts<'_>,
    (title, value, unit, at): &(&str, ExportValue, &str, ExportAt),
    frames: &mut Frames,
) -> Option<Value> {
    let sums = Sums::of(facts, value.of(), *at);
    let place = value.place();
    let mut lines: Vec<&Line> = sums.lines.iter().filter(|line| line.values[place] > 0).collect();
    lines.sort_by_key(|line| (Reverse(line.values[place]), line.program, line.stack_id, line.api_id));
    let rest: i64 = lines.iter().skip(STACKS).fold(0, |sum, line| sum.saturating_add(line.values[place]));
    let left_out = lines.len().saturating_sub(STACKS);
    lines.truncate(STACKS);
    let stack = |line: &&Line| {
        let process = frames.number(sums.programs[line.program].name.clone());
        let inwards = sums
            .frames(line)
            .expect("the facts have them")
            .into_iter()
            .rev()
            .map(|frame| frames.number(frame_text(&frame)));
        let numbers: Vec<i64> = [process].into_iter().chain(inwards.collect::<Vec<_>>()).map(|n| n as i64).collect();
        [&[line.values[place]], numbers.as_slice()].concat()
    };
    let stacks: Vec<Vec<i64>> = lines.iter().map(stack).collect();
    let is_estimate = value.of() == ExportOf::Malloc && sums.programs.iter().any(|program| program.sample_bytes > 1);
    (!stacks.is_empty()).then(|| {
        json!({
            "title": title, "unit": unit, "estimate": is_estimate, "stacks": stacks, "left_out": left_out, "rest": rest,
        })
    })
}
