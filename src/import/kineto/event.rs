//! One event of a Kineto trace, as its JSON has it, and the numbers in it.
//!
//! Profilers of several years differ in which values are numbers and which are texts, so a value is taken as it stands
//! and read as what it should be. Times are decimal microseconds and are read digit by digit: a floating point number of
//! the microseconds since 1970 is a quarter of one too coarse.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A text that is borrowed where it needs no unescaping.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// An event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    pub(super) ph: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) cat: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) pid: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tid: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) ts: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) dur: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) args: Option<Args<'a>>,
}

/// What an event's `args` may say.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Args<'a> {
    #[serde(borrow)]
    pub(super) correlation: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) device: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) context: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stream: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) wait_on_stream: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) bytes: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) grid: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) block: Option<&'a RawValue>,
    #[serde(borrow, rename = "registers per thread")]
    pub(super) registers: Option<&'a RawValue>,
    #[serde(borrow, rename = "shared memory")]
    pub(super) shared: Option<&'a RawValue>,
    #[serde(borrow, rename = "static shared memory")]
    pub(super) static_shared: Option<&'a RawValue>,
    #[serde(borrow, rename = "dynamic shared memory")]
    pub(super) dynamic_shared: Option<&'a RawValue>,
    #[serde(borrow, rename = "graph node id")]
    pub(super) graph_node: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) domain: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) range: Option<Text<'a>>,
    /// What a wait is for, as our own export says it.
    #[serde(borrow, rename = "waits for stream")]
    pub(super) waits_for: Option<&'a RawValue>,
    #[serde(borrow, rename = "Collective name")]
    pub(super) collective: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) dtype: Option<&'a RawValue>,
    #[serde(borrow, rename = "In msg nelems")]
    pub(super) elements_in: Option<&'a RawValue>,
    #[serde(borrow, rename = "Out msg nelems")]
    pub(super) elements_out: Option<&'a RawValue>,
    #[serde(borrow, rename = "Group size")]
    pub(super) group_size: Option<&'a RawValue>,
    #[serde(borrow, rename = "Process Group Name")]
    pub(super) group_name: Option<&'a RawValue>,
    #[serde(borrow, rename = "Process Group Ranks")]
    pub(super) group_ranks: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) kernel: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
}

/// The text of a value: itself, or what its quotes hold.
pub(super) fn plain(value: &RawValue) -> &str {
    value.get().trim_matches('"').trim()
}

/// A whole number.
pub(super) fn whole(value: Option<&RawValue>) -> Option<i64> {
    let text = plain(value?);
    // Numbers that do not fit, such as handles, keep their bits.
    text.parse().ok().or_else(|| text.parse::<u64>().ok().map(|v| v as i64)).or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.is_finite() && number.fract() == 0.0).then_some(number as i64)
    })
}

/// The same where 32 bits are enough.
pub(super) fn small(value: Option<&RawValue>) -> Option<i32> {
    whole(value).and_then(|v| v.try_into().ok())
}

/// Three numbers.
pub(super) fn three(value: Option<&RawValue>) -> [i32; 3] {
    value.and_then(|v| serde_json::from_str(v.get()).ok()).unwrap_or_default()
}

/// Microseconds with any number of digits, in ns.
pub(super) fn ns(value: Option<&RawValue>) -> Option<i64> {
    let text = plain(value?);
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all(whole) || !all(fraction) {
        // An exponent, or no number at all.
        let us: f64 = text.parse().ok()?;
        return (us.is_finite() && us.abs() < 4e15).then_some((us * 1000.0).round() as i64);
    }
    let mut rest = fraction.bytes().map(|b| i64::from(b - b'0')).chain(std::iter::repeat(0));
    let mut ns = whole.parse::<i64>().ok()?.checked_mul(1000)?;
    for weight in [100, 10, 1] {
        ns += weight * rest.next().unwrap_or(0);
    }
    ns += i64::from(rest.next().unwrap_or(0) >= 5);
    (ns < 1 << 62).then_some(if negative { -ns } else { ns })
}

/// An event that is no JSON, made one where its maker wrote text as it came, or numbers that JSON has no words for.
pub(super) fn mended(event: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(event.len());
    let (mut in_text, mut escaped) = (false, false);
    for byte in String::from_utf8_lossy(event).bytes() {
        match byte {
            _ if escaped => {
                escaped = false;
                // What follows a backslash that stood for itself, as in paths of Windows.
                if !br#""\/bfnrtu"#.contains(&byte) {
                    out.push(b'\\');
                }
            }
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            0..b' ' if in_text => {
                out.push(b' ');
                continue;
            }
            _ => {}
        }
        out.push(byte);
    }
    let mut text = String::from_utf8(out).unwrap_or_default();
    for number in ["-nan", "nan", "NaN", "-inf", "inf", "-Infinity", "Infinity"] {
        for after in [",", "}", "]", " ", "\n"] {
            for before in [":", ": "] {
                text = text.replace(&format!("\"{before}{number}{after}"), &format!("\"{before}null{after}"));
            }
        }
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn times_are_exact_to_the_ns() {
        for (text, wanted) in [
            ("1704067200123456.789", Some(1_704_067_200_123_456_789)),
            ("1704067200123456", Some(1_704_067_200_123_456_000)),
            ("0.001", Some(1)),
            ("7.0004", Some(7_000)),
            ("7.9996", Some(8_000)),
            ("-3.5", Some(-3_500)),
            ("1.5e3", Some(1_500_000)),
            ("\"12.25\"", Some(12_250)),
            ("\"soon\"", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(ns(Some(&raw(text))), wanted, "{text}");
        }
    }

    #[test]
    fn whole_numbers_may_be_texts_and_handles() {
        assert_eq!(whole(Some(&raw("\"7\""))), Some(7));
        assert_eq!(whole(Some(&raw("18446744073709551615"))), Some(-1));
        assert_eq!(whole(Some(&raw("3.0"))), Some(3));
        assert_eq!(whole(Some(&raw("\"stream 7\""))), None);
    }

    #[test]
    fn an_event_that_is_no_json_is_mended() {
        let event = b"{\"name\": \"C:\\python\\x\x01.py \xff\", \"ph\": \"X\", \"args\": {\"bw\": inf, \"a\":nan}}";
        assert!(serde_json::from_slice::<Event<'_>>(event).is_err());
        let mended = mended(event);
        let event: Event<'_> = serde_json::from_slice(&mended).unwrap();
        assert_eq!(event.name.unwrap().0, "C:\\python\\x .py \u{fffd}");
    }
}
