//! A report as one page that needs nothing else: findings and key figures, the timeline, charts, flame graphs, every table.
//!
//! The page's own text, style and programs stand beside this file, plain, without any library, and are put together here. What
//! is shown is data in it: what is read first as JSON, all else deflated and in base64, which the page unpacks by the browser's
//! DecompressionStream (`unpack.js`).
//!
//! **Invariant:** nothing of a trace is ever markup or program. It stands in data blocks, where no `<` is left, and comes into the page as text.
//! **Invariant:** the page asks for nothing: its policy forbids every request, and every program and style but its own.

mod data;
#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};

use flate2::Compression;
use serde_json::{Value, json};

use super::Report;
use crate::export::page::{Packed, deflated};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");

/// The page's programs, in the order in which they are read.
const SCRIPTS: &[(&str, &str)] = &[
    ("numbers.js", include_str!("numbers.js")),
    ("unpack.js", include_str!("unpack.js")),
    ("elements.js", include_str!("elements.js")),
    ("colors.js", include_str!("colors.js")),
    ("findings.js", include_str!("findings.js")),
    ("layout.js", include_str!("layout.js")),
    ("draw.js", include_str!("draw.js")),
    ("details.js", include_str!("details.js")),
    ("search.js", include_str!("search.js")),
    ("timeline.js", include_str!("timeline.js")),
    ("charts.js", include_str!("charts.js")),
    ("compare.js", include_str!("compare.js")),
    ("flames.js", include_str!("flames.js")),
    ("tables.js", include_str!("tables.js")),
    ("main.js", include_str!("main.js")),
];

/// Steps, or parts of equally many, of a chart's line.
pub(crate) const STEPS: usize = 400;

/// What a page shows beside the report's sections.
pub(crate) struct Beside {
    /// The timeline.
    pub(crate) timeline: Packed,
    /// Stacks for flame graphs.
    pub(crate) flames: Value,
    /// Steps one by one, of each process.
    pub(crate) steps: Vec<(String, Vec<[f64; 3]>)>,
    /// Why the trace is not whole, if it is not.
    pub(crate) incomplete: Option<String>,
}

/// The page.
pub(crate) fn render(report: &Report, beside: &Beside) -> String {
    let about = quoted(&data::about(report, beside));
    let tables = packed(&json!({ "sections": data::sections(report), "steps": beside.steps }));
    let flames = packed(&beside.flames);
    let timeline = base64(&beside.timeline.bytes);
    let scripts: String = SCRIPTS.iter().map(|(name, text)| format!("// {name}\n{text}\n")).collect();
    let nonce = nonce(&[&about, &tables, &flames, &timeline]);
    let put = |name: &str| match name {
        "nonce" => nonce.as_str(),
        "style" => STYLE,
        "scripts" => &scripts,
        "about" => &about,
        "tables" => &tables,
        "flames" => &flames,
        "timeline" => &timeline,
        other => panic!("the page has no {other}"),
    };
    // Between every two marks stands, in turn, the page's own text and the name of what is put there.
    let parts = PAGE.split("@@").enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { part } else { put(part) }).collect()
}

/// What marks the page's own programs and style: whoever named what is in the data cannot know it, for it is made of them all.
fn nonce(data: &[&str]) -> String {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, env!("CARGO_PKG_VERSION"), data).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(1), half(2))
}

/// JSON that no browser takes for markup, wherever it stands.
fn quoted(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

fn packed(value: &Value) -> String {
    base64(&deflated(value.to_string().as_bytes(), Compression::best()))
}

/// Base64 with its padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let known = digit <= chunk.len();
            let index = bits >> (18 - 6 * digit) & 63;
            out.push(if known { DIGITS[index as usize] as char } else { '=' });
        }
    }
    out
}
