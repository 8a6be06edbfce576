//! `--device`: which GPU that is in each process.
//!
//! A process counts the GPUs that it can see from 0, so that an ordinal is one GPU in each process, and a GPU may have another
//! ordinal in each. A UUID is one GPU, whoever uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::select::wrong;
use crate::render::counted;
use crate::trace::{Filter, Problem, Process, Trace, Want};

/// GPUs that are listed.
const LISTED: usize = 16;

/// Keeps the work of that GPU, and leaves out the processes that use others alone.
pub(super) fn keep(trace: &Trace, filter: &mut Filter, wanted: &str) -> Result<()> {
    let used = used(trace, filter);
    let is_wanted = |process_id: i64, ordinal: i32| match wanted.parse::<i32>() {
        Ok(number) => number == ordinal,
        Err(_) => uuid(trace, process_id, ordinal).is_some_and(|uuid| begins(&uuid, wanted)),
    };
    let wanted_of = used.iter().filter(|(process_id, ordinal)| is_wanted(*process_id, *ordinal));
    let named: BTreeSet<String> = wanted_of.clone().filter_map(|(id, ordinal)| uuid(trace, *id, *ordinal)).collect();
    let kept: FxHashMap<i64, i32> = wanted_of.copied().collect();
    if kept.is_empty() {
        let there = if used.is_empty() { "none".to_owned() } else { listed(trace, &used) };
        return Err(wrong(format!("--device {wanted}: the trace has nothing of that GPU; of these it has: {there}")));
    }
    let several = named.len() > 1;
    if several && wanted.parse::<i32>().is_err() {
        let named = named.into_iter().collect::<Vec<_>>().join(", ");
        return Err(wrong(format!("--device {wanted}: more than one GPU begins so: {named}")));
    }
    if several && hosts(trace, &kept) < named.len() {
        let uuids = named.into_iter().take(LISTED).collect::<Vec<_>>().join(", ");
        let text = format!(
            "--device {wanted} is another GPU in several processes, and all are reported: {uuids}; name one of these"
        );
        let folder = trace.folders.first().cloned().unwrap_or_else(PathBuf::new);
        trace.problem(Problem::note(folder, text));
    }
    let shared = used.iter().filter(|(process, ordinal)| kept.get(process).is_some_and(|own| own != ordinal));
    let shared: BTreeSet<i64> = shared.map(|(process, _)| *process).collect();
    if let Some(first) = shared.first() {
        let who = trace.process(*first).map_or_else(|| format!("process {first}"), Process::label);
        let more = match shared.len() - 1 {
            0 => String::new(),
            more => format!(" and {}", counted(more as f64, "more process", "more processes")),
        };
        let text = format!(
            "--device {wanted}: {who}{more} gave work to other GPUs too; calls for these are left out, and their time is the host's own here (outside the driver)"
        );
        let folder = trace.folders.first().cloned().unwrap_or_else(PathBuf::new);
        trace.problem(Problem::note(folder, text));
    }
    let others: FxHashSet<i64> = used.iter().map(|(process, _)| *process).filter(|id| !kept.contains_key(id)).collect();
    let chosen = filter.processes.take();
    let stays = |id: &i64| !others.contains(id) && chosen.as_ref().is_none_or(|chosen| chosen.contains(id));
    let stay: FxHashSet<i64> = trace.processes.iter().map(|process| process.process_id).filter(stays).collect();
    // A trace may have lost its list of processes.
    filter.processes = (stay.len() < trace.processes.len() || chosen.is_some()).then_some(stay);
    filter.device = Some(Arc::new(kept));
    Ok(())
}

/// The GPUs that processes use: the process and the ordinal there.
fn used(trace: &Trace, filter: &Filter) -> BTreeSet<(i64, i32)> {
    const DEVICE: &[&str] = &["device"];
    let tables =
        [TableId::Launches, TableId::Transfers, TableId::DeviceMemory, TableId::Kernels, TableId::DeviceCopies];
    let mut used = BTreeSet::new();
    trace.scan(&tables.map(|table| Want { table, columns: DEVICE }), filter, &mut |rows| {
        let (process, device) = (rows.i64("process_id"), rows.i32_or("device", -1));
        let known = (0..rows.len).filter(|row| device[*row] >= 0);
        used.extend(known.map(|row| (process[row], device[row])));
    });
    used
}

/// Of a process's ordinal, where it is known.
fn uuid(trace: &Trace, process_id: i64, ordinal: i32) -> Option<String> {
    let known = trace.process(process_id)?.manifest.as_ref()?;
    known.devices.get(usize::try_from(ordinal).ok()?).filter(|uuid| !uuid.is_empty()).cloned()
}

fn begins(uuid: &str, wanted: &str) -> bool {
    !wanted.is_empty() && uuid.get(..wanted.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(wanted))
}

