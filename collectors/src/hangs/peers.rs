//! Ranks of communicators, as far as this collector's processes tell: who has not come to the collective that others are in.

use std::collections::BTreeSet;

use crate::process::communicators::Party;

/// A rank of a communicator, in one of the processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pid: i32,
    /// The communicator's number in its process.
    pub(crate) number: u32,
    pub(crate) party: Party,
    /// The collective in which a thread of it is: the call has not returned.
    pub(crate) inside: Option<String>,
    /// Name of the last one that returned.
    pub(crate) last: String,
    /// Its process has ended.
    pub(crate) ended: bool,
}

impl Peer {
    /// Collectives that it has come to.
    fn entered(&self) -> u64 {
        self.party.entered + u64::from(self.inside.is_some())
    }

    fn rank(&self) -> String {
        self.party.rank.map_or_else(|| "a rank".to_owned(), |rank| format!("rank {rank}"))
    }

    /// How far it is, in words.
    pub(crate) fn describe(&self) -> String {
        let Party { unique_id, ranks, entered, .. } = self.party;
        let of = ranks.map_or_else(String::new, |ranks| format!(" of {ranks}"));
        let last = if entered > 0 { format!(", the last {}", self.last) } else { String::new() };
        let inside = self.inside.as_ref().map_or_else(String::new, |call| format!("; in {call} now"));
        let number = self.number;
        format!("communicator {number} (id {unique_id:x}), {}{of}: {entered} collectives{last}{inside}", self.rank())
    }
}

/// Ranks that have not come to the collective that others of the process's communicators have, a sentence each.
pub(crate) fn missing(pid: i32, peers: &[Peer]) -> Vec<String> {
    let mut said = Vec::new();
    let mut looked = BTreeSet::new();
    for own in peers.iter().filter(|peer| peer.pid == pid && !peer.ended && peer.party.unique_id != 0) {
        if !looked.insert(own.party.unique_id) {
            continue;
        }
        let mut group: Vec<&Peer> = peers.iter().filter(|peer| peer.party.unique_id == own.party.unique_id).collect();
        group.sort_by_key(|peer| (peer.party.rank, peer.pid));
        let Some(first) = group.iter().max_by_key(|peer| peer.entered()) else { continue };
        let (most, name) = (first.entered(), first.inside.as_ref().unwrap_or(&first.last));
        for peer in group.iter().filter(|peer| peer.entered() < most) {
            let (rank, pid, entered) = (peer.rank(), peer.pid, peer.entered());
            said.push(match peer.ended {
                true => format!("{rank} ended (process {pid}) after {entered} collectives: {} is in number {most}, {name}", first.rank()),
                false => format!(
                    "{rank} (process {pid}) has not entered collective {most}, {name}, in which {} is: it has entered {entered}",
                    first.rank()
                ),
            });
        }
        let known: BTreeSet<i32> = group.iter().filter_map(|peer| peer.party.rank).collect();
        let unknown = own.party.ranks.map_or(0, |ranks| ranks as usize).saturating_sub(known.len());
        if unknown > 0 && most > 0 {
            said.push(format!("{unknown} more ranks of communicator {} are not traced here", own.number));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(rank: i32, entered: u64, inside: bool) -> Peer {
        Peer {
            pid: 100 + rank,
            number: 1,
            party: Party { unique_id: 0xabc, rank: Some(rank), ranks: Some(3), entered, last: 0 },
            inside: inside.then(|| "ncclAllReduce".to_owned()),
            last: "ncclBroadcast".to_owned(),
            ended: false,
        }
    }

    #[test]
    fn a_rank_that_has_not_come_is_named_with_what_the_others_wait_in() {
        let peers = [peer(0, 4, true), peer(1, 4, false), peer(2, 4, true)];
        let said = missing(100, &peers);
        assert_eq!(
            said,
            ["rank 1 (process 101) has not entered collective 5, ncclAllReduce, in which rank 2 is: it has entered 4"]
        );
        assert_eq!(missing(101, &peers), said, "whoever asks");
        assert!(missing(7, &peers).is_empty(), "a process without a communicator");
    }

    #[test]
    fn ranks_that_are_level_are_not_missing() {
        assert!(missing(100, &[peer(0, 5, false), peer(1, 4, true), peer(2, 5, false)]).is_empty());
    }

    #[test]
    fn a_rank_that_ended_and_ranks_elsewhere_are_told_apart() {
        let ended = Peer { ended: true, ..peer(1, 2, false) };
        let said = missing(100, &[peer(0, 2, true), ended]);
        assert!(said[0].starts_with("rank 1 ended (process 101) after 2 collectives"), "{said:?}");
        assert_eq!(said[1], "1 more ranks of communicator 1 are not traced here");
    }

    #[test]
    fn communicators_without_an_id_are_not_compared() {
        let nameless =
            |rank| Peer { party: Party { unique_id: 0, ..peer(rank, 0, false).party }, ..peer(rank, 0, rank == 0) };
        assert!(missing(100, &[nameless(0), nameless(1)]).is_empty());
    }
}
