//! What a process tells of malloc's arenas becomes rows of `counters`.

use super::Process;
use crate::clock::Clocks;
use crate::counters::Id;
use crate::tables::{CounterRow, Tables};

impl Process {
    /// Makes rows of a look that was told since the last time.
    pub(super) fn take_arenas(&mut self, clocks: &Clocks, tables: &mut Tables) {
        let Some((turn, look)) = self.segment.view().header().arenas.read() else { return };
        if std::mem::replace(&mut self.arenas_read, turn) == turn {
            return;
        }
        let took = clocks.span_ns(self.clock, look.at, look.at.wrapping_add(look.took));
        let values = [
            (Id::Arenas, look.held as f64),
            (Id::ArenasFree, look.free as f64),
            (Id::ArenasEnd, look.at_end as f64),
            (Id::MappedBlocks, look.mapped as f64),
            (Id::ArenasLook, took as f64),
        ];
        for (id, value) in values {
            tables.counter(&CounterRow {
                start_ns: clocks.ns(self.clock, look.at),
                interval_ns: None,
                process: Some((self.id, self.pid)),
                device: None,
                id,
                value,
            });
        }
    }
}
