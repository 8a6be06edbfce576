//! A table as text: aligned, its names shortened, its texts broken and its last columns left out so that lines fit.

use comfy_table::{CellAlignment, ContentArrangement, Table as Grid, presets};

use super::fit::fitted;
use super::text::ROWS;
use super::{Layout, numbers};
use crate::analysis::{Table, Unit, Value};
use crate::trace::{columns_of, shortened, shortened_apart};

/// Characters that a shortened name keeps, and that it keeps in a narrow terminal, as a text does that is broken.
const NAME: usize = 20;
const NARROW_NAME: usize = 10;
const NARROW_TEXT: usize = 16;
/// Characters of what is the same in every row.
const SAID: usize = 60;
/// Columns at which a terminal is not narrow.
const WIDE: usize = 80;
/// Columns that stay, however alike names are that were shortened.
const FEWEST: usize = 4;
/// Left of a table's lines.
const INDENT: usize = 4;

/// A column's text.
struct Cells<'a> {
    unit: Unit,
    title: &'a str,
    head: String,
    cells: Vec<String>,
}

impl Cells<'_> {
    fn width(&self) -> usize {
        self.cells.iter().chain([&self.head]).map(|cell| columns_of(cell)).max().unwrap_or(0)
    }

    /// Characters that it needs at least in a line of so many.
    fn least(&self, line: usize) -> usize {
        self.width().min(match self.unit {
            Unit::Name if line < WIDE => NARROW_NAME,
            Unit::Name => NAME,
            Unit::Text => NARROW_TEXT,
            _ => usize::MAX,
        })
    }

    /// Whether names that differ look the same in so many characters.
    fn confuses(&self, most: usize) -> bool {
        let mut names: Vec<&String> = self.cells.iter().collect();
        names.sort_unstable();
        names.dedup();
        let mut short: Vec<String> = names.iter().map(|name| shortened(name, most)).collect();
        short.sort_unstable();
        short.dedup();
        self.unit == Unit::Name && short.len() < names.len()
    }

    /// Makes it fit so many characters, names that differ so that this shows.
    fn shorten(&mut self, most: usize) {
        let broken = |text: &String| fitted(text, most, 0).join("\n");
        self.cells = match self.unit {
            Unit::Name => shortened_apart(&self.cells, most),
            _ => self.cells.iter().map(broken).collect(),
        };
        self.head = broken(&self.head);
    }
}

/// The table; what is the same in every row stands in the title.
pub(super) fn grid(table: &Table, layout: Layout) -> String {
    let shown = &table.rows[..table.rows.len().min(ROWS)];
    let constant = constant(table);
    let said: Vec<String> = constant.iter().filter_map(|(_, text)| Some(shortened(text.as_deref()?, SAID))).collect();
    let said = if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) };
    let varying = shown_columns(table).filter(|at| constant.iter().all(|(c, _)| c != at));
    let mut columns: Vec<Cells<'_>> = varying
        .map(|at| {
            let about = &table.columns[at];
            let (head, cells) = numbers::column(about, shown.iter().map(|row| &row[at]));
            Cells { unit: about.unit, title: about.title, head, cells }
        })
        .collect();
    let mut left_out: Vec<&str> = Vec::new();
    let least = |columns: &[Cells<'_>]| width(columns, |column| column.least(layout.width));
    while layout.must_fit && columns.len() > 1 && least(&columns) > layout.width {
        left_out.extend(columns.pop().map(|column| column.title));
    }
    // Names are there to tell rows apart: that is worth more than one number more, where one number less does it.
    if layout.must_fit && layout.width >= WIDE && columns.len() > FEWEST {
        let clear = (FEWEST..=columns.len()).rev().find(|fewer| !is_confusing(&columns[..*fewer], layout));
        left_out.extend(columns.drain(clear.unwrap_or(columns.len())..).rev().map(|column| column.title));
    }
    shorten(&mut columns, layout);

    let mut grid = Grid::new();
    grid.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    grid.set_header(columns.iter().map(|column| &column.head));
    for row in 0..shown.len() {
        grid.add_row(columns.iter().map(|column| &column.cells[row]));
    }
    for (index, about) in columns.iter().enumerate() {
        if let Some(column) = grid.column_mut(index) {
            column.set_cell_alignment(if about.unit.is_text() { CellAlignment::Left } else { CellAlignment::Right });
            column.set_padding((if index == 0 { 0 } else { 1 }, 1));
        }
    }
    let mut out = String::from("\n");
    let push = |out: &mut String, line: &str| {
        fitted(line, layout.width, 2).iter().for_each(|line| out.push_str(&format!("{line}\n")));
    };
    push(&mut out, &format!("  {}{said}", table.title));
    grid.lines().for_each(|line| out.push_str(&format!("{:INDENT$}{}\n", "", line.trim_end())));
    let more = table.rows.len() - shown.len() + table.left_out;
    if more > 0 {
        push(&mut out, &format!("    ... and {} more rows: --format json", numbers::number(more as f64)));
    }
    if !left_out.is_empty() {
        left_out.reverse();
        push(&mut out, &format!("    ... and with a larger --width: {}", left_out.join(", ")));
    }
    out
}

