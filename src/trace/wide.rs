//! How many columns of a terminal a text takes: letters of Chinese, Japanese and Korean take two, marks on other letters none.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The columns that a text takes.
pub(crate) fn columns_of(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// As much of a text's begin as so many columns hold.
pub(crate) fn front(text: &str, columns: usize) -> &str {
    &text[..cut(text.char_indices(), columns).unwrap_or(text.len())]
}

/// As much of a text's end as so many columns hold.
pub(crate) fn back(text: &str, columns: usize) -> &str {
    let from = cut(text.char_indices().rev(), columns).and_then(|at| Some(at + text[at..].chars().next()?.len_utf8()));
    &text[from.unwrap_or(0)..]
}

/// The place of the first character that has no room any more.
fn cut(characters: impl Iterator<Item = (usize, char)>, columns: usize) -> Option<usize> {
    let mut taken = 0;
    let mut beyond = characters.filter(|(_, c)| {
        taken += c.width().unwrap_or(0);
        taken > columns
    });
    beyond.next().map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_letters_take_two_columns_and_are_never_halved() {
        assert_eq!([columns_of("kernel"), columns_of("核心"), columns_of("e\u{301}")], [6, 4, 1]);
        assert_eq!([front("核心kernel", 3), front("核心kernel", 5), front("ab", 9)], ["核", "核心k", "ab"]);
        assert_eq!([back("kernel核心", 3), back("kernel核心", 5), back("ab", 9)], ["心", "l核心", "ab"]);
        assert_eq!([front("核", 1), back("核", 1), front("", 1)], ["", "", ""]);
    }
}
