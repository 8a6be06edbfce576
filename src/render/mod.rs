//! Reports as text, JSON, Markdown and a page. Numbers get their units and their roundings here and nowhere else.

mod dress;
mod fit;
mod grid;
pub(crate) mod html;
mod json;
mod markdown;
mod numbers;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use dress::dressed;
pub(crate) use markdown::escaped;
pub(crate) use numbers::{
    bytes, counted, duration, file_size, identifier, number, ordinal, scale_ns, share, time, unit_name, value,
};

use crate::analysis::{Analysis, Section};
use crate::cli::Format;
use crate::terminal;
use crate::trace::Problem;

/// A text in lines of at most `width` characters, with one space between its words.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    fit::fitted(&text.split_whitespace().collect::<Vec<_>>().join(" "), width, 0)
}

/// The summary that ends a run, in lines that fit.
pub(crate) fn summary(text: &str) -> String {
    text.lines().flat_map(|line| fit::fitted(line, Layout::PLAIN.width, 2)).map(|line| line + "\n").collect()
}

/// A report: the answers of some analyses on some traces.
pub(crate) struct Report {
    /// The folders, as the user named them.
    pub(crate) traces: Vec<String>,
    /// What the whole report is about, where that is not the whole run.
    pub(crate) notes: Vec<String>,
    /// The answers, in the order of [`crate::analysis::ALL`].
    pub(crate) sections: Vec<(&'static dyn Analysis, Section)>,
    /// What could not be read.
    pub(crate) problems: Vec<Problem>,
}

/// How text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Columns that a line may take.
    pub(crate) width: usize,
    /// Headings, verdicts and findings are bold and coloured.
    pub(crate) styled: bool,
    /// Lines must not be longer, though columns are left out.
    pub(crate) must_fit: bool,
}

impl Layout {
    /// For output that is not a terminal.
    pub(crate) const PLAIN: Layout = Layout { width: 100, styled: false, must_fit: false };

    /// For stdout: as wide as the terminal, where it is one.
    pub(crate) fn of_stdout() -> Layout {
        use std::io::IsTerminal;
        let stdout = std::io::stdout();
        let styled = terminal::is_styled(&stdout);
        if !stdout.is_terminal() {
            return Layout { styled, ..Layout::PLAIN };
        }
        let width = terminal_size::terminal_size().map_or(Layout::PLAIN.width, |(width, _)| usize::from(width.0));
        Layout { width: width.clamp(40, 250), styled, must_fit: true }
    }

    /// For a report on stdout, or in a file: as wide as asked for, else as the terminal, else 100 columns.
    pub(crate) fn of_report(to_file: bool, width: Option<u16>) -> Layout {
        let in_file = || Layout { styled: terminal::is_styled_in_files(), ..Layout::PLAIN };
        let there = if to_file { in_file() } else { Layout::of_stdout() };
        Layout { width: width.map_or(there.width, usize::from), must_fit: true, ..there }
    }
}

impl Report {
    /// The report in a format, ending with a newline.
    pub(crate) fn render(&self, format: Format, layout: Layout) -> String {
        match format {
            Format::Text => text::render(self, layout),
            Format::Json => json::render(self),
            Format::Markdown => markdown::render(self),
        }
    }
}
