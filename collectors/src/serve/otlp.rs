//! The same metrics, pushed to an OpenTelemetry collector: OTLP by HTTP, as protobuf, every so many seconds and once at the end.
//!
//! A thread of its own does it. A push that fails is said once and tried again at the next turn: values are sums, so that none is
//! missing afterwards. Only the address that was given is spoken to.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::Uri;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::Look;
use super::families::families;
use super::metric::{self as ours, Family, Kind, Labels, Value};
use crate::live::{Snapshot, Source};

/// Time for a push, also the last one, for which the end waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where metrics are pushed, and how often.
#[derive(Clone, Debug)]
pub struct Target {
    url: String,
    every: Duration,
}

/// Pushes, until it is dropped.
#[derive(Debug)]
pub struct Push {
    /// Dropped, it tells the thread to end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    /// An address of an OpenTelemetry collector; without a path it is the usual one, /v1/metrics.
    pub fn new(url: &str, every: Duration) -> Result<Target, String> {
        let wrong = || "expected an address such as http://localhost:4318".to_owned();
        let parsed: Uri = url.parse().map_err(|_| wrong())?;
        if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.host().is_none_or(str::is_empty) {
            return Err(wrong());
        }
        let bare = parsed.path() == "/" && parsed.query().is_none();
        let url = if bare { format!("{}/v1/metrics", url.trim_end_matches('/')) } else { url.to_owned() };
        Ok(Target { url, every })
    }

    /// Begins to push. `failed` hears of the first push that fails.
    pub fn push(self, source: Source, failed: impl FnOnce(String) + Send + 'static) -> io::Result<Push> {
        self.push_of(super::look(source), failed)
    }

    fn push_of(self, look: Arc<Look>, failed: impl FnOnce(String) + Send + 'static) -> io::Result<Push> {
        let (stop, stopped) = channel();
        let run = move || {
            let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).max_redirects(0);
            let agent = ureq::Agent::from(config.build());
            let (mut failed, mut over) = (Some(failed), false);
            while !over {
                over = !matches!(stopped.recv_timeout(self.every), Err(RecvTimeoutError::Timeout));
                let Some(snapshot) = look() else { continue };
                let sent = agent.post(&self.url).content_type("application/x-protobuf").send(&request(&snapshot)[..]);
                if let Some((error, failed)) = sent.err().and_then(|error| Some((error, failed.take()?))) {
                    failed(format!("metrics cannot be pushed to {}: {error}; it is tried again", shown(&self.url)));
                }
            }
        };
        let thread = thread::Builder::new().name("gputrace-otlp".to_owned()).spawn(run)?;
        Ok(Push { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The address without a password in it.
fn shown(url: &str) -> String {
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => url.to_owned(),
    }
}

/// What is sent.
fn request(all: &Snapshot) -> Vec<u8> {
    let times = (all.started_ns.max(0) as u64, all.at_ns.max(0) as u64);
    let families = families(all).into_iter().filter(|family| !family.points.is_empty());
    let about = [
        ("service.name", "gputrace".into()),
        ("service.version", all.tool_version.as_str().into()),
        ("host.name", all.host.as_str().into()),
        ("gputrace.trace", all.trace.as_str().into()),
    ];
    let scope = InstrumentationScope {
        name: "gputrace".to_owned(),
        version: all.tool_version.clone(),
        ..InstrumentationScope::default()
    };
    let metrics = ScopeMetrics {
        scope: Some(scope),
        metrics: families.map(|family| metric(family, times)).collect(),
        ..ScopeMetrics::default()
    };
    let resource = Resource { attributes: attributes(about.into()), ..Resource::default() };
    let resource =
        ResourceMetrics { resource: Some(resource), scope_metrics: vec![metrics], ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![resource] }.encode_to_vec()
}

fn metric(family: Family, times: (u64, u64)) -> Metric {
    let temporality = AggregationTemporality::Cumulative.into();
    let (mut numbers, mut histograms) = (Vec::new(), Vec::new());
    for point in family.points {
        match point.value {
            Value::Number(value) => numbers.push(number(point.labels, value, times)),
            Value::Histogram(histogram) => histograms.push(durations(point.labels, &histogram, times)),
        }
    }
    let data = match family.kind {
        Kind::Counter => {
            metric::Data::Sum(Sum { data_points: numbers, aggregation_temporality: temporality, is_monotonic: true })
        }
        Kind::Gauge | Kind::Info => metric::Data::Gauge(Gauge { data_points: numbers }),
        Kind::Histogram => {
            metric::Data::Histogram(Histogram { data_points: histograms, aggregation_temporality: temporality })
        }
    };
    // Whoever turns this into Prometheus' names adds `_total` again.
    let name = family.name.strip_suffix("_total").unwrap_or(&family.name).to_owned();
    let unit = match family.unit {
        "seconds" => "s",
        "bytes" => "By",
        "celsius" => "Cel",
        "hertz" => "Hz",
        "watts" => "W",
        _ => "1",
    };
    Metric { name, description: family.help.into_owned(), unit: unit.to_owned(), data: Some(data), ..Metric::default() }
}

fn number(labels: Labels, value: f64, (start, now): (u64, u64)) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: start,
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn durations(labels: Labels, histogram: &ours::Histogram, (start, now): (u64, u64)) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: start,
        time_unix_nano: now,
        count: histogram.count(),
        sum: Some(histogram.sum_seconds),
        bucket_counts: histogram.counts.to_vec(),
        explicit_bounds: ours::ENDS_NS.iter().map(|end| *end as f64 / 1e9).collect(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(labels: Labels) -> Vec<KeyValue> {
    let one = |(key, value): (&str, Arc<str>)| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_string())) }),
        ..KeyValue::default()
    };
    labels.into_iter().map(one).collect()
}

#[cfg(test)]
#[path = "otlp_tests.rs"]
mod tests;