/// Columns that say the same in every row: their number, and their head and that value. The process is left out, the
/// summary names it.
fn constant(table: &Table) -> Vec<(usize, Option<String>)> {
    let same = |at: &usize| table.rows.iter().all(|row| row[*at] == table.rows[0][*at]);
    let about = |at: usize| match (&table.rows[0][at], &table.columns[at]) {
        (Value::Missing, _) => Some((at, None)),
        (_, column) if column.key == "process" => Some((at, None)),
        (Value::Text(text), column) if table.rows.len() > 1 => Some((at, Some(format!("{} {text}", column.title)))),
        _ => None,
    };
    shown_columns(table).filter(same).filter_map(about).collect()
}

/// Columns that text has.
pub(super) fn shown_columns(table: &Table) -> impl Iterator<Item = usize> {
    (0..table.columns.len()).filter(|at| table.columns[*at].unit != Unit::Stack)
}

/// Characters of a line whose columns have so many.
fn width(columns: &[Cells<'_>], of: impl Fn(&Cells<'_>) -> usize) -> usize {
    INDENT + columns.iter().map(of).sum::<usize>() + 2 * columns.len().saturating_sub(1)
}

/// Whether a column's width follows from the room that there is.
fn is_elastic(column: &Cells<'_>, layout: Layout) -> bool {
    match column.unit {
        Unit::Name => true,
        Unit::Text => layout.must_fit,
        _ => false,
    }
}

