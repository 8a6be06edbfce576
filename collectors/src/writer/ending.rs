//! The end of a trace: whole files, in the room that the reserve and then the journal give back; or, where the disk fails otherwise than by
//! being full, the journal as a killed collector would leave it.

use super::Writer;
use super::keep::goes_last;
use super::stream::Stream;
use crate::journal::Item;
use crate::manifest::StoredTables;
use crate::schema::{TABLES, TableId};
use crate::stored;

impl Writer {
    pub(super) fn finish(mut self) {
        self.reserve.give_back_half();
        // Those without which the others mean nothing come first, then the small ones.
        let bytes = |table: &TableId| self.streams.get(*table as usize).map_or(0, |s| s.group.bytes());
        let mut left: Vec<TableId> = TABLES.iter().map(|t| t.id).collect();
        left.sort_by_key(|table| (!goes_last(*table), bytes(table)));
        left.retain(|table| !self.close(*table));
        // No room that it gives would help: the journal, which has all but what came last, stays for who recovers the trace.
        if !left.is_empty() && self.is_broken && self.leave_journal(&left) {
            return self.report(|r| r.left_unfinished = true);
        }
        // Young rows stand in the journal as well: its room is what their row groups need.
        self.log.clear();
        left.retain(|table| !self.close(*table));
        for table in left {
            // Only the group that finds no room is lost: what the file has before it is whole.
            let lost = self.streams.get_mut(table as usize).map(Stream::give_up_group);
            self.lose(table, &lost.unwrap_or_default());
            if !self.seal(table, true) {
                let lost = self.streams.get_mut(table as usize).map(Stream::give_up_file);
                self.lose(table, &lost.unwrap_or_default());
            }
        }
        let mut stored = StoredTables::new();
        self.shelf.files().iter().for_each(|file| stored::count(&mut stored, file.table, file.contents.rows));
        self.report(|r| r.stored = stored);
        self.reserve.give_back();
    }

    /// Brings to the journal what there is of tables whose files are not whole. False: it takes nothing either.
    fn leave_journal(&mut self, tables: &[TableId]) -> bool {
        let mut items = Vec::new();
        for table in tables {
            items.extend(self.unnoted_item(*table));
            items.extend(self.young_item(*table));
            if self.log.has_live(*table) {
                // What was about things that still ran has become rows.
                items.push(Item::no_live(*table));
            }
        }
        self.log.append(&items).is_ok()
    }

    pub(super) fn close(&mut self, table: TableId) -> bool {
        self.end_group(table) && self.seal(table, true)
    }
}