/// How many hosts these processes are on: each has a GPU of its own with that ordinal.
fn hosts(trace: &Trace, kept: &FxHashMap<i64, i32>) -> usize {
    let host = |id: &i64| trace.process(*id).map(|process| process.host.as_str());
    kept.keys().filter_map(host).collect::<BTreeSet<_>>().len()
}

/// `0 (GPU-3f2a...: rank 0, rank 1), 1`
fn listed(trace: &Trace, used: &BTreeSet<(i64, i32)>) -> String {
    let mut gpus: BTreeMap<(i32, Option<String>), Vec<String>> = BTreeMap::new();
    for (process_id, ordinal) in used {
        let who = trace.process(*process_id).map_or_else(|| format!("process {process_id}"), Process::label);
        gpus.entry((*ordinal, uuid(trace, *process_id, *ordinal))).or_default().push(who);
    }
    let told = |((ordinal, uuid), who): (&(i32, Option<String>), &Vec<String>)| match uuid {
        Some(uuid) => format!("{ordinal} ({uuid}: {})", who.join(", ")),
        None => ordinal.to_string(),
    };
    let more = if gpus.len() > LISTED { ", ..." } else { "" };
    gpus.iter().take(LISTED).map(told).collect::<Vec<_>>().join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::testing::{START, TestTrace};

    /// Two ranks of a node, of which each uses one of these ordinals, and a worker that uses no GPU.
    fn ranks(ordinals: [i32; 2], uuids: [&str; 2]) -> TestTrace {
        let mut trace = TestTrace::new();
        for (rank, (ordinal, uuid)) in (0..).zip(ordinals.into_iter().zip(uuids)) {
            trace.process(i64::from(rank) + 1, 100 + rank, Some(rank), START + 1_000_000);
            let about = trace.manifest.as_mut().map(|manifest| &mut manifest.processes[rank as usize]);
            about.expect("a manifest").devices = vec![uuid.to_owned(); ordinal as usize + 1];
            let mut thread = trace.thread(i64::from(rank) + 1, 11);
            thread.device = ordinal;
            thread.launch("k", 1_000);
        }
        trace.process(9, 109, None, START + 1_000_000);
        trace
    }

    /// Launches and processes that are kept.
    fn kept(made: &TestTrace, wanted: &str) -> Result<(usize, Vec<i64>, usize), String> {
        let (trace, mut filter) = (made.open(), Filter::default());
        keep(&trace, &mut filter, wanted).map_err(|error| error.to_string())?;
        let mut launches = 0;
        let want = [Want { table: TableId::Launches, columns: &["api_ns"] }];
        trace.scan(&want, &filter, &mut |rows| launches += rows.len);
        let all = trace.processes.iter().map(|process| process.process_id);
        let processes = all.filter(|id| filter.processes.as_ref().is_none_or(|kept| kept.contains(id))).collect();
        Ok((launches, processes, trace.problems().len()))
    }

    #[test]
    fn an_ordinal_is_that_gpu_of_each_process_and_who_uses_others_alone_is_left_out() {
        let trace = ranks([0, 1], ["GPU-a", "GPU-b"]);
        assert_eq!(kept(&trace, "1"), Ok((1, vec![9, 2], 0)));
        let wrong = kept(&trace, "7").unwrap_err();
        assert_eq!(
            wrong,
            "--device 7: the trace has nothing of that GPU; of these it has: 0 (GPU-a: rank 0), 1 (GPU-b: rank 1)"
        );
    }

    #[test]
    fn of_a_process_with_two_gpus_the_calls_for_the_other_one_are_said_to_be_left_out() {
        let mut trace = ranks([0, 1], ["GPU-a", "GPU-b"]);
        let mut thread = trace.thread(2, 12);
        thread.device = 0;
        (0..3).for_each(|_| thread.launch("k", 1_000));
        let (opened, mut filter) = (trace.open(), Filter::default());
        keep(&opened, &mut filter, "1").unwrap();
        let said: Vec<String> = opened.problems().iter().map(ToString::to_string).collect();
        let what = "--device 1: rank 1 gave work to other GPUs too; calls for these are left out, and their time is the host's own here";
        assert!(said.len() == 1 && said[0].contains(what), "{said:?}");
        assert_eq!(kept(&trace, "1"), Ok((1, vec![9, 2], 1)));
    }

    #[test]
    fn where_an_ordinal_is_several_gpus_of_a_host_all_are_meant_and_a_uuid_names_one() {
        let trace = ranks([0, 0], ["GPU-aa", "GPU-ab"]);
        assert_eq!(kept(&trace, "0"), Ok((2, vec![9, 1, 2], 1)));
        assert_eq!(kept(&trace, "gpu-ab"), Ok((1, vec![9, 2], 0)));
        assert_eq!(kept(&trace, "GPU-a").unwrap_err(), "--device GPU-a: more than one GPU begins so: GPU-aa, GPU-ab");
    }
}
