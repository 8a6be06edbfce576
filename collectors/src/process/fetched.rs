//! What passes by unseen: functions of the driver that a program fetched and no hook covers, tables of private functions,
//! libraries whose own calls symbols do not reach.

use gputrace_abi::event::{past, text_kind};

use crate::chain::Text;
use crate::manifest::{ExportTable, Past, Symbol};

/// Symbols, and tables, that are kept.
const MOST: usize = 4096;

/// What was fetched, each once.
#[derive(Default)]
pub(super) struct Fetched {
    pub(super) symbols: Vec<Symbol>,
    pub(super) export_tables: Vec<ExportTable>,
    pub(super) past_symbols: Vec<Past>,
}

impl Fetched {
    /// Takes in a text of one of these kinds.
    pub(super) fn take(&mut self, text: &Text) {
        if text.kind == text_kind::UNCOVERED {
            let (version, flags) = ((text.number >> 32) as u32, text.number as u32);
            keep(&mut self.symbols, Symbol { symbol: text.text().into_owned(), version, flags });
        } else if text.kind == text_kind::EXPORT_TABLE {
            keep(&mut self.export_tables, ExportTable { id: uuid(text.bytes()), found: text.number == 0 });
        } else if text.kind == text_kind::PAST {
            let how = if text.number == past::NAMESPACE { "dlmopen" } else { "RTLD_DEEPBIND" };
            let library = text.text().chars().take(past::NAME_BYTES).filter(|c| !c.is_control()).collect();
            keep(&mut self.past_symbols, Past { library, how: how.to_owned() });
        }
    }

    /// The names of the functions, each once, separated by commas; none when there are none.
    pub(super) fn uncovered(&self) -> Option<String> {
        let mut names: Vec<&str> = self.symbols.iter().map(|symbol| symbol.symbol.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| names.join(","))
    }

    /// The libraries whose own calls may be missing, separated by commas; none when there are none.
    pub(super) fn past(&self) -> Option<String> {
        let mut names: Vec<&str> = self.past_symbols.iter().map(|past| past.library.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| names.join(","))
    }
}

fn keep<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if all.len() < MOST && !all.contains(&one) {
        all.push(one);
    }
}

/// An identifier of 16 bytes, as it is usually written.
fn uuid(bytes: &[u8]) -> String {
    let mut rest = bytes;
    let groups = [4, 2, 2, 2, 6].map(|length| {
        let (group, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        group.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    });
    groups.join("-")
}
