//! What the manifest says of what the hooks of a process saw, and did not.

use serde::{Deserialize, Serialize};

/// What the hooks of a process saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Hooks that were looked up or called.
    pub hooks: Vec<Hook>,
    /// Driver functions that the program fetched and that pass by unseen.
    pub uncovered: Vec<Symbol>,
    /// Tables of private functions that the program asked the driver for; calls by them pass by unseen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub export_tables: Vec<ExportTable>,
    /// Libraries that were opened so that calls which they make themselves may have passed by unseen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_symbols: Vec<Past>,
    /// What came of patching the driver's functions, where `--hook inline` did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Inline>,
}

/// A library whose own calls symbols may not reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Its name, as the program gave it to the loader; of a long one the end.
    pub library: String,
    /// How it was opened: `RTLD_DEEPBIND` or `dlmopen`.
    pub how: String,
}

/// What inline hooks reach of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inline {
    /// Functions that were patched: each of their calls comes to its hook.
    pub patched: u64,
    /// Functions that were left as they are: calls that went past the symbols are missing.
    pub left: Vec<Left>,
}

/// A function of the driver that was not patched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Its name.
    pub function: String,
    /// Why, in words.
    pub why: String,
}

/// A table of private functions of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportTable {
    /// The identifier that it was asked for by.
    pub id: String,
    /// Whether the driver has it.
    pub found: bool,
}

/// A hook that was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Name of the function.
    pub name: String,
    /// Name of its class.
    pub class: String,
    /// How the program came to it: `export`, `dlsym`, `dlvsym`, `procaddr`, `injection` (NVTX), `inline` (the
    /// function itself is patched).
    pub routes: Vec<String>,
    /// Calls recorded or counted.
    pub calls: u64,
    /// Calls are counted here and leave no rows: the function takes less time than two reads of the clock.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
    /// Calls among them that were only counted, to keep to the budget, and have no rows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A driver function that no hook covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Symbol {
    /// Its name.
    pub symbol: String,
    /// Version that was asked for; 0 when none was.
    pub version: u32,
    /// Flags of the request.
    pub flags: u32,
}
