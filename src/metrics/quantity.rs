//! A quantity as people write it, `2ms`, `64MiB`, `5%`, in the unit of a metric; and back.

use crate::analysis::{Unit, Value};
use crate::render::value;

/// Suffixes and what they multiply with. Without one a quantity is in the metric's own unit.
fn suffixes(unit: Unit) -> &'static [(&'static str, f64)] {
    const NS: &[(&str, f64)] = &[("", 1.0), ("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9)];
    const BYTES: &[(&str, f64)] = &[
        ("", 1.0),
        ("B", 1.0),
        ("K", 1024.0),
        ("M", 1048576.0),
        ("G", 1073741824.0),
        ("T", 1099511627776.0),
        ("KiB", 1024.0),
        ("MiB", 1048576.0),
        ("GiB", 1073741824.0),
        ("TiB", 1099511627776.0),
        ("kB", 1e3),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
    ];
    match unit {
        Unit::Ns => NS,
        Unit::Bytes | Unit::BytesEach | Unit::BytesPerS => BYTES,
        Unit::Percent => &[("", 1.0), ("%", 1.0)],
        _ => &[("", 1.0)],
    }
}

/// How much of a text is its number: digits, and an exponent (1e9) where digits follow it.
fn length(text: &str) -> usize {
    let digits = |text: &str| text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let whole = digits(text);
    let Some(after) = text[whole..].strip_prefix(['e', 'E']).filter(|_| whole > 0) else { return whole };
    let exponent = after.strip_prefix(['+', '-']).unwrap_or(after);
    match digits(exponent) {
        0 => whole,
        more => text.len() - exponent.len() + more,
    }
}

/// A quantity of this unit. Err: what is expected.
pub(crate) fn parse(text: &str, unit: Unit) -> Result<f64, String> {
    let trimmed = text.trim();
    let per_s = matches!(unit, Unit::BytesPerS | Unit::PerS);
    let trimmed = if per_s { trimmed.strip_suffix("/s").unwrap_or(trimmed).trim_end() } else { trimmed };
    let (sign, trimmed) = trimmed.strip_prefix('-').map_or((1.0, trimmed), |digits| (-1.0, digits));
    let split = length(trimmed);
    let (number, suffix) = trimmed.split_at(split);
    let factor = suffixes(unit).iter().find(|(name, _)| *name == suffix.trim()).map(|(_, factor)| *factor);
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite());
    match (number, factor) {
        (Some(number), Some(factor)) => Ok(sign * number * factor),
        _ => Err(format!("{text:?} is no {}", expected(unit))),
    }
}

/// The same of what cannot be less than nothing: how much worse something may be.
pub(crate) fn at_least_0(text: &str, unit: Unit) -> Result<f64, String> {
    let number = parse(text, unit)?;
    if number < 0.0 { Err(format!("{} is less than nothing", text.trim())) } else { Ok(number) }
}

fn expected(unit: Unit) -> &'static str {
    match unit {
        Unit::Ns => "time: a number with ns, us, ms, s or min, such as 2ms",
        Unit::Bytes | Unit::BytesEach => {
            "number of bytes: a number with KiB, MiB, GiB (1024) or kB, MB, GB (1000), such as 64MiB"
        }
        Unit::BytesPerS => "bandwidth: a number of bytes per second, such as 20GB/s",
        Unit::Percent => "share: a number of percent, such as 5%",
        Unit::PerS => "rate: a number per second, such as 1000/s",
        _ => "number",
    }
}

/// A number with its unit, for people.
pub(crate) fn shown(number: f64, unit: Unit) -> String {
    value(&Value::Num(number), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_may_have_an_exponent() {
        let all = [("1e9", 1e9), ("2.5E-3", 2.5e-3), ("1e+2", 100.0)];
        all.iter().for_each(|(text, number)| assert_eq!(parse(text, Unit::Count), Ok(*number), "{text}"));
        assert_eq!(parse("1e3us", Unit::Ns), Ok(1e6));
        assert!(parse("1e", Unit::Count).is_err() && parse("e9", Unit::Count).is_err());
    }

    #[test]
    fn quantities_take_the_units_that_people_write() {
        let good = [
            ("2ms", Unit::Ns, 2e6),
            ("1.5 us", Unit::Ns, 1500.0),
            ("7", Unit::Ns, 7.0),
            ("2min", Unit::Ns, 120e9),
            ("64MiB", Unit::Bytes, 67108864.0),
            ("64M", Unit::Bytes, 67108864.0),
            ("1kB", Unit::Bytes, 1000.0),
            ("20 GB/s", Unit::BytesPerS, 20e9),
            ("5%", Unit::Percent, 5.0),
            ("0.5 %", Unit::Percent, 0.5),
            ("100/s", Unit::PerS, 100.0),
            ("4000", Unit::Count, 4000.0),
            ("-1", Unit::Ns, -1.0),
            ("-2.5 ms", Unit::Ns, -2.5e6),
        ];
        for (text, unit, number) in good {
            assert_eq!(parse(text, unit), Ok(number), "{text}");
        }
        for (text, unit) in [
            ("", Unit::Count),
            ("2ms", Unit::Count),
            ("--1", Unit::Ns),
            ("-", Unit::Ns),
            ("inf", Unit::Ns),
            ("1e999", Unit::Ns),
            ("5%", Unit::Bytes),
            ("1.2.3", Unit::Ns),
            ("ms", Unit::Ns),
            ("2mss", Unit::Ns),
        ] {
            assert!(parse(text, unit).is_err(), "{text}");
        }
        assert_eq!(at_least_0("5%", Unit::Percent), Ok(5.0));
        assert_eq!(at_least_0("-5%", Unit::Percent), Err("-5% is less than nothing".to_owned()));
        assert!(parse("2 parsecs", Unit::Ns).unwrap_err().contains("such as 2ms"));
    }
}
