//! Whose events rows are: by process and class. A batch brings it along, and each file says it of its rows in its footer, so
//! that the account of a collector that was killed can be made from what it left ([`crate::recover`]).

use crate::summed::Among;

/// Rows of one class of one process in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) process_id: i64,
    pub(crate) class: u8,
    pub(crate) rows: u64,
    /// Events that its rows of another kind sum.
    pub(crate) culled: u64,
}

/// The fact in a file's footer.
pub(crate) const KEY: &str = "gputrace.events";

/// Adds a share to a list that has each process and class once, in their order: of a file there may be a hundred thousand.
pub(crate) fn add(list: &mut Vec<Share>, share: Share) {
    let key = |s: &Share| (s.process_id, s.class);
    match list.binary_search_by_key(&key(&share), key) {
        Ok(at) => {
            let found = &mut list[at];
            found.rows = found.rows.saturating_add(share.rows);
            found.culled = found.culled.saturating_add(share.culled);
        }
        Err(at) => list.insert(at, share),
    }
}

/// Adds up those of processes that are summed up in the manifest.
pub(crate) fn sum_up(list: &mut Vec<Share>, among: &Among) {
    let gone: Vec<Share> =
        list.extract_if(.., |share| among.holds(share.process_id) && share.process_id != among.id()).collect();
    gone.into_iter().for_each(|share| add(list, Share { process_id: among.id(), ..share }));
}

/// `PROCESS:CLASS:EVENTS:SUMMED` of each, separated by spaces.
pub(crate) fn to_text(shares: &[Share]) -> String {
    let one = |s: &Share| format!("{}:{}:{}:{}", s.process_id, s.class, s.rows, s.culled);
    shares.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// What such a text says; what is none of it is passed over.
pub(crate) fn from_text(text: &str) -> impl Iterator<Item = Share> {
    text.split(' ').filter_map(|one| {
        let mut parts = one.split(':');
        let process_id = parts.next()?.parse().ok()?;
        let class = parts.next()?.parse().ok()?;
        Some(Share { process_id, class, rows: parts.next()?.parse().ok()?, culled: parts.next()?.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_survive_their_text_and_rubbish_is_passed_over() {
        let shares = [
            Share { process_id: -7, class: 3, rows: 12, culled: 0 },
            Share { process_id: 1 << 40, class: 0, rows: 1, culled: 99 },
        ];
        assert_eq!(from_text(&to_text(&shares)).collect::<Vec<_>>(), shares);
        assert_eq!(from_text("").count() + from_text("x:1:2:3 1:2 1:999:1:1").count(), 0);
    }
}
