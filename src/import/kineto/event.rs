//! One event of a Kineto trace, as its JSON has it, and the numbers in it.
//!
//! Profilers of several years differ in which values are numbers and which are texts, so a value is taken as it stands
//! and read as what it should be. Times are decimal microseconds and are read digit by digit: a floating point number of
//! the microseconds since 1970 is a quarter of one too coarse.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroI64;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::import::gathered::TIMES_NS;

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
    pub(super) wait_on_cuda_event_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) wait_on_cuda_event_record_corr_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "External id", alias = "external id")]
    pub(super) external: Option<&'a RawValue>,
    #[serde(borrow, rename = "Python id")]
    pub(super) function: Option<&'a RawValue>,
    #[serde(borrow, rename = "Python parent id")]
    pub(super) caller: Option<&'a RawValue>,
    #[serde(borrow, rename = "Python module id")]
    pub(super) module: Option<&'a RawValue>,
    #[serde(borrow, rename = "Input Dims")]
    pub(super) shapes: Option<&'a RawValue>,
    /// What our own export says of a range that was open at the end.
    #[serde(rename = "end not seen")]
    pub(super) open: bool,
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
    #[serde(borrow, rename = "graph id")]
    pub(super) graph: Option<&'a RawValue>,
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
    /// The driver's function that our own export tells as the runtime's.
    #[serde(borrow, rename = "driver function")]
    pub(super) driver_function: Option<Text<'a>>,
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
    /// What our own export says of a collective beside that.
    #[serde(borrow, rename = "NCCL call")]
    pub(super) nccl_call: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) communicator: Option<&'a RawValue>,
    #[serde(borrow, rename = "communicator id")]
    pub(super) communicator_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "communicator rank")]
    pub(super) communicator_rank: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) kernel: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
}

/// A text; the empty one where there is none.
pub(super) fn text<'e>(text: &'e Option<Text<'_>>) -> &'e str {
    text.as_ref().map_or("", |text| &text.0)
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

/// A number that is above 0, as those of calls are.
pub(super) fn number(value: Option<&RawValue>) -> Option<NonZeroI64> {
    whole(value).filter(|number| *number > 0).and_then(NonZeroI64::new)
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
        return (us.is_finite() && us.abs() < 4e15)
            .then_some((us * 1000.0).round() as i64)
            .filter(|ns| TIMES_NS.contains(ns));
    }
    let mut rest = fraction.bytes().map(|b| i64::from(b - b'0')).chain(std::iter::repeat(0));
    let mut ns = whole.parse::<i64>().ok()?.checked_mul(1000).filter(|ns| *ns < TIMES_NS.end)?;
    for weight in [100, 10, 1] {
        ns += weight * rest.next().unwrap_or(0);
    }
    ns += i64::from(rest.next().unwrap_or(0) >= 5);
    Some(if negative { -ns } else { ns }).filter(|ns| TIMES_NS.contains(ns))
}

/// An event that is no JSON, made one where its maker wrote text as it came, or numbers that JSON has no words for. What is
/// no character (bytes that are no UTF-8, half of a surrogate pair) is the replacement character then.
pub(super) fn mended(event: &[u8]) -> Vec<u8> {
    let event = String::from_utf8_lossy(event);
    let (mut out, mut rest, mut in_text) = (Vec::with_capacity(event.len()), event.as_bytes(), false);
    while let Some(byte) = rest.first() {
        let taken = match byte {
            b'\\' if in_text => escaped(rest, &mut out),
            0..b' ' if in_text => {
                out.push(b' ');
                1
            }
            _ => {
                in_text ^= *byte == b'"';
                out.push(*byte);
                1
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
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

/// An event in which a key stands twice, with the last value of each, as most readers of JSON take it.
pub(super) fn last_of_each(event: &[u8]) -> Option<Vec<u8>> {
    let unique = |text: &[u8]| serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(text).ok();
    let mut members = unique(event)?;
    if let Some(args) = members.get_mut("args")
        && let Some(own) = unique(args.get().as_bytes())
    {
        *args = to_raw_value(&own).ok()?;
    }
    serde_json::to_vec(&members).ok()
}

/// Writes the character that a backslash begins, as JSON may have it. How many bytes it took.
fn escaped(text: &[u8], out: &mut Vec<u8>) -> usize {
    let taken = match (unit(text), text.get(1)) {
        (Some(0xd800..0xdc00), _) if matches!(unit(&text[6..]), Some(0xdc00..0xe000)) => 12,
        (Some(0xd800..0xe000), _) => {
            out.extend_from_slice(b"\\ufffd");
            return 6;
        }
        (Some(_), _) => 6,
        (None, Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')) => 2,
        // A backslash that stood for itself, as in paths of Windows.
        (None, _) => {
            out.extend_from_slice(br"\\");
            return 1;
        }
    };
    out.extend_from_slice(&text[..taken]);
    taken
}

/// The number of `\uXXXX` at the begin of a text.
fn unit(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | char::from(*digit).to_digit(16)?))
}

/// A text that stands as JSON has it.
pub(super) fn unquoted(value: &RawValue) -> Option<String> {
    let text = serde_json::from_str(value.get());
    text.or_else(|_| serde_json::from_slice(&mended(value.get().as_bytes()))).ok()
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

    #[test]
    fn of_a_key_that_stands_twice_the_last_value_counts() {
        let event = br#"{"ph": "B", "ts": 1704067200123456.789, "ph": "X", "args": {"device": 1, "device": 2}}"#;
        assert!(serde_json::from_slice::<Event<'_>>(event).is_err());
        let unique = last_of_each(event).unwrap();
        let event: Event<'_> = serde_json::from_slice(&unique).unwrap();
        assert_eq!((event.ph.unwrap().0.as_ref(), ns(event.ts)), ("X", Some(1_704_067_200_123_456_789)));
        assert_eq!(small(event.args.unwrap().device), Some(2));
    }

    #[test]
    fn what_is_no_character_is_replaced_and_the_rest_stays() {
        for (text, wanted) in [
            (&br"a\ud800b"[..], "a\u{fffd}b"),
            (br"\udc00\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (br"\ud800\ud800\udc00 \u00e9\n", "\u{fffd}\u{10000} \u{e9}\n"),
            (br"\ud800\n\u12", "\u{fffd}\n\\u12"),
            (b"\xc3\xa9 \xc3", "\u{e9} \u{fffd}"),
            (br"C:\users\ud8", "C:\\users\\ud8"),
        ] {
            let mended = mended(&[b"\"", text, b"\""].concat());
            assert_eq!(serde_json::from_slice::<String>(&mended).unwrap(), wanted, "{}", text.escape_ascii());
        }
    }
}
