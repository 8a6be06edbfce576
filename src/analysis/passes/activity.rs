//! What CUPTI told beside the GPU's work: sums by process, kind, what it was and why.

use gputrace_collectors::schema::TableId;

use super::Pass;
use super::steps::Steps;
use crate::trace::{Rows, Want};

/// Records of one kind.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// Records.
    pub(crate) count: u64,
    /// Their time.
    pub(crate) ns: i64,
    /// Bytes that moved, were mapped or fought for.
    pub(crate) bytes: i64,
    /// Faults.
    pub(crate) faults: i64,
}

/// Of which process they are, and what they say.
#[derive(Debug)]
pub(crate) struct Key {
    /// Process.
    pub(crate) process_id: i64,
    /// `gpu_activity.kind`.
    pub(crate) kind: String,
    /// `gpu_activity.what`.
    pub(crate) what: String,
    /// `gpu_activity.cause`; empty for none.
    pub(crate) cause: String,
}

/// The pass. There are some dozens of keys at most for each process: texts of the table are out of fixed lists.
#[derive(Debug, Default)]
pub(crate) struct Activities(Vec<(Key, Sum)>);

/// A file that somebody else wrote may have other texts: more keys than that are not told apart.
const MOST: usize = 10_000;

impl Activities {
    /// Sums of a kind.
    pub(crate) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Key, &'a Sum)> {
        self.0.iter().filter(move |(key, _)| key.kind == kind).map(|(key, sum)| (key, sum))
    }

    fn at(&mut self, process_id: i64, [kind, what, cause]: [&str; 3]) -> Option<&mut Sum> {
        let is = |key: &Key| key.process_id == process_id && key.kind == kind && key.what == what && key.cause == cause;
        let place = match self.0.iter().position(|(key, _)| is(key)) {
            Some(place) => place,
            None if self.0.len() >= MOST => return None,
            None => {
                let [kind, what, cause] = [kind, what, cause].map(str::to_owned);
                self.0.push((Key { process_id, kind, what, cause }, Sum::default()));
                self.0.len() - 1
            }
        };
        self.0.get_mut(place).map(|(_, sum)| sum)
    }
}

impl Pass for Activities {
    fn wants(&self) -> &'static [Want] {
        const COLUMNS: &[&str] = &["activity_ns", "kind", "what", "cause", "bytes", "faults"];
        &[Want { table: TableId::GpuActivity, columns: COLUMNS }]
    }

    fn rows(&mut self, rows: &Rows, _: &Steps) {
        let (process, length) = (rows.i64("process_id"), rows.i64_or("activity_ns", 0));
        let [bytes, faults] = ["bytes", "faults"].map(|column| rows.i64_or(column, 0));
        let [kind, what, cause] = ["kind", "what", "cause"].map(|column| rows.texts(column));
        for row in 0..rows.len {
            let said = [kind.get(row), what.get(row), cause.known(row).unwrap_or("")];
            let Some(sum) = self.at(process[row], said) else { continue };
            sum.count += 1;
            sum.ns = sum.ns.saturating_add(length[row].max(0));
            sum.bytes = sum.bytes.saturating_add(bytes[row].max(0));
            sum.faults = sum.faults.saturating_add(faults[row].max(0));
        }
    }
}
