//! An order by HTTP, path and query of any bytes: it becomes one line that the control socket understands, or is refused.

use std::time::UNIX_EPOCH;

use super::orders::line;

const PATHS: [&str; 5] = ["/dump", "/set", "/start", "/stop", "/else"];

pub(crate) fn orders(data: &[u8]) {
    let (first, query) = data.split_first().unwrap_or((&0, &[]));
    let query = String::from_utf8_lossy(query);
    if let Ok(line) = line(PATHS[usize::from(*first) % PATHS.len()], &query, UNIX_EPOCH) {
        assert!(!line.contains('\n'), "a second line would be another order: {line:?}");
        crate::control::fuzzed::control(line.as_bytes());
    }
}
