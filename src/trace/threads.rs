//! The names of threads, from the table `threads`.

use gputrace_collectors::schema::TableId;
use rustc_hash::FxHashMap;

use super::{Filter, Trace, Want};

/// Threads whose names are read; a run with more has them as numbers.
const MOST: usize = 100_000;

impl Trace {
    /// Names by process and thread, where known. Of threads with one number the name of the last.
    pub(crate) fn thread_names(&self) -> FxHashMap<(i64, i32), String> {
        let mut names = FxHashMap::default();
        let want = Want { table: TableId::Threads, columns: &["tid", "name"] };
        self.scan(&[want], &Filter::default(), &mut |rows| {
            let (process, tid, name) = (rows.i64("process_id"), rows.i32_or("tid", 0), rows.texts("name"));
            for row in (0..rows.len).filter(|row| !name.get(*row).is_empty()) {
                if names.len() < MOST {
                    names.insert((process[row], tid[row]), name.get(row).to_owned());
                }
            }
        });
        names
    }
}
