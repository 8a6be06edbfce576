//! Numbers for people: three significant digits, a unit that fits, thousands apart.

use crate::analysis::{Column, Unit, Value};

/// `2.1 us`, `11.6 ms`, `3.20 s`.
pub(crate) fn time(ns: f64) -> String {
    let (unit, divisor) = scale_ns(ns);
    format!("{} {unit}", digits(ns / divisor))
}

/// Unit for a time, and what to divide by.
pub(crate) fn scale_ns(ns: f64) -> (&'static str, f64) {
    match ns.abs() {
        n if n < 999.5 => ("ns", 1.0),
        n if n < 999.5e3 => ("us", 1e3),
        n if n < 999.5e6 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

/// Length of a run: `64.1 s`, `12 min 05 s`, `2 h 03 min`.
pub(crate) fn duration(ns: f64) -> String {
    let seconds = ns / 1e9;
    let whole = seconds.round() as u64;
    match whole {
        0..100 => time(ns),
        100..6000 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// `512 B`, `1.50 KiB`, `2.0 GiB`: powers of 1024.
pub(crate) fn bytes(bytes: f64) -> String {
    let (unit, divisor) = scale_bytes(bytes);
    if divisor == 1.0 { format!("{} B", number(bytes)) } else { format!("{} {unit}", digits(bytes / divisor)) }
}

fn scale_bytes(bytes: f64) -> (&'static str, f64) {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut power = 0;
    while power + 1 < UNITS.len() && bytes.abs() >= 999.5 * 1024f64.powi(power as i32) {
        power += 1;
    }
    (UNITS[power], 1024f64.powi(power as i32))
}

/// Size of files: `26 MB`, powers of 1000 as file managers have it.
pub(crate) fn file_size(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b < 999.5 => format!("{b:.0} B"),
        b if b < 999.5e3 => format!("{} kB", digits(b / 1e3)),
        b if b < 999.5e6 => format!("{} MB", digits(b / 1e6)),
        b => format!("{} GB", digits(b / 1e9)),
    }
}

/// A number of things: `5,203`; `2.5` where it is an average.
pub(crate) fn number(value: f64) -> String {
    let rounded = value.round();
    if value.abs() >= 100.0 || (value - rounded).abs() < 0.05 && (rounded != 0.0 || value == 0.0) {
        return thousands(rounded as i64);
    }
    if value.abs() < 0.1 { format!("{value:.3}") } else { format!("{value:.1}") }
}

/// A number of things with their name: `1 launch`, `5,203 launches`.
pub(crate) fn counted(value: f64, one: &str, many: &str) -> String {
    let number = number(value);
    let name = if number == "1" { one } else { many };
    format!("{number} {name}")
}

/// `1st`, `2nd`, `13th`.
pub(crate) fn ordinal(number: usize) -> String {
    let end = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

/// A share in percent: `53 %`, `4.2 %`, `0.05 %`.
pub(crate) fn share(share: f64) -> String {
    percent(100.0 * share)
}

fn percent(percent: f64) -> String {
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        p if p < 0.01 => "< 0.01 %".to_owned(),
        p if p < 0.095 => format!("{percent:.2} %"),
        p if p < 9.95 => format!("{percent:.1}").trim_end_matches(".0").to_owned() + " %",
        _ => format!("{percent:.0} %"),
    }
}

/// Three significant digits, but never fewer than there are before the point.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        v if v < 999.5 => format!("{value:.0}"),
        _ => thousands(value.round() as i64),
    }
}

/// A whole number with its thousands apart.
fn thousands(value: i64) -> String {
    let plain = value.unsigned_abs().to_string();
    let mut out = String::from(if value < 0 { "-" } else { "" });
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A value by itself, with its unit.
pub(crate) fn value(value: &Value, unit: Unit) -> String {
    let number_of = match value {
        Value::Int(v) => *v as f64,
        Value::Num(v) => *v,
        Value::Text(text) => return text.clone(),
        Value::Missing => return "not known".to_owned(),
    };
    match unit {
        Unit::Ns => time(number_of),
        Unit::Bytes | Unit::BytesEach => bytes(number_of),
        Unit::BytesPerS => bytes(number_of) + "/s",
        Unit::Percent => percent(number_of),
        Unit::PerS => number(number_of) + " /s",
        Unit::Id => identifier(number_of),
        Unit::Count | Unit::Text | Unit::Name | Unit::Stack => number(number_of),
    }
}

/// A number that names something: small ones as people count, the bits of a handle as debuggers show them.
pub(crate) fn identifier(value: f64) -> String {
    if value.abs() < 100_000.0 { format!("{value:.0}") } else { format!("{:#x}", value as i64) }
}

/// A unit's name, for lists.
pub(crate) fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Ns => "ns",
        Unit::Bytes | Unit::BytesEach => "bytes",
        Unit::BytesPerS => "bytes/s",
        Unit::Percent => "%",
        Unit::PerS => "1/s",
        Unit::Count | Unit::Id => "count",
        Unit::Text | Unit::Name | Unit::Stack => "text",
    }
}

