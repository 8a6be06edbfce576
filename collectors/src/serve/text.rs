//! Metrics as text: Prometheus' own format, and OpenMetrics' for whoever asks for that.
//!
//! By hand, because the crate that Prometheus' makers keep (prometheus-client) writes OpenMetrics alone, in which counters are named
//! otherwise than in the older format that every scraper reads. Both are a line for a value; what differs stands below.

use std::fmt::Write;
use std::sync::LazyLock;

use super::metric::{Family, Histogram, Kind, Labels, Value};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0: types belong to a counter's name without `_total`, units are told, and the end is.
    OpenMetrics,
}

impl Format {
    /// What a client wants, by the header Accept: what it prefers, and the older one where it does not say.
    pub(crate) fn accepted(accept: &str) -> Format {
        let quality = |kind: &str| {
            let of = |part: &str| {
                let mut words = part.split(';').map(str::trim);
                let matches = words.next().is_some_and(|name| name.eq_ignore_ascii_case(kind));
                let version = words.clone().filter_map(|word| word.strip_prefix("version=")).next();
                let known = version.is_none_or(|version| ["0.0.1", "1.0.0", "0.0.4"].contains(&version));
                let quality = words.filter_map(|word| word.strip_prefix("q=")?.parse::<f64>().ok()).next();
                (matches && known).then(|| quality.unwrap_or(1.0))
            };
            accept.split(',').filter_map(of).fold(0.0, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// The header Content-Type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The name that a metric's type, unit and meaning belong to.
    fn family(self, family: &Family) -> &str {
        let ending = match (self, family.kind) {
            (Format::OpenMetrics, Kind::Counter) => "_total",
            (Format::OpenMetrics, Kind::Info) => "_info",
            _ => "",
        };
        family.name.strip_suffix(ending).unwrap_or(&family.name)
    }

    fn type_of(self, kind: Kind) -> &'static str {
        match (kind, self) {
            (Kind::Counter, _) => "counter",
            (Kind::Histogram, _) => "histogram",
            (Kind::Info, Format::OpenMetrics) => "info",
            (Kind::Gauge | Kind::Info, _) => "gauge",
        }
    }
}

/// The whole text. Metrics without a value are left out. `room`: how long it is, as far as that is known.
pub(crate) fn text(families: &[Family], format: Format, room: usize) -> String {
    let mut out = String::with_capacity(room);
    for family in families.iter().filter(|family| !family.points.is_empty()) {
        let name = format.family(family);
        for part in ["# HELP ", name, " "] {
            out.push_str(part);
        }
        escape(&mut out, &family.help, format == Format::OpenMetrics);
        for part in ["\n# TYPE ", name, " ", format.type_of(family.kind), "\n"] {
            out.push_str(part);
        }
        if format == Format::OpenMetrics && !family.unit.is_empty() {
            let _ = writeln!(out, "# UNIT {name} {}", family.unit);
        }
        for point in &family.points {
            match &point.value {
                Value::Number(value) => line(&mut out, &family.name, "", &point.labels, None, *value),
                Value::Histogram(histogram) => {
                    for ((_, count), end) in histogram.cumulative().zip(&*ENDS) {
                        line(&mut out, &family.name, "_bucket", &point.labels, Some(end), count as f64);
                    }
                    line(&mut out, &family.name, "_sum", &point.labels, None, histogram.sum_seconds);
                    line(&mut out, &family.name, "_count", &point.labels, None, histogram.count() as f64);
                }
            }
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

/// The ends of a histogram's buckets, as they are written.
static ENDS: LazyLock<Vec<String>> =
    LazyLock::new(|| Histogram::default().cumulative().map(|(end, _)| bound(end)).collect());

fn line(out: &mut String, name: &str, ending: &str, labels: &Labels, end: Option<&str>, value: f64) {
    out.push_str(name);
    out.push_str(ending);
    let mut before = "{";
    for (label, value) in labels {
        for part in [before, label, "=\""] {
            out.push_str(part);
        }
        escape(out, value, true);
        out.push('"');
        before = ",";
    }
    if let Some(end) = end {
        for part in [before, "le=\"", end, "\""] {
            out.push_str(part);
        }
        before = ",";
    }
    out.push_str(if before == "{" { " " } else { "} " });
    number(out, value);
    out.push('\n');
}

/// A number as Go writes it, which is what the formats' makers read.
fn number(out: &mut String, value: f64) {
    // Most are counts; whole numbers of this size are exact, and need no search for their shortest text.
    const EXACT: f64 = 9e15;
    let _ = match value {
        value if value.fract() == 0.0 && (0.0..EXACT).contains(&value) && value.is_sign_positive() => {
            out.push_str(itoa::Buffer::new().format(value as u64));
            Ok(())
        }
        value if value == f64::INFINITY => write!(out, "+Inf"),
        value if value == f64::NEG_INFINITY => write!(out, "-Inf"),
        value if value.is_nan() => write!(out, "NaN"),
        value => write!(out, "{value}"),
    };
}

/// The end of a bucket: it has a fraction or an exponent.
fn bound(end: f64) -> String {
    if end == f64::INFINITY {
        return "+Inf".to_owned();
    }
    if end >= 1e-4 {
        return format!("{end:?}");
    }
    let text = format!("{end:e}");
    let (mantissa, power) = text.split_once("e-").unwrap_or((&text, "0"));
    format!("{mantissa}e-{power:0>2}")
}

/// Adds a text in which no character ends it. What is no text to be shown becomes a mark.
fn escape(out: &mut String, text: &str, quotes: bool) {
    // Nearly every text is as it is to be.
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"') || byte == b' ';
    if text.bytes().all(is_plain) {
        return out.push_str(text);
    }
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::metric::Point;
    use super::*;

    fn families() -> Vec<Family> {
        let mut calls = Family::new("gputrace_calls_total", Kind::Counter, "", "Calls \"that\" began\\\n.");
        calls.add(vec![("class", "a\"b\\c\nd\u{1b}".into()), ("pid", "7".into())], 3.0);
        let mut info = Family::new("gputrace_build_info", Kind::Info, "", "What runs.");
        info.add(vec![("version", "1".into())], 1.0);
        let mut busy = Family::new("gputrace_busy_seconds_total", Kind::Counter, "seconds", "Busy.");
        busy.add(Vec::new(), 0.25);
        let mut took = Family::new("gputrace_took_seconds", Kind::Histogram, "seconds", "Durations.");
        let mut histogram = Histogram { sum_seconds: 1.5, ..Histogram::default() };
        histogram.add(600, 2);
        took.points.push(Point { labels: vec![("class", "x".into())], value: Value::Histogram(Box::new(histogram)) });
        vec![calls, info, busy, took, Family::new("gputrace_none", Kind::Gauge, "", "Nothing.")]
    }

    #[test]
    fn both_formats_have_their_names_and_escapes() {
        let old = text(&families(), Format::Prometheus, 0);
        assert!(old.starts_with(
            "# HELP gputrace_calls_total Calls \"that\" began\\\\\\n.\n# TYPE gputrace_calls_total counter\n\
             gputrace_calls_total{class=\"a\\\"b\\\\c\\nd\u{fffd}\",pid=\"7\"} 3\n# HELP gputrace_build_info What runs.\n\
             # TYPE gputrace_build_info gauge\ngputrace_build_info{version=\"1\"} 1\n"
        ), "{old}");
        assert!(old.contains("\ngputrace_busy_seconds_total 0.25\n") && !old.contains("gputrace_none"), "{old}");
        assert!(old.contains("gputrace_took_seconds_bucket{class=\"x\",le=\"5.12e-07\"} 0\n"), "{old}");
        assert!(old.contains("gputrace_took_seconds_bucket{class=\"x\",le=\"1.024e-06\"} 2\n"), "{old}");
        assert!(old.contains("le=\"0.000131072\"") && old.contains("le=\"34.359738368\""), "{old}");
        let end =
            "le=\"+Inf\"} 2\ngputrace_took_seconds_sum{class=\"x\"} 1.5\ngputrace_took_seconds_count{class=\"x\"} 2\n";
        assert!(old.ends_with(end), "{old}");
        let new = text(&families(), Format::OpenMetrics, 0);
        assert!(new.starts_with("# HELP gputrace_calls Calls \\\"that\\\" began"), "{new}");
        assert!(new.contains("# TYPE gputrace_calls counter\ngputrace_calls_total{"), "{new}");
        assert!(new.contains("# TYPE gputrace_build info\ngputrace_build_info{"), "{new}");
        assert!(new.contains("# UNIT gputrace_busy_seconds seconds\n") && new.ends_with("# EOF\n"), "{new}");
    }

    #[test]
    fn who_prefers_openmetrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        assert_eq!(Format::accepted("text/plain;version=0.0.4"), Format::Prometheus);
        assert_eq!(Format::accepted("text/plain, application/openmetrics-text;q=0.5"), Format::Prometheus);
        assert_eq!(Format::accepted("application/openmetrics-text; version=2.0.0"), Format::Prometheus);
        assert_eq!(Format::accepted("application/openmetrics-text;q=0"), Format::Prometheus);
        assert_eq!((Format::accepted("*/*"), Format::accepted("")), (Format::Prometheus, Format::Prometheus));
    }
}
