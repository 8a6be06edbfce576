//! Which functions were open when a call was made: its stack.
//!
//! Functions of one thread lie within each other, so one walk over calls and functions in the order of their begin finds
//! those around each call. A thread without functions, such as that of PyTorch's backward pass, has no stacks.

use std::cmp::Reverse;
use std::num::NonZeroU32;

use rustc_hash::FxHashMap;

use super::events::Function;
use super::gathered::Gathered;
use super::stacks::Stacks;

/// A thread's functions.
struct Thread<'f> {
    /// Those that have not begun yet.
    rest: &'f [Function],
    /// Ends and frames of those that are open, the innermost last.
    open: Vec<(i64, u32)>,
    /// Their stack, once it was asked for.
    stack: Option<Option<NonZeroU32>>,
}

impl Thread<'_> {
    /// The stack at a time; times do not go back.
    fn at(&mut self, now: i64, stacks: &mut Stacks) -> Option<NonZeroU32> {
        while let Some((next, rest)) = self.rest.split_first().filter(|(next, _)| next.start_ns <= now) {
            self.close(next.start_ns);
            self.open.push((next.end_ns, next.frame));
            (self.rest, self.stack) = (rest, None);
        }
        self.close(now);
        *self.stack.get_or_insert_with(|| {
            let frames: Vec<u32> = self.open.iter().rev().map(|(_, frame)| *frame).collect();
            stacks.stack(&frames)
        })
    }

    fn close(&mut self, now: i64) {
        while self.open.pop_if(|(end, _)| *end <= now).is_some() {
            self.stack = None;
        }
    }
}

/// Gives each call, and each collective, the stack of its thread at its begin. Calls are in the order of their begin; functions are
/// brought into it, thread by thread.
pub(super) fn name(found: &mut Gathered) {
    let key = |function: &Function| (function.process, function.tid);
    let mut functions = std::mem::take(&mut found.functions);
    functions.sort_by_key(|function| (key(function), function.start_ns, Reverse(function.end_ns)));
    let threads = || -> FxHashMap<(usize, i32), Thread<'_>> {
        let threads = functions.chunk_by(|one, next| key(one) == key(next));
        threads.map(|rest| (key(&rest[0]), Thread { rest, open: Vec::new(), stack: None })).collect()
    };
    let mut of_calls = threads();
    for call in &mut found.calls {
        let caller = found.callers.get(call.caller);
        let thread = of_calls.get_mut(&(caller.process, caller.tid));
        call.stack = thread.and_then(|thread| thread.at(call.start_ns, &mut found.stacks));
    }
    found.collectives.sort_by_key(|collective| collective.start_ns);
    let mut of_collectives = threads();
    for collective in &mut found.collectives {
        let thread = of_collectives.get_mut(&(collective.process, collective.tid));
        collective.stack = thread.and_then(|thread| thread.at(collective.start_ns, &mut found.stacks));
    }
    found.functions = functions;
}

#[cfg(test)]
mod tests {
    use super::super::calls::Kind;
    use super::super::events::{Call, Caller};
    use super::*;

    #[test]
    fn a_call_has_the_functions_that_were_open_in_its_thread() {
        let function = |tid, start_ns, end_ns, frame| Function {
            process: 0,
            tid,
            start_ns,
            end_ns,
            frame,
            name_id: 0,
            numbers: [None; 3],
        };
        let caller = |tid| Caller { process: 0, tid, api_id: 0, kernel_id: None, kind: Kind::Launch, result: 0 };
        let mut found = Gathered::new("test");
        // main holds f and then g; f calls h.
        found.functions =
            vec![function(1, 60, 90, 3), function(1, 10, 50, 1), function(1, 20, 30, 2), function(1, 0, 100, 0)];
        found.functions.push(function(2, 0, 100, 0));
        for line in 0..4 {
            found.stacks.frame(gputrace_collectors::archive::StackRow { line: Some(line), ..Default::default() });
        }
        found.calls = [(1, 5), (1, 25), (3, 26), (1, 40), (1, 50), (2, 55), (1, 60), (1, 100)]
            .map(|(tid, start_ns)| {
                let caller = found.callers.number(caller(tid));
                Call { start_ns, api_ns: 1, correlation: None, caller, stack: None, external: None }
            })
            .to_vec();
        name(&mut found);
        let rows: Vec<Vec<i32>> =
            found.stacks.rows().map(|rows| rows.iter().filter_map(|row| row.line).collect()).collect();
        let lines: Vec<&[i32]> = found
            .calls
            .iter()
            .map(|call| call.stack.map_or(&[][..], |number| &rows[number.get() as usize - 1]))
            .collect();
        assert_eq!(lines, [&[0][..], &[2, 1, 0], &[], &[1, 0], &[0], &[0], &[3, 0], &[]]);
    }
}