/// Characters that a name or text may have in the room that the other columns leave; none where all have room. Narrow ones leave
/// what they do not need to the wide ones.
fn most(columns: &[Cells<'_>], layout: Layout) -> Option<usize> {
    let elastic = |column: &Cells<'_>| is_elastic(column, layout);
    let mut wide: Vec<usize> = columns.iter().filter(|column| elastic(column)).map(Cells::width).collect();
    let mut room =
        layout.width.saturating_sub(width(columns, |column| if elastic(column) { 0 } else { column.width() }));
    wide.sort_unstable();
    let mut left = wide.len();
    for needed in wide {
        if needed > room / left {
            break;
        }
        room -= needed;
        left -= 1;
    }
    (left > 0).then(|| (room / left).max(if layout.must_fit { NARROW_NAME } else { NAME }))
}

/// Whether names that differ look the same when all fit.
fn is_confusing(columns: &[Cells<'_>], layout: Layout) -> bool {
    most(columns, layout).is_some_and(|most| columns.iter().any(|column| column.confuses(most)))
}

/// Shortens names, and breaks texts where lines must fit.
fn shorten(columns: &mut [Cells<'_>], layout: Layout) {
    let Some(most) = most(columns, layout) else { return };
    columns.iter_mut().filter(|column| is_elastic(column, layout)).for_each(|column| column.shorten(most));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Column;

    fn table(rows: usize) -> Table {
        let number = |key, title| Column { key, title, unit: Unit::Count };
        let columns = [
            Column { key: "name", title: "Kernel", unit: Unit::Name },
            number("calls", "Calls"),
            number("most", "Most of all"),
            number("least", "Least of all"),
            number("mean", "Mean of all"),
        ];
        let row = |n: usize| {
            let number = |by: usize| Value::from((n * by) as u64);
            vec![format!("a_kernel_with_a_long_name_{n}").into(), number(1), number(1000), number(3), number(4)]
        };
        Table::new("rows", "Rows", &columns, (1..=rows).map(row).collect())
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn a_narrow_terminal_gets_fewer_columns_and_is_told_which() {
        for width in 30..80 {
            let text = grid(&table(3), Layout { width, styled: false, must_fit: true });
            assert!(widest(&text) <= width, "{width}: {text}");
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(
                text.contains("Mean of all"),
                text.contains(" 9 12") || text.contains("larger --width"),
                "{text}"
            );
        }
        let narrow = grid(&table(3), Layout { width: 40, styled: false, must_fit: true });
        assert!(narrow.ends_with("... and with a larger --width: Least\n      of all, Mean of all\n"), "{narrow}");
    }

    #[test]
    fn names_that_differ_look_different_and_numbers_make_room_for_that() {
        let number = |key, title| Column { key, title, unit: Unit::Count };
        let names = ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"];
        let columns: Vec<Column> = [Column { key: "api", title: "Function", unit: Unit::Name }]
            .into_iter()
            .chain(["first", "second", "third", "fourth", "fifth"].map(|key| number(key, "A wide column")))
            .collect();
        let row = |name: &str| std::iter::once(name.into()).chain((0..5i64).map(Value::from)).collect();
        let made = |names: &[&str]| Table::new("rows", "Rows", &columns, names.iter().map(|name| row(name)).collect());
        let shown = |names: &[&str], width| grid(&made(names), Layout { width, styled: false, must_fit: true });
        let text = shown(&names, 85);
        assert!(names.iter().all(|name| text.contains(name)) && text.contains("larger --width"), "{text}");
        let long = [
            "one_kernel_of_many_templates<1>_and_some_more_of_its_name",
            "one_kernel_of_many_templates<2>_and_some_more_of_its_name",
        ];
        let text = shown(&long, 85);
        assert!(text.contains("templates<1>") && text.contains("templates<2>") || text.lines().count() > 2, "{text}");
        assert_eq!(shown(&["a_kernel_with_a_name", "b"], 120).matches("A wide column").count(), 5);
    }

    #[test]
    fn names_too_long_for_any_width_show_where_they_differ_and_keep_their_numbers() {
        let arguments = "std::integral_constant<int, 7>, ".repeat(300);
        let name = |last: &str| format!("void library::gemm<{arguments}{last}>(float*)");
        let columns = table(1).columns;
        let row = |last: &str| std::iter::once(name(last).into()).chain((1..5i64).map(Value::from)).collect();
        let made = Table::new("rows", "Rows", &columns, ["float", "double"].map(row).to_vec());
        for width in [80, 100] {
            let text = grid(&made, Layout { width, styled: false, must_fit: true });
            assert!(widest(&text) <= width && !text.contains("larger --width"), "{text}");
            assert!(text.contains("gemm..") && text.contains("float") && text.contains("double"), "{text}");
        }
    }

    #[test]
    fn letters_that_take_two_columns_leave_lines_as_short_as_they_must_be() {
        let columns = table(1).columns;
        let row = |n: usize| {
            let name = format!("核心计算_{n}_{}", "矩阵乘法".repeat(9));
            std::iter::once(name.into()).chain((1..5i64).map(Value::from)).collect()
        };
        let made = Table::new("rows", "一张很宽的表格", &columns, (1..=3).map(row).collect());
        for width in 30..100 {
            let text = grid(&made, Layout { width, styled: false, must_fit: true });
            assert!(text.lines().all(|line| columns_of(line) <= width), "{width}: {text}");
        }
    }

    #[test]
    fn a_file_gets_every_column() {
        let text = grid(&table(3), Layout { width: 40, styled: false, must_fit: false });
        assert!(text.contains("Mean of all") && !text.contains("larger --width"), "{text}");
    }
}
