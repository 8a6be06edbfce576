//! Limits as the user gives them: options, and a TOML file.
//!
//! In the file a metric is a table of `max`, `min` and `tolerance`, numbers or texts with a unit. Its name may be written
//! as tables (`[summary]`, then `launches = { max = 500 }`) or in quotes.

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};
use toml::{Table, Value};

use super::{Bound, Limit};
use crate::analysis::Unit;
use crate::launch::exit::{Failure, USAGE};
use crate::metrics::{Named, all, at_least_0, find, parse};

/// What was asked for.
#[derive(Default)]
pub(crate) struct Given {
    /// Limits.
    pub(crate) limits: Vec<Limit>,
    /// Tolerances of single metrics, as shares.
    pub(crate) tolerances: Vec<(Named, f64)>,
}

/// All limits of the options and of the file.
pub(crate) fn given(max: &[String], min: &[String], file: Option<&Path>) -> Result<Given> {
    let mut given = Given::default();
    let options = max.iter().map(|text| ("max", text)).chain(min.iter().map(|text| ("min", text)));
    for (key, text) in options {
        let wrong = |problem: String| Failure::error(USAGE, format!("--{key} {text}: {problem}"));
        let (name, value) = text.split_once('=').ok_or_else(|| wrong("expected METRIC=VALUE".to_owned()))?;
        given.take(name.trim(), key, value).map_err(wrong)?;
    }
    if let Some(file) = file {
        let wrong = |problem: String| Failure::error(USAGE, format!("{}: {problem}", file.display()));
        let text = fs::read_to_string(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let table: Table =
            text.parse().map_err(|error: toml::de::Error| wrong(error.to_string().replace('\n', " ")))?;
        given.read("", &table).map_err(wrong)?;
    }
    given.contradiction().map_or(Ok(given), Err)
}

impl Given {
    fn take(&mut self, name: &str, key: &str, value: &str) -> Result<(), String> {
        let named = find(name)?;
        let (limits, unit) = (&mut self.limits, named.metric.unit);
        match key {
            "max" => limits.push(Limit { named, bound: Bound::Max(parse(value, unit)?) }),
            "min" => limits.push(Limit { named, bound: Bound::Min(parse(value, unit)?) }),
            "tolerance" => self.tolerances.push((named, at_least_0(value, Unit::Percent)? / 100.0)),
            other => return Err(format!("{name}: {other} is not known; a metric has max, min and tolerance")),
        }
        Ok(())
    }

    fn read(&mut self, under: &str, table: &Table) -> Result<(), String> {
        for (key, value) in table {
            let name = if under.is_empty() { key.clone() } else { format!("{under}.{key}") };
            let text = match value {
                Value::Table(inner) => {
                    self.read(&name, inner)?;
                    continue;
                }
                Value::String(text) => text.clone(),
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => number.to_string(),
                _ if under.is_empty() => {
                    return Err(format!("{name}: expected a table of limits, such as summary.waits = {{ max = 1 }}"));
                }
                _ => return Err(format!("{name}: expected a number, or a text such as \"2ms\"")),
            };
            misplaced(under, key, &text)?;
            self.take(under, key, &text)
                .map_err(|problem| if problem.starts_with(under) { problem } else { format!("{name}: {problem}") })?;
        }
        Ok(())
    }

    /// Two limits that no value can satisfy.
    fn contradiction(&self) -> Option<anyhow::Error> {
        let bound = |limit: &Limit, name: &str| limit.named.name() == name;
        self.limits.iter().find_map(|limit| {
            let (Bound::Min(least), name) = (limit.bound, limit.named.name()) else { return None };
            let less = |other: &&Limit| matches!(other.bound, Bound::Max(most) if most < least) && bound(other, &name);
            self.limits.iter().find(less)?;
            Some(anyhow!(Failure::error(
                USAGE,
                format!("{name}: its max is less than its min: nothing can satisfy both")
            )))
        })
    }
}

/// A number that stands where a table belongs: beside the metrics of an analysis, in place of a metric, or on its own.
fn misplaced(under: &str, key: &str, text: &str) -> Result<(), String> {
    let bound = format!("{{ max = {text:?} }}");
    let name = if under.is_empty() { key.to_owned() } else { format!("{under}.{key}") };
    let first = |analysis: &str| all().find(|named| named.analysis.name() == analysis).map(|named| named.name());
    match (find(&name), first(under), first(key)) {
        (Ok(_), ..) => Err(format!("{name}: {text} is no limit by itself: {name} = {bound}, or min or tolerance")),
        (_, Some(metric), _) => {
            Err(format!("{name}: {under} is an analysis, and has limits by metric: {metric} = {bound}"))
        }
        (.., Some(metric)) if under.is_empty() => {
            Err(format!("{name} is an analysis, and has limits by metric: {metric} = {bound}"))
        }
        _ if under.is_empty() => Err(format!("{name}: expected a metric, such as summary.waits = {bound}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::testing::Folder;

    fn in_file(text: &str) -> Result<Given> {
        let folder = Folder::new("limits");
        given(&[], &[], Some(&folder.file("limits.toml", text.as_bytes(), 0o600)))
    }

    fn bounds(given: &Given) -> Vec<(String, Bound)> {
        given.limits.iter().map(|limit| (limit.named.name(), limit.bound)).collect()
    }

    #[test]
    fn options_and_file_say_the_same() {
        let options = given(&["summary.step_p50_ns=12ms".into()], &["summary.launches=1".into()], None).unwrap();
        let expected =
            [("summary.launches".to_owned(), Bound::Min(1.0)), ("summary.step_p50_ns".to_owned(), Bound::Max(12e6))];
        let sorted = |given: &Given| {
            let mut all = bounds(given);
            all.sort_by(|a, b| a.0.cmp(&b.0));
            all
        };
        assert_eq!(sorted(&options), expected);
        for text in [
            "[summary]\nstep_p50_ns = { max = \"12ms\" }\nlaunches = { min = 1 }",
            "\"summary.step_p50_ns\" = { max = 12e6 }\n\"summary.launches\".min = 1",
            "summary.step_p50_ns.max = \"12 ms\"\nsummary.launches.min = 1",
        ] {
            assert_eq!(sorted(&in_file(text).unwrap()), expected, "{text}");
        }
        let tolerance = in_file("summary.waits = { tolerance = \"10%\" }").unwrap();
        assert_eq!(tolerance.tolerances[0].1, 0.1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let option = |text: &str| given(&[text.into()], &[], None).err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(option("summary.waits"), "--max summary.waits: expected METRIC=VALUE");
        assert!(option("summary.wait=1").contains("the nearest are summary.wait"), "{}", option("summary.wait=1"));
        assert!(option("summary.waits=2ms").starts_with("--max summary.waits=2ms: \"2ms\" is no number"));
        let file = |text: &str| in_file(text).err().map(|e| e.to_string()).unwrap_or_default();
        let says = |text: &str, said: &str| assert!(file(text).contains(said), "{text}: {}", file(text));
        says("summary.waits = 1", r#"summary.waits: 1 is no limit by itself: summary.waits = { max = "1" }"#);
        says("[summary]\nmax = 3", "summary.max: summary is an analysis, and has limits by metric: summary.steps = {");
        says("[[summary]]\nwaits.max = 1", "summary: expected a table of limits, such as summary.waits = { max = 1 }");
        says("summary = 3", "summary is an analysis, and has limits by metric: summary.steps = {");
        says(
            "[sumary]\nwaits = { max = 1 }",
            "sumary.waits: no such metric; the nearest are os-waits.waits, summary.waits,",
        );
        says("[limits.summary]\nwaits.max = 1", "limits.summary.waits: no such metric; the nearest are");
        says("summary.waits.tolerance = -1", "-1 is less than nothing");
        let negative = in_file("summary.waits = { max = -1, min = -2.5 }").unwrap();
        assert_eq!(
            bounds(&negative).iter().map(|(_, bound)| *bound).collect::<Vec<_>>(),
            [Bound::Max(-1.0), Bound::Min(-2.5)]
        );
        assert!(file("summary.waits.most = 1").contains("most is not known; a metric has max, min and tolerance"));
        assert!(file("summary.wait.max = 1").contains("no such metric"));
        says("waits = 1", "waits: expected a metric, such as summary.waits = {");
        assert!(file("summary.waits.max = true").contains("expected a number"));
        assert!(!file("summary.waits = {").contains('\n'));
        let both = given(&["summary.waits=1".into()], &["summary.waits=2".into()], None);
        assert!(both.err().map(|e| e.to_string()).unwrap_or_default().contains("nothing can satisfy both"));
    }
}
