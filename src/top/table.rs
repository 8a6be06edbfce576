//! A pane's table: which columns there is room for, in which order the rows stand, and each as a line of text.

use std::cmp::Ordering;

use crate::trace::{columns_of, front};

/// A column.
#[derive(Debug)]
pub(crate) struct Column {
    /// As `--sort` and the foot call it.
    pub(crate) name: &'static str,
    /// Its head.
    pub(crate) head: &'static str,
    /// Columns of the terminal; of the last column, which takes what is left, at least so many.
    pub(crate) width: usize,
    /// Where there is no room for all, those with high numbers go first.
    pub(crate) importance: u8,
}

/// What stands at a place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// What it is sorted by; none: it is not known, and stands below all that is.
    pub(crate) key: Option<f64>,
}

impl Cell {
    /// A number, and how it is written.
    pub(crate) fn number(value: Option<f64>, text: impl FnOnce(f64) -> String) -> Cell {
        let key = value.filter(|value| value.is_finite());
        Cell { text: key.map_or_else(|| "-".to_owned(), text), key }
    }

    /// A text, which is sorted by itself.
    pub(crate) fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), key: None }
    }
}

/// A row: a cell for each column.
pub(crate) type Row = Vec<Cell>;

/// The columns that a line of so many columns of a terminal has room for, in their order, with their widths.
pub(crate) fn fit(columns: &[Column], room: usize) -> Vec<(usize, usize)> {
    let mut by_importance: Vec<usize> = (0..columns.len()).collect();
    by_importance.sort_by_key(|at| columns[*at].importance);
    let (mut chosen, mut left) = (Vec::new(), room);
    for at in by_importance {
        let needed = columns[at].width + usize::from(!chosen.is_empty());
        // The most important one is there in any case, cut off if it must be.
        if needed <= left || chosen.is_empty() {
            left = left.saturating_sub(needed);
            chosen.push(at);
        }
    }
    chosen.sort_unstable();
    let last = columns.len().wrapping_sub(1);
    chosen.into_iter().map(|at| (at, columns[at].width + if at == last { left } else { 0 })).collect()
}

/// The heads of these columns, as a line.
pub(crate) fn head(columns: &[Column], fitted: &[(usize, usize)]) -> String {
    let texts = fitted.iter().map(|(at, width)| (columns[*at].head, *width, is_left(columns, *at)));
    joined(texts)
}

/// A row, as a line.
pub(crate) fn line(columns: &[Column], fitted: &[(usize, usize)], row: &Row) -> String {
    let texts = fitted.iter().map(|(at, width)| {
        let text = row.get(*at).map_or("", |cell| cell.text.as_str());
        (text, *width, is_left(columns, *at))
    });
    joined(texts)
}

/// Numbers stand at the right of their column, texts, which are last, at the left.
fn is_left(columns: &[Column], at: usize) -> bool {
    at + 1 == columns.len()
}

fn joined<'a>(texts: impl Iterator<Item = (&'a str, usize, bool)>) -> String {
    let mut line = String::new();
    for (n, (text, width, left)) in texts.enumerate() {
        if n > 0 {
            line.push(' ');
        }
        let text = front(text, width);
        let blanks = " ".repeat(width - columns_of(text).min(width));
        match left {
            true => line.extend([text, &blanks]),
            false => line.extend([&blanks, text]),
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Puts rows into an order: by a column, most first; `reverse`: least first.
pub(crate) fn sort(rows: &mut [&Row], column: usize, reverse: bool) {
    let order = |a: &Row, b: &Row| match (a.get(column), b.get(column)) {
        (Some(a), Some(b)) => match (a.key, b.key) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.text.cmp(&b.text),
        },
        _ => Ordering::Equal,
    };
    // What is equal stays as it came, and what is not known stays below.
    rows.sort_by(|a, b| {
        let unknown = |row: &Row| row.get(column).is_some_and(|cell| cell.key.is_none() && cell.text == "-");
        let ordered = order(a, b);
        if reverse && !unknown(a) && !unknown(b) { ordered.reverse() } else { ordered }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column { name: "pid", head: "PID", width: 5, importance: 0 },
        Column { name: "rate", head: "RATE/S", width: 6, importance: 2 },
        Column { name: "rare", head: "RARE", width: 6, importance: 3 },
        Column { name: "what", head: "WHAT", width: 4, importance: 1 },
    ];

    fn row(pid: f64, rate: Option<f64>, what: &str) -> Row {
        let number = |value| Cell::number(value, |value| format!("{value}"));
        vec![number(Some(pid)), number(rate), number(None), Cell::text(what)]
    }

    #[test]
    fn columns_go_by_their_importance_and_the_last_takes_what_is_left() {
        let fitted = |room| fit(COLUMNS, room);
        assert_eq!(fitted(30), [(0, 5), (1, 6), (2, 6), (3, 10)]);
        assert_eq!(fitted(23), [(0, 5), (1, 6), (3, 10)]);
        assert_eq!(fitted(12), [(0, 5), (3, 6)]);
        assert_eq!((fitted(5), fitted(1), fitted(0)), (vec![(0, 5)], vec![(0, 5)], vec![(0, 5)]));
        let row = row(7.0, Some(2.5), "核心 of a long name");
        assert_eq!(line(COLUMNS, &fitted(23), &row), "    7    2.5 核心 of a");
        assert_eq!(head(COLUMNS, &fitted(23)), "  PID RATE/S WHAT");
        assert_eq!(line(COLUMNS, &fitted(1), &row), "    7");
    }

    #[test]
    fn what_is_not_known_stands_below_in_either_order() {
        let all = [row(1.0, None, "a"), row(2.0, Some(1.0), "c"), row(3.0, Some(9.0), "b")];
        let mut rows: Vec<&Row> = all.iter().collect();
        let pids = |rows: &[&Row]| rows.iter().map(|row| row[0].text.clone()).collect::<String>();
        sort(&mut rows, 1, false);
        assert_eq!(pids(&rows), "321");
        sort(&mut rows, 1, true);
        assert_eq!(pids(&rows), "231");
        sort(&mut rows, 3, false);
        assert_eq!(pids(&rows), "132");
        sort(&mut rows, 9, false);
        assert_eq!(pids(&rows), "132");
    }
}
