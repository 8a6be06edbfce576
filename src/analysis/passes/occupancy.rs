//! Kernels by what decides how many of their blocks a multiprocessor holds: name, grid, block, registers, shared memory.

use gputrace_collectors::schema::TableId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Pass;
use super::groups::Groups;
use super::launches::OTHER;
use super::runs;
use super::stats::Stats;
use super::steps::Steps;
use crate::trace::{Axes, NO_NAME, Rows, Trace, Want};

/// How a kernel was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Config {
    /// Kernel.
    pub(crate) name_id: i64,
    /// Place of its device's kind in [`Occupancy::models`].
    pub(crate) model: Option<usize>,
    /// Blocks.
    pub(crate) grid: Axes,
    /// Threads of a block.
    pub(crate) block: Axes,
    /// Registers of a thread, where they are known.
    pub(crate) registers: Option<i32>,
    /// Shared memory of a block, static and dynamic, where it is known.
    pub(crate) shared_bytes: Option<i64>,
}

impl Config {
    /// Blocks of the grid.
    pub(crate) fn blocks(&self) -> i64 {
        product(self.grid)
    }

    /// Threads of a block.
    pub(crate) fn threads(&self) -> i64 {
        product(self.block)
    }
}

fn product((x, y, z): Axes) -> i64 {
    [x, y, z].iter().fold(1, |product, one| product.saturating_mul(i64::from((*one).max(1))))
}

/// A kind of device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// Compute capability, such as 9.0.
    pub(crate) capability: String,
    /// Multiprocessors.
    pub(crate) sm_count: Option<i64>,
}

/// The pass.
#[derive(Debug)]
pub(crate) struct Occupancy {
    /// Time of kernels by how they were launched.
    pub(crate) configs: Groups<Config, Stats>,
    /// Kinds of devices.
    pub(crate) models: Vec<Model>,
    /// Which kind the device of a process and ordinal is.
    devices: FxHashMap<(i64, i32), usize>,
}

impl Default for Occupancy {
    fn default() -> Self {
        let none = Axes::default();
        let other =
            Config { name_id: OTHER, model: None, grid: none, block: none, registers: None, shared_bytes: None };
        Occupancy { configs: Groups::new(20_000, other), models: Vec::new(), devices: FxHashMap::default() }
    }
}

impl Occupancy {
    /// With the devices that the trace's manifests describe.
    pub(crate) fn new(trace: &Trace) -> Occupancy {
        let mut all = Occupancy::default();
        for process in &trace.processes {
            let uuids = process.manifest.iter().flat_map(|known| &known.devices);
            for (ordinal, uuid) in (0..).zip(uuids) {
                let Some(device) = trace.device(uuid) else { continue };
                let model = Model { capability: device.compute_capability.clone(), sm_count: device.sm_count };
                let known = all.models.iter().position(|other| *other == model).unwrap_or_else(|| {
                    all.models.push(model);
                    all.models.len() - 1
                });
                all.devices.insert((process.process_id, ordinal), known);
            }
        }
        all
    }

    /// The kind of a kernel's device, where it is known.
    pub(crate) fn model(&self, config: &Config) -> Option<&Model> {
        self.models.get(config.model?)
    }
}

/// Stands for a value that is not in the trace.
const UNKNOWN: i32 = -1;

impl Pass for Occupancy {
    fn wants(&self) -> &'static [Want] {
        const COLUMNS: &[&str] = &[
            "gpu_ns",
            "device",
            "name_id",
            "grid_x",
            "grid_y",
            "grid_z",
            "block_x",
            "block_y",
            "block_z",
            "registers",
            "static_shared_bytes",
            "shared_bytes",
        ];
        &[Want { table: TableId::Kernels, columns: COLUMNS }]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        let (process, length) = (rows.i64("process_id"), rows.i64("gpu_ns"));
        let (device, name) = (rows.i32_or("device", UNKNOWN), rows.i64_or("name_id", NO_NAME));
        let [grid, block] = ["grid", "block"].map(|of| rows.axes(of));
        let [registers, fixed, dynamic] =
            ["registers", "static_shared_bytes", "shared_bytes"].map(|column| rows.i32_or(column, UNKNOWN));
        let known = |value: i32| (value >= 0).then_some(value);
        for run in runs(&process, &device) {
            let model = self.devices.get(&(process[run.start], device[run.start])).copied();
            for row in run.filter(|row| length[*row] >= 0) {
                let config = Config {
                    name_id: name[row],
                    model,
                    grid: grid.get(row),
                    block: block.get(row),
                    registers: known(registers[row]),
                    // A source that knows one number knows the sum.
                    shared_bytes: known(dynamic[row])
                        .map(|dynamic| i64::from(dynamic) + known(fixed[row]).map_or(0, i64::from)),
                };
                self.configs.at(config).add(length[row]);
            }
        }
    }

    fn names(&self, ids: &mut FxHashSet<i64>) {
        ids.extend(self.configs.iter().map(|(config, _)| config.name_id));
    }
}
