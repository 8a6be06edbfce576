//! NCCL's communicators: what the shim says of each when it is made.

use std::collections::BTreeMap;

use gputrace_abi::collective::{NO_DEVICE, unpack_party};
use gputrace_abi::event::Event;

use super::Process;
use crate::chain::Text;
use crate::clock::Clocks;
use crate::names::{NameKind, Written};
use crate::tables::{Communicator, Tables};

/// Copies of NCCL that a process may have; numbers of a hostile one are not kept beyond that.
const COPIES: usize = 64;
/// Communicators whose collectives are counted.
const MOST_PARTIES: usize = 4096;
/// Passes that a communicator waits for what its copy of NCCL is: the thread that tells it may be stopped in the middle.
const PATIENCE: u16 = 200;

/// What is known of a process's communicators.
#[derive(Default)]
pub(crate) struct Communicators {
    /// Came in the last pass. The next one makes rows of them, when the texts of all threads were read; `spare` counts the
    /// passes of those whose copy of NCCL is not known yet.
    held: Vec<Event>,
    /// Path and version of each copy of NCCL.
    copies: BTreeMap<u64, (String, i32)>,
    /// Ranks of the largest one, and this process's rank in it.
    largest: Option<(i32, i32)>,
    /// Each one by its number, and how far it has come.
    parties: BTreeMap<u32, Party>,
}

/// A rank of a communicator, and how far it has come with the collectives of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Party {
    /// What all ranks have in common; 0: not known.
    pub(crate) unique_id: i64,
    pub(crate) rank: Option<i32>,
    pub(crate) ranks: Option<i32>,
    /// Collectives whose call has returned.
    pub(crate) entered: u64,
    /// Hook of the last one.
    pub(crate) last: u16,
}

impl Communicators {
    /// A copy of NCCL was told of.
    pub(super) fn add_copy(&mut self, text: &Text) {
        if self.copies.len() < COPIES {
            self.copies.insert(text.key, (text.text().into_owned(), text.number as i32));
        }
    }

    /// A collective's call returned.
    pub(super) fn entered(&mut self, number: u32, event: &Event) {
        if let Some(party) = self.party(number) {
            (party.entered, party.last) = (party.entered + 1, event.hook);
        }
    }

    fn party(&mut self, number: u32) -> Option<&mut Party> {
        let is_new = !self.parties.contains_key(&number);
        if number == 0 || is_new && self.parties.len() >= MOST_PARTIES {
            return None;
        }
        Some(self.parties.entry(number).or_default())
    }

    /// The ranks that the process has of its communicators, by their number.
    pub(crate) fn parties(&self) -> impl Iterator<Item = (u32, Party)> + '_ {
        self.parties.iter().map(|(number, party)| (*number, *party))
    }

    /// Rank in the largest communicator, what a program that set no variable calls its rank; and its number of ranks.
    pub(crate) fn rank(&self) -> Option<(i32, i32)> {
        self.largest.map(|(ranks, rank)| (rank, ranks))
    }
}

impl Process {
    /// Adds the rows of communicators that came with the last pass; `all`: also of those whose copy is not known.
    pub(super) fn take_communicators(
        &mut self,
        clocks: &mut Clocks,
        tables: &mut Tables,
        written: &mut Written,
        all: bool,
    ) {
        // Before its first comparison of the clocks a run's rate is a guess.
        if !self.communicators.held.is_empty() {
            clocks.tick();
        }
        for mut event in std::mem::take(&mut self.communicators.held) {
            if !all && event.spare < PATIENCE && !self.communicators.copies.contains_key(&u64::from(event.result)) {
                event.spare += 1;
                self.communicators.held.push(event);
                continue;
            }
            let row = self.communicator(&event, clocks);
            if let Some(hook) = self.intake.hooks.get(usize::from(event.flags))
                && written.insert(hook.api_id)
            {
                tables.name(hook.api_id, NameKind::Api.name(), &hook.name);
            }
            if let (Some(rank), Some(ranks)) = (row.rank, row.ranks)
                && self.communicators.largest.is_none_or(|(most, _)| ranks > most)
            {
                self.communicators.largest = Some((ranks, rank));
            }
            if let Some(party) = self.communicators.party(row.number) {
                (party.unique_id, party.rank, party.ranks) = (row.unique_id.unwrap_or(0), row.rank, row.ranks);
            }
            tables.communicator(&row);
        }
        self.communicators.held.append(&mut self.intake.communicators);
    }

    fn communicator(&self, event: &Event, clocks: &Clocks) -> Communicator {
        let [id, ranks, numbers, handle] = event.payload;
        let ((rank, ranks), (number, parent)) = (unpack_party(ranks), unpack_party(numbers));
        let known = |n: i32| Some(n).filter(|n| *n >= 0);
        let device = handle >> 48;
        let copy = self.communicators.copies.get(&u64::from(event.result));
        Communicator {
            start_ns: clocks.ns(self.clock, event.start),
            process_id: self.id,
            pid: self.pid,
            tid: self.threads.get(event.commit as usize).map_or(0, |thread| thread.tid),
            number,
            unique_id: Some(id as i64).filter(|id| *id != 0),
            rank: known(rank as i32),
            ranks: known(ranks),
            parent: Some(parent).filter(|parent| *parent > 0),
            device: Some(device as i32).filter(|_| device != NO_DEVICE),
            api_id: self.intake.hooks.get(usize::from(event.flags)).map_or(0, |hook| hook.api_id),
            handle: (handle & 0xffff_ffff_ffff) as i64,
            library: copy.map_or_else(String::new, |(path, _)| path.clone()),
            version: copy.map_or(0, |(_, version)| *version),
        }
    }
}
