//! Steps by a call that the user names: a kernel, or a function of the driver (`--step cuStreamSynchronize`).

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::detect::BOUNDARIES;
use super::period::Name;
use super::steps::{ProcessSteps, blocks};
use crate::trace::{Filter, NO_NAME, Rows, Trace, Want, full_name};

/// The calls of that name.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Ids of the name, and whether it is a kernel's.
    ids: FxHashSet<i64>,
    /// When they occurred, by process and thread.
    found: FxHashMap<(i64, i32), (Option<Name>, Vec<i64>)>,
}

impl Asked {
    /// Reads which names the user may mean.
    pub(crate) fn new(trace: &Trace, wanted: Option<&str>) -> Asked {
        let mut asked = Asked::default();
        let Some(wanted) = wanted else { return asked };
        let want = [Want { table: TableId::Names, columns: &["name_id", "kind", "name"] }];
        trace.scan(&want, &Filter::default(), &mut |rows| {
            let (ids, kinds, names) = (rows.i64("name_id"), rows.texts("kind"), rows.texts("name"));
            for row in 0..rows.len {
                let is_it = match kinds.get(row) {
                    "api" => is_function(names.get(row), wanted),
                    "kernel" => is_kernel(names.get(row), wanted),
                    _ => false,
                };
                asked.ids.extend(is_it.then_some(ids[row]));
            }
        });
        asked
    }

    /// Whether there is anything to look for.
    pub(crate) fn any(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Takes rows of calls in.
    pub(crate) fn rows(&mut self, rows: &Rows) {
        if self.ids.is_empty() {
            return;
        }
        let (process, tid) = (rows.i64("process_id"), rows.i32_or("tid", 0));
        let (start, length) = (rows.i64("start_ns"), rows.i64_or("api_ns", 0));
        let (api, name) = (rows.i64("api_id"), rows.i64_or("name_id", NO_NAME));
        let (captured, kind) = (rows.flags("captured"), rows.texts("kind"));
        for row in (0..rows.len).filter(|row| !captured.get(*row)) {
            let id = if self.ids.contains(&name[row]) { name[row] } else { api[row] };
            if !self.ids.contains(&id) {
                continue;
            }
            let waits = rows.table == TableId::Syncs && blocks(kind.get(row));
            let anchor = match rows.table {
                TableId::Launches => Name::Launch(id),
                _ if waits => Name::Wait(id),
                _ => Name::Call(id),
            };
            let (first, times) = self.found.entry((process[row], tid[row])).or_default();
            first.get_or_insert(anchor);
            if times.len() < BOUNDARIES {
                times.push(if waits { start[row] + length[row] } else { start[row] });
            }
        }
    }

    /// The steps of each process: of its thread that makes most of these calls.
    pub(crate) fn steps(self) -> Vec<ProcessSteps> {
        let mut found: Vec<_> = self.found.into_iter().collect();
        found.sort_by_key(|((process, tid), (_, times))| (*process, std::cmp::Reverse(times.len()), *tid));
        found.dedup_by_key(|((process, _), _)| *process);
        let steps = found.into_iter().filter_map(|((process, tid), (anchor, times))| {
            let count = times.len() as u64;
            ProcessSteps::new(process, tid, (anchor?, count), times)
        });
        steps.collect()
    }
}

/// Whether the user means this function of the driver, whose names end with versions.
fn is_function(name: &str, wanted: &str) -> bool {
    let rest = name.strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("_v") || rest.starts_with("_pt"))
}

/// Whether the user means this kernel: by its name as the driver or as the source has it, with or without what it is a template
/// of, its arguments and where it is declared.
fn is_kernel(name: &str, wanted: &str) -> bool {
    let full = full_name(name);
    let base = full.split(['<', '(']).next().unwrap_or_default();
    let base = base.rsplit(' ').next().unwrap_or_default();
    let last = base.rsplit("::").next().unwrap_or_default();
    [name, &full, base, last].contains(&wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Facts;
    use crate::trace::testing::{START, TestTrace};

    #[test]
    fn a_kernel_or_a_function_that_the_user_names_marks_the_steps() {
        let mut trace = TestTrace::new();
        trace.process(1, 100, None, START + 1_000_000_000);
        let mut thread = trace.thread(1, 11);
        for turn in 0..300 {
            if turn % 30 == 0 {
                thread.launch("void ns::now_and_then<float, 4>(float*)", 2_000);
                thread.alloc("cuMemAlloc_v2", "device", 64, 1 << 20, 2_000);
            }
            (0..5).for_each(|k| thread.launch(&format!("k{k}"), 2_000));
            thread.sync("cuStreamSynchronize", "stream", 90_000);
        }
        let trace = trace.open();
        let of = |step: Option<&str>| {
            let filter = Filter { step: step.map(str::to_owned), ..Filter::default() };
            let facts = Facts::gather(&trace, &filter, &[]);
            facts.steps.of(1).map(|steps| (steps.count, facts.steps.any_named()))
        };
        assert_eq!(of(None), Some((300, false)));
        for name in ["now_and_then", "ns::now_and_then", "cuMemAlloc", "cuMemAlloc_v2"] {
            assert_eq!(of(Some(name)), Some((10, true)), "{name}");
        }
        assert_eq!(of(Some("cuStreamSynchronize")), Some((300, true)));
        assert_eq!([of(Some("cuMem")), of(Some("and_then"))], [Some((300, false)); 2], "no such name");
    }
}
