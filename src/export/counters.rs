//! Counters that were read from outside, as tracks of their own: of a device, of a process.

use std::io::{self, Write};

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::Files;
use super::kineto::Us;
use super::output::{Output, quoted};
use crate::trace::{NOBODY, Process, Rows, Trace, Want};

/// What is read.
pub(super) const WANT: Want =
    Want { table: TableId::Counters, columns: &["pid", "device", "source", "name", "unit", "value"] };

/// Ranks in whose files a device's counters stand, with its ordinal there: of each process that sees it, one a rank.
#[derive(Default)]
pub(super) struct Devices(FxHashMap<String, Vec<(Option<i32>, usize)>>);

impl Devices {
    pub(super) fn of(trace: &Trace) -> Devices {
        let mut all = Devices::default();
        for process in &trace.processes {
            let seen = |process: &Process| process.manifest.as_ref().map(|known| known.devices.clone());
            for (ordinal, uuid) in seen(process).unwrap_or_default().into_iter().enumerate() {
                let ranks = all.0.entry(uuid).or_default();
                if ranks.iter().all(|(rank, _)| *rank != process.rank) {
                    ranks.push((process.rank, ordinal));
                }
            }
        }
        all
    }
}

/// Writes the values: those of a process to its file, those of a device to the files of all who see it.
pub(super) fn write(rows: &Rows, devices: &Devices, files: &mut Files) -> io::Result<()> {
    let (start, process, pid) = (rows.i64("start_ns"), rows.i64_or("process_id", NOBODY), rows.i32_or("pid", 0));
    let (device, value) = (rows.texts("device"), rows.f64("value"));
    let (source, name, unit) = (rows.texts("source"), rows.texts("name"), rows.texts("unit"));
    for row in (0..rows.len).filter(|row| value[*row].is_finite()) {
        let unit =
            Some(unit.get(row)).filter(|unit| !unit.is_empty()).map_or(String::new(), |unit| format!(" ({unit})"));
        let name = quoted(&format!("{} {}{unit}", source.get(row), name.get(row)));
        let one = |output: &mut Output, pid: i64| {
            let ts = Us(start[row] - output.base_ns);
            let value = value[row];
            write!(
                output.event()?,
                r#"{{"ph":"C","name":{name},"pid":{pid},"tid":0,"ts":{ts},"args":{{"value":{value}}}}}"#
            )
        };
        if process[row] != NOBODY {
            files.of(process[row]).map_or(Ok(()), |output| one(output, pid[row].into()))?;
            continue;
        }
        for (rank, ordinal) in devices.0.get(device.get(row)).into_iter().flatten() {
            files.by_rank.get_mut(rank).map_or(Ok(()), |output| one(output, *ordinal as i64))?;
        }
    }
    Ok(())
}
