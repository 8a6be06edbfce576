//! Lines that are no longer than they may be.

use crate::trace::{columns_of, shortened};

/// A line in as many as it needs so that each takes at most `width` columns; those after the first begin `hang` further
/// right. A word that is longer than a line is shortened, but for a path, which must stay what it is.
pub(super) fn fitted(line: &str, width: usize, hang: usize) -> Vec<String> {
    if columns_of(line) <= width {
        return vec![line.to_owned()];
    }
    let text = line.trim_start_matches(' ');
    let first = line.len() - text.len();
    let next = (first + hang).min(width / 2);
    let (mut lines, mut length, mut gap, mut rest) = (vec![" ".repeat(first)], 0, 0, text);
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        rest = after.trim_start_matches(' ');
        let begin = if lines.len() == 1 { first } else { next };
        let room = width.saturating_sub(begin);
        let word = if word.contains('/') { word.to_owned() } else { shortened(word, room) };
        let needed = columns_of(&word);
        if length > 0 && begin + length + gap + needed > width {
            lines.push(" ".repeat(next));
            (length, gap) = (0, 0);
        }
        if let Some(last) = lines.last_mut() {
            *last += &format!("{:gap$}{word}", "");
        }
        (length, gap) = (length + gap + needed, after.len() - rest.len());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_between_words_and_keeps_its_gaps() {
        assert_eq!(fitted("  short  line", 20, 2), ["  short  line"]);
        assert_eq!(fitted("  some  words that go on", 14, 2), ["  some  words", "    that go on"]);
        assert_eq!(fitted("to /a/path/to/a/file", 10, 4), ["to", "    /a/path/to/a/file"], "a path stays what it is");
        for line in fitted(&format!("  {} and {}", "x".repeat(90), "y".repeat(90)), 40, 4) {
            assert!(line.chars().count() <= 40 && line.starts_with("  "), "{line}");
        }
    }
}