/// A column of a table as text: its head with the unit that fits its largest value, and its cells.
pub(crate) fn column<'a>(column: &Column, cells: impl Iterator<Item = &'a Value> + Clone) -> (String, Vec<String>) {
    let as_number = |v: &Value| match v {
        Value::Int(v) => Some(*v as f64),
        Value::Num(v) => Some(*v),
        _ => None,
    };
    let most = cells.clone().filter_map(as_number).fold(0.0, |most: f64, v| most.max(v.abs()));
    let (unit, divisor) = match column.unit {
        Unit::Ns => scale_ns(most),
        Unit::Bytes => scale_bytes(most),
        Unit::BytesPerS => scale_bytes(most),
        _ => ("", 1.0),
    };
    let head = match column.unit {
        Unit::Ns | Unit::Bytes => format!("{} ({unit})", column.title),
        Unit::BytesPerS => format!("{} ({unit}/s)", column.title),
        Unit::PerS => format!("{} (/s)", column.title),
        Unit::Percent if !column.title.contains('%') => format!("{} %", column.title),
        _ => column.title.to_owned(),
    };
    let cell = |v: &Value| match (v, as_number(v)) {
        (Value::Text(text), _) => text.clone(),
        (_, None) => "-".to_owned(),
        (_, Some(v)) => match column.unit {
            Unit::Ns | Unit::Bytes | Unit::BytesPerS if divisor == 1.0 => number(v),
            Unit::Ns | Unit::Bytes | Unit::BytesPerS => fixed(v / divisor, most / divisor),
            Unit::BytesEach => bytes(v),
            Unit::Id => identifier(v),
            Unit::Percent => format!("{v:.1}"),
            _ => number(v),
        },
    };
    (head, cells.map(cell).collect())
}

/// As many digits after the point as the largest of the column needs; small values keep two significant digits.
fn fixed(value: f64, most: f64) -> String {
    let places = if most < 9.995 {
        3
    } else if most < 99.95 {
        2
    } else {
        1
    };
    if value != 0.0 && value.abs() < 0.5 * 10f64.powi(-places) {
        format!("<0.{:0>1$}1", "", places as usize - 1)
    } else {
        format!("{value:.*}", places as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        let times =
            [(0.0, "0 ns"), (412.0, "412 ns"), (2100.0, "2.10 us"), (11.6e6, "11.6 ms"), (999_600.0, "1.00 ms")];
        times.iter().for_each(|(ns, text)| assert_eq!(time(*ns), *text));
        let runs = [(64.1e9, "64.1 s"), (725e9, "12 min 05 s"), (7380e9, "2 h 03 min")];
        runs.iter().for_each(|(ns, text)| assert_eq!(duration(*ns), *text));
        let ordinals = [1, 2, 3, 4, 11, 12, 13, 21, 22, 103, 111, 1000].map(ordinal).join(" ");
        assert_eq!(ordinals, "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 103rd 111th 1000th");
        let counts = [
            (5203.0, "5,203"),
            (1.0, "1"),
            (0.98, "1"),
            (2.5, "2.5"),
            (0.0, "0"),
            (0.004, "0.004"),
            (-1e6, "-1,000,000"),
        ];
        counts.iter().for_each(|(n, text)| assert_eq!(number(*n), *text));
        let launches = |n| counted(n, "launch", "launches");
        assert_eq!((launches(1.0), launches(5203.0)), ("1 launch".to_owned(), "5,203 launches".to_owned()));
        let stream = |n| value(&Value::Int(n), Unit::Id);
        assert_eq!((stream(7), stream(0x200_0000_0010)), ("7".to_owned(), "0x20000000010".to_owned()));
        let sizes = [(512.0, "512 B"), (1024.0, "1.00 KiB"), (65536.0, "64.0 KiB"), (3e9, "2.79 GiB")];
        sizes.iter().for_each(|(b, text)| assert_eq!(bytes(*b), *text));
        assert_eq!(
            (file_size(26_000_000), file_size(12), file_size(1_900_000_000)),
            ("26.0 MB".into(), "12 B".into(), "1.90 GB".into())
        );
        let shares =
            [(0.53, "53 %"), (0.042, "4.2 %"), (0.0005, "0.05 %"), (0.0, "0 %"), (1e-9, "< 0.01 %"), (1.0, "100 %")];
        shares.iter().for_each(|(s, text)| assert_eq!(share(*s), *text));
    }

    #[test]
    fn a_column_has_one_unit() {
        let cells = [Value::Int(1_500_000), Value::Int(20), Value::Missing, Value::Num(0.0)];
        let about = crate::analysis::Column { key: "x_ns", title: "Total", unit: Unit::Ns };
        let (head, shown) = column(&about, cells.iter());
        assert_eq!(
            (head.as_str(), shown),
            ("Total (ms)", vec!["1.500".into(), "<0.001".into(), "-".into(), "0.000".into()])
        );
    }
}
